"""Damaged inputs for every parser of what others wrote: nothing but its own error comes out, at no great cost.

The same examples each time, so that a commit is not refused for what another brought; new ones are looked for by
`make fuzz`. An example that fails goes to tests/data/fuzz/NAME, from where it is tried each time.
"""

from __future__ import annotations

from collections.abc import Iterator

import fuzz_parsers
import pytest
from fuzz_mutations import KINDS, LARGEST, MOST_STEPS, Step, spoiled
from fuzz_parsers import PARSERS, Wrong, hold
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.integers(0, KINDS - 1),
        st.integers(0, 1 << 16),
        st.integers(0, 1 << 16),
        st.integers(0, LARGEST - 1),
    ),
    max_size=MOST_STEPS,
)


@pytest.fixture(scope="module", autouse=True)
def _no_files_stay() -> Iterator[None]:
    yield
    fuzz_parsers.clear()


@pytest.mark.parametrize("name", PARSERS)
def test_what_is_known_is_read_or_refused(name: str):
    one = PARSERS[name]
    assert any([hold(one, seed) for seed in one.seeds()]), "none of its sound inputs is taken"


@pytest.mark.parametrize("name", PARSERS)
def test_what_is_damaged_is_refused_in_its_own_words(name: str):
    one = PARSERS[name]

    @settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=60,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, len(one.seeds()) - 1), STEPS)
    def each(number: int, steps: list[Step]) -> None:
        hold(one, spoiled(one.seeds()[number], steps))

    each()


@pytest.mark.parametrize("name", PARSERS)
def test_what_is_nothing_of_its_kind_is_refused_in_its_own_words(name: str):
    @settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=30,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.binary(max_size=2000))
    def each(data: bytes) -> None:
        hold(PARSERS[name], data)

    each()


def test_what_breaks_its_promise_is_reported_with_the_input():
    def broken(data: bytes) -> None:
        raise LookupError("no such thing")

    with pytest.raises(Wrong, match=r"broken: LookupError: no such thing at b'abc', 3 bytes"):
        hold(fuzz_parsers.Parser("broken", broken, list), b"abc")
    with pytest.raises(Wrong, match="bytes of memory for 1 of input"):
        hold(fuzz_parsers.Parser("large", lambda data: bytearray(64 << 20), list), b"a")
