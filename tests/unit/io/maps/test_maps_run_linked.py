"""Libraries of a program without the loader's help: those that the loader brings, and nobody's code is run for it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sonde.io.maps import run_linked

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")


def real(paths: list[Path]) -> set[str]:
    return {os.path.realpath(path) for path in paths}


def of_loader(program: Path) -> set[str]:
    """Libraries of a trusted program, by ldd."""
    text = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    return real([Path(match) for match in re.findall(r"=> (/\S+)", text)])


def built(place: Path, name: str, source: str, *words: str) -> Path:
    file = place / name
    file.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["gcc", "-x", "c", "-", "-o", str(file), *words], input=source, text=True, check=True, cwd=place
    )
    return file


@pytest.mark.parametrize("name", ["python", "git", "gcc", "mpirun"])
def test_they_are_those_that_the_loader_brings(name: str) -> None:
    found = sys.executable if name == "python" else shutil.which(name)
    if found is None:
        pytest.skip(f"no {name}")
    program = Path(os.path.realpath(found))
    mine = real(run_linked.libraries(program))
    loader = {path for path in mine if Path(path).name.startswith("ld-linux")}
    assert mine - loader == of_loader(program) - loader


@pytest.mark.parametrize("tags", ["--enable-new-dtags", "--disable-new-dtags"])
def test_folders_that_a_file_names_count(tags: str, tmp_path: Path) -> None:
    inner = built(tmp_path, "lib/inner/libinner.so", "int inner(void){return 1;}", "-shared", "-fPIC")
    outer = built(
        tmp_path, "lib/libouter.so", "int inner(void);int outer(void){return inner();}", "-shared", "-fPIC",
        f"-L{inner.parent}", "-linner", f"-Wl,{tags},-rpath,${{ORIGIN}}/inner",
    )  # fmt: skip
    program = built(
        tmp_path, "bin/program", "int outer(void);int main(void){return outer();}",
        f"-L{outer.parent}", "-louter", f"-Wl,{tags},-rpath,$ORIGIN/../lib,-rpath-link,{inner.parent}",
    )  # fmt: skip
    found = real(run_linked.libraries(program))
    assert found == of_loader(program) | {path for path in found if "ld-linux" in path}
    assert {str(inner), str(outer)} <= found


def test_only_an_rpath_counts_for_what_a_library_needs(tmp_path: Path) -> None:
    """DT_RUNPATH is for its own file's libraries alone, DT_RPATH for those that these bring, too."""
    inner = built(tmp_path, "lib/libinner.so", "int inner(void){return 1;}", "-shared", "-fPIC")
    outer = built(
        tmp_path, "lib/libouter.so", "int inner(void);int outer(void){return inner();}", "-shared", "-fPIC",
        f"-L{inner.parent}", "-linner",
    )  # fmt: skip
    for tags, brought in (("--enable-new-dtags", False), ("--disable-new-dtags", True)):
        program = built(
            tmp_path, f"bin/{tags}", "int outer(void);int main(void){return outer();}",
            f"-L{outer.parent}", "-louter", f"-Wl,{tags},-rpath,{outer.parent}",
        )  # fmt: skip
        found = real(run_linked.libraries(program))
        assert str(outer) in found
        assert (str(inner) in found) is brought


def test_an_audit_module_that_a_program_names_is_not_run(tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    audit = built(
        tmp_path, "audit.so",
        f'#include <fcntl.h>\nunsigned la_version(unsigned v){{open("{proof}", O_CREAT | O_WRONLY, 0600);return v;}}',
        "-shared", "-fPIC",
    )  # fmt: skip
    program = built(tmp_path, "program", "int main(void){return 0;}", f"-Wl,--audit={audit}")
    assert [path.name for path in run_linked.libraries(program)][:1] == ["libc.so.6"]
    assert not proof.exists()
    subprocess.run(["ldd", str(program)], capture_output=True, check=False)
    assert proof.exists(), "the loader runs it, so that it proves something above"


@pytest.mark.parametrize("text", [b"", b"\x7fELF", b"#!/bin/sh\n", b"\x7fELF\x02\x01" + bytes(200)])
def test_what_is_no_program_has_none(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(text)
    assert run_linked.libraries(tmp_path / "program") == []
    assert run_linked.libraries(tmp_path / "nowhere") == []
