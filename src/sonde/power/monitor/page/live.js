"use strict";
// What the monitor sends each second: {now, point}, or {now, course} at first. Everything is put in as text, never as markup.
const COLUMNS = { at: 0, power: 1, caps: 2, committed: 3, budget: 4 };
const MOST = 600;
const course = [];
const byId = (id) => document.getElementById(id);

function watts(value) {
  if (value === null || value === undefined) return "–";
  const [number, unit] = Math.abs(value) >= 1e6 ? [value / 1e6, "MW"] : Math.abs(value) >= 1e3 ? [value / 1e3, "kW"] : [value, "W"];
  return `${number.toPrecision(4).replace(/\.?0+$/, "")} ${unit}`;
}
function joules(value) {
  if (value === null || value === undefined) return "–";
  const [number, unit] = value >= 3.6e6 ? [value / 3.6e6, "kWh"] : value >= 1e3 ? [value / 1e3, "kJ"] : [value, "J"];
  return `${number.toPrecision(4).replace(/\.?0+$/, "")} ${unit}`;
}
const seconds = (value) => (value === null || value === undefined ? "–" : `${Math.max(0, value).toFixed(0)} s`);
const share = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(0)} %`);

function cell(text, kind) {
  const td = document.createElement("td");
  if (kind) td.className = kind;
  td.append(text);
  return td;
}
function meter(power, cap) {
  if (power === null || power === undefined || !cap) return "–";
  const m = document.createElement("meter");
  m.min = 0; m.max = 1; m.value = power / cap; m.optimum = 0.5;
  m.textContent = share(power / cap);
  m.title = share(power / cap);
  return m;
}
function rows(id, made) { byId(id).tBodies[0].replaceChildren(...made); }
function row(kind, cells) {
  const tr = document.createElement("tr");
  if (kind) tr.className = kind;
  tr.append(...cells);
  return tr;
}
function fact(name, value) {
  const div = document.createElement("div"), dt = document.createElement("dt"), dd = document.createElement("dd");
  dt.textContent = name; dd.textContent = value;
  div.append(dt, dd);
  return div;
}

function show(now, verdict) {
  const of = now.cluster;
  byId("name").textContent = of.cluster;
  document.title = `${watts(of.power_w)} · ${of.cluster}`;
  byId("simulated").hidden = !of.simulated;
  byId("verdict").textContent = verdict;
  byId("verdict").className = of.sum_caps_w > of.budget_w * 1.000001 || !of.managed ? "bad" : "";
  byId("facts").replaceChildren(
    fact("drawn", watts(of.power_w)), fact("caps", watts(of.sum_caps_w)), fact("budget", watts(of.budget_w)),
    fact("manager", of.manager ? `${of.manager}` : "none"), fact("state, epoch", of.manager ? `${of.state}, ${of.epoch}` : "–"),
    fact("policy", of.policy ?? "–"), fact("nodes heard", `${of.up} of ${now.nodes.length}`), fact("leases", of.nodes ? `${of.leased} of ${of.nodes}` : "–"));
  rows("nodes", now.nodes.map((n) => n.up
    ? row(n.trouble ? "trouble" : "", [cell(n.node), cell(watts(n.power_w), "n"), cell(watts(n.cap_w), "n"), cell(meter(n.power_w, n.cap_w)),
        cell(n.leased ? seconds(n.left_s) : "safe cap", "n"), cell(n.job || "–"), cell(n.trouble ? `${n.source}: ${n.trouble}` : n.source, "wide")])
    : row("away", [cell(n.node), cell("–", "n"), cell("–", "n"), cell(n.age_s === null ? "never heard" : `not heard for ${seconds(n.age_s)}`), cell("–", "n"), cell("–"), cell("–")])));
  byId("jobs-part").hidden = now.jobs.length === 0;
  rows("jobs", now.jobs.map((j) => row("", [cell(j.job), cell(j.user || "–"), cell(j.name || "–"), cell(j.state || "–"), cell(String(j.nodes), "n"),
    cell(watts(j.power_w), "n"), cell(joules(j.energy_j), "n"), cell(share(j.progress), "n")])));
}

const SVG = "http://www.w3.org/2000/svg";
function made(name, attributes, text) {
  const e = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  if (text !== undefined) e.textContent = text;
  return e;
}
function step(most) {
  const power = 10 ** Math.floor(Math.log10(most / 4 || 1));
  return [1, 2, 5, 10].map((k) => k * power).find((s) => most / s <= 5) ?? power * 10;
}
function draw() {
  const svg = byId("course"), width = svg.clientWidth || 800, height = svg.clientHeight || 256;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const left = 64, right = 12, top = 10, bottom = 24;
  const last = course.length ? course[course.length - 1][COLUMNS.at] : 0, first = course.length ? Math.min(course[0][COLUMNS.at], last - 60) : last - 60;
  const most = 1.08 * Math.max(1, ...course.flatMap((p) => p.slice(1, 5).filter((v) => v !== null)));
  const x = (at) => left + ((at - first) / (last - first)) * (width - left - right);
  const y = (value) => height - bottom - (value / most) * (height - top - bottom);
  const parts = [];
  for (let tick = 0, by = step(most); tick <= most; tick += by)
    parts.push(made("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }), made("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, watts(tick)));
  const span = last - first;
  for (const back of [0, 0.25, 0.5, 0.75, 1]) {
    const at = last - back * span;
    parts.push(made("text", { x: x(at), y: height - 6, "text-anchor": back === 0 ? "end" : back === 1 ? "start" : "middle" }, back === 0 ? "now" : `−${span * back < 120 ? (span * back).toFixed(0) + " s" : (span * back / 60).toFixed(0) + " min"}`));
  }
  for (const name of ["committed", "caps", "power", "budget"]) {
    let d = "", on = false;
    for (const point of course) {
      const value = point[COLUMNS[name]];
      if (value === null) { on = false; continue; }
      const px = x(point[COLUMNS.at]).toFixed(1), py = y(value).toFixed(1);
      d += on ? (name === "power" ? `L${px} ${py}` : `H${px}V${py}`) : `M${px} ${py}`;
      on = true;
    }
    if (d) parts.push(made("path", { class: name, d }));
  }
  svg.replaceChildren(...parts);
}

function heard(event) {
  const said = JSON.parse(event.data);
  if (said.course) course.splice(0, course.length, ...said.course);
  if (said.point) course.push(said.point);
  if (course.length > MOST) course.splice(0, course.length - MOST);
  byId("link").textContent = "live";
  byId("link").className = "";
  show(said.now, said.verdict);
  draw();
  document.documentElement.dataset.heard = String(Number(document.documentElement.dataset.heard || 0) + 1);
}
const source = new EventSource("events");
source.onmessage = heard;
source.onerror = () => { byId("link").textContent = "connection lost, trying again …"; byId("link").className = "lost"; };
addEventListener("resize", draw);
