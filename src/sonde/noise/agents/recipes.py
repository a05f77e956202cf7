"""The recipes of agents: how each agent is started in its own folder, driven, and paused.

A recipe is a shell script with some properties. The script runs on the measured node, as a child of the supervisor
(`native/noise/keeper.hpp`), with $SONDE_AGENT_DIR as its scratch folder. It writes its configuration there and ends
with `exec`, so that the agent is the process that the supervisor watches. It needs no root and changes nothing outside
its folder. If the agent listens, it takes a free port of the loopback and writes it to $SONDE_AGENT_DIR/port.

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
MIN_PERIOD_S, MAX_PERIOD_S = 0.01, 3600.0


@dataclass(frozen=True)
class Recipe:
    """How to run one agent.

    name, what: as in the list of agents. script: for /bin/sh; @PERIOD_S@, @PERIOD_MS@ and @PERIOD_US@ stand for the
    period, @LIBEXEC@ for the folder of Sonde's own programs. programs: groups of names; one of each group must be on
    PATH (with /usr/sbin), be one of Sonde's own programs, or be an existing path. packages: by family of distributions
    ("debian", "fedora", "suse", "arch"). period_s: its default period in a measurement, s. usual_s: its period in
    normal use, s. drive: the action that makes it work; "" where it has its own timer. work: a pattern of files, below
    the scratch folder, that grow as it works. topic: the topic on which it publishes as it works, on the bus of bus.xml
    in the scratch folder. daemons: names of its processes where it runs as a service. tested: whether Sonde's own tests
    run it. notes: facts that a reader must know about its measured cost.
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
        """The command with which root installs it on a family of distributions; "" where no package is known.

        The variables prevent Debian's packages from starting it as a service, which would disturb the measurement.
        """
        if family not in self.packages or family not in INSTALL:
            return ""
        quiet = "env RUNLEVEL=1 SYSTEMD_OFFLINE=1 " if family == "debian" else ""
        return f"{quiet}{INSTALL[family]} {self.packages[family]}"


# The programs of daemons are in folders that only root has on PATH.
_PATH = "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin\n"

# Ports below 32768; from there on Linux gives ports to clients. If another program takes the port in the meantime, the
# agent ends, and its log shows why.
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

# On some distributions plug-ins have their own packages; a plug-in that is not installed is left out.
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
    # A plug-in whose library is not installed would prevent the start of collectd.
    [ -e "$plugins/$name.so" ] || continue
    ldd "$plugins/$name.so" | grep -q 'not found' || echo "LoadPlugin $name"
  done
  printf '<Plugin csv>\\n  DataDir "%s/csv"\\n</Plugin>\\n' "$SONDE_AGENT_DIR"
} >"$SONDE_AGENT_DIR/collectd.conf"
exec "$program" -f -C "$SONDE_AGENT_DIR/collectd.conf"
"""
)

# PCP takes all its paths from variables, so a second one can run while an installed one also runs. PMDAs change from
# root to the user pcp, so this user needs access to the folder. The names of metrics are built in the folder if the
# installed ones are missing or belong to another version. The supervisor watches pmlogger, because it has the timer.
_PCP = """
. "${PCP_DIR-}/etc/pcp.env" || exit 127
dir=$SONDE_AGENT_DIR
var=$PCP_VAR_DIR
export PCP_VAR_DIR="$dir/var" PCP_RUN_DIR="$dir/run" PCP_TMP_DIR="$dir/tmp" PCP_LOG_DIR="$dir/logs"
export PCP_TMPFILE_DIR="$dir/tmp" PCP_ARCHIVE_DIR="$dir/logs" PMLOGGER_LOCAL=1 PCP_DERIVED_CONFIG=
mkdir -p "$dir/var" "$dir/run" "$dir/tmp/pmlogger" "$dir/logs/pmcd" || exit 1
chmod 711 "$dir" "$dir/var" "$dir/run" "$dir/tmp"
for entry in "$var"/*; do
  case ${entry##*/} in pmns | tmp) ;; *) ln -s "$entry" "$dir/var/" ;; esac
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
# A pmlogger that is stopped before its first sample may die ("pmGetInDom: IPC protocol failure", 1 in 38). The first
# sample comes at once, and is much larger than the label at the begin of an archive. Without root there may be no
# metric to sample (see the notes below), so the wait for the sample ends after 2 s.
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

# It sets nothing: all hardware is read_only. It has its own domain on the loopback, so it meets no other bus of this
# machine. The next part of the script writes [[node-manager.hardware]].
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
# It reports on standard output that it is ready.
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
    powercap) file=$sys/class/powercap/intel-rapl:0/energy_uj ;;
    cpufreq) file=$sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq ;;
  esac
  [ -r "$file" ] || continue
  printf '[[node-manager.hardware]]\\nkind = "%s"\\nroot = "%s"\\nread_only = true\\n' "$kind" "$sys"
