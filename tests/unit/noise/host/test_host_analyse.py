"""Interruptions that are known, and what analyse and the words make of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr

from sonde.noise.host import analyse as host
from sonde.noise.host.figures import section
from sonde.report import render_html, render_static

COUNTERS = ("LOC", "DEV", "soft TIMER")
WINDOWS, WINDOW_S, GAP_S = 100, 0.1, 100e-6


def raw(
    cores: list[dict], *, virtualised: str = "none", processes: list[dict] | None = None, method: int = 0
) -> xr.Dataset:
    """/raw of some cores. A core: detours [(begin after the first window's begin, length)], LOC a window, run_delay
    by window."""
    begins = 100.0 + np.arange(WINDOWS) * (WINDOW_S + GAP_S)
    most = max(1, *(len(core["detours"]) for core in cores))
    n = len(cores)
    begin, length = (np.full((n, most), np.nan) for _ in range(2))
    lost, gaps, delay = (np.zeros((n, WINDOWS)) for _ in range(3))
    counters = np.zeros((n, WINDOWS, len(COUNTERS)), np.int64)
    for row, core in enumerate(cores):
        times = np.array([t for t, _ in core["detours"]]) + 100.0
        spans = np.array([span for _, span in core["detours"]])
        begin[row, : len(times)], length[row, : len(times)] = times, spans
        where = np.searchsorted(begins, times, side="right") - 1
        lost[row] = np.bincount(where, weights=spans, minlength=WINDOWS)
        gaps[row] = np.bincount(where, minlength=WINDOWS)
        delay[row] = core.get("run_delay", 0.0)
        counters[row, :, 0] = core.get("loc", 0)
    two = ("cpu", "window")
    whole = np.broadcast_to(begins, (n, WINDOWS))
    return xr.Dataset(
        {
            "detour_begin": (("cpu", "detour"), begin),
            "detour_length": (("cpu", "detour"), length),
            "detour_n": ("cpu", [len(core["detours"]) for core in cores]),
            "fwq_begin": (("cpu", "quantum"), np.full((n, 4), np.nan)),
            "fwq_length": (("cpu", "quantum"), np.tile([1e-3, 1e-3, 1e-3, 2e-3], (n, 1))),
            "fwq_n": ("cpu", [4 if core.get("fwq") else 0 for core in cores]),
            "window_begin": (two, whole),
            "window_end": (two, whole + WINDOW_S),
            "window_lost": (two, lost),
            "window_run_delay": (two, delay),
            "window_steal": (two, np.zeros((n, WINDOWS))),
            "window_gap": (two, np.r_[0.0, np.full(WINDOWS - 1, GAP_S)] * np.ones((n, 1))),
            "window_loops": (two, np.full((n, WINDOWS), 5_000_000)),
            "window_gaps": (two, gaps.astype(int)),
            "window_method": (two, np.full((n, WINDOWS), method, np.int8)),
            "window_involuntary": (two, np.zeros((n, WINDOWS), int)),
            "window_voluntary": (two, np.zeros((n, WINDOWS), int)),
            "window_n": ("cpu", [core.get("windows", WINDOWS) for core in cores]),
            "counters": (("cpu", "window", "counter"), counters),
            "threshold": ("cpu", np.full(n, 3e-7)),
            "least_step": ("cpu", np.full(n, 1.4e-8)),
        },
        coords={"cpu": np.arange(n), "counter": list(COUNTERS)},
        attrs={
            "window_s": WINDOW_S,
            "virtualised": virtualised,
            "processes": json.dumps(processes or []),
            "devices": "[]",
            "osnoise": "absent: there is no /sys/kernel/tracing",
            "ticks": "tsc",
        },
    )


def tick(hz: float, length_s: float = 4e-6, jitter_s: float = 2e-5) -> list[tuple[float, float]]:
    """A timer's interruptions within the windows."""
    rng = np.random.default_rng(1)
    times = np.arange(0, WINDOWS * (WINDOW_S + GAP_S), 1 / hz) + 1e-4 + rng.uniform(0, jitter_s)
    inside = times % (WINDOW_S + GAP_S) < WINDOW_S - 1e-3
    return [(float(t), length_s * (1 + 0.1 * (k % 3))) for k, t in enumerate(times[inside])]


def test_a_timer_is_counted_timed_named_and_its_rhythm_found():
    summary = host.analyse(raw([{"detours": tick(250), "loc": 25}]))
    expected = len(tick(250)) / (WINDOWS * WINDOW_S)
    assert float(summary["rate"][0]) == pytest.approx(expected)
    assert float(summary["long_rate"][0]) == 0
    assert float(summary["share"][0]) == pytest.approx(sum(s for _, s in tick(250)) / (WINDOWS * WINDOW_S))
    assert float(summary["class_share"].sum()) == pytest.approx(float(summary["share"][0]))
    assert float(summary["class_rate"].sum()) == pytest.approx(expected)
    assert float(summary["rhythm"][0]) == pytest.approx(250, abs=5)
    assert float(summary["counter_rate"].sel(counter="LOC")[0]) == pytest.approx(250, rel=0.01)
    text = host.sentence(summary)
    assert text.startswith("core 0 loses ")
    assert "of 4.00–4.80 µs (timer tick, LOC 250/s)" in text
    assert "above" not in text


def test_two_rhythms_at_once_are_both_reported():
    """A guest's tick of 250 Hz under a host's of 1 kHz."""
    both = sorted(tick(1000) + [(t + 3e-4, span) for t, span in tick(250)])
    summary = host.analyse(raw([{"detours": both}]))
    assert float(summary["rhythm"][0]) == pytest.approx(1000, abs=5)
    assert float(summary["second_rhythm"][0]) == pytest.approx(250, abs=5)
    assert np.isnan(float(host.analyse(raw([{"detours": tick(1000)}]))["second_rhythm"][0]))


def test_interruptions_at_random_times_have_no_rhythm():
    rng = np.random.default_rng(5)
    times = np.sort(rng.uniform(0, WINDOWS * (WINDOW_S + GAP_S), 3000))
    summary = host.analyse(raw([{"detours": [(float(t), 5e-6) for t in times]}]))
    assert np.isnan(float(summary["rhythm"][0]))
    assert float(summary["rhythm_p"][0]) > host.P_RHYTHM
    assert np.isnan(float(summary["slow_rhythm"][0]))


def test_what_the_kernel_does_not_count_is_the_hypervisors_in_a_guest():
    core = {"detours": tick(1000), "loc": 10}
    assert "it comes from the hypervisor" in host.sentence(host.analyse(raw([core], virtualised="kvm")))
    assert "it comes from firmware or another unknown source" in host.sentence(host.analyse(raw([core])))


def test_long_detours_that_run_delay_covers_were_given_to_others():
    long = [(0.05 + k * (WINDOW_S + GAP_S), 5e-3) for k in range(0, WINDOWS, 10)]
    delay = np.zeros(WINDOWS)
    delay[::10] = 4.9e-3
    ran = [
        {"cpu": 0, "pid": 7, "name": "collectd", "cpu_s": 0.05},
        {"cpu": 1, "pid": 8, "name": "x", "cpu_s": 0.1},
    ]
    summary = host.analyse(raw([{"detours": long, "run_delay": delay}], processes=ran))
    assert float(summary["run_delay_covers"][0]) == pytest.approx(0.98)
    text = host.sentence(summary)
    assert "1/s above 100 µs (CPU given to other programs: run_delay explains 98 %, most to collectd)" in text
    # one in ten windows: 1/s, as an agent would do
    assert float(summary["slow_rhythm"][0]) == pytest.approx(1.0, rel=0.01)


def test_waiting_in_other_windows_covers_nothing():
    long = [(0.05 + k * (WINDOW_S + GAP_S), 5e-3) for k in range(0, WINDOWS, 10)]
    delay = np.zeros(WINDOWS)
    delay[5::10] = 5e-3
    summary = host.analyse(raw([{"detours": long, "run_delay": delay}]))
    assert float(summary["run_delay_covers"][0]) == 0
    assert "unexplained: run_delay explains only 0 %" in host.sentence(summary)


def test_without_schedstat_the_kernel_tells_nothing():
    long = [(0.05, 5e-3)]
    summary = host.analyse(raw([{"detours": long, "run_delay": np.full(WINDOWS, np.nan)}]))
    assert "the kernel does not show the cause" in host.sentence(summary)


def test_others_on_a_core_are_a_warning_that_names_them():
    long = [(0.05 + k * (WINDOW_S + GAP_S), 5e-3) for k in range(WINDOWS)]
    ran = [{"cpu": 0, "pid": 7, "name": "collectd", "cpu_s": 0.05}]
    core = {"detours": long, "run_delay": 5e-3}
    (warning,) = host.warnings(host.analyse(raw([core], processes=ran)))
    assert warning.code == "noise.core_shared"
    assert "collectd" in warning.evidence


def test_the_worst_of_several_cores_is_named():
    summary = host.analyse(raw([{"detours": tick(100)}, {"detours": tick(1000)}]))
    text = host.sentence(summary)
    assert text.startswith("core 1 loses ")
    assert "; the other 0.0" in text


def test_a_core_without_detours_loses_nothing():
    summary = host.analyse(raw([{"detours": []}]))
    assert float(summary["share"][0]) == 0
    assert np.isnan(summary["length_quantile"].values).all()
    assert host.sentence(summary) == "core 0 loses 0 % of its time"


def test_a_core_without_windows_is_unknown_not_quiet():
    summary = host.analyse(raw([{"detours": [], "windows": 0}]))
    assert np.isnan(float(summary["share"][0]))
    assert host.sentence(summary) == "nothing was recorded"
    assert host.values(summary)["cores"][0]["share"] is None


def test_quanta_alone_still_give_a_verdict():
    summary = host.analyse(raw([{"detours": [], "fwq": True}], method=1))
    assert np.isnan(float(summary["share"][0]))
    assert float(summary["fwq_share"][0]) == pytest.approx(0.2)
    assert host.sentence(summary) == "core 0 takes 20 % longer for its work than in its shortest quantum"


def test_detours_without_room_count_in_rate_and_share():
    data = raw([{"detours": tick(100)}])
    data["window_gaps"] = 2 * data["window_gaps"]
    data["window_lost"] = 2 * data["window_lost"]
    summary = host.analyse(data)
    assert float(summary["class_rate"].sum()) == pytest.approx(float(summary["rate"][0]))
    assert float(summary["class_share"].sum()) == pytest.approx(float(summary["share"][0]))


def test_tables_and_json_hold_every_core():
    summary = host.analyse(raw([{"detours": tick(100), "loc": 10}, {"detours": tick(1000), "loc": 100}]))
    cores, counted = host.tables(summary)[:2]
    assert [row[0] for row in cores.rows] == ["0", "1"]
    assert [row[1] for row in counted.rows] == ["LOC", "LOC"]
    told = json.loads(json.dumps(host.values(summary)))
    assert [core["cpu"] for core in told["cores"]] == [0, 1]


def test_damaged_attributes_lose_only_themselves():
    data = raw([{"detours": tick(100)}])
    data.attrs["processes"] = "{not json"
    summary = host.analyse(data)
    assert host.processes(summary) == []
    assert host.sentence(summary).startswith("core 0 loses")


@pytest.mark.parametrize(
    "cores",
    [
        [{"detours": tick(250), "loc": 25}, {"detours": [*tick(1000), (5.0, 2e-3)], "loc": 25}],
        [{"detours": tick(1000)} for _ in range(10)],
        [{"detours": [(0.01, 5e-6)]}],
        [{"detours": []}],
    ],
    ids=["two cores", "many cores", "one detour", "none"],
)
def test_every_figure_draws(cores, tmp_path):
    data = raw(cores)
    tree = xr.DataTree.from_dict({"/raw": data, "/summary": host.analyse(data)})
    made = section(tree, "a.nc")
    ids = [figure.id for figure in made.figures]
    assert len(ids) == len(set(ids))
    assert ("noise-host-detours" in ids) == any(core["detours"] for core in cores)
    for figure in made.figures:
        assert figure.caption
        render_html.draw(figure)
        assert render_static.save(figure, tmp_path).stat().st_size > 0


@pytest.mark.parametrize(
    ("osnoise", "told"),
    [("absent: no tracer", ["osnoise tracer: absent: no tracer"]), ("[]", []), ("", [])],
)
def test_a_tracer_that_is_absent_is_reported(osnoise, told):
    assert host.lines(xr.Dataset(attrs={"osnoise": osnoise})) == told
