"""Records long delay series on this machine into tests/data/series: python -m bench.net.record [NAME...]

One pair of ranks, samples one after the other without pause, as a single burst would take them. A file
holds `value`
(float32, s), `t_start` (float32, s) and the facts as strings.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sonde.core.blocks import BlockFile
from sonde.core.launch import probe
from sonde.core.launch.mpirun import Mpirun, find_mpi
from sonde.core.launch.process import ProbeProcess

FOLDER = Path("tests/data/series")
SAMPLES = 60000


@dataclass(frozen=True)
class Series:
    """One series to record: which MPI, how many ranks, mode, message length, environment that picks a transport."""

    flavour: str
    transport: str
    size: int
    mode: str = "one_to_one"
    ranks: int = 2
    environment: dict[str, str] = field(default_factory=dict)


TCP = {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_pml": "ob1"}
SERIES = {
    "openmpi-shm-8": Series("openmpi", "shared memory", 8),
    "openmpi-shm-64k": Series("openmpi", "shared memory", 65536),
    "openmpi-tcp-1k": Series("openmpi", "tcp loopback", 1024, environment=TCP),
    "openmpi-tcp-64k": Series("openmpi", "tcp loopback", 65536, environment=TCP),
    "mpich-shm-4k": Series("mpich", "shared memory", 4096),
    "openmpi-shared-cores-1k": Series("openmpi", "shared memory, 4 ranks on 2 cores", 1024, "all_to_all", 4),
}


def record(name: str) -> Path:
    """Records one series and writes its file."""
    series = SERIES[name]
    launch = Mpirun(found=find_mpi(series.flavour))
    with tempfile.TemporaryDirectory() as folder:
        argv = [str(probe("sonde-net", series.flavour)), "--dir", folder, "--modes", series.mode]
        argv += ["--sizes", str(series.size), "--rule", f"fixed:{SAMPLES}", "--cap", str(SAMPLES)]
        argv += ["--epoch-length", str(SAMPLES), "--burst-s", "3600", "--pairing", "parallel", "--seed", "1"]
        with ProbeProcess(
            launch.command(argv, (), series.ranks, series.environment), Path(folder), lambda event: None
        ) as process:
            process.wait(timeout_s=600).check()
        records = np.concatenate(list(BlockFile(Path(folder) / "rank-00000.blk")))
    burst = next(r for r in records if r["kind"] == 0 and r["n"] >= SAMPLES)
    n = int(burst["n"])
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.npz"
    np.savez_compressed(
        path,
        value=burst["value"][:n].astype(np.float32),
        t_start=burst["offset"][:n].astype(np.float32),
        mpi=str(launch.mpi),
        transport=series.transport,
        size_b=series.size,
        mode=series.mode,
        ranks=series.ranks,
    )
    return path


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.net.record", description=__doc__)
    parser.add_argument("names", nargs="*", help=", ".join(SERIES))
    for name in parser.parse_args().names or list(SERIES):
        if name not in SERIES:
            parser.error(f"there is no series '{name}'; there are: {', '.join(SERIES)}")
        path = record(name)
        value = np.load(path)["value"]
        print(
            f"{path}  {len(value)} samples  median {np.median(value) * 1e6:.2f} µs  {path.stat().st_size // 1024} KiB"
        )


if __name__ == "__main__":
    main()
