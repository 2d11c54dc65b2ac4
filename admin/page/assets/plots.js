// Plots of what gateways carried in the last hour, or longer if there is a Prometheus. They
// are drawn on a canvas by the little code that they need.

import { ask } from "./ask.js";
import { h, s, short, bytes } from "./dom.js";
import { nameOf } from "./details.js";

const hour = 3600_000;
const reaches = [[1, "Last hour"], [6, "Last 6 hours"], [24, "Last day"], [168, "Last week"], [720, "Last 30 days"]];
const most = 4; // ends in one plot
const dashes = [[], [7, 3], [2, 3], [9, 3, 2, 3], [4, 4], [1, 4]];

const kinds = [
  { title: "Throughput", lines: [["egressBytes", "out"], ["ingressBytes", "in"]], scale: 8, text: (n) => `${short(n)}bit/s` },
  { title: "Packets", lines: [["egressPackets", "out"], ["ingressPackets", "in"]], text: (n) => `${short(n).trim()}/s` },
  { title: "Drops by reason", drops: true, text: (n) => `${short(n).trim()}/s` },
  { title: "Latency", lines: [["latency", ""]], text: (n) => `${n < 10 ? n.toFixed(2) : n.toFixed(1)} ms` },
  { title: "Handshakes, average of 5 minutes", lines: [["handshakes", ""]], text: (n) => `${n.toFixed(1)}/min` },
  { title: "Memory", lines: [["memory", ""]], text: bytes, unit: 2 ** 20 },
];

