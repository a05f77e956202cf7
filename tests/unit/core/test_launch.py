"""Launchers without starting anything: command lines, finding an MPI, what a launcher's last words mean."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from sonde.core import distribution, launch
from sonde.core.errors import EnvironmentFailure, UsageError
from sonde.core.launch import Placement, cpus, launcher, with_environment
from sonde.core.launch import mpirun as mpirun_module
from sonde.core.launch.cpus import Cpus
from sonde.core.launch.local import Local
from sonde.core.launch.mpirun import Mpi, Mpirun, find_mpi, parse_version, share, split_slots
from sonde.core.launch.process import MARK, explain, marked, parse_event, signal_marked, with_tail
from sonde.core.launch.srun import Srun, choose_plugin, job_cpus, parse_plugins
from watching import wait_for

TOP = Path(__file__).parents[3]
OPENMPI4 = Mpi("openmpi", "Open MPI", "4.1.4", Path("/opt/openmpi/bin/mpirun"))
OPENMPI5 = Mpi("openmpi", "Open MPI", "5.0.11", Path("/opt/openmpi5/bin/mpirun"))
MPICH = Mpi("mpich", "MPICH", "4.0.2", Path("/opt/mpich/bin/mpirun"))
INTEL = Mpi("mpich", "Intel MPI", "2021.10", Path("/opt/intel/bin/mpirun"))

HYDRA_SAYS = "HYDRA build details:\n    Version:                                 4.0.2\n    Release Date: Thu"
RANK_DIED_OPENMPI4 = """
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
mpirun.openmpi noticed that process rank 1 with PID 0 on node n017 exited on signal 11 (Segmentation fault).
"""
RANK_DIED_OPENMPI5 = """
prterun noticed that process rank 3 with PID 13916 on node n017 exited on
signal 9 (Killed).
"""
RANK_DIED_MPICH = """
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 13932 RUNNING AT n017
=   EXIT CODE: 11
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault (signal 11)
This typically refers to a problem with your application.
"""
RANK_FAILED_OPENMPI4 = """
mpirun.openmpi detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[23280,1],1]
  Exit code:    7
