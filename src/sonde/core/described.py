"""What a variable of a dataset must look like: the one form in which rooms write their tables of variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sonde.core.seal import Variable


@dataclass(frozen=True)
class Described:
    """What a variable of a dataset must look like. units "1" stands for a bare number, "" for none."""

    dims: tuple[str, ...]
    dtype: str
    units: str
    long_name: str
    required: bool = True

    def attrs(self) -> dict[str, Any]:
        units = {"units": self.units} if self.units else {}
        return {**units, "long_name": self.long_name}

    def variable(
        self,
        fill: float | int | None = None,
        chunks: tuple[int, ...] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> Variable:
        """As `seal` takes it. attrs: added to the unit and the long name."""
        return Variable(self.dims, self.dtype, {**self.attrs(), **(attrs or {})}, fill, chunks)


def optional(dims: tuple[str, ...], units: str, long_name: str, dtype: str = "<f8") -> Described:
    """A variable that a dataset may lack."""
    return Described(dims, dtype, units, long_name, required=False)
