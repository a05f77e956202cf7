"""Exit codes of `sonde store`, as docs/reference/cli.md has them: like mistakes end in like codes for all verbs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

from sonde_shell import Shell, shell
from store_service import serving

NOBODY = ("--server", "127.0.0.1:1")
NO_HOST = ("--server", "no-such-host.invalid:5440")
BAD_PORT = ("--server", "127.0.0.1:99999")
SHORT = ("--ops", "kv", "--sizes", "64", "--variant", "tcp", "--budget", "3s")

# What was typed can never be meant: a value that is not allowed, a name that nothing has.
USAGE = (
    ("put", "kv:s/k", "f", "--timeout", "soon"),
    ("put", "kvv:s/k", "f"),
    ("put", "kv:s/k", "f", *BAD_PORT),
    ("put", "hdf5:/a.h5", "f"),
    ("ls", "hdf5:a.h5"),
    ("get", "kv:s/there", "out", "--transport", "pigeon"),
    ("get", "kv:s/there", "out", *BAD_PORT),
    ("ls", "kv:s", "--limit", "0"),
    ("ls", "kvv:s"),
    ("ls", "kv:s", *BAD_PORT),
    ("rm", "kv:s/k", "--safety", "disk"),
    ("rm", "kvv:s/k"),
    ("stat", "kv:s/k", "--auth", "pigeon"),
    ("stat", "kvv:s/k"),
    ("query", "s/t", "--limit", "x"),
    ("status", "--timeout", "soon"),
    ("status", "--transport", "pigeon"),
    ("status", *BAD_PORT),
    ("run", "--budget", "soon"),
    ("run", "--ops", "nope"),
    ("run", "--variant", "nope"),
    ("run", "--variant", "x=pigeon"),
    ("run", "--backend", "nope"),
    ("run", "--server", "127.0.0.1:1", "--backend", "memory"),
    ("run", "--server", "127.0.0.1:1", "--servers", "2"),
    ("run", "--safety", "storage"),
    ("run", "--rule", "nope"),
    ("run", *SHORT, *BAD_PORT),
    ("check", "none.nc", "--min-ratio", "0"),
    ("diff", "none.nc", "none.nc", "--matters", "x"),
    ("serve", "--memory", "--threads", "0"),
    ("serve", "--memory", "--listen", "x:y"),
    ("serve", "--memory", "--metrics", "x"),
    ("serve", "--memory", "--metrics", "0.0.0.0:0"),
    ("serve", "--backend", "kv=memory,limit=2XB"),
    ("serve", "--backend", "kv=memory,limt=1GiB"),
    ("serve", "--backend", "kv=memroy"),
    ("serve", "--memory", "--auth", "pigeon"),
    ("conformance", "f", "--setting", "x"),
)
# It could be there, and is not; or it is there, and could not be.
MISSING = (
    ("put", "kv:s/k", "nofile"),
    ("put", "kv:s/there", "f", "--exclusive"),
    ("put", "kv:s/k", "f", "--embedded", "no/such/folder"),
    ("get", "kv:s/none", "out"),
    ("get", "object:s/none", "out"),
    ("get", "item:s/none", "out"),
    ("get", "kv:s/there", "no/such/folder"),
    ("ls", "kv:s", "--embedded", "nowhere"),
    ("rm", "kv:s/none"),
    ("rm", "item:s/none"),
    ("rm", "hdf5:/none.h5"),
    ("stat", "hdf5:/none.h5"),
    ("stat", "object:s/none"),
    ("query", "s/none"),
    ("run", *SHORT, "-o", "no/such/a.nc"),
    ("show", "none.nc"),
    ("check", "none.nc", "--min-ratio", "1"),
    ("diff", "none.nc", "none.nc"),
    ("token", "f"),
    ("token", "no/such/token"),
    ("serve", "--memory", "--module", "none.so"),
    ("serve", "--memory", "--auth", "token", "--token-file", "nofile"),
    ("serve", "--path", "no/such/folder"),
    ("conformance", "none.so"),
)
# A server that is well named, and does not answer.
UNREACHABLE = tuple(
    (*words, *server)
    for server in (NOBODY, NO_HOST)
    for words in (
        ("put", "kv:s/k", "f"),
        ("get", "kv:s/there", "out"),
        ("ls", "kv:s"),
        ("rm", "kv:s/k"),
        ("stat", "kv:s/k"),
        ("query", "s/t"),
        ("status",),
        ("run", *SHORT),
    )
)


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell in a folder with a file `f`, and a server that has kv:s/there."""
    made = shell(tmp_path_factory.mktemp("codes"), None)
    sonde = next(made)
    with serving(sonde, "--memory") as running:
        sonde.env["SONDE_STORE_SERVERS"] = running.address
        (sonde.cwd / "f").write_text("1")
        sonde("store", "put", "kv:s/there", "f").expect(0)
        yield sonde
    next(made, None)


@pytest.mark.parametrize(
    ("code", "words"),
    [(code, words) for code, kind in ((2, USAGE), (3, MISSING), (3, UNREACHABLE)) for words in kind],
    ids=lambda value: (
        "-".join(map(str, value))[:60].replace("/", "_") if isinstance(value, tuple) else str(value)
    ),
)
def test_like_mistakes_end_in_like_codes(room: Shell, code: int, words: tuple[str, ...]) -> None:
    before = sorted(room.cwd.iterdir())
    error = room("store", *words, "--json").expect(code).json["error"]
    assert error["what"]
    assert not error["code"].endswith("internal")
    assert sorted(room.cwd.iterdir()) == before


def test_the_table_says_so() -> None:
    """The two rows of docs/reference/cli.md that this is about."""
    page = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text()
    assert "| 2 | usage: the command line, a config file or an argument is not understood" in page
    assert "a file, a key or a server that was named is not there" in page
