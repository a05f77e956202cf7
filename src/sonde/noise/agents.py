"""Agents that Sonde knows how to run: how each is started in a folder of its own, made to work, and paused.

A recipe is a shell script with a few facts beside it. The script runs on the measured node, below the keeper
(`native/noise/keeper.hpp`), with $SONDE_AGENT_DIR as its scratch folder; it writes its configuration there and
ends with `exec`, so that the agent is the process that the keeper watches. It needs no root, touches nothing
outside of its folder, and where the agent listens it takes a free port of the loopback and writes it to
$SONDE_AGENT_DIR/port.

    plan = plan_for("node-exporter", period_s=1.0)
    [*command_of_the_detector, *plan.argv()]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Literal

from sonde.core import launch
from sonde.core.distribution import INSTALL
from sonde.core.errors import UsageError

Pause = Literal["stop-cont", "start-stop"]
LEAST_PERIOD_S, LONGEST_PERIOD_S = 0.01, 3600.0


@dataclass(frozen=True)
class Recipe:
    """How to run one agent.

    name, what: as listed. script: for /bin/sh; @PERIOD_S@, @PERIOD_MS@ and @PERIOD_US@ stand for the period,
    @LIBEXEC@ for the folder of Sonde's own programs.
    programs: each a group of names of which one must be on PATH, /usr/sbin included, be Sonde's own, or be a path.
    packages: by family of distributions ("debian", "fedora", "suse", "arch"). period_s: how often it works
    when nothing else is asked for, s. usual_s: how often it works where it is installed and left alone, s.
    drive: what makes it work; "" where it has a timer of its own. work: below the scratch folder, a pattern
    of files that grow as it works. topic: what it publishes as it works, on the bus of bus.xml in the scratch
    folder. daemons: names of its processes where it runs as a service. tested:
    whether Sonde's own tests run it. notes: what to know before its cost is believed.
    """

    name: str
    what: str
    script: str
    programs: tuple[tuple[str, ...], ...]
    packages: Mapping[str, str]
    period_s: float
    usual_s: float
    pause: Pause = "stop-cont"
    ready: str = ""
    ready_deadline_s: float = 20.0
    drive: str = ""
    stop: str = ""
    grace_s: float = 5.0
    work: str = ""
    topic: str = ""
    daemons: tuple[str, ...] = ()
    tested: bool = True
    notes: tuple[str, ...] = field(default=())

    def text(self, period_s: float) -> str:
        """The script for a period, s."""
        filled = self.script.replace("@PERIOD_S@", f"{period_s:g}")
        filled = filled.replace("@LIBEXEC@", str(launch.libexec()))
        filled = filled.replace("@PERIOD_MS@", str(max(1, round(period_s * 1e3))))
        return filled.replace("@PERIOD_US@", str(max(1, round(period_s * 1e6))))

    def install(self, family: str) -> str:
        """What root types to have it on a family of distributions; "" where no package is known.

        The variables keep Debian's packages from starting it as a service, which would disturb what is measured.
        """
        if family not in self.packages or family not in INSTALL:
            return ""
        quiet = "env RUNLEVEL=1 SYSTEMD_OFFLINE=1 " if family == "debian" else ""
        return f"{quiet}{INSTALL[family]} {self.packages[family]}"


# A daemon's program is where only root's PATH leads.
_PATH = "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin\n"

# The ports below 32768, from where Linux gives ports to clients. What takes it meanwhile makes the agent end, and
# its log says why.
_FREE_PORT = """
free_port() {
  n=0
  while [ "$n" -lt 200 ]; do
    port=$((20000 + ($$ * 13 + n * 71) % 12000))
    grep -qs "$(printf ':%04X ' "$port")" /proc/net/tcp /proc/net/tcp6 || {
      echo "$port" >"$SONDE_AGENT_DIR/port"
      return
    }
    n=$((n + 1))
  done
  echo "no free port was found" >&2
  exit 1
}
"""

_FIRST_OF = """
first_of() {
  for program; do
    command -v "$program" && return
  done
  echo "none of these programs is on PATH: $*" >&2
  exit 127
}
"""

_NODE_EXPORTER = (
    _PATH
    + _FREE_PORT
    + _FIRST_OF
    + """
