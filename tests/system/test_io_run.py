"""`sonde io run` on real programs: they behave as without it, every call is counted, and the trace outlives them."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest

import sonde as library
from sonde.io.maps.layers import KINDS
from sonde_shell import PROGRAM, Shell, finish
from watching import wait_for

DATA = Path(__file__).parents[1] / "data" / "io"
MAP = DATA / "fake.toml"
LAYERS = ("--map", MAP, "--layers", "fake,posix")


COPIES = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
static char bytes[100000];
int main(void) {
  int one = open("one", O_RDWR | O_CREAT | O_TRUNC, 0600), pipes[2];
  write(dup(one), bytes, 1);
  write(dup2(one, 50), bytes, 10);
  write(dup3(one, 51, O_CLOEXEC), bytes, 100);
  write(fcntl(one, F_DUPFD, 60), bytes, 1000);
  write(fcntl(50, F_DUPFD_CLOEXEC, 70), bytes, 10000);
  FILE* stream = fdopen(dup(70), "w");
  write(fileno(stream), bytes, 100000);
  fclose(stream);
  pipe(pipes);
  dup2(pipes[1], one);  /* of no file any more */
  write(one, bytes, 5);
  close(50);
  int two = open("two", O_RDWR | O_CREAT | O_TRUNC, 0600);
  fcntl(two, F_GETFL);
  write(two, bytes, 7);
  return 0;
}
"""


