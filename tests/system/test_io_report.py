"""`sonde report` on traces: real ones, several at once, and files that are not what they were."""

from __future__ import annotations

import re

import h5py
import pytest

from sonde_shell import Shell

WRITE = ("dd", "if=/dev/zero", "of=out", "bs=32k", "count=30")


def trace(sonde: Shell, name: str = "a.nc", *command: str):
    return sonde("io", "run", "-o", name, "--", *(command or WRITE)).expect(0)


def test_a_trace_becomes_a_page_and_figures_for_a_paper(sonde: Shell):
    trace(sonde)
    ran = sonde(
        "report", "a.nc", "--static", "drawn", "--format", "svg", "--at", "way=bytes", "--json"
    ).expect(0)
    assert re.match(r"in \S+ (s|ms|µs) dd spent ", ran.json["verdict"])
    page = (sonde.cwd / "a.html").read_text()
    assert page.count('class="figure icicle"') == 1
    assert page.count('class="figure stack"') == 2
    assert "30 × 32 KiB" in page
    assert "traced command" in page
    assert sorted(path.name for path in (sonde.cwd / "drawn").iterdir()) == [
        "io-durations.svg",
        "io-paths.svg",
        "io-sizes.svg",
        "io-timeline.svg",
    ]


def test_several_traces_share_a_page(sonde: Shell):
    trace(sonde, "one.nc")
    trace(sonde, "two.nc", "dd", "if=out", "of=/dev/null", "bs=32k")
    ran = sonde("report", "one.nc", "two.nc", "-o", "both.html", "--json").expect(0)
    assert "2 datasets" in ran.json["verdict"]
    page = (sonde.cwd / "both.html").read_text()
    assert page.count('class="figure icicle"') == 2
    assert 'id="io-2-io-paths"' in page


def test_a_trace_whose_summary_is_lost_says_what_to_type(sonde: Shell):
    trace(sonde)
    with h5py.File(sonde.cwd / "a.nc", "a") as file:
        del file["summary"]
    ran = sonde("report", "a.nc").expect(3)
    assert "a.nc has no /summary" in ran.said
    assert "sonde data validate a.nc" in ran.said
    assert not (sonde.cwd / "a.html").exists()


@pytest.mark.parametrize("kept", [0.3, 0.9])
def test_a_trace_that_is_cut_short_is_damaged_and_no_page_is_written(sonde: Shell, kept):
    trace(sonde)
    file = sonde.cwd / "a.nc"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(kept * len(whole))])
    ran = sonde("report", "a.nc").expect(3)
    assert "a.nc" in ran.said
    assert not (sonde.cwd / "a.html").exists()