program=$(first_of prometheus-node-exporter node_exporter) || exit 127
free_port
exec "$program" --web.listen-address="127.0.0.1:$port"
"""
)

# Plug-ins come in packages of their own on some distributions; one that is not there is left out.
_COLLECTD = (
    _PATH
    + _FIRST_OF
    + """
program=$(first_of collectd) || exit 127
plugins=$("$program" -h | sed -n 's/^ *Plugin directory *//p')
{
  printf 'BaseDir "%s"\\nPIDFile "%s/pid"\\n' "$SONDE_AGENT_DIR" "$SONDE_AGENT_DIR"
  printf 'Hostname "node"\\nFQDNLookup false\\nInterval @PERIOD_S@\\n'
  for name in csv contextswitch cpu df disk entropy interface irq load memory processes swap users vmem; do
    # One plug-in whose library is not installed would keep all of it from starting.
    [ -e "$plugins/$name.so" ] || continue
    ldd "$plugins/$name.so" | grep -q 'not found' || echo "LoadPlugin $name"
  done
  printf '<Plugin csv>\\n  DataDir "%s/csv"\\n</Plugin>\\n' "$SONDE_AGENT_DIR"
} >"$SONDE_AGENT_DIR/collectd.conf"
exec "$program" -f -C "$SONDE_AGENT_DIR/collectd.conf"
"""
)

# PCP finds all its places through variables, so that a second one runs beside an installed one. PMDAs give up
# root for the user pcp, who must get into the folder. The names of metrics are put together in the folder
# where the installed ones are not yet, or belong to another version. pmlogger is watched: it has the timer.
_PCP = """
. "${PCP_DIR-}/etc/pcp.env" || exit 127
dir=$SONDE_AGENT_DIR
var=$PCP_VAR_DIR
export PCP_VAR_DIR="$dir/var" PCP_RUN_DIR="$dir/run" PCP_TMP_DIR="$dir/tmp" PCP_LOG_DIR="$dir/logs"
export PCP_TMPFILE_DIR="$dir/tmp" PCP_ARCHIVE_DIR="$dir/logs" PMLOGGER_LOCAL=1 PCP_DERIVED_CONFIG=
mkdir -p "$dir/var" "$dir/run" "$dir/tmp/pmlogger" "$dir/logs/pmcd" || exit 1
chmod 711 "$dir" "$dir/var" "$dir/run" "$dir/tmp"
for there in "$var"/*; do
  case ${there##*/} in pmns | tmp) ;; *) ln -s "$there" "$dir/var/" ;; esac
done
if [ -s "$var/pmns/root" ] && [ ! -e "$var/pmns/.NeedRebuild" ]; then
  ln -s "$var/pmns" "$dir/var/pmns"
else
  cp -R -P "$var/pmns" "$dir/var/pmns" && (cd "$dir/var/pmns" && ./Rebuild -s) || exit 1
fi
free_port
cd "$dir/logs/pmcd" || exit 1 # where PMDAs write their logs
"$PCP_BINADM_DIR/pmcd" -f -A -i 127.0.0.1 -p "$port" -s "$dir/run/pmcd.socket" -l "$dir/pmcd.log" -x "$dir/pmcd.log" &
n=0
until [ -S "$dir/run/pmcd.socket" ]; do
  n=$((n + 1))
  [ "$n" -lt 200 ] && kill -0 $! || {
    cat "$dir/pmcd.log" >&2
    exit 1
  }
  sleep 0.05
