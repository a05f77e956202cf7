"""`sonde io run` changes nothing of a program, behind filters and at limits, too, and says what it cannot see."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sonde_shell import PROGRAM, Shell

DATA = Path(__file__).parents[1] / "data" / "io"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """A folder with `sandbox` and `limited`."""
    folder = tmp_path_factory.mktemp("programs")
    for name in ("sandbox", "limited"):
        line = ["cc", "-O1", "-w", "-o", folder / name, DATA / f"{name}.c", "-lpthread"]
        subprocess.run(list(map(str, line)), check=True)
    return folder


def built(folder: Path, name: str, source: str, *words: str) -> None:
    shared = ["-shared", "-fPIC"] if name.endswith(".so") else []
    subprocess.run(
        ["cc", "-w", *shared, "-o", name, "-x", "c", "-", *words],
        cwd=folder,
        input=source,
        text=True,
        check=True,
    )


def both(sonde: Shell, *line: object, limits: str = "") -> dict:
    """The `--json` of a command that ended as it does without the tracer, with the same output."""
    words = [str(word) for word in line]
    around = ["sh", "-c", f'{limits} exec "$@"', "sh"] if limits else []
    plain = subprocess.run([*around, *words], cwd=sonde.cwd, text=True, capture_output=True)
    ran = subprocess.run(
        [*around, PROGRAM, "io", "run", "-o", "a.nc", "--", *words],
        cwd=sonde.cwd,
        env=sonde.env,
        text=True,
        capture_output=True,
    )
    ended = 128 - plain.returncode if plain.returncode < 0 else plain.returncode
    assert (ran.returncode, ran.stdout) == (ended, plain.stdout), ran.stderr
    assert ran.stderr.startswith(plain.stderr)
    return sonde("io", "show", "a.nc", "--json").expect(0).json


def counts(told: dict) -> dict[str, int]:
    return {one["function"]: one["calls"] for one in told["functions"] if one["layer"] != "tracer"}


def codes(told: dict) -> set[str]:
    return {warning["code"] for warning in told["warnings"]} - {"io.command_failed"}


def lost(told: dict) -> str:
    """Why calls are not in the trace, and that it is told how many."""
    return " ".join(
        warning["evidence"]
        for warning in told["warnings"]
        if warning["code"] in ("io.calls_lost", "io.threads_not_traced")
    )


class TestFilters:
    @pytest.mark.parametrize("how", ["only", "errno", "trap"])
    @pytest.mark.parametrize("who", ["prctl", "syscall", "twice"])
    def test_a_program_behind_a_filter_ends_as_it_does_untraced(self, sonde, programs, how, who):
        told = both(sonde, programs / "sandbox", how, who, "data", 5000)
        assert (sonde.cwd / "data").stat().st_size == 5000 * 64
        assert told["functions"], "what was before the filter is in the trace"
        assert 0 < counts(told)["write"] < 5000
        assert "seccomp" in lost(told)

    @pytest.mark.parametrize("who", ["prctl", "syscall"])
    def test_strict_mode_forbids_the_processor_s_clock_too(self, sonde, programs, who):
        told = both(sonde, programs / "sandbox", "strict", who, "data", 5000)
        assert (sonde.cwd / "data").stat().st_size == 5000 * 64
        assert counts(told) == {"open": 1}
        assert codes(told) == {"io.not_seen"}

    def test_a_program_that_gives_up_the_processor_s_clock(self, sonde):
        built(sonde.cwd, "clockless", CLOCKLESS, "-lpthread")
        told = both(sonde, "./clockless", "./clockless")
        assert codes(told) == {"io.not_seen"}

    @pytest.mark.parametrize("who", ["thread", "child"])
    def test_who_begins_behind_a_filter_ends_as_it_does_untraced(self, sonde, programs, who):
        told = both(sonde, programs / "sandbox", "deny", who, "data", 300)
        assert (sonde.cwd / "data").stat().st_size == 300 * 64
        if who == "thread":  # it was given a place that was there before
            assert counts(told)["write"] == 300

    def test_who_may_not_open_files_any_more_goes_on_with_the_one_that_is_open(self, sonde, programs):
        told = both(sonde, programs / "sandbox", "deny", "prctl", "data", 5000)
        assert counts(told)["write"] == 5000
        assert codes(told) == set()

    def test_a_filter_that_lets_the_tracer_write_costs_no_call(self, sonde, programs):
        for who in ("prctl", "syscall", "twice", "thread", "child"):
            told = both(sonde, programs / "sandbox", "open", who, "data", 2000)
            assert counts(told)["write"] == 2000, who
            assert codes(told) == set(), who


CLOCKLESS = """
#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>
static void* work(void* file) {
  for (int k = 0; k < 100; ++k) write(*(int*)file, "x", 1);
  return 0;
}
int main(int n, char** words) {
  int file = open("data", O_CREAT | O_WRONLY | O_APPEND, 0644);
  pthread_t thread;
  prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
  work(&file);
  pthread_create(&thread, 0, work, &file);
  pthread_join(thread, 0);
  if (fork() == 0) work(&file);
  if (n > 1) execl(words[1], words[1], (char*)0);
  return 5;
}
"""


class TestLimits:
    @pytest.mark.parametrize("most", [0, 100, 40_000, 100_000])
    def test_a_program_that_bounds_its_own_files(self, sonde, programs, most):
        told = both(sonde, programs / "limited", "size", most)
        assert counts(told)["pread"] > 1000
        assert counts(told)["pread"] == 4000 or "ulimit -f" in lost(told)

    @pytest.mark.parametrize("blocks", [0, 8, 64, 1024])
    def test_a_program_that_is_started_with_a_limit_of_file_sizes(self, sonde, programs, blocks):
        """Set by a shell within: Sonde has none itself."""
        line = ("sh", "-c", f'ulimit -f {blocks}; "$0" rewrite 5000', programs / "limited")
        words = [str(word) for word in line]
        plain = subprocess.run(words, cwd=sonde.cwd).returncode
        ran = sonde("io", "run", "--json", "-o", "a.nc", "--", *words)
        assert ran.code == (128 - plain if plain < 0 else plain)
        told = ran.json
        reason = told["error"]["what"] if "error" in told else lost(told)
        assert "ulimit -f" in reason or counts(told)["pwrite"] == 5000

    @pytest.mark.parametrize(("limit", "threads"), [(64, 50), (256, 245)])
    def test_threads_near_the_limit_of_descriptors(self, sonde, programs, limit, threads):
        told = both(sonde, programs / "limited", "threads", threads, limits=f"ulimit -n {limit};")
        assert counts(told)["write"] == threads

    @pytest.mark.parametrize("limits", ["ulimit -n 100;", "ulimit -Sn 100;"])
    def test_every_descriptor_is_the_program_s(self, sonde, programs, limits):
        told = both(sonde, programs / "limited", "all", limits=limits)
        assert counts(told)["write"] == 1000 or "ulimit -n" in lost(told)

    def test_streams_that_are_closed_stay_the_program_s(self, sonde):
        """A descriptor of the tracer's below 3 would be where another thread prints to."""
        built(sonde.cwd, "closed", CLOSED, "-lpthread")
        for streams in ("0<&- 1>&- 2>&-", "1>&-", "0<&- 2>&-"):
            words = ["sh", "-c", f"./closed {streams}; echo $?"]
            plain = subprocess.run(words, cwd=sonde.cwd, text=True, capture_output=True).stdout
            ran = sonde("io", "run", "--json", "-o", "a.nc", "--", *words).expect(0)
            assert ran.err == plain
            assert codes(ran.json) <= {"io.calls_lost", "io.threads_not_traced", "core.records_dropped"}
            (sonde.cwd / "a.nc").unlink()


