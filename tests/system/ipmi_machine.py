"""A BMC that speaks IPMI over loopback: Debian's ipmi_sim, with DCMI's power commands from ipmi_dcmi.c; for tests.

Its manner: `usual`; `fresh`, without a limit and taking none of 0 W, as OpenBMC comes; `bare`, which answers 80h and
nothing else where no limit is active; `short`, which ends that answer after DCMI's byte.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from watching import wait_for

MODULE = Path(__file__).with_name("ipmi_dcmi.c")
HEADER = Path("/usr/include/OpenIPMI/mcserv.h")
USER, PASSWORD = "sonde", "secret"

LAN = """\
name "sonde"
loadlib "{module}" "{manner} {seen}"
startlan 1
  addr 127.0.0.1 {port}
  priv_limit admin
  allowed_auths_callback none md2 md5 straight
  allowed_auths_user none md2 md5 straight
  allowed_auths_operator none md2 md5 straight
  allowed_auths_admin none md2 md5 straight
  guid a123456789abcdefa123456789abcdef
endlan
user 1 true "" "test" user 10 none md2 md5 straight
user 2 true "{user}" "{password}" admin 10 none md2 md5 straight
"""

# A controller, and one sensor: a temperature of 42 degrees called "Temp".
CONTROLLER = """\
mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
main_sdr_add 0x20 0x00 0x00 0x51 0x01 0x2f 0x20 0x00 0x01 0x03 0x01 0x67 0x40 0x01 0x01 0x00 0x00 0x00 0x00 0x00 \
0x00 0x00 0x01 0x00 0x00 0x01 0x00 0x00 0x00 0x00 0x00 0x00 0x00 0x00 0x00 0x00 0x00 0x00 0x00 0x00 0x00 0x00 0x00 \
0x00 0x00 0x00 0x00 0x00 0xc4 0x54 0x65 0x6d 0x70
sensor_add 0x20 0 1 1 1
sensor_set_value 0x20 0 1 42 0
mc_enable 0x20
"""


def missing() -> str:
    """What is lacking to run one; empty: nothing."""
    for program, package in (("ipmi_sim", "openipmi"), ("ipmitool", "ipmitool"), ("cc", "gcc")):
        if not shutil.which(program):
            return f"{program} ({package})"
    return "" if HEADER.exists() else f"{HEADER} (libopenipmi-dev)"


@dataclass
class Bmc:
    port: int
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def words(self) -> list[str]:
        """Where it is, for sonde-powerconform."""
        return [
            "--url",
            f"127.0.0.1:{self.port}",
            "--user",
            USER,
            "--password-file",
            str(self.folder / "password"),
        ]

    def asked(self) -> list[list[int]]:
        """DCMI's commands that came, with their bytes; [0xff]: it switched the node off."""
        seen = self.folder / "seen"
        return (
            [[int(b, 16) for b in line.split()] for line in seen.read_text().splitlines()]
            if seen.exists()
            else []
        )


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def ipmi_machine(folder: Path, manner: str = "usual") -> Iterator[Bmc]:
    module = folder / "dcmi.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(module), str(MODULE)], check=True)
    (folder / "state").mkdir()
    password = folder / "password"
    password.write_text(PASSWORD + "\n")
    password.chmod(0o600)
    port = free_port()
    (folder / "lan.conf").write_text(
        LAN.format(
            module=module,
            manner=manner,
            seen=folder / "seen",
            port=port,
            user=USER,
            password=PASSWORD,
        )
    )
    (folder / "controller").write_text(CONTROLLER)
    words = ["ipmi_sim", "-n", "-c", "lan.conf", "-f", "controller", "-s", "state"]
    process = subprocess.Popen(
        words,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=os.setsid,
    )
    bmc = Bmc(port, folder, process)
    probe = [
        "ipmitool",
        "-I",
        "lanplus",
        "-C",
        "3",
        "-H",
        "127.0.0.1",
        "-p",
        str(port),
        "-U",
        USER,
        "-f",
        str(password),
        "-N",
        "1",
        "-R",
        "1",
        "mc",
        "info",
    ]
    try:
        answers = wait_for(lambda: subprocess.run(probe, capture_output=True).returncode == 0, 30)
        assert answers, "ipmi_sim does not answer"
        yield bmc
    finally:
        process.kill()
        process.wait()