"""
NO_SLOTS_OPENMPI5 = (
    "There are not enough slots available in the system to satisfy the 3\nslots that were requested"
)
NO_PROGRAM_OPENMPI4 = """
mpirun.openmpi was unable to launch the specified application as it could not access
or execute an executable:
"""
NO_PROGRAM_OPENMPI5 = """
prterun was unable to launch the specified application as it lacked
permissions to execute an executable:
"""
NO_PROGRAM_MPICH = (
    "HYDU_create_process (utils/launch/launch.c:73): execvp error on file ./nothere (No such file)"
)
RANK_DIED_SRUN = """
srun: error: vm: task 1: Segmentation fault
srun: Terminating StepId=5.0
slurmstepd-vm: error: *** STEP 5.0 ON vm CANCELLED AT 2026-11-21T02:35:23 ***
srun: error: vm: task 0: Terminated
srun: Force Terminated StepId=5.0
"""
NO_PROGRAM_SRUN = """
srun: error: vm: task 0: Exited with exit code 2
srun: Terminating StepId=9.0
slurmstepd-vm: error: execve(): /nowhere: No such file or directory
"""
NO_SLOTS_SRUN = "srun: error: Unable to allocate resources: Requested node configuration is not available"


@pytest.fixture(autouse=True)
def plain_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary user on a machine of 4 cores with ssh, outside any job."""
    for name in list(os.environ):
        if name.startswith("SLURM_") or name in ("SONDE_MPI", "MPI_HOME", "PBS_NODEFILE", "LSB_HOSTS"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(mpirun_module, "available", lambda: Cpus(cores=4, threads=8))
    monkeypatch.setattr(mpirun_module.shutil, "which", lambda name, **_: f"/usr/bin/{name}")


def fake_program(path: Path, says: str, status: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{says}\nEND\nexit {status}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


# registry


def test_every_registered_launcher_can_do_what_the_protocol_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpirun_module, "find_mpi", lambda _=None: OPENMPI4)
    monkeypatch.setattr("sonde.core.launch.srun._plugins", lambda _: ("pmix",))
    monkeypatch.setattr("sonde.core.launch.srun._flavour", lambda _: "openmpi")
    for name in launch.LAUNCHERS:
        made = launcher(name)
        assert made.name == name
        assert isinstance(made.placement([], 1), Placement)
        assert made.command(["probe", "--x"], [], 1, {})[-2:] == ["probe", "--x"]
        assert made.per_host(["probe"], ["localhost"])[0][-1] == "probe"


def test_unknown_launcher_names_the_nearest() -> None:
    with pytest.raises(
        UsageError, match=re.escape("no launcher 'mpirum' (nearest: mpirun); launchers: auto, local")
    ):
        launcher("mpirum")


def test_auto_is_srun_inside_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr("sonde.core.launch.srun._plugins", lambda _: ("pmix",))
    monkeypatch.setattr("sonde.core.launch.srun._flavour", lambda _: "openmpi")
    assert launcher().name == "srun"


def test_auto_is_mpirun_where_there_is_an_mpi_else_local(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mpirun_module, "candidates", lambda: [MPICH])
    assert launcher().name == "mpirun"
    monkeypatch.setattr(mpirun_module, "candidates", lambda: [])
    assert launcher().name == "local"


def test_auto_does_not_hide_a_wrong_mpi_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MPI_HOME", str(tmp_path))
    monkeypatch.setattr(mpirun_module, "candidates", lambda: [])
    with pytest.raises(EnvironmentFailure, match="MPI_HOME"):
        launcher()


# local


def test_local_runs_the_program_itself() -> None:
    assert Local().command(["probe", "-x"], [], 1, {}) == ["probe", "-x"]
    assert Local().command(["probe"], ["localhost"], 1, {"A": "1 2"}) == ["env", "A=1 2", "probe"]
    assert Local().inject(["./mine", "arg"], {"A": "1"}) == ["env", "A=1", "./mine", "arg"]
    assert with_environment(["a"], {}) == ["a"]


def test_local_refuses_ranks_and_other_hosts() -> None:
    with pytest.raises(UsageError, match="starts 1 process, but 2 were requested"):
        Local().command(["probe"], [], 2, {})
    with pytest.raises(UsageError, match="not on n017"):
        Local().command(["probe"], ["n017"], 1, {})


# mpirun


def test_openmpi_binds_a_rank_to_a_core() -> None:
    assert Mpirun(found=OPENMPI4).command(["probe", "-v"], [], 4, {"A": "1"}) == [
        "/opt/openmpi/bin/mpirun", "--map-by", "slot", "--bind-to", "core", "-n", "4", "-x", "A=1",
        "probe", "-v",
    ]  # fmt: skip


def test_openmpi_uses_hardware_threads_before_it_oversubscribes() -> None:
    made = Mpirun(found=OPENMPI5)
    assert made.placement([], 8) == Placement(
        "hwthread", False, "8 ranks on 4 cores: one hardware thread each"
    )
    line = made.command(["probe"], [], 8, {})
    assert line[1:6] == ["--use-hwthread-cpus", "--map-by", "slot", "--bind-to", "hwthread"]


@pytest.mark.parametrize("found", [OPENMPI4, OPENMPI5])
def test_openmpi_oversubscribed_yields_and_binds_nothing(found: Mpi) -> None:
    made = Mpirun(found=found)
    assert made.placement([], 9) == Placement("none", True, "9 ranks on 8 CPUs")
    line = made.command(["probe"], [], 9, {})
    assert line[1:8] == [
        "--map-by",
        "slot:OVERSUBSCRIBE",
        "--bind-to",
        "none",
        "--mca",
        "mpi_yield_when_idle",
        "1",
    ]
    assert "SONDE_YIELD=1" in line


def test_mpich_oversubscribed_tells_the_probe_to_yield() -> None:
    assert Mpirun(found=MPICH).command(["probe"], [], 9, {}) == [
        "/opt/mpich/bin/mpirun", "-bind-to", "none", "-n", "9", "-genv", "SONDE_YIELD", "1", "probe",
    ]  # fmt: skip


@pytest.mark.parametrize("found", [OPENMPI4, OPENMPI5, MPICH])
@pytest.mark.parametrize("variable", mpirun_module.BINDING_POLICIES)
def test_hosts_that_are_nodes_of_one_machine_bind_nothing(
    monkeypatch: pytest.MonkeyPatch, found: Mpi, variable: str
) -> None:
    made = Mpirun(found=found)
    assert made.placement(["n1", "n2"], 2).bind == "core"
    monkeypatch.setenv(variable, "none")
    assert made.placement(["n1", "n2"], 2) == Placement(
        "none", False, f"ranks are not bound: {variable}=none"
    )
    line = made.command(["probe"], ["n1", "n2"], 2, {})
    option = "-bind-to" if found is MPICH else "--bind-to"
    assert line[line.index(option) + 1] == "none"
    assert "SONDE_YIELD=1" not in line


def test_a_caller_who_says_not_to_yield_is_obeyed() -> None:
    line = Mpirun(found=MPICH).command(["probe"], [], 9, {"SONDE_YIELD": "0"})
    assert line[line.index("SONDE_YIELD") + 1] == "0"


def test_a_quota_below_the_cores_oversubscribes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpirun_module, "available", lambda: Cpus(cores=4, threads=4, quota=1.5))
    assert Mpirun(found=MPICH).placement([], 2) == Placement("none", True, "2 ranks on 1 CPU")


