"use strict";
// Draws the figures from the specifications in the page. Everything a dataset said goes in as text, never as HTML.
(function () {
  const TOKENS = JSON.parse(document.getElementById("tokens").textContent);
  const root = document.documentElement;
  const darkWanted = window.matchMedia("(prefers-color-scheme: dark)");
  const coarse = window.matchMedia("(pointer: coarse)").matches;
  const PRINT_WIDTH = 672; // A4 less the page margins of page.css, in CSS pixels
  let printing = false;

  function theme() {
    if (printing) return "light";
    return root.dataset.theme || (darkWanted.matches ? "dark" : "light");
  }

  // ---- small things -----------------------------------------------------------------------------------------

  function make(tag, className, text) {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  const ARRAYS = { i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };

  function isPacked(node) { return typeof node === "object" && node !== null && typeof node.bdata === "string"; }

  function unpack(node) {
    const binary = window.atob(node.bdata);
    const bytes = new Uint8Array(binary.length);
    for (let k = 0; k < binary.length; k++) bytes[k] = binary.charCodeAt(k);
    return new ARRAYS[node.dtype](bytes.buffer);
  }

  function unpacked(node) {
    const flat = unpack(node);
    if (!node.shape) return flat;
    const [rows, cols] = node.shape.split(",").map(Number);
    const made = [];
    for (let r = 0; r < rows; r++) made.push(flat.subarray(r * cols, (r + 1) * cols));
    return made;
  }

  // A copy with packed arrays unpacked and "@name" replaced by the theme's colour
  function ready(node, colours) {
    if (typeof node === "string") return node[0] === "@" ? colours[node.slice(1)] : node;
    if (Array.isArray(node)) return node.map((n) => ready(n, colours));
    if (typeof node !== "object" || node === null) return node;
    if (isPacked(node)) return unpacked(node);
    const made = {};
    for (const key of Object.keys(node)) made[key] = ready(node[key], colours);
    return made;
  }

  function merged(base, patch) {
    const plain = (n) => typeof n === "object" && n !== null && !Array.isArray(n) && !ArrayBuffer.isView(n) && !isPacked(n);
    if (!plain(base) || !plain(patch)) return patch === undefined ? base : patch;
    const made = Object.assign({}, base);
    for (const key of Object.keys(patch)) made[key] = merged(base[key], patch[key]);
    return made;
  }

  const PREFIXES = [[1e-12, "p"], [1e-9, "n"], [1e-6, "µ"], [1e-3, "m"], [1, ""], [1e3, "k"], [1e6, "M"], [1e9, "G"]];
  const BINARY = [[1, ""], [1024, "Ki"], [1048576, "Mi"], [1073741824, "Gi"]];

  function number(value, digits) {
    if (!Number.isFinite(value)) return Number.isNaN(value) ? "–" : "∞";
    if (value === 0) return "0";
    const size = Math.abs(value);
    let text;
    if (Number.isInteger(value) && size < 1e15) text = String(size);
    else if (size >= 1e-3 && size < 1e7) {
      text = size.toFixed(Math.max(0, (digits || 4) - 1 - Math.floor(Math.log10(size))));
      if (text.includes(".")) text = text.replace(/\.?0+$/, "");
    } else text = size.toExponential((digits || 4) - 1).replace(/\.?0+e/, "e").replace("e", "·10^").replace("+", "");
    const [whole, rest] = text.split(".");
    if (/^\d{5,}$/.test(whole)) text = whole.replace(/\B(?=(\d{3})+$)/g, "\u2009") + (rest ? "." + rest : "");
    return (value < 0 ? "−" : "") + text;
  }

  function quantity(value, unit) {
    if (!Number.isFinite(value)) return "–";
    const known = unit === "B" || unit === "B/s" ? BINARY : unit === "s" ? PREFIXES.slice(0, 5)
      : ["Hz", "W", "J", "flop/s", "/s"].includes(unit) ? PREFIXES : [[1, ""]];
    let step = known.find((s) => s[0] === 1);
    if (value !== 0 && known.length > 1) {
      step = known[0];
      for (const s of known) if (Math.abs(value) >= s[0] * (1 - 1e-6)) step = s;
    }
    return number(value / step[0], 4) + (unit ? "\u00a0" + step[1] + unit : "");
  }

  // Ticks that fit side by side on `room` pixels; the ends of a colour scale (≤, ≥) go before the rest
  function thinned(axis, low, high, room, place) {
    if (!axis.tickvals || !axis.ticktext) return;
    const at = axis.tickvals.map((v) => ((place(v) - low) / (high - low)) * room);
    const half = axis.ticktext.map((t) => t.length * 3.2 + 5);
    const order = at.map((_, k) => k).sort((a, b) => /^[≤≥]/.test(axis.ticktext[b]) - /^[≤≥]/.test(axis.ticktext[a]) || a - b);
    const kept = [];
    for (const k of order) if (kept.every((m) => Math.abs(at[k] - at[m]) >= half[k] + half[m])) kept.push(k);
    kept.sort((a, b) => a - b);
    axis.tickvals = kept.map((k) => axis.tickvals[k]);
    axis.ticktext = kept.map((k) => axis.ticktext[k]);
  }

  // Every 2nd, 4th, 8th … of evenly spaced ticks, as many as fit side by side
  function evenly(axis, apart) {
    const wide = Math.max(...axis.ticktext.map((t) => t.length * 6.4 + 8));
    let every = 1;
    while (apart * every < wide && every < axis.tickvals.length) every *= 2;
    axis.tickvals = axis.tickvals.filter((_, k) => k % every === 0);
    axis.ticktext = axis.ticktext.filter((_, k) => k % every === 0);
  }

  // Bars that lie, where there is little place: their names are told by the figure, and the title of the amounts, which
  // stands in the middle below them, in as many lines as it takes
  function narrow(layout, width) {
    const lines = (layout.yaxis.ticktext || []).flatMap((t) => t.split("<br>"));
    const room = width - Math.max(0, ...lines.map((t) => t.length)) * 6.4 - 30;
    layout.yaxis.title = undefined;
    let line = 0;
    layout.xaxis.title.text = layout.xaxis.title.text.split(" ").map((word) => {
      line += word.length + 1;
      if (line * 6.6 <= room || line === word.length + 1) return word + " ";
      line = word.length + 1;
      return "<br>" + word + " ";
    }).join("").trim();
  }

  // Rows of a legend whose entries are as wide as the widest
  function legendRows(traces, room) {
    const names = traces.filter((t) => t.showlegend).map((t) => t.name.length * 6.4 + 46);
    return names.length ? Math.ceil(names.length / Math.max(1, Math.floor(room / Math.max(...names)))) : 1;
  }

  function luminance(r, g, b) {
    const part = (v) => (v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4));
    return 0.2126 * part(r / 255) + 0.7152 * part(g / 255) + 0.0722 * part(b / 255);
  }

  // Black or white, whichever stands out more from the colour a value is drawn in
  function inkOn(value, trace) {
    const at = Math.min(1, Math.max(0, (value - trace.zmin) / (trace.zmax - trace.zmin)));
    let k = 1;
    while (k < trace.colorscale.length - 1 && trace.colorscale[k][0] < at) k++;
    const [from, to] = [trace.colorscale[k - 1], trace.colorscale[k]];
    const share = to[0] > from[0] ? (at - from[0]) / (to[0] - from[0]) : 0;
    const mix = [1, 3, 5].map((n) => {
      const ends = [from, to].map((c) => parseInt(c[1].slice(n, n + 2), 16));
      return ends[0] + share * (ends[1] - ends[0]);
    });
    return luminance(...mix) > 0.179 ? "#111111" : "#ffffff";
  }

  // plotly writes all cells of a matrix in one colour, unreadable on half of them: write them as a trace of their own
  function written(trace) {
    const made = { type: "scatter", mode: "text", x: [], y: [], text: [], hoverinfo: "skip", showlegend: false, textfont: { size: trace.textfont.size, color: [] } };
    trace.z.forEach((row, r) => row.forEach((value, c) => {
      if (!Number.isFinite(value)) return;
      made.x.push(c);
      made.y.push(r);
      made.text.push(trace.text[r][c]);
      made.textfont.color.push(inkOn(value, trace));
    }));
    delete trace.texttemplate;
    return made;
  }

  function median(values) {
    const kept = Array.from(values).filter(Number.isFinite).sort((a, b) => a - b);
    if (!kept.length) return NaN;
    const half = kept.length >> 1;
    return kept.length % 2 ? kept[half] : (kept[half - 1] + kept[half]) / 2;
  }

  // ---- figures ----------------------------------------------------------------------------------------------

  const drawings = new Map();

  class Drawing {
    constructor(figure) {
      this.figure = figure;
      this.plot = figure.querySelector(".plot");
      this.inputs = Array.from(figure.querySelectorAll(".control input, .control select"));
      this.same = figure.querySelector("[data-choice=same]");
      this.focus = figure.querySelector("[data-choice=focus]");
      this.drawn = false;
      this.spec = null;
      this.inputs.forEach((input, k) => input.addEventListener("input", () => this.moved(k)));
      for (const choice of [this.same, this.focus]) if (choice) choice.addEventListener("change", () => this.draw());
    }

    load() {
      if (this.spec) return;
      this.spec = JSON.parse(this.figure.querySelector("script.spec").textContent);
      if (this.spec.cells) this.cells = new Cells(this);
      if (this.spec.nodes) this.nodes = new Nodes(this);
    }

    at() {
      return this.inputs.reduce((index, input, k) => index * this.spec.controls[k].positions.length + Number(input.value), 0);
    }

    moved(k) {
      this.load();
      const text = this.spec.controls[k].positions[Number(this.inputs[k].value)];
      const output = this.inputs[k].parentNode.querySelector("output");
      if (output) output.textContent = text;
      this.inputs[k].setAttribute("aria-valuetext", text);
      const counts = this.figure.querySelectorAll(".codes b");
      this.spec.legend && this.spec.legend.forEach((code, n) => { counts[n].textContent = number(code.counts[this.at()]); });
      if (this.cells) this.cells.forget();
      this.draw();
    }

    // One figure that cannot be drawn says so, and the others are drawn
    draw() {
      try {
        this.load();
        this.redraw();
      } catch (error) {
        this.drawn = true;
        this.plot.replaceChildren(make("p", "failed", "This figure cannot be drawn here: " + error));
        window.console.error(error);
      }
    }

    redraw() {
      const spec = this.spec;
      const colours = Object.assign({ font: window.getComputedStyle(document.body).fontFamily }, TOKENS[theme()]);
      const frame = spec.frames[this.at()];
      const traces = spec.traces.map((trace, k) => {
        let t = merged(trace, frame.traces[k]);
        if (this.same && this.same.checked && spec.fixed) t = merged(t, spec.fixed.traces[k]);
        return ready(t, colours);
      });
      const focus = this.focus && this.focus.checked ? frame.focus : null;
      const same = this.same && this.same.checked && spec.fixed ? spec.fixed.layout : null;
      const layout = ready([frame.layout, same, focus].reduce((all, part) => merged(all, part || {}), spec.layout), colours);
      const width = printing ? Math.min(PRINT_WIDTH, spec.cells ? 270 : PRINT_WIDTH) : this.plot.clientWidth;
      layout.width = width;
      if (spec.size.aspect) {
        const most = Math.min(width, spec.size.most);
        layout.width = most;
        const inner = most - layout.margin.l - layout.margin.r;
        layout.height = Math.round(Math.max(60, Math.min(inner * spec.size.aspect, 1.6 * inner)) + layout.margin.t + layout.margin.b);
      } else {
        layout.height = Math.round(spec.size.height * (printing ? 0.68 : width < 480 ? 0.9 : 1));
      }
      const room = layout.width - layout.margin.l - layout.margin.r;
      if (width < 480) for (const note of layout.annotations || []) if (note.xref === "paper" && note.x === 0) note.xshift = 4 - layout.margin.l; // a panel's name
      if (width < 480 && spec.flat) narrow(layout, width);
      if (layout.showlegend) layout.height += 20 * (legendRows(traces, room) - 1); // or it would take the plot's place
      for (const trace of traces) if (trace.colorbar) thinned(trace.colorbar, trace.zmin, trace.zmax, room, (v) => v);
      if (layout.xaxis && layout.xaxis.type === "log" && layout.xaxis.range) thinned(layout.xaxis, layout.xaxis.range[0], layout.xaxis.range[1], room, Math.log10);
      this.cell_px = this.cells ? room / this.cells.spec.cols.length : 0;
      if (this.cells && layout.xaxis.tickvals.length > 1) evenly(layout.xaxis, this.cell_px * (layout.xaxis.tickvals[1] - layout.xaxis.tickvals[0]));
      if (spec.even) for (const key of Object.keys(layout)) if (/^xaxis/.test(key) && layout[key].tickvals.length > 1) evenly(layout[key], room / layout[key].tickvals.length);
      if (this.cells && this.cell_px < 46) for (const trace of traces) if (trace.z && !spec.legend.length) delete trace.texttemplate;
      if (traces[0].texttemplate) traces.push(written(traces[0]));
      layout.uirevision = focus ? "focus" : "kept"; // a reader's zoom outlives the slider
      if (this.nodes) this.nodes.dress(traces[0], colours, room);
      if (coarse) {
        layout.dragmode = false;
        for (const key of Object.keys(layout)) if (/^[xy]axis/.test(key)) layout[key].fixedrange = true;
      }
      if (this.cells) {
        this.cells.take(traces[0], frame);
        layout.shapes = (layout.shapes || []).concat(this.cells.outline(colours));
      }
      const config = {
        displaylogo: false,
        displayModeBar: !coarse, // shown on hover and on focus, by page.css
        modeBarButtons: this.nodes ? [["toImage"]] : [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
        showSendToCloud: false, // plotly.js 4 offers it unless told not to
        toImageButtonOptions: { format: "svg", filename: this.figure.id },
        doubleClick: "reset+autosize",
      };
      window.Plotly[this.drawn ? "react" : "newPlot"](this.plot, traces, layout, config);
      if (layout.showlegend && this.drawn) window.Plotly.relayout(this.plot, { "legend.x": layout.legend.x }); // it was set by the margin of before
      if (!this.drawn) {
        this.drawn = true;
        if (this.cells) this.cells.listen();
        if (this.nodes) this.nodes.listen();
      }
      if (this.cells) this.cells.tell();
      if (this.nodes) this.nodes.tell();
    }
  }

  // The panel beside a matrix: which cell, where its ends are, its value and everything else known of it
  class Cells {
    constructor(drawing) {
      this.drawing = drawing;
      this.spec = drawing.spec.cells;
      this.panel = drawing.figure.querySelector(".cell");
      this.row_facts = this.spec.row_facts.map((f) => ({ label: f.label, each: Cells.pool(f.each) }));
      this.col_facts = this.spec.col_facts.map((f) => ({ label: f.label, each: Cells.pool(f.each) }));
      this.picked = null;
      this.hovered = null;
      this.kept = new Map();
    }

    static pool(packed) {
      const at = unpack(packed.at);
      return (k) => packed.words[at[k]];
    }

    forget() { this.kept.clear(); this.hovered = null; }

    take(trace) {
      this.z = trace.z;
      if (this.spec.tips) this.tip = Cells.pool(this.spec.tips[this.drawing.at()]);
      if (!this.spec.words.length) this.middle = median([].concat(...this.z.map((r) => Array.from(r))).map((v) => this.si(v)));
      if (!this.picked) this.picked = this.start();
    }

    si(z) { return (this.spec.log ? Math.pow(10, z) : z) / this.spec.factor; }

    // The reader is shown the largest value first; in a status matrix the rarest state
    start() {
      let best = null, most = -Infinity;
      const seen = new Map();
      if (this.spec.words.length) for (const row of this.z) for (const v of row) seen.set(v, (seen.get(v) || 0) + 1);
      this.z.forEach((row, r) => row.forEach((v, c) => {
        if (!Number.isFinite(v)) return;
        const worth = this.spec.words.length ? (v === 0 ? -Infinity : -seen.get(v)) : v;
        if (worth > most || best === null) { most = worth; best = [r, c]; }
      }));
      return best || [0, 0];
    }

    outline(colours) {
      if (!this.picked) return [];
      const [r, c] = this.picked;
      const half = Math.max(0.5, 5 / this.drawing.cell_px); // a cell of two pixels still gets a frame to see it in
      const box = { type: "rect", x0: c - half, x1: c + half, y0: r - half, y1: r + half };
      return [Object.assign({ line: { color: colours.ground, width: 5 } }, box), Object.assign({ line: { color: colours.ink, width: 2 } }, box)];
    }

    pick(r, c) {
      this.picked = [Math.max(0, Math.min(this.z.length - 1, r)), Math.max(0, Math.min(this.z[0].length - 1, c))];
      this.hovered = null;
      const colours = TOKENS[theme()];
      window.Plotly.relayout(this.drawing.plot, { shapes: this.outline(colours) });
      this.tell();
    }

    listen() {
      const plot = this.drawing.plot;
      plot.on("plotly_hover", (event) => {
        const point = event.points[0];
        this.hovered = [Math.round(point.y), Math.round(point.x)];
        this.tell();
        this.showTip(event.event);
      });
      plot.on("plotly_unhover", () => { this.hovered = null; this.tell(); document.getElementById("tip").hidden = true; });
      plot.on("plotly_click", (event) => this.pick(Math.round(event.points[0].y), Math.round(event.points[0].x)));
      plot.addEventListener("keydown", (event) => {
        const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
        const step = steps[event.key];
        if (step) this.pick(this.picked[0] + step[0], this.picked[1] + step[1]);
        else if (event.key === "Home") this.pick(this.picked[0], 0);
        else if (event.key === "End") this.pick(this.picked[0], this.z[0].length - 1);
        else return;
        event.preventDefault();
      });
    }

    text(r, c) {
      const v = this.z[r][c];
      if (!Number.isFinite(v)) return "not measured";
      return this.spec.words.length ? this.spec.words[v] : quantity(this.si(v), this.spec.unit);
    }

    showTip(mouse) {
      if (coarse || !mouse || mouse.clientX === undefined) return;
      const [r, c] = this.hovered;
      const tip = document.getElementById("tip");
      tip.replaceChildren(make("b", "", this.pairName(r, c)), document.createTextNode("  " + (this.tip ? this.tip(r * this.z[0].length + c) : this.text(r, c))));
      tip.hidden = false;
      const box = tip.getBoundingClientRect();
      tip.style.left = Math.min(mouse.clientX + 14, window.innerWidth - box.width - 8) + "px";
      tip.style.top = Math.max(8, mouse.clientY - box.height - 12) + "px";
    }

    pairName(r, c) { return this.spec.rows[r] + " → " + this.spec.cols[c]; }

    tell() {
      const [r, c] = this.hovered || this.picked;
      const flat = r * this.z[0].length + c;
      const spec = this.spec;
      const parts = [];
      const pair = make("p", "pair");
      pair.append(make("span", "", spec.rows[r]), make("i", "", " → "), make("span", "", spec.cols[c]));
      parts.push(pair);
      const v = this.z[r][c];
      const value = make("p", "value", "");
      if (spec.words.length && Number.isFinite(v)) {
        const code = this.drawing.spec.legend[v];
        const swatch = make("span", "swatch", "");
        swatch.style.background = code.colour;
        value.append(swatch);
      }
      value.append(document.createTextNode(this.text(r, c)));
      parts.push(value);
      if (!spec.words.length && Number.isFinite(v) && Number.isFinite(this.middle) && this.middle > 0)
        parts.push(make("p", "against", number(this.si(v) / this.middle, 3) + " × the median of all here"));
      const list = make("dl");
      const row = (name, text) => {
        const line = make("div");
        line.append(make("dt", "", name), make("dd", "", text));
        list.append(line);
      };
      const ends = [[spec.row_title, spec.rows[r], this.row_facts, r], [spec.col_title, spec.cols[c], this.col_facts, c]];
      for (const [title, name, facts, k] of ends) {
        row(title, name);
        for (const fact of facts) row(fact.label, fact.each(k));
      }
      for (const [n, told] of spec.told.entries()) row(told.label, this.toldOf(n, told, flat));
      parts.push(list);
      const spark = this.spark(r, c);
      if (spark) parts.push(spark);
      if (!coarse) parts.push(make("p", "keys", "Click a cell to keep it; arrow keys move."));
      else parts.push(make("p", "keys", "Tap a cell to see its pair."));
      this.panel.replaceChildren(...parts);
    }

    toldOf(n, told, flat) {
      const at = this.drawing.at();
      const key = n + "/" + at;
      if (!this.kept.has(key)) {
        const packed = told.frames[at];
        this.kept.set(key, isPacked(packed) ? unpack(packed) : Cells.pool(packed));
      }
      const values = this.kept.get(key);
      if (typeof values === "function") return values(flat);
      const v = values[flat];
      return told.words.length && told.words[v] !== undefined ? told.words[v] : quantity(v, told.unit);
    }

    // The same pair over the slider's whole range, against the median of all pairs
    spark(r, c) {
      const drawing = this.drawing, spec = drawing.spec;
      if (this.spec.words.length || spec.controls.length !== 1 || !spec.controls[0].numeric || spec.frames.length < 3) return null;
      if (!this.planes) {
        this.planes = spec.frames.map((f) => unpacked(f.traces[0].z));
        this.middles = this.planes.map((p) => median([].concat(...p.map((line) => Array.from(line)))));
      }
      const mine = this.planes.map((p) => p[r][c]);
      const all = mine.concat(this.middles).filter(Number.isFinite);
      if (!mine.some(Number.isFinite)) return null;
      const ends = [Math.min(...all), Math.max(...all)], mid = (ends[0] + ends[1]) / 2;
      const least = this.spec.log ? 0.02 : 0.05 * Math.abs(mid) || 1; // or noise would look like a course
      const low = Math.min(ends[0], mid - least), high = Math.max(ends[1], mid + least), W = 248, H = 74, top = 4, n = mine.length;
      const x = (k) => 3 + (k / (n - 1)) * (W - 6);
      const y = (v) => top + (1 - (v - low) / (high - low || 1)) * (H - top - 4);
      const NS = "http://www.w3.org/2000/svg";
      const svg = document.createElementNS(NS, "svg");
      svg.setAttribute("viewBox", "0 0 " + W + " " + (H + 18));
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", "This pair over " + spec.controls[0].label + ", dashed: the median of all");
      const draw = (tag, attributes, text) => {
        const node = document.createElementNS(NS, tag);
        for (const key of Object.keys(attributes)) node.setAttribute(key, attributes[key]);
        if (text) node.textContent = text;
        svg.append(node);
      };
      const path = (values) => values.map((v, k) => [v, k]).filter((p) => Number.isFinite(p[0])).map((p, k) => (k ? "L" : "M") + x(p[1]).toFixed(1) + " " + y(p[0]).toFixed(1)).join("");
      draw("path", { d: path(this.middles), fill: "none", stroke: "var(--rule)", "stroke-width": 1.3, "stroke-dasharray": "3 3" });
      draw("path", { d: path(mine), fill: "none", stroke: "var(--s0)", "stroke-width": 1.8 });
      const here = drawing.at();
      if (Number.isFinite(mine[here])) draw("circle", { cx: x(here), cy: y(mine[here]), r: 4, fill: "var(--s0)", stroke: "var(--rise)", "stroke-width": 2 });
      const texts = spec.controls[0].positions;
      draw("text", { x: 0, y: H + 14, "font-size": 11, fill: "var(--quiet)" }, texts[0]);
      draw("text", { x: W, y: H + 14, "font-size": 11, "text-anchor": "end", fill: "var(--quiet)" }, texts[n - 1]);
      return svg;
    }
  }

  // The panel under an icicle: which node, where it is, and all that is known of it; and which part is enlarged
  class Nodes {
    constructor(drawing) {
      this.drawing = drawing;
      this.spec = drawing.spec.nodes;
      this.panel = drawing.figure.querySelector(".cell");
      this.picked = 0;
      this.hovered = null;
      this.whole = 0; // the node that takes all of the width
      this.within = this.spec.parents.map(() => []);
      this.spec.parents.forEach((parent, node) => { if (parent >= 0) this.within[parent].push(node); });
    }

    values() { return unpack(this.spec.values[this.drawing.at()]); }

    // Nodes within one, the largest first, as they are drawn
    ordered(node) {
      const values = this.values();
      return this.within[node].slice().sort((a, b) => values[b] - values[a] || a - b);
    }

    dress(trace, colours, room) {
      const values = this.values();
      trace.level = String(this.whole);
      trace.marker.line = {
        width: this.spec.parents.map((_, node) => (node === this.picked ? 3 : 1)),
        color: this.spec.parents.map((_, node) => (node === this.picked ? colours.ink : colours.ground)),
      };
      trace.text = this.spec.labels.map((label, node) => { // plotly would write it as small as it takes
        const letters = Math.floor((room * values[node] / values[this.whole] - 8) / 6.9);
        const text = label.length <= letters ? label : letters > 4 ? label.slice(0, letters - 1) + "…" : "";
        return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
      });
    }

    around(node) {
      const path = [];
      for (let at = node; at >= 0; at = this.spec.parents[at]) path.unshift(at);
      return path;
    }

    pick(node, whole) {
      this.picked = node;
      this.hovered = null;
      if (whole !== undefined) this.whole = whole;
      else { // what is shown follows it
        const path = this.around(node), at = path.indexOf(this.whole);
        if (at < 0) this.whole = node;
        else if (path.length - at > this.spec.deep) this.whole = path[path.length - this.spec.deep];
      }
      this.drawing.draw();
    }

    listen() {
      const plot = this.drawing.plot;
      plot.on("plotly_hover", (event) => { this.hovered = event.points[0].pointNumber; this.tell(); });
      plot.on("plotly_unhover", () => { this.hovered = null; this.tell(); });
      plot.on("plotly_icicleclick", (event) => {
        const node = event.points[0].pointNumber;
        this.pick(node, event.nextLevel === undefined || event.nextLevel === "" ? this.whole : Number(event.nextLevel));
        return false; // what plotly would do by itself is undone by the next slider
      });
      plot.addEventListener("keydown", (event) => {
        const parent = this.spec.parents[this.picked];
        const beside = parent < 0 ? [this.picked] : this.ordered(parent), at = beside.indexOf(this.picked);
        const inside = this.ordered(this.picked);
        if (event.key === "ArrowDown") { if (inside.length) this.pick(inside[0]); }
        else if (event.key === "ArrowUp") { if (parent >= 0) this.pick(parent); }
        else if (event.key === "ArrowLeft") this.pick(beside[Math.max(0, at - 1)]);
        else if (event.key === "ArrowRight") this.pick(beside[Math.min(beside.length - 1, at + 1)]);
        else if (event.key === "Enter") this.pick(this.picked, this.whole === this.picked && parent >= 0 ? parent : this.picked);
        else if (event.key === "Escape") this.pick(this.picked, 0);
        else return;
        event.preventDefault();
      });
    }

    tell() {
      const node = this.hovered === null ? this.picked : this.hovered;
      const spec = this.spec, values = this.values();
      const path = make("p", "pair");
      this.around(node).forEach((at, k) => {
        if (k) path.append(make("i", "", " › "));
        if (at === node) return path.append(make("span", "", spec.labels[at]));
        const up = make("button", "up", spec.labels[at]);
        up.type = "button";
        up.addEventListener("click", () => {
          this.pick(at, at);
          this.drawing.plot.focus({ preventScroll: true }); // the button is another one now
        });
        path.append(up);
      });
      const parent = spec.parents[node];
      const share = (of) => number((100 * values[node]) / values[of], 2) + "\u00a0%";
      const against = parent < 0 || !(values[parent] > 0) ? ""
        : share(parent) + " of " + spec.labels[parent] + (parent > 0 ? ", " + share(0) + " of all" : "");
      const list = make("dl");
      const row = (name, text) => {
        const line = make("div");
        line.append(make("dt", "", name), make("dd", "", text));
        list.append(line);
      };
      if (spec.hues[node]) row(spec.hue_title, spec.hues[node]);
      for (const told of spec.told) {
        const value = unpack(told.frames[this.drawing.at()])[node];
        if (Number.isFinite(value)) row(told.label, quantity(value, told.unit));
      }
      const keys = coarse ? "Tap a part to enlarge it, the top one to go back."
        : "Click a part to enlarge it, the top one to go back. Arrow keys move, Enter enlarges, Escape shows all.";
      this.panel.replaceChildren(path, make("p", "value", quantity(values[node] / spec.factor, spec.unit)), make("p", "against", against), list, make("p", "keys", keys));
    }
  }

  if (window.Plotly) {
    for (const figure of document.querySelectorAll(".figure")) drawings.set(figure.id, new Drawing(figure));
    // What is on the screen at once, the rest when the reader comes near or the browser is idle
    const near = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const drawing = drawings.get(entry.target.id);
        if (entry.isIntersecting && !drawing.drawn) drawing.draw();
      }
    }, { rootMargin: "600px" });
    for (const drawing of drawings.values()) near.observe(drawing.figure);
    const idle = window.requestIdleCallback || ((f) => window.setTimeout(f, 50));
    const rest = () => {
      const next = Array.from(drawings.values()).find((d) => !d.drawn);
      if (!next) { root.dataset.drawn = "all"; return; }
      next.draw();
      idle(rest);
    };
    idle(rest);

    let width = window.innerWidth, timer = 0;
    window.addEventListener("resize", () => {
      if (printing || window.innerWidth === width) return;
      width = window.innerWidth;
      window.clearTimeout(timer);
      timer = window.setTimeout(redraw, 120);
    });
    window.addEventListener("beforeprint", () => { printing = true; for (const d of drawings.values()) d.draw(); });
    window.addEventListener("afterprint", () => { printing = false; redraw(); });
  }

  function redraw() { for (const d of drawings.values()) if (d.drawn) d.draw(); }

  // ---- page -------------------------------------------------------------------------------------------------

  const toggle = document.getElementById("theme");
  const name = () => { toggle.querySelector("span").textContent = theme() === "dark" ? "Light" : "Dark"; };
  toggle.addEventListener("click", () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    try { window.localStorage.setItem("sonde-theme", root.dataset.theme); } catch (refused) { /* file:// may forbid it */ }
    name();
    redraw();
  });
  darkWanted.addEventListener("change", () => { name(); redraw(); });
  name();

  document.addEventListener("click", (event) => {
    const copy = event.target.closest(".copy");
    if (copy) {
      const said = (text) => { copy.textContent = text; window.setTimeout(() => { copy.textContent = "Copy"; }, 1600); };
      const select = () => { // no clipboard on this page: leave it marked, ready for Ctrl-C
        window.getSelection().selectAllChildren(copy.parentNode.querySelector("code"));
        said("Marked");
      };
      if (navigator.clipboard && window.isSecureContext) navigator.clipboard.writeText(copy.dataset.copy).then(() => said("Copied"), select);
      else select();
    }
    const go = event.target.closest(".go");
    if (go) {
      const drawing = drawings.get(go.dataset.figure);
      if (!drawing) return;
      if (!drawing.drawn) drawing.draw();
      if (go.dataset.at !== "" && drawing.inputs.length) {
        drawing.inputs[0].value = go.dataset.at;
        drawing.moved(0);
      }
      drawing.cells.pick(Number(go.dataset.row), Number(go.dataset.col));
      drawing.figure.scrollIntoView({ block: "start" });
      drawing.plot.focus({ preventScroll: true });
    }
  });

  // Paper cannot be unfolded
  let unfolded = [];
  window.addEventListener("beforeprint", () => {
    unfolded = Array.from(document.querySelectorAll("details.more:not([open])"));
    for (const part of unfolded) part.open = true;
  });
  window.addEventListener("afterprint", () => { for (const part of unfolded) part.open = false; });

  const contents = document.querySelector(".toc details");
  const wide = window.matchMedia("(min-width: 72rem)");
  const fold = () => { contents.open = wide.matches; };
  wide.addEventListener("change", fold);
  fold();
  contents.addEventListener("click", (event) => { if (event.target.closest("a") && !wide.matches) contents.open = false; });

  const links = new Map();
  for (const link of document.querySelectorAll(".toc a")) links.set(link.getAttribute("href").slice(1), link);
  const targets = Array.from(links.keys()).map((id) => document.getElementById(id)).filter(Boolean);
  let asked = false;
  const mark = () => {
    asked = false;
    let current = targets[0];
    for (const target of targets) if (target.getBoundingClientRect().top < 140) current = target;
    for (const link of links.values()) link.removeAttribute("aria-current");
    if (!current) return;
    const link = links.get(current.id), nav = link.closest("nav");
    link.setAttribute("aria-current", "true");
    const box = link.getBoundingClientRect(), frame = nav.getBoundingClientRect();
    if (wide.matches && (box.top < frame.top || box.bottom > frame.bottom)) nav.scrollTop += box.top - frame.top - frame.height / 2;
  };
  window.addEventListener("scroll", () => { if (!asked) { asked = true; window.requestAnimationFrame(mark); } }, { passive: true });
  mark();
})();