export function plotsView(place, page, about) {
  const chosen = new Set((about.ends ?? []).slice(0, most));
  const series = new Map(); // by end: what the server has sent
  let span = null; // [from, to] where the user has zoomed
  let cursor = null; // a time
  let frame = 0, asking = false, over = false;
  let reach = hour, read = 0; // how far back plots go; when the past was read

  const choice = h("div", { class: "row", role: "group", "aria-label": "Gateways to plot" });
  const reset = h("button", { type: "button", onclick: () => { span = null; paint(); } }, "Show all");
  const far = h("select", {}, ...reaches.map(([hours, label]) => h("option", { value: hours }, label)));
  const farther = h("label", { hidden: true }, "Period", far), trouble = h("p", { class: "down", role: "status" });
  far.addEventListener("change", () => { reach = far.value * hour; read = 0; span = null; series.clear(); refresh(); });
  const plots = kinds.map((kind) => {
    const canvas = h("canvas", { tabindex: "0", role: "img" });
    const legend = h("div", { class: "legend" });
    const note = h("span", { class: "faint" });
    const plot = { kind, canvas, legend, note, lines: [], element: h("section", { class: "sheet plot" }, h("h2", {}, kind.title, " ", note), canvas, legend) };
    handle(plot);
    return plot;
  });
  place.append(h("section", { class: "sheet" }, h("h2", {}, "Gateways"), choice,
    h("div", { class: "row" }, farther, reset, h("span", { class: "faint" }, `Choose up to ${most}. Point at a plot, or press ← and →, to see values; drag, or press + and −, to zoom.`)), trouble),
  h("div", { class: "plots" }, ...plots.map((p) => p.element)));

  function handle(plot) {
    const c = plot.canvas;
    let from = null;
    const timeAt = (e) => { const r = c.getBoundingClientRect(), [a, b] = shown(); return a + (b - a) * Math.min(1, Math.max(0, (e.clientX - r.left - left) / (r.width - left - 8))); };
    c.addEventListener("pointermove", (e) => { cursor = timeAt(e); paint(); });
    c.addEventListener("pointerleave", () => { cursor = null; from = null; paint(); });
    c.addEventListener("pointerdown", (e) => { from = timeAt(e); });
    c.addEventListener("pointerup", (e) => {
      const to = timeAt(e);
      if (from !== null && Math.abs(to - from) > (shown()[1] - shown()[0]) / 50) span = [Math.min(from, to), Math.max(from, to)];
      from = null;
      paint();
    });
    c.addEventListener("dblclick", () => { span = null; paint(); });
    c.addEventListener("keydown", (e) => {
      const [a, b] = shown(), step = (b - a) / 60, middle = cursor ?? (a + b) / 2;
      if (e.key === "ArrowLeft") cursor = Math.max(a, (cursor ?? b) - step);
      else if (e.key === "ArrowRight") cursor = Math.min(b, (cursor ?? a) + step);
      else if (e.key === "+" || e.key === "=") span = [middle - (b - a) / 4, middle + (b - a) / 4];
      else if (e.key === "-") span = b - a >= reach / 2 ? null : [middle - (b - a), middle + (b - a)];
      else if (e.key === "0" || e.key === "Escape") { span = null; cursor = null; }
      else return;
      e.preventDefault();
      paint();
    });
  }

  // Until there is an hour of samples, those that exist fill the plot.
  function shown() {
    if (span) return span;
    const to = Date.now();
    if (reach > hour) return [to - reach, to];
    const first = Math.min(...[...series.values()].map((x) => x.times[0] ?? to));
    return [Math.max(to - hour, Math.min(first, to - 60_000)), to];
  }

  const left = 72, bottom = 20, top = 8;

  function linesOf(kind) {
    const out = [];
    [...chosen].forEach((end, place) => {
      const data = series.get(end);
      if (!data) return;
      const state = page.state();
      const name = chosen.size > 1 && state ? endName(state, end) : "";
      // Of several gateways each has a colour, and each of its lines a dash: no two lines look the same.
      let line = 0;
      const add = (label, values) => {
        out.push({ label: [name, label].filter(Boolean).join(" "), times: data.times, values, colour: chosen.size > 1 ? place : line % dashes.length, dash: dashes[line % dashes.length] });
        line++;
      };
      // While nothing was heard of a gateway, nothing is known of its drops either.
      const unknown = (i) => data.numbers.egressPackets?.[i] === null;
      if (!kind.drops) kind.lines.forEach(([key, label]) => add(label, (data.numbers[key] ?? []).map((v) => (v === null ? null : v * (kind.scale ?? 1)))));
      else if (chosen.size === 1) Object.entries(data.drops).sort((a, b) => sum(b[1]) - sum(a[1])).slice(0, 6).forEach(([reason, v]) => add(reason.replace(/^Drop/, ""), v.map((n, i) => (unknown(i) ? null : n))));
      else add("", data.times.map((_, i) => unknown(i) ? null : Object.values(data.drops).reduce((n, v) => n + v[i], 0)));
    });
    return out;
  }
  const sum = (v) => v.reduce((a, b) => a + b, 0);

  function paint() {
    frame ||= requestAnimationFrame(() => { frame = 0; if (!over) plots.forEach(paintOne); });
  }

  function paintOne(plot) {
    const { canvas, kind } = plot;
    const width = canvas.clientWidth, height = canvas.clientHeight, ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    const g = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name) && resolve(name);
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, height);
    const lines = linesOf(kind), [from, to] = shown();
    const inside = (l, i) => l.times[i] >= from && l.times[i] <= to && l.values[i] !== null && l.values[i] !== undefined;
    let max = 0;
    for (const l of lines) for (let i = 0; i < l.times.length; i++) if (inside(l, i)) max = Math.max(max, l.values[i]);
    max = nice(max / (kind.unit ?? 1)) * (kind.unit ?? 1);
    const x = (t) => left + ((t - from) / (to - from)) * (width - left - 8), y = (v) => top + (1 - v / max) * (height - top - bottom);
    g.font = "11px system-ui, sans-serif";
    g.fillStyle = colour("--faint");
    g.strokeStyle = colour("--edge");
    g.lineWidth = 1;
    g.textAlign = "right";
    for (let i = 0; i <= 4; i++) {
      const v = (max * i) / 4;
      g.beginPath(); g.moveTo(left, y(v)); g.lineTo(width - 8, y(v)); g.stroke();
      if (i % 2 === 0) g.fillText(kind.text(v), left - 6, y(v) + 4);
    }
    g.textAlign = "center";
    for (let i = 0; i <= 4; i++) {
      const t = from + ((to - from) * i) / 4;
      const text = timeText(t, to - from), half = g.measureText(text).width / 2;
      g.fillText(text, Math.min(Math.max(x(t), half), width - half), height - 5);
    }
    for (const l of lines) {
      g.strokeStyle = colour(`--series-${l.colour}`);
      g.lineWidth = 1.8;
      g.setLineDash(l.dash);
      g.beginPath();
      let pen = false;
      for (let i = 0; i < l.times.length; i++) {
        if (!inside(l, i)) { pen = false; continue; }
        if (pen) g.lineTo(x(l.times[i]), y(l.values[i])); else g.moveTo(x(l.times[i]), y(l.values[i]));
        if (!pen && !inside(l, i + 1)) g.rect(x(l.times[i]) - 1, y(l.values[i]) - 1, 2, 2); // on its own it makes no line
        pen = true;
      }
      g.stroke();
    }
    g.setLineDash([]);
    const at = cursor;
    if (at !== null) {
      g.strokeStyle = colour("--ink");
      g.lineWidth = 1;
      g.beginPath(); g.moveTo(x(at), top); g.lineTo(x(at), height - bottom); g.stroke();
    }
    const valueOf = (l) => {
      let best = -1;
      for (let i = 0; i < l.times.length; i++) if (inside(l, i) && (best < 0 || at === null || Math.abs(l.times[i] - at) < Math.abs(l.times[best] - at))) best = i;
      return best < 0 ? "–" : kind.text(l.values[best]);
    };
    const texts = lines.map((l) => `${l.label} ${valueOf(l)}`.trim());
    plot.note.textContent = at === null ? "" : timeText(at, reach > hour ? reach : 0);
    if (plot.legend.dataset.of !== lines.map((l) => l.label).join("|")) {
      plot.legend.dataset.of = lines.map((l) => l.label).join("|");
      plot.lines = lines.map((l) => h("span", {}));
      plot.legend.replaceChildren(...lines.map((l, i) => h("span", {},
        s("svg", { viewBox: "0 0 26 8", "aria-hidden": "true" }, s("line", { x1: 0, x2: 26, y1: 4, y2: 4, stroke: `var(--series-${l.colour})`, "stroke-width": 2.5, "stroke-dasharray": l.dash.join(" ") })), plot.lines[i])));
    }
    plot.lines.forEach((e, i) => { e.textContent = texts[i]; });
    canvas.setAttribute("aria-label", `${kind.title}: ${texts.join("; ") || (kind.drops ? "no drops" : "no data yet")}`);
  }

  // A canvas cannot resolve light-dark(), but an element can.
  const probe = h("span", { hidden: true });
  place.append(probe);
  const resolve = (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };

  async function refresh() {
    if (asking) return;
    asking = true;
    const wanted = reach;
    try {
      const due = Date.now() - read > 60_000;
      if (reach > hour) for (const end of chosen) {
        if (!due && series.has(end)) continue;
        const all = await ask("past", { end, hours: reach / hour });
        if (over || reach !== wanted) return;
        series.set(end, all);
        read = Date.now();
      }
      else for (const end of chosen) {
        const have = series.get(end);
        const more = await ask("series", { end, since: have?.times.at(-1) });
        if (over || reach !== wanted) return;
        series.set(end, have ? joined(have, more) : more);
      }
      trouble.textContent = "";
    } catch (e) {
      // Errors of other requests are reported in the header.
      if (reach > hour) [trouble.textContent, read] = [e.message, Date.now()];
    } finally { asking = false; }
    if (reach === wanted) paint(); else refresh();
  }

  function choices(state) {
    const ends = state.peerings.flatMap((p) => p.ends).filter((e) => e.status.gateway);
    if (!chosen.size && ends.length) ends.slice(0, 1).forEach((e) => chosen.add(e.key));
    const text = ends.map((e) => e.key).join(" ");
    if (choice.dataset.of === text) return;
    choice.dataset.of = text;
    choice.replaceChildren(...ends.map((e) => {
      const b = h("button", { type: "button", "aria-pressed": String(chosen.has(e.key)), onclick: () => {
        if (chosen.has(e.key)) chosen.delete(e.key);
        else if (chosen.size < most) chosen.add(e.key);
        b.setAttribute("aria-pressed", String(chosen.has(e.key)));
        refresh();
        paint();
      } }, endName(state, e.key));
      return b;
    }));
    if (!ends.length) choice.append(h("span", { class: "faint" }, "There are no gateways."));
  }

  addEventListener("resize", paint);
  return {
    update(state) { farther.hidden = !state.past; choices(state); refresh(); },
    end() { over = true; removeEventListener("resize", paint); },
  };
}