CLOSED = """
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void* prints(void* wanted) {
  for (int k = 0; k < 20000; ++k) {
    if (write(1, "x", 1) == 1) ++*(int*)wanted;
    write(2, "", 0);
  }
  return 0;
}
int main(void) {
  int written[3] = {0, 0, 0};
  pthread_t threads[3];
  for (int k = 0; k < 3; ++k) pthread_create(threads + k, 0, prints, written + k);
  for (int k = 0; k < 3; ++k) pthread_join(threads[k], 0);
  int sum = 0;
  for (int k = 0; k < 3; ++k) sum += written[k];
  return sum != 0 && sum != 60000 ? 1 : sum == 0 ? 2 : 3;
}
"""


class TestStdout:
    def test_what_the_program_prints_is_all_that_is_printed(self, sonde):
        data = os.urandom(50_000)
        (sonde.cwd / "f").write_bytes(data)
        plain = subprocess.run(["cat", "f"], cwd=sonde.cwd, capture_output=True).stdout
        line = [PROGRAM, "io", "run", "-o", "a.nc", "--", "cat", "f"]
        ran = subprocess.run(line, cwd=sonde.cwd, env=sonde.env, capture_output=True)
        assert (ran.returncode, ran.stdout) == (0, plain)
        assert b"Layers, from the program down" in ran.stderr

    def test_a_reader_that_leaves_is_the_program_s_matter(self, sonde):
        line = f'set -o pipefail; "{PROGRAM}" io run -o a.nc -- seq 100000 | head -1; exit ${{PIPESTATUS[0]}}'
        ran = subprocess.run(
            ["bash", "-c", line], cwd=sonde.cwd, env=sonde.env, capture_output=True, text=True
        )
        assert (ran.returncode, ran.stdout) == (128 + 13, "1\n")


