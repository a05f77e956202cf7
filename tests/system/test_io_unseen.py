"""What `sonde io run` says of bytes that it cannot know, and of descriptors that it did not see opened."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sonde.core.launch.mpirun import Mpi, Mpirun
from sonde.io.trace.schema import OPENED_UNSEEN
from sonde_shell import Shell

KIB = 1024

# Opens a file by a system call of its own, writes and reads it by functions of the C library.
OPENS_BY_ITSELF = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
static char bytes[4096];
int main(void) {
  int file = syscall(SYS_openat, AT_FDCWD, "raw", O_CREAT | O_RDWR | O_TRUNC, 0600), pipes[2];
  for (int k = 0; k < 10; ++k) write(file, bytes, sizeof bytes);
  lseek(file, 0, SEEK_SET);
  for (int k = 0; k < 5; ++k) read(file, bytes, sizeof bytes);
  close(file);
  pipe(pipes);
  write(pipes[1], bytes, 100);
  read(pipes[0], bytes, 100);
  int seen = open("seen", O_CREAT | O_WRONLY | O_TRUNC, 0600);
  write(seen, bytes, 7);
  return 0;
}
"""
GIVEN = """
#include <fcntl.h>
#include <unistd.h>
static char bytes[1000];
int main(void) {
  for (int k = 0; k < 10; ++k) write(7, bytes, sizeof bytes);
  write(8, bytes, sizeof bytes);
  int seen = open("seen", O_CREAT | O_WRONLY | O_TRUNC, 0600);
  write(seen, bytes, 7);
  return 0;
}
"""
CLOSES_BY_ITSELF = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
static char bytes[1000];
int main(void) {
  int one = open("one", O_CREAT | O_WRONLY | O_TRUNC, 0600);
  write(one, bytes, 1);
  HOW;
  int two = syscall(SYS_openat, AT_FDCWD, "two", O_CREAT | O_WRONLY | O_TRUNC, 0600);
  write(two, bytes, 1000);
  return two != one;
}
"""
FOLDERS = """
#define _GNU_SOURCE
#include <dirent.h>
#include <ftw.h>
#include <glob.h>
#include <stdlib.h>
#include <sys/stat.h>
static int each(const char* path, const struct stat* about, int flag, struct FTW* place) { return 0; }
int main(void) {
  struct dirent** names;
  glob_t found = {0};
  mkdir("folder", 0700);
  DIR* folder = opendir("folder");
  while (readdir(folder)) {}
  closedir(folder);
  scandir("folder", &names, 0, 0);
  nftw("folder", each, 4, 0);
  glob("folder/*", 0, 0, &found);
  return 0;
}
"""
PRINTS = """
#include <stdio.h>
#include <wchar.h>
int main(void) {
  puts("four");
  printf("%d", 12345);
  putchar('x');
  FILE* wide = fopen("wide", "w");
  for (int k = 0; k < 3; ++k) fputws(L"wide", wide);
  fwprintf(wide, L"%d", 1);
  return fclose(wide);
}
"""
SPLICES = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>
static char bytes[4096];
int main(void) {
  int from = open("from", O_CREAT | O_RDWR | O_TRUNC, 0600), to = open("to", O_CREAT | O_WRONLY | O_TRUNC, 0600);
  int pipes[2];
  write(from, bytes, sizeof bytes);
  lseek(from, 0, SEEK_SET);
  pipe(pipes);
  splice(from, 0, pipes[1], 0, sizeof bytes, 0);
  splice(pipes[0], 0, to, 0, sizeof bytes, 0);
  return 0;
}
"""
ONE_NAME = """
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
static char bytes[1000];
int main(void) {
  for (int k = 0; k < 3; ++k) {
    mkdir("a", 0700);
    mkdir("b", 0700);
    chdir(k == 0 ? "a" : k == 1 ? "../b" : "..");
    int data = open("data", O_CREAT | O_WRONLY, 0600);
    FILE* stream = fopen("stream", "a");
    write(data, bytes, 1 + k);
    fwrite(bytes, 1, 10 + k, stream);
    fclose(stream);
    close(data);
  }
  return 0;
}
"""
ASYNCHRONOUS = """
#include <aio.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
static char bytes[65536];
int main(void) {
  int file = open("data", O_CREAT | O_RDWR | O_TRUNC, 0600);
  write(file, bytes, 40);
  struct aiocb one, *list[1] = {&one};
  memset(&one, 0, sizeof one);
  one.aio_fildes = file;
  one.aio_buf = bytes;
  one.aio_nbytes = sizeof bytes;
  aio_read(&one);
  aio_suspend((const struct aiocb**)list, 1, 0);
  if (aio_return(&one) != 40) return 1;
  one.aio_lio_opcode = LIO_WRITE;
  return lio_listio(LIO_WAIT, list, 1, 0);
}
"""
MPI_READS = """
#include <mpi.h>
#include <stdlib.h>
static char bytes[1 << 20];
int main(int n, char** words) {
  MPI_File file;
  MPI_Status status;
  MPI_Request request;
  MPI_Datatype large;
  MPI_Init(&n, &words);
  MPI_File_open(MPI_COMM_SELF, "data", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
  MPI_File_write_at(file, 0, bytes, 100, MPI_CHAR, &status);
  for (int k = 0; k < 3; ++k) MPI_File_read_at(file, 0, bytes, sizeof bytes, MPI_CHAR, &status);
  for (int k = 0; k < 2; ++k) MPI_File_read_at(file, 60, bytes, sizeof bytes / 4, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_iread_at(file, 0, bytes, 50, MPI_CHAR, &request);
  MPI_Wait(&request, &status);
  MPI_Type_contiguous(1 << 30, MPI_INT, &large);
  MPI_Type_commit(&large);
  MPI_File_write_at(file, 0, bytes, 0, large, &status);
  MPI_File_iwrite_at(file, 0, bytes, 0, large, &request);
  MPI_Wait(&request, &status);
  MPI_File_close(&file);
  MPI_Finalize();
  return 0;
}
"""
# Between the program and MPI, as tools such as Darshan are.
TOOL = """
#include <mpi.h>
int MPI_File_open(MPI_Comm comm, const char* name, int mode, MPI_Info info, MPI_File* file) {
  return PMPI_File_open(comm, name, mode, info, file);
}
int MPI_File_write_at(MPI_File file, MPI_Offset at, const void* bytes, int n, MPI_Datatype type, MPI_Status* status) {
  return PMPI_File_write_at(file, at, bytes, n, type, status);
}
"""
# Element types of variable length: at the top, within a compound.
VARIABLE = """
import h5py, numpy as np
with h5py.File("data.h5", "w") as file:
    file["fixed"] = np.zeros(100, "f8")
    text = file.create_dataset("text", (2,), h5py.string_dtype())
    text[:] = ["x" * 10000] * 2
    pair = file.create_dataset("pair", (1,), np.dtype([("number", "i4"), ("text", h5py.string_dtype())]))
    pair[0] = (1, "y" * 1000)
"""


