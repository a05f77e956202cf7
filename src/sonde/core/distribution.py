"""The Linux distribution, and the names of its packages: for hints that can be typed."""

from __future__ import annotations

import sys
from pathlib import Path

from sonde.core.errors import typed

INSTALL = {
    "debian": "apt-get install",
    "fedora": "dnf install",
    "arch": "pacman -S",
    "suse": "zypper install",
}

# The packages that hints name. deploy/packages/ has the full list; a test compares the two.
PACKAGES = {
    "openmpi": {
        "debian": "openmpi-bin libopenmpi-dev",
        "fedora": "openmpi openmpi-devel",
        "arch": "openmpi",
        "suse": "openmpi4 openmpi4-devel",
    },
    "mpich": {
        "debian": "mpich libmpich-dev",
        "fedora": "mpich mpich-devel",
        "arch": "mpich",
        "suse": "mpich mpich-devel",
    },
    "hwloc": {
        "debian": "libhwloc-dev",
        "fedora": "hwloc-devel",
        "arch": "hwloc",
        "suse": "hwloc-devel",
    },
    "store": {
        "debian": "libisal-dev libssl-dev",
        "fedora": "isa-l-devel openssl-devel",
        "arch": "isa-l openssl",
        "suse": "isa-l-devel libopenssl-devel",
    },
    "lmdb": {"debian": "liblmdb-dev", "fedora": "lmdb-devel", "arch": "lmdb", "suse": "lmdb-devel"},
    "rocksdb": {
        "debian": "librocksdb-dev",
        "fedora": "rocksdb-devel",
        "arch": "rocksdb",
        "suse": "rocksdb-devel",
    },
    "sqlite": {
        "debian": "libsqlite3-dev",
        "fedora": "sqlite-devel",
        "arch": "sqlite",
        "suse": "sqlite3-devel",
    },
    "pugixml": {
        "debian": "libpugixml-dev",
        "fedora": "pugixml-devel",
        "arch": "pugixml",
        "suse": "pugixml-devel",
    },
    "libfabric": {
        "debian": "libfabric-dev",
        "fedora": "libfabric-devel",
        "arch": "libfabric",
        "suse": "libfabric-devel",
    },
    "iproute2": {
        "debian": "iproute2",
        "fedora": "iproute iproute-tc",
        "arch": "iproute2",
        "suse": "iproute2",
    },
    "glusterfs": {
        "debian": "glusterfs-server glusterfs-client",
        "fedora": "glusterfs-server glusterfs-cli glusterfs-fuse libgfapi0",
        "arch": "glusterfs",
        "suse": "glusterfs",
    },
    "munge": {"debian": "libmunge-dev", "fedora": "munge-devel", "arch": "munge", "suse": "munge-devel"},
    "chromium": {
        "debian": "chromium chromium-driver",
        "fedora": "chromium chromedriver",
        "arch": "chromium",
        "suse": "chromium chromedriver",
    },
}

_LIKE = {
    "debian": ("debian", "ubuntu"),
    "fedora": ("fedora", "rhel", "centos", "rocky", "almalinux"),
    "arch": ("arch",),
    "suse": ("suse", "opensuse", "sles"),
}


def os_release(root: Path = Path("/")) -> dict[str, str]:
    """The fields of /etc/os-release under `root`; {} when there is none."""
    for name in ("etc/os-release", "usr/lib/os-release"):
        try:
            text = (root / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        pairs = (
            line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#")
        )
        return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}
    return {}


def family(root: Path = Path("/")) -> str:
    """ "debian", "fedora", "arch" or "suse"; "" for any other."""
    fields = os_release(root)
    ids = [fields.get("ID", ""), *fields.get("ID_LIKE", "").split()]
    for name, likes in _LIKE.items():
        if any(known == like or known.startswith(like + "-") for known in ids for like in likes):
            return name
    return ""


def install(what: str, root: Path = Path("/")) -> str:
    """The command that installs `what` (a key of PACKAGES) on this distribution; otherwise Debian's names."""
    here = family(root)
    if here:
        return f"{INSTALL[here]} {PACKAGES[what][here]}"
    return f"{PACKAGES[what]['debian']} (Debian's names)"


# Packages that Sonde works without, and that some commands need; a test compares this with pyproject.toml.
PYTHON_PACKAGES = {
    "cryptography": "cryptography>=42",
    "h5py": "h5py>=3.16",
    "matplotlib": "matplotlib>=3.8",
    "pyarrow": "pyarrow>=15",
}


def install_python(what: str) -> str:
    """The command that installs `what` (a key of PYTHON_PACKAGES) for the Python that runs here."""
    return typed(sys.executable, "-m", "pip", "install", PYTHON_PACKAGES[what])
