"""Config files: where they are found, what they may say, and where an error points."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sonde.core import config
from sonde.core.errors import UsageError
from sonde.core.options import SIZES, Settings, common, settings


@click.group()
@common()
def top() -> None:
    pass


@top.group()
def room() -> None:
    pass


@room.command()
@common("budget", "ntasks", "launcher", "dry_run", "precision")
@click.option("--sizes", type=SIZES, default="8")
@click.option("--mode", type=click.Choice(["one", "all"]), default="one")
@click.option("--gain", type=float, default=1.0)
@click.option("--tag", multiple=True)
@click.argument("file", required=False)
def run(**given: object) -> tuple[dict[str, object], Settings]:
    return given, settings()


@room.command()
@common()
def show() -> None:
    pass


@pytest.fixture
def no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root reads no ./sonde.toml: as for a user whose own the folder is. tests/hostile has whose it may not be."""
    monkeypatch.setattr(config, "_not_ours", lambda place: "")


@pytest.fixture
def call(tmp_path: Path, no_root: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("SONDE_CONFIG", raising=False)

    def ask(text: str, *words: str) -> tuple[dict[str, object], Settings]:
        Path("sonde.toml").write_text(text)
        result = CliRunner().invoke(top, ["room", "run", *words], standalone_mode=False)
        if result.exception:
            raise result.exception
        return result.return_value

    return ask


def test_a_key_gives_an_option_its_default(call):
    given, _ = call(
        '[room.run]\nntasks = 16\nsizes = "0:30:10"\nbudget = "2min"\ndry-run = true\nmode = "all"\n'
    )
    assert given["ntasks"] == 16
    assert given["sizes"] == (0, 10, 20)
    assert given["budget_s"] == 120.0
    assert given["dry_run"] is True
    assert given["mode"] == "all"


def test_the_command_line_overrides_the_file(call):
    assert call("[room.run]\nntasks = 16\n", "--ntasks", "4")[0]["ntasks"] == 4


def test_an_inner_table_overrides_an_outer_one(call):
    text = 'launcher = "srun"\n[room]\nlauncher = "mpirun"\n[room.run]\nntasks = 2\n'
    assert call(text)[0]["launcher"] == "mpirun"
    assert call('launcher = "srun"\n')[0]["launcher"] == "srun"


def test_console_options_may_stand_above_all_tables_and_what_is_typed_wins(call):
    assert call('color = "never"\njson = true\n')[1].json is True
    assert call('color = "never"\n', "--color", "always")[1].color == "always"
    result = CliRunner().invoke(top, ["--color", "always", "room", "run"], standalone_mode=False)
    assert result.return_value[1].color == "always"


def test_a_number_a_list_and_a_text_are_all_understood(call):
    given, _ = call(
        '[room.run]\nbudget = 60\nsizes = [8, 1024]\ngain = 2\nprecision = 0.01\ntag = ["a", "b"]\n'
    )
    assert given["budget_s"] == 60.0
    assert given["sizes"] == (8, 1024)
    assert given["gain"] == 2.0
    assert given["precision"] == 0.01
    assert given["tag"] == ("a", "b")


def test_dotted_keys_and_inline_tables_are_the_same(call):
    assert call("room.run.ntasks = 3\n")[0]["ntasks"] == 3
    assert call("room = { run = { ntasks = 3 } }\n")[0]["ntasks"] == 3


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        (
            '# defaults\n[room.run]\nbuget = "60s"\n',
            "sonde.toml:3: unknown key 'buget' in [room.run] (nearest: budget)",
            "allowed: budget, color, debug, dry-run, gain, json, launcher, mode, ntasks, precision, "
            "progress, sizes, tag",
        ),
        (
            "[room.rnu]\nntasks = 2\n",
            "sonde.toml:1: unknown table 'rnu' in [room] (nearest: run)",
            "allowed: run, show",
        ),
        ("[rom.run]\n", "sonde.toml:1: unknown table 'rom' (nearest: room)", "allowed: room"),
        ("nonsense = 1\n", "sonde.toml:1: unknown key 'nonsense'", None),
        ("room = 1\n", "sonde.toml:1: 'room' is a table", "write [room]"),
        ("[room]\nrun = 1\n", "sonde.toml:2: 'run' in [room] is a table", "write [room.run]"),
        ("[room.run.ntasks]\nx = 1\n", "sonde.toml:1: 'ntasks' in [room.run] is a value, not a table", ""),
        (
            "[room.run.deep]\nx = 1\n",
            "sonde.toml:1: unknown table 'deep' in [room.run]",
            "this table has no tables below it",
        ),
        (
            '[room.run]\nntasks = "many"\n',
            "sonde.toml:2: ntasks: 'many' is not allowed; allowed: whole numbers from 1 up",
            "write it in digits, like 4",
        ),
        (
            "[room.run]\nntasks = 0\n",
            "sonde.toml:2: ntasks: '0' is not allowed; allowed: whole numbers from 1 up",
            "write it in digits, like 4",
        ),
        (
            "[room.run]\nntasks = true\n",
            "sonde.toml:2: ntasks is 'true'; allowed: whole numbers from 1 up",
            "",
        ),
        ('[room.run]\nmode = "some"\n', "sonde.toml:2: mode is 'some'; allowed: one, all", ""),
        ('[room.run]\ngain = "loud"\n', "sonde.toml:2: gain is 'loud'; allowed: numbers", ""),
        ("[room.run]\ndry-run = 1\n", "sonde.toml:2: dry-run is '1'; allowed: true, false", ""),
        (
            '[room.run]\n\nbudget = "soon"\n',
            "sonde.toml:3: budget: 'soon' is no duration: a number with its unit is expected at 'soon'",
            "write it like 60s, 2min, 1h30min or 250ms",
        ),
        (
            "[room.run]\ndry_run = true\n",
            "sonde.toml:2: unknown key 'dry_run' in [room.run] (nearest: dry-run)",
            None,
        ),
        ("[room.run]\nfile = 'x'\n", "sonde.toml:2: unknown key 'file' in [room.run]", None),
        ("[room.run]\nconfig = 'x'\n", "sonde.toml:2: unknown key 'config' in [room.run]", None),
        ("[room.run]\nntasks = \n", "sonde.toml:2: not TOML: Invalid value", None),
        ("a = 1\na = 2\n", "sonde.toml:2: not TOML: Cannot overwrite a value", None),
        ("[room.run\n", "sonde.toml:1: not TOML", None),
    ],
)
def test_an_error_names_the_line_the_key_and_what_is_allowed(call, text, what, hint):
    with pytest.raises(UsageError) as caught:
        call(text)
    assert caught.value.code == "core.bad_config"
    assert caught.value.what.startswith(what)
    if hint is not None:
        assert caught.value.hint == hint


