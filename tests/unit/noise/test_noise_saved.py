"""What a dataset says of itself, and how the end of programs becomes the end of a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from sonde.core.errors import EnvironmentFailure, Exit
from sonde.core.layout import SealedFile
from sonde.core.outcome import Outcome
from sonde.noise import saved
from sonde.noise.run_programs import Measured


def measured(interrupted: bool = False, error: EnvironmentFailure | None = None) -> Measured:
    return Measured(SealedFile(Path("a.nc"), True, []), "budget", interrupted, error)


class TestEnd:
    def test_in_order(self):
        assert saved.end(Outcome("noise", "host"), measured()).exit is Exit.DONE

    def test_incomplete(self):
        assert saved.end(Outcome("noise", "host", complete=False), measured()).exit is Exit.INCOMPLETE

    def test_interrupted_is_reported_first(self):
        outcome = saved.end(Outcome("noise", "host", "so far"), measured(interrupted=True))
        assert outcome.exit is Exit.INTERRUPTED
        assert outcome.verdict == "interrupted: so far"
        assert outcome.warnings[0].code == "noise.interrupted"
        assert "a.nc" in outcome.warnings[0].evidence

    @pytest.mark.parametrize(
        ("hint", "told"),
        [("", "the recorded data is in a.nc"), ("try it", "try it; the recorded data is in a.nc")],
    )
    def test_what_went_wrong_is_raised_with_where_the_rest_is(self, hint, told):
        error = EnvironmentFailure("noise.no_such_core", "CPU 9 cannot be used", hint)
        with pytest.raises(EnvironmentFailure) as caught:
            saved.end(Outcome("noise", "host"), measured(error=error))
        assert caught.value.hint == told

    def test_of_several_programs_one_that_failed_ends_nothing(self):
        error = EnvironmentFailure("noise.no_such_core", "CPU 9 cannot be used", "")
        outcome = saved.end(Outcome("noise", "source"), measured(error=error), alone=False)
        assert outcome.exit is Exit.DONE
