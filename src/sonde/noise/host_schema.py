"""Datasets of kind `host`: interruptions of each core, measured without MPI.

/raw; rows of a CPU are filled from the left, up to its detour_n, fwq_n, window_n. All times: s of CLOCK_MONOTONIC.

detour_begin, detour_length  (cpu, detour)  begin and length of each time in which something else had the core
fwq_begin, fwq_length        (cpu, quantum) begin and length of each fixed amount of arithmetic
window_*                     (cpu, window)  results of a window of measuring; the kernel's counters are read in between
window_method                0 detour, 1 fixed work quantum
counters                     (cpu, window, counter) interrupts and softirqs ("soft …") of a window and the gap after
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


# name: (key of the header, unit, long name)
CPU: dict[str, tuple[str, str, str]] = {
    "threshold": ("threshold_s", "s", "a step of the loop is a detour from this length on"),
    "least_step": ("least_step_s", "s", "shortest step of the loop"),
    "tick": ("seconds_per_tick", "s", "length of a tick"),
    "quantum_steps": ("quantum_steps", "1", "steps of arithmetic in a quantum; 0: no quanta were measured"),
}
