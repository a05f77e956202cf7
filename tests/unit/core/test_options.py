"""Option types, and options that mean the same wherever on the command line they stand."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from sonde.core import config
from sonde.core.errors import UsageError
from sonde.core.options import (
    DELAY,
    DURATION,
    HOSTS,
    PAUSE,
    SHARE,
    SHARED,
    SIZE,
    SIZES,
    Settings,
    Whole,
    arrange,
    common,
    settings,
)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("0:1000:100", tuple(range(0, 1000, 100))),
        ("0:3", (0, 1, 2)),
        ("1KiB:4KiB:1KiB", (1024, 2048, 3072)),
        ("0:1:1000", (0,)),
        ("8", (8,)),
        ("8,1KiB, 64 KiB", (8, 1024, 65536)),
        ("64,8", (64, 8)),
        (str(2**31 - 1), (2**31 - 1,)),
        ("0:2147483648:2147483647", (0, 2147483647)),
    ],
)
def test_sizes(text, sizes):
    assert SIZES.read(text) == sizes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no size"),
        ("  ", "has no size"),
        (",", "is no size"),
        ("8,", "is no size"),
        ("1000:0:10", "ends before 0 B"),
        ("5:5:1", "ends before 5 B"),
        ("0:10:0", "a step of 0 B"),
        ("0:10:-1", "is negative"),
        ("-10:10:1", "is negative"),
        ("0:10:1:2", "has 4 parts"),
        (":10", "is no size"),
        ("0:", "is no size"),
        ("8,8", "has 8 B twice"),
        ("8,1KiB,1024", "has 1024 B twice"),
        ("2147483648", "allowed: up to 2147483647 B"),
        ("0:4GiB:1GiB", "has 3221225472 B"),
        ("0:1000000", "has 1000000 sizes; allowed: up to 65536"),
        ("0:4611686018427387904", "the largest count of one MPI message"),
        ("1e3", "is no size"),
        ("abc", "is no size"),
    ],
)
def test_nonsense_sizes_are_refused(text, words):
    with pytest.raises(UsageError) as caught:
        SIZES.read(text)
    assert words in caught.value.what


@given(st.text(alphabet="0123456789:,KiBG. -", max_size=24))
def test_any_text_is_sizes_or_refused(text):
    try:
        sizes = SIZES.read(text)
    except UsageError:
        return
    assert sizes
    assert all(0 <= size < 2**31 for size in sizes)
    assert len(set(sizes)) == len(sizes)


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), ("0.01", 0.01), (" 50 % ", 0.5), ("1e-3", 0.001)])
def test_shares(text, share):
    assert SHARE.read(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "%", "0", "0%", "1", "100%", "-1%", "nan", "nan%", "inf", "one", "1%%"])
def test_what_is_no_share_is_refused(text):
    with pytest.raises(UsageError, match="is not a share") as caught:
        SHARE.read(text)
    assert caught.value.code == "core.bad_share"


@pytest.mark.parametrize("text", ["", "-1", "0", "1.5", "1e3", "one", "٣", "9" * 19, "+1"])
def test_what_is_no_whole_number_from_one_up_is_refused(text):
    assert Whole(1).read(" 12 ") == 12
    with pytest.raises(UsageError, match="allowed: whole numbers from 1 up") as caught:
        Whole(1).read(text)
    assert "digits" in caught.value.hint


def test_a_duration_of_no_time_is_refused():
    assert DURATION.read("2min") == 120
    with pytest.raises(UsageError, match="not a time"):
        DURATION.read("0")


@pytest.mark.parametrize("text", ["300", " 300 ", "0.5", "3e2"])
def test_a_delay_without_a_unit_is_refused(text):
    assert DELAY.read("300us") == pytest.approx(300e-6)
    with pytest.raises(UsageError, match="has no unit") as caught:
        DELAY.read(text)
    assert caught.value.hint == f"did you mean {text.strip()}us?"


def test_a_range_of_numbers_is_reported():
    def told(**span: object) -> str:
        return config.allowed(click.Option(["--x"], type=click.FloatRange(**span)))

    assert told(min=1) == "numbers from 1"
    assert told(min=0, min_open=True, max=2) == "numbers above 0 to 2"
    assert told(max=2) == "numbers up to 2"
    assert told() == "numbers"


def test_a_pause_may_be_none_at_all_but_not_below():
    assert PAUSE.read("0s") == 0
    assert PAUSE.read("250ms") == 0.25
    with pytest.raises(UsageError, match="'-1s'"):
        PAUSE.read("-1s")


def test_size_and_hosts_are_checked_as_they_are_read():
    assert SIZE.read("1MB") == 10**6
    assert HOSTS.read("n[1-3],^n2") == "n[1-3],^n2"
    with pytest.raises(UsageError, match="runs backwards"):
        HOSTS.read("n[3-1]")


@click.group()
@common()
def top() -> None:
    pass


@top.command()
@common(*SHARED)
def verb(**given: object) -> tuple[dict[str, object], Settings]:
    return given, settings()


def call(*words: str) -> tuple[dict[str, object], Settings]:
    result = CliRunner(env={"SONDE_CONFIG": ""}).invoke(top, words, standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.return_value


def test_a_command_gets_the_shared_options_it_names_and_none_of_the_consoles():
    given, _ = call(
        "verb", "-o", "a.nc", "--budget", "2min", "--precision", "1%", "--ntasks", "4", "--hosts", "n[1-4]"
    )
    assert str(given.pop("output")) == "a.nc"
    assert given == {
        "launcher": "auto",
        "hosts": "n[1-4]",
        "ntasks": 4,
        "budget_s": 120.0,
        "precision": 0.01,
        "seed": None,
        "dry_run": False,
    }


def test_without_options_everything_has_its_default():
    given, asked = call("verb")
    assert given["budget_s"] is None
    assert given["launcher"] == "auto"
    assert (asked.json, asked.progress, asked.color, asked.debug, asked.config) == (
        False,
        "auto",
        "auto",
        False,
        None,
    )


@pytest.mark.parametrize("words", [("--json", "verb"), ("verb", "--json"), ("--json", "verb", "--json")])
def test_console_options_stand_before_the_room_or_after_the_verb(words):
    assert call(*words)[1].json is True


def test_the_later_of_two_counts():
    assert call("--color", "always", "verb", "--color", "never")[1].color == "never"


def test_an_option_that_is_not_repeated_keeps_what_stood_before():
    assert call("--color", "always", "verb", "--progress", "never")[1].color == "always"


def test_an_error_names_its_option():
    with pytest.raises(UsageError, match=r"^--budget: 'soon' is no duration"):
        call("verb", "--budget", "soon")


def test_the_running_command_is_known():
    assert call("verb")[1].command == ["verb"]


def test_outside_of_a_command_settings_are_plain_and_the_bar_draws_nothing(capsys):
    asked = settings()
    assert asked == Settings()
    with asked.bar("anything", None) as bar:
        bar.show({"event": "end"})
    assert capsys.readouterr() == ("", "")


def test_an_unknown_shared_option_is_a_mistake_of_the_room():
    with pytest.raises(KeyError, match="bugdet"):
        common("bugdet")


def test_help_begins_with_a_commands_own_options():
    @click.group()
    def room() -> None:
        pass

    @room.command()
    @common("seed", "budget")
    @click.option("--own")
    @click.option("--other")
    def verb(**given: object) -> None:
        """Says in one long sentence what it does, of which click's own list would show the beginning only.

        And more.
        """

    assert arrange(room) is room
    names = [param.name for param in room.commands["verb"].params]
    short = room.commands["verb"].get_short_help_str(20)
    assert short.startswith("Says in one")
    assert short.endswith("the beginning only")
    assert names == ["own", "other", "seed", "budget_s", "json", "progress", "color", "config", "debug"]