def built(shell: Shell, name: str, source: str, *words: str, compiler: str = "cc") -> str:
    (shell.cwd / f"{name}.c").write_text(source)
    subprocess.run([compiler, "-w", "-o", name, f"{name}.c", *words], cwd=shell.cwd, check=True)
    return f"./{name}"


def traced(shell: Shell, *line: object, **environment: str) -> dict[str, Any]:
    return shell("io", "run", "--json", "-o", "a.nc", "--", *line, **environment).expect(0).json


def of_layer(told: dict[str, Any], layer: str) -> dict[str, Any]:
    (one,) = [each for each in told["layers"] if each["layer"] == layer]
    return one


def of_files(told: dict[str, Any], layer: str = "posix") -> dict[str, tuple[int, int]]:
    """Bytes read and written, by file."""
    return {
        one["path"]: (one["read"]["bytes"], one["write"]["bytes"])
        for one in told["files"]
        if one["layer"] == layer
    }


def called(told: dict[str, Any], layer: str) -> dict[str, int]:
    return {one["function"]: one["calls"] for one in told["functions"] if one["layer"] == layer}


def warned(told: dict[str, Any], code: str) -> list[str]:
    return [one["evidence"] for one in told["warnings"] if one["code"] == code]


def test_a_file_that_was_opened_unseen_is_the_program_s_and_said(sonde: Shell):
    told = traced(sonde, built(sonde, "opens", OPENS_BY_ITSELF))
    assert of_files(told) == {OPENED_UNSEEN: (5 * 4 * KIB, 10 * 4 * KIB), "seen": (0, 7)}
    assert of_layer(told, "posix")["write"]["bytes"] == 10 * 4 * KIB + 7
    (said,) = warned(told, "io.not_seen")
    assert said.startswith("15 calls moved 60 KiB through descriptors that no traced call opened")


def test_a_file_that_the_program_was_given_has_its_name_and_a_pipe_is_none(sonde: Shell):
    program = built(sonde, "given", GIVEN)
    told = traced(sonde, "bash", "-c", f"exec 7>given.out 8> >(cat >/dev/null); exec {program}")
    assert of_files(told) == {str(sonde.cwd / "given.out"): (0, 10000), "seen": (0, 7)}
    assert warned(told, "io.not_seen") == []


