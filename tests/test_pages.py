"""README and docs/: commands parse, links and paths exist, tables agree with the code."""

from __future__ import annotations

import re
import shlex
import tomllib
from functools import cache
from pathlib import Path

import click
import numpy as np
import pytest
import xarray as xr

from sonde.cli.commands import root
from sonde.core.errors import SondeError
from sonde.core.options import Settings
from sonde.core.room import NAMES as ROOMS
from sonde.net import models
from sonde.net.modes import CHOICES, modes
from sonde.net.pairs import LEVEL_NAMES

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "deploy/packages/README.md"])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
TEXT = {name: page.read_text() for name, page in zip(NAMES, PAGES)}
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


# ---- commands

FENCE = re.compile(r"^[ ]*```(\w*)\n(.*?)^[ ]*```", re.S | re.M)
SPAN = re.compile(r"`([^`\n]+)`")
# Text with placeholders, as in `sonde data <verb> FILE`, is not a command yet.
PLACEHOLDER = re.compile(r"[<>…]|\.\.\.|RUN_DIR|\[")


def command_words(line: str) -> list[list[str]]:
    """The words after `sonde` of every command in a shell line, without leading variables and redirections."""
    out: list[list[str]] = []
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    current: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set("|&;<>()"):
            plain = [
                w for k, w in enumerate(current) if not all(re.match(r"\w+=", v) for v in current[: k + 1])
            ]
            if len(plain) > 1 and Path(plain[0]).name == "sonde":
                out.append(plain[1:])
            current = []
        else:
            current.append(word)
    return out


def commands_of(line: str) -> list[list[str]]:
    """The same, for a line that may end with a comment after two blanks and a #."""
    try:
        return command_words(re.split(r"\s{2,}#", line)[0])
    except ValueError:  # an apostrophe: prose in a block
        return []


def fenced(text: str) -> list[str]:
    """Lines with a `sonde` in a page's shell blocks: those without a language, or with a shell's."""
    lines = []
    for language, block in FENCE.findall(text):
        if language in ("", "sh", "bash", "console"):
            whole = block.replace("\\\n", " ")
            lines += [line.strip() for line in whole.splitlines() if not line.strip().startswith("#")]
    without = [re.sub(r"'[^']*'", "", line) for line in lines]
    return [line for line, bare in zip(lines, without) if not PLACEHOLDER.search(bare) and commands_of(line)]


def spans(text: str) -> list[str]:
    """Code in running text and tables that begins with `sonde`."""
    found = [span for span in SPAN.findall(FENCE.sub("", text)) if re.match(r"(\S*/)?sonde\s+\w", span)]
    return [span for span in found if not PLACEHOLDER.search(re.sub(r"'[^']*'", "", span))]


def parse(words: list[str], *, whole: bool) -> None:
    """Parses as the command line does: command, options, values. whole: arguments must be present, too."""
    settings = Settings()
    context = root.make_context("sonde", list(words), obj=settings)
    command: click.Command = root
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command = found
        try:
            context = command.make_context(name, rest, parent=context)
        except click.MissingParameter:
            if whole:
                raise
            return
        except click.exceptions.NoArgsIsHelpError:
            if whole:
                raise
            return


def every_command() -> list[tuple[str, str, bool]]:
    out = []
    for name, text in TEXT.items():
        out += [(name, line, True) for line in fenced(text)]
        out += [(name, span, False) for span in spans(text)]
    return out


COMMANDS = every_command()


@pytest.mark.parametrize(("page", "line", "whole"), COMMANDS, ids=lambda value: str(value)[:70])
def test_a_command_on_a_page_parses(page, line, whole, monkeypatch, tmp_path):
    monkeypatch.setenv("SONDE_CONFIG", "")
    monkeypatch.chdir(tmp_path)
    found = commands_of(line)
    assert found, f"{page}: no sonde command in '{line}'"
    for words in found:
        if "--help" in words or "--version" in words:
            words = [word for word in words if word not in ("--help", "--version")]
            parse([*words], whole=False) if words else None
            continue
        parse(words, whole=whole)


def test_the_pages_are_full_of_commands():
    assert sum(whole for _, _, whole in COMMANDS) >= 40
    assert {page for page, _, _ in COMMANDS} >= {"README.md", "docs/tutorial/first-run.md"}


@pytest.mark.parametrize(
    "line",
    [
        "sonde net rnu",
        "sonde net run --buget 60s",
        "sonde net run --budget 60parsecs",
        "sonde net run --ntasks 4 && sonde net sohw a.nc",
        "FOO=1 sonde net run --sizes 64K",
        "sonde net show",
    ],
)
def test_a_wrong_command_would_be_noticed(line, monkeypatch):
    monkeypatch.setenv("SONDE_CONFIG", "")
    words = command_words(line)[-1]
    with pytest.raises((SondeError, click.UsageError, click.exceptions.NoArgsIsHelpError)):
        parse(words, whole=True)