def test_a_table_of_another_command_is_not_looked_into(call):
    assert call("[room.show]\nnonsense = 1\n[room.run]\nntasks = 2\n")[0]["ntasks"] == 2


def test_a_key_of_a_room_must_belong_to_one_of_its_verbs_and_goes_to_those_that_have_it(call):
    assert call("[room]\nntasks = 2\n")[0]["ntasks"] == 2
    result = CliRunner().invoke(top, ["room", "show"], standalone_mode=False)
    assert result.exception is None
    with pytest.raises(UsageError, match="unknown key 'ntask' in"):
        call("[room]\nntask = 2\n")


def test_config_may_be_named_before_the_room_or_after_the_verb(tmp_path, call):
    (tmp_path / "other.toml").write_text("[room.run]\nntasks = 7\n")
    assert call("this is not toml", "--config", "other.toml")[0]["ntasks"] == 7
    result = CliRunner().invoke(top, ["--config", "other.toml", "room", "run"], standalone_mode=False)
    assert result.return_value[0]["ntasks"] == 7


def test_where_a_config_file_is_looked_for(tmp_path, no_root, monkeypatch):
    monkeypatch.chdir(tmp_path)
    home, system = tmp_path / "home", tmp_path / "etc"
    environ = {"HOME": str(home)}
    assert config.find(None, environ, system) is None
    for place in (system / "sonde/config.toml", home / ".config/sonde/config.toml", tmp_path / "sonde.toml"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("")
        found = config.find(None, environ, system)
        assert found is not None
        assert found.resolve() == place
    xdg = tmp_path / "xdg"
    assert config.find(None, {"XDG_CONFIG_HOME": str(xdg)}, system) == Path("sonde.toml")
    assert config.find(None, {**environ, "SONDE_CONFIG": "named.toml"}, system) == Path("named.toml")
    assert config.find(Path("mine.toml"), {**environ, "SONDE_CONFIG": "named.toml"}, system) == Path(
        "mine.toml"
    )


def test_an_empty_variable_means_no_config_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sonde.toml").write_text("nonsense = 1\n")
    assert config.find(None, {"SONDE_CONFIG": ""}, tmp_path) is None


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"a = 1\nb = '\xff'\n", r":2: not UTF-8"),
        (b"#" * (2 << 20), "so it is no config file"),
        (b"a = " + b"[" * 100_000, "not TOML"),
        (b"\x00", "not TOML"),
    ],
)
def test_a_file_that_is_no_config_file_is_refused(tmp_path, raw, words):
    path = tmp_path / "bad.toml"
    path.write_bytes(raw)
    with pytest.raises(UsageError, match=words):
        config.read(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UsageError, match="is a directory") as caught:
        config.read(tmp_path)
    assert caught.value.code == "core.no_config"


def test_quoted_keys_and_comments_keep_their_lines(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text('# one\n["a.b"]\n"c d" = 1 # two\n[[list]]\nx = 1\n')
    lines = config.read(path).lines
    assert lines["a.b",] == 2
    assert lines["a.b", "c d"] == 3
    assert lines["list", "x"] == 5
