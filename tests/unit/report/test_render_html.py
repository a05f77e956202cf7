import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import plotly.graph_objects as go
import pytest
import xarray as xr
from markupsafe import Markup

import report_demo as demo
from sonde.core.errors import DataError, Finding
from sonde.core.figure import Axis, Figure, Kind, Slider
from sonde.core.printable import printable
from sonde.core.section import Section
from sonde.report import page, palette, prepare, render_html, scale
from sonde.report.page import Report
from sonde.report.prepare import curves
from sonde.report.render_html import document, hierarchies, packing, texts, theme

ALL = [
    demo.matrix(4),
    demo.matrix(32),
    demo.status(4),
    demo.series(),
    demo.spectrogram(),
    demo.cdf(),
    demo.dendrogram(8),
    demo.model(),
    demo.rules(),
    demo.icicle(),
    demo.areas(),
    demo.columns(),
    demo.panels(),
]


class Page(HTMLParser):
    """What a browser would see: elements with their attributes, and the text outside scripts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.words, self.within = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.within.append(tag)

    def handle_endtag(self, tag):
        if tag in self.within:
            while self.within.pop() != tag:
                pass

    def handle_data(self, data):
        if not {"script", "style"} & set(self.within):
            self.words.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def unpacked(node):
    flat = np.frombuffer(base64.b64decode(node["bdata"]), "<" + node["dtype"])
    return flat.reshape([int(n) for n in node["shape"].split(",")]) if "shape" in node else flat


def merged(base, patch):
    if isinstance(base, dict) and isinstance(patch, dict):
        return {**base, **{k: merged(base.get(k), v) for k, v in patch.items()}}
    return patch


def light(node):
    """Theme tokens as the light theme has them; the page does the same with the reader's theme."""
    if isinstance(node, dict):
        return {k: light(v) for k, v in node.items()}
    if isinstance(node, list):
        return [light(v) for v in node]
    if isinstance(node, str) and node.startswith("@"):
        return "sans-serif" if node == "@font" else theme.tokens()["light"][node[1:]]
    return node


def plotly(drawn, frame=None):
    """{"data", "layout"} at one frame, as the page hands it to plotly; None is where the controls start."""
    patch = drawn.spec["frames"][drawn.spec["start"] if frame is None else frame]
    data = [merged(trace, part) for trace, part in zip(drawn.spec["traces"], patch["traces"])]
    return light({"data": data, "layout": merged(drawn.spec["layout"], patch.get("layout", {}))})


def without_library(text):
    return text.replace(texts.script(document.plotly_js())[0], "")


@pytest.fixture(scope="module")
def whole():
    return render_html.render(demo.report(32))


@pytest.mark.parametrize("figure", ALL, ids=lambda f: f"{f.kind.value}-{f.id}")
def test_every_kind_is_a_valid_plotly_figure_at_every_position(figure):
    drawn = render_html.draw(figure)
    for frame in range(len(drawn.spec["frames"])):
        go.Figure(plotly(drawn, frame))  # refuses properties that plotly does not know
    json.dumps(drawn.spec, allow_nan=False)


def test_every_kind_is_tested():
    assert {f.kind for f in ALL} == set(Kind)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2, 3], "i1"),
        ([-1, 200], "i2"),
        ([0, 255], "u1"),
        ([0, 65535], "u2"),
        ([70000], "i4"),
        ([1.5], "f4"),
        ([1.0, 2.0], "i1"),
        ([1.0, np.nan], "f4"),
        ([True, False], "i1"),
        ([2**40], "f8"),
        ([], "f4"),
    ],
)
def test_arrays_are_packed_small_and_read_back_as_they_were(values, dtype):
    packed = packing.pack(np.array(values))
    assert packed["dtype"] == dtype
    np.testing.assert_allclose(unpacked(packed), values, rtol=1e-6)


def test_a_matrix_keeps_its_shape():
    a = np.arange(6.0).reshape(2, 3) + 0.5
    np.testing.assert_array_equal(unpacked(packing.pack(a)), a)


def test_positions_that_single_precision_would_merge_are_preserved_in_double():
    fine = 1e5 + np.arange(100) * 1e-4
    assert packing.pack_axis(fine)["dtype"] == "f8"
    assert packing.pack_axis(np.linspace(0.5, 1.5, 100))["dtype"] == "f4"


