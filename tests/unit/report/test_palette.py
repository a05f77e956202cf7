import itertools

import pytest

from sonde.report import palette
from sonde.report.render_html.document import TEMPLATE
from sonde.report.render_html.theme import tokens


def test_contrast_of_black_and_white_is_21():
    assert palette.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert palette.contrast("#777777", "#777777") == pytest.approx(1)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_have_aa_contrast_on_their_ground(theme):
    t = tokens()[theme]
    for word in ("ink", "quiet", "accent"):
        for ground in ("ground", "hole"):
            assert palette.contrast(t[word], t[ground]) >= 4.5, (word, ground)


def test_words_of_the_page_itself_have_aa_contrast():
    css = (TEMPLATE / "page.css").read_text()
    light, dark = css[: css.index("@media screen")], css[css.index("@media screen") :]

    def colour(name, text):
        return text[text.index(f"--{name}:") :].split(":")[1].split(";")[0]

    for theme, text in (("light", light), ("dark", dark)):
        for name in ("struck", "clear", "warned"):
            for ground in ("paper", "rise", f"{name}-wash"):
                assert palette.contrast(colour(name, text), colour(ground, text)) >= 4.5, (
                    theme,
                    name,
                    ground,
                )
        for name in ("ink", "quiet", "accent"):
            assert palette.contrast(tokens()[theme][name], colour("paper", text)) >= 4.5, (theme, name)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_curves_stand_out_from_their_ground(theme):
    t = tokens()[theme]
    for k in range(len(palette.LIGHT)):
        assert palette.contrast(t[f"s{k}"], t["ground"]) >= 3, k
        assert palette.contrast(t[f"s{k}"], t[f"p{k}"]) >= 1.5, k  # the two tones of epochs


def test_letters_on_states_can_be_read():
    for code in range(20):
        ground = palette.status(code)
        assert palette.contrast(palette.ink_on(ground), ground) >= 4.5


def test_neighbouring_states_differ_and_grey_never_returns():
    shown = [palette.status(k) for k in range(20)]
    assert all(a != b for a, b in itertools.pairwise(shown))
    assert palette.STATUS[0] not in shown[1:]


@pytest.mark.parametrize("name", palette.MAPS)
def test_maps_are_those_of_matplotlib(name):
    matplotlib = pytest.importorskip("matplotlib")
    colours = pytest.importorskip("matplotlib.colors")
    expected = [colours.to_hex(matplotlib.colormaps[name](k / 15)) for k in range(16)]
    assert list(palette.MAPS[name]) == expected


@pytest.mark.parametrize("name", palette.MAPS)
def test_maps_ascend_in_lightness(name):
    lightness = [palette.luminance(colour) for colour in palette.MAPS[name]]
    assert lightness == sorted(lightness)


def test_the_diverging_map_is_lightest_in_the_middle_and_its_ends_differ_in_hue():
    lightness = [palette.luminance(colour) for colour in palette.DIVERGING]
    assert lightness[:6] == sorted(lightness[:6])
    assert lightness[5:] == sorted(lightness[5:], reverse=True)
    for theme in ("light", "dark"):
        hole = tokens()[theme]["hole"]
        assert all(palette.contrast(colour, hole) >= 1.3 for colour in palette.DIVERGING[3:8])
    low, high = palette.DIVERGING[2], palette.DIVERGING[-3]
    assert int(low[5:], 16) > int(low[1:3], 16), "blueish"
    assert int(high[1:3], 16) > int(high[5:], 16), "reddish"
