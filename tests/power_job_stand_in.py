"""Starts jobs in place of a job manager: real processes on this host, over the bus. Its orders are recorded on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from sonde.power.jobs import jobs, run_jobs_bus
from sonde.power.jobs.jobs import ENDED, RUNNING, Run, to_plain
from sonde.power.stack import run_bus


class StandIn:
    """Each start is a line of starts.jsonl, so that a test can count them."""

    def __init__(self, folder: Path) -> None:
        self.starts = folder / "starts.jsonl"
        self.runs: dict[str, Run] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.mutex = threading.Lock()

    def told(self, body: dict[str, Any]) -> dict[str, Any]:
        with self.mutex:
            self._look()
            return {"runs": [to_plain(run) for run in self.runs.values()]}

    def order(self, body: dict[str, Any]) -> dict[str, Any]:
        with self.mutex:
            self._look()
            job, order = body["job"], body["order"]
            if order == "START_JOB":
                if job not in self.runs:
                    self._start(body)
            elif job not in self.runs:
                raise run_jobs_bus.refused("no_job", f"there is no job '{job}'")
            elif order == "STOP_JOB":
                if job in self.processes:
                    self.processes[job].send_signal(signal.SIGTERM)
            elif self.runs[job].over:
                del self.runs[job]
            return {"runs": [to_plain(self.runs[job])] if job in self.runs else []}

    def _start(self, body: dict[str, Any]) -> None:
        spec = body["spec"]
        with self.starts.open("a") as out:
            nodes = [part["node"] for part in body["parts"]]
            out.write(json.dumps({"job": body["job"], "nodes": nodes, "at_s": time.time()}) + "\n")
            out.flush()
            os.fsync(out.fileno())
        environment = dict(text.partition("=")[::2] for text in spec["environment"])
        self.processes[body["job"]] = subprocess.Popen(
            spec["command"], stdin=subprocess.DEVNULL, env=environment, cwd=spec["folder"] or "/"
        )
        self.runs[body["job"]] = Run(body["job"], RUNNING, started_ns=time.time_ns())

    def _look(self) -> None:
        for job, process in list(self.processes.items()):
            code = process.poll()
            if code is not None:
                del self.processes[job]
                self.runs[job] = replace(
                    self.runs[job],
                    state=ENDED,
                    ended_ns=time.time_ns(),
                    exit_status=code if code >= 0 else jobs.NO_STATUS,
                    signal=max(0, -code),
                )

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


def main(config: str, folder: str) -> None:
    stack = run_bus.load(config)
    here = StandIn(Path(folder))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # otherwise the jobs would never be ended
    try:
        with (
            run_jobs_bus.open_bus(stack, "job-manager") as bus,
            run_jobs_bus.serve(bus, jobs.JOB_GET, here.told, "job-manager"),
            run_jobs_bus.serve(bus, jobs.JOB_SET, here.order, "job-manager"),
        ):
            print(json.dumps({"event": "ready"}), flush=True)
            sys.stdin.read()
    finally:
        here.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