def test_the_slider_changes_what_is_drawn():
    drawn = render_html.draw(demo.matrix(4))
    first, last = (unpacked(plotly(drawn, k)["data"][0]["z"]) for k in (0, len(demo.SIZES) - 1))
    truth = np.log10(demo.medians(4, demo.SIZES) * 1e6)
    np.testing.assert_allclose(first, truth[..., 0], rtol=1e-5)
    np.testing.assert_allclose(last, truth[..., -1], rtol=1e-5)
    assert drawn.spec["start"] == 3


def test_what_no_control_changes_is_embedded_once():
    value = np.random.default_rng(0).random((1, 50, 40))
    data = xr.Dataset({"y": (("series", "x", "pair"), value)}, coords={"x": np.arange(50) * 0.5})
    drawn = render_html.draw(Figure("f", "", "", Kind.SERIES, data, {}, (Slider("pair", "Pair"),)))
    assert "x" in drawn.spec["traces"][0]
    assert all("x" not in frame["traces"][0] for frame in drawn.spec["frames"])


def test_epochs_are_two_traces_in_two_tones_under_their_median():
    spec = render_html.draw(demo.series()).spec
    tones = [trace["line"]["color"] for trace in spec["traces"]]
    assert tones == ["@s0", "@p0", "@ink", "@ink"]
    assert [t["name"] for t in spec["traces"] if t["showlegend"]] == [curves.MIDDLE]


