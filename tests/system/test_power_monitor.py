"""The monitor as a process: fed over DDS, scraped by a real Prometheus, looked at in headless Chromium."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

import power_stand_in as stand_in
from claimed import a_domain
from power_daemons import until
from sonde.power.monitor import run_history
from sonde_shell import PROGRAM

PATIENCE_S = 60  # a shared machine; nothing is timed
SONDE = [PROGRAM]


class Running:
    def __init__(self, process, ready):
        self.process, self.ready, self.address = process, ready, ready["address"]

    def get(self, path, headers=None):
        with urllib.request.urlopen(
            urllib.request.Request(self.address + path, headers=headers or {}), timeout=PATIENCE_S
        ) as answer:
            return answer.read().decode(), dict(answer.headers)

    def now(self):
        return json.loads(self.get("now")[0])["now"]


@contextmanager
def monitor(config):
    log = config.with_name("monitor.log")
    with log.open("wb") as err:
        process = subprocess.Popen(
            [*SONDE, "power", "serve", "monitor", "--config", str(config), "--with-parent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=err,
            cwd=config.parent,
        )
        try:
            line = process.stdout.readline()
            assert line, log.read_text()
            yield Running(process, json.loads(line))
        finally:
            if process.poll() is None:
                process.stdin.close()
                process.wait(PATIENCE_S)
            process.stdout.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A monitor that hears four nodes, a job and a manager; and what the nodes draw."""
    config = stand_in.folder_of(tmp_path_factory.mktemp("monitor"), a_domain())
    with stand_in.publishing(config) as draws, monitor(config) as it:
        it.draws, it.config = draws, config
        until(
            lambda: it.now()["cluster"]["up"] == 4 and it.now()["cluster"].get("budget_w"), "nobody was heard"
        )
        yield it


def test_it_tells_what_it_hears(running):
    now = running.now()
    assert now["cluster"]["budget_w"] == 1000
    assert now["cluster"]["sum_caps_w"] == 4 * 230
    assert now["cluster"]["manager"] == "m1"
    assert now["cluster"]["simulated"]
    assert {node["node"]: node["power_w"] for node in now["nodes"]} == running.draws
    assert [job["job"] for job in now["jobs"]] == ["17"]
    assert {node["node"]: node["job"] for node in now["nodes"]} == {
        "n1": "17",
        "n2": "17",
        "n3": "",
        "n4": "",
    }


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool: apt-get install prometheus")
def test_metrics_are_as_promtool_wants_them(running):
    text, headers = running.get("metrics")
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=text.encode(),
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stderr == b""
    assert 'sonde_power_budget_watts{cluster="demo"} 1000.0' in text
    assert 'sonde_power_node_cap_watts{cluster="demo",node="n1"} 230.0' in text
    assert 'sonde_power_node_sensor_celsius{cluster="demo",node="n1",sensor="inlet"} 24.5' in text


def test_openmetrics_is_read_by_another_parser(running):
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    text, headers = running.get("metrics", {"Accept": "application/openmetrics-text; version=1.0.0"})
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert families["sonde_power_node_energy_joules"].type == "counter"
    assert {sample.labels["node"] for sample in families["sonde_power_node_watts"].samples} == set(
        running.draws
    )
    assert all(
        sample.labels["source"] == "simulated" for sample in families["sonde_power_node_watts"].samples
    )


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.skipif(not shutil.which("prometheus"), reason="no prometheus: apt-get install prometheus")
def test_prometheus_scrapes_it(running, tmp_path):
    host = running.address.removeprefix("http://").rstrip("/")
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: sonde, static_configs: [{{targets: ['{host}']}}]}}]\n"
    )
    port = free_port()
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={tmp_path / 'prometheus.yml'}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:

        def asked():
            assert process.poll() is None, (tmp_path / "log").read_text()
            try:
                url = f"http://127.0.0.1:{port}/api/v1/query?query=sum(sonde_power_node_cap_watts)"
                with urllib.request.urlopen(url, timeout=5) as answer:
                    found = json.load(answer)["data"]["result"]
            except (urllib.error.URLError, OSError):
                return None
            return found[0]["value"][1] if found else None

        assert float(until(asked, "prometheus has no sample")) == 4 * 230
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def test_what_a_page_of_the_web_would_ask_is_refused(running):
    with pytest.raises(urllib.error.HTTPError) as refused:
        running.get("now", {"Host": "rebound.example"})
    assert refused.value.code == 403


def test_top_and_status_show_the_same(running, sonde):
    shown = sonde("power", "top", "--config", running.config, "--turns", "2", "--every", "1s").expect(0)
    assert all(len(line) <= 80 for line in shown.out.splitlines())
    assert "n4" in shown.out
    told = json.loads(sonde("power", "status", "--config", running.config, "--json").expect(0).out)
    assert told["budget_w"] == 1000
    assert told["violations"] == 0
    assert told["max_sum_caps_w"] == 920
    assert told["lease_s"] == 3
    assert [node["node"] for node in told["nodes"]] == ["n1", "n2", "n3", "n4"]


