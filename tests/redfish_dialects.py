"""How BMCs speak Redfish, row by row, and a service that speaks in the same way: for tests.

A row is a situation that people have met in public: resources as a function of the BMC's state, its handling of ETags
and redirects, and the expected result. `cap`: whether a cap of SAFE_W is in force at the end, both in the BMC and in
the node manager's report; `says`: a part of its message.
"""

from __future__ import annotations

import gzip
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SAFE_W = 200.0
ROOT = "/redfish/v1"
ONE = f"{ROOT}/Chassis/1"

Json = dict[str, Any]


@dataclass
class State:
    """The state of a BMC."""

    cap: float | None = 400.0
    watts: float = 310.0
    mode: str = "Automatic"
    changes: int = 1
    patched: list[tuple[str, Json]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    @property
    def tag(self) -> str:
        return f'W/"{self.changes}"'


def chassis(at: str = ONE, **more: Any) -> Json:
    return {"@odata.id": at, "Id": at.rpartition("/")[2], "Manufacturer": "Own", "Model": "Row", **more}


def links(*paths: str, **more: Any) -> Json:
    return {"Members": [{"@odata.id": path} for path in paths], **more}


def to(path: str) -> Json:
    return {"@odata.id": path}


def control(s: State, **more: Any) -> Json:
    limit = {"LimitInWatts": s.cap, "LimitException": "NoAction"}
    return {
        "MemberId": "0",
        "Name": "Server Power Control",
        "PowerConsumedWatts": s.watts,
        "PowerCapacityWatts": 800,
        "PowerLimit": limit,
    } | more


def part(name: str, watts: float, **more: Any) -> Json:
    return {"Name": name, "PowerConsumedWatts": watts, **more}


def power(s: State, *controls: Any, at: str = ONE, **more: Any) -> dict[str, Json]:
    """One chassis with the older schema."""
    return {
        f"{ROOT}/": {"Chassis": to(f"{ROOT}/Chassis")},
        f"{ROOT}/Chassis": links(at),
        at: chassis(at, Power=to(f"{at}/Power"), **more),
        f"{at}/Power": {"@odata.etag": s.tag, "PowerControl": list(controls)},
    }


def metrics(s: State, at: str = ONE, limit: Any = None, watts: Any = None, **more: Any) -> dict[str, Json]:
    """One chassis with the newer schema."""
    bounds = {"AllowableMin": 150, "AllowableMax": 800}
    limit = {"SetPoint": s.cap, "ControlMode": s.mode, **bounds} if limit is None else limit
    return {
        f"{ROOT}/": {"Chassis": to(f"{ROOT}/Chassis")},
        f"{ROOT}/Chassis": links(at),
        at: chassis(at, EnvironmentMetrics=to(f"{at}/EnvironmentMetrics"), **more),
        f"{at}/EnvironmentMetrics": {
            "@odata.etag": s.tag,
            "PowerWatts": {"Reading": s.watts if watts is None else watts},
            "PowerLimitWatts": limit,
        },
    }


def controls(s: State, page: int = 0, **more: Any) -> dict[str, Json]:
    """One chassis with a Control; page: the number of fans before it, one for each page."""
    out = metrics(s, limit={}, Controls=to(f"{ONE}/Controls"))
    del out[f"{ONE}/EnvironmentMetrics"]["PowerLimitWatts"]
    out[f"{ONE}/Controls/Power"] = {
        "@odata.etag": s.tag,
        "ControlType": "Power",
        "SetPointUnits": "W",
        "SetPoint": s.cap,
        "ControlMode": s.mode,
        "AllowableMin": 150,
        "AllowableMax": 800,
    } | more
    out[f"{ONE}/Controls/Fan"] = {"ControlType": "Percent", "SetPoint": 40, "SetPointUnits": "%"}
    out[f"{ONE}/Controls"] = links(f"{ONE}/Controls/Fan", f"{ONE}/Controls/Power")
    if page:
        next_page = {"Members@odata.nextLink": f"{ONE}/Controls?$skip=1"}
        out[f"{ONE}/Controls"] = links(f"{ONE}/Controls/Fan", **next_page)
        out[f"{ONE}/Controls?$skip=1"] = links(f"{ONE}/Controls/Power")
    return out


def beside(tree: dict[str, Json], *others: str, **resources: Json) -> dict[str, Json]:
    """The same with further chassis before it."""
    first = tree[f"{ROOT}/Chassis"]["Members"]
    tree[f"{ROOT}/Chassis"] = links(*others, *(member["@odata.id"] for member in first))
    return tree | {at.replace("_", "/"): body for at, body in resources.items()}


def paged(s: State) -> dict[str, Json]:
    tree = power(s, control(s))
    second = f"{ROOT}/Chassis?$skip=1"
    tree[f"{ROOT}/Chassis"] = links(f"{ROOT}/Chassis/Fans", **{"Members@odata.nextLink": second})
    tree[f"{ROOT}/Chassis/Fans"] = chassis(f"{ROOT}/Chassis/Fans")
    tree[second] = links(ONE)
    return tree


def nested(s: State) -> dict[str, Json]:
    """A board of four GPUs, with the power of the board and of each GPU."""
    board = f"{ROOT}/Chassis/HGX_Chassis_0"
    tree = metrics(s, board)
    names = [f"{ROOT}/Chassis/HGX_GPU_{k}" for k in range(4)]
    for name in names:
        within = {"ContainedBy": to(board)}
        gpu = metrics(State(cap=700, watts=s.watts / 4), name, Links=within)
        tree |= {path: gpu[path] for path in (name, f"{name}/EnvironmentMetrics")}
    tree[f"{ROOT}/Chassis"] = links(*names, board)
    return tree


def absolute(s: State) -> dict[str, Json]:
    """Links with the whole address, for which `{base}` is a placeholder."""
    tree = power(s, control(s))
    tree[f"{ROOT}/Chassis"] = links("{base}" + ONE)
    tree[ONE] |= {"Power": to("{base}" + f"{ONE}/Power")}
    return tree


def cray(s: State) -> dict[str, Json]:
    oem = {"Oem": {"Cray": {"PowerLimit": {"Min": 150, "Max": 600}}}}
    gpu = {"PowerLimit": {"LimitInWatts": 400}}
    return power(s, control(s, PowerCapacityWatts=None, **oem), part("Accelerator0 Power Control", 90, **gpu))


def allowed(s: State, numbers: str) -> dict[str, Json]:
    limit = {"LimitInWatts": s.cap, "LimitInWatts@Redfish.AllowableNumbers": [numbers]}
    return power(s, control(s, PowerLimit=limit))


def texts(s: State) -> dict[str, Json]:
    limit = {"LimitInWatts": None if s.cap is None else str(s.cap)}
    return power(s, control(s, PowerConsumedWatts=str(s.watts), PowerCapacityWatts="800", PowerLimit=limit))


@dataclass(frozen=True)
class Dialect:
    """One row. etag: see _match(); redirect: see do_GET(); status: for each path with that end; refuses: status and
    message of each PATCH; forgets: a setting is accepted, and becomes this value; answers: status of a PATCH that
    succeeds.
    """

    name: str
    tree: Callable[[State], dict[str, Json]]
    cap: bool = True
    says: str = ""
    etag: str = "weak"
    redirect: str = ""
    status: tuple[tuple[str, int], ...] = ()
    refuses: tuple[int, str] | None = None
    forgets: tuple[float | None, ...] = ()
    keeps_mode: bool = False
    answers: int = 204
    encoding: str = ""
    unit: float = 1.0
    start: State = field(default_factory=State)
    hardware: str = ""
    patched: str = ""  # the only path that may be changed


def plain(s: State) -> dict[str, Json]:
    return power(s, control(s))


def zero(s: State) -> dict[str, Json]:
    return power(s, control(s, PowerLimit={"LimitInWatts": s.cap or 0}))


def unset(**more: Any) -> State:
    return State(cap=None, **more)


ENCLOSURE = f"{ROOT}/Chassis/Enclosure"
BOARD = f"{ROOT}/Chassis/Motherboard"


def with_parts(s: State, total: float | None) -> dict[str, Json]:
    """A total that is told only after the first cap was set, and parts that always are."""
    known = s.watts if s.patched else total
    total_power = control(s, PowerConsumedWatts=known)
    return power(s, total_power, part("CPU Sub-system Power", 99), part("Memory Power", 20))


def two_names(s: State, resource: str) -> dict[str, Json]:
    """A chassis and its motherboard, which have one meter and one limit, at the path `resource`."""
    tree = power(s, control(s))
    tree[f"{ROOT}/Chassis"] = links(ONE, BOARD)
    tree[BOARD] = chassis(BOARD, Power=to(resource))
    tree[resource] = tree[f"{ONE}/Power"]
    return tree


def without_metrics(s: State) -> dict[str, Json]:
    """The newer resource without a value in it, beside the older one."""
    tree = power(s, control(s), EnvironmentMetrics=to(f"{ONE}/EnvironmentMetrics"))
    tree[f"{ONE}/EnvironmentMetrics"] = {"PowerWatts": {"Reading": None, "DataSourceUri": None}}
    return tree


DIALECTS = (
    Dialect("HPE iLO: a weak tag, null where no limit is set", plain, start=unset()),
    Dialect("Dell iDRAC: a strong tag", plain, etag="strong"),
    Dialect(
        "Lenovo XCC: the total, and parts without a limit",
        lambda s: power(s, control(s), part("CPU Sub-system Power", 99), part("Memory Power", 20)),
    ),
    Dialect("Supermicro: the header's tag is quoted twice", plain, etag="double"),
    Dialect("AMI MegaRAC: a weak tag that is compared as a strong one", plain, etag="strong-only"),
    Dialect("Fujitsu iRMC: a tag is demanded, and the body alone has it", plain, etag="body-only"),
    Dialect("Cisco: no tag in the header, and each If-Match is refused", plain, etag="refused"),
    Dialect("no tag at all, and none is accepted", lambda s: untagged(plain(s)), etag="refused"),
    Dialect("If-Match: * is the only one that is accepted", plain, etag="star"),
    Dialect("somebody else was quicker once", plain, etag="quicker"),
    Dialect("no tag is ever right", plain, cap=False, says="refused the ETag", etag="never"),
    Dialect("bmcweb: 308 to the same path with a slash", plain, redirect="slash 308"),
    Dialect("iLO 4: 301 to the same path with a slash", plain, redirect="slash 301"),
    Dialect("a redirect that names this host in full", plain, redirect="absolute 307"),
    Dialect(
        "a redirect to another host", plain, cap=False, says="which is not this BMC", redirect="elsewhere 302"
    ),
    Dialect("a redirect to itself", plain, cap=False, says="redirects too often", redirect="loop 308"),
    Dialect("a PATCH that is redirected", plain, cap=False, says="redirects a PATCH", redirect="patch 308"),
    Dialect(
        "OpenBMC: a limit that is deactivated cannot be set",
        plain,
        cap=False,
        says="Setting LimitInWatts when PowerLimit feature is disabled",
        refuses=(405, "Setting LimitInWatts when PowerLimit feature is disabled"),
        start=unset(),
    ),
    Dialect(
        "OpenBMC: a limit that is deactivated accepts a value, and shows none",
        plain,
        cap=False,
        says="reports no limit in force",
        forgets=(None,),
        start=unset(),
    ),
    Dialect("a limit that is switched off is switched on", metrics, start=State(mode="Disabled")),
    Dialect(
        "a limit that stays switched off",
        metrics,
        cap=False,
        says="reports no limit in force",
        keeps_mode=True,
        start=State(mode="Disabled"),
    ),
    Dialect(
        "a limit without a word in it",
        lambda s: metrics(s, limit={}),
        cap=False,
        says="reports no limit in force",
    ),
    Dialect(
        "PowerLimit: null",
        lambda s: power(s, control(s, PowerLimit=None)),
        cap=False,
        says="nor a PowerLimit",
    ),
    Dialect("no PowerLimit", lambda s: power(s, part("Power", 310)), cap=False, says="nor a PowerLimit"),
    Dialect("0 W is no limit, before one is set", zero, start=unset()),
    Dialect(
        "0 W is no limit, whatever is set", zero, cap=False, says="reports no limit in force", forgets=(0.0,)
    ),
    Dialect("numbers in quotes", texts, says="reports no power, but the text '310.0'"),
    Dialect("a Control", controls, patched=f"{ONE}/Controls/Power"),
    Dialect(
        "a Control in milliwatts", lambda s: in_milliwatts(s), unit=1e-3, patched=f"{ONE}/Controls/Power"
    ),
    Dialect(
        "power in milliwatts that is called watts",
        lambda s: power(s, control(s, PowerConsumedWatts=310_000)),
        cap=False,
        says="it may report milliwatts",
    ),
    Dialect("chassis over two pages", paged),
    Dialect("Controls over two pages", lambda s: controls(s, page=1), patched=f"{ONE}/Controls/Power"),
    Dialect(
        "an enclosure that is ill beside it",
        lambda s: beside(plain(s), ENCLOSURE),
        says="Enclosure is left out",
        status=(("Enclosure", 500),),
    ),
    Dialect(
        "a backplane whose power is ill beside it",
        lambda s: (
            beside(plain(s), ENCLOSURE) | {ENCLOSURE: chassis(ENCLOSURE, Power=to(f"{ENCLOSURE}/Power"))}
        ),
        says="Enclosure is left out",
        status=(("Enclosure/Power", 503),),
    ),
    Dialect(
        "one that is ill and is not meant",
        lambda s: beside(plain(s), ENCLOSURE),
        status=(("Enclosure", 500),),
        hardware='domains = "1"',
    ),
    Dialect("all are ill", plain, cap=False, says="answered 500", status=(("Chassis/1", 500),)),
    Dialect(
        "power supplies that are chassis of their own",
        lambda s: (
            beside(plain(s), f"{ROOT}/Chassis/psu0")
            | {
                f"{ROOT}/Chassis/psu0": chassis(
                    f"{ROOT}/Chassis/psu0", Power=to(f"{ROOT}/Chassis/psu0/Power")
                ),
                f"{ROOT}/Chassis/psu0/Power": {
                    "PowerControl": [],
                    "PowerSupplies": [{"PowerInputWatts": 160}],
                },
            }
        ),
    ),
    Dialect(
        "NVIDIA HGX: GPUs within a board, each with its power",
        nested,
        patched=f"{ROOT}/Chassis/HGX_Chassis_0/EnvironmentMetrics",
    ),
    Dialect(
        "the power in one member, the limit in the next",
        lambda s: power(s, part("Power", s.watts), {"Name": "Limit", "PowerLimit": {"LimitInWatts": s.cap}}),
    ),
    Dialect(
        "a limit of the processors alone",
        lambda s: power(s, part("Power", 310), part("CPU Power", 99, PowerLimit={"LimitInWatts": s.cap})),
        cap=False,
        says="covers only a part of it",
    ),
    Dialect("HPE Cray: the node's member, and its own least and most", cray),
    Dialect("a range in AllowableNumbers", lambda s: allowed(s, "150:600")),
    Dialect(
        "a range that has no room for the safe cap",
        lambda s: allowed(s, "300:600"),
        cap=False,
        says="which is outside of its hardware's range; allowed: 300 W",
    ),
    Dialect("a highest cap of 2^32 - 1", lambda s: metrics(s, limit=limit_to(s, 4294967295))),
    Dialect("a byte order mark", plain, encoding="bom"),
    Dialect("compressed, whatever was asked for", plain, encoding="gzip"),
    Dialect("a member that is null", lambda s: power(s, None, control(s, MemberId="1"))),
    Dialect(
        "no power in it", lambda s: power(s, control(s, PowerConsumedWatts=None)), says="reports no power"
    ),
    Dialect(
        "PowerControl that is empty", lambda s: power(s), cap=False, says="no chassis that reports its power"
    ),
    Dialect(
        "PowerSubsystem alone",
        lambda s: {**plain(s), ONE: chassis(PowerSubsystem=to(f"{ONE}/PowerSubsystem"))},
        cap=False,
        says="no chassis that reports its power",
    ),
    Dialect(
        "no Chassis",
        lambda s: {f"{ROOT}/": {"Systems": to(f"{ROOT}/Systems")}},
        cap=False,
        says="has no Chassis",
    ),
    Dialect("a page to log in", plain, cap=False, says="did not answer with JSON", encoding="html"),
    Dialect("a task that is answered with 202", plain, answers=202),
    Dialect("200 and a message", plain, answers=200),
    Dialect("links with the whole address", absolute),
    Dialect(
        "a total that is null while the BMC starts, beside parts",
        lambda s: with_parts(s, None),
        says="it draws 310 W",
    ),
    Dialect(
        "a total that is 0 while the BMC starts, beside parts",
        lambda s: with_parts(s, 0),
        says="it draws 310 W",
    ),
    Dialect(
        "two chassis with one Power resource",
        lambda s: two_names(s, f"{ONE}/Power"),
        says="it draws 310 W",
    ),
    Dialect(
        "a chassis and its motherboard report one meter, and set one limit",
        lambda s: two_names(s, f"{BOARD}/Power"),
        says="so they are one machine",
    ),
    Dialect(
        "switched off, with the last reading",
        lambda s: power(s, control(s), PowerState="Off"),
        says="the BMC says that the machine is off",
    ),
    Dialect("EnvironmentMetrics without a value", without_metrics, says="it draws 310 W"),
    Dialect("always 0 W", plain, says="reports 0 W, which no machine that runs draws", start=State(watts=0)),
)


def untagged(tree: dict[str, Json]) -> dict[str, Json]:
    for body in tree.values():
        body.pop("@odata.etag", None)
    return tree


def limit_to(s: State, most: float) -> Json:
    return {"SetPoint": s.cap, "ControlMode": s.mode, "AllowableMin": 0, "AllowableMax": most}


def in_milliwatts(s: State) -> dict[str, Json]:
    cap = None if s.cap is None else s.cap * 1e3
    return controls(s, SetPointUnits="mW", SetPoint=cap, AllowableMin=150_000, AllowableMax=800_000)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    row: Dialect
    state: State
    lock: threading.Lock
    elsewhere: str
    base: str

    def log_message(self, *words: Any) -> None:
        pass

    def answer(self, status: int, body: Any = None, **headers: str) -> None:
        text = "" if body is None else json.dumps(body).replace("{base}", self.base)
        data = text.encode()
        if data and self.row.encoding == "bom":
            data = b"\xef\xbb\xbf" + data
        if data and self.row.encoding == "html":
            data = b"<!DOCTYPE html><title>Log in</title>"
        if data and self.row.encoding == "gzip":
            data = gzip.compress(data)
            headers["Content-Encoding"] = "gzip"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status: int, message: str) -> None:
        self.answer(status, {"error": {"message": message}})

    def do_GET(self) -> None:
        with self.lock:
            self.state.asked.append(self.path)
            tree, tag = self.row.tree(self.state), self.state.tag
        how, _, code = self.row.redirect.partition(" ")
        slash = self.path + "/"
        if how in ("slash", "absolute") and self.path in tree and not self.path.endswith("/"):
            return self.answer(int(code), Location=(self.base if how == "absolute" else "") + slash)
        if how in ("slash", "absolute") and self.path.endswith("/") and self.path not in tree:
            self.path = self.path.rstrip("/")
        if how == "elsewhere" and self.path.endswith("/Power"):
            return self.answer(int(code), Location=self.elsewhere + self.path)
        if how == "loop" and self.path.endswith("/Power"):
            return self.answer(int(code), Location=self.path)
        for end, status in self.row.status:
            if self.path.endswith(end):
                return self.refuse(status, "an internal error")
        if self.path not in tree:
            return self.refuse(404, "nothing is here")
        return self.answer(200, tree[self.path], **self.header(tag))

    def header(self, tag: str) -> dict[str, str]:
        match self.row.etag:
            case "weak" | "strong-only" | "quicker" | "star" | "never":
                return {"ETag": tag}
            case "strong":
                return {"ETag": tag.removeprefix("W/")}
            case "double":
                return {"ETag": f'"{tag}"'}
        return {}

    def matches(self, given: str | None, tag: str) -> bool:
        match self.row.etag:
            case "refused":
                return given is None
            case "star":
                return given == "*"
            case "never":
                return False
            case "strong" | "strong-only":
                return given == tag.removeprefix("W/")
        return given == tag

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
        row, state, given = self.row, self.state, self.headers.get("If-Match")
        state.asked.append(self.path)
        if row.redirect.startswith("patch"):
            return self.answer(int(row.redirect.split()[1]), Location=self.path + "/")
        with self.lock:
            if row.etag == "body-only" and given is None:
                return self.refuse(428, "a precondition is required")
            if row.etag == "quicker" and state.changes == 1:
                state.changes += 1
            if not self.matches(given, state.tag):
                return self.refuse(
                    412, "The ETag supplied did not match the ETag required to change this resource."
                )
            if row.refuses:
                return self.refuse(*row.refuses)
            state.patched.append((self.path, body))
            for key, value in pairs(body):
                if key in ("LimitInWatts", "SetPoint"):
                    state.cap = value if value is None else value * row.unit
                if key == "ControlMode" and not row.keeps_mode:
                    state.mode = value
            if row.forgets:
                (state.cap,) = row.forgets
            state.changes += 1
        if row.answers == 204:
            return self.answer(204)
        return self.answer(row.answers, {"@odata.id": f"{ROOT}/TaskService/Tasks/1", "TaskState": "Running"})


def pairs(body: Any) -> Iterator[tuple[str, Any]]:
    """All names with their values, at any depth."""
    if isinstance(body, dict):
        for key, value in body.items():
            yield key, value
            yield from pairs(value)
    if isinstance(body, list):
        for one in body:
            yield from pairs(one)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not trust the service, or does not wait, is not an error here."""


@contextmanager
def speaking(row: Dialect, folder: Path, elsewhere: str = "") -> Iterator[tuple[int, State]]:
    """A BMC that speaks like the row. folder: has cert.pem and key.pem. Yields its port and its state."""
    start = row.start
    state = State(start.cap, start.watts, start.mode)
    handler = type(
        "Row", (Handler,), {"row": row, "state": state, "lock": threading.Lock(), "elsewhere": elsewhere}
    )
    server = Server(("127.0.0.1", 0), handler)
    port = server.server_address[1]
    handler.base = f"https://127.0.0.1:{port}"  # type: ignore[attr-defined]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield port, state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