# Takes the place of pwrite, as a library that is preloaded does.
INTERPOSER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
ssize_t pwrite(int file, const void* bytes, size_t count, off_t at) {
  ssize_t (*next)(int, const void*, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite");
  return next(file, "y", count, at);
}
"""
WRITER = """
#include <fcntl.h>
#include <unistd.h>
int main(void) {
  int file = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600);
  for (int k = 0; k < 10; ++k) pwrite(file, "x", 1, k);
  return 0;
}
"""
# A plug-in whose own library has a pwrite, too: whose it calls, the loader decides by how the plug-in was loaded.
PLUGIN = """
#include <unistd.h>
int call(void) { return (int)pwrite(-1, "x", 1, 0); }
"""
OF_PLUGIN = """
#include <sys/types.h>
ssize_t pwrite(int file, const void* bytes, size_t count, off_t at) { return 4711; }
"""
LOADER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int n, char** words) {
  access("plugin.so", R_OK);
  void* plugin = dlopen("./plugin.so", atoi(words[1]));
  int (*call)(void) = dlsym(plugin, "call");
  printf("%d\\n", call());
  return 0;
}
"""
LOADERS = """
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void* load(void* number) {
  char name[64];
  sprintf(name, "./plugin%ld.so", (long)number);
  for (int k = 0; k < 1000; ++k) dlclose(dlopen(name, RTLD_LAZY));
  return 0;
}
int main(void) {
  pthread_t threads[4];
  close(open("data", O_RDWR | O_CREAT, 0600));
  for (long k = 0; k < 4; ++k) pthread_create(threads + k, 0, load, (void*)k);
  for (int k = 0; k < 4; ++k) pthread_join(threads[k], 0);
  return 0;
}
"""
NAMES = """
#include <aio.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fstream>
static char bytes[100000];
int main() {
  { std::ofstream("stream", std::ios::binary).write(bytes, 100000); }
  char name[] = "tempXXXXXX";
  int temp = mkstemp(name);
  write(temp, bytes, 11);
  rename(name, "renamed");
  FILE* nameless = tmpfile();
  fwrite(bytes, 1, 5000, nameless);
  fflush(nameless);
  write(fileno(nameless), bytes, 13);
  int memory = memfd_create("memory", 0);
  write(memory, bytes, 17);
  FILE* stream = fopen("fopen", "w");
  write(fileno(stream), bytes, 19);
  int log = open("log", O_RDWR | O_CREAT, 0600), kept = open("kept", O_RDWR | O_CREAT, 0600);
  if (vfork() == 0) {  /* what the child does to its descriptors is its own */
    dup2(log, 1);
    close(kept);
    execl("/bin/echo", "echo", "hello", (char*)0);
    _exit(1);
  }
  int status;
  wait(&status);
  write(kept, bytes, 23);
  write(1, "said\\n", 5);
  int out = open("out", O_RDWR | O_CREAT, 0600);
  dup2(out, 1);
  close(out);
  write(1, bytes, 29);
  dup2(open("in", O_RDWR | O_CREAT, 0600), 0);
  write(0, bytes, 31);
  return status;
}
"""
AIO = """
#include <aio.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
static char bytes[4096];
int main(void) {
  int file = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600);
  struct aiocb request;
  memset(&request, 0, sizeof request);
  request.aio_fildes = file;
  request.aio_buf = bytes;
  const struct aiocb* all[] = {&request};
  for (int k = 0; k < 5; ++k) {
    request.aio_nbytes = 100 + k;
    request.aio_offset = 5000000000 + 4096 * k;
    aio_write(&request);
    aio_suspend(all, 1, 0);
    if (aio_return(&request) != 100 + k) return 1;
  }
  request.aio_offset = 5000000000;
  aio_read(&request);
  aio_suspend(all, 1, 0);
  return aio_return(&request) != 104;
}
"""
# Writes into "count" how many SIGINT it has had; SIGTERM ends it.
SIGNALS = """
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
static int file, count;
static void tell(int signal) {
  char digit = '0' + ++count;
  pwrite(file, &digit, 1, 0);
}
static void end(int signal) { _exit(0); }
int main(void) {
  signal(SIGINT, tell);
  signal(SIGTERM, end);
  file = open("count", O_RDWR | O_CREAT | O_TRUNC, 0600);
  pwrite(file, "0", 1, 0);
  for (;;) pause();
}
"""
STREAMS = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int n, char** given) {
  FILE* file = fopen("s.txt", "w+");
  for (int k = 0; k < 10; ++k) {
    fprintf(file, "line %04d\\n", k);
    fputs(n > 1 ? given[1] : "abcde\\n", file);
    fputc('x', file);
    putc('\\n', file);
  }
  fflush(file);
  rewind(file);
  char text[100];
  while (fgets(text, 100, file));
  rewind(file);
  char* line = 0;
  size_t room = 0;
  while (getline(&line, &room, file) > 0);
  fclose(file);
  int known = open("s.txt", O_RDWR);
  char* all = mmap(0, 180, PROT_READ | PROT_WRITE, MAP_SHARED, known, 0);
  mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  all[0] = 'L';
  msync(all, 180, MS_SYNC);
  return 0;
}
"""
BETWEEN = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>
static char bytes[5000];
int main(void) {
  int from = open("from", O_RDWR | O_CREAT | O_TRUNC, 0600), to = open("to", O_RDWR | O_CREAT | O_TRUNC, 0600), both[2];
  write(from, bytes, sizeof bytes);
  lseek(from, 0, SEEK_SET);
  copy_file_range(from, 0, to, 0, 3000, 0);
  off_t at = 0;
  sendfile(to, from, &at, 1500);
  socketpair(AF_UNIX, SOCK_STREAM, 0, both);
  sendfile(both[0], from, &at, 70);
  return 0;
}
"""
TOO_MUCH = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>
static char bytes[1 << 18];
int main(void) {
  struct rlimit most = {1 << 20, 1 << 20};
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &most);
  int file = open("big", O_RDWR | O_CREAT | O_TRUNC, 0600);
  for (int k = 0; k < 8; ++k) pwrite(file, bytes, sizeof bytes, (long)k * sizeof bytes);
  return 0;
}
"""


def compiled(folder: Path, name: str, source: str, *words: str) -> None:
    """Makes `name` in a folder: a program, or a library where it ends in .so."""
    language = "c++" if "#include <fstream>" in source else "c"
    shared = ["-shared", "-fPIC"] if name.endswith(".so") else []
    line = ["c++" if language == "c++" else "cc", "-w", *shared, "-o", name, "-x", language, "-", *words]
    subprocess.run(line, cwd=folder, input=source, text=True, check=True)


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """A folder with `calls`, and libfake.so, which it is linked with."""
    folder = tmp_path_factory.mktemp("programs")
    shared = ["cc", "-O1", "-shared", "-fPIC", "-o", folder / "libfake.so", DATA / "fake.c"]
    # A shared libstdc++ of GCC 13 or later ends with ten calls of fflush.
    linked = ["-static-libstdc++", "-L", folder, "-lfake", f"-Wl,-rpath,{folder}", "-ldl", "-lpthread"]
    program = ["c++", "-O1", "-std=c++17", "-w", "-o", folder / "calls", DATA / "calls.cpp", *linked]
    for line in (shared, program):
        subprocess.run(list(map(str, line)), check=True)
    return folder


def traced(sonde: Shell, programs: Path, mode: str, *words: object, code: int = 0, n: int = 50):
    """What `calls MODE data N` printed under the tracer, and the outcome."""
    line = (programs / "calls", mode, "data", n, *words)
    ran = sonde("io", "run", *LAYERS, "--json", "-o", "a.nc", "--", *line).expect(code)
    return ran.err, ran.json


def counts(told: dict) -> dict[str, int]:
    return {one["function"]: one["calls"] for one in told["functions"] if one["layer"] != "tracer"}


def ended_otherwise(told: dict) -> dict[str, tuple[int, int]]:
    """Functions with calls that failed or whose end is not known."""
    found = {one["function"]: (one["failed"], one["unfinished"]) for one in told["functions"]}
    return {name: pair for name, pair in found.items() if any(pair)}


def codes(told: dict) -> list[str]:
    return [warning["code"] for warning in told["warnings"]]


WORK = {"open": 1, "pwrite": 50, "pread": 50, "fsync": 1, "close": 1}


class TestPrograms:
    def test_calls_sizes_offsets_and_files(self, sonde, programs):
        _, told = traced(sonde, programs, "plain")
        assert counts(told) == WORK
        assert codes(told) == []
        posix = next(layer for layer in told["layers"] if layer["layer"] == "posix")
        assert (posix["write"]["requests"], posix["write"]["bytes"]) == (50, 50 * 4096)
        assert told["files"] == [
            {
                "path": "data",
                "layer": "posix",
                "read": {"requests": 50, "bytes": 50 * 4096},
                "write": {"requests": 50, "bytes": 50 * 4096},
                "failed": 0,
            }
        ]
        assert told["elapsed_s"] > told["traced_s"]
        with library.open(sonde.cwd / "a.nc") as tree:
            raw = tree["raw"].to_dataset().load()
        names = raw["function_name"].values[raw["function_index"].values]
        assert raw["offset"].values[names == "pwrite"].tolist() == [4096 * k for k in range(50)]
        assert set(raw["size"].values[names == "pread"]) == {4096}
        assert (raw["begin"].values >= 0).all()
        assert (raw["duration"].values > 0).all()
        assert [path.name for path in sonde.cwd.iterdir()] == ["data", "a.nc"] or sorted(
            path.name for path in sonde.cwd.iterdir()
        ) == ["a.nc", "data"]

    def test_counts_are_those_of_strace(self, sonde, programs):
        strace = shutil.which("strace")
        if strace is None:
            pytest.skip("no strace: apt install strace")
        for mode in ("plain", "threads", "fork", "descriptors"):
            (sonde.cwd / "data").unlink(missing_ok=True)
            _, told = traced(sonde, programs, mode)
            log = sonde.cwd / "strace"
            only = ("-P", "data", "-P", "data.child")  # not what the loader reads
            line = [strace, "-f", *only, "-o", str(log), str(programs / "calls"), mode, "data", "50"]
            subprocess.run(line, cwd=sonde.cwd, check=True, stderr=subprocess.DEVNULL)
            lines = log.read_text().splitlines()
            seen = [match[1] for line in lines if (match := re.match(r"\d+ +(\w+)\(", line))]
            ours = counts(told)
            for name, call in (("pwrite", "pwrite64"), ("pread", "pread64"), ("fsync", "fsync")):
                assert ours[name] == seen.count(call) > 0, (mode, name)
            opened = [line for line in lines if "openat(" in line and '"data' in line]
            assert ours["open"] == len(opened) > 0, mode

    @pytest.mark.parametrize(
        "kernel", [(), pytest.param(("--kernel",), marks=pytest.mark.root)], ids=["", "kernel"]
    )
    def test_copies_of_a_descriptor_are_the_file_of_their_original(self, sonde, kernel):
        (sonde.cwd / "copies.c").write_text(COPIES)
        subprocess.run(["cc", "-w", "-o", "copies", "copies.c"], cwd=sonde.cwd, check=True)
        told = sonde("io", "run", "--json", "-o", "a.nc", *kernel, "--", "./copies").expect(0).json
        layer = "kernel" if kernel else "posix"
        written = {one["path"]: one["write"] for one in told["files"] if one["layer"] == layer}
        assert {
            path: (one["requests"], one["bytes"]) for path, one in written.items() if path in "one two"
        } == {
            "one": (6, 1 + 10 + 100 + 1000 + 10000 + 100000),
            "two": (1, 7),
        }
        assert {"dup", "dup2", "dup3", "fcntl", "fileno", "fdopen"} <= {
            one["function"].replace("64", "") for one in told["functions"] if one["layer"] == "posix"
        }

    @pytest.mark.parametrize("binding", ["lazy", "now"])
    def test_other_preloaded_libraries_stay_in_effect(self, sonde, binding):
        """The C library's pwrite has a version, which a preloaded one's has not: the loader takes it all the same."""
        compiled(sonde.cwd, "other.so", INTERPOSER, "-ldl")
        compiled(sonde.cwd, "writer", WRITER, f"-Wl,-z,{binding}")
        other = {"LD_PRELOAD": f"{sonde.cwd}/other.so"}
        told = sonde("io", "run", "--json", "-o", "a.nc", "--", "./writer", **other).expect(0).json
        assert (sonde.cwd / "data").read_bytes() == b"y" * 10
        assert counts(told)["pwrite"] == 10

    @pytest.mark.parametrize(("mode", "result"), [(1, -1), (1 | 8, 4711)], ids=["", "RTLD_DEEPBIND"])
    def test_a_plug_in_calls_what_the_loader_would_have_it_call(self, sonde, mode, result):
        compiled(sonde.cwd, "libown.so", OF_PLUGIN)
        compiled(sonde.cwd, "plugin.so", PLUGIN, "-Wl,-z,lazy,--no-as-needed", "-L.", "-lown", "-Wl,-rpath,.")
        compiled(sonde.cwd, "loader", LOADER, "-ldl")
        plain = subprocess.run(
            ["./loader", str(mode)], cwd=sonde.cwd, text=True, capture_output=True, check=True
        )
        ran = sonde("io", "run", "--json", "-o", "a.nc", "--", "./loader", mode).expect(0)
        assert ran.err == plain.stdout == f"{result}\n"
        assert ("pwrite" in counts(ran.json)) == (result == -1)

    def test_threads_that_load_libraries_at_once(self, sonde):
        """Each is looked into while others are being loaded: the loader's locks are taken as the loader takes them."""
        (sonde.cwd / "map.toml").write_text(
            'layer = "own"\nlibraries = ["libown*.so"]\n[[functions]]\nnames = ["own_call"]\n'
        )
        for k in range(4):
            compiled(sonde.cwd, f"libown{k}.so", "int own_call(void) { return 0; }")
            linked = ("-Wl,-z,lazy", "-L.", f"-lown{k}", "-Wl,-rpath,.")
            source = "int own_call(void); int call(void) { return own_call(); }"
            compiled(sonde.cwd, f"plugin{k}.so", source, *linked)
        compiled(sonde.cwd, "loaders", LOADERS, "-ldl", "-lpthread")
        words = ("--map", "map.toml", "--layers", "own,posix", "--json", "-o", "a.nc")
        told = sonde("io", "run", *words, "--", "./loaders").expect(0).json
        assert counts(told)["open"] == 1

    def test_files_however_they_were_opened(self, sonde):
        compiled(sonde.cwd, "names", NAMES)
        told = sonde("io", "run", "--json", "-o", "a.nc", "--", "./names").expect(0).json
        written = {one["path"]: one["write"]["bytes"] for one in told["files"] if one["write"]["bytes"]}
        (temp,) = (path for path in written if path.startswith("temp"))
        assert not temp.endswith("XXXXXX")
        assert written == {
            "stream": 100_000, temp: 11, "(tmpfile)": 5013, "memory": 17, "fopen": 19, "kept": 23, "out": 29, "in": 31,
        }  # fmt: skip
        assert (sonde.cwd / "log").read_text() == "hello\n"

    def test_asynchronous_requests_tell_their_bytes_and_places(self, sonde):
        compiled(sonde.cwd, "aio", AIO, "-lrt")
        told = sonde("io", "run", "--json", "-o", "a.nc", "--", "./aio").expect(0).json
        (file,) = (one for one in told["files"] if one["path"] == "data")
        assert (file["write"], file["read"]) == (
            {"requests": 5, "bytes": 510},
            {"requests": 1, "bytes": 104},
        )
        with library.open(sonde.cwd / "a.nc") as tree:
            raw = tree["raw"].to_dataset().load()
        names = raw["function_name"].values[raw["function_index"].values]
        places = raw["offset"].values[np.isin(names, ["aio_write", "aio_write64"])]
        assert places.tolist() == [5_000_000_000 + 4096 * k for k in range(5)]

    def test_bytes_of_streams_and_of_what_is_mapped(self, sonde):
        compiled(sonde.cwd, "own", STREAMS)
        ran = sonde("io", "run", "--json", "-o", "a.nc", "--", "./own").expect(0).json
        moved = {
            one["function"]: (one["calls"], one["bytes"])
            for one in ran["functions"]
            if one["layer"] == "posix"
        }
        # A compiler may make putc of fputc, and its like.
        puts = [moved[name] for name in ("fputc", "putc") if name in moved]
        assert sum(calls for calls, _ in puts) == sum(size for _, size in puts) == 20
        assert moved["fprintf"] == (10, 10 * 10)
        assert moved["fputs"] == (10, 10 * 6)
        assert moved["fgets"] == (31, 180)  # and the one that finds the end
        assert moved.get("getline", moved.get("getdelim")) == (31, 180)
        assert moved["mmap"] == (1, 180)  # what is no file's is no I/O
        assert ran["mapped"] == [{"path": "s.txt", "bytes": 180}]
        with library.open(sonde.cwd / "a.nc") as tree:
            raw = tree["raw"].to_dataset().load()
        kinds = dict(zip(raw["function_name"].values.tolist(), raw["function_kind"].values.tolist()))
        assert (KINDS[kinds["fflush"]], KINDS[kinds["msync"]]) == ("other", "sync")

    def test_a_copy_between_files_reads_one_and_writes_the_other(self, sonde):
        compiled(sonde.cwd, "own", BETWEEN)
        ran = sonde("io", "run", "--json", "-o", "a.nc", "--", "./own").expect(0).json
        of_file = {one["path"]: (one["read"]["bytes"], one["write"]["bytes"]) for one in ran["files"]}
        assert of_file == {"from": (3000 + 1500 + 70, 5000), "to": (0, 3000 + 1500)}
        posix = next(layer for layer in ran["layers"] if layer["layer"] == "posix")
        assert (posix["read"]["requests"], posix["read"]["bytes"]) == (3, 4570)

    def test_what_could_not_be_written_is_a_finding_and_no_byte(self, sonde):
        compiled(sonde.cwd, "own", TOO_MUCH)
        ran = sonde("io", "run", "--json", "-o", "a.nc", "--", "./own").expect(0).json
        posix = next(layer for layer in ran["layers"] if layer["layer"] == "posix")
        assert (posix["failed"], posix["write"]["requests"], posix["write"]["bytes"]) == (4, 4, 1 << 20)
        (finding,) = [one for one in ran["findings"] if one["code"] == "io.failed_calls"]
        assert finding["text"].startswith("4 of 8 calls of pwrite failed, on big; ")
        assert sonde("io", "check", "a.nc").expect(1)

    def test_threads_have_their_own_calls(self, sonde, programs):
        _, told = traced(sonde, programs, "threads")
        assert counts(told) == {name: 4 * n for name, n in WORK.items()}
        with library.open(sonde.cwd / "a.nc") as tree:
            raw = tree["raw"].to_dataset().load()
        with_calls = raw["thread_events"].values[raw["thread_events"].values > 0]
        # Two of the tracer's own: it made the thread's file, and stored the name of the file that the thread opened.
        assert with_calls.tolist() == [105] * 4
        assert len(set(raw["thread_number"].values[raw["thread_events"].values > 0])) == 4

    def test_a_forked_child_is_a_process_of_its_own(self, sonde, programs):
        _, told = traced(sonde, programs, "fork")
        assert counts(told) == {name: 3 * n for name, n in WORK.items()}
        assert sorted(process["calls"] for process in told["processes"]) == [103, 206]
        assert sorted({one["path"] for one in told["files"]}) == ["data", "data.child"]

    def test_exec_goes_on_as_another_process(self, sonde, programs):
        _, told = traced(sonde, programs, "exec")
        assert counts(told) == {name: 2 * n for name, n in WORK.items()}
        first, second = told["processes"]
        assert first["pid"] == second["pid"]

    def test_arguments_and_results_of_every_kind_come_through(self, sonde, programs):
        plain = subprocess.run([programs / "calls", "arguments"], capture_output=True, text=True, check=True)
        said, told = traced(sonde, programs, "arguments")
        assert said == plain.stdout != ""
        assert len(counts(told)) == 7 + 1  # and printf
        assert set(counts(told).values()) == {1}

    def test_exceptions(self, sonde, programs):
        said, told = traced(sonde, programs, "exceptions")
        assert said == "50\n"
        assert counts(told)["fake_deep"] == 50
        assert ended_otherwise(told) == {"fake_deep": (50, 0)}
        assert counts(told)["pwrite"] == 3
        depths(sonde)

    def test_longjmp(self, sonde, programs):
        said, told = traced(sonde, programs, "longjmp")
        assert said == "50\n"
        assert counts(told)["fake_deep"] == 50
        assert ended_otherwise(told) == {"fake_deep": (0, 50)}
        assert counts(told)["pwrite"] == 3
        depths(sonde)

    def test_threads_that_are_cancelled(self, sonde, programs):
        _, told = traced(sonde, programs, "cancel")
        assert counts(told)["fake_call"] == 50
        assert ended_otherwise(told) == {"fake_call": (50, 0)}

    def test_stacks_that_a_program_makes_itself(self, sonde, programs):
        _, told = traced(sonde, programs, "contexts")
        assert counts(told) == {name: 2 * n for name, n in WORK.items()}

    def test_a_handler_of_signals_in_the_midst_of_calls(self, sonde, programs):
        said, told = traced(sonde, programs, "signals", n=40_000)
        assert counts(told)["pwrite"] == 40_000
        assert counts(told).get("write", 0) == int(said) > 0
        assert ended_otherwise(told) == {}

    @pytest.mark.slow
    def test_a_signal_after_each_single_instruction_of_the_tracer(self, sonde, programs):
        subprocess.run(["cc", "-O1", "-w", "-o", "stepper", DATA / "stepper.c"], cwd=sonde.cwd, check=True)
        told = sonde("io", "run", *LAYERS, "--json", "-o", "a.nc", "--", "./stepper", "data").expect(0)
        children = int(told.err)
        assert children > 300  # the tracer's own instructions are in it
        calls = [process["calls"] for process in told.json["processes"]]
        assert sorted(calls) == sorted(
            [3, 3, *[4] * children]
        )  # the parent, which prints, and the last child, which was not signalled
        assert ended_otherwise(told.json) == {}

    def test_a_library_that_is_loaded_later_and_found_by_name(self, sonde, programs):
        _, told = traced(sonde, programs, "dlopen", programs / "libfake.so")
        assert counts(told)["fake_write"] == 50
        assert counts(told)["pwrite"] == 100  # 50 of them within fake_write
        fake = next(layer for layer in told["layers"] if layer["layer"] == "fake")
        assert (fake["write"]["requests"], fake["write"]["bytes"]) == (50, 50 * 512)
        assert 0 < fake["self_s"] < fake["time_s"]

    def test_a_function_in_two_versions_stays_the_one_that_the_program_was_linked_with(self, sonde):
        """As glfs_fsync of libgfapi: who calls the other version passes it arguments that are not there."""
        source = DATA / "versions.c"
        (sonde.cwd / "map").write_text("FAKE_1 { global: fake_versioned; local: *; };\nFAKE_2 {} FAKE_1;\n")
        shared = [
            "cc",
            "-O1",
            "-shared",
            "-fPIC",
            "-DLIBRARY",
            "-Wl,--version-script=map",
            "-o",
            "libfake.so",
            source,
        ]
        linked = ["-Wl,-z,lazy", "-L.", "-lfake", f"-Wl,-rpath,{sonde.cwd}"]
        for line in (shared, ["cc", "-O1", "-o", "versions", source, *linked]):
            subprocess.run(list(map(str, line)), cwd=sonde.cwd, check=True)
        told = sonde("io", "run", *LAYERS, "--json", "-o", "a.nc", "--", "./versions").expect(0)
        assert told.err == "41\n"
        assert counts(told.json)["fake_versioned"] == 1

    @pytest.mark.parametrize("binding", ["lazy", "now"])
    def test_a_program_at_a_fixed_place_that_has_its_own_address_of_a_function(
        self, sonde, programs, binding
    ):
        """As Debian's python3 of fsync: asked for the function, the loader answers with that address."""
        linked = ["-no-pie", f"-Wl,-z,{binding}", "-L", programs, "-lfake", f"-Wl,-rpath,{programs}"]
        line = ["cc", "-O1", "-fno-pie", "-o", sonde.cwd / "pointers", DATA / "pointers.c", *linked]
        subprocess.run(list(map(str, line)), check=True)
        told = sonde("io", "run", *LAYERS, "--json", "-o", "a.nc", "--", "./pointers").expect(0)
        assert told.err == "55\n"
        assert counts(told.json)["fake_many"] == 15

    def test_a_program_that_closes_all_descriptors(self, sonde, programs):
        _, told = traced(sonde, programs, "descriptors", n=2000)  # more than a block holds
        assert counts(told)["pwrite"] == counts(told)["pread"] == 2000


