"""h5py's own tests with its files in the store: all that apply pass. See h5py_left_out.toml for those that do not."""

from __future__ import annotations

import fnmatch
import os
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from sonde.core.launch import libexec

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
HDF5 = ".".join(h5py.version.hdf5_version.split(".")[:2])
PLUGINS = libexec().parent / "lib" / "hdf5"
SUITE = Path(h5py.__file__).parent / "tests"
LEFT_OUT = [
    pattern
    for reason in tomllib.loads((Path(__file__).parent / "h5py_left_out.toml").read_text())["reason"]
    for pattern in reason["tests"]
]
MODULES = sorted(str(path.relative_to(SUITE)) for path in SUITE.rglob("test_*.py"))
# Not only in `make soak`: modules of seconds, over attributes, groups and the selection of parts.
SHORT = ("test_attrs.py", "test_group.py", "test_slicing.py")

pytestmark = [
    pytest.mark.skipif(
        not (PLUGINS / "connector" / f"sonde-h5-{HDF5}.so").exists(),
        reason=f"no HDF5 connector for h5py's HDF5 {HDF5} was built",
    ),
    pytest.mark.skipif(
        tuple(map(int, h5py.__version__.split(".")[:2])) != (3, 16), reason="the list is that of h5py 3.16"
    ),
]


def outcomes(report: Path, module: str) -> dict[str, str]:
    """What became of each test, by "module/Class::name"."""
    found = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        group = case.get("classname", "").split(".")[-1]
        name = case.get("name", "") if group == module else f"{group}::{case.get('name', '')}"
        bad = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[f"{module}/{name}"] = bad[0] if bad else "passed"
    return found


@pytest.mark.parametrize(
    "path", [path if path in SHORT else pytest.param(path, marks=pytest.mark.soak) for path in MODULES]
)
def test_module_of_h5py(path: str, tmp_path: Path) -> None:
    # An empty configuration: some of h5py's tests run pytest themselves, and would find ours.
    config = tmp_path / "pytest.ini"
    config.write_text("[pytest]\n")
    report = tmp_path / "report.xml"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HDF5_", "SONDE_", "PYTEST_"))}
    env |= {"HDF5_PLUGIN_PATH": str(PLUGINS), "HDF5_VOL_CONNECTOR": "sonde embedded=memory"}
    env |= {"PYTEST_ADDOPTS": f"-c {config} -p no:cacheprovider"}
    command = [sys.executable, "-X", "faulthandler", "-m", "pytest", "-q", "--tb=short", "-W", "ignore"]
    command += ["--rootdir", str(SUITE), f"--junitxml={report}", str(SUITE / path)]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=280, check=False
    )
    assert report.exists(), f"{path} ended in the middle\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    module = Path(path).stem
    found = outcomes(report, module)
    assert found, done.stdout
    left_out = {name for name in found if any(fnmatch.fnmatch(name, pattern) for pattern in LEFT_OUT)}
    failed = {name for name, outcome in found.items() if outcome in ("failure", "error")}
    assert not failed - left_out, f"{sorted(failed - left_out)}\n{done.stdout[-4000:]}"
    # Were it on the list and passed, the list would hide a later regression.
    passed = {name for name in left_out if found[name] == "passed"}
    assert not passed, f"left out, but they pass: {sorted(passed)}"


def test_left_out_names_tests_of_this_suite() -> None:
    modules = {Path(path).stem for path in MODULES}
    assert not [pattern for pattern in LEFT_OUT if pattern.split("/")[0] not in modules]