done
cat >"$dir/pmlogger.config" <<'END'
log mandatory on once { hinv.ncpu hinv.physmem }
log mandatory on every @PERIOD_MS@ msec {
  kernel.all.cpu kernel.all.load kernel.all.intr kernel.all.pswitch kernel.all.sysfork kernel.percpu.cpu
  mem.util mem.vmstat swap disk.all disk.dev network.interface.in network.interface.out network.tcp
  filesys.used filesys.free
}
END
# A pmlogger that is stopped before its first sample may die of it ("pmGetInDom: IPC protocol failure", 1 in 38). That
# sample comes at once, and is much larger than the label an archive begins with. Without root there may be no metric
# at all to sample (see the notes below), which is waited for no longer than 2 s.
(
  n=0
  until [ -e "$dir/archive.0" ]; do
    n=$((n + 1))
    [ "$n" -lt 600 ] && kill -0 $$ || {
      cat "$dir/pmlogger.log" >&2
      exit 1
    }
    sleep 0.05
  done
  n=0
  until [ "$n" -ge 40 ] || [ "$(wc -c <"$dir/archive.0")" -gt 2048 ]; do
    n=$((n + 1))
    sleep 0.05
  done
  : >"$dir/ready"
) &
exec pmlogger -h "local:/$dir/run/pmcd.socket" -c "$dir/pmlogger.config" -l "$dir/pmlogger.log" "$dir/archive"
"""

_NETDATA = (
    _PATH
    + _FREE_PORT
    + _FIRST_OF
    + """
program=$(first_of netdata) || exit 127
free_port
dir=$SONDE_AGENT_DIR
mkdir -p "$dir/etc" "$dir/cache" "$dir/lib" "$dir/logs" "$dir/lock" || exit 1
touch "$dir/etc/.opt-out-from-anonymous-statistics"
cat >"$dir/etc/netdata.conf" <<END
[global]
  run as user = $(id -un)
[directories]
  config = $dir/etc
  cache = $dir/cache
  lib = $dir/lib
  log = $dir/logs
  lock = $dir/lock
  home = $dir/lib
[db]
  mode = ram
  update every = @PERIOD_S@
[logs]
  access = none
[web]
  bind to = 127.0.0.1:$port
END
export NETDATA_LOCK_DIR="$dir/lock" DISABLE_TELEMETRY=1
exec "$program" -D -c "$dir/etc/netdata.conf" -P "$dir/pid"
"""
)

_TELEGRAF = (
    _FIRST_OF
    + """
program=$(first_of telegraf) || exit 127
cat >"$SONDE_AGENT_DIR/telegraf.conf" <<END
[agent]
  interval = "@PERIOD_MS@ms"
  flush_interval = "@PERIOD_MS@ms"
  omit_hostname = true
[[outputs.file]]
  files = ["$SONDE_AGENT_DIR/metrics"]
[[inputs.cpu]]
[[inputs.disk]]
[[inputs.diskio]]
[[inputs.kernel]]
[[inputs.mem]]
[[inputs.net]]
[[inputs.processes]]
[[inputs.swap]]
[[inputs.system]]
END
exec "$program" --config "$SONDE_AGENT_DIR/telegraf.conf"
"""
)

_LDMS = (
    _PATH
    + _FREE_PORT
    + _FIRST_OF
    + """
program=$(first_of ldmsd) || exit 127
free_port
for name in meminfo vmstat procstat loadavg; do
  printf 'load name=%s\\nconfig name=%s producer=node instance=node/%s\\n' "$name" "$name" "$name"
  printf 'start name=%s interval=@PERIOD_US@\\n' "$name"