def depths(sonde: Shell) -> None:
    """After whatever left calls behind, none is taken to be within them."""
    with library.open(sonde.cwd / "a.nc") as tree:
        raw = tree["raw"].to_dataset().load()
    names = raw["function_name"].values[raw["function_index"].values]
    assert set(raw["depth"].values[names == "pwrite"]) == {0}


class TestEndings:
    @pytest.mark.parametrize(
        ("mode", "status"), [("exit", 7), ("kill", 128 + signal.SIGKILL), ("abort", 128 + signal.SIGABRT)]
    )
    def test_every_call_is_kept_however_the_program_ends(self, sonde, programs, mode, status):
        for n in (50, 1000):  # less and more than a block holds
            (sonde.cwd / "data").unlink(missing_ok=True)
            _, told = traced(sonde, programs, mode, code=status, n=n)
            assert counts(told) == {"open": 1, "pwrite": n}
            assert codes(told) == ["io.command_failed"]
            assert told["status"] == status

    def test_what_was_under_way_is_reported(self, sonde, programs):
        process = sonde.start(
            "io", "run", *LAYERS, "--json", "-o", "a.nc", "--", programs / "calls", "stuck", "data", 5
        )
        assert wait_for(
            lambda: (sonde.cwd / "data").exists() and (sonde.cwd / "data").stat().st_size == 5 * 4096
        )
        (pid,) = [p for p, name in sonde.processes().items() if name.endswith("/calls")]
        assert wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S")
        os.kill(pid, signal.SIGKILL)
        told = finish(process).expect(137).json
        assert ended_otherwise(told) == {"read": (0, 1)}
        (one,) = told["under_way"]
        assert (one["pid"], one["rank"], one["calls"]) == (pid, -1, ["read"])
        shown = sonde("io", "show", "a.nc").expect(0).out
        assert "under way" in shown
        assert str(pid) in shown

    def test_what_ended_well_has_nothing_to_tell_of_its_end(self, sonde, programs):
        _, told = traced(sonde, programs, "plain")
        assert told["under_way"] == []
        assert "under way" not in sonde("io", "show", "a.nc").expect(0).out

    @pytest.mark.parametrize("to_all", [True, False], ids=["group", "sonde"])
    def test_a_signal_comes_to_the_command_once(self, sonde, to_all):
        """Without a terminal, too: a second SIGINT has mpirun leave its ranks alone."""
        compiled(sonde.cwd, "signals", SIGNALS)
        process = sonde.start("io", "run", "--json", "-o", "a.nc", "--", "./signals")
        count = sonde.cwd / "count"
        assert wait_for(lambda: count.exists() and count.read_text() == "0")

        def witness() -> list[int]:
            return [pid for pid, name in sonde.processes().items() if name == "/bin/sh"]

        before = witness()
        if to_all:
            os.killpg(process.pid, signal.SIGINT)
            assert wait_for(lambda: len(witness()) == 1 and witness() != before)  # Sonde has dealt with it
        else:
            process.send_signal(signal.SIGINT)
            assert wait_for(lambda: count.read_text() != "0")
        (os.killpg if to_all else os.kill)(process.pid, signal.SIGTERM)
        finish(process).expect(0)
        assert count.read_text() == "1"
        assert sonde.left() == []

    def test_ctrl_c_is_the_program_s_and_its_trace_is_preserved(self, sonde, programs):
        process = sonde.start(
            "io", "run", *LAYERS, "--json", "-o", "a.nc", "--", programs / "calls", "stuck", "data", 5
        )
        assert wait_for(
            lambda: (sonde.cwd / "data").exists() and (sonde.cwd / "data").stat().st_size == 5 * 4096
        )
        process.send_signal(signal.SIGINT)
        told = finish(process).expect(130).json
        assert counts(told)["pwrite"] == 5
        assert told["stop_reason"] == "interrupted"
        assert sonde.left() == []

    def test_when_sonde_is_killed_the_program_goes_on_and_recover_waits_for_it(self, sonde, programs):
        process = sonde.start(
            "io", "run", *LAYERS, "-o", "a.nc", "--", programs / "calls", "stuck", "data", 5
        )
        assert wait_for(
            lambda: (sonde.cwd / "data").exists() and (sonde.cwd / "data").stat().st_size == 5 * 4096
        )
        process.kill()  # its pipes stay open in the program
        assert process.wait(30) == -signal.SIGKILL
        (pid,) = [p for p, name in sonde.processes().items() if name.endswith("/calls")]
        error = sonde("data", "recover", "a.run", "--json").expect(3).json["error"]
        assert error["code"] == "io.still_running"
        assert f"process {pid} (calls)" in error["what"]
        os.kill(pid, signal.SIGTERM)
        assert wait_for(lambda: not Path(f"/proc/{pid}").exists())
        sonde("data", "recover", "a.run").expect(4)
        told = sonde("io", "show", "a.nc", "--json").expect(0).json
        assert counts(told) == {
            "open": 1,
            "pwrite": 5,
            "pread": 5,
            "fsync": 1,
            "close": 1,
            "read": 1,
            "fflush": 1,
            "puts": 1,
            "pipe": 1,
        }
        assert "core.run_was_killed" in codes(told)

    def test_what_a_command_leaves_running_is_reported(self, sonde, programs):
        script = f"{programs}/calls stuck data 5 >/dev/null 2>&1 & while [ ! -s data ]; do :; done; sleep 0.3"
        ran = sonde("io", "run", *LAYERS, "--json", "-o", "a.nc", "--", "sh", "-c", script).expect(0)
        assert "io.still_running" in codes(ran.json)
        assert counts(ran.json)["pwrite"] == 5


