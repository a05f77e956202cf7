"""`sonde store` as a user meets it: real servers, real files, and what goes wrong."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import threading
import urllib.request
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

from sonde.core.errors import SondeError
from sonde.store.errors import TimedOut
from sonde_shell import PROGRAM, Shell, finish
from store_service import Service, piped, plain, serving, there
from watching import wait_for


@pytest.fixture
def service(sonde):
    with serving(sonde, "--memory") as running:
        sonde.env["SONDE_STORE_SERVERS"] = running.address
        yield running


# ---- what is put comes back


def test_a_key_is_put_got_listed_and_removed(sonde, service):
    (sonde.cwd / "input.toml").write_text("a = 1\n")
    put = sonde("store", "put", "kv:runs/42/input", "input.toml").expect(0)
    assert "kv:runs/42/input holds 6 B" in put.out
    assert sonde("store", "get", "runs/42/input").expect(0).out == "a = 1\n"
    sonde("store", "get", "kv:runs/42/input", "back.toml").expect(0)
    assert (sonde.cwd / "back.toml").read_text() == "a = 1\n"
    assert sonde("store", "ls", "kv:runs").expect(0).out == "kv:runs/42/input\n"
    assert sonde("store", "ls", "kv:runs", "-l").expect(0).out == "6  kv:runs/42/input\n"
    assert sonde("store", "stat", "kv:runs/42/input", "--json").expect(0).json["bytes"] == 6
    assert sonde("store", "rm", "kv:runs/42/input", "--json").expect(0).json["removed"] == 1
    gone = sonde("store", "get", "kv:runs/42/input").expect(3)
    assert "runs/42/input" in gone.err


@pytest.mark.parametrize("kind", ["object", "item"])
def test_forty_megabytes_come_back_as_they_were(sonde, service, kind):
    data = np.random.default_rng(4).bytes(40_000_003)
    (sonde.cwd / "big").write_bytes(data)
    sonde("store", "put", f"{kind}:fields/p", "big").expect(0)
    assert sonde("store", "stat", f"{kind}:fields/p", "--json").expect(0).json["bytes"] == len(data)
    sonde("store", "get", f"{kind}:fields/p", "back").expect(0)
    assert (sonde.cwd / "back").read_bytes() == data
    assert piped(sonde, b"", "store", "get", f"{kind}:fields/p").stdout == data
    (listed,) = sonde("store", "ls", f"{kind}:fields", "--long", "--json").expect(0).json["entries"]
    assert listed["address"] == f"{kind}:fields/p"
    assert listed["bytes"] == len(data)
    assert listed["changed"].endswith("Z")
    (sonde.cwd / "small").write_bytes(b"short")
    sonde("store", "put", f"{kind}:fields/p", "small").expect(0)
    assert piped(sonde, b"", "store", "get", f"{kind}:fields/p", "-").stdout == b"short"
    sonde("store", "rm", f"{kind}:fields/p").expect(0)
    assert sonde("store", "ls", f"{kind}:fields").expect(0).out == ""


def test_stdin_and_names_and_values_of_any_bytes(sonde, service):
    value = bytes(range(256))
    assert piped(sonde, value, "store", "put", "kv:bin/%00%FF%25%2F", "-").returncode == 0
    assert piped(sonde, b"", "store", "get", "kv:bin/%00%FF%25%2F").stdout == value
    (line,) = sonde("store", "ls", "bin").expect(0).out.splitlines()
    assert piped(sonde, b"", "store", "get", line).stdout == value
    sonde("store", "rm", line).expect(0)


def test_empty_ones_are_no_missing_ones(sonde, service):
    for address in ("kv:s/k", "object:s/o", "item:s/i"):
        assert piped(sonde, b"", "store", "put", address, "-").returncode == 0
        assert sonde("store", "stat", address, "--json").expect(0).json["bytes"] == 0
        assert piped(sonde, b"", "store", "get", address, "out").returncode == 0
        assert (sonde.cwd / "out").read_bytes() == b""


def test_exclusive_replaces_nothing(sonde, service):
    (sonde.cwd / "f").write_text("1")
    (sonde.cwd / "g").write_text("2")
    for address in ("kv:s/k", "object:s/o", "item:s/i"):
        sonde("store", "put", address, "f", "--exclusive").expect(0)
        assert "already" in sonde("store", "put", address, "g", "--exclusive").expect(3).err
        assert piped(sonde, b"", "store", "get", address).stdout == b"1"


def test_removing_all_that_begin_so(sonde, service):
    with connected(service) as client, client.batch() as batch:
        for k in range(100):
            batch.put("s", f"a/{k}", b"")
        batch.put("s", "b", b"")
    assert sonde("store", "rm", "-r", "kv:s/a/", "--json").expect(0).json["removed"] == 100
    assert sonde("store", "ls", "s").expect(0).out == "kv:s/b\n"
    left = sonde("store", "rm", "kv:s/none", "kv:s/b").expect(3)
    assert "there is no kv:s/none; 1 removed" in left.said
    sonde("store", "rm", "--force", "kv:s/none").expect(0)
    assert "no name begins with kv:s/" in sonde("store", "ls", "kv:s").expect(0).said


def test_a_list_can_be_cut(sonde, service):
    with connected(service) as client, client.batch() as batch:
        for k in range(20):
            batch.put("s", f"{k:02}", b"")
    cut = sonde("store", "ls", "s", "--limit", "3").expect(0)
    assert cut.out.splitlines() == ["kv:s/00", "kv:s/01", "kv:s/02"]
    assert "more than 3" in cut.said
    assert not sonde("store", "ls", "s", "--limit", "20", "--json").expect(0).json["cut"]


def connected(*services: Service, **options):
    """A client of these servers. Not `sonde`: that is the command line here."""
    from sonde.store import connect

    return connect(*(service.address for service in services), **options)


# ---- what is wrong is told


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("put", "kv:s", "f"), 2, "names a space only"),
        (("put", "kvv:s/k", "f"), 2, "nearest: kv"),
        (("put", "kv:" + "s" * 70 + "/k", "f"), 2, "the name of the space"),
        (("put", "kv:h5.files/foo", "f"), 2, "reserved space"),
        (("put", "kv:sonde.items/foo", "f"), 2, "reserved space"),
        (("put", "kv:s/k", "nofile"), 3, "nofile cannot be read: no such file"),
        (("put", "kv:s/k", "."), 3, "is a directory"),
        (("put", "kv:s/%4", "f"), 2, "'%' without two hexadecimal digits"),
        (("put", "kv:s/" + "k" * 441, "f"), 2, "docs/reference/store.md"),
        (("put", "kv:s/k", "f", "--safety", "disk"), 2, "allowed: network, storage"),
        (("put", "kv:s/k", "f", "--safety", "storage"), 3, "memory"),
        (("put", "kv:s/k", "large"), 2, "store it as an object: object:s/k"),
        (("put", "kv:s/k"), 2, "put needs FILE"),
        (("get", "kv:s/none"), 3, "there is no kv:s/none hint: sonde store ls kv:s/ lists"),
        (("get", "object:s/none"), 3, "there is no object:s/none"),
        (("stat", "object:s/none"), 3, "there is no object:s/none"),
        (("rm", "item:s/none"), 3, "there is no item:s/none"),
        (("get", "item:s/none", "x"), 3, "there is no item:s/none"),
        (("put", "kv:s/there", "f", "--exclusive"), 3, "kv:s/there exists already"),
        (("token", "-"), 2, "not to stdout"),
        (("get", "kv:s/k", "."), 2, "is a folder"),
        (("get", "kv:s/there", "no/such/folder"), 3, "the folder does not exist"),
        (("stat", "kv:s/none"), 3, "there is no kv:s/none"),
        (("ls", "kv:s", "--limit", "0"), 2, "whole numbers from 1 up"),
        (("rm",), 2, "rm needs ADDRESS"),
        (("status", "--server", "n:1:2"), 2, "host:port"),
        (("status", "--server", "127.0.0.1:1"), 3, "127.0.0.1:1"),
        (("status", "--timeout", "soon"), 2, "--timeout"),
        (("status", "--transport", "pigeon"), 2, "pigeon"),
        (("status", "--embedded", "x"), 2, "--embedded"),
        (("get", "kv:s/k", "--embedded", "nowhere"), 3, "there is no folder"),
        (("get", "kv:s/k", "--embedded", "x", "--server", "a:1"), 2, "both given"),
        (("serve",), 2, "--path DIR, or --memory"),
        (("serve", "--path", "x", "--memory"), 2, "both given"),
        (("serve", "--backend", "kv"), 2, "must begin with data=, kv= or db="),
        (("serve", "--backend", "kv=lmbd,path=x"), 2, "there is no backend 'lmbd'"),
        (("serve", "--backend", "kv=memory,limt=1GiB"), 2, "limt"),
        (("serve", "--backend", "kv=memory", "--backend", "kv=null"), 2, "twice"),
        (("serve", "--memory", "--listen", "n:1:2"), 2, "host:port"),
        (("serve", "--memory", "--auth", "none", "--listen", "0.0.0.0:0"), 2, "--auth token"),
        (("serve", "--memory", "--auth", "token"), 2, "--token-file"),
        (("serve", "--memory", "--auth", "token", "--token-file", "nofile"), 3, "nofile"),
        (("serve", "--memory", "--auth", "munge", "--user", "nobody-of-that-name"), 2, "there is no user"),
        (("serve", "--memory", "--user", "root"), 2, "--auth munge"),
        (("serve", "--memory", "--module", "./none.so"), 3, "none.so"),
        (("serve", "--memory", "--metrics", "0.0.0.0:0"), 2, "token"),
        (("serve", "--path", "no/such/folder"), 3, "the folder does not exist"),
        (("serve", "--memory", "--thread", "2"), 2, "nearest: --threads"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else None,
)
def test_bad_input_is_reported_and_changes_nothing(sonde, service, words, code, told):
    (sonde.cwd / "f").write_text("1")
    (sonde.cwd / "large").write_bytes(bytes((16 << 20) + 1))
    with connected(service) as client:
        client.put("s", "there", b"1")
    before = sorted(sonde.cwd.iterdir())
    ran = sonde("store", *words).expect(code)
    assert told in ran.said
    assert ran.out == ""
    assert sorted(sonde.cwd.iterdir()) == before
    with connected(service) as client:
        assert list(client.scan("s")) == [("there", b"1")]


def test_an_unknown_key_in_a_config_names_the_nearest(sonde):
    (sonde.cwd / "s.toml").write_text('[store.serve]\nmemory = true\nlistn = "127.0.0.1:0"\n')
    ran = sonde("store", "serve", "--config", "s.toml").expect(2)
    assert "s.toml:3: unknown key 'listn' in [store.serve] (nearest: listen)" in ran.said


def test_a_server_may_be_configured_by_a_file(sonde):
    (sonde.cwd / "s.toml").write_text('[store.serve]\nbackend = ["kv=memory", "data=null"]\nthreads = 2\n')
    with serving(sonde, "--config", "s.toml") as running, connected(running) as client:
        (report,) = [server.report for server in client.status()]
        assert {role["role"]: role["backend"] for role in report["roles"]} == {"kv": "memory", "data": "null"}


def test_bytes_are_kept_from_a_terminal(sonde, service):
    with connected(service) as client:
        client.put("s", "text", "Grüße\n".encode())
        client.put("s", "bytes", bytes(range(256)))

    def on_terminal(address):
        ours, theirs = pty.openpty()
        words = [str(PROGRAM), "store", "get", address]
        child = subprocess.Popen(
            words, cwd=sonde.cwd, env=sonde.env, stdout=theirs, stderr=subprocess.PIPE, text=True
        )
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 4096):
                shown += piece
        except OSError:  # the other end is closed
            pass
        os.close(ours)
        return child.wait(30), shown, child.stderr.read()

    assert on_terminal("kv:s/text")[:2] == (0, "Grüße\r\n".encode())
    code, shown, said = on_terminal("kv:s/bytes")
    assert (code, shown) == (2, b"")
    assert "stdout is a terminal" in plain(said)


# ---- tables


@pytest.fixture
def lab(sonde):
    """A server with a table of thirty runs."""
    from sonde._store import backends

    if "sqlite" not in backends("db"):
        pytest.skip("built without SQLite")
    (sonde.cwd / "tables").mkdir()
    with serving(sonde, "--backend", f"db=sqlite,path={sonde.cwd / 'tables'}") as running:
        sonde.env["SONDE_STORE_SERVERS"] = running.address
        with connected(running) as client:
            runs = client.define(
                "lab", "runs", {"case": "text", "step": "int64", "residual": "float64", "raw": "blob"}
            )
            rows = [
                {"case": f"cavity {k}", "step": k, "residual": 1 / (k + 1), "raw": bytes([k])}
                for k in range(30)
            ]
            runs.insert([*rows, {"case": "none"}])
        yield running


def test_rows_of_a_table_are_shown(sonde, lab):
    words = (
        "store",
        "query",
        "lab/runs",
        "--where",
        "step >= 10",
        "--where",
        "case like cavity 1%",
        "--order",
        "-step",
    )
    shown = sonde(*words, "--limit", "2", COLUMNS="80").expect(0)
    assert "2 rows of table:lab/runs, and there are more" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    assert shown.out.index("cavity 19") < shown.out.index("cavity 18")
    assert "raise --limit" in shown.said
    told = sonde(*words, "--json").expect(0).json
    assert [row["step"] for row in told["rows"]] == list(range(19, 9, -1))
    assert told["rows"][0] == {"_id": 20, "case": "cavity 19", "step": 19, "residual": 0.05, "raw": "Ew=="}
    assert not told["cut"]
    some = (
        sonde("store", "query", "lab/runs", "--where", "step is null", "--fields", "case", "--json")
        .expect(0)
        .json
    )
    assert some["rows"] == [{"_id": 31, "case": "none"}]
    nothing = sonde("store", "query", "table:lab/runs", "--where", "step > 99").expect(0)
    assert "0 rows" in nothing.out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("lab/none",), 3, "there is no table:lab/none"),
        (("lab",), 2, "names a space only hint: write SPACE/TABLE"),
        (("kv:lab/runs",), 2, "write SPACE/TABLE"),
        (("lab/runs", "--where", "stp > 1"), 2, "no field 'stp'"),
        (("lab/runs", "--where", "step"), 2, "not a condition"),
        (("lab/runs", "--order", "stp"), 2, "no field 'stp' (nearest: step)"),
        (("lab/runs", "--fields", "case,stp"), 2, "no field 'stp'"),
        (("lab/runs", "--limit", "0"), 2, "from 1 up"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_query_that_makes_no_sense_is_reported(sonde, lab, words, code, told):
    assert told in sonde("store", "query", *words).expect(code).said


# ---- status and metrics


def test_status_tells_what_was_done(sonde, service):
    with connected(service) as client:
        client.put("s", "k", b"v")
        client.write("s", "o", b"v")
    ran = sonde("store", "status", COLUMNS="80").expect(0)
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "1 kv.put" in ran.out
    assert "last error     none" in ran.out
    assert "1 key, " in plain(ran.out)
    assert "1 object, " in plain(ran.out)
    (server,) = sonde("store", "status", "--json").expect(0).json["servers"]
    assert server["address"] == service.address
    assert server["transport"] == "tcp"
    assert server["report"]["operations"]["object.write"] == 1


def test_status_of_several_servers(sonde, service):
    with serving(sonde, "--backend", "kv=memory") as other:
        both = sonde(
            "store", "status", "--json", SONDE_STORE_SERVERS=f"{service.address},kv@{other.address}"
        ).expect(0)
        assert [server["address"] for server in both.json["servers"]] == [service.address, other.address]
        ran = sonde("store", "status", "--server", f"data@{other.address}").expect(3)
        assert "data" in ran.said


def test_status_shows_the_servers_that_answer_when_one_does_not(sonde, service):
    nobody = "127.0.0.1:1"
    with serving(sonde, "--backend", "kv=memory") as other:
        named = f"{service.address},kv@{nobody},{other.address}"
        ran = sonde("store", "status", COLUMNS="100", SONDE_STORE_SERVERS=named).expect(3)
        assert f"{service.address}: up" in ran.out
        assert f"{other.address}: up" in ran.out
        assert "2 of 3 servers answer" in ran.out
        assert ran.said.count(f"cannot connect to {nobody}") == 1
        told = sonde("store", "status", "--json", SONDE_STORE_SERVERS=named).expect(3).json
        first, silent, last = told["servers"]
        assert (first["address"], last["address"]) == (service.address, other.address)
        assert "roles" in first["report"]
        assert set(silent) == {"address", "error"}
        assert silent["address"] == nobody
        assert silent["error"]["code"] == "store.unreachable"


def test_status_of_several_servers_none_of_which_answers(sonde):
    ran = sonde("store", "status", "--server", "127.0.0.1:1,127.0.0.1:2").expect(3)
    assert "none of 2 servers answers" in ran.out
    assert "127.0.0.1:1" in ran.said
    assert "127.0.0.1:2" in ran.said


def stop(pid: int) -> None:
    """Stops a process, and returns when no thread of it runs any more: a server that spins answers for a moment yet."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    assert wait_for(
        lambda: all(
            (task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks.iterdir()
        )
    )


