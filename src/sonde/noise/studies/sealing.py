"""From the records of block files to the datasets of studies: as for any run, with the results of the study added."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.core.deadline import Deadline
from sonde.noise.detector.sealing import RunSchema
from sonde.noise.studies.summary import SUMMARY

if TYPE_CHECKING:
    import xarray as xr


class StudySchema(RunSchema):
    """The RoomSchema of a study's run."""

    summary = SUMMARY

    def analyse(self, raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
        """From /raw to /summary: `detector.analyse.analyse`, and the results of the study."""
        from sonde.noise.studies.analyse import add

        limit = deadline or Deadline()
        return add(raw, super().analyse(raw, limit.part(0.5)), limit)


SCHEMA = StudySchema()