PLUGIN = """
#include <fcntl.h>
#include <unistd.h>
int plug(const char* name) {
  int file = open(name, O_CREAT | O_TRUNC | O_RDWR, 0644);
  for (int k = 0; k < 12; ++k) write(file, "12345678", 8);
  return close(file);
}
"""
OPENER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
int main(int n, char** words) {
  access("x", R_OK);
  void* library = dlmopen(atoi(words[1]) ? LM_ID_NEWLM : LM_ID_BASE, "./libplug.so", RTLD_NOW);
  int (*call)(const char*) = (int (*)(const char*))dlsym(library, "plug");
  return call("data");
}
"""
THREAD_LOCAL = """
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
static __thread ssize_t (*writes)(int, const void*, size_t) = write;
static int file;
static void* work(void* none) {
  for (int k = 0; k < 10; ++k) writes(file, "x", 1);
  return 0;
}
int main(void) {
  file = open("data", O_CREAT | O_TRUNC | O_WRONLY, 0644);
  pthread_t thread;
  work(0);
  pthread_create(&thread, 0, work, 0);
  pthread_join(thread, 0);
  return 0;
}
"""
PAST = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int n, char** words) {
  int file = open("data", O_CREAT | O_TRUNC | O_WRONLY, 0644);
  struct io_uring_params ring;
  memset(&ring, 0, sizeof ring);
  if (!strcmp(words[1], "uring")) syscall(SYS_io_uring_setup, 4, &ring);
  if (!strcmp(words[1], "raw")) for (int k = 0; k < 5; ++k) syscall(SYS_write, file, "x", 1);
  if (!strcmp(words[1], "aio")) syscall(SYS_io_submit, 0, 0, 0);
  if (!strcmp(words[1], "kernel's")) {
    char text[8];
    int made_up = syscall(SYS_openat, AT_FDCWD, "/proc/sys/vm/overcommit_memory", O_RDONLY);
    if (syscall(SYS_read, made_up, text, sizeof text) < 1) return 1;
    syscall(SYS_close, made_up);
  }
  if (!strcmp(words[1], "none")) for (int k = 0; k < 5; ++k) syscall(SYS_gettid);
  return 0;
}
"""


class TestUnseen:
    def test_libraries_in_a_namespace_of_their_own_are_reported_of(self, sonde):
        built(sonde.cwd, "libplug.so", PLUGIN)
        built(sonde.cwd, "opener", OPENER, "-ldl")
        seen = sonde("io", "run", "--json", "-o", "a.nc", "--", "./opener", 0).expect(0).json
        assert (counts(seen)["write"], codes(seen)) == (12, set())
        told = sonde("io", "run", "--json", "-o", "b.nc", "--", "./opener", 1).expect(0).json
        assert counts(told).get("write", 0) == 12 or "io.not_seen" in codes(told)

    def test_pointers_to_functions_that_each_thread_has(self, sonde):
        built(sonde.cwd, "local", THREAD_LOCAL, "-lpthread")
        told = sonde("io", "run", "--json", "-o", "a.nc", "--", "./local").expect(0).json
        assert counts(told)["write"] == 20

    @pytest.mark.parametrize(
        ("way", "word"), [("uring", "io_uring"), ("raw", "syscall(2)"), ("aio", "io_submit")]
    )
    def test_what_goes_past_the_c_library_is_reported_of(self, sonde, way, word):
        built(sonde.cwd, "past", PAST)
        told = sonde("io", "run", "--json", "-o", "a.nc", "--", "./past", way).expect(0).json
        (warning,) = told["warnings"]
        assert warning["code"] == "io.not_seen"
        assert word in warning["evidence"]
        assert word in sonde("io", "show", "a.nc").expect(0).err.replace("\n", " ")

    @pytest.mark.parametrize("way", ["none", "kernel's"])
    def test_other_system_calls_and_files_that_the_kernel_makes_up_are_not(self, sonde, way):
        built(sonde.cwd, "past", PAST)
        assert codes(sonde("io", "run", "--json", "-o", "a.nc", "--", "./past", way).expect(0).json) == set()