def test_the_timeout_holds_while_connecting(sonde, service):
    """A server that is stopped takes connections, as its system does so for it, and says nothing."""
    (sonde.cwd / "f").write_text("1")
    stop(service.pid)
    try:
        for words in (("put", "kv:s/k", "f"), ("ls", "kv:s"), ("query", "lab/runs"), ("status",)):
            ran = sonde("store", *words, "--timeout", "200ms").expect(3)
            assert f"{service.address} did not answer within 200 ms" in ran.said
            assert "raise --timeout" in ran.said
    finally:
        os.kill(service.pid, signal.SIGCONT)


def test_a_batch_that_times_out_names_the_server_and_what_gives_it_longer(service):
    with connected(service, timeout_s=0.3) as client:
        client.put("s", "k", b"1")
        stop(service.pid)
        try:
            with pytest.raises(TimedOut) as caught:
                client.get("s", "k")
        finally:
            os.kill(service.pid, signal.SIGCONT)
    assert caught.value.what == f"the server at {service.address} did not answer within 300 ms"
    assert "raise timeout_s" in caught.value.hint


def test_metrics_are_openmetrics(sonde):
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    with serving(sonde, "--memory", "--metrics", "127.0.0.1:0") as running:
        with connected(running) as client:
            client.put("s", "k", b"v" * 1000)
        url = f"http://127.0.0.1:{running.ready['metrics_port']}/metrics"
        asked = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text;version=1.0.0"})
        with urllib.request.urlopen(asked, timeout=10) as page:
            kind, text = page.headers["Content-Type"], page.read().decode()
    assert kind.startswith("application/openmetrics-text")
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    (put,) = [
        sample.value
        for sample in families["sonde_store_operations"].samples
        if sample.labels["operation"] == "kv.put"
    ]
    assert put == 1
    assert families["sonde_store_in_bytes"].samples[0].value == 1000
    assert families["sonde_store_backend_seconds"].type == "histogram"


