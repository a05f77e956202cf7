"""Events come through whatever else a probe's stdout carries, and nothing that is not whole comes through."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.events import KEYS, Event, NullProgress, Reader, is_whole, parse

PROGRESS = {
    "event": "progress",
    "done": 3,
    "active": 5,
    "cells": 8,
    "epoch": 2,
    "samples": 900,
    "elapsed_s": 1.5,
}


def whole(line: str) -> Event | None:
    """What a Reader makes of a line."""
    return Reader().read(line)


def test_an_event_is_read_from_text_and_bytes():
    line = json.dumps(PROGRESS)
    assert parse(line) == PROGRESS
    assert parse(line.encode() + b"\r\n") == PROGRESS


def test_keys_come_in_any_order_and_with_blanks():
    assert parse('  { "steps" : 63, "event" : "pairing" }') == {"steps": 63, "event": "pairing"}


def test_more_keys_than_asked_for_are_preserved():
    event = parse(json.dumps({**PROGRESS, "decided": 2}))
    assert event is not None
    assert event["decided"] == 2


def test_an_unknown_event_of_a_newer_probe_passes():
    assert parse('{"event":"pairing","steps":63}') == {"event": "pairing", "steps": 63}


@pytest.mark.parametrize("name", KEYS)
def test_a_known_event_without_one_of_its_keys_is_foreign(name):
    sample = {int: 1, float: 0.5, str: "x", bool: True}
    event = {"event": name, **{key: sample[kind] for key, kind in KEYS[name].items()}}
    assert whole(json.dumps(event)) == event
    for key in KEYS[name]:
        for less in ({k: v for k, v in event.items() if k != key}, {**event, key: None}):
            assert whole(json.dumps(less)) is None
            assert parse(json.dumps(less)) == less  # for those that take what there is, as of an error


@pytest.mark.parametrize("bad", [-1, 1.5, True, "3", [3], 10**400])
def test_a_count_that_is_none_is_foreign(bad):
    got = whole(json.dumps({**PROGRESS, "done": bad}))
    assert (got is None) == (bad != 10**400)  # a large whole number is still one


@pytest.mark.parametrize("bad", ["NaN", "Infinity", "-1", "true", "1" * 5000])
def test_a_time_that_is_none_is_foreign(bad):
    assert whole(json.dumps(PROGRESS).replace("1.5", bad)) is None


@pytest.mark.parametrize(
    "line",
    [
        "",
        "\n",
        "hello from rank 3",
        '{"event":',
        '{"event"}',
        '{"event":3}',
        '{"event":null}',
        '{"event":["progress"]}',
        '["event"]',
        '{"other":"progress"}',
        "{}",
        "{",
        '{"event":"progress"}',
        b"\xff\xfe\x00",
        '{"event":' + "[" * 200_000,
        "x" * (2 << 20),
    ],
    ids=lambda line: repr(line[:24]),
)
def test_foreign_lines_never_raise(line):
    assert whole(line) is None


def test_foreign_lines_are_counted_and_the_last_are_preserved():
    reader = Reader(keep=2)
    lines = ["one\n", json.dumps(PROGRESS), "two\n", "\n", "three " + "x" * 5000]
    assert list(reader.events(lines)) == [PROGRESS]
    assert reader.foreign == 3
    assert reader.last[0] == "two"
    assert reader.last[1].startswith("three")
    assert len(reader.last[1]) == 1000


def test_text_before_an_event_on_its_line_is_foreign_and_the_event_is_preserved():
    reader = Reader()
    assert reader.read("[1,0]<stdout>:" + json.dumps(PROGRESS)) == PROGRESS
    assert list(reader.last) == ["[1,0]<stdout>:"]


def test_text_behind_an_event_does_not_hide_it():
    assert parse(json.dumps(PROGRESS) + " and more") == PROGRESS


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_no_input_raises(line):
    reader = Reader()
    event = reader.read(line)
    assert event is None or is_whole(event)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda c: st.lists(c) | st.dictionaries(st.text(), c),
    )
)
def test_no_json_raises(value):
    assert whole('{"event":"progress","done":' + json.dumps(value) + "}") is None


def test_a_progress_that_shows_nothing_takes_anything():
    with NullProgress() as bar:
        bar.show(PROGRESS)