def test_root_is_allowed_only_by_openmpi_and_only_when_root(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--allow-run-as-root" not in Mpirun(found=OPENMPI4).command(["p"], [], 1, {})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "--allow-run-as-root" in Mpirun(found=OPENMPI4).command(["p"], [], 1, {})
    assert "--allow-run-as-root" not in Mpirun(found=MPICH).command(["p"], [], 1, {})


def test_openmpi_4_needs_no_ssh_for_ranks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpirun_module.shutil, "which", lambda name, **_: None)
    assert Mpirun(found=OPENMPI4).command(["p"], [], 1, {})[1:4] == ["--mca", "plm", "isolated"]
    assert "isolated" not in Mpirun(found=OPENMPI5).command(["p"], [], 1, {})
    assert "isolated" not in Mpirun(found=OPENMPI4).command(["p"], ["n1"], 1, {})


def test_hosts_get_even_shares() -> None:
    hosts = ["n1", "n2"]
    line = Mpirun(found=OPENMPI4).command(["p"], hosts, 5, {})
    assert line[line.index("--host") + 1] == "n1:3,n2:3"
    assert line[line.index("--bind-to") + 1] == "core:overload-allowed"
    line = Mpirun(found=MPICH).command(["p"], hosts, 4, {})
    assert line[line.index("-hosts") + 1] == "n1:2,n2:2"
    line = Mpirun(found=INTEL).command(["p"], hosts, 4, {})
    assert line[1:5] == ["-hosts", "n1,n2", "-ppn", "2"]
    assert "-bind-to" not in line


def test_inside_a_job_the_resource_manager_knows_the_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PBS_NODEFILE", "/var/spool/nodes")
    placement = Mpirun(found=OPENMPI4).placement([], 1000)
    assert (placement.bind, placement.oversubscribed) == ("core", False)


@pytest.mark.parametrize(
    ("hosts", "ntasks", "shares"),
    [
        (["a"], 3, [("a", 3)]),
        (["a:1", "b"], 4, [("a", 1), ("b", 3)]),
        (["a:2", "b:2"], 4, [("a", 2), ("b", 2)]),
        (["a:4", "b"], 4, [("a", 4)]),
        (["a", "b", "c"], 4, [("a", 2), ("b", 2), ("c", 2)]),
    ],
)
def test_share(hosts: list[str], ntasks: int, shares: list[tuple[str, int]]) -> None:
    assert share(hosts, ntasks) == shares


def test_share_says_when_slots_do_not_suffice() -> None:
    with pytest.raises(UsageError, match="5 ranks were requested, but a:1, b:2 together have 3 slots"):
        share(["a:1", "b:2"], 5)


@pytest.mark.parametrize(
    ("host", "parts"),
    [
        ("n1", ("n1", None)),
        ("n1:4", ("n1", 4)),
        ("10.0.0.1:2", ("10.0.0.1", 2)),
        ("fe80::1", ("fe80::1", None)),
        ("[fe80::1]:2", ("[fe80::1]", 2)),
        ("n1:", ("n1:", None)),
    ],
)
def test_split_slots(host: str, parts: tuple[str, int | None]) -> None:
    assert split_slots(host) == parts


