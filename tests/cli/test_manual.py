"""Manual pages: one for each command; man reads them without an error."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

from sonde.cli import manual


def test_there_is_a_page_for_every_command(tmp_path):
    written = manual.write(tmp_path)
    names = {path.name for path in written}
    assert {"sonde.1", "sonde-doctor.1"} <= names
    assert len(names) == len(list(manual.commands()))
    assert all(path.parent.name == "man1" for path in written)


def test_a_page_has_what_a_page_has():
    words, command = next(pair for pair in manual.commands() if pair[0] == ("doctor",))
    page = manual.page(words, command)
    for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS"):
        assert f".SH {heading}\n" in page
    assert "sonde\\-doctor \\- Show what is built" in page
    assert "\\fB\\-\\-json\\fR" in page


def test_characters_of_roff_are_taken_literally():
    assert manual._escaped("a\\b -o .x") == "a\\eb \\-o .x"
    assert manual._escaped(".TH x") == "\\&.TH x"
    assert manual._escaped("'quoted") == "\\&'quoted"


def test_every_page_is_roff_that_man_reads(tmp_path):
    """Only macros of man(7) and escapes of roff; also groff itself, if it is installed."""
    written = manual.write(tmp_path)
    for path in written:
        text = path.read_text()
        macros = set(re.findall(r"^\.(\w+)", text, re.M))
        assert macros <= {"TH", "SH", "PP", "TP", "nf", "fi"}
        assert set(re.findall(r"\\(.)", text)) <= set("e&-f")
        assert text.count(".nf") == text.count(".fi")
    if shutil.which("groff"):
        words = ["groff", "-man", "-Tutf8", "-ww", "-K", "utf8", *map(str, written)]
        ran = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert (ran.returncode, ran.stderr) == (0, "")  # an error message names its page


def test_it_runs_as_a_module(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "sonde.cli.manual", str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0
    assert f"{tmp_path}/man1/sonde.1" in ran.stdout.split()