class TestLimits:
    def test_max_trace_bounds_the_disk_and_counts_what_is_dropped(self, sonde, programs):
        words = ("--max-trace", "200KiB", "--json", "-o", "a.nc")
        told = (
            sonde("io", "run", *LAYERS, *words, "--", programs / "calls", "plain", "data", 9000)
            .expect(0)
            .json
        )
        kept = sum(counts(told).values())
        assert 0 < kept < 200 * 1024 / 40 + 2 * 409
        (warning,) = (one for one in told["warnings"] if one["code"] == "io.trace_full")
        dropped = int(warning["evidence"].split()[0])
        assert kept + dropped == 2 * 9000 + 3
        assert sum(process["dropped"] for process in told["processes"]) == dropped

    def test_a_trace_that_is_full_says_so_first(self, sonde, programs):
        """The call that opened the file found no room: those that did are the program's all the same."""
        words = ("--max-trace", "64KiB", "--json", "-o", "a.nc")
        line = (programs / "calls", "plain", "data", 9000)
        told = sonde("io", "run", *LAYERS, *words, "--", *line).expect(0).json
        assert sum(counts(told).values()) > 0
        assert all(one["layer"] != "system" for one in told["functions"])
        shown = sonde("io", "show", "a.nc").expect(0).out
        assert "more calls" in " ".join(shown.split())
        assert not shown.startswith("✓")

    def test_no_room_for_anything_is_reported_as_such(self, sonde, programs):
        line = (programs / "calls", "plain", "data", 5)
        error = sonde("io", "run", "--json", "--max-trace", "1", "--", *line).expect(3).json["error"]
        assert error["code"] == "io.nothing_traced"
        assert "could not create its files" in error["what"]
        assert "--max-trace" in error["hint"]

    @pytest.mark.root
    def test_a_full_disk_costs_the_trace_and_not_the_program(self, sonde, programs):
        with small_disk(sonde.cwd / "small", 400) as small:
            line = (programs / "calls", "plain", "data", 20_000)
            ran = sonde("io", "run", *LAYERS, "--json", "-o", small / "a.nc", "--", *line)
            assert (sonde.cwd / "data").stat().st_size == 20_000 * 4096
            assert "Traceback" not in ran.err
            assert ran.code == 3
            assert ran.json["error"]["code"] == "core.disk_full"
            folder = small / "a.run"
            assert folder.exists()
            sonde("data", "recover", folder, "-o", sonde.cwd / "b.nc").expect(0)  # how it ended had its room
        told = sonde("io", "show", "b.nc", "--json").expect(0).json
        kept = sum(counts(told).values())
        assert 1000 < kept < 40_003
        assert sum(process["dropped"] for process in told["processes"]) == 40_003 - kept