done >"$SONDE_AGENT_DIR/ldmsd.conf"
exec "$program" -F -x "sock:$port:127.0.0.1" -c "$SONDE_AGENT_DIR/ldmsd.conf" -r "$SONDE_AGENT_DIR/pid"
"""
)

# It sets nothing: read_only is said of all hardware. Its domain is its own, on the loopback, so that it meets no bus
# of this machine. What follows writes [[node-manager.hardware]].
_NODE_MANAGER = """
PATH=$PATH:@LIBEXEC@
command -v sonde-powerd >/dev/null || {
  echo "this build of Sonde has no sonde-powerd" >&2
  exit 127
}
dir=$SONDE_AGENT_DIR
sys=/sys
echo '<sonde-bus version="1"><profile name="power" domain="'$((1 + $$ % 230))'"/></sonde-bus>' >"$dir/bus.xml"
cat >"$dir/power.toml" <<END
cluster = "measured"
[bus]
profile = "bus.xml"
[budget]
power_limit = "1kW"
[[nodes]]
hosts = "node"
min = "50W"
max = "1kW"
safe = "100W"
[node-manager]
name = "node"
telemetry = "@PERIOD_S@s"
state = "state"
END
"""

_NODE_MANAGER_RUNS = """
# It says on standard output that it is ready.
(
  n=0
  until grep -qs '"ready"' "$dir/events" || [ "$n" -ge 600 ]; do
    n=$((n + 1))
    sleep 0.05
  done
  : >"$dir/ready"
) &
exec sonde-powerd node-manager --config "$dir/power.toml" >"$dir/events"
"""

_SENSORS = """
for kind in powercap cpufreq; do
  case $kind in
    powercap) there=$sys/class/powercap/intel-rapl:0/energy_uj ;;
    cpufreq) there=$sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq ;;
  esac
  [ -r "$there" ] || continue
  printf '[[node-manager.hardware]]\\nkind = "%s"\\nroot = "%s"\\nread_only = true\\n' "$kind" "$sys"
