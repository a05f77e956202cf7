"""A folder for the session files of an mpirun: made unless somebody has chosen a place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sonde.core.launch import session_files


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary folder, which is empty at the end."""
    made = tmp_path / "temporary"
    made.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(made))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    yield made
    assert list(made.iterdir()) == []


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """An installation of Open MPI."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "etc/openmpi").mkdir(parents=True)
    (tmp_path / "bin/mpirun").write_text("#!/bin/sh\n")
    return tmp_path


def made(mpirun: str, environment: dict[str, str]) -> bool:
    folder, variables = session_files.make([mpirun, "-n", "2", "program"], environment)
    if folder is None:
        assert variables == {}
        return False
    assert variables["PRTE_MCA_prte_tmpdir_base"] == str(folder)
    (folder / "ompi.a.0/pid.1").mkdir(parents=True)
    session_files.remove(folder)
    return True


@pytest.mark.parametrize("name", ["mpirun", "/opt/mpi/bin/mpiexec", "prterun"])
def test_an_mpirun_has_one_and_it_is_removed_with_what_is_in_it(name: str) -> None:
    assert made(name, {})


@pytest.mark.parametrize("name", ["srun", "sonde-noise", "/bin/sh"])
def test_another_program_has_none(name: str) -> None:
    assert not made(name, {})


@pytest.mark.parametrize("name", ["OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_remote_tmpdir_base"])
def test_a_place_that_the_environment_names_counts(name: str) -> None:
    assert not made("mpirun", {name: "/scratch"})


def test_a_place_on_the_command_line_counts() -> None:
    assert session_files.make(["mpirun", "--mca", "orte_tmpdir_base", "/scratch", "program"], {}) == (
        None,
        {},
    )


@pytest.mark.parametrize(
    "file", ["etc/openmpi-mca-params.conf", "etc/openmpi/openmpi-mca-params.conf", "etc/prte-mca-params.conf"]
)
def test_a_place_in_the_settings_of_the_installation_counts(file: str, prefix: Path) -> None:
    line = "prte_tmpdir_base = /scratch" if "prte" in file else "orte_local_tmpdir_base=/scratch"
    (prefix / file).write_text(f"# comment\n  {line}\n")
    assert not made(str(prefix / "bin/mpirun"), {})


def test_a_comment_in_the_settings_does_not_count(prefix: Path) -> None:
    (prefix / "etc/openmpi-mca-params.conf").write_text("# orte_tmpdir_base = /scratch\nbtl = tcp\n")
    assert made(str(prefix / "bin/mpirun"), {})


def test_the_users_own_settings_count(tmp_path: Path) -> None:
    (tmp_path / ".openmpi").mkdir()
    (tmp_path / ".openmpi/mca-params.conf").write_text("orte_tmpdir_base=/scratch\n")
    assert not made("mpirun", {"HOME": str(tmp_path)})


@pytest.mark.parametrize("word", ["--host", "-H", "--hostfile"])
def test_a_run_on_other_hosts_has_none(word: str) -> None:
    assert session_files.make(["mpirun", word, "a,b", "program"], {}) == (None, {})


def test_a_run_in_a_job_has_none() -> None:
    assert not made("mpirun", {"SLURM_JOB_ID": "7"})


@pytest.mark.parametrize("words", [[], ["--host", "a,b"]])
def test_root_has_them_in_run_on_each_host(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(session_files, "_is_own", lambda folder: folder == "/run")
    folder, variables = session_files.make(["mpirun", *words, "program"], {})
    assert folder is None
    assert variables == {"OMPI_MCA_orte_tmpdir_base": "/run", "PRTE_MCA_prte_tmpdir_base": "/run"}


def test_root_whose_run_belongs_to_another_has_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(session_files, "_is_own", lambda folder: False)
    assert made("mpirun", {})


def test_where_no_folder_can_be_made_mpi_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/self/nowhere")
    assert not made("mpirun", {})