@pytest.mark.parametrize("ntasks", [0, -1])
def test_no_ranks_is_a_usage_error(ntasks: int) -> None:
    with pytest.raises(UsageError, match="allowed: 1 or more"):
        Mpirun(found=MPICH).command(["p"], [], ntasks, {})


def test_per_host_makes_one_line_a_host() -> None:
    assert Mpirun(found=OPENMPI4).per_host(["w", "x"], ["n1:8", "n2"]) == [
        ["/opt/openmpi/bin/mpirun", "--host", "n1:1", "--bind-to", "none", "-n", "1", "w", "x"],
        ["/opt/openmpi/bin/mpirun", "--host", "n2:1", "--bind-to", "none", "-n", "1", "w", "x"],
    ]
    assert Mpirun(found=MPICH).per_host(["w"], ["n1"]) == [
        ["/opt/mpich/bin/mpirun", "-hosts", "n1", "-bind-to", "none", "-n", "1", "w"]
    ]


def test_inject_puts_variables_right_after_the_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hydra = fake_program(tmp_path / "mpiexec", HYDRA_SAYS)
    monkeypatch.setattr(mpirun_module.shutil, "which", lambda name, **_: name)
    assert Mpirun(found=OPENMPI4).inject(["nice", str(hydra), "-n", "2", "./a"], {"A": "1", "B": ""}) == [
        "nice", str(hydra), "-genv", "A", "1", "-genv", "B", "", "-n", "2", "./a",
    ]  # fmt: skip
    with pytest.raises(UsageError, match=r"no mpirun or mpiexec in '\./a -n 2'"):
        Mpirun(found=OPENMPI4).inject(["./a", "-n", "2"], {"A": "1"})


# finding an MPI


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to", ("openmpi", "Open MPI", "4.1.4")),
        ("mpirun (Open MPI) 5.0.11\n", ("openmpi", "Open MPI", "5.0.11")),
        ("mpirun (Open MPI) 5.1.0rc1\n", ("openmpi", "Open MPI", "5.1.0rc1")),
        (HYDRA_SAYS, ("mpich", "MPICH", "4.0.2")),
        (
            "Intel(R) MPI Library for Linux* OS, Version 2021.10 Build 20230619\nCopyright",
            ("mpich", "Intel MPI", "2021.10"),
        ),
        ("some other mpirun 3.1", None),
        ("", None),
    ],
)
def test_parse_version(text: str, parsed: tuple[str, str, str] | None) -> None:
    assert parse_version(text) == parsed