@pytest.mark.parametrize("page", NAMES)
def test_make_targets_exist(page):
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.M))
    code = [
        *(line for _, block in FENCE.findall(TEXT[page]) for line in block.splitlines()),
        *SPAN.findall(TEXT[page]),
    ]
    for line in code:
        for target in re.findall(r"(?:^|&& )make ([a-z-]+)(?![\w<-])", line.strip()):
            assert target in targets, f"{page}: make {target}"


# ---- links and paths

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")


def anchors(text: str) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", NAMES)
def test_every_relative_link_leads_somewhere(page):
    for match in LINK.findall(FENCE.sub("", TEXT[page])):
        target = match[0] or match[1]
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (ROOT / page).parent / path if path else ROOT / page
        assert there.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(there.read_text()), f"{page}: {target}"


@pytest.mark.parametrize("page", NAMES)
def test_every_path_of_the_tree_exists(page):
    """`native/…`, `src/…` and so on in code; a NAME in capitals is a placeholder."""
    tops = r"(?:native|src|tests|docs|deploy|bench)/[\w./-]+"
    for span in SPAN.findall(FENCE.sub("", TEXT[page])):
        made_or_meant = re.search(r"NAME|PREFIX|/out/", span)
        if made_or_meant or not re.fullmatch(tops, span):
            continue
        assert (ROOT / span).exists(), f"{page}: {span}"


def test_the_index_names_every_page():
    listed = {match[0] for match in LINK.findall(TEXT["docs/index.md"])}
    pages = {name.removeprefix("docs/") for name in NAMES if name.startswith("docs/") and "/adr/" not in name}
    assert pages - {"index.md"} <= listed
    notes = {match[0] for match in LINK.findall(TEXT["docs/adr/README.md"])}
    assert notes == {path.name for path in (ROOT / "docs/adr").glob("*.md")} - {"README.md"}


@pytest.mark.parametrize("page", NAMES)
def test_pages_end_in_a_new_line_and_hold_no_stray_blanks(page):
    text = TEXT[page]
    assert text.endswith("\n")
    assert not re.search(r"[ \t]+$", text, re.M), page
    assert text.count("```") % 2 == 0


def test_pictures_are_small():
    pictures = list((ROOT / "docs/images").glob("*.png"))
    assert pictures
    for picture in pictures:
        assert picture.stat().st_size < 250_000, picture.name


# ---- version


def test_the_citation_is_of_this_version():
    yaml = pytest.importorskip("yaml")
    told = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(told["version"]) == VERSION
    assert str(told["cff-version"]) == "1.2.0"
    assert {"message", "title", "authors", "cff-version"} <= set(told)  # the format requires these
    assert told["license"] == "Apache-2.0"
    assert all("name" in author or "family-names" in author for author in told["authors"])


def test_the_changelog_names_this_version_first():
    heads = re.findall(r"^## \[([^\]]+)\]", TEXT["CHANGELOG.md"], re.M)
    assert VERSION in heads[:2]


# ---- statements of pages about the code


def table(text: str, heading: str = "") -> list[list[str]]:
    """Cells of the first table below a heading; without a heading, of the page."""
    part = text.split(f"\n{heading}\n", 1)[1] if heading else text
    rows: list[list[str]] = []
    for line in part.splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    return rows[2:]


def test_every_mode_has_its_row():
    rows = {row[0].strip("`"): row for row in table(TEXT["docs/reference/net-modes.md"])}
    assert set(rows) == set(modes())
    for name, mode in modes().items():
        kind, who = mode.sample(None)
        assert ("half a round trip" in rows[name][2]) == (kind == "rtt_half"), name
        assert rows[name][3].startswith({"src": "sender", "dst": "receiver"}[who]), name
    values = table(TEXT["docs/reference/net-modes.md"], "## Other kinds of sample")
    assert [row[0].strip("`") for row in values] == list(CHOICES)
    for mode in modes().values():
        said = (
            TEXT["docs/reference/net-modes.md"]
            .split("## Other kinds of sample")[1]
            .split("take `--value`")[0]
        )
        assert (f"`{mode.name}`" in said) == mode.value_choice, mode.name


def test_the_model_on_the_page_is_read():
    text = TEXT["docs/reference/net-model.md"]
    (block,) = [block for language, block in FENCE.findall(text) if language == "toml"]
    places = {"host": ("rank", np.array(["a", "a", "b"])), "core": ("rank", np.array([0, 1, 0]))}
    summary = xr.Dataset(
        {"median": (("src", "dst", "size"), np.full((3, 3, 2), 1e-6)), **places},
        coords={"src": [0, 1, 2], "dst": [0, 1, 2], "size": [0, 1000]},
    )
    said = models.expected(tomllib.loads(block), summary)
    assert said[0, 1] == pytest.approx([0.5e-6, 0.5e-6 + 1000 / 8e9])
    assert said[0, 2] == pytest.approx([1.4e-6, 1.4e-6 + 1000 / 12e9])


