"""Unmodified h5py scripts with their files in the store, against the same scripts with files on disk."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import pytest

from sonde.core.launch import libexec
from sonde_shell import PROGRAM

SCRIPTS = Path(__file__).parent / "h5py_scripts"
PLUGINS = libexec().parent / "lib" / "hdf5"
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.py") if path.stem != "dump")

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
HDF5 = ".".join(h5py.version.hdf5_version.split(".")[:2])
pytestmark = pytest.mark.skipif(
    not (PLUGINS / "connector" / f"sonde-h5-{HDF5}.so").exists(),
    reason=f"no HDF5 connector for h5py's HDF5 {HDF5} was built",
)


class Server:
    """A sonde-stored in a folder of its own, which a test may kill and start again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = 0
        self.start()

    def start(self) -> None:
        command = [libexec() / "sonde-stored", "--with-parent", "--listen", f"127.0.0.1:{self.port}"]
        command += ["--backend", f"data=posix,path={self.folder}/data", "--backend", f"kv={self.kv()}"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        ready = json.loads(self.process.stdout.readline())
        assert ready["event"] == "ready"
        self.port = ready["port"]

    def kv(self) -> str:
        have = json.loads(
            subprocess.run(
                [libexec() / "sonde-stored", "--list"], capture_output=True, check=True, text=True
            ).stdout
        )
        return f"lmdb,path={self.folder}/kv" if "lmdb" in json.dumps(have) else "memory"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    if not (libexec() / "sonde-stored").exists():
        pytest.skip("sonde-stored was not built")
    server = Server(tmp_path / "server")
    yield server
    server.kill()


@pytest.fixture(params=["embedded", "one server", "two servers"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """What follows `sonde` in HDF5_VOL_CONNECTOR."""
    if request.param == "embedded":
        yield f"embedded={tmp_path}/store"
        return
    if not (libexec() / "sonde-stored").exists():
        pytest.skip("sonde-stored was not built")
    servers = [Server(tmp_path / f"server{k}") for k in range(1 if request.param == "one server" else 2)]
    yield "servers=" + ",".join(s.address for s in servers) + ";stripe=64KiB"
    for s in servers:
        s.kill()


def environment(settings: str | None) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HDF5_", "SONDE_STORE_"))}
    if settings is None:
        return clean
    return clean | {"HDF5_PLUGIN_PATH": str(PLUGINS), "HDF5_VOL_CONNECTOR": f"sonde {settings}"}


def run(settings: str | None, *args: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-X", "faulthandler", *args],
        env=environment(settings), capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert not check or done.returncode == 0, done.stderr
    return done


def sonde(*words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """`sonde store WORDS`."""
    env = environment(None) | env
    return subprocess.run(
        [PROGRAM, "store", *words], env=env, capture_output=True, text=True, timeout=240, check=False
    )


def code(settings: str | None, text: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return run(settings, "-c", "import h5py, sys, os\nimport numpy as np\n" + text, check=check)


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, str]]:
    """Of a script the file that it was given, which is on disk no more, and what was dumped of it."""
    folder = tmp_path_factory.mktemp("files")

    @cache
    def made(name: str) -> tuple[Path, str]:
        path = folder / f"{name}.h5"
        run(None, SCRIPTS / f"{name}.py", path)
        native = run(None, SCRIPTS / "dump.py", path).stdout
        assert native.count("\n") > 5
        for written in folder.iterdir():
            written.unlink()
        return path, native

    return made


@pytest.mark.parametrize("name", NAMES)
def test_script_gives_the_same_in_the_store_as_on_disk(
    name: str, settings: str, on_disk: Callable[[str], tuple[Path, str]]
) -> None:
    # The file has the same name in both, so that what the script tells of it is the same too.
    path, native = on_disk(name)
    run(settings, SCRIPTS / f"{name}.py", path)
    assert not list(path.parent.iterdir()), "the script wrote to the disk"
    assert run(settings, SCRIPTS / "dump.py", path).stdout == native


def test_another_process_sees_what_was_flushed(settings: str, tmp_path: Path) -> None:
    path = tmp_path / "shared.h5"
    writer = subprocess.Popen(
        [sys.executable, "-c", f"""
import h5py, sys
f = h5py.File({str(path)!r}, "w")
f["first"] = list(range(1000))
f["first"].attrs["unit"] = "m"
f.flush()
print("flushed", flush=True)
sys.stdin.readline()
f["second"] = 2
f.close()
print("closed", flush=True)
sys.stdin.readline()
"""],
        env=environment(settings), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert writer.stdin
    assert writer.stdout
    read = (
        f"f = h5py.File({str(path)!r}, 'r'); print(sorted(f), f['first'][:].sum(), f['first'].attrs['unit'])"
    )
    assert writer.stdout.readline() == "flushed\n"
    if "embedded" not in settings:  # an embedded store belongs to one process at a time
        assert code(settings, read).stdout == "['first'] 499500 m\n"
    writer.stdin.write("go on\n")
    writer.stdin.flush()
    assert writer.stdout.readline() == "closed\n"
    if "embedded" not in settings:
        assert code(settings, read).stdout == "['first', 'second'] 499500 m\n"
    writer.communicate("end\n")
    assert code(settings, read).stdout == "['first', 'second'] 499500 m\n"


def test_file_modes_and_their_errors(settings: str, tmp_path: Path) -> None:
    told = code(
        settings,
        f"""
name = {str(tmp_path / "modes.h5")!r}
def attempt(mode):
    try:
        with h5py.File(name, mode) as f:
            print(mode, sorted(f))
            if mode != "r":
                f.require_group(mode)
    except OSError as error:
        print(mode, type(error).__name__, error.errno)
for mode in ["r", "r+", "a", "a", "x", "w-", "r+", "r", "w", "r"]:
    attempt(mode)
with h5py.File(name, "r") as f:
    changes = [lambda: f.create_group("x"), lambda: f["w"].attrs.create("x", 1), lambda: f.create_dataset("x", data=1)]
    for change in changes:
        try:
            change()
        except Exception as error:
            print("read-only" in str(error) or "no write intent" in str(error))
    try:
        h5py.File(name, "w")
    except OSError as error:
        print("open in this process" in str(error))
""",
    ).stdout.splitlines()
    assert told[:10] == [
        "r FileNotFoundError 2", "r+ FileNotFoundError 2", "a []", "a ['a']",
        "x FileExistsError 17", "w- FileExistsError 17",
        "r+ ['a']", "r ['a', 'r+']", "w []", "r ['w']",
    ]  # fmt: skip
    assert told[10:] == ["True"] * 4


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[str]]:
    """The addresses of two servers."""
    if not (libexec() / "sonde-stored").exists():
        pytest.skip("sonde-stored was not built")
    servers = [Server(tmp_path / f"server{k}") for k in range(2)]
    yield [server.address for server in servers]
    for server in servers:
        server.kill()


def test_files_are_listed_and_removed_from_the_command_line(two: list[str], tmp_path: Path) -> None:
    store = partial(sonde, SONDE_STORE_SERVERS=",".join(two))
    settings = f"servers={','.join(two)};stripe=64KiB"
    first, other = tmp_path / "first.h5", tmp_path / "other.h5"
    make = "f['x'] = np.arange(100000.); f['small'] = 1; f.close()"
    for path in (first, other):
        code(settings, f"f = h5py.File({str(path)!r}, 'w'); {make}")
    rows = [line.split() for line in store("ls", f"hdf5:{tmp_path}/", "--long").stdout.splitlines()]
    assert [row[-1] for row in rows] == [f"hdf5:{first}", f"hdf5:{other}"]
    assert all(800_000 < int(row[0]) < 900_000 for row in rows)
    space = json.loads(store("stat", f"hdf5:{first}", "--json").stdout)["space"]
    assert store("ls", f"object:{space}").stdout
    assert store("rm", f"hdf5:{first}").returncode == 0
    assert store("ls", "hdf5:").stdout == f"hdf5:{other}\n"
    assert store("ls", f"object:{space}").stdout == store("ls", f"kv:{space}").stdout == ""
    read = "print(h5py.File({!r}, 'r')['x'][:].sum())"
    assert code(settings, read.format(str(other))).stdout == "4999950000.0\n"
    assert "FileNotFoundError" in code(settings, read.format(str(first)), check=False).stderr


def test_a_file_is_refused_to_who_names_its_servers_in_another_order(two: list[str], tmp_path: Path) -> None:
    there, back = (",".join(order) for order in (two, two[::-1]))
    for number in range(4):  # wherever their names put them
        path = str(tmp_path / f"{number}.h5")
        code(f"servers={there}", f"f = h5py.File({path!r}, 'w'); f['x'] = np.arange(1000000); f.close()")
        for mode in ("r", "r+", "w"):
            told = code(f"servers={back}", f"h5py.File({path!r}, {mode!r})", check=False)
            assert told.returncode == 1
            assert (
                f"stored on the servers {', '.join(two)}, but the named servers are {', '.join(two[::-1])}"
                in told.stderr
            )
        assert code(f"servers={there}", f"print(h5py.File({path!r})['x'][-1])").stdout == "999999\n"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("servers=127.0.0.1:1;connect_timeout=2", ["127.0.0.1:1", "store.unreachable", "hint"]),
        ("", ["SONDE_STORE_SERVERS", "sonde store serve"]),
        ("sever=x", ["'sever=x'", "servers=H:P"]),
        ("embedded=memory;stripe=often", ["stripe=often", "1MiB"]),
        ("embedded=memory;flush=soon", ["'flush=soon' is not a setting", "flush=network|storage"]),
        ("embedded=memory;nodelay=maybe", ["'nodelay=maybe' is not a setting", "nodelay=yes|no"]),
        ("embedded=memory;connections=0", ["connections=0"]),
    ],
)
def test_a_store_that_cannot_be_used_is_said_to_be_so(settings: str, words: list[str]) -> None:
    done = code(settings, "h5py.File('x.h5', 'w')", check=False)
    assert done.returncode == 1
    assert "OSError" in done.stderr
    assert not [word for word in words if word not in done.stderr], done.stderr


def test_how_frames_are_sent_and_flush_can_be_chosen(server: Server, tmp_path: Path) -> None:
    path = str(tmp_path / "x.h5")
    chosen = f"servers={server.address};flush=network;connections=1;nodelay=no;gather=no;spin=0;checksum=no"
    wrote = code(
        chosen, f"f = h5py.File({path!r}, 'w'); f['a'] = np.arange(1000); f.flush(); print(f['a'][-1])"
    )
    assert wrote.stdout == "999\n"
    assert code(f"servers={server.address}", f"print(h5py.File({path!r})['a'][-1])").stdout == "999\n"


def test_a_provider_that_is_not_there_is_named(server: Server) -> None:
    from sonde.store.run import has

    if "ofi-rdm" not in has()["transports"]:
        pytest.skip("this build has no libfabric")
    done = code(
        f"servers={server.address};transport=ofi-rdm;provider=no+such", "h5py.File('x.h5', 'w')", check=False
    )
    assert "no provider 'no;such'" in done.stderr


def test_servers_come_from_the_environment(server: Server, tmp_path: Path) -> None:
    env = environment("") | {"SONDE_STORE_SERVERS": server.address}
    path = str(tmp_path / "x.h5")
    for text in (f"h5py.File({path!r}, 'w')['a'] = 5", f"assert h5py.File({path!r}, 'r')['a'][()] == 5"):
        subprocess.run([sys.executable, "-c", f"import h5py; {text}"], env=env, check=True, timeout=60)


def test_an_hdf5_without_a_connector_is_named(tmp_path: Path) -> None:
    # What h5py does then is its own affair (2.0.0 ends in a crash for any connector that is not there).
    shutil.copy(PLUGINS / "libsonde-h5.so", tmp_path)
    env = environment("embedded=memory") | {"HDF5_PLUGIN_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", "import h5py"],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert re.search(rf"no HDF5 connector for HDF5 {re.escape(HDF5)}\.\d+ \(built: none\)", done.stderr), (
        done.stderr
    )
    assert "hint" in done.stderr


def test_what_was_flushed_outlives_a_killed_server(server: Server, tmp_path: Path) -> None:
    if "memory" in server.kv():
        pytest.skip("this build has no LMDB")
    path = str(tmp_path / "x.h5")
    settings = f"servers={server.address}"
    writer = subprocess.Popen(
        [sys.executable, "-c", f"""
import h5py, sys
f = h5py.File({path!r}, "w")
for k in range(50):
    f[f"d{{k}}"] = [k] * 1000
    f[f"d{{k}}"].attrs["k"] = k
f.flush()
print("flushed", flush=True)
sys.stdin.readline()
try:
    for k in range(100000):
        f[f"e{{k}}"] = [k] * 1000
    print("never failed")
except OSError as error:
    print("failed:", error)
try:
    f.close()
except (OSError, RuntimeError) as error:
    print("closing failed:", error)
"""],
        env=environment(settings), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert writer.stdout
    assert writer.stdout.readline() == "flushed\n"
    server.kill()
    out, err = writer.communicate("go on\n", timeout=120)
    assert writer.returncode == 0, err
    assert re.search(r"^failed: .*store\.\w+", out), out
    assert "Fatal" not in err
    server.start()
    read = f"""
f = h5py.File({path!r}, "r")
assert all((f[f"d{{k}}"][:] == k).all() and f[f"d{{k}}"].attrs["k"] == k for k in range(50))
print("all there")
"""
    assert code(f"servers={server.address}", read).stdout == "all there\n"


def test_reading_when_the_server_is_gone_fails_and_does_not_crash(server: Server, tmp_path: Path) -> None:
    path = str(tmp_path / "x.h5")
    settings = f"servers={server.address};timeout=5"
    code(settings, f"f = h5py.File({path!r}, 'w'); f['big'] = np.zeros(10**6); f['chunks'] = np.arange(100)")
    told = code(
        settings,
        f"""
import signal
f = h5py.File({path!r}, "r")
d = f["big"]
os.kill({server.process.pid}, signal.SIGKILL)
for reading in [lambda: d[:], lambda: f["chunks"][:], lambda: list(f.attrs), lambda: h5py.File({path!r} + "2", "w")]:
    try:
        reading()
    except Exception as error:
        print("store." in str(error), type(error).__name__)
""",
    ).stdout.splitlines()
    assert len(told) >= 3
    assert all(line.startswith("True") for line in told), told
    assert server.process.wait(10) == -signal.SIGKILL


def test_a_child_of_fork_has_connections_of_its_own(server: Server, tmp_path: Path) -> None:
    told = code(
        f"servers={server.address}",
        f"""
name = {str(tmp_path / "fork.h5")!r}
with h5py.File(name, "w") as f:
    f["x"] = np.arange(100)
children = []
for k in range(3):
    pid = os.fork()
    if pid == 0:
        with h5py.File(name, "r") as f:
            ok = (f["x"][:] == np.arange(100)).all()
        with h5py.File(f"{{name}}.{{k}}", "w") as f:
            f["mine"] = k
        os._exit(0 if ok else 1)
    children.append(pid)
print([os.waitpid(pid, 0)[1] for pid in children])
print([int(h5py.File(f"{{name}}.{{k}}", "r")["mine"][()]) for k in range(3)])
""",
    ).stdout.splitlines()
    assert told == ["[0, 0, 0]", "[0, 1, 2]"]


def test_a_child_of_fork_leaves_the_files_of_its_parent_alone(server: Server, tmp_path: Path) -> None:
    told = code(
        f"servers={server.address}",
        f"""
f = h5py.File({str(tmp_path / "x.h5")!r}, "w")
f["x"] = np.arange(10)
pid = os.fork()
if pid == 0:
    try:
        f["x"][:]
    except OSError as error:
        print("before fork()" in str(error), flush=True)
    sys.exit(0)  # and all that is open is closed
os.waitpid(pid, 0)
f["y"] = f["x"][:] * 2
f.close()
print(h5py.File({str(tmp_path / "x.h5")!r}, "r")["y"][9])
""",
    ).stdout.splitlines()
    assert told == ["True", "18"]


def test_a_file_made_anew_or_deleted_leaves_nothing_behind(tmp_path: Path) -> None:
    store = tmp_path / "store"
    name = str(tmp_path / "x.h5")
    fill = f"""
with h5py.File({name!r}, "w") as f:
    f["big"] = np.zeros(10**6)
    f["small"] = 1
    f.create_dataset("texts", data=["a"] * 100)
"""
    code(f"embedded={store}", fill)
    files = {p for p in (store / "objects").rglob("*") if "h5." in p.name}
    assert len(files) == 3  # data, the pool of small datasets, texts
    assert sonde("ls", "hdf5:", "--embedded", store).stdout == f"hdf5:{name}\n"
    code(f"embedded={store}", fill + f"h5py.File({name!r}, 'r+').close()")
    after = {p for p in (store / "objects").rglob("*") if "h5." in p.name}
    assert len(after) == 3
    assert not files & after
    code(
        f"embedded={store}",
        f"""
with h5py.File({name!r}, "r+") as f:
    del f["big"]
    del f["texts"]
""",
    )
    assert len([p for p in (store / "objects").rglob("*") if "h5." in p.name]) == 1


def test_old_time_of_small_reads_is_bounded(server: Server, tmp_path: Path) -> None:
    path = str(tmp_path / "x.h5")
    settings = f"servers={server.address}"
    code(settings, f"f = h5py.File({path!r}, 'w')\nfor k in range(10): f[str(k)] = 0\n")
    reader = subprocess.Popen(
        [sys.executable, "-c", f"""
import h5py, sys
f = h5py.File({path!r}, "r")
print([int(f[str(k)][()]) for k in range(10)], flush=True)
sys.stdin.readline()
print([int(f[str(k)][()]) for k in range(10)], flush=True)
"""],
        env=environment(settings), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert reader.stdout
    assert reader.stdout.readline() == f"{[0] * 10}\n"
    code(settings, f"f = h5py.File({path!r}, 'r+')\nfor k in range(10): f[str(k)][()] = 7\n")
    time.sleep(0.1)
    assert reader.communicate("go on\n", timeout=60)[0] == f"{[7] * 10}\n"


def test_reading_makes_no_embedded_store_and_writing_no_folder_above_it(tmp_path: Path) -> None:
    told = code(
        f"embedded={tmp_path}/emb",
        f"""
name = {str(tmp_path / "x.h5")!r}
print(h5py.is_hdf5(name))
for mode in ("r", "r+"):
    try:
        h5py.File(name, mode)
    except FileNotFoundError as error:
        print("has no store" in str(error))
""",
    )
    assert told.stdout.split() == ["False", "True", "True"]
    assert not (tmp_path / "emb").exists()
    write = f'h5py.File({str(tmp_path / "x.h5")!r}, "a").close()'
    deep = code(f"embedded={tmp_path}/nodir/emb", write, check=False)
    assert deep.returncode
    assert "make the folder above it first" in deep.stderr
    assert not (tmp_path / "nodir").exists()
    code(f"embedded={tmp_path}/emb", write)
    assert (tmp_path / "emb" / "keys" / "sonde-store").exists()


@pytest.mark.parametrize("how", ["flush", "close"])
def test_a_file_that_is_removed_while_it_is_open_is_reported_and_leaves_nothing(
    server: Server, tmp_path: Path, how: str
) -> None:
    name = str(tmp_path / "x.h5")
    settings = f"servers={server.address}"
    writer = subprocess.Popen(
        [sys.executable, "-c", f"""
import h5py, sys
import numpy as np
f = h5py.File({name!r}, "w")
f["first"] = np.zeros(10**6)
f.flush()
print("written", flush=True)
sys.stdin.readline()
try:
    f["second"] = np.zeros(10**6)
    f.{how}()
except Exception as error:
    print("told" if "was removed from the store" in str(error) else error, flush=True)
sys.stdin.readline()
"""],
        env=environment(settings), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert writer.stdin
    assert writer.stdout
    assert writer.stdout.readline() == "written\n"
    assert sonde("rm", f"hdf5:{name}", "--server", server.address).returncode == 0
    writer.stdin.write("go on\n")
    writer.stdin.flush()
    assert writer.stdout.readline() == "told\n"
    writer.communicate("end\n", timeout=60)
    assert not [p for p in (server.folder / "data").rglob("*") if "h5." in p.name]
