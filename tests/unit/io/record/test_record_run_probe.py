"""What is probed in a file, and what the kernel and sonde-io-watch are told of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sonde.core.errors import EnvironmentFailure
from sonde.io.maps.layers import parse
from sonde.io.maps.run_elf import X86_64, Object
from sonde.io.maps.run_elf import Function as Symbol
from sonde.io.record import run_attach, run_probe
from sonde.io.record.run_probe import Definition, File, Probes, of_object

MAP = """
layer = "l"
libraries = ["libl.so*"]
fails = "negative"
[[functions]]
names = ["l_read"]
size = "result * arg(1)"
result = "i32"
offset = "arg(6)"
file = "arg(0):i32"
[[functions]]
names = ["l_open"]
kind = "open"
path = "text(0)"
file = "result"
fails = "null"
[[functions]]
names = ["l_vector", "l_far"]
size = "arg(1) * arg(2)"
offset = "ref(3):i32"
file = "out(4)"
[[functions]]
names = ["l_*", "_Zl*"]
"""
LAYER = parse(MAP, "l.toml")
FILE = File(Path("/lib/libl.so.1"), Path("/lib/libl.so.1"))


def held(*functions: Symbol, needed=(), executable=False, go=False) -> Object:
    return Object(X86_64, functions, ((0x1000, 0x200, 0x900),), needed, executable, go)


def probed(found: Object, name: str = "libl.so.1", attached: bool = False) -> dict[str, tuple[int, str]]:
    """What is probed: offset and kind of each function."""
    return {
        probe.symbol: (probe.offset, "attached" if probe.attached_only else "all")
        for probe in of_object([LAYER], File(Path("/x") / name, Path("/x")), found, attached)
    }


class TestChoice:
    def test_what_is_exported_is_interposed_unless_a_process_runs_already(self):
        one = held(Symbol("l_read", 0x1010, exported=True), Symbol("l_own", 0x1020, local=True))
        assert probed(one) == {"l_own": (0x220, "all")}
        assert probed(one, attached=True) == {"l_read": (0x210, "attached"), "l_own": (0x220, "all")}

    def test_another_name_of_an_exported_function_is_the_same_function(self):
        one = held(Symbol("l_read", 0x1010, exported=True), Symbol("l_read_alias", 0x1010, local=True))
        assert probed(one) == {}
        assert probed(one, attached=True) == {"l_read": (0x210, "attached")}

    def test_only_of_files_that_a_map_is_for(self):
        assert probed(held(Symbol("l_own", 0x1020)), "libother.so") == {}

    def test_a_program_may_hold_a_library_that_it_is_not_linked_with(self):
        functions = (Symbol("l_own", 0x1020), Symbol("l_read", 0x1030, exported=True))
        both = {"l_read": (0x230, "all"), "l_own": (0x220, "all")}
        assert probed(held(*functions, executable=True), "program") == both
        assert probed(held(*functions, executable=True, needed=("libl.so.1",)), "program") == {}

    def test_of_two_of_one_name_a_program_s_own_is_not_the_library_s(self):
        functions = (
            Symbol("l_read", 0x1010, local=True),
            Symbol("l_read", 0x1020),
            Symbol("l_own", 0x1030, local=True),
        )
        assert probed(held(*functions, executable=True), "program") == {
            "l_read": (0x220, "all"),
            "l_own": (0x230, "all"),
        }

    def test_what_the_compiler_made_of_a_function(self):
        (one,) = of_object([LAYER], FILE, held(Symbol("l_read.constprop.0", 0x1010, local=True)), False)
        assert (one.symbol, one.changed) == ("l_read", True)
        (one,) = of_object([LAYER], FILE, held(Symbol("l_read.lto_priv.3", 0x1010, local=True)), False)
        assert (one.symbol, one.changed) == ("l_read", False)
        assert (
            of_object(
                [LAYER], FILE, held(Symbol("l_read.part.0", 0x1010), Symbol("l_read.cold", 0x1020)), False
            )
            == []
        )

    def test_returns_of_what_may_throw_or_move_its_stack_are_left_alone(self):
        (one,) = of_object([LAYER], FILE, held(Symbol("_Zl3v", 0x1010)), False)
        assert one.entry_only
        (one,) = of_object([LAYER], FILE, held(Symbol("l_own", 0x1010), go=True), False)
        assert one.entry_only
        (one,) = of_object([LAYER], FILE, held(Symbol("l_own", 0x1010)), False)
        assert not one.entry_only

    def test_code_that_is_not_in_the_file_is_not_probed(self):
        assert probed(held(Symbol("l_own", 0x5000))) == {}


def defined(name: str, **more: object) -> Definition:
    (probe,) = of_object([LAYER], FILE, held(Symbol(name, 0x1010, **more)), False)
    return Definition.of(probe, 5)


class TestDefinitions:
    def test_arguments_come_from_registers_the_stack_and_behind_pointers(self):
        common = r"stack=%sp:u64 function=\5:u32"
        read, open_, vector = defined("l_read"), defined("l_open"), defined("l_vector")
        assert read.entry == rf"{common} size=%si:u64 size_times=\0:u64 offset=$stack1:u64 file=%di:u64"
        assert read.exit == rf"{common} result=$retval:u64"
        assert (
            open_.entry
            == rf"{common} size=\0:u64 size_times=\0:u64 offset=\0:u64 file=\0:u64 path=+0(%di):string"
        )
        assert vector.entry == rf"{common} size=%si:u64 size_times=%dx:u64 offset=+0(%cx):s32 file=\0:u64"
        assert len({read.form, open_.form, vector.form, defined("l_own").form}) == 3  # l_own's is l_read's

    def test_the_watcher_is_told_where_they_stand(self):
        entry = {
            "stack": 16,
            "function": 24,
            "size": 28,
            "size_times": 36,
            "offset": 44,
            "file": 52,
            "path": 60,
        }
        exit_ = {"stack": 16, "function": 24, "result": 28}
        assert defined("l_read").line(5, entry, exit_) == (
            "probe 5 all both 16 16 @28:i32 negative r*@28 @44 @52:i32 -"
        )
        assert defined("l_open").line(5, entry, exit_) == "probe 5 all both 16 16 @28 null - - r @60"
        assert defined("l_vector").line(5, entry, exit_) == (
            "probe 5 all both 16 16 @28 negative @28*@36 @44:i32 - -"
        )
        assert defined("_Zlx").line(5, entry, {}) == "probe 5 all entry 16 0 - negative - - - -"

    def test_of_a_changed_function_nothing_is_read(self):
        changed = defined("l_read.isra.0", local=True)
        assert changed.values == {}
        assert "%di" not in changed.entry
        exit_ = {"stack": 16, "function": 24, "result": 28}
        assert (
            changed.line(5, {"stack": 16, "function": 24}, exit_)
            == "probe 5 all both 16 16 @28 never - - - -"
        )

    def test_what_stays_unknown_is_named(self):
        probes = of_object(
            [LAYER], FILE, held(Symbol("l_vector", 0x1010), Symbol("l_read.isra.0", 0x1020)), False
        )
        assert run_probe.unreadable(probes) == ["l_read (size, offset, file)", "l_vector (file)"]


class TestTracefs:
    def test_probes_of_one_form_share_an_event_and_go_again(self, tmp_path):
        code = tmp_path / "libl.so.1"
        code.write_bytes(b"\0" * 0x10 + b"\xf3\x0f\x1e\xfa" + b"\0" * 0x100)
        (tmp_path / "uprobe_events").write_text("p:other/e0 /x:0x1\n")
        file = File(code, code)
        found = Object(
            X86_64, (Symbol("l_own", 0x10), Symbol("l_more", 0x20), Symbol("l_open", 0x30)), ((0, 0, 0x100),)
        )
        placed = Probes(tmp_path, "7_8")
        placed.add(of_object([LAYER], file, found, False))
        lines = (tmp_path / "uprobe_events").read_text().splitlines()[1:]
        assert [line.split()[0] for line in lines] == [
            *(
                "p:sonde_io_7_8/e0_7_8",
                "r:sonde_io_7_8/x0_7_8",
                "p:sonde_io_7_8/e1_7_8",
                "r:sonde_io_7_8/x0_7_8",
            ),
            *("p:sonde_io_7_8/e1_7_8", "r:sonde_io_7_8/x0_7_8"),
        ]
        # Behind the instruction that only says that calls may come here.
        assert f"{code}:0x14" in "".join(lines)
        assert run_probe.groups(tmp_path) == ["sonde_io_7_8"]
        (tmp_path / "uprobe_profile").write_text(
            "  /x e0_7_9 100\n  /a b e0_7_8   3\n  /x e1_7_8  4\n  /x x0_7_8  7\n"
        )
        assert placed.hits() == 7
        codes = [warning.code for warning in placed.warnings(5, lost=False)]
        assert codes == ["io.probes_hit_elsewhere"]
        assert placed.warnings(7, lost=False) == placed.warnings(5, lost=True) == []
        run_probe.remove(tmp_path, "sonde_io_7_8")
        assert "-:sonde_io_7_8/e0_7_8" in (tmp_path / "uprobe_events").read_text().splitlines()
        assert "-:other/e0" not in (tmp_path / "uprobe_events").read_text()

    def test_a_kernel_without_uprobes(self, tmp_path):
        placed = Probes(tmp_path, "7_8")
        placed.add([])
        with pytest.raises(EnvironmentFailure) as told:
            placed.add(of_object([LAYER], FILE, held(Symbol("l_own", 0x1010)), False))
        assert told.value.code == "io.no_uprobes"

    @pytest.mark.parametrize(
        ("release", "harm"),
        [
            ("6.10.14", False),
            ("6.11.4-arch1", True),
            ("6.12.13-amd64", True),
            ("6.12.38+deb13-amd64", False),
            ("6.13.2", True),
            ("6.13.3", False),
            ("6.14.0-rc1", False),
            ("5.14.0-503.el9.x86_64", False),
            ("odd", False),
        ],
    )
    def test_kernels_that_kill_what_comes_by_a_probe(self, release, harm):
        assert run_probe.does_harm(release) is harm

    def test_files_of_a_process(self):
        found = {file.path: file for file in run_probe.files_of(os.getpid())}
        python = Path(os.path.realpath("/proc/self/exe"))
        assert os.path.samefile(found[python].at, python)

    def test_files_of_a_program_at_a_fixed_place(self, tmp_path):
        """Its addresses are shorter than those that the loader chooses: /proc writes them in two ways."""
        source = '#include <unistd.h>\nint main(void) { write(1, "!", 1); for (;;) pause(); }\n'
        line = ["cc", "-w", "-fno-pie", "-no-pie", "-o", str(tmp_path / "fixed"), "-x", "c", "-"]
        subprocess.run(line, input=source, text=True, check=True)
        with subprocess.Popen([tmp_path / "fixed"], stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.read(1) == b"!"
                found = {file.path: file.at for file in run_probe.files_of(process.pid)}
                assert os.path.samefile(found[tmp_path / "fixed"], tmp_path / "fixed")
            finally:
                process.kill()


class TestAttach:
    def test_a_process_and_what_it_has_open(self, tmp_path):
        import socket

        with (tmp_path / "data").open("w") as file, socket.socket() as link:
            pid = os.fork()
            if pid == 0:
                import signal

                signal.pause()
                os._exit(0)
            try:
                one = run_attach.process(pid)
                assert (one.number, Path(one.program).name) == (
                    pid,
                    Path(os.path.realpath("/proc/self/exe")).name,
                )
                assert (file.fileno(), str(tmp_path / "data")) in one.open
                assert (link.fileno(), "") in one.open  # no file
                assert "" not in {name for descriptor, name in one.open if descriptor <= 2}
                with run_attach.ends_of([one]) as wait:
                    assert wait(0.05, lambda: False) == "budget"
                    assert wait(None, lambda: True) == "stopped"
                    os.kill(pid, 9)
                    assert wait(None, lambda: False) == "ended"
            finally:
                os.waitpid(pid, 0)

    def test_of_this_process_and_without_rights(self, monkeypatch):
        from sonde.core.errors import UsageError

        with pytest.raises(UsageError, match="this Sonde itself"):
            run_attach.process(os.getpid())
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        with pytest.raises(EnvironmentFailure) as told:
            run_attach.check_rights()
        assert told.value.code == "io.no_root"
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(os, "readlink", lambda _: "pid:[4026532000]")
        with pytest.raises(EnvironmentFailure) as told:
            run_attach.check_rights()
        assert told.value.code == "io.other_namespace"