@contextmanager
def small_disk(where: Path, kilobytes: int):
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(where)], check=True)
    try:
        yield where
    finally:
        subprocess.run(["umount", str(where)], check=True)


class TestStreams:
    def test_streams_and_status_are_the_program_s(self, sonde, tmp_path):
        given = os.urandom(100_000)
        line = [
            PROGRAM,
            "io",
            "run",
            "-o",
            "a.nc",
            "--",
            "sh",
            "-c",
            "cat >copy; echo said; echo cried >&2; exit 9",
        ]
        ran = subprocess.run(line, cwd=sonde.cwd, env=sonde.env, input=given, capture_output=True)
        assert ran.returncode == 9
        assert (sonde.cwd / "copy").read_bytes() == given
        assert ran.stdout.startswith(b"said\n")
        assert b"cried\n" in ran.stderr
        assert b"ended with exit status 9" in ran.stderr.replace(b"\n", b" ").replace(b"  ", b" ")

    def test_what_a_shell_opened_for_the_command_it_has(self, sonde):
        there, here = os.pipe()
        line = [PROGRAM, "io", "run", "-o", "a.nc", "--", "sh", "-c", f"ls / >/dev/fd/{here}"]
        ran = subprocess.run(line, cwd=sonde.cwd, env=sonde.env, pass_fds=(here,), capture_output=True)
        os.close(here)
        with open(there) as given:
            assert "tmp\n" in given.read()
        assert ran.returncode == 0

    def test_json_stands_alone_on_standard_output(self, sonde):
        ran = sonde("io", "run", "--json", "-o", "a.nc", "--", "ls", "/").expect(0)
        json.loads(ran.out)
        assert "tmp" in ran.err


