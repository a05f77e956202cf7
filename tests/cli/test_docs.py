"""The reference pages agree with the code: options, exit codes, keys and examples are compared with it."""

from __future__ import annotations

import json
import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from sonde.cli.commands import COMMANDS
from sonde.cli.doctor import PARTS
from sonde.core.errors import Exit, Finding, SondeError, Warning
from sonde.core.options import CONSOLE_NAMES, HOSTS, RATE, SHARE, SHARED, SIZE, SIZES
from sonde.core.outcome import Outcome
from sonde.core.room import NAMES
from sonde.core.units import parse_duration

DOCS = Path(__file__).parents[2] / "docs" / "reference"
CLI, JSON, CONFIG = ((DOCS / name).read_text() for name in ("cli.md", "json.md", "config.md"))


def rows(text: str, heading: str) -> list[list[str]]:
    """Cells of the first table below a heading."""
    section = text.split(f"\n{heading}\n", 1)[1]
    lines = [line for line in section.split("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def test_every_command_is_in_the_table():
    for name in COMMANDS:
        assert f"`sonde {name}" in CLI


@pytest.mark.parametrize("room", [*NAMES, "cluster"])
def test_every_verb_of_a_room_is_in_the_table(room):
    verbs = import_module(f"sonde.{room}.cli").group.commands
    named = [row[0] for row in rows(f"\n# Commands\n{CLI}", "# Commands") if f"`sonde {room} " in row[0]]
    told = {word for cell in named for words in re.findall(r"`([a-z -]+)", cell) for word in words.split()}
    assert {name for name, verb in verbs.items() if not verb.hidden} <= told


def test_every_shared_option_is_described_and_no_other():
    described = {
        word.split()[0].lstrip("-")
        for row in rows(CLI, "## Options that mean the same everywhere")
        for word in re.findall(r"`(--[a-z-]+)", row[0])
    }
    assert described == {name.replace("_", "-") for name in (*SHARED, *CONSOLE_NAMES, "config")}


def test_every_exit_code_is_described():
    assert [int(row[0]) for row in rows(CLI, "## Exit codes")] == [int(code) for code in Exit]


@pytest.mark.parametrize("row", rows(CLI, "## How values are written"), ids=lambda row: row[0])
def test_every_example_of_a_value_is_read(row):
    read = {
        "time": parse_duration,
        "size": SIZE.read,
        "sizes": SIZES.read,
        "rate": RATE.read,
        "share": SHARE.read,
        "host list": HOSTS.read,
    }
    examples = re.findall(r"`([^`]+)`", row[1])
    assert len(examples) >= 2
    for example in examples:
        read[row[0]](example)


def test_an_ambiguous_size_is_refused_as_the_page_says():
    with pytest.raises(SondeError):
        SIZE.read("64K")


def test_the_keys_of_every_command_are_those_of_an_outcome():
    described = [key for row in rows(JSON, "## Every command") for key in re.findall(r"`(\w+)`", row[0])]
    assert described == list(Outcome("net", "run").as_json())


def test_the_keys_of_findings_and_warnings_are_those_in_code():
    assert "`{code, text, evidence, next}`" in JSON
    assert list(Finding("a.b", "c").as_json()) == ["code", "text", "evidence", "next"]
    assert "`{code, evidence, hint}`" in JSON
    assert list(Warning("a.b", "c").as_json()) == ["code", "evidence", "hint"]


def test_the_error_on_the_page_is_what_is_printed(sonde):
    shown = json.loads(re.search(r"```json\n(.*?)```", JSON, re.S)[1])
    printed = json.loads(sonde("fake", "fail", "house", "--json").out)
    assert list(shown) == list(printed)
    assert list(shown["error"]) == list(printed["error"])
    assert shown["error"]["what"] == printed["error"]["what"]


def test_doctor_prints_the_keys_on_the_page(sonde):
    told = json.loads(sonde("doctor", "--json").out)
    (row,) = [row for row in rows(JSON, "## Further keys, by command") if row[0] == "`doctor`"]
    assert "{room, built, works, missing: [{what, install}]}" in row[1]
    assert list(told["rooms"][0]) == ["room", "built", "works", "missing"]
    assert [room["room"] for room in told["rooms"]] == [*NAMES, *PARTS]
    assert told["machine"]["cpu"]
    assert all({"text", "mark"} <= set(found) for found in told["checks"].values())


def test_the_config_on_the_page_is_understood():
    told = tomllib.loads(re.search(r"```toml\n(.*?)```", CONFIG, re.S)[1])
    assert told["net"]["run"]["sizes"] == "0:1000:100"
    for key in ("color", "launcher"):
        assert key in {*SHARED, *CONSOLE_NAMES}
        assert told[key]
    HOSTS.read(told["net"]["hosts"])
    SIZES.read(told["net"]["run"]["sizes"])
    SHARE.read(told["net"]["run"]["precision"])
    assert parse_duration(told["survey"]["budget"]) == 300