class TestFindMpi:
    @pytest.fixture(autouse=True)
    def two_mpis(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Open MPI first on PATH, MPICH beside it under its own name; no virtual environment."""
        self.top = tmp_path
        self.openmpi = fake_program(tmp_path / "bin/mpirun", "mpirun (OpenRTE) 4.1.4")
        self.mpich = fake_program(tmp_path / "bin/mpirun.mpich", HYDRA_SAYS)
        monkeypatch.undo()
        for name in ("SONDE_MPI", "MPI_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        monkeypatch.setattr(mpirun_module.sys, "prefix", mpirun_module.sys.base_prefix)
        monkeypatch.setattr(mpirun_module, "_UNLOADED", ())
        monkeypatch.setattr(mpirun_module, "built_flavours", lambda: ("mpich", "openmpi"))

    def test_the_first_on_path_is_the_default(self) -> None:
        assert find_mpi() == Mpi("openmpi", "Open MPI", "4.1.4", self.openmpi)
        assert str(find_mpi()) == "Open MPI 4.1.4"

    def test_a_flavour_can_be_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert find_mpi("mpich").mpirun == self.mpich
        monkeypatch.setenv("SONDE_MPI", "mpich")
        assert find_mpi().mpirun == self.mpich

    def test_a_path_or_a_folder_can_be_asked_for(self) -> None:
        other = fake_program(self.top / "opt/bin/mpirun", "mpirun (Open MPI) 5.0.11")
        assert find_mpi(str(other)).version == "5.0.11"
        assert find_mpi(str(self.top / "opt")).mpirun == other
        with pytest.raises(EnvironmentFailure, match="nor a folder that contains one"):
            find_mpi(str(self.top / "empty"))

    def test_mpi_home_comes_before_path(self, monkeypatch: pytest.MonkeyPatch) -> None:
        home = fake_program(self.top / "home/bin/mpirun", "mpirun (Open MPI) 5.0.11")
        monkeypatch.setenv("MPI_HOME", str(self.top / "home"))
        assert find_mpi().mpirun == home

    def test_the_folder_is_named_as_it_is_and_not_by_a_link(self) -> None:
        """From /bin, a link to /usr/bin, Open MPI would take "/" for its prefix, and refuse it."""
        real = fake_program(self.top / "usr/bin/mpirun", "mpirun (Open MPI) 5.0.11")
        (self.top / "linked").symlink_to("usr/bin")
        assert find_mpi(str(self.top / "linked/mpirun")).mpirun == real

    def test_a_wrong_mpi_home_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MPI_HOME", "/nowhere")
        with pytest.raises(EnvironmentFailure, match="MPI_HOME is '/nowhere'") as caught:
            find_mpi()
        assert caught.value.code == "net.no_mpi"

    def test_an_mpi_in_the_virtual_environment_comes_before_path(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = fake_program(self.top / "venv/bin/mpirun", "mpirun (Open MPI) 5.0.11")
        monkeypatch.setattr(mpirun_module.sys, "prefix", str(self.top / "venv"))
        assert find_mpi().mpirun == own

    def test_an_mpi_that_probes_were_built_for_is_preferred(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(mpirun_module, "built_flavours", lambda: ("mpich",))
        assert find_mpi().flavour == "mpich"
        assert find_mpi("openmpi").flavour == "openmpi"

    def test_an_mpirun_that_does_not_run_is_passed_over(self) -> None:
        fake_program(self.top / "bin/mpirun", "error while loading shared libraries", status=127)
        assert find_mpi().flavour == "mpich"

    def test_no_mpi_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(self.top))
        with pytest.raises(EnvironmentFailure, match="neither Open MPI nor MPICH") as caught:
            find_mpi()
        assert "make setup" in caught.value.hint
        with pytest.raises(EnvironmentFailure, match="no MPICH was found"):
            find_mpi("mpich")

    def test_an_unknown_flavour_names_the_nearest(self) -> None:
        with pytest.raises(UsageError, match=re.escape("'mpitch' (nearest: mpich)")):
            find_mpi("mpitch")


# probes


def test_a_probe_is_found_by_flavour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "libexec", lambda: tmp_path)
    path = fake_program(tmp_path / "mpich/sonde-net", "")
    assert launch.probe("sonde-net", "mpich") == path
    assert launch.built_flavours() == ("mpich",)


def test_a_probe_that_was_not_built_says_for_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "libexec", lambda: tmp_path)
    monkeypatch.setattr(launch, "built_flavours", lambda: ("mpich",))
    with pytest.raises(EnvironmentFailure, match="not built for openmpi; it was built for mpich") as caught:
        launch.probe("sonde-net", "openmpi")
    assert caught.value.code == "net.no_probe"
    assert "SONDE_MPI=mpich" in caught.value.hint
    monkeypatch.setattr(launch, "built_flavours", lambda: ())
    with pytest.raises(EnvironmentFailure, match="no probe was built here"):
        launch.probe("sonde-net", "openmpi")


# srun


@pytest.fixture
def srun(monkeypatch: pytest.MonkeyPatch) -> Srun:
    monkeypatch.setattr("sonde.core.launch.srun._plugins", lambda _: ("none", "pmi2", "pmix", "pmix_v4"))
    monkeypatch.setattr("sonde.core.launch.srun._flavour", lambda wish: wish or "openmpi")
    return Srun("openmpi")


def test_srun_outside_a_job_makes_its_own(srun: Srun) -> None:
    assert srun.command(["p", "-v"], [], 8, {"A": "1"}) == [
        "/usr/bin/srun", "--ntasks=8", "--mpi=pmix", "--input=0", "--unbuffered", "--kill-on-bad-exit=1",
        "--distribution=block:block", "--cpu-bind=cores", "--export=ALL,A=1", "p", "-v",
    ]  # fmt: skip


def test_srun_inside_a_job_overlaps_the_batch_step(srun: Srun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    line = srun.command(["p"], ["n1", "n2"], 4, {})
    assert "--overlap" in line
    assert line[line.index("--overlap") + 1 : line.index("--overlap") + 4] == [
        "--nodelist=n1,n2", "--nodes=2", "--ntasks-per-node=2",
    ]  # fmt: skip


def test_srun_overcommits_when_the_job_is_too_small(srun: Srun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", "2(x2)")
    assert srun.placement([], 4).oversubscribed is False
    line = srun.command(["p"], [], 5, {})
    assert {"--overcommit", "--cpu-bind=none", "--export=ALL,SONDE_YIELD=1"} <= set(line)


def test_srun_cannot_pass_a_comma_or_uneven_slots(srun: Srun) -> None:
    with pytest.raises(UsageError, match="srun cannot pass on A='1,2'"):
        srun.command(["p"], [], 1, {"A": "1,2"})
    with pytest.raises(UsageError, match="the same number of ranks on each host"):
        srun.command(["p"], ["n1:1", "n2:2"], 3, {})


def test_srun_injects_and_runs_per_host(srun: Srun) -> None:
    assert srun.inject(["srun", "-n", "2", "./a"], {"A": "1"}) == [
        "srun",
        "--export=ALL,A=1",
        "-n",
        "2",
        "./a",
    ]
    assert srun.inject(["srun", "./a"], {}) == ["srun", "./a"]
    assert srun.per_host(["w"], ["n1"]) == [
        ["/usr/bin/srun", "--nodes=1", "--ntasks=1", "--nodelist=n1", "--input=0", "w"]
    ]
    with pytest.raises(UsageError, match=r"no srun in '\./a'"):
        srun.inject(["./a"], {"A": "1"})


@pytest.mark.parametrize(
    ("words", "result"),
    [
        (["--export=ALL,B=2", "./a"], ["--export=ALL,B=2,A=1", "./a"]),
        (["-n", "2", "--export", "B", "./a"], ["--export=B,A=1", "-n", "2", "./a"]),
        (["-O", "--export=NONE", "./a"], ["--export=A=1", "-O", "./a"]),
        (["--ntasks=2", "--export=nil", "./a"], ["--export=A=1", "--ntasks=2", "./a"]),
        (["-n", "2", "./a", "--export=B"], ["--export=ALL,A=1", "-n", "2", "./a", "--export=B"]),
        (["./a", "--export", "B"], ["--export=ALL,A=1", "./a", "--export", "B"]),
        (["--", "./a", "--export=B"], ["--export=ALL,A=1", "--", "./a", "--export=B"]),
    ],
)
def test_what_a_user_exports_goes_along(srun: Srun, words: list[str], result: list[str]) -> None:
    """srun takes the last --export of two, which was the user's, and the variables were lost."""
    assert srun.inject(["srun", *words], {"A": "1"}) == ["srun", *result]


def test_no_srun_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonde.core.launch.srun.shutil.which", lambda _: None)
    with pytest.raises(EnvironmentFailure, match="srun is not on PATH"):
        Srun()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("srun: MPI types are...\nsrun: none\nsrun: pmi2\nsrun: pmix_v3\n", ("none", "pmi2", "pmix_v3")),
        (
            "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n"
            "specific pmix plugin versions available: pmix_v4,pmix_v5\n",
            ("none", "pmi2", "pmix", "pmix_v4", "pmix_v5"),
        ),
        ("", ()),
    ],
)
def test_parse_plugins(text: str, names: tuple[str, ...]) -> None:
    assert parse_plugins(text) == names