class TestRefusals:
    def test_no_such_program(self, sonde):
        error = sonde("io", "run", "--json", "--", "nosuchprogram").expect(2).json["error"]
        assert error["code"] == "io.no_program"
        assert list(sonde.cwd.iterdir()) == []

    def test_an_option_that_is_none_is_no_program(self, sonde):
        error = sonde("io", "run", "--json", "--kernell", "--", "ls").expect(2).json["error"]
        assert error["code"] == "core.no_option"
        assert "--kernel" in error["what"]

    def test_what_is_no_program(self, sonde):
        (sonde.cwd / "folder").mkdir()
        (sonde.cwd / "text").write_text("no program")
        (sonde.cwd / "script").write_text("#!/nowhere/at/all\n")
        (sonde.cwd / "script").chmod(0o755)
        for name, word in (
            ("folder", "is a folder"),
            ("text", "is not executable"),
            ("script", "cannot start"),
        ):
            error = sonde("io", "run", "--json", "-o", "a.nc", "--", f"./{name}").expect(2).json["error"]
            assert word in error["what"]
        assert sorted(path.name for path in sonde.cwd.iterdir()) == ["folder", "script", "text"]

    def test_a_statically_linked_program_is_reported_as_such(self, sonde):
        (sonde.cwd / "s.c").write_text("int main(void) { return 3; }\n")
        subprocess.run(["cc", "-static", "-o", "static", "s.c"], cwd=sonde.cwd, check=True)
        error = sonde("io", "run", "--json", "-o", "a.nc", "--", "./static").expect(3).json["error"]
        assert error["code"] == "io.nothing_traced"
        assert "statically linked" in error["what"]
        assert "exit status 3" in error["what"]
        assert not (sonde.cwd / "a.run").exists()

    def test_a_program_that_calls_nothing_of_the_layers(self, sonde):
        error = (
            sonde("io", "run", "--json", "--layers", "hdf5", "-o", "a.nc", "--", "true")
            .expect(3)
            .json["error"]
        )
        assert error["code"] == "io.nothing_traced"
        assert "function of hdf5" in error["what"]

    def test_where_nothing_is_traced_a_command_that_failed_has_its_status(self, sonde):
        error = sonde("io", "run", "--json", "-o", "a.nc", "--", "sh", "-c", "exit 7").expect(7).json["error"]
        assert error["code"] == "io.nothing_traced"
        assert "exit status 7" in error["what"]

    def test_a_command_that_sets_ld_preload_itself(self, sonde):
        line = ("env", "LD_PRELOAD=libdl.so.2", "ls", "/")
        error = sonde("io", "run", "--json", "-o", "a.nc", "--", *line).expect(3).json["error"]
        assert "sets LD_PRELOAD itself" in error["what"]
        assert "env LD_PRELOAD=libdl.so.2 sonde io run" in error["hint"]

    def test_a_bad_map_or_layer(self, sonde):
        (sonde.cwd / "m.toml").write_text(
            'layer = "x"\nlibraries = ["libc.so.6"]\n[[functions]]\nnames = ["a"]\nsiez = "arg(0)"\n'
        )
        error = sonde("io", "run", "--json", "--map", "m.toml", "--", "true").expect(2).json["error"]
        assert (error["code"], "nearest: size" in error["what"]) == ("io.bad_map", True)
        error = sonde("io", "run", "--json", "--layers", "possix", "--", "true").expect(2).json["error"]
        assert (error["code"], "nearest: posix" in error["what"]) == ("io.no_such_layer", True)