done >>"$dir/power.toml"
"""

_SIMULATED = """
printf '[[node-manager.hardware]]\\nkind = "simulated"\\nread_only = true\\n' >>"$dir/power.toml"
"""

_NOT_HEARD = (
    "Nobody hears its telemetry here: what sending it costs is not measured thereby. make bench-power measures its "
    "CPU with a system manager and a listener, and without."
)

RECIPES: tuple[Recipe, ...] = (
    Recipe(
        "node-exporter",
        "Prometheus node exporter, scraped over the loopback",
        _NODE_EXPORTER,
        (("prometheus-node-exporter", "node_exporter"),),
        {
            "debian": "prometheus-node-exporter",
            "fedora": "node-exporter",
            "suse": "golang-github-prometheus-node_exporter",
            "arch": "prometheus-node-exporter",
        },
        period_s=1.0,
        usual_s=60.0,
        ready="port:{port}",
        drive="http://127.0.0.1:{port}/metrics",
        daemons=("prometheus-node-exporter", "node_exporter"),
        notes=(
            "It works when it is scraped, and only then: its cost goes with the scrapes. Prometheus scrapes once a "
            "minute by default, 15 s in its example configuration; scraped each second it costs 60 or 15 times that.",
            "The client's side of a scrape runs here too and is reported apart; in production it runs elsewhere.",
            "It runs with its default collectors; options of /etc/default are not read.",
        ),
    ),
    Recipe(
        "collectd",
        "collectd with its usual plug-ins, writing CSV",
        _COLLECTD,
        (("collectd",),),
        {
            "debian": "collectd-core",
            "fedora": "collectd collectd-disk",
            "suse": "collectd",
            "arch": "collectd",
        },
        period_s=1.0,
        usual_s=10.0,
        ready="file:{dir}/csv",
        work="csv/**/*",
        daemons=("collectd",),
        notes=(
            "It reads each 10 s by default. Its plug-ins are read by five threads at nearly the same time.",
            "CSV stands for whatever it writes to; a network or RRD output costs otherwise.",
            "After a pause longer than its interval every plug-in is read at once, and its clock begins anew.",
        ),
    ),
    Recipe(
        "pcp",
        "Performance Co-Pilot: pmcd with its PMDAs, and a pmlogger that samples them",
        _FREE_PORT + _PCP,
        (("pmlogger",), ("/etc/pcp.env",)),
        {"debian": "pcp", "fedora": "pcp", "suse": "pcp", "arch": "pcp"},
        period_s=1.0,
        usual_s=60.0,
        ready="file:{dir}/ready",
        ready_deadline_s=30.0,
        work="archive.0",
        daemons=("pmcd", "pmlogger"),
        notes=(
            "pmlogger samples once a minute by default.",
            "The PMDAs are those of the node's own pmcd.conf; about 20 trees of metrics are logged, processes are not.",
            "Without root the PMDAs that need it are missing, and what they would cost with them: on Debian the one of "
            "the kernel's metrics is among them, and nothing is logged.",
        ),
    ),
    Recipe(
        "netdata",
        "Netdata with its default collectors, in memory",
        _NETDATA,
        (("netdata",),),
        {"debian": "netdata-core", "fedora": "netdata", "suse": "netdata", "arch": "netdata"},
        period_s=1.0,
        usual_s=1.0,
        ready="port:{port}",
        ready_deadline_s=60.0,
        grace_s=15.0,
        daemons=("netdata",),
        tested=False,
        notes=(
            "It samples each second by default, in whole seconds; a dashboard that is being looked at costs more.",
            "Its history is kept in memory, and not on disk as by default.",
            "The name of a semaphore of its (32 bytes) stays in /dev/shm; it takes it up again at its next start.",
        ),
    ),
    Recipe(
        "telegraf",
        "Telegraf with the inputs of its default configuration, writing a file",
        _TELEGRAF,
        (("telegraf",),),
        {"arch": "telegraf"},
        period_s=1.0,
        usual_s=10.0,
        ready="file:{dir}/metrics",
        work="metrics",
        daemons=("telegraf",),
        tested=False,
        notes=("It collects each 10 s by default. Its packages come from its makers, repos.influxdata.com.",),
    ),
    Recipe(
        "ldms",
        "LDMS: ldmsd with the samplers meminfo, vmstat, procstat and loadavg",
        _LDMS,
        (("ldmsd",),),
        {},
        period_s=1.0,
        usual_s=1.0,
        ready="port:{port}",
        daemons=("ldmsd",),
        tested=False,
        notes=(
            "Sites choose its period, mostly 1 s to 60 s.",
            "Nobody fetches its sets here; an aggregator's fetch over RDMA costs the node next to nothing, over a "
            "socket a wake-up more.",
        ),
    ),
    Recipe(
        "node-manager",
        "Sonde's own node manager, which reads this node's RAPL and frequencies and sets nothing",
        _NODE_MANAGER + _SENSORS + _NODE_MANAGER_RUNS,
        (("sonde-powerd",), ("/sys/class/powercap/intel-rapl:0/energy_uj",)),
        {},
        period_s=1.0,
        usual_s=30.0,
        ready="file:{dir}/ready",
        topic="Monitor_report_node_telemetry",
        daemons=("sonde-powerd",),
        notes=(
            "It reports each 30 s by default, and looks after its caps each second.",
            "Without root the energy counters of most kernels cannot be read, and then it does not start.",
            _NOT_HEARD,
        ),
    ),
    Recipe(
        "node-manager-simulated",
        "Sonde's own node manager with simulated hardware: what it costs without reading any",
        _NODE_MANAGER + _SIMULATED + _NODE_MANAGER_RUNS,
        (("sonde-powerd",),),
        {},
        period_s=1.0,
        usual_s=30.0,
        ready="file:{dir}/ready",
        topic="Monitor_report_node_telemetry",
        daemons=("sonde-powerd",),
        notes=(
            "The hardware is simulated: what reading a counter costs, and where it is read, is not in it.",
            "It reports each 30 s by default, and looks after its caps each second.",
            _NOT_HEARD,
        ),
    ),
)


@dataclass(frozen=True)
class AgentPlan:
    """What the keeper is told. Times in s; period_s 0: not known, to be found by the detector."""

    command: str
    name: str = ""
    pause: Pause = "stop-cont"
    ready: str = ""
    ready_deadline_s: float = 20.0
    drive: str = ""
    drive_period_s: float = 1.0
    stop: str = ""
    grace_s: float = 5.0
    period_s: float = 0.0
    log: str = ""

    def argv(self) -> list[str]:
        """Flags of `sonde-noise` and `sonde-keeper`."""
        flags = {
            "command": self.command,
            "pause": self.pause,
            "ready": self.ready,
            "ready-deadline-s": f"{self.ready_deadline_s:.9g}",
            "drive": self.drive,
            "drive-period-s": f"{self.drive_period_s:.9g}",
            "stop": self.stop,
            "grace-s": f"{self.grace_s:.9g}",
            "log": self.log,
        }
        return [word for name, value in flags.items() if value for word in (f"--agent-{name}", value)]

    def with_changes(self, **changes: object) -> AgentPlan:
        """The same with some fields changed; those that are None stay."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]