def test_choose_plugin() -> None:
    assert choose_plugin("openmpi", ("none", "pmi2", "pmix")) == "pmix"
    assert choose_plugin("openmpi", ("none", "pmi2", "pmix_v3", "pmix_v4")) == "pmix_v4"
    assert choose_plugin("mpich", ("none", "pmi2", "pmix")) == "pmi2"
    with pytest.raises(EnvironmentFailure, match="has the plug-ins none; openmpi needs pmix or pmi2"):
        choose_plugin("openmpi", ("none",))


@pytest.mark.parametrize(
    ("text", "cpus"), [("16(x2),8", 40), ("4", 4), ("2,2(x3)", 8), ("", None), ("nonsense", None)]
)
def test_job_cpus(text: str, cpus: int | None) -> None:
    assert job_cpus({"SLURM_JOB_CPUS_PER_NODE": text}) == cpus


# what ranks may run on


def fake_cpu(root: Path, cpu: int, package: int, core: int) -> None:
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
    folder.mkdir(parents=True)
    (folder / "physical_package_id").write_text(f"{package}\n")
    (folder / "core_id").write_text(f"{core}\n")


def test_cores_are_counted_over_packages_and_threads(tmp_path: Path) -> None:
    for cpu, (package, core) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1), (0, 0), (0, 1), (1, 0), (1, 1)]):
        fake_cpu(tmp_path, cpu, package, core)
    assert cpus.available(tmp_path, set(range(8))) == Cpus(cores=4, threads=8)
    assert cpus.available(tmp_path, {0, 4}) == Cpus(cores=1, threads=2)