done >>"$dir/power.toml"
"""

_SIMULATED = """
printf '[[node-manager.hardware]]\\nkind = "simulated"\\nread_only = true\\n' >>"$dir/power.toml"
"""

_NOT_HEARD = (
    "Its telemetry has no receiver here, so the cost of sending it is not measured. make bench-power measures its CPU "
    "time with and without a system manager and a listener."
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
            "It works only when it is scraped, so its cost is proportional to the number of scrapes. Prometheus "
            "scrapes once a minute by default, every 15 s in its example configuration; scraped every second, the "
            "agent costs 60 or 15 times as much.",
            "The client of a scrape also runs here and is reported separately; in production it runs elsewhere.",
            "It runs with its default collectors; options in /etc/default are not read.",
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
            "It reads every 10 s by default. Five threads read its plug-ins at nearly the same time.",
            "It writes CSV here; a network or RRD output has a different cost.",
            "After a pause longer than its interval, it reads all plug-ins at once, and its interval starts again.",
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
            "The PMDAs are those of the node's own pmcd.conf. About 20 trees of metrics are logged, without processes.",
            "Without root, the PMDAs that need root are missing, and so is their cost. On Debian this includes the "
            "PMDA of the kernel's metrics, so nothing is logged.",
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
            "It samples every second by default, in whole seconds; an open dashboard increases its cost.",
            "Its history is stored in memory here; by default it is stored on disk.",
            "The name of its semaphore (32 bytes) stays in /dev/shm; its next start uses it again.",
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
        notes=(
            "It collects every 10 s by default. Its packages come from its makers, repos.influxdata.com.",
        ),
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
            "Its sets have no reader here. An aggregator that reads them over RDMA costs the node nearly nothing; over "
            "a socket it costs one more wake-up.",
        ),
    ),
    Recipe(
        "node-manager",
        "Sonde's own node manager; it reads this node's RAPL and frequencies and sets nothing",
        _NODE_MANAGER + _SENSORS + _NODE_MANAGER_RUNS,
        (("sonde-powerd",), ("/sys/class/powercap/intel-rapl:0/energy_uj",)),
        {},
        period_s=1.0,
        usual_s=30.0,
        ready="file:{dir}/ready",
        topic="Monitor_report_node_telemetry",
        daemons=("sonde-powerd",),
        notes=(
            "It reports every 30 s by default, and checks its caps every second.",
            "Without root, the energy counters of most kernels cannot be read; then it does not start.",
            _NOT_HEARD,
        ),
    ),
    Recipe(
        "node-manager-simulated",
        "Sonde's own node manager with simulated hardware: its cost without reading hardware",
        _NODE_MANAGER + _SIMULATED + _NODE_MANAGER_RUNS,
        (("sonde-powerd",),),
        {},
        period_s=1.0,
        usual_s=30.0,
        ready="file:{dir}/ready",
        topic="Monitor_report_node_telemetry",
        daemons=("sonde-powerd",),
        notes=(
            "The hardware is simulated, so the cost of reading counters is not included.",
            "It reports every 30 s by default, and checks its caps every second.",
            _NOT_HEARD,
        ),
    ),
)


@dataclass(frozen=True)
class AgentPlan:
    """The settings of one agent for the supervisor. Times in s; period_s 0: unknown, the detector measures it."""

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
        """The flags for `sonde-noise` and `sonde-keeper`."""
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
        """A copy with some fields changed; values of None change nothing."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]


def names() -> list[str]:
    return [recipe.name for recipe in RECIPES]


def find_recipe(name: str) -> Recipe:
    """The recipe with this name.

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
    """The recipe that `--agent TEXT` names, or None if the text is a shell command.

    is_program: whether a single word can be run. Without it, a word similar to a recipe's name counts as misspelt.

    Raises
    ------
    UsageError  noise.agent_unknown: a word similar to a recipe's name that is no program. noise.agent_empty.
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
    """The settings for the supervisor for `--agent TEXT`.

    period_s: the period of the agent, s; None: that of the recipe. For a plain command it is only stored.

    Raises
    ------
    UsageError  noise.agent_unknown, noise.agent_empty; noise.agent_period: outside 10 ms to 1 h, or, for Netdata,
    not a whole number of seconds.
    """
    recipe = recipe_for(text, is_program)
    if period_s is not None and not MIN_PERIOD_S <= period_s <= MAX_PERIOD_S:
        raise UsageError(
            "noise.agent_period",
            f"an agent with a period of {period_s:g} s cannot be measured; allowed: 10 ms to 1 h",
            "give --period a time such as 1s",
        )
    if recipe is None:
        return AgentPlan(text, period_s=period_s or 0.0)
    period = recipe.period_s if period_s is None else period_s
    if recipe.name == "netdata" and period != round(period):
        raise UsageError(
            "noise.agent_period",
            f"the period of Netdata must be a whole number of seconds, not {period:g} s",
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
