"""What a run of a probe left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sonde.core.errors import SondeError, Warning
from sonde.core.layout import SealedFile


@dataclass
class Measured:
    """What a run left: datasets, one a part; how it ended; whether the user interrupted it.

    error: what went wrong while measuring, when something was measured all the same. facts: root attributes
    that the listener learnt.
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
        """Itself; raises `error` when there is one, with the word where what was measured before it is.

        warnings: those of the dataset, which are told with it.
        """
        if self.error is not None:
            self.error.beside(warnings)
            kept = f"what was measured is in {', '.join(map(str, self.paths))}"
            self.error.hint = "; ".join(filter(None, (kept, self.error.hint)))
            raise self.error
        return self