@pytest.mark.parametrize("how", ["syscall(SYS_close, one)", "close_range(one, one, 0)", "closefrom(one)"])
def test_a_descriptor_that_was_closed_is_not_taken_for_its_old_file(sonde: Shell, how: str):
    told = traced(sonde, built(sonde, "closes", CLOSES_BY_ITSELF.replace("HOW", how)))
    assert of_files(told) == {"one": (0, 1), OPENED_UNSEEN: (0, 1000)}


def test_calls_on_folders_are_seen(sonde: Shell):
    posix = called(traced(sonde, built(sonde, "folders", FOLDERS)), "posix")
    assert {
        "opendir": 1,
        "readdir": 3,
        "closedir": 1,
        "scandir": 1,
        "nftw": 1,
        "glob": 1,
    }.items() <= posix.items()


def test_what_is_printed_counts_and_wide_characters_are_said_to_be_unknown(sonde: Shell):
    told = traced(sonde, built(sonde, "prints", PRINTS))
    each = {one["function"]: one["bytes"] for one in told["functions"] if one["layer"] == "posix"}
    assert (each["puts"], each["printf"], each["putchar"]) == (5, 5, 1)
    assert warned(told, "io.values_unknown") == [
        "the bytes of 4 calls are unknown, and count as none: fputws (3), fwprintf (1)"
    ]


def test_bytes_through_a_pipe_belong_to_its_files(sonde: Shell):
    told = traced(sonde, built(sonde, "splices", SPLICES))
    assert of_files(told) == {"from": (4 * KIB, 4 * KIB), "to": (0, 4 * KIB)}


def test_files_of_one_name_in_several_folders_are_several(sonde: Shell):
    told = traced(sonde, built(sonde, "names", ONE_NAME))
    here = sonde.cwd.resolve()
    assert of_files(told) == {
        f"{folder}/{name}": (0, first + k)
        for name, first in (("data", 1), ("stream", 10))
        for k, folder in enumerate((here / "a", here / "b", here))
    }


def test_what_asynchronous_reads_were_asked_for_is_said_to_be_that(sonde: Shell):
    told = traced(sonde, built(sonde, "asynchronous", ASYNCHRONOUS))
    assert warned(told, "io.values_unknown") == [
        "the bytes of 1 call are unknown, and count as none: lio_listio (1)",
        "the bytes of 1 call are those that were asked for, because what came is not known when the call ends: "
        "aio_read (1)",
    ]
    assert of_layer(told, "posix")["read"]["rate_B_per_s"] is None
    assert {one["function"]: one["bytes"] for one in told["functions"]}["aio_return"] == 40


def test_elements_of_variable_length_in_hdf5_have_no_known_bytes(sonde: Shell):
    (sonde.cwd / "write.py").write_text(VARIABLE)
    told = traced(sonde, sys.executable, "write.py")
    assert of_layer(told, "hdf5")["write"]["bytes"] == 800
    assert any("H5Dwrite (2)" in one for one in warned(told, "io.values_unknown"))


@pytest.mark.mpi
def test_reads_of_mpi_io_count_what_came(sonde_mpi: Shell, mpi: Mpi):
    """Also where the program wants no MPI_Status. A datatype of 4 GiB has a size."""
    compiler = f"mpicc.{mpi.flavour}"
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not there")
    program = built(sonde_mpi, "reads", MPI_READS, compiler=compiler)
    line = Mpirun(found=mpi).command([program], (), 1, {})
    told = traced(sonde_mpi, *line)
    each = {one["function"]: one["bytes"] for one in told["functions"] if one["layer"] == "mpiio"}
    assert each["MPI_File_read_at"] == 3 * 100 + 2 * 40
    assert each["MPI_File_iread_at"] == 50
    assert each["MPI_File_write_at"] == 100
    asked = [one for one in warned(told, "io.values_unknown") if "asked for" in one]
    assert len(asked) == 1
    assert "MPI_File_iread_at (1)" in asked[0]
    assert not [one for one in warned(told, "io.values_unknown") if "count as none" in one]
    assert of_layer(told, "mpiio")["read"]["rate_B_per_s"] is None


@pytest.mark.mpi
def test_mpi_io_that_a_tool_calls_by_its_other_names_is_seen(sonde_mpi: Shell, mpi: Mpi):
    compiler = f"mpicc.{mpi.flavour}"
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not there")
    program = built(sonde_mpi, "reads", MPI_READS, compiler=compiler)
    built(sonde_mpi, "tool.so", TOOL, "-shared", "-fPIC", "-Wl,-z,lazy", compiler=compiler)
    line = Mpirun(found=mpi).command([program], (), 1, {})
    mpiio = called(traced(sonde_mpi, *line, LD_PRELOAD=str(Path(sonde_mpi.cwd) / "tool.so")), "mpiio")
    assert mpiio["MPI_File_open"] == 1
    assert mpiio["MPI_File_write_at"] == 2