def test_cpus_without_a_topology_are_cores(tmp_path: Path) -> None:
    assert cpus.available(tmp_path, {0, 1, 2}) == Cpus(cores=3, threads=3)


@pytest.mark.parametrize(("quota", "at_once"), [(None, 8), (2.5, 2), (0.5, 1), (64.0, 8)])
def test_at_once(quota: float | None, at_once: int) -> None:
    assert Cpus(cores=4, threads=8, quota=quota).at_once == at_once


def test_quota_is_the_tightest_above(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/jobs/7\n")
    group = tmp_path / "sys/fs/cgroup/jobs/7"
    group.mkdir(parents=True)
    assert cpus.quota(tmp_path) is None
    (group / "cpu.max").write_text("max 100000\n")
    assert cpus.quota(tmp_path) is None
    (group.parent / "cpu.max").write_text("250000 100000\n")
    assert cpus.quota(tmp_path) == 2.5


def test_quota_of_cgroup_v1(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("5:cpu,cpuacct:/docker/abc\n1:name=systemd:/x\n")
    base = tmp_path / "sys/fs/cgroup/cpu"
    base.mkdir(parents=True)
    (base / "cpu.cfs_quota_us").write_text("150000\n")
    (base / "cpu.cfs_period_us").write_text("100000\n")
    assert cpus.quota(tmp_path) == 1.5
    (base / "cpu.cfs_quota_us").write_text("-1\n")
    assert cpus.quota(tmp_path) is None


# how a run ended


@pytest.mark.parametrize(
    ("log", "status", "reason", "what"),
    [
        (RANK_DIED_OPENMPI4, 139, "rank_died", "rank 1 on n017 died: signal 11 (SIGSEGV)"),
        (RANK_DIED_OPENMPI5, 137, "rank_died", "rank 3 on n017 died: signal 9 (SIGKILL)"),
        (RANK_DIED_MPICH, 11, "rank_died", "a rank on n017 died: signal 11 (SIGSEGV)"),
        (RANK_DIED_SRUN, 143, "rank_died", "rank 1 on vm died: Segmentation fault"),
        (NO_PROGRAM_SRUN, 2, "no_program", "the probe could not be run on every host"),
        (NO_SLOTS_SRUN, 1, "no_slots", "the launcher has fewer slots than the requested ranks"),
        ("srun: error: n017: task 3: Killed", 137, "rank_died", "rank 3 on n017 died: Killed"),
        (
            "srun: error: Task launch for StepId=20.0 failed on node n4: Socket timed out on send/recv operation\n"
            "srun: error: Application launch failed: Socket timed out on send/recv operation\n"
            "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
            "srun: error: n3: task 7: Killed",
            137,
            "not_started",
            "a rank on n4 could not be started: Socket timed out on send/recv operation",
        ),
        (
            "srun: error: n3: task 3: Killed\nsrun: error: task 4 launch failed: Unspecified error",
            137,
            "not_started",
            "rank 4 could not be started: Unspecified error",
        ),
        (RANK_FAILED_OPENMPI4, 7, "rank_failed", "rank 1 ended with exit code 7"),
        (
            "srun: error: n1: tasks 0-3: Exited with exit code 2",
            2,
            "rank_failed",
            "rank 0-3 on n1 ended with exit code 2",
        ),
        (NO_SLOTS_OPENMPI5, 1, "no_slots", "the launcher has fewer slots than the requested ranks"),
        (NO_PROGRAM_OPENMPI4, 132, "no_program", "the probe could not be run on every host"),
        (NO_PROGRAM_OPENMPI5, 183, "no_program", "the probe could not be run on every host"),
        (NO_PROGRAM_MPICH, 255, "no_program", "the probe could not be run on every host"),
        (
            "ssh: Could not resolve hostname n018: Name or service not known",
            1,
            "no_host",
            "a host could not be reached",
        ),
        ("", -15, "launcher_died", "mpirun was killed by signal 15 (SIGTERM)"),
        ("", 137, "rank_died", "a rank died: signal 9 (SIGKILL)"),
        ("", 5, "failed", "mpirun ended with exit status 5"),
        ("", -99, "launcher_died", "mpirun was killed by signal 99 (unknown)"),
    ],
)
def test_explain(log: str, status: int, reason: str, what: str) -> None:
    found_reason, found_what, hint = explain(log, status, ["/usr/bin/mpirun"])
    assert (found_reason, found_what) == (reason, what)
    assert hint


def test_explain_hints_at_memory_when_a_rank_was_killed() -> None:
    assert "memory" in explain(RANK_DIED_OPENMPI5, 137, ["mpirun"])[2]


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b'{"event":"start","ranks":4}', {"event": "start", "ranks": 4}),
        (b'  {"event":"end"}\r', {"event": "end"}),
        (b'{"event":5}', None),
        (b'{"other":"x"}', None),
        (b"{broken", None),
        (b'["event"]', None),
        (b"\xff\xfe", None),
        (b"", None),
    ],
)
def test_parse_event(line: bytes, event: dict[str, object] | None) -> None:
    assert parse_event(line) == event


