"""The report as a reader meets it: in headless Chromium, from a file, without a network."""

from __future__ import annotations

import base64
import json
import re
import shutil
import time

import numpy as np
import pytest
import xarray as xr

import io_traces
import noise_runs
import report_demo as demo
import sonde
import studies
from sonde.core.figure import Axis, Figure, Kind
from sonde.core.printable import printable
from sonde.core.section import Section
from sonde.net.analyse import analyse
from sonde.net.synthetic import Network
from sonde.report import collect, publish
from sonde.report.page import Report
from watching import wait_for

pytestmark = pytest.mark.browser


def slow(*values):
    """A parameter for `make test-all` alone: what `make test` opens shows already that the page works."""
    return pytest.param(*values, marks=pytest.mark.slow)


PATIENCE_S = 60  # a shared machine; nothing is timed


class Browser:
    """Chromium with one page open."""

    def __init__(self, driver):
        self.driver = driver
        self.js = driver.execute_script

    def open(self, path, width=1440, height=900, dark=False, touch=False):
        do = self.driver.execute_cdp_cmd
        do(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": touch},
        )
        do("Emulation.setTouchEmulationEnabled", {"enabled": touch})
        do(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]},
        )
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(path.as_uri())
        self.until("return document.documentElement.dataset.drawn === 'all'")

    def until(self, script):
        end = time.monotonic() + PATIENCE_S
        while not (got := self.js(script)):
            assert time.monotonic() < end, f"never true: {script}; log: {self.driver.get_log('browser')}"
            time.sleep(0.05)
        return got

    def z(self, figure):
        """The heat map's values as drawn, and where plotly drew them."""
        return np.array(
            self.js(
                "const p = document.querySelector(arguments[0] + ' .plot');"
                "return p.data[0].z.map((r) => Array.from(r, (v) => Number.isFinite(v) ? v : null))",
                figure,
            ),
            dtype=float,
        )

    def panel(self, figure):
        return self.js("return document.querySelector(arguments[0] + ' .cell').innerText", figure).replace(
            "\u00a0", " "
        )

    def text(self, selector):
        return self.js("return document.querySelector(arguments[0]).innerText", selector).replace(
            "\u00a0", " "
        )

    def keys(self, selector, keys):
        from selenium.webdriver.common.by import By

        self.driver.find_element(By.CSS_SELECTOR, selector).send_keys(keys)

    def click_cell(self, figure, row, col):
        """A real click where the cell is drawn."""
        from selenium.webdriver.common.action_chains import ActionChains

        self.js(
            "document.querySelector(arguments[0] + ' .plot').scrollIntoView("
            "{block: 'center', behavior: 'instant'})",
            figure,
        )
        x, y = self.js(
            "const p = document.querySelector(arguments[0] + ' .plot'), b = p.getBoundingClientRect(),"
            "f = p._fullLayout; return [b.left + f._size.l + f.xaxis.d2p(arguments[2]),"
            "b.top + f._size.t + f.yaxis.d2p(arguments[1])]",
            figure,
            row,
            col,
        )
        chain = ActionChains(self.driver)
        chain.w3c_actions.pointer_action.move_to_location(round(x), round(y))
        chain.w3c_actions.pointer_action.pause(
            0.3
        )  # plotly learns the cell from hovering, which it rate-limits
        chain.w3c_actions.pointer_action.click()
        chain.perform()

    def leave(self):
        """Moves the pointer off every figure, and waits until the page has heard of it."""
        from selenium.webdriver.common.action_chains import ActionChains

        chain = ActionChains(self.driver)
        chain.w3c_actions.pointer_action.move_to_location(1, 1)
        chain.perform()
        self.until("return document.getElementById('tip').hidden")

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self):
        """URLs of every request the page made, the page itself left out, and what Chromium's own first page shows."""
        made = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                made.append(message["params"]["request"]["url"])
        ours = [url for url in made if not url.startswith(("data:", "blob:", "chrome:"))]
        return [url for url in ours if not url.endswith(".html")]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = next(
        path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))
    )
    profile = tmp_path_factory.mktemp("chromium")
    for argument in (
        "--headless=new",
        "--no-sandbox",  # root, as in CI
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Reports of 4, 32 and 128 ranks."""
    folder = tmp_path_factory.mktemp("reports")
    made = {}
    for ranks in (4, 32, 128):
        made[ranks] = folder / f"demo-{ranks}.html"
        publish.write(demo.report(ranks), made[ranks])
    return made


@pytest.fixture(scope="module")
def net_page(tmp_path_factory):
    """What `sonde report` makes of a run of net: 6 ranks, of which one cell in three converged."""
    raw = Network(ranks=6, sizes=(8, 512, 4096, 32768), regime_share=0.2).raw(20, 15, seed=1)
    status = np.where(np.arange(36 * 4) % 3, 4, 1).reshape(6, 6, 4).astype(np.int8)
    status[range(6), range(6)] = 0
    summary = analyse(raw.assign(status=(("src", "dst", "size"), status)))
    root = xr.Dataset(attrs={"schema": "net/1", "mode": "one_to_one", "oversubscribed": 0})
    tree = xr.DataTree.from_dict({"/": root, "/raw": raw, "/summary": summary})
    path = tmp_path_factory.mktemp("net") / "net.html"
    publish.write(collect.collect({"net.nc": tree}), path)
    return path


@pytest.fixture(scope="module")
def noise_page(tmp_path_factory):
    """What `sonde report` makes of noise runs: one agent that is found, and several levels."""
    found = noise_runs.tree(noise_runs.run([0.01], pairs=12))
    levels = noise_runs.run([0.01, 0.001], pairs=7, names=["1 %", "0.1 %"])
    path = tmp_path_factory.mktemp("noise") / "noise.html"
    publish.write(collect.collect({"found.nc": found, "levels.nc": noise_runs.tree(levels)}), path)
    return path


@pytest.fixture(scope="module")
def io_page(tmp_path_factory):
    """What `sonde report` makes of a trace: 4 ranks that write collectively, of which one writes to the file."""
    path = tmp_path_factory.mktemp("io") / "io.html"
    publish.write(collect.collect({"app.nc": io_traces.tree(io_traces.collective(4))}), path)
    return path


@pytest.fixture(scope="module")
def study_page(tmp_path_factory):
    """What `sonde report` makes of a study of four configurations, whose names are long."""
    folder = tmp_path_factory.mktemp("study")
    made = studies.Folder(
        folder / "a.run",
        studies.plan(
            ("ior:-a MPIIO -c -V -t 64k -e",),
            hints=("none", "cb_nodes=1,cb_buffer_size=4194304"),
            sizes=(32 << 20,),
        ),
    ).begin()
    for number in range(6):
        for cell in range(4):
            made.both(cell, number, 100.0 + cell, studies.OMPIO if cell > 1 else studies.ROMIO)
        made.limit("write", 300.0 * 2**20)
    path = folder / "study.html"
    with sonde.open(made.sealed(stop_reason="repetitions")) as tree:
        publish.write(collect.collect({"a.nc": tree}), path)
    return path


MATRIX = "#net-median-latency"
SLIDER = f"{MATRIX} input[type=range]"


@pytest.mark.parametrize("ranks", [4, slow(32), slow(128)])
def test_opens_without_complaint_and_without_a_request(browser, pages, ranks):
    browser.open(pages[ranks])
    assert browser.complaints() == []
    assert browser.requests() == []
    assert (
        browser.js(
            "return performance.getEntriesByType('resource').filter((e) => !/^(data|blob):/.test(e.name))"
        )
        == []
    )
    drawn = browser.js("return document.querySelectorAll('.plot .main-svg').length")
    assert drawn >= browser.js("return document.querySelectorAll('figure').length")


@pytest.mark.parametrize(("width", "touch"), [(1440, False), slow(390, True)])
def test_a_page_of_net_opens_without_complaint_and_fits(browser, net_page, width, touch):
    browser.open(net_page, width=width, height=844, touch=touch)
    assert browser.complaints() == []
    assert browser.requests() == []
    assert browser.js("return document.querySelectorAll('.plot .failed').length") == 0
    assert browser.js("return document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize(
    ("width", "touch", "dark"), [(1440, False, False), slow(1440, False, True), slow(390, True, False)]
)
def test_a_page_of_noise_opens_without_complaint_and_fits(browser, noise_page, width, touch, dark):
    browser.open(noise_page, width=width, height=844, touch=touch, dark=dark)
    assert browser.complaints() == []
    assert browser.requests() == []
    assert browser.js("return document.querySelectorAll('.plot .failed').length") == 0
    assert browser.js("return document.documentElement.scrollWidth <= window.innerWidth")
    drawn = browser.js("return Array.from(document.querySelectorAll('figure'), (f) => f.id)")
    assert sum("noise-blocks" in name for name in drawn) == 2
    assert any("noise-sensitivity" in name for name in drawn)


def test_the_ground_is_shaded_where_the_agent_was_on(browser, noise_page):
    browser.open(noise_page)
    shapes = browser.js(
        "const p = document.querySelector('figure[id$=noise-stalls] .plot');"
        "return p.layout.shapes.filter((s) => s.type === 'rect')"
        ".map((s) => [s.x0, s.x1, s.layer, s.fillcolor])"
    )
    assert len(shapes) >= 2
    assert all(low < high and layer == "below" for low, high, layer, _ in shapes)
    assert all(colour.startswith("rgba") for *_, colour in shapes)  # the theme's, not its name
    legend = browser.js(
        "return Array.from(document.querySelectorAll('figure[id$=noise-stalls] .legendtext'), (t) => t.textContent)"
    )
    assert "agent 1 on" in legend


@pytest.mark.parametrize(
    ("width", "touch", "dark"),
    [(1440, False, False), slow(1440, False, True), slow(390, True, False), slow(390, True, True)],
)
def test_a_page_of_io_opens_without_complaint_and_fits(browser, io_page, width, touch, dark):
    browser.open(io_page, width=width, height=844, touch=touch, dark=dark)
    assert browser.complaints() == []
    assert browser.requests() == []
    assert browser.js("return document.querySelectorAll('.plot .failed').length") == 0
    assert browser.js("return document.querySelectorAll('.plot.js-plotly-plot').length") == 5
    assert browser.js("return document.documentElement.scrollWidth <= window.innerWidth")
    out = browser.js(  # the headings of panels, which are long
        "return Array.from(document.querySelectorAll('#io-io-sizes .annotation-text'), (t) =>"
        "[t.textContent, t.getBoundingClientRect().right"
        " - t.closest('.figure').getBoundingClientRect().right])"
    )
    assert len(out) == 4
    assert all(beyond < 0 for _, beyond in out), out


ICICLE = "#io-io-paths"
LEVEL = f"return document.querySelector('{ICICLE} .plot').data[0].level"


def labels_drawn(browser):
    drawn = browser.js(
        f"return Array.from(document.querySelectorAll('{ICICLE} .slicetext'), (t) => t.textContent)"
    )
    return [text for text in drawn if text.strip()]


def test_the_keyboard_alone_walks_an_icicle_and_enlarges_a_part(browser, io_page):
    from selenium.webdriver.common.keys import Keys

    browser.open(io_page)
    assert browser.panel(ICICLE).startswith("all traced calls")
    browser.keys(f"{ICICLE} .plot", Keys.ARROW_DOWN * 4 + Keys.ARROW_RIGHT)
    panel = browser.panel(ICICLE)
    assert re.search(r"H5Dwrite ›\s*MPI_File_write_at_all ›\s*ADIOI_GEN_WriteStridedColl ›\s*pwrite", panel)
    assert re.search(r"Layer\s+POSIX and C library", panel)
    assert re.search(r"Calls\s+768", panel)
    assert re.search(r"Bytes\s+48 MiB", panel)
    assert browser.js(LEVEL) == "0"
    browser.keys(f"{ICICLE} .plot", Keys.ARROW_UP + Keys.ENTER)
    assert browser.js(LEVEL) != "0"
    assert set(labels_drawn(browser)) >= {"ADIOI_GEN_WriteStridedColl", "MPI_Waitall", "pwrite"}
    assert "H5Dwrite" not in labels_drawn(browser)
    browser.js("document.getElementById('theme').click()")
    assert "H5Dwrite" not in labels_drawn(browser), "it stays enlarged where it is drawn anew"
    browser.js("document.getElementById('theme').click()")
    browser.keys(f"{ICICLE} .plot", Keys.ESCAPE)
    assert browser.js(LEVEL) == "0"
    browser.js("localStorage.clear()")


@pytest.mark.slow
def test_keys_reach_the_foot_of_a_deep_icicle(browser, tmp_path):
    from selenium.webdriver.common.keys import Keys

    n = 30
    chain = {"parent": np.arange(n) - 1, "value": np.full(n, 2.0), "label": [f"call {k}" for k in range(n)]}
    data = xr.Dataset({name: ("node", values) for name, values in chain.items()})
    figure = Figure("io-paths", "t", "c", Kind.ICICLE, data, {"value": Axis("time", "s")})
    page = tmp_path / "deep.html"
    publish.write(Report("t", "v", [Section("io", "t", "v", figures=[figure])]), page)
    browser.open(page)
    assert labels_drawn(browser)[-1] == "call 11"
    browser.keys(f"{ICICLE} .plot", Keys.ARROW_DOWN * (n - 1))
    assert browser.panel(ICICLE).split("›")[-1].strip().startswith("call 29")
    assert labels_drawn(browser)[-1] == "call 29", "what is drawn follows"
    browser.keys(f"{ICICLE} .plot", Keys.ARROW_UP * (n - 1))
    assert labels_drawn(browser)[0] == "call 0"


def click_node(browser, label):
    """A real click on the middle of a part."""
    from selenium.webdriver.common.action_chains import ActionChains

    browser.js(
        f"document.querySelector('{ICICLE} .plot').scrollIntoView({{block: 'center', behavior: 'instant'}})"
    )
    x, y = browser.js(
        f"const t = Array.from(document.querySelectorAll('{ICICLE} .slicetext')).find("
        "(t) => t.textContent === arguments[0]);"
        "const b = t.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]",
        label,
    )
    chain = ActionChains(browser.driver)
    chain.w3c_actions.pointer_action.move_to_location(round(x), round(y))
    chain.w3c_actions.pointer_action.pause(0.3)
    chain.w3c_actions.pointer_action.click()
    chain.perform()


@pytest.mark.slow
def test_a_click_enlarges_a_part_of_an_icicle_and_another_goes_back(browser, io_page):
    browser.open(io_page)
    click_node(browser, "MPI_File_write_at_all")
    browser.until(f"{LEVEL} !== '0'")
    browser.until(f"return !document.querySelector('{ICICLE} .plot')._transitioning")
    assert "H5Dwrite" not in labels_drawn(browser)
    assert re.match(r"all traced calls ›\s*H5Dwrite ›\s*MPI_File_write_at_all", browser.panel(ICICLE))
    click_node(browser, "MPI_File_write_at_all")
    browser.until(
        f"return Array.from(document.querySelectorAll('{ICICLE} .slicetext'))"
        ".some((t) => t.textContent === 'H5Dwrite')"
    )
    browser.js(
        f"document.querySelector('{ICICLE} .cell button').click()"
    )  # on the way to it: all traced calls
    browser.until(f"{LEVEL} === '0'")
    assert browser.js("return document.activeElement.closest('figure').id") == ICICLE[1:]
    assert browser.complaints() == []


@pytest.mark.slow
def test_labels_of_an_icicle_fit_their_parts(browser, io_page):
    for width in (390, 1440):
        browser.open(io_page, width=width, touch=width < 500)
        wide = browser.js(
            f"return Array.from(document.querySelectorAll('{ICICLE} g.slice'), (g) =>"
            "[g.querySelector('.slicetext')?.textContent || '',"
            " g.querySelector('.slicetext')?.getBoundingClientRect().width || 0,"
            " g.querySelector('path.surface').getBoundingClientRect().width])"
        )
        assert len(wide) > 8
        labelled = [one for one in wide if one[0].strip()]
        assert len(labelled) > 6
        assert [one for one in labelled if one[1] >= one[2] or len(one[0]) < 4] == []


@pytest.mark.slow
def test_headings_and_bars_follow_the_choice_of_requests(browser, io_page):
    browser.open(io_page)
    headings = (
        "return Array.from(document.querySelectorAll('#io-io-sizes .annotation-text'), (t) => t.textContent)"
    )
    assert browser.js(headings)[-1].replace("\u00a0", " ") == "POSIX and C library: 768 × 64 KiB, 48 MiB"
    browser.js(
        "const s = document.querySelector('#io-io-sizes select'); s.value = 1;"
        "s.dispatchEvent(new Event('input'))"
    )
    assert browser.js(headings)[-1].replace("\u00a0", " ") == "POSIX and C library: 256 × 64 KiB, 16 MiB"


@pytest.mark.slow
def test_the_timeline_shows_the_chosen_rank(browser, io_page):
    browser.open(io_page)
    highest = (
        "const p = document.querySelector('#io-io-timeline .plot');"
        "return Math.max(...p.data[0].y.map((_, k) => p.data.reduce((sum, t) => sum + t.y[k], 0)))"
    )
    assert browser.js(highest) == pytest.approx(4, abs=0.01)
    browser.js(
        "const s = document.querySelector('#io-io-timeline select'); s.value = 2;"
        "s.dispatchEvent(new Event('input'))"
    )
    assert browser.js(highest) == pytest.approx(1, abs=0.01)


@pytest.mark.slow
def test_a_legend_stays_above_the_plot_where_paper_is_wider_than_the_window(browser, io_page):
    browser.open(io_page, width=680)
    browser.js("window.dispatchEvent(new Event('beforeprint'))")
    ends = browser.js(
        "return Array.from(document.querySelectorAll('.plot .legend'), (legend) => {"
        "const p = legend.closest('.plot');"
        "return [legend.getBoundingClientRect().bottom - p.getBoundingClientRect().top, p._fullLayout._size.t]})"
    )
    browser.js("window.dispatchEvent(new Event('afterprint'))")
    assert len(ends) == 3
    assert all(bottom <= top for bottom, top in ends), ends


def test_a_real_trace_is_drawn(browser, sonde):
    # status=none: what dd says of itself, by fprintf, is requests, too.
    copy = ("dd", "if=/dev/zero", "of=out", "bs=64k", "count=40", "status=none")
    sonde("io", "run", "-o", "dd.nc", "--", *copy).expect(0)
    sonde("report", "dd.nc", "-o", "dd.html").expect(0)
    browser.open(sonde.cwd / "dd.html")
    assert browser.complaints() == []
    assert browser.js("return document.querySelectorAll('.plot .failed').length") == 0
    assert "write" in labels_drawn(
        browser
    )  # reading zeros may take too little time to have room for its name
    told = browser.js(
        "return Array.from(document.querySelectorAll('#io-io-sizes .annotation-text'), (t) => t.textContent)"
    )
    assert told == ["POSIX and C library: 40 × 64 KiB, 2.5 MiB"]
    assert "spent" in browser.text(".verdict .sentence")


def test_models_are_drawn_over_what_was_measured_and_dashed_beyond(browser, net_page):
    browser.open(net_page)
    drawn = browser.js(
        "const p = document.querySelector('#net-net-size .plot');"
        "return p.data.filter((t) => t.line && t.x.length > 1)"
        ".map((t) => [t.name, t.line.dash, Math.min(...t.x), Math.max(...t.x)])"
    )
    sizes = (8 / 1024, 32) if max(high for *_, high in drawn) < 1000 else (8, 32768)
    assert {name.split(", ")[-1] for name, *_ in drawn} == {"Hockney", "LogGP"}
    for name, dash, low, high in drawn:
        measured = low >= sizes[0] * 0.999 and high <= sizes[1] * 1.001
        assert dash == ("solid" if measured else "dash"), name
    legend = browser.js(
        "return Array.from(document.querySelectorAll('#net-net-size .legendtext'), (t) => t.textContent)"
    )
    assert legend.count("Hockney") == legend.count("LogGP") == 1


@pytest.mark.slow
def test_a_rank_with_itself_has_no_state(browser, net_page):
    browser.open(net_page)
    z = browser.z("#net-net-status")
    assert np.isnan(np.diag(z)).all()
    assert np.isfinite(z).sum() == 30
    assert "not measured" not in browser.text("#net-net-status .codes")


@pytest.mark.slow
def test_a_run_that_hardly_converged_is_not_green(browser, net_page):
    browser.open(net_page)
    assert "converged: measure longer" in browser.text(".verdict .sentence")
    assert browser.js("return document.querySelectorAll('.count.clear').length") == 0
    assert "converged" in browser.text(".count.warned")


@pytest.mark.slow
def test_the_range_of_colours_is_reported_and_follows_the_slider(browser, net_page):
    browser.open(net_page)
    figure = "#net-net-median"
    told = f"return document.querySelector('{figure} .gtitle').textContent"
    move = (
        "const s = document.querySelector(arguments[0] + ' input[type=range]'); s.value = 3;"
        "s.dispatchEvent(new Event('input'))"
    )
    first = browser.js(told)
    assert first.startswith("Median delay: ")
    browser.js(move, figure)
    last = browser.js(told)
    assert last != first
    browser.js(f"document.querySelector('{figure} [data-choice=same]').click()")
    assert browser.js(told) not in (first, last)


def test_the_policy_forbids_what_a_page_might_try(browser, pages):
    browser.open(pages[4])
    browser.js(
        """
        window.refused = [];
        const refuse = (event) => window.refused.push(event.effectiveDirective);
        document.addEventListener("securitypolicyviolation", refuse);
        fetch("http://127.0.0.1:9/").catch(() => 0);
        const add = (tag, set) => document.body.append(Object.assign(document.createElement(tag), set));
        add("img", { src: "http://127.0.0.1:9/x.png" });
        add("script", { textContent: "window.struck = 1" });
        add("script", { src: "http://127.0.0.1:9/x.js" });
        add("link", { rel: "stylesheet", href: "http://127.0.0.1:9/x.css" });
        add("iframe", { src: "http://127.0.0.1:9/" });
        """
    )
    browser.until("return window.refused.length >= 6")
    refused = browser.js("return window.refused")
    assert set(refused) == {"connect-src", "img-src", "script-src-elem", "style-src-elem", "frame-src"}
    assert browser.js("return window.struck") is None


def test_the_slider_moves_the_matrix(browser, pages):
    browser.open(pages[32])
    truth = np.log10(demo.medians(32, demo.SIZES) * 1e6)
    np.testing.assert_allclose(browser.z(MATRIX), truth[..., 3], rtol=1e-4)
    before = browser.js("return document.querySelector(arguments[0] + ' image').getAttribute('href')", MATRIX)
    browser.js(
        "const s = document.querySelector(arguments[0]); s.value = 7; s.dispatchEvent(new Event('input'))",
        SLIDER,
    )
    np.testing.assert_allclose(browser.z(MATRIX), truth[..., 7], rtol=1e-4)
    browser.until(
        "return document.querySelector('#net-median-latency image').getAttribute('href') !== "
        + json.dumps(before)
    )
    assert browser.text(f"{MATRIX} output") == "256 KiB"


@pytest.mark.slow
def test_the_slider_is_moved_by_arrow_keys_and_says_where_it_is(browser, pages):
    from selenium.webdriver.common.keys import Keys

    browser.open(pages[32])
    browser.keys(SLIDER, Keys.ARROW_RIGHT)
    assert browser.text(f"{MATRIX} output") == "4 KiB"
    assert (
        browser.js("return document.querySelector(arguments[0]).getAttribute('aria-valuetext')", SLIDER)
        == "4\u00a0KiB"
    )
    np.testing.assert_allclose(
        browser.z(MATRIX), np.log10(demo.medians(32, demo.SIZES)[..., 4] * 1e6), rtol=1e-4
    )
    browser.keys(SLIDER, Keys.HOME)
    assert browser.text(f"{MATRIX} output") == "8 B"


def test_the_slowest_pair_is_shown_first(browser, pages):
    browser.open(pages[32])
    panel = browser.panel(MATRIX)
    assert re.match(r"3\s*→\s*27", panel)
    assert "2.336 µs" in panel
    assert "n001" in panel
    assert "n004" in panel


def test_a_clicked_cell_shows_its_pair(browser, pages):
    browser.open(pages[32])
    browser.click_cell(MATRIX, 5, 20)
    browser.until(
        "return /^5\\s*→\\s*20/.test(document.querySelector('#net-median-latency .cell').innerText)"
    )
    panel = browser.panel(MATRIX)
    value = demo.medians(32, demo.SIZES)[5, 20, 3]
    assert f"{value * 1e6:.3f}".rstrip("0") + " µs" in panel
    data = demo.dataset(32, demo.SIZES).isel(row=5, col=20, size=3)
    assert re.search(rf"Samples\s+{int(data['n'])}", panel)
    assert re.search(r"Sender \(rank\)\s+5\s+Host\s+n001", panel)
    assert re.search(r"Receiver \(rank\)\s+20\s+Host\s+n003", panel)


@pytest.mark.slow
def test_the_picked_cell_stays_while_the_slider_moves(browser, pages):
    from selenium.webdriver.common.keys import Keys

    browser.open(pages[32])
    browser.click_cell(MATRIX, 9, 2)
    browser.until("return /^9\\s*→\\s*2/.test(document.querySelector('#net-median-latency .cell').innerText)")
    browser.keys(SLIDER, Keys.END)
    panel = browser.panel(MATRIX)
    assert re.match(r"9\s*→\s*2", panel)
    assert f"{demo.medians(32, demo.SIZES)[9, 2, 7] * 1e6:.2f} µs" in panel


def test_the_keyboard_alone_reaches_every_cell(browser, pages):
    from selenium.webdriver.common.keys import Keys

    browser.open(pages[4])
    browser.keys(
        f"{MATRIX} .plot", Keys.HOME + Keys.ARROW_UP * 4 + Keys.ARROW_RIGHT * 3 + Keys.ARROW_DOWN * 2
    )
    assert re.match(r"2\s*→\s*3", browser.panel(MATRIX))
    browser.keys(f"{MATRIX} .plot", Keys.ARROW_RIGHT * 9)
    assert re.match(r"2\s*→\s*3", browser.panel(MATRIX))
    shapes = browser.js("return document.querySelector(arguments[0] + ' .plot').layout.shapes", MATRIX)
    assert [shapes[1][k] for k in ("x0", "x1", "y0", "y1")] == [2.5, 3.5, 1.5, 2.5]


@pytest.mark.slow
def test_numbers_in_cells_are_black_or_white_after_their_ground(browser, pages):
    browser.open(pages[4])
    inks = browser.js(
        "return Array.from(document.querySelectorAll('#net-median-latency .textpoint text'),"
        "(t) => [t.textContent, t.style.fill])"
    )
    assert len(inks) == 12
    assert {ink for _, ink in inks} == {"rgb(17, 17, 17)", "rgb(255, 255, 255)"}
    by_value = sorted((float(text.split()[0]), ink) for text, ink in inks)
    assert by_value[0][1] == "rgb(255, 255, 255)"
    assert by_value[-1][1] == "rgb(17, 17, 17)"


@pytest.mark.slow
def test_a_command_is_copied_or_marked_for_copying(browser, pages):
    browser.open(pages[32])
    browser.js("document.querySelector('.copy').click()")
    said = browser.until("const t = document.querySelector('.copy').innerText; return t === 'Copy' ? '' : t")
    assert said in ("Copied", "Marked")
    if said == "Marked":
        assert browser.js("return getSelection().toString()") == demo.findings(32)[0].next


def test_a_figure_that_fails_does_not_take_the_others_with_it(browser, tmp_path):
    page = tmp_path / "broken.html"
    publish.write(demo.report(4), page)
    text = page.read_text()
    at = text.index('class="spec">') + len('class="spec">')
    page.write_text(text[:at] + "[" + text[at:])
    browser.open(page)
    assert "cannot be drawn here" in browser.text(f"{MATRIX} .plot")
    assert browser.js("return document.querySelectorAll('.plot.js-plotly-plot').length") == 7
    assert len(browser.complaints()) == 1


@pytest.mark.slow
def test_a_state_is_reported_in_words(browser, pages):
    browser.open(pages[32])
    browser.click_cell("#net-status", 0, 1)
    browser.until("return /^0\\s*→\\s*1/.test(document.querySelector('#net-status .cell').innerText)")
    code = int(demo.status(32).data["value"].isel(row=0, col=1, size=0))
    assert demo.STATES[code] in browser.panel("#net-status")
    counts = browser.js(
        "return Array.from(document.querySelectorAll('#net-status .codes b'), (b) => Number(b.innerText))"
    )
    assert sum(counts) == 32 * 31


def test_a_finding_leads_to_its_cell(browser, pages):
    browser.open(pages[32])
    browser.click_cell(MATRIX, 9, 2)
    browser.leave()  # as who clicks elsewhere has: what is under the pointer is shown before what was chosen
    browser.js("document.querySelector('.go').click()")
    assert re.match(r"3\s*→\s*27", browser.panel(MATRIX))
    assert browser.js("return document.activeElement.closest('figure').id") == MATRIX[1:]


@pytest.mark.slow
def test_same_colours_throughout_holds_the_scale_still(browser, pages):
    browser.open(pages[32])
    scale = "const t = document.querySelector('#net-median-latency .plot').data[0]; return [t.zmin, t.zmax]"
    own = browser.js(scale)
    browser.js("document.querySelector('#net-median-latency [data-choice=same]').click()")
    fixed = browser.js(scale)
    assert fixed[1] > own[1]
    browser.js(
        "const s = document.querySelector(arguments[0]); s.value = 0; s.dispatchEvent(new Event('input'))",
        SLIDER,
    )
    assert browser.js(scale) == fixed


@pytest.mark.slow
def test_outliers_can_be_left_out_and_brought_back(browser, pages):
    browser.open(pages[4])
    ends = "return document.querySelector('#net-series .plot')._fullLayout.yaxis.range[1]"
    whole = browser.js(ends)
    browser.js("document.querySelector('#net-series [data-choice=focus]').click()")
    assert browser.js(ends) < whole - 0.3
    browser.js("document.querySelector('#net-series [data-choice=focus]').click()")
    assert browser.js(ends) == pytest.approx(whole)


@pytest.mark.slow
def test_epochs_are_drawn_in_two_colours_under_their_median(browser, pages):
    browser.open(pages[4])
    colours = browser.js(
        "return Array.from(document.querySelectorAll('#net-series .scatterlayer path.js-line'),"
        "(p) => getComputedStyle(p).stroke)"
    )
    assert len(set(colours)) == 3


@pytest.mark.slow
def test_dark_and_light_can_be_switched_and_are_remembered(browser, pages):
    ground = "return getComputedStyle(document.body).backgroundColor"
    ink = "return document.querySelector('#net-rules .plot')._fullLayout.font.color"
    browser.open(pages[4])
    browser.js("localStorage.clear()")
    browser.open(pages[4])
    light, light_ink = browser.js(ground), browser.js(ink)
    browser.js("document.getElementById('theme').click()")
    dark, dark_ink = browser.js(ground), browser.js(ink)
    assert sum(map(int, re.findall(r"\d+", dark)[:3])) < 150 < sum(map(int, re.findall(r"\d+", light)[:3]))
    assert light_ink != dark_ink
    browser.open(pages[4])
    assert browser.js(ground) == dark
    assert browser.text("#theme") == "Light"
    browser.js("localStorage.clear()")


@pytest.mark.slow
def test_a_readers_dark_preference_is_followed(browser, pages):
    browser.open(pages[4], dark=True)
    ground = browser.js("return getComputedStyle(document.body).backgroundColor")
    assert sum(map(int, re.findall(r"\d+", ground)[:3])) < 150
    assert browser.complaints() == []


@pytest.mark.slow
def test_a_browser_that_forbids_storage_is_no_error(browser, pages):
    script = browser.driver.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument",
        {
            "source": "Object.defineProperty(window, 'localStorage', "
            "{ get() { throw new DOMException('forbidden', 'SecurityError'); } });"
        },
    )
    try:
        browser.open(pages[4])
        browser.js("document.getElementById('theme').click()")
        assert browser.js("return document.documentElement.dataset.theme") == "dark"
        assert browser.complaints() == []
    finally:
        browser.driver.execute_cdp_cmd(
            "Page.removeScriptToEvaluateOnNewDocument", {"identifier": script["identifier"]}
        )


@pytest.mark.parametrize(
    ("ranks", "width"), [slow(128, 360), (4, 375), slow(32, 390), slow(32, 768), slow(128, 1000), (4, 1440)]
)
def test_nothing_sticks_out_at_any_width(browser, pages, ranks, width):
    browser.open(pages[ranks], width=width, touch=width < 500)
    assert browser.js("return document.documentElement.scrollWidth") <= width
    wide = browser.js(
        "return Array.from(document.querySelectorAll('.figure .main-svg')).filter("
        "(s) => s.getBoundingClientRect().right"
        " > s.closest('.figure').getBoundingClientRect().right + 1).length"
    )
    assert wide == 0


@pytest.mark.parametrize("width", [360, slow(1440)])
def test_a_study_has_all_its_names_and_nothing_sticks_out(browser, study_page, width):
    browser.open(study_page, width=width, touch=width < 500)
    assert browser.js("return document.documentElement.scrollWidth") <= width
    out = browser.js(
        "return Array.from(document.querySelectorAll('main select, main caption span, .figure .main-svg, .xtitle'))"
        ".filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > arguments[0]"
        " - (e.closest('.figure') ? 12 : 0)).map((e) => e.textContent)",
        width,
    )
    assert out == []
    for figure in ("#io-io-study-rates", "#io-io-study-layers"):
        drawn = browser.js(
            "return Array.from(document.querySelectorAll(arguments[0] + ' .ytick text')).map((e) => e.textContent)",
            figure,
        )
        assert len(drawn) == 4, drawn
    assert browser.complaints() == []


@pytest.mark.slow
def test_on_a_phone_fingers_scroll_and_a_tap_shows_the_pair(browser, pages):
    browser.open(pages[4], width=375, height=812, touch=True)
    assert browser.js("return document.querySelector('.plot')._fullLayout.dragmode") is False
    assert browser.text(f"{MATRIX} .keys") == "Tap a cell to see its pair."
    browser.click_cell(MATRIX, 1, 2)
    browser.until("return /^1\\s*→\\s*2/.test(document.querySelector('#net-median-latency .cell').innerText)")


@pytest.mark.slow
def test_the_contents_follow_the_reader(browser, pages):
    browser.open(pages[32], height=500)
    browser.js("document.getElementById('method').scrollIntoView({behavior: 'instant'})")
    browser.until("return document.querySelector('.toc [aria-current]').getAttribute('href') === '#method'")
    below = "return document.querySelector('.toc [aria-current]').getBoundingClientRect().bottom"
    assert browser.js(below) <= 500


@pytest.mark.slow
def test_cells_are_square(browser, pages):
    for width in (375, 1440):
        browser.open(pages[32], width=width, touch=width < 500)
        w, h = browser.js("const s = document.querySelector('.plot')._fullLayout._size; return [s.w, s.h]")
        assert w == pytest.approx(h, abs=1.5)


def test_without_scripts_everything_but_the_figures_is_there(browser, pages):
    do = browser.driver.execute_cdp_cmd
    do("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.driver.get(pages[32].as_uri())

        def shown() -> str:  # the page may not have come yet: the driver waits for it by a script
            return do("Runtime.evaluate", {"expression": "document.body.innerText"})["result"].get(
                "value", ""
            )

        assert wait_for(lambda: "scripts are off" in shown())
        text = shown()
        # A number keeps to its unit: the blank between them does not break.
        assert demo.report(32).verdict in text.replace("\u00a0", " ").replace("\u202f", " ")
        assert "net.slow_link" in text
        assert "same socket" in text
        assert "Copy" not in text
        assert "\nDark\n" not in text
        hidden = do(
            "Runtime.evaluate",
            {"expression": "document.querySelector('input[type=range]').offsetParent === null"},
        )
        assert hidden["result"]["value"] is True
    finally:
        do("Emulation.setScriptExecutionDisabled", {"value": False})


def test_prints_on_a4_in_light_with_figures_whole(browser, pages, tmp_path):
    browser.open(pages[32], dark=True)
    browser.js(
        "window.printed = [];"
        "window.addEventListener('beforeprint', () => window.printed.push("
        "document.querySelector('.plot')._fullLayout.font.color,"
        "...Array.from(document.querySelectorAll('.plot'), (p) => p._fullLayout.width)))"
    )
    pdf = base64.b64decode(
        browser.driver.execute_cdp_cmd(
            "Page.printToPDF", {"preferCSSPageSize": True, "printBackground": False}
        )["data"]
    )
    assert pdf.startswith(b"%PDF")
    sizes = re.findall(rb"/MediaBox\s*\[\s*0 0 ([\d.]+) ([\d.]+)", pdf)
    assert 4 <= len(sizes) <= 12
    assert {(round(float(w)), round(float(h))) for w, h in sizes} == {(595, 842)}
    printed = browser.js("return window.printed")
    assert printed[0] == "#1d2328"
    assert max(printed[1:]) <= 672
    assert browser.js("return document.querySelector('.plot')._fullLayout.font.color") == "#e4e7ea"


@pytest.mark.parametrize("text", [demo.HOSTILE[0], *map(slow, demo.HOSTILE[1:])])
def test_hostile_names_do_nothing(browser, tmp_path, text):
    page = tmp_path / "hostile.html"
    publish.write(demo.hostile_report(text), page)
    browser.open(page)
    assert browser.js("return window.struck") is None
    assert (
        browser.js("return document.querySelectorAll('.plot a, [onerror], [onload], [onmouseover]').length")
        == 0
    )
    assert browser.complaints() == []
    assert browser.js("return document.querySelector('h1').textContent").split() == printable(text).split()
