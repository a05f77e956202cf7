import builtins
import re
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import report_demo as demo
from sonde.core import distribution
from sonde.core.errors import EnvironmentFailure, UsageError
from sonde.core.figure import Axis, Figure, Kind
from sonde.report import palette, prepare, render_static

matplotlib = pytest.importorskip("matplotlib")

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


@pytest.mark.parametrize("figure", ALL, ids=lambda f: f"{f.kind.value}-{f.id}")
def test_every_kind_is_drawn(figure, tmp_path):
    path = render_static.save(figure, tmp_path / "made", "svg")
    text = path.read_text()
    assert path == tmp_path / "made" / f"{figure.id}.svg"
    assert text.count("<path") > 10


def test_every_kind_is_tested():
    assert {f.kind for f in ALL} == set(Kind)


@pytest.mark.parametrize(("form", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_formats(form, magic, tmp_path):
    assert render_static.save(demo.rules(), tmp_path, form).read_bytes().startswith(magic)


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    one = render_static.save(demo.matrix(4), tmp_path / "a", "svg").read_bytes()
    assert one == render_static.save(demo.matrix(4), tmp_path / "b", "svg").read_bytes()


def test_pdf_fonts_are_such_as_publishers_take(tmp_path):
    raw = render_static.save(demo.rules(), tmp_path, "pdf").read_bytes()
    assert b"/Type3" not in raw
    streams = [s for s in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", raw, re.DOTALL)]
    assert any(b"BT" in zlib.decompressobj().decompress(s) for s in streams if s[:1] == b"x")


def test_the_matrix_drawn_is_the_matrix_at_the_controls_position():
    sheet = render_static.draw(prepare.at(demo.matrix(4), {"size": "64KiB"}))
    axes = sheet.axes[0]
    np.testing.assert_allclose(
        np.ma.filled(axes.images[0].get_array(), np.nan),
        demo.medians(4, demo.SIZES)[..., 6] * 1e6,
        rtol=1e-12,
    )
    assert axes.get_title(loc="left").replace("\u00a0", " ") == "Message length 64 KiB"


def test_the_legend_of_states_counts_them():
    texts = [t.get_text() for t in render_static.draw(demo.status(4)).axes[0].get_legend().get_texts()]
    assert texts == ["converged (12)"]


def test_dollars_in_names_are_no_formula(tmp_path):
    data = xr.Dataset({"y": ("bar", [1.0, 2.0])}, coords={"bar": ["$HOME/$x_", "a$b"]})
    figure = Figure("f", "", "", Kind.BAR, data, {"y": Axis("$\\frac{$", "s")})
    text = render_static.save(figure, tmp_path, "svg").read_text()
    assert text.count("<path") > 5


def test_ids_that_coincide_do_not_overwrite_each_other(tmp_path):
    paths = render_static.save_all([demo.rules(), demo.rules()], tmp_path, "png")
    assert [p.name for p in paths] == ["rules.png", "rules-2.png"]
    assert all(p.stat().st_size for p in paths)


def test_an_id_cannot_leave_the_folder(tmp_path):
    r = demo.rules()
    path = render_static.save(Figure("../../etc/x", "", "", r.kind, r.data, r.axes), tmp_path, "png")
    assert path.parent == tmp_path


def test_an_unknown_format_names_the_nearest(tmp_path):
    with pytest.raises(UsageError, match=r"unknown format 'pgn' \(nearest: png\); allowed: png, svg, pdf"):
        render_static.save(demo.rules(), tmp_path, "pgn")


def test_a_folder_that_cannot_be_written_is_an_error_of_the_environment(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFailure) as refused:
        render_static.save(demo.rules(), tmp_path / "file" / "x", "png")
    assert refused.value.code == "report.cannot_write"


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(EnvironmentFailure) as refused:
        render_static.check("png")
    assert refused.value.code == "report.no_matplotlib"
    assert refused.value.hint == distribution.install_python("matplotlib")


def test_drawing_opens_no_window_and_loads_no_pyplot():
    import subprocess

    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import report_demo as d;"
        "from sonde.report import render_static; render_static.draw(d.rules());"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    tests = Path(demo.__file__).parent
    subprocess.run([sys.executable, "-c", code, str(tests)], check=True)


def test_the_legend_says_each_kind_of_line_once():
    data = demo.model().data.assign(hue=("series", [0, 0]), key=("series", ["", "fit"]))
    f = demo.model()
    axes = render_static.draw(Figure(f.id, "", "", f.kind, data, f.axes)).axes[0]
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["measured, 95 % interval", "fit"]
    assert axes.get_legend().get_lines()[1].get_color() == palette.LIGHT[0][0]  # as the one line of this key


def test_an_icicle_is_drawn_as_wide_as_its_values_level_by_level():
    axes = render_static.draw(demo.icicle()).axes[0]
    boxes = {(p.get_x(), p.get_y(), p.get_width()) for p in axes.patches}
    assert boxes == {(0, 0, 1), (0, 1, 0.75), (0.75, 1, 0.25), (0, 2, 0.5), (0.5, 2, 0.125)}
    assert {t.get_text() for t in axes.texts} == {"all calls", "write", "read", "pwrite", "fsync"}
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["library", "system"]


def test_bars_stand_upon_each_other():
    axes = render_static.draw(demo.columns()).axes[0]
    feet = [round(p.get_y(), 6) for p in axes.patches]
    assert feet == [0, 0, 0, 0, 1, 2, 3, 4]
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["library", "system"], "as they stand"


def test_areas_stand_upon_each_other():
    figure = prepare.at(demo.areas(), {"rank": "1"})
    sheet = render_static.draw(figure)
    lower, upper = (patch.get_data() for patch in sheet.axes[0].patches)
    y = figure.data["y"].values[:, :, 2]
    np.testing.assert_allclose(lower.values, y[0])
    np.testing.assert_allclose(upper.baseline, y[0])
    np.testing.assert_allclose(upper.values, y.sum(axis=0))
    assert sheet.get_suptitle() == "Rank 1", "the legend has the place of a title"


def test_parts_of_no_common_sum_have_panels():
    sheet = render_static.draw(prepare.at(demo.panels(), {"way": "reads"}))
    assert [axes.get_title(loc="left") for axes in sheet.axes] == ["library: 4", "system: 4"]
    assert [[round(p.get_height()) for p in axes.patches] for axes in sheet.axes] == [[0, 100], [25, 75]]
    assert sheet.get_suptitle() == "Requests reads"


def test_a_legend_of_long_names_takes_no_room_from_the_figure():
    figure = demo.columns()
    data = figure.data.assign_coords(
        part=[f"{k}: a name that is long enough for a line of its own" for k in (1, 2)]
    )
    sheet = render_static.draw(Figure("f", "", "", figure.kind, data, figure.axes))
    sheet.draw_without_rendering()
    assert sheet.axes[0].get_position().width > 0.8