def test_every_key_of_a_model_is_on_its_page():
    text = TEXT["docs/reference/net-model.md"]
    keys = {key.strip("`[]") for key in (row[0] for row in table(text))}
    assert keys == {*models._KEYS, *models._LEVEL_KEYS}
    (names,) = [row[1] for row in table(text) if row[0] == "`name`"]
    assert re.findall(r"`([^`]+)`", names) == [*LEVEL_NAMES, "any"]


def test_the_rooms_are_those_of_the_architecture():
    rooms = [row[0] for row in table(TEXT["ARCHITECTURE.md"], "## Rooms")]
    assert [row[0] for row in table(TEXT["README.md"], "## The rooms")[:6]] == rooms
    assert [room.strip("`") for room in rooms] == list(ROOMS)


GLOSSARY = "docs/reference/glossary.md"
TERMS = [
    row[1] for row in re.findall(r"^(\|) (.+?) \|", TEXT[GLOSSARY], re.M) if row[1] not in ("term", "---")
]


@cache
def text_elsewhere() -> str:
    """All pages except the glossary, and all sources, in small letters, with single blanks and without underscores."""
    sources = [
        path
        for folder in ("src/sonde", "native")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".cpp", ".hpp") and "third_party" not in path.parts
    ]
    texts = [text for name, text in TEXT.items() if name != GLOSSARY]
    texts += [path.read_text("utf-8", "replace") for path in sources]
    return " ".join("\n".join(texts).lower().replace("_", " ").split())


@pytest.mark.parametrize("term", TERMS)
def test_a_term_of_the_glossary_is_in_use(term):
    assert re.sub(r" \(.*\)", "", term).strip("`").lower() in text_elsewhere()


def test_the_glossary_has_each_term_once_and_help_names_it():
    assert len(TERMS) == len(set(TERMS)) > 60
    page = root.get_help(root.make_context("sonde", ["net"], obj=Settings()))
    assert GLOSSARY in page
    assert max(map(len, page.splitlines())) <= 80


PLACES = re.compile(r"`((?:[\w*]+/)*[\w*]+(?:\.\w+|/))`")


def test_every_place_of_the_architecture_exists():
    """In the table of places a name without a folder is beside the one before it, or anywhere."""
    named = [
        place
        for row in table(TEXT["ARCHITECTURE.md"], "## Where a thing is")
        for place in PLACES.findall(row[1])
    ]
    assert len(named) > 40
    tops = ("", "src/sonde", "native", "native/power", "native/store", "src/sonde/core")
    lost = [place for place in named if not any(list((ROOT / top).glob(place)) for top in tops)]
    everywhere = {path.name for top in ("src/sonde", "native") for path in (ROOT / top).rglob("*")}
    assert [place for place in lost if place.rstrip("/") not in everywhere] == []


def test_the_architecture_fits_on_two_screens():
    lines = TEXT["ARCHITECTURE.md"].splitlines()
    assert len(lines) <= 110
    assert max(map(len, lines)) <= 120


def test_there_are_five_steps_to_add_anything():
    text = TEXT["CONTRIBUTING.md"]
    for what in ("stopping rule", "mode", "launcher", "figure"):
        part = text.split(f"\n## Add a {what}\n", 1)[1].split("\n## ")[0]
        assert re.findall(r"^(\d)\. ", part, re.M) == list("12345"), what


@pytest.mark.parametrize(
    ("series", "row"),
    [
        ("openmpi-shm-8", 0),
        ("openmpi-shm-64k", 1),
        ("openmpi-tcp-1k", 2),
        ("openmpi-tcp-64k", 3),
        ("mpich-shm-4k", 4),
        ("openmpi-shared-cores-1k", 5),
    ],
)
def test_the_worth_of_epochs_is_what_the_page_says(series, row):
    """1000 samples as one burst, and as 20 bursts of 50, each in its twentieth of the series; 2000 samples drawn."""
    x = np.load(ROOT / f"tests/data/series/{series}.npz")["value"].astype(float)
    random, truth, part = np.random.default_rng(1), np.median(x), len(x) // 20
    burst, epochs = [], []
    for _ in range(2000):
        begin = random.integers(0, len(x) - 1000)
        burst.append(abs(np.median(x[begin : begin + 1000]) / truth - 1))
        begins = np.arange(20) * part + random.integers(0, part - 50, 20)
        epochs.append(abs(np.median(x[begins[:, None] + np.arange(50)]) / truth - 1))
    cells = table(TEXT["docs/explain/epochs.md"], "## What it is worth")[row]
    one, many, ratio, ratio_p95 = (float(re.sub(r"[*% ]", "", cell)) for cell in cells[3:7])
    assert 100 * np.median(burst) == pytest.approx(one, rel=0.1)
    assert 100 * np.median(epochs) == pytest.approx(many, rel=0.2)
    assert np.median(burst) / np.median(epochs) == pytest.approx(ratio, rel=0.15)
    assert np.quantile(burst, 0.95) / np.quantile(epochs, 0.95) == pytest.approx(ratio_p95, rel=0.15)
    assert ratio >= 3