def test_metrics_for_who_asks_for_no_format(sonde):
    parser = pytest.importorskip("prometheus_client.parser")
    with serving(sonde, "--memory", "--metrics", "127.0.0.1:0") as running:
        with connected(running) as client:
            client.put("s", "k", b"v" * 1000)
        url = f"http://127.0.0.1:{running.ready['metrics_port']}/metrics"
        with urllib.request.urlopen(url, timeout=10) as page:
            kind, text = page.headers["Content-Type"], page.read().decode()
    assert kind.startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert families["sonde_store_in_bytes"].samples[0].value == 1000
    assert families["sonde_store_in_bytes"].type == "counter"
    assert all(family.documentation for family in families.values())
    if promtool := shutil.which("promtool"):
        told = subprocess.run(
            [promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60
        )
        assert told.returncode == 0, told.stdout + told.stderr


def test_metrics_behind_a_token(sonde):
    sonde("store", "token", "t").expect(0)
    with serving(sonde, "--memory", "--metrics", "127.0.0.1:0", "--metrics-token", "t") as running:
        url = f"http://127.0.0.1:{running.ready['metrics_port']}/metrics"
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url, timeout=10)
        assert refused.value.code == 401
        secret = (sonde.cwd / "t").read_text().strip()
        asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {secret}"})
        assert urllib.request.urlopen(asked, timeout=10).status == 200