def test_a_strange_time_and_a_strange_name_change_nothing_of_others(tmp_path):
    config = stand_in.folder_of(tmp_path, a_domain())
    strange = [
        stand_in.node("n1", (1 << 62)),
        stand_in.node('<script>alert("x")</script>', 0, power_w=float("inf")),
    ]
    with stand_in.publishing(config, also=strange) as draws, monitor(config) as it:
        until(lambda: it.now()["cluster"]["up"] == 5, "not all were heard")
        draws["n1"] = 111.0
        until(lambda: it.now()["nodes"][1]["power_w"] == 111.0, "n1 was silenced by its own strange time")
        by_name = {node["node"]: node for node in it.now()["nodes"]}
        assert by_name['<script>alert("x")</script>']["power_w"] is None
        text, _ = it.get("metrics")
        assert 'node="<script>alert(\\"x\\")</script>"' in text
        assert "sonde_power_monitor_malformed_total 2.0" in text


def test_a_token_is_asked_for(tmp_path):
    (tmp_path / "token").write_text("0123456789abcdef0123\n")
    (tmp_path / "token").chmod(0o600)
    config = stand_in.folder_of(tmp_path, a_domain(), 'token_file = "token"')
    with monitor(config) as it:
        assert it.ready["token"]
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "sonde_power=wrong"}):
            for path in ("", "now", "metrics", "events"):
                with pytest.raises(urllib.error.HTTPError) as refused:
                    it.get(path, headers)
                assert refused.value.code == 401
        assert it.get("health")[0] == "ok\n"
        assert "sonde_power" in it.get("metrics", {"Authorization": "Bearer 0123456789abcdef0123"})[0]
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(it.address + "?token=0123456789abcdef0123", timeout=PATIENCE_S) as page:
            assert page.url == it.address  # the token is no longer in it
            assert b"<title>Power</title>" in page.read()
        with opener.open(it.address + "now", timeout=PATIENCE_S) as answer:
            assert json.load(answer)["now"]["cluster"]["cluster"] == "demo"


def test_nobody_listens_beyond_loopback_without_a_token(tmp_path, sonde):
    config = stand_in.folder_of(tmp_path, 1)
    config.write_text(config.read_text().replace("127.0.0.1:0", "0.0.0.0:0"))
    told = sonde("power", "serve", "monitor", "--config", config).expect(2)
    assert "token_file" in told.said


def test_its_history_outlives_kill_9(tmp_path):
    config = stand_in.folder_of(tmp_path, a_domain())
    path = tmp_path / "history.sqlite"
    with stand_in.publishing(config):
        with monitor(config) as it:
            until(lambda: it.now()["cluster"]["up"] == 4, "nobody was heard")
            until(lambda: "written_total 0.0" not in it.get("metrics")[0], "nothing was written")
            it.process.send_signal(signal.SIGKILL)
            it.process.wait(PATIENCE_S)
        before = len(list(run_history.read(path, "node")))
        assert before >= 4
        with sqlite3.connect(path) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        with monitor(config) as it:
            until(lambda: len(list(run_history.read(path, "node"))) > before, "nothing more was written")


def test_a_recording_is_judged_shown_and_replayed(running, sonde, typed):
    told = (
        sonde("power", "run", "--config", running.config, "--budget", "4s", "-o", "a.nc", "--json")
        .expect(0)
        .json
    )
    assert (told["schema"], told["violations"], told["budget_w"], told["simulated"]) == (
        "power/1",
        0,
        1000,
        True,
    )
    assert told["max_sum_caps_w"] == 920
    assert [node["node"] for node in told["nodes"]] == ["n1", "n2", "n3", "n4"]
    typed("data", "validate", "a.nc").expect(0)
    assert "920 W" in typed("power", "show", "a.nc").expect(0).out
    words = ("power", "whatif", "--history", "a.nc", "--config", running.config, "--json")
    what = typed(*words, "--policy", "fair", "--policy", "uniform").expect(0).json
    assert [one["policy"] for one in what["policies"]] == ["as it was", "fair", "uniform"]
    assert all(one["max_sum_caps_w"] <= 1000 * (1 + 1e-9) for one in what["policies"])
    assert what["policies"][0]["max_sum_caps_w"] == 920
    refused = typed(*words, "--power-limit", "40W").expect(2).json["error"]
    assert refused["code"] == "power.budget_too_small"
    least = refused["hint"].split("--power-limit ")[1].split(" ")[0]
    typed(*words, "--policy", "fair", "--power-limit", least).expect(0)
    jobs = (
        typed("power", "jobs", "--history", running.config.with_name("history.sqlite"), "--json")
        .expect(0)
        .json
    )
    assert jobs["jobs"][0]["signature"]["mean_w"] == pytest.approx(180)
    assert (jobs["jobs"][0]["job"], jobs["jobs"][0]["name"]) == ("17", "lbm")
    assert sonde.left() == []