class TestTime:
    def test_self_times_add_up_to_the_time_in_traced_calls(self, sonde, programs):
        _, told = traced(sonde, programs, "threads", n=400)
        beside = ("tracer", "system")
        own = sum(layer["self_s"] for layer in told["layers"] if layer["layer"] not in beside)
        assert own == pytest.approx(told["traced_s"], rel=1e-9)
        functions = [one["self_s"] for one in told["functions"] if one["layer"] not in beside]
        assert sum(functions) == pytest.approx(own, rel=1e-9)
        tracer = next(layer["self_s"] for layer in told["layers"] if layer["layer"] == "tracer")
        assert tracer > told["tracing"]["taken_off_s"] > 0
        own += sum(layer["self_s"] for layer in told["layers"] if layer["layer"] in beside)
        with library.open(sonde.cwd / "a.nc") as tree:
            summary = tree["summary"].to_dataset().load()
        assert summary["busy"].values.sum() == pytest.approx(own, rel=1e-6)
        on_paths = own - told["tracing"]["taken_off_s"]  # which is on no path of calls
        assert summary["node_self_time"].values.sum() == pytest.approx(on_paths, rel=1e-9)
        assert np.isclose(summary["layer_self_time"].values.sum(), own)


class TestLayers:
    def test_list_tells_all_layers_and_one_in_full(self, sonde):
        names = [layer["layer"] for layer in sonde("io", "layers", "list", "--json").expect(0).json["layers"]]
        assert names.index("hdf5") < names.index("mpiio") < names.index("posix")
        one = sonde("io", "layers", "list", "mpiio", "--json").expect(0).json["layer"]
        assert {
            "names": ["MPI_File_sync", "PMPI_File_sync"],
            "kind": "sync",
            "size": "",
            "moved": "",
            "offset": "",
            "request": "",
            "file": "arg(0)",
            "source": "",
            "copy": "",
            "path": "",
        } in one["functions"]
        error = sonde("io", "layers", "list", "mpiioo", "--json").expect(2).json["error"]
        assert "nearest: mpiio" in error["what"]

    def test_check_of_a_program_tells_what_its_libraries_export(self, sonde, programs):
        told = sonde("io", "layers", "check", "--map", MAP, programs / "calls", "--json").expect(0).json
        found = {one["layer"]: one for one in told["found"]}
        assert Path(found["fake"]["library"]).name == "libfake.so"
        assert "fake_write" in found["fake"]["functions"]
        assert "pwrite" in found["posix"]["functions"]

    def test_a_name_that_is_nowhere_is_a_finding_and_a_warning(self, sonde, programs):
        text = MAP.read_text().replace('"fake_write"', '"fake_write", "fake_raed"')
        (sonde.cwd / "own.toml").write_text(text)
        told = (
            sonde("io", "layers", "check", "--map", "own.toml", programs / "libfake.so", "--json")
            .expect(1)
            .json
        )
        (finding,) = told["findings"]
        assert "'fake_raed' (nearest: fake_real)" in finding["text"]
        line = ("--", programs / "calls", "arguments")
        told = (
            sonde("io", "run", "--map", "own.toml", "--layers", "fake", "--json", "-o", "a.nc", *line)
            .expect(0)
            .json
        )
        assert codes(told) == ["io.not_exported"]
        assert "(nearest: fake_real)" in told["warnings"][0]["evidence"]

    def test_the_example_of_the_manual_to_the_letter(self, sonde):
        """Lustre's library, or one with functions of its header: what the page says to type and to write."""
        page = (Path(__file__).parents[2] / "docs" / "reference" / "layer-maps.md").read_text()
        section = page[page.index("## Lustre's library") : page.index("## What a map may say")]
        blocks = re.findall(r"```\w*\n(.*?)```", section, re.DOTALL)
        here, there = sonde.cwd / "liblustreapi.so.1", "/usr/lib64/liblustreapi.so.1"
        typed = [
            line.replace(there, str(here)) for block in (blocks[0], blocks[2]) for line in block.splitlines()
        ]
        source = DATA / "lustreapi.c"
        for words in (
            ["-shared", "-fPIC", "-Wl,-soname,liblustreapi.so.1", "-o", here, source],
            ["-DPROGRAM", "-o", "program", source, here, f"-Wl,-rpath,{sonde.cwd}"],
        ):
            subprocess.run(["cc", *words], cwd=sonde.cwd, check=True)
        assert [line.split()[1:4] for line in typed] == [
            ["io", "layers", "new"],
            ["io", "layers", "check"],
            ["io", "run", "--map"],
        ]

        new, _, file = typed[0].partition(" > ")
        begun = sonde(*shlex.split(new)[1:]).expect(0).out
        assert file == "llapi.toml"
        assert set(re.findall(r"llapi_\w+", begun)) == set(re.findall(r"(llapi_\w+)\(", source.read_text()))
        (sonde.cwd / file).write_text(begun)
        run = [*shlex.split(typed[2])[1:]]
        run[2:2] = ["--json", "-o", "a.nc"]
        every = {one["function"]: one for one in sonde(*run).expect(0).json["functions"]}
        assert every["llapi_layout_free"]["calls"] == 1
        for name in ("made", "striped"):
            (sonde.cwd / name).unlink()

        (sonde.cwd / file).write_text(blocks[1])
        assert sonde(*shlex.split(typed[1])[1:], "--json").expect(0).json["findings"] == []
        told = sonde(*run).expect(0).json
        found = {one["function"]: one for one in told["functions"] if one["layer"] == "llapi"}
        assert {name: (one["calls"], one["failed"]) for name, one in found.items()} == {
            "llapi_file_create": (1, 0),
            "llapi_file_create_pool": (1, 0),
            "llapi_file_open": (2, 1),
            "llapi_file_open_pool": (1, 0),
            "llapi_layout_file_create": (2, 1),
            "llapi_layout_file_open": (1, 0),
            "llapi_layout_get_by_path": (2, 1),
            "llapi_layout_get_by_fd": (2, 1),
            "llapi_file_get_stripe": (1, 0),
            "llapi_obd_statfs": (2, 1),
        }
        names = [layer["layer"] for layer in told["layers"]]
        assert names.index("llapi") < names.index("posix")
        with library.open(sonde.cwd / "a.nc") as tree:
            raw = tree["raw"].to_dataset().load()
        of = raw["function_name"].values[raw["function_index"].values]
        file_of = {-1: ""} | dict(enumerate(raw["path"].values.tolist()))
        for name in ("llapi_layout_file_create", "llapi_layout_get_by_fd"):
            assert file_of[int(raw["file_index"].values[of == name][0])] == "striped"

    def test_a_map_of_which_nothing_is_there_is_a_finding_and_a_warning(self, sonde, programs):
        text = 'layer = "own"\nlibraries = ["{}"]\n[[functions]]\nnames = ["{}"]\n'
        for library_, name, word in (
            ("libfake.so", "fake_wirte", "fake_wirte"),
            ("libfka.so", "fake_write", "libfka.so"),
        ):
            (sonde.cwd / "own.toml").write_text(text.format(library_, name))
            told = (
                sonde("io", "layers", "check", "--map", "own.toml", programs / "libfake.so", "--json")
                .expect(1)
                .json
            )
            (finding,) = told["findings"]
            assert word in finding["text"]
            line = ("--map", "own.toml", "--json", "-o", "a.nc", "--", programs / "calls", "plain", "data", 5)
            for told in (
                sonde("io", "run", *line).expect(0).json,
                sonde("io", "run", "--layers", "own", *line).expect(3).json,
            ):
                assert codes(told) == ["io.layer_not_found"]
                assert "the layer 'own'" in told["warnings"][0]["evidence"]

    def test_new_writes_a_map_that_can_be_used_at_once(self, sonde, programs):
        made = sonde("io", "layers", "new", programs / "libfake.so", "--layer", "mine").expect(0)
        (sonde.cwd / "mine.toml").write_text(made.out)
        line = ("--", programs / "calls", "arguments")
        words = ("--map", "mine.toml", "--layers", "mine", "--json", "-o", "a.nc")
        assert len(counts(sonde("io", "run", *words, *line).expect(0).json)) == 7
        error = (
            sonde("io", "layers", "new", programs / "libfake.so", "--names", "no*", "--json")
            .expect(2)
            .json["error"]
        )
        assert error["code"] == "io.nothing_exported"


