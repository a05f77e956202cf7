"""Datasets of kind `host`: interruptions of each core, measured without MPI.

/raw; rows of a CPU are filled from the left, up to its detour_n, fwq_n, window_n. All times: s of CLOCK_MONOTONIC.

detour_begin, detour_length  (cpu, detour)  begin and length of each time in which something else had the core
fwq_begin, fwq_length        (cpu, quantum) begin and length of each fixed amount of arithmetic
window_*                     (cpu, window)  results of a window of measuring; the kernel's counters are read in between
window_method                0 detour, 1 fixed work quantum
counters                     (cpu, window, counter) interrupts and softirqs ("soft …") of a window and the gap after
"""

from __future__ import annotations

from sonde.core.allowed import COUNT, FINITE, LEVELS, Allowed, codes, count_of
from sonde.core.described import Described, optional

# name: (key of the header, unit, long name)
CPU: dict[str, tuple[str, str, str]] = {
    "threshold": ("threshold_s", "s", "a step of the loop is a detour from this length on"),
    "least_step": ("least_step_s", "s", "shortest step of the loop"),
    "tick": ("seconds_per_tick", "s", "length of a tick"),
    "quantum_steps": ("quantum_steps", "1", "steps of arithmetic in a quantum; 0: no quanta were measured"),
}
DIM = {"detour": "detour", "fwq": "quantum", "window": "window"}
# name: (name in the records, dtype, unit, long name)
WINDOW: dict[str, tuple[str, str, str, str]] = {
    "window_begin": ("begin", "<f8", "s", "begin of a window"),
    "window_end": ("end", "<f8", "s", "end of a window"),
    "window_lost": ("lost", "<f8", "s", "total length of its detours, including those that were not stored"),
    "window_run_delay": (
        "run_delay",
        "<f8",
        "s",
        "time in which the measuring thread waited for its CPU; NaN: unknown",
    ),
    "window_steal": (
        "steal",
        "<f8",
        "s",
        "time that the hypervisor gave to others, by the kernel's counters",
    ),
    "window_gap": ("gap", "<f8", "s", "time since the window before"),
    "window_loops": ("loops", "<i8", "1", "turns of the loop, or quanta"),
    "window_gaps": ("gaps", "<i8", "1", "detours, including those that were not stored"),
    "window_method": ("method", "|i1", "1", "0 detour, 1 fixed work quantum"),
    "window_involuntary": ("involuntary", "<i4", "1", "involuntary context switches of the measuring thread"),
    "window_voluntary": ("voluntary", "<i4", "1", "voluntary context switches of the measuring thread"),
}
_CELL = ("cpu", "window")
RAW: dict[str, Described] = {
    **{
        f"{what}_{name}": optional(("cpu", DIM[what]), "s", f"{name} of a {text}", "<f8", FINITE)
        for what, text in (("detour", "detour"), ("fwq", "quantum"))
        for name in ("begin", "length")
    },
    **{
        name: optional(_CELL, unit, text, dtype, FINITE if dtype == "<f8" else COUNT)
        for name, (_, dtype, unit, text) in WINDOW.items()
    },
    "window_method": optional(_CELL, "1", WINDOW["window_method"][3], "|i1", codes(0, 1)),
    "counters": optional(
        (*_CELL, "counter"), "1", "interrupts during a window and the gap after it", "<i8", COUNT
    ),
    **{name: optional(("cpu",), unit, text, "<f8", FINITE) for name, (_, unit, text) in CPU.items()},
    **{
        f"{what}_n": optional(("cpu",), "1", text, "<i8", count_of(DIM[what]))
        for what, text in (("detour", "detours stored"), ("fwq", "quanta stored"), ("window", "windows"))
    },
    "cpu": optional(("cpu",), "1", "CPU", "<i4", COUNT),
    "counter": optional(("counter",), "", "row of /proc/interrupts; of /proc/softirqs after 'soft '", "str"),
}
"""The variables of /raw and their allowed values."""


