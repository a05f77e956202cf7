"""The section [job-manager] of the configuration."""

from __future__ import annotations

from pathlib import Path

from sonde.power.stack.run_bus import _power

NAME = "job-manager"


class Settings:
    """Its values, with the defaults of docs/reference/power-config.md."""

    def __init__(self, path: str) -> None:
        section = _power.load_config(path)["job_manager"]
        self.state = Path(section["state"])
        self.launcher = tuple(str(word) for word in section["launcher"])
        self.grace_s, self.report_s = float(section["grace_s"]), float(section["report_s"])
        self.keep_s = float(section["keep_s"])
        self.users = tuple(str(user) for user in section["users"])
        # Defaults for a module that was built before these keys existed.
        self.pam_service = str(section.get("pam_service", "login"))
        self.max_tasks = int(section.get("max_tasks", 10000))
        self.max_memory_b = int(section.get("max_memory_bytes", 0))
