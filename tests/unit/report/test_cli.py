import json

import pytest

from sonde.cli.entry import main
from sonde.core import owned_files
from sonde.core.errors import Exit


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *words):
    code = main(["report", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, " ".join(err.replace("\u00a0", " ").split())  # as if the terminal never wrapped


def test_one_dataset_makes_a_page_of_its_name(lab, dataset, here, capsys):
    code, out, _ = run(capsys, dataset())
    assert code == Exit.DONE
    assert "→ lab-alpha.html" in out
    text = (here / "lab-alpha.html").read_text()
    assert text.startswith("<!doctype html>")
    assert text.rstrip().endswith("</html>")
    assert "All 12 pairs fit their link class" in text
    assert not list(here.glob("*.part"))


def test_the_room_is_told_what_to_type_for_the_file(lab, dataset, here, capsys):
    dataset("my run.nc")
    run(capsys, "my run.nc")
    assert lab.asked == ["'my run.nc'"]


def test_json_names_the_report(lab, dataset, here, capsys):
    lab.ranks = 32
    code, out, _ = run(capsys, dataset(), "-o", "x.html", "--json")
    told = json.loads(out)
    assert code == Exit.DONE  # findings are a report's content, not its failure
    assert (told["room"], told["report"], told["figures"]) == ("report", "x.html", [])
    assert [f["code"] for f in told["findings"]] == ["net.slow_link", "net.protocol_jump"]
    assert told["complete"] is True


def test_an_incomplete_dataset_is_reported(lab, dataset, capsys):
    _, out, _ = run(capsys, dataset(complete=0), "--json")
    assert json.loads(out)["complete"] is False


def test_several_datasets_make_report_html(lab, dataset, here, capsys):
    code, _, _ = run(capsys, dataset("a.nc"), dataset("b.nc"))
    assert code == Exit.DONE
    text = (here / "report.html").read_text()
    assert text.count('class="room"') == 2
    assert text.count("* plotly.js v") == 1


def test_static_figures_at_an_asked_position(lab, dataset, here, capsys):
    pytest.importorskip("matplotlib")
    code, out, _ = run(
        capsys, dataset(), "--static", "paper", "--format", "svg", "--at", "size=64KiB", "-o", "x.html"
    )
    assert code == Exit.DONE
    made = sorted(p.name for p in (here / "paper").iterdir())
    assert "median-latency.svg" in made
    assert len(made) == 8
    assert "figures: 8 in paper" in out
    assert 'value="6" aria-valuetext="64\u00a0KiB"' in (here / "x.html").read_text()


def test_static_figures_of_several_datasets_have_a_folder_each(lab, dataset, here, capsys):
    pytest.importorskip("matplotlib")
    run(capsys, dataset("a.nc"), dataset("b.nc"), "--static", "paper", "--format", "svg")
    assert sorted(p.name for p in (here / "paper").iterdir()) == ["net", "net-2"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], Exit.USAGE, "FILE.nc"),
        (["missing.nc"], Exit.ENVIRONMENT, "missing.nc does not exist"),
        (["OK", "--at", "size"], Exit.USAGE, "--at 'size' is not DIM=VALUE"),
        (["OK", "--at", "sise=8"], Exit.USAGE, "no figure has a control along 'sise' (nearest: size)"),
        (["OK", "--at", "size=9"], Exit.ENVIRONMENT, "has no size '9'; allowed: 8 B, 64 B"),
        (["OK", "--static", "d", "--format", "gif"], Exit.USAGE, "unknown format 'gif'"),
        (["OK", "-o", "OK"], Exit.USAGE, "is a dataset"),
        (["OK", "-o", "other.nc"], Exit.USAGE, "is a dataset"),
        (["OK", "-o", "."], Exit.USAGE, "is a folder"),
        (["OK", "-o", "no/such/x.html"], Exit.ENVIRONMENT, "cannot be written"),
        (["OK", "OK"], Exit.USAGE, "is given twice"),
        (["TEXT"], Exit.ENVIRONMENT, "is not NetCDF"),
    ],
)
def test_bad_input_is_reported_and_writes_nothing(words, code, said, lab, dataset, here, capsys):
    ok = dataset()
    (here / "text.nc").write_text("not a dataset at all, but more than forty-eight bytes of text")
    before = ok.read_bytes()
    got, out, err = run(capsys, *[{"OK": ok, "TEXT": here / "text.nc"}.get(w, w) for w in words])
    assert got == code
    assert said in err
    assert "Traceback" not in err
    assert out == ""
    assert sorted(p.name for p in here.iterdir()) == ["lab-alpha.nc", "text.nc"]
    assert ok.read_bytes() == before


def test_an_old_report_outlives_a_failure(lab, dataset, here, capsys):
    (here / "lab-alpha.html").write_text("old")
    bad = lab.made_section

    def broken(tree, dataset):
        made = bad(tree, dataset)
        made.figures[0].data.__init__()
        return made

    lab.made_section = broken
    code, _, err = run(capsys, dataset())
    assert code == Exit.ENVIRONMENT
    assert "figure 'median-latency' (matrix): its control moves along 'size'" in err
    assert (here / "lab-alpha.html").read_text() == "old"


def test_a_full_disk_leaves_the_old_report_and_no_part(lab, dataset, here, capsys, monkeypatch):
    (here / "lab-alpha.html").write_text("old")
    path = dataset()

    def full(self, *_, **__):
        assert list(here.glob("*.part"))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(owned_files.NewFile, "file", full)
    code, _, err = run(capsys, path)
    assert code == Exit.ENVIRONMENT
    assert "No space left on device" in err
    assert (here / "lab-alpha.html").read_bytes() == b"old"
    assert not list(here.glob("*.part"))


def test_damaged_among_several_writes_nothing(lab, dataset, here, capsys):
    good, bad = dataset("a.nc"), dataset("b.nc")
    bad.write_bytes(bad.read_bytes()[:2000])
    code, _, err = run(capsys, good, bad)
    assert code == Exit.ENVIRONMENT
    assert "b.nc is cut off" in err
    assert not (here / "report.html").exists()