# ---- who may connect


def test_a_token_lets_in_who_has_it(sonde):
    sonde("store", "token", "right").expect(0)
    sonde("store", "token", "wrong").expect(0)
    assert (sonde.cwd / "right").stat().st_mode & 0o777 == 0o600
    again = sonde("store", "token", "right").expect(3)
    assert "--force replaces it" in again.said
    with serving(sonde, "--memory", "--auth", "token", "--token-file", "right") as running:
        server = ("--server", running.address)
        (sonde.cwd / "f").write_text("1")
        sonde("store", "put", "kv:s/k", "f", *server, "--token-file", "right").expect(0)
        assert "--token-file" in sonde("store", "get", "kv:s/k", *server).expect(3).said
        wrong = sonde("store", "get", "kv:s/k", *server, "--token-file", "wrong").expect(3)
        unproven = (
            f'{running.address} reports, without having proved to be the server: "the server did not accept'
        )
        assert unproven in wrong.said
        assert (
            "munge"
            in sonde("store", "get", "kv:s/k", *server, "--auth", "munge", "--token-file", "right")
            .expect(3)
            .said
        )
        assert sonde("store", "get", "kv:s/k", *server, SONDE_STORE_TOKEN_FILE="right").expect(0).out == "1"
        (sonde.cwd / "right").chmod(0o644)
        open_to_all = sonde("store", "get", "kv:s/k", *server, "--token-file", "right").expect(3)
        assert "chmod 600 right" in open_to_all.said
        missing = sonde("store", "get", "kv:s/k", *server, "--token-file", "nofile").expect(3)
        assert "copy the server's token file" in missing.said
    serve = ("store", "serve", "--memory", "--auth", "token", "--token-file", "nofile")
    assert "sonde store token nofile" in sonde(*serve).expect(3).said


