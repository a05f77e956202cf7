"""A BMC's Redfish service over TLS, for tests: a chassis that draws what its cap lets it, in old and newer schemas.

    python redfish_service.py FOLDER --schema old|new|controls [--load W]
        [--manner anything|slow|nonsense|stale|deaf|headstrong]
        [--exception HardPowerOff] [--lag S] [--unset] [--chassis N] [--delay S] [--delay-back S]

FOLDER has cert.pem and key.pem. The first line of standard output is the port; ends when standard input ends.
`headstrong` keeps its LimitException. For `--lag` after a change it shows what was before; `--unset`: no limit is kept;
`--chassis`: so many with power; each answer takes `--delay`, and `--delay-back` from the first change on that takes a
limit away. Paths that were asked for are in FOLDER/asked, those of slow answers in FOLDER/delayed.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

USER, PASSWORD = "sonde", "a word: with a colon"
LEAST, MOST = 150, 600
LAG_S = 0.05


class Machine:
    """What it draws goes towards the lower of load and cap."""

    def __init__(self, load: float) -> None:
        self.load = load
        self.cap: float | None = None
        self.mode = "Automatic"
        self.exception: str | None = None
        self.lag = 0.0
        self.shown: tuple[float | None, str, str | None] | None = None  # until the lag is over
        self.shown_until = 0.0
        self.now = load
        self.at = time.monotonic()
        self.changes = 0

    def pass_time(self) -> None:
        cap = MOST if self.cap is None or self.mode == "Disabled" else self.cap
        now = time.monotonic()
        target = min(self.load, cap)
        self.now = target + (self.now - target) * math.exp(-(now - self.at) / LAG_S)
        self.at = now

    def told(self) -> tuple[float | None, str, str | None]:
        """Cap, mode, exception as they are shown."""
        now = (self.cap, self.mode, self.exception)
        return self.shown if self.shown and time.monotonic() < self.shown_until else now

    def about_to_change(self) -> None:
        self.shown, self.shown_until = self.told(), time.monotonic() + self.lag

    def etag(self) -> str:
        return f'W/"{self.changes}"'


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # an answer is written in two pieces: the second would wait 40 ms
    machine: Machine
    schema: str
    manner: str
    folder: Path
    lock = threading.Lock()
    stale = 0
    chassis = 1
    delay = delay_back = 0.0

    def log_message(self, *words: Any) -> None:
        pass

    def answer(self, status: int, body: object, etag: str = "") -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if etag:
            self.send_header("ETag", etag)
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status: int, what: str) -> None:
        self.answer(status, {"error": {"code": "Base.1.0.GeneralError", "message": what}})

    def welcome(self) -> bool:
        if self.manner == "slow":
            time.sleep(5)
        if self.delay:
            with (self.folder / "delayed").open("a") as log:
                log.write(self.path + "\n")
            time.sleep(self.delay)
        expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") == expected or self.path == "/redfish/v1/":
            return True
        self.refuse(401, "who are you?")
        return False

    def limit(self) -> dict[str, Any]:
        cap, mode, _ = self.machine.told()
        return {
            "SetPoint": cap,
            "AllowableMin": LEAST,
            "AllowableMax": MOST,
            "ControlMode": mode,
        }

    def resources(self) -> dict[str, dict[str, Any]]:
        m = self.machine
        m.pass_time()
        names = ["Self", *(f"Sled{k}" for k in range(1, self.chassis))]
        out: dict[str, dict[str, Any]] = {
            "/redfish/v1/": {"Chassis": {"@odata.id": "/redfish/v1/Chassis"}},
            "/redfish/v1/Chassis": {
                "Members": [
                    *({"@odata.id": f"/redfish/v1/Chassis/{name}"} for name in names),
                    {"@odata.id": "/redfish/v1/Chassis/Gone"},
                    {"@odata.id": "https://elsewhere.example/redfish/v1/x"},
                ]
            },
        }
        for name in names:
            out |= self.one(name)
        return out

    def one(self, name: str) -> dict[str, dict[str, Any]]:
        m = self.machine
        cap, _, exception = m.told()
        chassis: dict[str, Any] = {"Id": name, "Manufacturer": "Sonde", "Model": "Test BMC"}
        at = f"/redfish/v1/Chassis/{name}"
        out: dict[str, dict[str, Any]] = {at: chassis}
        if self.schema == "old":
            chassis["Power"] = {"@odata.id": f"{at}/Power"}
            chassis["Thermal"] = {"@odata.id": f"{at}/Thermal"}
            chassis["EnvironmentMetrics"] = {"@odata.id": f"{at}/EnvironmentMetrics"}  # which is not there
            out[f"{at}/Power"] = {
                "PowerControl": [
                    {
                        "MemberId": "0",
                        "PowerConsumedWatts": m.now,
                        "PowerCapacityWatts": MOST,
                        "PowerLimit": {
                            "LimitInWatts": cap,
                            **({"LimitException": exception} if exception else {}),
                        },
                    }
                ],
                "Voltages": [{"Name": "P12V", "ReadingVolts": 12.1}],
            }
            out[f"{at}/Thermal"] = {
                "Temperatures": [
                    {"Name": "Inlet", "ReadingCelsius": 23},
                    {"Name": "Absent", "ReadingCelsius": None},
                ],
                "Fans": [{"Name": "Fan 1", "Reading": 5400, "ReadingUnits": "RPM"}],
            }
        else:
            metrics: dict[str, Any] = {
                "PowerWatts": {"Reading": m.now},
                "TemperatureCelsius": {"Reading": 31.5},
            }
            chassis["EnvironmentMetrics"] = {"@odata.id": f"{at}/EnvironmentMetrics"}
            out[f"{at}/EnvironmentMetrics"] = metrics
            if self.schema == "new":
                metrics["PowerLimitWatts"] = self.limit()
            else:
                chassis["Controls"] = {"@odata.id": f"{at}/Controls"}
                out[f"{at}/Controls"] = {
                    "Members": [{"@odata.id": f"{at}/Controls/{what}"} for what in ("Fan", "Off", "Power")]
                }
                out[f"{at}/Controls/Off"] = {
                    "ControlType": "Power",
                    "SetPointUnits": "W",
                    "Enabled": False,
                    **self.limit(),
                }
                out[f"{at}/Controls/Fan"] = {"ControlType": "Percent", "SetPoint": 40, "SetPointUnits": "%"}
                out[f"{at}/Controls/Power"] = {"ControlType": "Power", "SetPointUnits": "W", **self.limit()}
        return out

    def do_GET(self) -> None:
        if not self.welcome():
            return
        with self.lock:
            with (self.folder / "asked").open("a") as log:
                log.write(self.path + "\n")
            found = self.resources().get(self.path)
            etag = self.machine.etag()
        nonsense = self.folder / "nonsense"
        wanted = self.manner == "nonsense" and self.path.rpartition("/")[2] in ("Power", "EnvironmentMetrics")
        if wanted and nonsense.exists():
            self.answer(200, nonsense.read_text())
            return
        if found is None:
            self.refuse(404, "nothing is here")
        else:
            self.answer(200, found, etag)

    def do_PATCH(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length) or "{}")
        if self.delay_back and "null" in json.dumps(body):
            Handler.delay = self.delay_back
        if not self.welcome():
            return
        m = self.machine
        with self.lock:
            m.pass_time()
            if self.manner == "stale" and self.stale < 2:
                Handler.stale += 1
                m.changes += 1  # somebody else was quicker
            if self.headers.get("If-Match") != m.etag():
                self.refuse(412, "it was changed meanwhile")
                return
            at = self.path.rpartition("/")[2]
            if self.schema == "old" and at == "Power":
                part = body["PowerControl"][0]["PowerLimit"]
                given = {"SetPoint": part["LimitInWatts"]} if "LimitInWatts" in part else {}
                if "LimitException" in part:
                    given["LimitException"] = part["LimitException"]
            elif self.schema == "new" and at == "EnvironmentMetrics":
                given = body["PowerLimitWatts"]
            elif self.schema == "controls" and self.path.endswith("/Controls/Power"):
                given = body
            else:
                self.refuse(405, "this cannot be changed")
                return
            cap = given.get("SetPoint", m.cap)
            if cap is None and "SetPoint" in given and self.schema != "old":
                self.refuse(400, "a SetPoint is a number")
                return
            if self.manner != "anything" and cap is not None and not LEAST <= cap <= MOST:
                self.refuse(400, f"{cap} W is not between {LEAST} and {MOST}")
                return
            with (self.folder / "patches").open("a") as log:
                log.write(json.dumps(body) + "\n")
            if self.manner != "deaf":
                m.about_to_change()
                if self.manner != "headstrong":
                    m.exception = given.get("LimitException", m.exception)
                m.cap = cap
                m.mode = given.get("ControlMode", m.mode)
            m.changes += 1
        self.send_response(204)
        self.send_header("Content-Length", "0")
        self.end_headers()


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that do not trust it, or do not wait, are what some tests are about."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--schema", choices=("old", "new", "controls"), default="old")
    parser.add_argument("--manner", default="good")
    parser.add_argument("--load", type=float, default=400)
    parser.add_argument("--exception")
    parser.add_argument("--lag", type=float, default=0)
    parser.add_argument("--unset", action="store_true")
    parser.add_argument("--chassis", type=int, default=1)
    parser.add_argument("--delay", type=float, default=0)
    parser.add_argument("--delay-back", type=float, default=0)
    given = parser.parse_args()
    Handler.machine = Machine(given.load)
    Handler.machine.exception, Handler.machine.lag = given.exception, given.lag
    Handler.chassis, Handler.delay, Handler.delay_back = given.chassis, given.delay, given.delay_back
    Handler.schema, Handler.manner, Handler.folder = given.schema, given.manner, given.folder
    if given.schema == "new":
        Handler.machine.cap, Handler.machine.mode = 500, "Disabled"
    elif given.schema == "controls":
        Handler.machine.cap = 500
    if given.unset:
        Handler.machine.cap = None
    server = Server(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(given.folder / "cert.pem", given.folder / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