class TestStarters:
    def test_a_shell_that_does_the_i_o_itself_is_named_and_can_be_traced(self, sonde):
        line = ("bash", "-c", "for k in 1 2 3; do echo x >> f; done")
        error = sonde("io", "run", "--json", "-o", "a.nc", "--", *line).expect(3).json["error"]
        assert "bash" in error["what"]
        assert "io run --starters -- bash -c" in error["hint"]
        told = sonde("io", "run", "--starters", "--json", "-o", "a.nc", "--", *line).expect(0).json
        assert counts(told)["open"] >= 3

    def test_an_environment_that_is_cleared_is_named(self, sonde):
        for words in (("-i",), ("-", "A=1"), ("-u", "LD_PRELOAD"), ("--ignore-environment",)):
            line = ("env", *words, shutil.which("cat"), "/dev/null")
            error = sonde("io", "run", "--json", "-o", "a.nc", "--", *line).expect(3).json["error"]
            assert f"env {words[0]}" in error["what"]
            assert "clears the environment" in error["what"]

    def test_a_program_of_one_s_own_that_is_called_as_a_tool_is_traced(self, sonde, programs):
        shutil.copy(programs / "limited", sonde.cwd / "nice")
        told = sonde("io", "run", "--json", "-o", "a.nc", "--", "./nice", "rewrite", 5).expect(5).json
        assert counts(told)["pwrite"] == 5


class TestNames:
    def test_any_byte_may_be_in_the_name_of_a_file_or_an_argument(self, sonde):
        names = [
            b"plain",
            b"new\nline",
            b"esc\x1b[31m",
            b"bad\xff",
            b"bad\xfe",
            b"\xe2\x80\xa8",
            b"a\ttab",
            b"\xc2\x85nel",
        ]
        source = "import os, sys\nfor name in sys.argv[1:]:\n  with open(os.fsencode(name), 'wb') as f: f.write(b'x')\n"
        shutil.copy(shutil.which("true"), os.fsencode(sonde.cwd) + b"/prog\xe9")
        line = [PROGRAM, "io", "run", "-o", "a.nc", "--", "python3", "-c", source, *names]
        ran = subprocess.run(line, cwd=sonde.cwd, env=sonde.env, capture_output=True)
        assert ran.returncode == 0, ran.stderr
        assert b"\x1b[31m" not in ran.stderr + ran.stdout
        told = sonde("io", "show", "a.nc", "--all", "--json").expect(0).json
        mine = [one["path"] for one in told["files"] if one["write"]["bytes"] == 1]
        assert sorted(mine) == sorted(name.decode("utf-8", "backslashreplace") for name in names)
        lines = sonde("io", "convert", "a.nc", "--to", "csv").expect(0).out.split("\n")
        heads = lines[0].count(",")
        assert "\x1b" not in "".join(lines)
        assert all(line.count(",") == heads for line in lines[1:-1] if '"' not in line)
        shown = sonde("io", "show", "a.nc", "--all").expect(0).out
        assert "new\\x0aline" in shown

    def test_an_argument_that_is_no_text_loses_no_trace(self, sonde):
        line = [PROGRAM, "io", "run", "-o", "a.nc", "--", "cat", b"/dev/null", b"\xe9"]
        ran = subprocess.run(line, cwd=sonde.cwd, env=sonde.env, capture_output=True)
        assert ran.returncode == 1
        sonde("io", "show", "a.nc").expect(0)
