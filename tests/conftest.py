"""The requirements of tests on the machine: a test is skipped with the reason, or fails in CI (SONDE_TEST_REQUIRE=all).

Markers (pyproject.toml): mpi, browser, root, slow, soak, alone. `hardware(reason)` marks a requirement that no set-up
can provide, and may skip in CI too. A test that takes the fixture `mpi` runs once for each MPI that SONDE_TEST_MPI asks
for: a flavour, `both`, or `other` for those that are not the default. Default: the default MPI.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
from typing import TYPE_CHECKING

import hypothesis
import pytest

from sonde.core import distribution
from sonde.core.errors import SondeError
from sonde.core.launch.mpirun import FLAVOURS, Mpi, Mpirun, find_mpi

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

# No test asserts a duration; on a busy machine any example may take longer than Hypothesis allows by default.
hypothesis.settings.register_profile("sonde", deadline=None)
hypothesis.settings.load_profile("sonde")

# The file for the time of each test, and how much of it was on a processor: tests/times.py.
pytest_plugins = ["times"] if os.environ.get("SONDE_TEST_TIMES") else []
REQUIRE_ALL = os.environ.get("SONDE_TEST_REQUIRE") == "all"
# The files that take longest, so that they begin first; `tests/times.py` finds them.
LONGEST = (
    "test_noise_run",
    "test_io_study",
    "test_bus_security",
    "test_store_run",
    "test_ioload",
    "test_io_run",
    "test_store_commands",
    "test_store_h5py",
    "test_power_hardware",
    "test_net_bad_input",
    "test_survey",
    "test_io_store",
    "test_report_browser",
    "test_io_uprobes",
    "test_store_conformance",
    "test_bus_hosts",
    # Tests of functions.
    "test_run",
    "test_bus_client_threads",
    "test_doctor",
    "test_architecture",
    "test_cli_convert",
    "test_docs",
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def pytest_configure(config: pytest.Config) -> None:
    # A shell ignores the signal for the background jobs of a script, and so does nohup. The processes that tests start
    # would inherit that, and neither Ctrl-C nor a hang-up would reach them.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    config.addinivalue_line("markers", "hardware(reason): needs hardware that no set-up can bring")


def pytest_collection_finish() -> None:
    # All imported and collected objects live to the end: scanning them again and again took a fifth of the time of the
    # unit tests.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def lacking(marker: str) -> str:
    """The reason why this machine cannot run tests with this marker; "" if it can."""
    if marker == "mpi":
        try:
            find_mpi()
        except SondeError as error:
            return f"{error.what}: {error.hint}"
    if marker == "browser":
        if not any(shutil.which(browser) for browser in BROWSERS):
            return f"no Chromium: {distribution.install('chromium')}"
        if not shutil.which("chromedriver"):
            return f"no chromedriver: {distribution.install('chromium')}"
    if marker == "root" and os.geteuid() != 0:
        return "needs root"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reasons = {marker: lacking(marker) for marker in ("mpi", "browser", "root")}
    # If a process gets a long file last, the others wait for it.
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))
    for item in items:
        if "mpi" in getattr(item, "fixturenames", ()):
            item.add_marker("mpi")
        for marker, reason in reasons.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """If everything is required, a skip is a failure with its reason."""
    report = yield
    allowed = item.get_closest_marker("hardware") or hasattr(report, "wasxfail")
    if REQUIRE_ALL and report.skipped and not allowed:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"SONDE_TEST_REQUIRE=all, but this test would skip: {reason}"
    return report


def asked_flavours() -> list[str]:
    """The MPI flavours to test with, from SONDE_TEST_MPI."""
    asked = os.environ.get("SONDE_TEST_MPI") or "default"
    if asked == "both":
        return list(FLAVOURS)
    if asked in FLAVOURS:
        return [asked]
    if asked not in ("default", "other"):
        raise pytest.UsageError(f"SONDE_TEST_MPI is '{asked}'; allowed: {', '.join(FLAVOURS)}, both, other")
    try:
        default = find_mpi().flavour
    except SondeError:
        default = FLAVOURS[0]
    return [default] if asked == "default" else [flavour for flavour in FLAVOURS if flavour != default]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "mpi" in metafunc.fixturenames:
        metafunc.parametrize("mpi", asked_flavours(), indirect=True, scope="session")


@pytest.fixture(scope="session")
def mpi(request: pytest.FixtureRequest) -> Mpi:
    """An MPI of this machine: each requested one in turn."""
    try:
        return find_mpi(request.param)
    except SondeError as error:
        pytest.skip(f"{error.what}: {error.hint}")


@pytest.fixture
def default_mpi() -> Mpi:
    """Only the default MPI, for ranks on several nodes: with MPICH 4.0 over UCX, as in Debian, ten of fifteen runs of a
    program that makes one MPI_Alltoall hung at their end, without Sonde.
    """
    try:
        return find_mpi()
    except SondeError as error:
        pytest.skip(f"{error.what}: {error.hint}")


@pytest.fixture
def open_mpi() -> Mpi:
    """Only Open MPI, for its own features: two MPI-IOs."""
    try:
        return find_mpi("openmpi")
    except SondeError as error:
        pytest.skip(f"{error.what}: {error.hint}")


@pytest.fixture
def mpirun(mpi: Mpi, monkeypatch: pytest.MonkeyPatch) -> Mpirun:
    """The launcher of `mpi`, which every search for an MPI also finds while the test runs."""
    monkeypatch.setenv("SONDE_MPI", str(mpi.mpirun))
    return Mpirun(found=mpi)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A folder for one probe's log and block files."""
    folder = tmp_path / "probe.run"
    folder.mkdir()
    return folder
