"""Which distribution this is, and what to type to install something."""

from __future__ import annotations

import shlex
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest

from sonde.core.distribution import (
    INSTALL,
    PACKAGES,
    PYTHON_PACKAGES,
    family,
    install,
    install_python,
    os_release,
)


def machine(root: Path, text: str, name: str = "etc/os-release") -> Path:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ID=debian\n", "debian"),
        ("ID=ubuntu\nID_LIKE=debian\n", "debian"),
        ("ID=linuxmint\nID_LIKE='ubuntu debian'\n", "debian"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "fedora"),
        ("ID=arch\n", "arch"),
        ("ID=opensuse-leap\nID_LIKE='suse opensuse'\n", "suse"),
        ("ID=plan9\n", ""),
        ("", ""),
    ],
)
def test_family(tmp_path, text, name):
    assert family(machine(tmp_path, text)) == name


def test_no_os_release_is_no_family(tmp_path):
    assert os_release(tmp_path) == {}
    assert family(tmp_path) == ""


def test_the_vendors_copy_is_read_where_etc_has_none(tmp_path):
    assert os_release(machine(tmp_path, "ID=arch\n", "usr/lib/os-release"))["ID"] == "arch"


def test_fields_are_without_quotes_and_comments(tmp_path):
    text = '# a comment=1\nPRETTY_NAME="Debian GNU/Linux 12"\nnonsense\n'
    assert os_release(machine(tmp_path, text)) == {"PRETTY_NAME": "Debian GNU/Linux 12"}


@pytest.mark.parametrize("what", PACKAGES)
def test_every_package_is_named_for_every_family(tmp_path, what):
    assert set(PACKAGES[what]) == set(INSTALL)
    assert install(what, machine(tmp_path, "ID=fedora\n")) == f"dnf install {PACKAGES[what]['fedora']}"


def test_an_unknown_distribution_gets_debians_names_and_is_reported_so(tmp_path):
    assert install("hwloc", tmp_path) == "libhwloc-dev (Debian's names)"


def test_python_packages_are_those_of_the_project():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    named = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    assert set(PYTHON_PACKAGES.values()) <= set(named)


@pytest.mark.parametrize("what", PYTHON_PACKAGES)
def test_a_python_package_is_installed_for_the_python_that_asks(what):
    words = shlex.split(install_python(what))
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    assert words[4].startswith(what)
