"""The section of a dataset of the noise source."""

from __future__ import annotations

from run_blocks import source_file

import sonde
from sonde.core import run_folder, seal
from sonde.noise.kinds import SCHEMA
from sonde.noise.kinds import section as section_of


def test_a_source_has_its_words(tmp_path):
    bursts = [
        {
            "planned": 100.0 + k,
            "begin": 100.0 + k,
            "wall": 0.0099,
            "cpu": 0.01,
            "overhead": 1e-4,
            "words": 20_000,
        }
        for k in range(10)
    ]
    folder = tmp_path / "a.run"
    plan = {"kind": "source", "hosts": ["n000"]}
    run_folder.start(folder, room="noise", schema="noise/1", attrs={"seed": 1}, plan=plan)
    source_file(folder, "source.blk", bursts, host="n000", realtime_ahead_s=1e9, cpu_clock_cost_s=1e-7)
    sealed = seal.seal(folder, tmp_path / "a.nc", SCHEMA, attrs={"stop_reason": "budget"})[0]
    with sonde.open(sealed.path) as tree:
        section = section_of(tree, "a.nc")
    assert section.verdict.startswith("requested 1 %, used 1")
    assert section.tables
    assert section.room == "noise"
