"""The quick form of the net room: a few message lengths, pairs one by one and all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.core.errors import Finding
from sonde.core.launch.start import ranks_for, start_for
from sonde.core.survey_entry import Call, Compared, Judgement, SurveyEntry

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.launch.measured import Measured

# One size below, at and above the protocol switches of MPIs.
SIZES = (8, 256, 1024, 4096, 16384, 65536, 262144)
MODES = "one_to_one,all_to_all"


class NetSurvey(SurveyEntry):
    """The quick form of net."""

    weight = 2.5
    spread = 1.5

    def needs_s(self, call: Call) -> float:
        start_for(call, "sonde-net")
        return 2.5

    def measure(self, call: Call) -> Measured:
        from sonde.net import run as net
        from sonde.net.modes import read_modes
        from sonde.net.plan import Plan, gap_for

        start = start_for(call, "sonde-net")
        plan = Plan(
            modes=read_modes(MODES),
            sizes=SIZES,
            ntasks=ranks_for(call),
            seed=call.seed,
            gap_s=gap_for(call.budget_s),
        )
        request = net.Request(plan, start, call.folder / "net.nc", call.command, call.budget_s, call.began)
        return net.measure(request, call.progress())

    def judge(self, tree: xr.DataTree, name: str) -> Judgement:
        from sonde.net import verdict
        from sonde.net.figures import summary_of

        summary = summary_of(tree).load()
        return Judgement(
            f"{tree.attrs['mode']}: {verdict.sentence(summary, name)}",
            verdict.findings(summary, name),
            verdict.sound(summary),
        )

    def compare(self, before: xr.DataTree, now: xr.DataTree, names: tuple[str, str]) -> Compared:
        from sonde.core import dataset
        from sonde.net import limits
        from sonde.net.figures import summary_of

        machine = (dataset.attrs(before), dataset.attrs(now))
        old, new = summary_of(before).load(), summary_of(now).load()
        found = limits.diff(old, new, names, machine=machine)
        return Compared(found.findings, found.sentence(names[1]) if found.blunt else "")

    def drains(self, finding: Finding) -> bool:
        return True  # a slow link is its hosts' fault, and no other finding names a host
