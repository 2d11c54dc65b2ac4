// The map: clusters as boxes, their nodes as squares, peerings as lines with a gateway at
// each end; below it the same as a table, beside it the details of what is selected.

import { h, s, set, say, badge, signs, words, bits, told } from "./dom.js";
import { layout, crowded, nodeAt, ends } from "./layout.js";
import { clusterDetails, peeringDetails } from "./details.js";

export function mapView(place, page, about) {
  const svg = s("svg", { class: "map", role: "group", "aria-label": "Map of clusters and peerings" });
  const rows = h("tbody");
  const details = h("aside", { class: "sheet", "aria-label": "Details", tabindex: "-1" });
  const reset = h("button", { type: "button", onclick: () => fit() }, "Show all");
  place.append(h("div", { class: "columns" },
    h("div", {},
      h("section", { class: "sheet" }, svg,
        h("div", { class: "row" }, reset, h("span", { class: "faint" }, "Squares are nodes. Drag to move; use the wheel, or + and −, to zoom. Click a line or a box to select it, or use Tab and Enter."))),
      h("section", { class: "sheet scroll" }, h("h2", {}, "Peerings"),
        h("table", {}, h("thead", {}, h("tr", {}, ...["Peering", "State", "Latency", "MTU", "Out", "In", "Drops since start", "Nodes"].map((t) => h("th", { scope: "col" }, t)))), rows))),
    details));

  let drawn = "";
  let parts = null; // what is updated, by key
  let chosen = about.chosen ?? null; // "cluster 0" or "peering 0~1"
  let whole = { x: 0, y: 0, w: 1, h: 1 }, seen = whole;

  const look = (v) => { seen = v; set(svg, "viewBox", `${v.x} ${v.y} ${v.w} ${v.h}`); };
  const fit = () => look(whole);
  const zoom = (factor, x = seen.x + seen.w / 2, y = seen.y + seen.h / 2) => {
    const w = Math.min(Math.max(seen.w * factor, whole.w / 40), whole.w * 3), f = w / seen.w;
    look({ x: x - (x - seen.x) * f, y: y - (y - seen.y) * f, w, h: seen.h * f });
  };
  svg.addEventListener("wheel", (e) => {
    e.preventDefault();
    const at = new DOMPoint(e.clientX, e.clientY).matrixTransform(svg.getScreenCTM().inverse());
    zoom(e.deltaY > 0 ? 1.2 : 1 / 1.2, at.x, at.y);
  }, { passive: false });
  let drag = null;
  svg.addEventListener("pointerdown", (e) => { drag = { x: e.clientX, y: e.clientY, from: seen, scale: 1 / svg.getScreenCTM().a }; });
  svg.addEventListener("pointermove", (e) => {
    if (!drag || !(e.buttons & 1)) { drag = null; return; }
    look({ ...seen, x: drag.from.x - (e.clientX - drag.x) * drag.scale, y: drag.from.y - (e.clientY - drag.y) * drag.scale });
  });
  svg.addEventListener("keydown", (e) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[e.key];
    if (e.key === "+" || e.key === "=") zoom(1 / 1.25);
    else if (e.key === "-") zoom(1.25);
    else if (e.key === "0") fit();
    else if (step) look({ ...seen, x: seen.x + step[0] * seen.w / 10, y: seen.y + step[1] * seen.h / 10 });
    else return;
    e.preventDefault();
  });

  const choose = (what) => { chosen = what; showDetails(page.state(), true); };
  const choosable = (what) => ({
    tabindex: "0", role: "button",
    onclick: () => choose(what),
    onkeydown: (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); choose(what); } },
  });

  const narrow = matchMedia("(max-width: 40rem)");
  function draw(state) {
    const { boxes, view } = layout(state.clusters, state.peerings, narrow.matches);
    const lines = s("g"), squares = s("g");
    parts = { clusters: new Map(), peerings: new Map(), crowded: crowded(state.clusters) };
    for (const p of state.peerings) {
      const [a, b] = ends(boxes.get(p.a), boxes.get(p.b));
      // The label lies nearer to a stranger, where lines are farther apart.
      const t = p.b[0] === "?" ? 0.62 : 0.5;
      const x = a.x + (b.x - a.x) * t, y = a.y + (b.y - a.y) * t;
      const path = `M${a.x} ${a.y}L${b.x} ${b.y}`;
      const first = s("text", { class: "sign", "text-anchor": "middle", x, y: y - 3 }), second = s("text", { class: "small", "text-anchor": "middle", x, y: y + 13 });
      const one = s("g", choosable(`peering ${p.key}`), s("path", { class: "reach", d: path }), s("path", { class: "line", d: path }),
        s("circle", { class: "gateway", cx: a.x, cy: a.y, r: 6 }), s("circle", { class: "gateway", cx: b.x, cy: b.y, r: 6 }),
        ...(parts.crowded && p.b[0] === "?" ? [] : [s("rect", { class: "label", x: x - 80, y: y - 19, width: 160, height: 38 }), first, " ", second]));
      lines.append(one);
      parts.peerings.set(p.key, { one, first, second });
    }
    for (const c of state.clusters) {
      const box = boxes.get(c.key);
      const name = s("text", { class: "name", x: 12, y: 24 }), line = s("text", { class: "small", x: 12, y: 42 }), line2 = s("text", { class: "small", x: 12, y: 60 });
      const nodes = (c.nodes ?? []).map((_, i) => {
        const at = nodeAt(box, i);
        return s("rect", { class: "node", x: at.x, y: at.y, width: at.w, height: at.w, rx: 2 });
      });
      const one = s("g", { ...choosable(`cluster ${c.key}`), transform: `translate(${box.x} ${box.y})` }, s("rect", { class: "frame", width: box.w, height: box.h }), name, " ", line, " ", line2, ...nodes);
      squares.append(one);
      parts.clusters.set(c.key, { one, name, line, line2, nodes, room: Math.floor((box.w - 20) / 8) });
    }
    svg.replaceChildren(lines, squares);
    whole = view;
    fit();
    rows.replaceChildren(...state.peerings.map((p) => {
      const cells = Array.from({ length: 8 }, (_, i) => h("td", { class: i > 1 ? "number" : "" }));
      const b = h("button", { class: "link told", type: "button", onclick: () => choose(`peering ${p.key}`) });
      cells[0].append(b);
      const row = h("tr", {}, ...cells);
      Object.assign(parts.peerings.get(p.key), { row, cells, button: b });
      return row;
    }));
  }

  const nameOf = (state, key) => { const c = state.clusters.find((k) => k.key === key); return c?.id || c?.origin || key; };
  const latencyOf = (p) => p.tone === "down" ? "–" : p.ends.filter((k) => !k.stale).map((k) => k.status.latency).find(Boolean) ?? "–";
  const shorter = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

  // The accessible name contains the visible text: users of speech input say what they see (WCAG 2.5.3).
  const heard = (...texts) => texts.map((e) => e.textContent).filter(Boolean).join(" ");

  function refresh(state) {
    for (const c of state.clusters) {
      const part = parts.clusters.get(c.key);
      const ill = (c.nodes ?? []).filter((n) => n.problem).length;
      set(part.one, "class", `box${c.named ? "" : " stranger"}${c.problem ? " trouble" : ""}`);
      say(part.name, shorter(c.id || (c.named ? c.problem ? "cannot be read" : "…" : "without an ID"), part.room));
      const only = !c.named && parts.crowded ? state.peerings.find((p) => p.b === c.key) : null;
      say(part.line, shorter(only ? `${signs[only.tone]} ${only.tone === "up" ? latencyOf(only) : words[only.tone]}` : !c.named ? "not in view" : c.problem ? `✕ ${c.problem}` : `pods ${c.cidrs?.pods?.join(", ") ?? "–"}`, part.room + 6));
      say(part.line2, !c.named ? "" : `${c.allNodes ?? 0} nodes${ill ? `, ${ill} with problems` : ""}`);
      const id = c.id || c.origin || "";
      set(part.one, "aria-label", `Cluster ${heard(part.name, part.line, part.line2)}${part.name.textContent === id ? "" : `. ${id}`}${c.problem ? `. ${c.problem.slice(0, 300)}` : ""}`);
      part.nodes.forEach((square, i) => set(square, "class", c.nodes[i]?.problem ? "node ill" : "node"));
    }
    for (const p of state.peerings) {
      const part = parts.peerings.get(p.key);
      const e = p.ends[0], t = e.status.traffic, latency = latencyOf(p);
      const title = `${nameOf(state, p.a)} – ${nameOf(state, p.b)}`;
      set(part.one, "class", `peering ${p.tone}${chosen === `peering ${p.key}` ? " chosen" : ""}`);
      say(part.first, `${signs[p.tone]} ${p.tone === "down" ? "Down" : latency === "–" ? words[p.tone] : latency}`);
      say(part.second, p.tone === "down" || p.tone === "unknown" ? "select it to see why" : t?.windowSeconds ? shorter(`${bits(t.egress.rate?.bytesPerSecond)} / ${bits(t.ingress.rate?.bytesPerSecond)}`, 27) : "");
      set(part.one, "aria-label", `Peering ${title}: ${words[p.tone]}${p.why ? `. ${p.why.slice(0, 300)}` : ""}. ${heard(part.first, part.second)}`);
      set(part.row, "class", chosen === `peering ${p.key}` ? "chosen" : "");
      const mtus = [...new Set(p.ends.map((k) => k.status.gateway?.mtu).filter(Boolean))].join(" / ");
      const drops = p.ends.reduce((n, k) => n + (k.status.traffic?.egress.dropped ?? 0) + (k.status.traffic?.ingress.dropped ?? 0), 0);
      say(part.button, title);
      const cell = part.cells[1];
      if (cell.dataset.shows !== p.tone + p.why) {
        cell.dataset.shows = p.tone + p.why;
        cell.replaceChildren(badge(p.tone), ...(p.why ? [h("div", {}, told(shorter(p.why, 160), "faint"))] : []));
      }
      [latency, mtus || "–", bits(t?.egress.rate?.bytesPerSecond), bits(t?.ingress.rate?.bytesPerSecond), String(drops),
        e.status.nodes ? `${e.status.nodes.joined} of ${e.status.nodes.known}` : "–"].forEach((text, i) => say(part.cells[i + 2], text));
    }
  }

  // Until something is selected, the worst peering is shown.
  function worst(state) {
    const p = state.peerings.find((q) => q.tone === "down") ?? state.peerings.find((q) => q.tone === "degraded") ?? state.peerings[0];
    return p ? `peering ${p.key}` : state.clusters.length ? `cluster ${state.clusters[0].key}` : null;
  }

  let detailed = "", judged = "";
  function showDetails(state, now) {
    if (!state) return;
    const what = chosen ?? worst(state);
    const [kind, key] = [what?.split(" ", 1)[0], what?.slice(what.indexOf(" ") + 1)];
    const of = kind === "peering" ? state.peerings.find((p) => p.key === key) : state.clusters.find((c) => c.key === key);
    const text = JSON.stringify(of) ?? "", verdict = JSON.stringify([what, of?.tone, of?.problem, of?.diagnosis?.findings]);
    // The user may be selecting, waiting for what a button does, or about to press one. What is wrong is shown at once, though.
    const held = details.contains(document.activeElement) ? document.activeElement : null;
    if (!now && (text === detailed || held && verdict === judged || details.querySelector("button:disabled") ||
      details.contains(getSelection()?.anchorNode) && !getSelection().isCollapsed)) return;
    detailed = text;
    judged = verdict;
    if (now) refresh(state);
    if (!of) { details.replaceChildren(h("p", { class: "faint" }, "Nothing to show yet.")); return; }
    details.replaceChildren(...(kind === "peering" ? peeringDetails(of, state, page) : clusterDetails(of, state, page)));
    if (held) ([...details.querySelectorAll(held.tagName)].find((e) => e.textContent === held.textContent) ?? details).focus({ preventScroll: true });
  }

  return {
    update(state) {
      const shape = JSON.stringify([narrow.matches, state.clusters.map((c) => [c.key, c.nodes?.length]), state.peerings.map((p) => p.key)]);
      if (shape !== drawn) {
        drawn = shape;
        draw(state);
      }
      showDetails(state, false);
      refresh(state);
    },
  };
}