class TestConvert:
    def test_every_form_holds_every_call(self, sonde, programs):
        _, told = traced(sonde, programs, "threads")
        events = sum(one["calls"] for one in told["functions"])
        for name in ("a.json", "b.json.gz", "c.csv", "d.parquet"):
            made = sonde("io", "convert", "a.nc", "-o", name, "--json").expect(0).json
            assert made["events"] == events
        calls = [
            event
            for event in json.loads((sonde.cwd / "a.json").read_text())["traceEvents"]
            if event["ph"] == "X"
        ]
        packed = json.loads(gzip.decompress((sonde.cwd / "b.json.gz").read_bytes()))
        assert len(calls) == events
        assert [event for event in packed["traceEvents"] if event["ph"] == "X"] == calls
        lines = list(csv.DictReader((sonde.cwd / "c.csv").read_text().splitlines()))
        table = parquet.read_table(sonde.cwd / "d.parquet").to_pylist()
        assert [line["function"] for line in lines] == [row["function"] for row in table]
        assert sum(row["size"] for row in table if row["function"] == "pwrite") == 200 * 4096
        for words in ((), ("-o", "-")):
            made = sonde("io", "convert", "a.nc", "--to", "csv", *words).expect(0)
            assert made.out == (sonde.cwd / "c.csv").read_text()
        assert not (sonde.cwd / "-").exists()

    def test_what_cannot_be_written_leaves_nothing(self, sonde, programs):
        traced(sonde, programs, "plain")
        error = sonde("io", "convert", "a.nc", "-o", "nowhere/a.csv", "--json").expect(3).json["error"]
        assert error["code"] == "core.cannot_write"
        error = sonde("io", "convert", "a.nc", "-o", "a.txt", "--json").expect(2).json["error"]
        assert "--to perfetto" in error["hint"]
        assert (
            sonde("io", "convert", "a.nc", "--to", "parquet", "--json").expect(2).json["error"]["code"]
            == "io.no_output"
        )
        assert not list(sonde.cwd.glob("*.part"))
