"""sonde data diff: finds what differs beyond intervals, and not what does not."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from sonde.core import dataset, dataset_file
from sonde.core.errors import DataError
from sonde.data import diff


def compare(a, b, matters=0.05):
    with dataset.open(a) as old, dataset.open(b) as new:
        return diff.compare(old, new, matters)


def test_equal_datasets_do_not_differ(measured):
    found = compare(measured("a.nc", [[1e-6, 2e-6]]), measured("b.nc", [[1e-6, 2e-6]]))
    (one,) = found.compared
    assert (one.name, one.units, one.dims, one.compared) == ("median", "s", ("rank", "cell"), 2)
    assert not one.differs.any()
    assert found.machine == []
    assert found.warnings == []
    assert diff.findings(found, ("a.nc", "b.nc"), "lab") == []


def test_a_cell_beyond_its_interval_is_found_and_named(measured):
    medians = np.full((4, 3), 1e-6)
    changed = medians.copy()
    changed[2, 1] = 1.58e-6
    changed[3, 0] = 0.8e-6
    found = compare(measured("a.nc", medians), measured("b.nc", changed))
    (one,) = found.compared
    assert np.argwhere(one.differs).tolist() == [[2, 1], [3, 0]]
    assert one.worst() == (2, 1)
    (finding,) = diff.findings(found, ("a.nc", "b.nc"), "lab")
    assert finding.code == "data.differs"
    assert finding.text == "median: 2 of 12 cells differ; most at rank 2, cell 1: 1.00 µs → 1.58 µs (+58.0 %)"
    assert finding.evidence["worst"]["ratio"] == pytest.approx(1.58)
    assert (finding.evidence["larger"], finding.evidence["smaller"]) == (1, 1)
    assert finding.next == "sonde lab diff a.nc b.nc"


def test_a_change_within_intervals_is_no_difference(measured):
    found = compare(measured("a.nc", [[1e-6]], width=0.2), measured("b.nc", [[1.3e-6]], width=0.2))
    assert not found.compared[0].differs.any()


def test_a_change_that_does_not_matter_is_no_difference(measured):
    a, b = measured("a.nc", [[1e-6]], width=1e-4), measured("b.nc", [[1.03e-6]], width=1e-4)
    assert not compare(a, b).compared[0].differs.any()
    assert compare(a, b, matters=0.02).compared[0].differs.all()


def test_cells_without_an_interval_are_not_judged(measured):
    a = measured("a.nc", [[1e-6, 1e-6]])
    b = measured("b.nc", [[np.nan, 9e-6]])
    (one,) = compare(a, b).compared
    assert one.compared == 1
    assert one.differs.tolist() == [[False, True]]


def test_intervals_of_no_width_are_exact(measured):
    a, b = measured("a.nc", [[1e-6, 1e-6]], width=0), measured("b.nc", [[1e-6, 2e-6]], width=0)
    (one,) = compare(a, b).compared
    assert one.differs.tolist() == [[False, True]]


def test_a_value_that_was_zero_may_differ(measured):
    a, b = measured("a.nc", [[0.0, 0.0]]), measured("b.nc", [[0.0, 1e-6]])
    (one,) = compare(a, b).compared
    assert one.differs.tolist() == [[False, True]]
    assert np.isinf(one.ratio[0, 1])


@pytest.mark.parametrize("pairs", [4, pytest.param(20, marks=pytest.mark.soak)])
def test_false_discoveries_stay_rare_and_true_ones_are_found(measured, pairs):
    """Estimates drawn with the errors their intervals state: pairs of datasets of 400 equal cells."""
    random = np.random.default_rng(11)
    width = 1.96 * 0.03
    false = found = 0
    for trial in range(pairs):
        a = 1 + 0.03 * random.standard_normal((20, 20))
        b = 1 + 0.03 * random.standard_normal((20, 20))
        b[0, 0] *= 1.4
        (one,) = compare(measured("a.nc", a, width), measured("b.nc", b, width), matters=0.001).compared
        found += bool(one.differs[0, 0])
        false += int(one.differs.sum()) - int(one.differs[0, 0])
        assert 0.08 < one.mde < 0.16, trial  # 2.8 standard errors of a difference
    assert found >= 0.95 * pairs
    assert false <= 0.4 * pairs  # of 399 each; intervals alone would let some 2 each pass


def test_cells_are_matched_by_their_coordinates(tmp_path):
    def make(name, cells, values):
        variables = {
            f"x{end}": ("cell", np.array(values) * factor, {"units": "s"})
            for end, factor in (("", 1), ("_low", 0.99), ("_high", 1.01))
        }
        return dataset_file.write_dataset(
            tmp_path / name, None, xr.Dataset(variables, coords={"cell": cells}), {"schema": "lab/1"}
        )

    found = compare(make("a.nc", [0, 8, 64], [1.0, 2.0, 3.0]), make("b.nc", [64, 8, 512], [3.0, 9.0, 1.0]))
    (one,) = found.compared
    assert one.labels["cell"].tolist() == [8, 64]
    assert one.differs.tolist() == [True, False]
    (warning,) = found.warnings
    assert (warning.code, "share 2 of 3 and 3 positions" in warning.evidence) == ("data.not_all_shared", True)
    with pytest.raises(DataError, match="share no cell") as raised:
        compare(make("c.nc", [1], [1.0]), make("d.nc", [2], [1.0]))
    assert raised.value.code == "data.nothing_shared"


def test_other_units_or_dims_are_left_out_and_reported(tmp_path):
    def make(name, units, dims):
        variables = {}
        for variable in ("x", "y"):
            for end, factor in (("", 1), ("_low", 0.9), ("_high", 1.1)):
                own = {"units": units if variable == "x" else "s"}
                variables[variable + end] = (dims if variable == "y" else "cell", np.ones(2) * factor, own)
        variables |= {f"z{end}": ((), 1.0, {"units": "s"}) for end in ("", "_low", "_high")}
        return dataset_file.write_dataset(tmp_path / name, None, xr.Dataset(variables), {"schema": "lab/1"})

    found = compare(make("a.nc", "s", "cell"), make("b.nc", "ms", "row"))
    assert [one.name for one in found.compared] == ["z"]
    assert [warning.code for warning in found.warnings] == ["data.other_units", "data.other_dims"]


def test_the_machine_is_distinguished_from_the_run(measured):
    a = measured("a.nc", [[1e-6]], kernel="6.1.0", governor="performance", load_average=0.1, turbo="on")
    b = measured(
        "b.nc", [[1e-6]], kernel="6.12.0", governor="performance", load_average=7.5, mpi="openmpi",
        created_utc="2026-12-01T00:00:00Z", command="other", seed=9, job_id="17",
    )  # fmt: skip
    assert compare(a, b).machine == [
        ("kernel", "6.1.0", "6.12.0"),
        ("turbo", "on", "not recorded"),
        ("mpi", "not recorded", "openmpi"),
    ]


def test_doubts_about_the_comparison_are_warnings(measured):
    a = measured("a.nc", [[1e-6]], mode="one_to_one", hostlist="n1")
    b = measured("b.nc", [[1e-6]], mode="bcast", hostlist="n2", complete=0)
    codes = [warning.code for warning in compare(a, b).warnings]
    assert codes == ["data.other_modes", "data.other_hosts", "data.incomplete"]


def test_datasets_of_two_schemas_or_without_summary_are_refused(measured, tmp_path):
    a = measured("a.nc", [[1e-6]])
    b = dataset_file.write_dataset(tmp_path / "b.nc", None, None, {"schema": "bus/1"})
    with pytest.raises(DataError, match="a lab/1 and a bus/1 dataset cannot be compared"):
        compare(a, b)
    c = dataset_file.write_dataset(tmp_path / "c.nc", None, None, {"schema": "lab/1"})
    with pytest.raises(DataError, match="c\\.nc has no /summary"):
        compare(a, c)