def names() -> list[str]:
    return [recipe.name for recipe in RECIPES]


def find_recipe(name: str) -> Recipe:
    """The recipe of that name.

    Raises
    ------
    UsageError  noise.agent_unknown, with the nearest name.
    """
    for recipe in RECIPES:
        if recipe.name == name:
            return recipe
    near = get_close_matches(name.lower(), names(), n=1, cutoff=0.4)
    raise UsageError(
        "noise.agent_unknown",
        f"there is no recipe '{name}'{f' (nearest: {near[0]})' if near else ''}; there are: {', '.join(names())}",
        "list them with sonde noise agents",
    )


def recipe_for(text: str, is_program: Callable[[str], bool] = lambda word: False) -> Recipe | None:
    """The recipe that `--agent TEXT` names, or None where it is a shell command.

    is_program: whether a bare word can be run; without it a word that is nearly a recipe's name is taken for
    a misspelt one.

    Raises
    ------
    UsageError  noise.agent_unknown: a word nearly like a recipe, and no program. noise.agent_empty.
    """
    bare = text.strip()
    if not bare:
        raise UsageError(
            "noise.agent_empty", "--agent is empty", f"name a command, or a recipe: {', '.join(names())}"
        )
    if bare in names():
        return find_recipe(bare)
    word = re.fullmatch(r"[A-Za-z][\w.-]*", bare) is not None
    if word and get_close_matches(bare.lower(), names(), n=1, cutoff=0.7) and not is_program(bare):
        find_recipe(bare)
    return None


def plan_for(
    text: str, period_s: float | None = None, is_program: Callable[[str], bool] = lambda word: False
) -> AgentPlan:
    """What to tell the keeper for `--agent TEXT`.

    period_s: how often the agent is to work, s; None: as the recipe says. Of a plain command it is only noted.

    Raises
    ------
    UsageError  noise.agent_unknown, noise.agent_empty; noise.agent_period: outside 10 ms to 1 h, or, for
    Netdata, no whole number of seconds.
    """
    recipe = recipe_for(text, is_program)
    if period_s is not None and not LEAST_PERIOD_S <= period_s <= LONGEST_PERIOD_S:
        raise UsageError(
            "noise.agent_period",
            f"an agent that works each {period_s:g} s cannot be measured; allowed: 10 ms to 1 h",
            "give --period a time such as 1s",
        )
    if recipe is None:
        return AgentPlan(text, period_s=period_s or 0.0)
    period = recipe.period_s if period_s is None else period_s
    if recipe.name == "netdata" and period != round(period):
        raise UsageError(
            "noise.agent_period",
            f"Netdata works in whole seconds, not each {period:g} s",
            f"give --period {max(1, round(period))}s",
        )
    return AgentPlan(
        recipe.text(period),
        recipe.name,
        recipe.pause,
        recipe.ready,
        recipe.ready_deadline_s + period,
        recipe.drive,
        period,
        recipe.stop,
        recipe.grace_s,
        period,
    )
