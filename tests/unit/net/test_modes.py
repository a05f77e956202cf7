"""Modes: the table of the probe as Python sees it, and lists of modes as people type them."""

import pytest

from sonde.core.errors import UsageError
from sonde.net.modes import CHOICES, VALUES, Mode, modes, read_modes

PATTERNS = {"pairs", "one_pair", "everyone", "rooted"}


def test_every_mode_is_whole():
    assert "one_to_one" in modes()
    for name, mode in modes().items():
        assert mode.name == name
        assert mode.text
        assert mode.pattern in PATTERNS
        assert mode.value in VALUES


def test_only_values_that_exist_can_be_chosen():
    assert set(CHOICES) <= set(VALUES)
    assert any(mode.value_choice for mode in modes().values())


def test_list_keeps_the_order_it_was_typed_in():
    names = list(modes())[:3][::-1]
    assert [mode.name for mode in read_modes(",".join(names))] == names


def test_blanks_around_names_do_not_matter():
    assert [mode.name for mode in read_modes(" one_to_one , all_to_all ")] == ["one_to_one", "all_to_all"]


@pytest.mark.parametrize("text", ["all", " all "])
def test_all_is_every_mode_in_the_table_s_order(text):
    assert read_modes(text) == tuple(modes().values())


def test_misspelt_mode_is_refused_with_the_nearest_and_all_there_are():
    with pytest.raises(UsageError, match=r"no mode 'one_to_on' \(nearest: one_to_one\)") as told:
        read_modes("all_to_all,one_to_on")
    assert told.value.code == "net.unknown_mode"
    assert all(name in told.value.what for name in modes())
    assert "sonde net modes" in told.value.hint


@pytest.mark.parametrize("text", ["", ",", "one_to_one,", "all,one_to_one", "ONE_TO_ONE", "zzz"])
def test_what_is_no_list_of_modes(text):
    with pytest.raises(UsageError) as told:
        read_modes(text)
    assert told.value.code == "net.unknown_mode"


def test_mode_given_twice():
    with pytest.raises(UsageError, match="'one_to_one' is given twice") as told:
        read_modes("one_to_one,all_to_all,one_to_one")
    assert told.value.code == "net.mode_twice"


def mode(**changed) -> Mode:
    return Mode(
        **{
            "name": "made_up",
            "text": "…",
            "pattern": "pairs",
            "value": "rtt_half",
            "by_receiver": False,
            "value_choice": True,
            **changed,
        }
    )


@pytest.mark.parametrize(
    ("changed", "asked", "expected"),
    [
        ({}, None, ("rtt_half", "src")),
        ({}, "rtt_half", ("rtt_half", "src")),
        ({}, "one_way", ("one_way", "dst")),
        ({}, "recv_duration", ("recv_duration", "dst")),
        ({"by_receiver": True}, None, ("rtt_half", "dst")),
        ({"value": "completion", "value_choice": False}, "one_way", ("completion", "src")),
        ({"value": "one_way", "value_choice": False}, None, ("one_way", "dst")),
    ],
)
def test_what_a_sample_is_and_who_takes_it(changed, asked, expected):
    assert mode(**changed).sample(asked) == expected
