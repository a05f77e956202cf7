"""The result of a probe's run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sonde.core.errors import SondeError, Warning
from sonde.core.layout import SealedFile


@dataclass
class Measured:
    """The result of a run: datasets, one for each part; how it ended; whether the user interrupted it.

    error: a failure during the measurement, if something was measured all the same. facts: root attributes from the
    listener.
    """

    files: list[SealedFile]
    stop_reason: str
    interrupted: bool
    error: SondeError | None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> list[Path]:
        return [file.path for file in self.files]

    def check(self, warnings: Sequence[Warning] = ()) -> Measured:
        """Return itself, or raise `error` if there is one, with the place of the partial results in its hint.

        warnings: those of the dataset, which are reported with the error.
        """
        if self.error is not None:
            self.error.beside(warnings)
            partial = f"the partial results are in {', '.join(map(str, self.paths))}"
            self.error.hint = "; ".join(filter(None, (partial, self.error.hint)))
            raise self.error
        return self
