"""How much of a figure is drawn: beyond these numbers it is thinned, and a note under the figure says how."""

CELLS = 1_000_000  # values of one matrix figure over all its frames; larger ones are drawn as blocks
CODES = 4 * CELLS  # for a status matrix: a code takes one byte, a value four
EXTRAS = 2_000_000  # values of the further variables of a matrix
TEXTS = 40_000  # tooltips of a matrix
POINTS = 4_000  # per curve
ALL_POINTS = 240_000  # per figure over all its frames
STEPS = 1_000  # per distribution function
MIDDLES = 2_000  # medians of groups per series of samples
TILES = (400, 300)  # per spectrogram
LEAVES = 60  # per dendrogram
NODES = 1_000  # per icicle
STRETCHES = 1_000  # per stacked area
COLUMNS = 128  # stacked bars side by side
BULK = 0.99  # share of samples that a reader may view without the rest
CLIP = 0.99  # colours of a large matrix end at this quantile: one slow link must not hide all structure