def series_of(n, **more):
    y = np.random.default_rng(0).lognormal(size=(n, 300)) * 1e-6
    y[:, 7] = 1.0
    data = {"y": (("series", "x"), y), "group": (("series", "x"), np.tile(np.arange(300) // 30, (n, 1)))}
    coords = {"series": [f"pair {k}" for k in range(n)]}
    return Figure(
        "f", "", "", Kind.SERIES, xr.Dataset(data | more, coords), {"y": Axis("delay", "s", log=True)}
    )


def test_several_series_have_a_panel_each_of_one_scale():
    drawn = render_html.draw(series_of(3, level=("level", [2e-6])))
    figure = plotly(drawn)
    go.Figure(figure)
    axes = [figure["layout"][name] for name in ("yaxis", "yaxis2", "yaxis3")]
    ends = [axis["domain"] for axis in axes]
    assert ends[0][0] > ends[1][1] > ends[1][0] > ends[2][1] >= ends[2][0] >= 0, "one above the other"
    assert [axis.get("matches") for axis in axes] == [None, "y", "y"]
    assert {t.get("yaxis", "y") for t in figure["data"] if t["name"] == "pair 1"} == {"y2"}
    assert [a["text"] for a in figure["layout"]["annotations"]] == [f"<b>pair {k}</b>" for k in range(3)]
    assert [s["yref"] for s in figure["layout"]["shapes"]] == ["y", "y2", "y3"], "a level is drawn in each"
    assert set(drawn.spec["frames"][0]["focus"]) == {"yaxis", "yaxis2", "yaxis3"}


@pytest.mark.parametrize("n", [1, 7])
def test_one_series_or_very_many_share_one_panel(n):
    layout = render_html.draw(series_of(n)).spec["layout"]
    assert "yaxis2" not in layout
    assert "domain" not in layout["yaxis"]


def test_the_colour_bar_says_from_where_to_where_at_every_position():
    drawn = render_html.draw(demo.matrix(4))
    told = []
    for k in (0, 7):
        made = plotly(drawn, k)
        ends = [10 ** made["data"][0][end] * 1e-6 for end in ("zmin", "zmax")]
        told.append(made["layout"]["title"]["text"])
        low, high = (scale.quantity(end, "s", 3) for end in ends)
        assert told[-1] == f"Median latency, RTT/2: {low} to {high}"
    assert told[1] != told[0]
    assert drawn.spec["fixed"]["layout"]["title"]["text"] not in told
    spectrum = plotly(render_html.draw(demo.spectrogram()))["layout"]["title"]["text"]
    assert " to " in spectrum


def test_two_ranks_alike_are_drawn_alike_and_the_note_says_why():
    value = np.array([[np.nan, 1.001], [1.0, np.nan]]) * 1e-6
    data = xr.Dataset({"value": (("row", "col"), value)})
    axis = Axis("delay", "s", log=True)
    drawn = render_html.draw(Figure("f", "", "", Kind.MATRIX, data, {"value": axis}))
    trace = plotly(drawn)["data"][0]
    places = (unpacked(trace["z"]) - trace["zmin"]) / (trace["zmax"] - trace["zmin"])
    assert np.nanmax(places) - np.nanmin(places) < 0.02
    assert any("±5%" in note for note in drawn.notes)
    assert drawn.spec["size"]["most"] < 400, "two ranks need no large square"


def test_a_ratio_goes_two_ways_from_its_centre():
    data = xr.Dataset({"value": (("row", "col"), [[np.nan, 1.4], [0.9, np.nan]])})
    trace = plotly(
        render_html.draw(Figure("f", "", "", Kind.MATRIX, data, {"value": Axis("ratio", centre=1.0)}))
    )["data"][0]
    assert (trace["zmin"] + trace["zmax"]) / 2 == pytest.approx(1)
    assert trace["zmax"] == pytest.approx(1.4)
    assert trace["colorscale"][0][1] == palette.DIVERGING[0]


def test_states_are_steps_of_colour_with_counts_and_letters():
    spec = render_html.draw(demo.status(4)).spec
    assert [code["label"] for code in spec["legend"]] == list(demo.STATES)
    assert len({code["initial"] for code in spec["legend"]}) == len(demo.STATES)
    assert sum(code["counts"][0] for code in spec["legend"]) == 12
    scale = spec["traces"][0]["colorscale"]
    assert len(scale) == 2 * len(demo.STATES)
    assert scale[1][0] == scale[2][0]
    assert scale[1][1] != scale[2][1]


def test_text_is_never_read_as_plotly_markup():
    hostile = '<b>n1</b><a href="https://example.org">x</a>'
    data = xr.Dataset(
        {"value": (("row", "col"), np.ones((2, 2)))}, coords={"row": [hostile, "n2"], "col": ["n1", "n2"]}
    )
    layout = render_html.draw(Figure("f", "", "", Kind.MATRIX, data, {"row": Axis(hostile)})).spec["layout"]
    assert "<" not in layout["yaxis"]["title"]["text"]
    assert "<" not in layout["yaxis"]["ticktext"][0].replace("<br>", " ")  # where a long name goes on below
    assert "&lt;b&gt;" in layout["yaxis"]["ticktext"][0]


def root_alone(value):
    return xr.Dataset({"parent": ("node", [-1]), "value": ("node", [value]), "label": ("node", ["all"])})


def test_figures_without_a_value_are_drawn():
    nothing = np.full((3, 3), np.nan)
    made = [
        Figure(
            "m",
            "",
            "",
            Kind.MATRIX,
            xr.Dataset({"value": (("row", "col"), nothing)}),
            {"value": Axis("v", "s", True)},
        ),
        Figure("s", "", "", Kind.SPECTROGRAM, xr.Dataset({"power": (("x", "frequency"), nothing)})),
        Figure(
            "y",
            "",
            "",
            Kind.SERIES,
            xr.Dataset({"y": (("series", "x"), nothing)}),
            {"y": Axis("y", "s", True)},
        ),
        Figure("c", "", "", Kind.CDF, xr.Dataset({v: (("series", "point"), nothing) for v in "xp"})),
        Figure("x", "", "", Kind.SCATTER, xr.Dataset({v: (("series", "point"), nothing) for v in "xy"})),
        Figure("b", "", "", Kind.BAR, xr.Dataset({"y": ("bar", nothing[0])})),
        Figure("d", "", "", Kind.DENDROGRAM, xr.Dataset({"merge": (("link", "part"), np.empty((0, 4)))})),
        Figure("i", "", "", Kind.ICICLE, root_alone(np.nan)),
        Figure(
            "t",
            "",
            "",
            Kind.STACK,
            xr.Dataset({"y": (("part", "x"), nothing)}, coords={"x": [0.0, 1.0, 2.0]}),
        ),
        Figure(
            "k",
            "",
            "",
            Kind.STACK,
            xr.Dataset({"y": (("part", "x"), nothing)}, coords={"x": ["a", "b", "c"]}),
        ),
    ]
    for figure in made:
        go.Figure(plotly(render_html.draw(figure)))


def test_a_report_that_cannot_be_drawn_is_refused_with_the_figures_name():
    bad = Figure("broken", "", "", Kind.MATRIX, xr.Dataset())
    with pytest.raises(DataError, match="'broken'"):
        render_html.render(Report("t", "v", [Section("net", "t", "v", figures=[bad])]))


# ---- the page ----


def test_the_page_says_the_verdict_first_and_keeps_its_order(whole):
    text = Page(whole).text
    made = demo.report(32)
    places = [
        text.index(made.verdict),
        text.index(made.machine["CPU"]),
        text.index(made.sections[0].findings[0].text),
        text.index(made.sections[0].tables[0].title),
        text.index(made.sections[0].figures[0].caption),
        text.index(made.warnings[0].evidence),
        text.index(made.method[0].source),
    ]
    assert places == sorted(places)
    assert made.sections[0].findings[0].next in text


def test_plotly_is_embedded_once_and_only_where_it_is_needed(whole):
    assert whole.count("* plotly.js v") == 1
    bare = render_html.render(Report("t", "v", [Section("net", "t", "v")]))
    assert "plotly.js v" not in bare
    assert len(bare) < 100_000


def test_a_small_report_is_below_six_megabytes():
    assert len(render_html.render(demo.report(4)).encode()) < 6e6


def test_the_page_asks_nothing_of_any_network(whole):
    seen = Page(without_library(whole))
    for tag, attributes in seen.elements:
        for name in ("src", "href", "action", "data", "srcset", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith("#"), (tag, name, value)
        assert tag not in ("link", "iframe", "object", "embed", "base", "form"), tag
    assert "@import" not in whole[: whole.index("</style>")]
    assert "url(" not in whole[: whole.index("</style>")]


def test_the_policy_allows_the_pages_own_scripts_and_nothing_else(whole):
    (policy,) = [
        a["content"] for a in Page(whole).all("meta") if a.get("http-equiv") == "Content-Security-Policy"
    ]
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    scripts = re.findall(r"<script>(.*?)</script>", whole, re.DOTALL)
    digests = {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts}
    assert len(scripts) == 3
    assert digests == allowed
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "http" not in policy


@pytest.fixture(scope="module")
def benign():
    return Page(without_library(render_html.render(demo.hostile_report("benign"))))


@pytest.mark.parametrize("text", demo.HOSTILE)
def test_hostile_text_stays_text(benign, text):
    page = render_html.render(demo.hostile_report(text))
    struck = Page(without_library(page))
    assert [tag for tag, _ in struck.elements] == [tag for tag, _ in benign.elements]
    for tag, attributes in struck.elements:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
    assert " ".join(printable(text).split()) in struck.text
    assert "49" not in re.findall(r"<h1>(.*?)</h1>", page)


@pytest.mark.parametrize("text", demo.HOSTILE)
def test_hostile_text_inside_a_specification_ends_no_script(text):
    embedded = texts.embed({"a": [text]})
    assert "<" not in embedded
    assert json.loads(embedded) == {"a": [printable(text)]}


def test_without_scripts_the_page_still_tells_everything(whole):
    seen = Page(whole)
    assert ("noscript", {}) in seen.elements
    assert "Verdict, findings and tables are complete without it." in seen.text
    for node in ("slider", "plot"):
        assert node not in seen.text
    four = Page(render_html.render(demo.report(4)))
    told = prepare.numbers(demo.matrix(4))
    assert told is not None
    assert all(cell in four.text for row in told.rows for cell in row)


def test_controls_are_labelled_for_those_who_do_not_see_them(whole):
    seen = Page(whole)
    ids = [a["id"] for _, a in seen.elements if "id" in a]
    assert len(ids) == len(set(ids))
    labelled = {a["for"] for a in seen.all("label") if "for" in a}
    for control in seen.all("input"):
        if control["type"] == "range":
            assert control["id"] in labelled
            assert control["aria-valuetext"]
    for a in (*seen.all("figure"), *seen.all("section")):
        assert a.get("aria-label") or a["aria-labelledby"] in ids
    for _, a in seen.elements:
        if "aria-describedby" in a:
            assert a["aria-describedby"] in ids
        if a.get("role") in ("img", "application", "region"):
            assert "aria-label" in a
    for a in seen.all("a"):
        assert a["href"][1:] in ids
    assert seen.all("html")[0]["lang"] == "en"


def test_the_same_figure_id_twice_makes_two_places():
    made = Section("net", "t", "v", figures=[demo.rules(), demo.rules(), demo.rules()])
    seen = Page(render_html.render(Report("t", "v", [made, made])))
    ids = [a["id"] for a in seen.all("figure")]
    assert len(ids) == len(set(ids)) == 6


def test_a_finding_about_a_pair_leads_to_its_cell():
    seen = Page(without_library(render_html.render(demo.report(32))))
    (go_to,) = [a for a in seen.all("button") if "go" in a.get("class", "").split()]
    assert go_to["data-figure"] == "net-median-latency"
    assert (go_to["data-row"], go_to["data-col"], go_to["data-at"]) == ("3", "27", "3")


def test_a_pair_that_no_matrix_holds_leads_nowhere():
    made = demo.section(4)
    made.findings = [Finding("net.slow_link", "x", {"src": 99, "dst": 1})]
    seen = Page(without_library(render_html.render(Report("t", "v", [made]))))
    assert not [a for a in seen.all("button") if "go" in a.get("class", "").split()]


def test_several_rooms_are_listed_under_the_verdict():
    one, two = demo.section(32), demo.section(4)
    two.title = "Second run"
    seen = Page(without_library(render_html.render(Report("t", page.verdict_of([one, two]), [one, two]))))
    assert seen.text.index("2 findings in 1 of 2 datasets") < seen.text.index("Second run All 12 pairs")


def test_a_long_machine_is_folded_but_complete():
    machine = {f"name {k}": f"value {k}" for k in range(30)}
    seen = Page(render_html.render(Report("t", "v", machine=machine)))
    assert "15 more" in seen.text
    assert all(f"name {k} value {k}" in seen.text for k in range(30))
    assert (
        "more"
        not in Page(render_html.render(Report("t", "v", machine=dict(list(machine.items())[:18])))).text
    )


def test_many_findings_are_folded_but_complete():
    found = [Finding(f"net.slow_{k}", f"Link number {k} is slow.") for k in range(25)]
    seen = Page(render_html.render(Report("t", "v", [Section("net", "t", "v", findings=found)])))
    assert "5 more findings" in seen.text
    assert all(f"Link number {k} is slow. net.slow_{k}" in seen.text for k in range(25))
    assert len([a for a in seen.all("ol") if a.get("class") == "findings"]) == 2


def test_advice_is_no_command_to_copy():
    found = [
        Finding("a", "x", {}, "sonde net show a.nc"),
        Finding("b", "y", {}, "try larger buffers: --sizes 1MiB"),
    ]
    seen = Page(render_html.render(Report("t", "v", [Section("io", "t", "v", findings=found)])))
    assert [a["data-copy"] for a in seen.all("button") if "data-copy" in a] == ["sonde net show a.nc"]
    assert "try larger buffers:" in seen.text
    assert seen.text.count("To look closer") == 1


def test_a_report_of_nothing_is_a_page():
    seen = Page(render_html.render(Report("t", page.verdict_of([]))))
    assert "Nothing was measured." in seen.text
    assert "No findings" in seen.text


def test_a_large_report_stays_bounded():
    """1024 ranks and a series of 10^5: bytes do not follow the data."""
    value = np.random.default_rng(0).lognormal(-13, 0.1, (1024, 1024, 3)).astype(np.float32)
    data = xr.Dataset({"value": (("row", "col", "size"), value)}, coords={"size": [8, 1024, 65536]})
    axes = {"value": Axis("t", "s", True)}
    big = Figure("big", "", "", Kind.MATRIX, data, axes, (Slider("size", "Size", "B"),))
    made = Section("net", "t", "v", figures=[big, demo.series(100_000)])
    text = render_html.render(Report("t", "v", [made]))
    assert len(text) < 18e6
    assert "1024 × 1024 cells are drawn as blocks of 2 × 2" in Page(without_library(text)).text


def test_a_doubtful_report_is_not_green():
    section = Section("net", "Latency", "v", doubt="Nothing converged")
    text = render_html.render(Report("t", "v", [section, section]))
    counts = [e["class"] for _, e in Page(text).elements if "count" in e.get("class", "").split()]
    assert counts == ["count plain", "count warned"]
    dots = [e["class"] for e in Page(text).all("span") if e.get("class", "").startswith("dot")]
    assert dots == ["dot warned"] * 2
    clear = render_html.render(Report("t", "v", [Section("net", "Latency", "v")]))
    assert 'class="count clear"' in clear


def dressed():
    """Two classes, each with points, a line and its dashed end; the lines share their entries of the legend."""
    names = ["a", "a, fit", "a, fit", "b", "b, fit"]
    data = xr.Dataset(
        {
            "x": (("series", "point"), np.tile([1.0, 2.0], (5, 1))),
            "y": (("series", "point"), np.tile([1.0, 3.0], (5, 1))),
            "style": ("series", ["points", "line", "dashed", "points", "line"]),
            "hue": ("series", [0, 0, 0, 1, 1]),
            "key": ("series", ["", "fit", "beyond", "", "fit"]),
        },
        coords={"series": names},
    )
    return Figure("m", "", "", Kind.SCATTER, data, {"x": Axis("x"), "y": Axis("y")})


def test_the_legend_says_each_kind_of_line_once():
    data = plotly(render_html.draw(dressed()))["data"]
    assert [t["name"] for t in data if t["showlegend"]] == ["a", "b", "fit", "beyond"]
    colours = [t["line"]["color"] if "line" in t else t["marker"]["color"] for t in data[:5]]
    assert colours[0] == colours[1] == colours[2] != colours[3] == colours[4]
    assert [t["line"]["dash"] for t in data if "line" in t] == ["solid", "dash", "solid", "solid", "dash"]


def test_a_key_whose_lines_have_one_colour_has_it_too():
    x = (("series", "point"), np.tile([1.0, 2.0], (3, 1)))
    data = xr.Dataset(
        {"x": x, "y": x, "style": ("series", ["line"] * 3), "hue": ("series", [0, 0, 1])}
        | {"tone": ("series", [0, 1, 1]), "key": ("series", ["joined", "raw: alone", "raw-ofi: alone"])}
    )
    figure = Figure("f", "t", "c", Kind.SCATTER, data, {"x": Axis("x", "B"), "y": Axis("y", "s")})
    drawn, legend = np.split(np.array(plotly(render_html.draw(figure))["data"]), 2)
    assert [t["line"]["color"] for t in legend] == [t["line"]["color"] for t in drawn]
    assert len({t["line"]["color"] for t in legend}) == 3
    assert [t["name"] for t in legend] == ["joined", "raw: alone", "raw-ofi: alone"]


def test_a_caption_may_have_paragraphs():
    figure = dressed()
    figure = Figure(figure.id, "t", "first\nsecond", figure.kind, figure.data, figure.axes)
    section = Section("net", "Latency", "v", figures=[figure])
    assert "<p>first</p><p>second</p>" in render_html.render(Report("t", "v", [section]))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("measure (--budget 5min) or (--rule ci:5%).", ["--budget 5min", "--rule ci:5%"]),
        ("choose a coarser --rule", ["--rule"]),
        ("net run --sizes 0:1000:100 -o a.nc", ["--sizes 0:1000:100"]),
        ("give --raw to keep all", ["--raw"]),
        ("nothing to type here", []),
    ],
)
def test_options_to_type_are_not_broken_over_lines(text, kept):
    made = texts.options(text)
    assert re.findall(r'<span class="nobreak">(.*?)</span>', made) == kept
    assert re.sub(r"</?span[^>]*>", "", made) == text


def test_options_are_still_escaped():
    assert "<b>" not in texts.options("<b> --budget 5min <b>")


def shaded() -> Figure:
    data = xr.Dataset(
        {
            "x": (("series", "point"), [[1.0, 2.0]]),
            "y": (("series", "point"), [[1.0, 2.0]]),
            "band": (("band", "end"), [[1.0, 1.5]]),
            "band_name": "agent <on>",
        }
    )
    return Figure("f", "F", "", Kind.SCATTER, data, {"x": Axis("time", "s"), "y": Axis("share")})


def test_shaded_ground_lies_behind_everything_and_the_legend_names_it():
    drawn = plotly(render_html.draw(shaded()))
    (shape,) = drawn["layout"]["shapes"]
    assert (shape["type"], shape["x0"], shape["x1"], shape["layer"]) == ("rect", 1.0, 1.5, "below")
    assert shape["fillcolor"] == theme.tokens()["light"]["band"]
    assert drawn["layout"]["showlegend"]
    assert drawn["data"][-1]["name"] == "agent &lt;on&gt;"
    assert all(
        len(frame["traces"]) == len(drawn["data"]) for frame in render_html.draw(shaded()).spec["frames"]
    )


def test_a_number_is_not_parted_from_its_unit():
    told = str(texts.options("1.2 % in 15.1 s, p = 0.1; 1.0 KiB of 3 ranks, 2 sets"))
    assert told == "1.2\u00a0% in 15.1\u00a0s, p = 0.1; 1.0\u00a0KiB of 3 ranks, 2 sets"


def test_an_icicle_hands_on_what_is_in_each_node_itself_and_its_colours():
    drawn = render_html.draw(demo.icicle())
    (trace,) = plotly(drawn)["data"]
    assert trace["labels"] == ["all calls", "write", "pwrite", "read", "fsync"]
    assert trace["parents"] == ["", "0", "1", "0", "1"]
    np.testing.assert_allclose(unpacked(trace["values"]), [0, 0.125, 0.5, 0.25, 0.125])  # sums are plotly's
    light = theme.tokens()["light"]
    assert trace["marker"]["colors"] == [light[name] for name in ("hole", "s0", "s1", "s0", "s1")]
    assert trace["textfont"]["color"] == [light[name] for name in ("ink", "on-s0", "on-s1", "on-s0", "on-s1")]
    assert [hue["label"] for hue in drawn.spec["hues"]] == ["library", "system"]


def test_the_tip_of_a_node_tells_what_is_known_of_it_and_no_more():
    (trace,) = plotly(render_html.draw(demo.icicle()))["data"]
    told = [tip.replace("\u00a0", " ").replace("\u2009", "") for tip in trace["customdata"]]
    assert told[2] == "<b>pwrite</b><br>Time 500 ms<br>Calls 2<br>Bytes 8 KiB"
    assert told[4] == "<b>fsync</b><br>Time 125 ms"


def test_a_deep_icicle_says_how_much_of_it_is_shown_at_once():
    n = hierarchies.DEEP + 8
    chain = {"parent": np.arange(n) - 1, "value": np.full(n, 2.0), "label": [str(k) for k in range(n)]}
    drawn = render_html.draw(
        Figure("f", "", "", Kind.ICICLE, xr.Dataset({k: ("node", v) for k, v in chain.items()}))
    )
    assert drawn.notes == ["12 of 20 levels are drawn at once; enlarge a part to see the others."]
    assert drawn.spec["traces"][0]["maxdepth"] == 12
    assert drawn.spec["size"]["height"] < 600
    assert render_html.draw(demo.icicle()).notes == []


def test_names_of_nodes_and_parts_are_no_markup():
    figure = demo.icicle()
    data = figure.data.assign(label=("node", ["<b>x</b>", "@ink", "c", "d", "e"]))
    (trace,) = plotly(render_html.draw(Figure("f", "", "", Kind.ICICLE, data)))["data"]
    assert trace["labels"][0] == "&lt;b&gt;x&lt;/b&gt;"
    assert "&#64;ink" in trace["labels"]
    assert "<b>x" not in trace["customdata"][0]
    data = demo.panels().data.assign_coords(part=["<i>", "b"], x=["<u>", "y"])
    heading = data["heading"].copy(data=np.full((2, 2), "<s>", object))
    text = data["text"].copy(data=np.full((2, 2, 2), "<em>", object))
    figure = Figure(
        "f", "", "", Kind.STACK, data.assign(heading=heading, text=text), {}, demo.panels().controls
    )
    assert not re.search("<(i|u|s|em)>", json.dumps(render_html.draw(figure).spec))


def test_every_fill_has_ink_to_be_read_on_it():
    for colours in theme.tokens().values():
        for hue in range(2 * len(palette.LIGHT)):
            fill = theme.fill(hue)
            assert palette.contrast(colours[fill], colours[f"on-{fill}"]) >= 4.4
    assert len({theme.fill(hue) for hue in range(12)}) == 12


def test_areas_stand_upon_each_other_and_hold_until_the_next():
    drawn = render_html.draw(demo.areas())
    figure = plotly(drawn, 1)
    truth = demo.areas().data
    assert [t["stackgroup"] for t in figure["data"]] == ["all", "all"]
    assert {t["line"]["shape"] for t in figure["data"]} == {"hv"}
    x, y = (unpacked(figure["data"][0][name]) for name in "xy")
    np.testing.assert_allclose(x, np.append(truth["x"].values, 0.1) * 1e3, rtol=1e-6)
    np.testing.assert_allclose(y[:-1], truth["y"].values[0, :, 1], rtol=1e-6)
    assert y[-1] == y[-2], "the last stretch has an end"
    light = theme.tokens()["light"]
    assert [t["fillcolor"] for t in figure["data"]] == [light["p1"], light["s0"]]
    assert figure["layout"]["legend"]["traceorder"] == "reversed"


def test_bars_of_a_stack_are_named_and_stand_upon_each_other():
    figure = plotly(render_html.draw(demo.columns()))
    assert figure["layout"]["barmode"] == "stack"
    assert figure["layout"]["xaxis"]["ticktext"] == ["0", "1", "2", "3"]
    np.testing.assert_allclose(unpacked(figure["data"][0]["y"]), [1, 2, 3, 4], rtol=1e-6)


def test_bars_with_long_names_lie_and_keep_all_their_names():
    names = [
        "romio321",
        "romio321, romio_cb_write=disable",
        "ompio",
        "ompio, cb_nodes=1, cb_buffer_size=4194304",
    ]
    made = demo.columns()
    figure = plotly(render_html.draw(replace(made, data=made.data.assign_coords(x=names))))
    assert figure["layout"]["barmode"] == "stack"
    assert figure["layout"]["yaxis"]["ticktext"] == [
        "romio321", "romio321,<br>romio_cb_write=disable", "ompio",
        "ompio, cb_nodes=1,<br>cb_buffer_size=4194304",
    ]  # fmt: skip
    assert figure["layout"]["yaxis"]["range"] == [3.5, -0.5], "the first is uppermost"
    assert all(trace["orientation"] == "h" for trace in figure["data"])
    np.testing.assert_allclose(unpacked(figure["data"][0]["x"]), [1, 2, 3, 4], rtol=1e-6)


def test_parts_of_no_common_sum_have_panels_whose_headings_follow_the_slider():
    drawn = render_html.draw(demo.panels())
    for frame, (headings, last) in enumerate(
        [
            (["library: 4", "system: 64"], ["", "64 writes"]),
            (["library: 4", "system: 4"], ["1 read", "3 reads"]),
        ]
    ):
        figure = plotly(drawn, frame)
        assert [a["text"] for a in figure["layout"]["annotations"]] == [f"<b>{text}</b>" for text in headings]
        assert figure["data"][1]["hovertext"] == last
    assert [t.get("yaxis", "y") for t in figure["data"]] == ["y", "y2"]
    assert figure["layout"]["yaxis2"]["matches"] == "y"
    assert not figure["layout"]["showlegend"]


def test_an_icicle_can_be_walked_by_keys_and_says_so():
    seen = Page(render_html.render(Report("t", "v", [Section("io", "t", "v", figures=[demo.icicle()])])))
    (plot,) = [a for a in seen.all("div") if a.get("class") == "plot"]
    assert (plot["tabindex"], plot["role"], plot["aria-roledescription"]) == ("0", "application", "icicle")
    assert "Enter enlarges" in plot["aria-label"]
    assert [a for a in seen.all("div") if a.get("class") == "cell" and a["aria-live"] == "polite"]
    assert re.search(r"\spwrite system 500\sms", seen.text), "the table of numbers needs no script"


def test_what_turns_or_hides_text_is_shown_by_its_number():
    name = "n1\u202egnp\u2028\x1b[31m\u200b"
    visible = "n1\\u202egnp\\u2028\\x1b[31m\\u200b"
    assert json.loads(str(texts.embed({name: [name, 1.5, None, (name,)]}))) == {
        visible: [visible, 1.5, None, [visible]]
    }
    assert str(texts.options(f"{name} --budget 5min")).startswith(visible)
    assert texts.shown(Markup("<b>")) == "<b>"
