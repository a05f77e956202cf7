"""What is settled before ranks start, for any room."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from sonde.core.errors import EnvironmentFailure, UsageError
from sonde.core.launch import start as starts
from sonde.core.launch.cpus import Cpus
from sonde.core.launch.mpirun import RESOURCE_MANAGER, Mpi, Mpirun
from sonde.core.launch.start import Start, mpi_environment, output_path, replaced, transport

MPI = Mpi("openmpi", "Open MPI", "4.1.4", Path("/opt/openmpi/bin/mpirun"))


def start(*hosts: str) -> Start:
    return Start(Mpirun(found=MPI), hosts, Path("/libexec/openmpi/sonde-lab"), MPI)


class TestStart:
    def test_a_line_names_the_probe_before_its_words(self):
        line = start().line(["--dir", "a.run"], 2, {"LAB": "1"})
        where = line.index("/libexec/openmpi/sonde-lab")
        assert line[0] == "/opt/openmpi/bin/mpirun"
        assert line[where + 1 :] == ["--dir", "a.run"]
        assert any("LAB" in word for word in line[:where])

    def test_hosts_are_folded_without_their_slots(self):
        assert start("n1:4", "n2:4", "n3").hostlist == "n[1-3]"

    def test_no_hosts_is_this_host(self):
        assert start().hostlist == socket.gethostname()

    def test_ranks_are_here_for_certain_unless_others_may_know_hosts(self, monkeypatch):
        for name in RESOURCE_MANAGER:
            monkeypatch.delenv(name, raising=False)
        assert start().only_here
        assert not start("n1").only_here
        assert not Start(SimpleNamespace(name="srun"), (), Path("/libexec/openmpi/sonde-lab"), MPI).only_here
        monkeypatch.setenv("PBS_NODEFILE", "/var/spool/nodes")
        assert not start().only_here


class TestPrepare:
    def test_what_is_missing_is_reported_with_the_rooms_code(self, monkeypatch):
        monkeypatch.setenv("SONDE_MPI", "/nonexistent/mpi")
        for room in ("lab", "net"):
            with pytest.raises(EnvironmentFailure) as told:
                starts.prepare(room, "sonde-lab", "mpirun", ())
            assert told.value.code == f"{room}.no_mpi"
            assert "/nonexistent/mpi" in told.value.what

    def test_a_probe_that_was_not_built(self, monkeypatch):
        monkeypatch.setattr(starts, "launcher", lambda name: Mpirun(found=MPI))
        with pytest.raises(EnvironmentFailure) as told:
            starts.prepare("lab", "sonde-nothing", "mpirun", ())
        assert told.value.code == "lab.no_probe"
        assert "sonde-nothing was not built for openmpi" in told.value.what

    def test_local_gives_way_to_mpirun_because_ranks_are_needed(self, monkeypatch):
        monkeypatch.setenv("SONDE_MPI", "/nonexistent/mpi")
        with pytest.raises(EnvironmentFailure) as told:
            starts.prepare("lab", "sonde-lab", "local", ())
        assert told.value.code == "lab.no_mpi"

    def test_a_probe_without_mpi_is_one_process_here(self, tmp_path, monkeypatch):
        monkeypatch.setattr(starts, "libexec", lambda: tmp_path)
        with pytest.raises(EnvironmentFailure) as told:
            starts.prepare_alone("lab", "sonde-lab")
        assert told.value.code == "lab.no_probe"
        (tmp_path / "sonde-lab").write_text("#!/bin/sh\n")
        (tmp_path / "sonde-lab").chmod(0o755)
        alone = starts.prepare_alone("lab", "sonde-lab")
        assert alone.line(["--dir", "x"], 1, {}) == [str(tmp_path / "sonde-lab"), "--dir", "x"]
        assert alone.mpi is None
        assert alone.only_here

    def test_an_unknown_launcher_keeps_its_code(self):
        with pytest.raises(UsageError) as told:
            starts.prepare("lab", "sonde-lab", "mpirum", ())
        assert told.value.code == "launch.unknown"


class TestDefaults:
    def test_slurm_says_how_many_ranks(self, monkeypatch):
        monkeypatch.setenv("SLURM_NTASKS", "48")
        assert starts.default_ntasks() == 48

    @pytest.mark.parametrize("told", ["", "1", "many"])
    def test_two_ranks_at_least(self, monkeypatch, told):
        monkeypatch.setenv("SLURM_NTASKS", told)
        monkeypatch.setattr(starts, "available", lambda: Cpus(cores=1, threads=1))
        assert starts.default_ntasks() == 2

    def test_slurm_names_the_cluster(self, monkeypatch):
        monkeypatch.setenv("SLURM_CLUSTER_NAME", "alpha")
        assert starts.cluster() == "alpha"
        monkeypatch.delenv("SLURM_CLUSTER_NAME")
        assert starts.cluster() == socket.gethostname()


class TestOutputPath:
    def test_a_name_of_its_own_where_none_is_asked(self, monkeypatch):
        monkeypatch.setenv("SLURM_CLUSTER_NAME", "alpha")
        made = output_path("lab", None)
        assert re.fullmatch(r"lab-alpha-\d{8}T\d{6}Z-[0-9a-f]{4}\.nc", str(made))

    def test_nc_is_added_once(self, tmp_path):
        assert output_path("lab", tmp_path / "a") == tmp_path / "a.nc"
        assert output_path("lab", tmp_path / "a.nc") == tmp_path / "a.nc"
        assert output_path("lab", tmp_path / "v1.2") == tmp_path / "v1.2.nc"

    def test_a_folder_is_refused_with_a_name_to_take(self, tmp_path):
        with pytest.raises(UsageError) as told:
            output_path("lab", tmp_path)
        assert told.value.code == "lab.bad_output"
        assert str(tmp_path / "lab.nc") in told.value.hint

    def test_a_folder_that_is_not_there(self, tmp_path):
        with pytest.raises(EnvironmentFailure) as told:
            output_path("lab", tmp_path / "no" / "a.nc")
        assert told.value.code == "core.cannot_write"
        assert "no folder" in told.value.what


class TestEnvironment:
    def test_transport_is_what_the_user_told_the_mpi(self):
        assert transport({"UCX_TLS": "tcp", "OMPI_MCA_btl": "self", "HOME": "/x"}) == (
            "OMPI_MCA_btl=self UCX_TLS=tcp"
        )

    def test_nothing_told_is_the_default(self):
        assert transport({"UCX_TLS": ""}) == "default"

    def test_only_what_steers_an_mpi_is_preserved(self):
        kept = mpi_environment({"FI_PROVIDER": "tcp", "AWS_SECRET": "x", "HOME": "/x", "UCX_TLS": "tcp"})
        assert kept == {"FI_PROVIDER": "tcp", "UCX_TLS": "tcp"}


class TestReplaced:
    def test_what_is_there_is_named(self, tmp_path):
        out = tmp_path / "a.nc"
        assert replaced(out) == []
        out.touch()
        (warning,) = replaced(out)
        assert warning.code == "core.replaced"
        assert str(out) in warning.evidence

    def test_of_several_parts_those_that_are_there(self, tmp_path):
        out = tmp_path / "a.nc"
        out.touch()  # no part has this name
        (tmp_path / "a-one_to_one.nc").touch()
        (warning,) = replaced(out, ["one_to_one", "all_to_all"])
        assert warning.evidence == f"replaces the earlier {tmp_path / 'a-one_to_one.nc'}"
