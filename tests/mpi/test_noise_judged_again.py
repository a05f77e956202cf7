"""A run of sonde-noise becomes a dataset, and the judge says of it what it said live."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sonde.core import dataset, run_folder, seal
from sonde.core.launch import probe
from sonde.core.launch.mpirun import Mpirun
from sonde.core.launch.process import ProbeProcess
from sonde.noise.detector import judge
from sonde.noise.detector.plan import Design, Plan, Variant
from sonde.noise.kinds import SCHEMA

pytestmark = pytest.mark.mpi
ROUNDS, SPEND, PERIODS = (3, 3), (0.5, 0.5), (0.1,)


def measured(mpirun: Mpirun, folder: Path, **more: object) -> xr.DataTree:
    """A short run of two variants of which neither does anything, sealed."""
    design = Design(ROUNDS, SPEND, block_s=0.2, settle_s=0.02, periods_s=PERIODS)
    plan = Plan((Variant("off"), Variant("nothing")), design, 2, **more)
    run = folder / "a.run"
    run_folder.start(
        run, room="noise", schema="noise/1", attrs=plan.attrs() | {"seed": 1}, plan=plan.document()
    )
    argv = [str(probe("sonde-noise", mpirun.mpi.flavour)), *plan.argv(str(run), 60)]
    with ProbeProcess(mpirun.command(argv, (), 2, {}), run, lambda event: None) as process:
        assert process.wait(timeout_s=120).check().reason == "done"
    (sealed,) = seal.seal(run, folder / "a.nc", SCHEMA, attrs={"stop_reason": "epochs"}, analyse=False)
    assert sealed.complete
    assert dataset.validate(sealed.path) == []
    return dataset.open(sealed.path)


def test_the_dataset_holds_what_the_ranks_counted_and_is_judged_alike(mpirun: Mpirun, tmp_path: Path):
    # Without the fresh blocks that follow a detection: chance alone makes one in a hundred runs.
    with measured(mpirun, tmp_path, fresh_rounds=0) as tree:
        raw = tree["raw"].to_dataset().load()
        raw.attrs = dict(tree.attrs)
    assert dict(raw.sizes)["block"] == 12
    assert (raw["status"] == 1).all()
    # All ranks run the same iterations; each counts every reading once.
    assert (raw["iterations"][0] == raw["iterations"][1]).all()
    readings = raw["count"].sum("class") * raw["stamp_every"]
    assert (np.abs(readings - raw["iterations"]) < raw["stamp_every"]).all()
    assert (raw["length"] > 0.15).all()
    assert (np.diff(raw["t_begin"].values) > 0.2).all()
    assert raw["look_blocks"].values.tolist() == [6, 12]
    assert np.isfinite(raw["resumed"][0]).all()  # of blocks without an agent too: one origin for both kinds
    assert (raw["resumed"][0] <= raw["t_begin"][0]).all()

    again = judge.looks(
        judge.blocks_of(raw),
        raw["look_blocks"].values.tolist(),
        SPEND,
        PERIODS,
        fold_weight=float(raw.attrs["fold_weight"]),
        permutations=int(raw.attrs["permutations"]),
        seed=1,
    )
    for name, live in (
        ("p", "look_p"),
        ("p_fold", "look_p_fold"),
        ("p_ranked", "look_p_ranked"),
        ("z_fold", "look_z_fold"),
        ("z_ranked", "look_z_ranked"),
        ("phase_s", "look_phase"),
        ("from_resume", "look_from_resume"),
        ("p_so_far", "look_p_so_far"),
    ):
        said = [float(getattr(look, name)) for look in again]
        np.testing.assert_allclose(said, raw[live].values, rtol=1e-9, err_msg=name)


def test_every_iteration_is_kept_when_asked_for(mpirun: Mpirun, tmp_path: Path):
    with measured(mpirun, tmp_path, keep=True) as tree:
        raw = tree["raw"].to_dataset()
        n = raw["n_readings"].values
        np.testing.assert_array_equal(n, raw["count"].sum("class").values)
        tick, edges = raw["tick"].values, raw["class_edge"].values
        for rank in range(2):
            kept = raw["iteration"][rank, 0].values[: n[rank, 0]].astype(float) * tick[rank]
            clipped = np.clip(kept, edges[rank, 0], np.nextafter(edges[rank, -1], 0))
            count, _ = np.histogram(clipped, edges[rank])
            # At an edge the last digit of the product decides.
            assert np.abs(count - raw["count"][rank, 0].values).sum() <= 0.001 * len(kept) + 2
