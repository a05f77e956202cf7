"""The requirements of virtual clusters: root, iproute2, and a kernel with bridges, pairs of virtual devices and
limits.
"""

from __future__ import annotations

from sonde.core.diagnosis import FACT, GOOD, Answer, Here, check
from sonde.core.errors import SondeError

# It runs in a network namespace of its own, which ends with the trial.
_TRIAL = """
ip link add name bridge type bridge && ip link add name node0 type veth peer name eth0 &&
  ip link set node0 master bridge || exit 10
tc qdisc add dev node0 root tbf rate 1gbit burst 128kb limit 1mb || exit 11
tc qdisc add dev eth0 root netem delay 1ms || exit 12
"""
_LACKS = {11: "no rates and no delays (sch_tbf, sch_netem)", 12: "no delays (sch_netem)"}


@check("cluster", "Virtual cluster", "Machine", 15)
def cluster(here: Here) -> Answer:
    """Build a link with a limit in a separate namespace. Clusters are optional: without them nothing is wrong."""
    from sonde.cluster import run

    try:
        run.check_here()
    except SondeError as error:
        return Answer(f"not available: {error.what}; {error.hint}", FACT, {"works": False})
    path = run.program_path(here.environ)
    tried = here.run(["env", f"PATH={path}", "unshare", "--net", "sh", "-c", _TRIAL], 10)
    works = tried.status in (0, *_LACKS)
    values = {"works": works, "rates": works and tried.status != 11, "delays": tried.status == 0}
    if tried.status == 0:
        return Answer("available, with rates and delays", GOOD, values)
    if works:
        return Answer(f"available; this kernel has {_LACKS[tried.status or 0]}", GOOD, values)
    lines = tried.err.strip().splitlines()
    return Answer(f"not available: {lines[-1] if lines else 'the trial failed'}", FACT, values)


CHECKS = (cluster,)