// The text of a time: the longer the time shown, the less precise.
function timeText(t, width) {
  const day = width > 24 * hour ? { day: "numeric", month: "short" } : {};
  return new Date(t).toLocaleString([], { ...day, hour12: false, hour: "2-digit", minute: "2-digit", second: width < 600_000 ? "2-digit" : undefined });
}

/** endName is "rome → milan": the gateway of rome to milan. */
export function endName(state, key) {
  const slash = key.indexOf("/");
  return `${nameOf(state, key.slice(0, slash))} → ${key.slice(slash + 1)}`;
}

/** joined appends later columns to earlier ones, and forgets what is older than an hour. */
export function joined(a, b) {
  if (!b.times.length) return a;
  const from = a.times.findIndex((t) => t > b.times.at(-1) - hour), keep = from < 0 ? a.times.length : from;
  const n = a.times.length, out = { times: [...a.times.slice(keep), ...b.times], numbers: {}, drops: {} };
  for (const key of Object.keys({ ...a.numbers, ...b.numbers })) out.numbers[key] = [...(a.numbers[key] ?? Array(n).fill(null)).slice(keep), ...(b.numbers[key] ?? Array(b.times.length).fill(null))];
  for (const key of Object.keys({ ...a.drops, ...b.drops })) out.drops[key] = [...(a.drops[key] ?? Array(n).fill(0)).slice(keep), ...(b.drops[key] ?? Array(b.times.length).fill(0))];
  return out;
}

/** nice is the next number that is easy to read. */
export function nice(n) {
  if (!(n > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 4, 5, 10].map((m) => m * power).find((m) => m >= n) ?? 10 * power;
}