def test_orders_reach_who_leads_and_say_how_long_it_took(tmp_path, sonde):
    from sonde.power.stack.run_bus import load, open_bus
    from sonde.power.stack.telemetry import SERVICES

    config = stand_in.folder_of(tmp_path, a_domain())
    asked = []

    def answer(body):
        asked.append(body)
        left = 800.0 if body["order"] == "SHED" else body["budget_w"]
        told = stand_in.cluster(time.time_ns(), budget_w=left, committed_w=left)
        if body["order"] == "SHED":
            told |= {"restored_w": 1000.0, "shed_left_s": body["for_s"]}
        return {"cluster": told, "comply_s": 0.25 if left < 900 else float("nan")}

    service = "SystemPowerManager_set"
    with open_bus(load(config), "stand-in") as bus, bus.serve(service, answer, "active", *SERVICES[service]):
        shed = sonde("power", "shed", "20%", "--for", "30m", "--config", config, "--json").expect(0).json
        late = (
            sonde("power", "set-budget", "0.95kW", "--config", config, "--wait", "1s", "--json")
            .expect(4)
            .json
        )
    assert (shed["budget_w"], shed["comply_s"], shed["manager"]) == (800, 0.25, "m1")
    assert (shed["restored_w"], shed["shed_left_s"]) == (1000, 1800)
    assert (asked[0]["share"], asked[0]["for_s"]) == (0.2, 1800)
    assert (late["budget_w"], late["comply_s"], asked[1]["wait_s"]) == (950, None, 1)


# ---- in a browser


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = next(
        path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))
    )
    for argument in (
        "--headless=new",
        "--no-sandbox",  # root, as in CI
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield made
    finally:
        made.quit()


def look(driver, address, width=1280, dark=False):
    do = driver.execute_cdp_cmd
    do(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    scheme = "dark" if dark else "light"
    do("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    driver.get_log("browser")
    driver.get_log("performance")
    driver.get(address)
    until(
        lambda: driver.execute_script("return Number(document.documentElement.dataset.heard || 0) > 1"),
        "no event",
    )


def pictured(driver, name):
    if folder := os.environ.get("SONDE_TEST_PICTURES"):
        driver.save_screenshot(str(Path(folder) / f"{name}.png"))


@pytest.mark.browser
@pytest.mark.parametrize(("dark", "ground"), [(False, "rgb(255, 255, 255)"), (True, "rgb(20, 23, 27)")])
def test_the_page_follows_what_nodes_draw(running, driver, dark, ground):
    look(driver, running.address, dark=dark)
    text = driver.execute_script("return document.body.innerText")
    assert "of 1 kW drawn" in text
    assert "simulated" in text
    rows = driver.execute_script(
        "return [...document.querySelectorAll('#nodes tbody tr')].map((r) => r.cells[0].innerText)"
    )
    assert rows == ["n1", "n2", "n3", "n4"]
    paths = driver.execute_script(
        "return [...document.querySelectorAll('#course path')].map((p) => p.className.baseVal)"
    )
    assert set(paths) == {"power", "caps", "committed", "budget"}
    assert driver.execute_script("return getComputedStyle(document.body).backgroundColor") == ground
    running.draws["n2"] = 222.0 if dark else 211.0
    wanted = "222 W" if dark else "211 W"
    power = "return document.querySelectorAll('#nodes tbody tr')[1].cells[1].innerText"
    until(lambda: driver.execute_script(power) == wanted, "the page does not follow")
    pictured(driver, f"power-{'dark' if dark else 'light'}")
    asked = [
        json.loads(entry["message"])["message"]["params"]["request"]["url"]
        for entry in driver.get_log("performance")
        if '"Network.requestWillBeSent"' in entry["message"]
    ]
    assert asked
    assert [url for url in asked if not url.startswith((running.address, "data:", "chrome"))] == []
    assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.browser
def test_the_page_fits_a_telephone(running, driver):
    look(driver, running.address, width=380)
    wide = driver.execute_script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    pictured(driver, "power-narrow")
    assert wide <= 0


@pytest.mark.browser
def test_the_page_says_when_nobody_tells_it_more(tmp_path, driver):
    config = stand_in.folder_of(tmp_path, a_domain())
    with monitor(config) as it:
        look(driver, it.address)
        assert "never heard" in driver.execute_script("return document.querySelector('#nodes').innerText")
    state = "return document.getElementById('link').innerText"
    until(lambda: "lost" in driver.execute_script(state), "the page says it is live")
    pictured(driver, "power-lost")
