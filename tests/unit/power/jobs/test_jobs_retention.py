"""How much users may have stored, and what goes first."""

from __future__ import annotations

from sonde.power.jobs.retention import Bounds, Tally, size_of_text

LOOSE = 1 << 30


def tally(bounds: Bounds, *things: tuple[str, str, int]) -> Tally:
    full = Tally(bounds)
    for user, _, size in things:
        full.add(user, size)
    return full


def things(user: str, count: int, size: int = 1) -> list[tuple[str, str, int]]:
    return [(user, f"{user}{k}", size) for k in range(count)]


def test_within_its_bounds_nothing_goes():
    those = things("ada", 5) + things("bob", 5)
    full = tally(Bounds(5, 10, 5, 10), *those)
    assert not full.beyond
    assert full.surplus(those) == []
    assert (full.number, full.size, full.number_of("ada"), full.size_of("bob")) == (10, 10, 5, 5)
    assert (full.number_of("eve"), full.size_of("eve")) == (0, 0)


def test_a_user_who_has_too_many_loses_the_oldest():
    those = things("bob", 8) + things("ada", 9)
    full = tally(Bounds(8, 100, LOOSE, LOOSE), *those)
    assert full.beyond
    assert full.surplus(those) == ["ada0", "ada1"]  # an eighth more than need be


def test_a_user_whose_things_are_too_large_loses_the_oldest():
    those = things("ada", 9, 10)
    assert tally(Bounds(100, 100, 80, LOOSE), *those).surplus(those) == ["ada0", "ada1"]


def test_what_is_too_much_for_all_goes_of_who_has_most():
    those = things("bob", 2) + things("ada", 6) + things("eve", 4)
    full = tally(Bounds(100, 11, LOOSE, LOOSE), *those)
    gone = full.surplus(those)
    assert gone == ["ada0", "ada1"]
    for user, key, size in those:
        if key in gone:
            full.add(user, -size, -1)
    assert full.number == 10
    large = things("bob", 20) + things("ada", 3, 100)
    assert tally(Bounds(100, 100, LOOSE, 300), *large).surplus(large) == ["ada0"]


def test_what_may_not_go_stays():
    full = tally(Bounds(2, 2, LOOSE, LOOSE), *things("ada", 5))
    assert full.surplus([("ada", "ada3", 1)]) == ["ada3"]
    assert full.surplus([]) == []


def test_a_user_who_has_nothing_any_more_is_not_remembered():
    full = Tally(Bounds(1, 1, 1, 1))
    full.add("ada", 5)
    full.add("ada", -5, -1)
    assert (full.number, full.size, full._numbers, full._sizes) == (0, 0, {}, {})


def test_a_text_counts_as_it_is_stored():
    assert size_of_text("") >= 50  # a word without letters takes memory, too
    assert size_of_text("x" * 1000) < 1200
    assert size_of_text("\x01" * 1000) > 6000  # JSON writes six characters for it
    assert size_of_text("x" * 999 + "😀") > 4000  # Python has all characters as wide as the widest