def test_tls_is_for_those_who_ask_or_for_all(sonde):
    (sonde.cwd / "f").write_text("1")
    with serving(sonde, "--memory", "--tls", "require") as running:
        server = ("--server", running.address)
        sonde("store", "put", "kv:s/k", "f", *server, "--tls").expect(0)
        assert sonde("store", "get", "kv:s/k", *server, SONDE_STORE_TLS="1").expect(0).out == "1"
        assert "TLS 1.3" in sonde("store", "status", *server, "--tls", "--json").expect(0).out
        plain = sonde("store", "get", "kv:s/k", *server).expect(3).said
        assert "accepts only TLS (give --tls" in plain
        named = sonde("store", "get", "kv:s/k", *server, "--tls", "--auth", "none").expect(2).said
        assert "--auth user or token" in named
    with serving(sonde, "--memory") as running:
        server = ("--server", running.address)
        without = sonde("store", "put", "kv:s/k", "f", *server, "--tls").expect(3).said
        assert "does not use TLS" in without
        assert "--tls offer" in without
    none = sonde("store", "serve", "--memory", "--auth", "none", "--tls", "offer").expect(2).said
    assert "use --auth user or token" in none


def test_munge_lets_in_its_own_user(sonde, munge):
    from sonde._store import auth_methods

    if "munge" not in auth_methods():
        pytest.skip("built without MUNGE")
    here = {"SONDE_MUNGE_SOCKET": str(munge)}
    (sonde.cwd / "f").write_text("1")
    with serving(sonde, "--memory", "--auth", "munge", **here) as running:
        put = ("store", "put", "kv:s/k", "f", "--server", running.address, "--auth", "munge")
        assert "does not prove whose server it is" in sonde(*put[:-2], **here).expect(3).said
        sonde(*put, **here).expect(0)
        away = sonde(*put, SONDE_MUNGE_SOCKET="/nonexistent").expect(3)
        assert "MUNGE gave no credential" in away.said
        assert "'munge', not 'token'" in sonde(*put, "--auth", "token", **here).expect(3).said
        # Also where the client has no munged: what the server asks for is told first.
        none = sonde(*put, "--auth", "none", SONDE_MUNGE_SOCKET="/nonexistent").expect(3)
        assert "asks for the authentication 'munge', not 'none'" in none.said
        if os.geteuid() == 0 and shutil.which("setpriv"):
            stranger = subprocess.run(
                ["setpriv", "--reuid=65534", "--clear-groups", str(PROGRAM), *map(str, put)],
                cwd="/tmp",
                env=sonde.env | here,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert stranger.returncode in (2, 3)
            assert "Traceback" not in stranger.stderr


def test_a_server_for_munge_does_not_start_where_munged_does_not_answer(sonde):
    from sonde._store import auth_methods

    if "munge" not in auth_methods():
        pytest.skip("built without MUNGE")
    words = ("store", "serve", "--memory", "--listen", "127.0.0.1:0", "--auth", "munge")
    ran = sonde(*words, SONDE_MUNGE_SOCKET="/nonexistent").expect(3)
    assert "MUNGE gave no credential" in ran.said
    assert "'sonde doctor' makes the same trial" in ran.said


# ---- what does not fit


@pytest.mark.parametrize("kind", ["object", "item"])
def test_what_does_not_fit_is_reported_once_with_its_server_and_leaves_no_half_item(sonde, kind):
    (sonde.cwd / "m20").write_bytes(bytes(20_000_000))
    with serving(sonde, "--backend", "data=memory,limit=12MiB", "--backend", "kv=memory") as running:
        server = ("--server", running.address)
        ran = sonde("store", "put", f"{kind}:s/a", "m20", *server).expect(3)
        assert f"is full ({running.address})" in ran.said
        assert len(re.findall(r"\d+ B", ran.said)) == 1
        if kind == "item":
            assert "item:s/a was removed again" in ran.said
            assert sonde("store", "ls", "item:s", *server).expect(0).out == ""
            sonde("store", "put", "item:s/a", "m20", "--exclusive", *server).expect(3)
            assert sonde("store", "ls", "item:s", *server).expect(0).out == ""


# ---- how servers and clients end


def test_ctrl_c_ends_a_server_in_order(sonde):
    with serving(sonde, "--memory") as running:
        ran = running.end().expect(130)
        assert f"listening on {running.address}: objects in memory, keys in memory" in ran.said
        assert ran.out.startswith("✓")
        assert "ended cleanly" in ran.out
        assert not there(running.pid)


def test_sigterm_ends_a_server_in_order(sonde):
    with serving(sonde, "--memory") as running:
        ran = running.end(signal.SIGTERM).expect(0)
        assert ran.out.startswith("✓")
        assert "ended cleanly" in ran.out
        assert not there(running.pid)


def test_a_hang_up_ends_a_server_in_order_but_not_under_nohup(sonde):
    with serving(sonde, "--memory") as running:
        assert "ended cleanly" in running.end(signal.SIGHUP).out
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup leaves it to what it starts
    try:
        with serving(sonde, "--memory", forked=False) as running:
            running.process.send_signal(signal.SIGHUP)
            assert (
                piped(sonde, b"1", "store", "put", "kv:s/k", "-", "--server", running.address).returncode == 0
            )
            assert running.process.poll() is None
            running.end().expect(130)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_server_does_not_outlive_its_parent(sonde):
    with serving(sonde, "--memory") as running:
        running.process.kill()
        running.process.wait(10)
        assert wait_for(lambda: not there(running.pid))


def test_a_server_that_dies_is_reported_of(sonde):
    with serving(sonde, "--memory") as running:
        os.kill(running.pid, signal.SIGKILL)
        ran = running.end(0)
        assert ran.code == 3
        assert "the server ended by signal 9 (SIGKILL)" in ran.said
        assert not [*sonde.cwd.glob("ready-*")]


def test_a_server_that_does_not_start_leaves_the_ready_file_of_another(sonde, service):
    (file,) = sonde.cwd.glob("ready-*")
    before = file.read_text()
    words = ("store", "serve", "--memory", "--listen", service.address, "--ready", file)
    sonde(*words).expect(3)
    assert file.read_text() == before


def heard(running: Service, words: str) -> bool:
    """Reads what `sonde store serve` says until it says these words."""
    assert running.process.stderr
    return any(words in line for line in iter(running.process.stderr.readline, ""))


def test_a_second_ctrl_c_wakes_and_ends_a_server_that_is_stopped(sonde):
    with serving(sonde, "--memory") as running:
        stop(running.pid)
        running.process.send_signal(signal.SIGINT)
        assert heard(running, f"for sonde-stored (process {running.pid}, which is stopped) to end")
        ran = running.end().expect(130)
        assert "by SIGTERM" in ran.said
        assert "ended cleanly" in ran.out
        assert not there(running.pid)


def test_a_server_killed_during_a_put_is_a_clear_error(sonde):
    with serving(sonde, "--memory") as running:
        reader, writer = os.pipe()
        words = [str(PROGRAM), "store", "put", "object:s/o", "-", "--server", running.address]
        put = subprocess.Popen(
            words, cwd=sonde.cwd, env=sonde.env, stdin=reader, stderr=subprocess.PIPE, text=True
        )
        os.close(reader)
        stop = threading.Event()

        def feed():
            try:
                while not stop.is_set():
                    os.write(writer, bytes(1 << 20))
            except OSError:
                pass
            os.close(writer)

        feeder = threading.Thread(target=feed)
        feeder.start()
        with connected(running) as client:
            # The third piece is sent when the first was acknowledged.
            assert wait_for(
                lambda: any(True for _ in client.objects("s")) and client.stat("s", "o").size > 17 << 20
            )
        os.kill(running.pid, signal.SIGKILL)
        _, err = put.communicate(timeout=60)
        stop.set()
        feeder.join(30)
        assert put.returncode == 3
        assert "Traceback" not in err
        assert re.search(r"the first \d+ B of the new content are written", plain(err))
        # A piece in flight when the server ends says that; one sent after it, that nobody listens any more.
        lost = f"sonde store status --server {running.address}"
        nobody = f"cannot connect to {running.address}: Connection refused"
        assert lost in plain(err) or (nobody in plain(err) and "sonde store serve" in plain(err))


def test_a_port_that_is_taken_is_reported_of(sonde, service):
    ran = sonde("store", "serve", "--memory", "--listen", service.address).expect(3)
    assert service.address in ran.said


def test_ctrl_c_ends_a_client_that_connects(sonde):
    """A server that is stopped takes a connection, and says nothing: 15 s, unless Ctrl-C is heard."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        pytest.skip("SIGINT is ignored here, as in a shell's background jobs")
    with serving(sonde, "--memory") as running:
        stop(running.pid)
        thread = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
        thread.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                connected(running, connect_timeout_s=600).close()
        finally:
            thread.join()
            os.kill(running.pid, signal.SIGCONT)


def test_ctrl_c_ends_a_client_that_waits(sonde):
    """A server that is stopped answers nobody: Ctrl-C must not have to wait for the timeout."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        pytest.skip("SIGINT is ignored here, as in a shell's background jobs")
    with serving(sonde, "--memory") as running, connected(running) as client:
        client.put("s", "k", b"v" * 100)
        stop(running.pid)
        began, over = threading.Event(), threading.Event()

        def interrupt():
            began.wait()
            if not over.wait(0.3):  # a call that ended for another reason is a failure of this test alone
                os.kill(os.getpid(), signal.SIGINT)

        def wait_for_the_server():
            began.set()  # on a busy machine the call may begin later than the signal comes
            client.get("s", "k")

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                wait_for_the_server()
        finally:
            over.set()
            thread.join()
            os.kill(running.pid, signal.SIGCONT)
        assert client.get("s", "k") == b"v" * 100


@pytest.mark.parametrize("kind", ["object", "item"])
def test_ctrl_c_during_a_put_tells_what_is_there_now(sonde, service, kind):
    """The pipe stays open behind the first pieces: a put under way, whose end is not in sight."""
    os.mkfifo(sonde.cwd / "pipe")
    child = sonde.start("store", "put", f"{kind}:s/o", "pipe")
    with (sonde.cwd / "pipe").open("wb") as pipe:
        pipe.write(bytes([7]) * (20 << 20))
        pipe.flush()

        def stored() -> int:
            ran = sonde("store", "stat", f"{kind}:s/o", "--json")
            return ran.json["bytes"] if ran.code == 0 else 0

        assert wait_for(lambda: stored() >= 8 << 20)
        os.killpg(child.pid, signal.SIGINT)
        ran = finish(child, 30).expect(130)
    assert f"interrupted: {kind}:s/o is new up to byte {16 << 20} at most" in ran.said
    assert ran.out == ""
    with connected(service) as client:
        assert client.status()[0].report["last_error"] == ""
    assert sorted(path.name for path in sonde.cwd.iterdir() if "ready" not in path.name) == ["pipe"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_get_that_is_ended_leaves_the_file_as_it_was(sonde, service, number):
    (sonde.cwd / "back").write_text("before")
    with connected(service) as client:
        client.create("s", "o")
        client.truncate("s", "o", 16 << 30)  # a hole: more than can be fetched before it is ended
    child = sonde.start("store", "get", "object:s/o", "back")
    assert wait_for(lambda: [*sonde.cwd.glob("back.*.part")])
    os.killpg(child.pid, number)
    ran = finish(child, 30)
    assert ran.code == (130 if number == signal.SIGINT else -signal.SIGTERM)
    assert "Traceback" not in ran.err
    assert (sonde.cwd / "back").read_text() == "before"
    assert [*sonde.cwd.glob("back.*.part")] == []


def test_a_timeout_is_reported_and_the_client_goes_on(sonde):
    with serving(sonde, "--memory") as running, connected(running, timeout_s=4) as client:
        client.put("s", "k", b"v")
        stop(running.pid)
        try:
            with pytest.raises(TimeoutError) as caught:
                client.get("s", "k")
            assert isinstance(caught.value, SondeError)
        finally:
            os.kill(running.pid, signal.SIGCONT)
        assert client.get("s", "k") == b"v"


def test_what_comes_after_a_restart(sonde):
    with serving(sonde, "--memory") as running:
        client = connected(running)
        client.put("s", "k", b"v")
        address = running.address
        running.end().expect(130)
        with pytest.raises(ConnectionError):
            client.get("s", "k")
    with serving(sonde, "--memory", "--listen", address):
        client.put("s", "k", b"w")
        assert client.get("s", "k") == b"w"


def test_three_servers_and_their_clients_agree(sonde):
    with serving(sonde, "--memory") as a, serving(sonde, "--memory") as b, serving(sonde, "--memory") as c:
        sonde.env["SONDE_STORE_SERVERS"] = ",".join(one.address for one in (a, b, c))
        data = np.random.default_rng(5).bytes(5_000_000)
        (sonde.cwd / "f").write_bytes(data)
        for k in range(5):
            sonde("store", "put", f"kv:s/{k}", "f").expect(0)
        sonde("store", "put", "item:s/striped", "f").expect(0)
        assert len(sonde("store", "ls", "s").expect(0).out.splitlines()) == 5
        assert piped(sonde, b"", "store", "get", "item:s/striped").stdout == data
        with connected(a, b, c) as client:
            assert {key: len(value) for key, value in client.scan("s")} == {
                str(k): len(data) for k in range(5)
            }
            sizes = [server.report["bytes_in"] for server in client.status()]
            assert min(sizes) > 1_000_000, "an item's blocks go to all servers"


# ---- on disks


def kept(sonde: Shell, folder: object = "data"):
    from sonde._store import backends

    if "lmdb" not in backends("kv"):
        pytest.skip("built without LMDB")
    return serving(sonde, "--path", folder)


def test_what_is_stored_is_there_after_kill_9(sonde):
    (sonde.cwd / "f").write_bytes(np.random.default_rng(6).bytes(3_000_000))
    with kept(sonde) as running:
        sonde.env["SONDE_STORE_SERVERS"] = running.address
        for address in ("kv:s/k", "object:s/o", "item:s/i"):
            told = sonde("store", "put", address, "f", "--safety", "storage").expect(0)
            assert "on stable storage" in told.out
        os.kill(running.pid, signal.SIGKILL)
        assert running.end(0).code == 3
    assert (sonde.cwd / "data").stat().st_mode & 0o777 == 0o700
    with kept(sonde) as running:
        sonde.env["SONDE_STORE_SERVERS"] = running.address
        for address in ("kv:s/k", "object:s/o", "item:s/i"):
            assert piped(sonde, b"", "store", "get", address).stdout == (sonde.cwd / "f").read_bytes()
        status = sonde("store", "status", COLUMNS="80").expect(0).out
        assert {"posix", "lmdb"} <= set(status.split())


def test_the_files_of_a_server_serve_without_one(sonde):
    (sonde.cwd / "f").write_text("1")
    with kept(sonde) as running:
        sonde("store", "put", "kv:s/k", "f", "--server", running.address).expect(0)
        running.end().expect(130)
    assert sonde("store", "get", "kv:s/k", "--embedded", "data").expect(0).out == "1"
    sonde("store", "put", "object:s/o", "f", "--embedded", "data", "--safety", "storage").expect(0)
    with kept(sonde) as running:
        assert sonde("store", "get", "object:s/o", "--server", running.address).expect(0).out == "1"


def test_an_embedded_store_is_made_by_put_and_by_nothing_else(sonde):
    from sonde._store import backends

    if "lmdb" not in backends("kv"):
        pytest.skip("built without LMDB")
    (sonde.cwd / "f").write_text("1")
    sonde("store", "ls", "kv:s", "--embedded", "new").expect(3)
    assert not (sonde.cwd / "new").exists()
    other = sonde.cwd / "other"
    other.mkdir()
    for words in (
        ("ls", "kv:s"),
        ("get", "kv:s/k"),
        ("stat", "object:s/o"),
        ("rm", "item:s/i"),
        ("query", "s/t"),
    ):
        refused = sonde("store", *words, "--embedded", other).expect(3)
        assert "holds no store" in refused.said
        assert not list(other.iterdir())
    sonde("store", "put", "kv:s/k", "f", "--embedded", "new").expect(0)
    before = sorted((sonde.cwd / "new").rglob("*"))
    assert "holds no objects yet" in sonde("store", "ls", "item:s", "--embedded", "new").expect(3).said
    assert sorted((sonde.cwd / "new").rglob("*")) == before
    assert sonde("store", "ls", "kv:s", "--embedded", "new").expect(0).out == "kv:s/k\n"


def test_a_second_server_on_the_same_folder_is_refused(sonde):
    with kept(sonde):
        ran = sonde("store", "serve", "--path", "data", "--listen", "127.0.0.1:0").expect(3)
        assert str(sonde.cwd / "data") in ran.said or "data" in ran.said
        assert ran.out == ""


@pytest.mark.root
def test_a_full_disk_is_reported_and_the_server_goes_on(sonde):
    disk = sonde.cwd / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", str(disk)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        from sonde._store import backends

        assert "posix" in backends("data")
        with serving(sonde, "--backend", f"data=posix,path={disk}", "--backend", "kv=memory") as running:
            sonde.env["SONDE_STORE_SERVERS"] = running.address
            (sonde.cwd / "small").write_bytes(b"s" * 100_000)
            (sonde.cwd / "large").write_bytes(b"l" * 20_000_000)
            sonde("store", "put", "object:s/small", "small", "--safety", "storage").expect(0)
            full = sonde("store", "put", "object:s/large", "large").expect(3)
            with connected(running) as client:
                stands = client.stat("s", "large").size
                assert client.read("s", "large").tobytes() == b"l" * stands
            assert f"the first {stands} B of the new content are written" in full.said
            assert "object.write s/large" in full.said
            assert "full" in full.said
            assert "make room" in full.said
            sonde("store", "rm", "object:s/large").expect(0)
            sonde("store", "put", "object:s/again", "small").expect(0)
            assert piped(sonde, b"", "store", "get", "object:s/small").stdout == b"s" * 100_000
            assert "full" in sonde("store", "status").expect(0).out
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


@pytest.mark.root
def test_a_read_only_file_system_is_reported_of(sonde):
    disk = sonde.cwd / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,ro,mode=700", "tmpfs", str(disk)], check=False
    ).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        ran = sonde("store", "serve", "--path", "disk/data").expect(3)
        assert "cannot make disk/data: the file system there is read-only" in ran.said
        ran = sonde("store", "serve", "--backend", "data=posix,path=disk").expect(3)
        assert "disk" in ran.said
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def test_a_folder_that_may_not_be_written_is_reported_of(sonde):
    (sonde.cwd / "file").write_text("")
    ran = sonde("store", "serve", "--path", "file").expect(2)
    assert "file" in ran.said
    locked = sonde.cwd / "locked"
    locked.mkdir(mode=0o500)
    if os.geteuid() == 0:
        return  # root may write there; the read-only file system above refuses root, too
    ran = sonde("store", "serve", "--path", "locked/data", "--listen", "127.0.0.1:0").expect(3)
    assert "cannot make locked/data: you have no permission to write there" in ran.said


def test_json_of_an_error(sonde, service):
    told = json.loads(sonde("store", "stat", "kv:s/none", "--json").expect(3).out)
    assert told["error"]["code"] == "store.not_found"
    assert (told["room"], told["verb"]) == ("store", "stat")
    both = json.loads(sonde("store", "get", "kv:s/none", "--json").expect(2).out)
    assert "both write to stdout" in both["error"]["what"]