def _of_cpu(units: str, long_name: str) -> Described:
    return optional(("cpu",), units, long_name, "<f8", FINITE)


OF_CPU: dict[str, Described] = {
    "observed": _of_cpu("s", "time in windows of the detour loop"),
    "rate": _of_cpu("1/s", "detours"),
    "share": _of_cpu("1", "share of the time lost in detours"),
    "long_rate": _of_cpu("1/s", "detours above 100 µs"),
    "long_share": _of_cpu("1", "share of the time lost in detours above 100 µs"),
    "short_rate": _of_cpu("1/s", "detours up to 100 µs"),
    "short_share": _of_cpu("1", "share of the time lost in detours up to 100 µs"),
    "loop": _of_cpu("s", "mean turn of the loop, without detours"),
    "run_delay_share": _of_cpu("1", "share of the time in which the thread waited for its CPU"),
    "run_delay_covers": _of_cpu(
        "1",
        "share of the time in long detours that this waiting explains, window by window",
    ),
    "steal_share": _of_cpu(
        "1", "share of the time that the hypervisor gave to others, by the kernel's counters"
    ),
    "steal_covers": _of_cpu("1", "share of the time in long detours that steal explains"),
    "involuntary_rate": _of_cpu("1/s", "involuntary context switches of the measuring thread"),
    "interrupt_rate": _of_cpu("1/s", "interrupts that the kernel counts"),
    "gap_share": _of_cpu("1", "share of the run between windows, where counters are read"),
    "rhythm": _of_cpu("Hz", "frequency at which detours recur, from 20 Hz up; NaN: no rhythm found"),
    "rhythm_p": _of_cpu("1", "p of this rhythm by chance"),
    "second_rhythm": _of_cpu(
        "Hz", "frequency of a weaker rhythm that is no multiple of the first; NaN: none found"
    ),
    "slow_rhythm": _of_cpu("Hz", "frequency at which lost time recurs, up to 5 Hz; NaN: no rhythm found"),
    "slow_rhythm_p": _of_cpu("1", "p of this slow rhythm by chance"),
    "fwq_least": _of_cpu("s", "shortest quantum"),
    "fwq_median": _of_cpu("s", "median quantum"),
    "fwq_q99": _of_cpu("s", "99 % quantile of quanta"),
    "fwq_share": _of_cpu("1", "share of the time that quanta take in addition to the shortest quantum"),
}

_PER_CLASS, _PER_QUANTILE, _PER_COUNTER = ("cpu", "length_class"), ("cpu", "quantile"), ("cpu", "counter")
SUMMARY: dict[str, Described] = {
    **OF_CPU,
    "class_rate": optional(_PER_CLASS, "1/s", "detours of a class of length", "<f8", FINITE),
    "class_share": optional(_PER_CLASS, "1", "share of the time that these detours take", "<f8", FINITE),
    "class_low": optional(("length_class",), "s", "shortest detour of a class"),
    "class_high": optional(
        ("length_class",), "s", "longest detour of a class", "<f8", Allowed(low=0, infinite=True)
    ),
    "length_quantile": optional(_PER_QUANTILE, "s", "length of detours", "<f8", FINITE),
    "short_quantile": optional(_PER_QUANTILE, "s", "length of detours up to 100 µs", "<f8", FINITE),
    "counter_rate": optional(_PER_COUNTER, "1/s", "interrupts of a CPU", "<f8", FINITE),
    "counter_match": optional(
        _PER_COUNTER,
        "1",
        "rank correlation over windows of a counter with the number of detours",
        "<f8",
        FINITE,
    ),
    "spectrum": optional(
        ("cpu", "frequency"), "1", "power of the number of detours in time, over its median", "<f8", FINITE
    ),
    **{name: RAW[name] for name in ("threshold", "least_step", "cpu", "counter")},
    "quantile": optional(("quantile",), "1", "quantile", "<f8", LEVELS),
    "frequency": optional(("frequency",), "Hz", "frequency", "<f8", FINITE),
}
"""The variables of /summary and their allowed values."""