def test_with_tail_keeps_the_last_lines_that_say_something() -> None:
    log = "\n".join(["first", *["====="] * 20, *(f"line {i}" for i in range(10))])
    assert with_tail("look", log) == "\n".join(
        ["look; the log ends with", *(f"    line {i}" for i in range(2, 10))]
    )
    assert with_tail("look", "---\n\n") == "look"
    assert with_tail("", "one") == "the log ends with\n    one"


# distributions


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("ID=debian\n", "debian"),
        ("ID=ubuntu\nID_LIKE=debian\n", "debian"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "fedora"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"\n', "suse"),
        ("ID=arch\n", "arch"),
        ("ID=gentoo\n", ""),
    ],
)
def test_family(tmp_path: Path, text: str, family: str) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text(text)
    assert distribution.family(tmp_path) == family
    assert distribution.install("mpich", tmp_path).endswith(
        "mpich"
        if family == "arch"
        else ("-devel" if family in ("fedora", "suse") else "libmpich-dev" if family else "(Debian's names)")
    )


def test_no_os_release(tmp_path: Path) -> None:
    assert distribution.family(tmp_path) == ""
    assert distribution.install("openmpi", tmp_path) == "openmpi-bin libopenmpi-dev (Debian's names)"


def test_hints_name_packages_that_set_up_installs() -> None:
    for family in distribution.INSTALL:
        listed = {
            word
            for line in (TOP / f"deploy/packages/{family}.txt").read_text().splitlines()
            if not line.startswith("#")
            for word in line.split()[2:]
        }
        for what, names in distribution.PACKAGES.items():
            assert set(names[family].split()) <= listed, (family, what)


@pytest.mark.parametrize("pidfds", [True, False])
def test_only_who_carries_the_mark_is_signalled(monkeypatch: pytest.MonkeyPatch, pidfds: bool) -> None:
    """As after a process went and its number was given to another between look and signal."""
    if not pidfds:
        monkeypatch.delattr(os, "pidfd_open")
    mark = f"test-{os.getpid()}"
    child = subprocess.Popen(["sleep", "1000"], env={**os.environ, MARK: mark})
    try:
        # While the kernel is still replacing the program, its environment reads empty.
        assert wait_for(lambda: marked(mark) == [child.pid])
        signal_marked(child.pid, "another", signal.SIGKILL)
        assert child.poll() is None
        signal_marked(child.pid, mark, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()
    signal_marked(child.pid, mark, signal.SIGKILL)
    assert marked(mark) == []
