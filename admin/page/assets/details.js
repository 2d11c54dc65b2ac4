// The details of a cluster or a peering.

import { h, dialog, badge, told, finding, copyButton, bits, bytes, short, ago } from "./dom.js";
import { askText, download } from "./ask.js";

/** nameOf is what a cluster is called. */
export const nameOf = (state, key) => { const c = state.clusters.find((k) => k.key === key); return c?.id || c?.origin || key; };

const facts = (...pairs) => h("dl", {}, ...pairs.filter(([, v]) => v !== undefined && v !== null && v !== "").map(([k, v]) => [h("dt", {}, k), h("dd", {}, v instanceof Node ? v : told(String(v)))]));

/** viewable are the kinds of objects that the server shows. */
export const viewable = new Set();

/** opener is what shows an object of a cluster, if it can be shown. */
export const opener = (cluster, object) => (viewable.has(object?.split(" ", 1)[0]) ? () => showObject(cluster, object) : undefined);

/** showObject shows an object as YAML. */
export async function showObject(cluster, object) {
  const text = h("pre", { tabindex: "0" }, "Reading…");
  const d = dialog(object, text);
  try {
    text.textContent = await askText("object", { cluster, object });
    d.firstChild.append(copyButton(text.textContent));
  } catch (e) {
    text.textContent = e.message;
  }
}

/** bundleButton saves an archive for a problem report. */
export function bundleButton(cluster, peer) {
  const b = h("button", { type: "button" }, "Support bundle");
  const note = h("p", { class: "faint", role: "status" });
  b.addEventListener("click", async () => {
    b.disabled = true;
    note.textContent = "Collecting data. This can take a few minutes…";
    try { note.textContent = `Saved as ${await download("bundle", { cluster, peer })}. Review it before you share it.`; } catch (e) { note.textContent = e.message; }
    b.disabled = false;
  });
  return [b, note];
}

export function clusterDetails(c, state, page) {
  const ill = (c.nodes ?? []).filter((n) => n.problem);
  const [bundle, note] = c.named ? bundleButton(c.key) : [];
  return [
    h("h2", {}, "Cluster ", told(c.id || "without an ID")),
    c.problem ? finding({ kind: "failed", message: c.problem }) : "",
    c.named ? "" : h("p", {}, "A peering leads to this cluster, but the console was not started with it, so the page shows only what its peers report. To see more, start ", h("code", {}, "liqoctl console"), " with its context as well."),
    facts(["Access", c.origin], ["API server", c.apiServer], ["Sluice", c.version], ["Kubernetes", c.kubernetes],
      ["Last read", c.readAt ? ago(c.readAt) : ""], ...[["pods", "Pod"], ["services", "Service"], ["external", "External"], ["internal", "Internal"]].map(([k, name]) => [`${name} CIDR`, c.cidrs?.[k]?.join(", ")]),
      ["Nodes", c.named ? `${c.allNodes ?? 0}${c.nodes && c.allNodes > c.nodes.length ? ` (${c.nodes.length} shown)` : ""}` : ""]),
    c.gaps?.length ? [h("h3", {}, "What could not be read"), ...c.gaps.map((g) => h("p", {}, told(g)))] : "",
    ill.length ? [h("h3", {}, "Nodes with problems"), ...ill.slice(0, 20).map((n) => finding({ kind: "failed", title: n.name, message: n.problem })),
      ill.length > 20 ? h("p", { class: "faint" }, `and ${ill.length - 20} more`) : ""] : "",
    c.named ? h("div", { class: "row" }, h("button", { type: "button", class: "primary", onclick: () => page.go("doctor", { cluster: c.key }) }, "Run the doctor"), bundle) : "", note ?? "",
  ].flat().filter((e) => e !== "");
}

export function peeringDetails(p, state, page) {
  const first = p.ends[0], peer = first.status.peer;
  const [bundle, note] = bundleButton(first.cluster, peer);
  const diagnosis = p.diagnosis;
  const alerts = p.ends.flatMap((e) => (e.status.alerts ?? []).map((a) => ({ ...a, end: e })));
  return [
    h("h2", {}, told(nameOf(state, p.a)), " – ", told(nameOf(state, p.b))),
    h("p", {}, badge(p.tone), p.tone === "unknown" && p.why ? [": ", told(p.why)] : ""),
    p.tone === "down" || p.tone === "degraded" ? [
      h("h3", {}, "What the doctor found"),
      !diagnosis ? h("p", { class: "faint" }, "Examining both ends…")
        : diagnosis.problem ? h("p", {}, told(diagnosis.problem))
          : diagnosis.findings?.length ? diagnosis.findings.map((f) => finding({ ...f, kind: f.status, title: whose(f.cluster, state, p), show: opener((f.cluster === "remote" ? p.ends[1] ?? first : first).cluster, f.object) }))
            : h("p", {}, "The doctor found nothing wrong."),
      diagnosis ? h("p", { class: "faint" }, ago(diagnosis.time)) : "",
    ].flat() : "",
    alerts.length ? [h("h3", {}, "What the clusters report"), ...alerts.slice(0, 8).map((a) => finding({
      kind: a.severity === "error" ? "failed" : "warning", title: p.ends.length > 1 ? nameOf(state, a.end.cluster) : "", message: a.message || a.reason, object: a.object, show: opener(a.end.cluster, a.object),
    })), alerts.length > 8 ? h("p", { class: "faint" }, `and ${alerts.length - 8} more`) : ""] : "",
    h("div", { class: "row" },
      h("button", { type: "button", onclick: () => page.go("plots", { ends: p.ends.map((e) => e.key) }) }, "Plots"),
      h("button", { type: "button", onclick: () => page.go("drops", { peering: p.key }) }, "Drops"),
      h("button", { type: "button", onclick: () => page.go("doctor", { cluster: first.cluster, peer }) }, "Doctor"), bundle), note,
    ...p.ends.flatMap((e) => endDetails(e, state)),
  ].flat().filter((e) => e !== "");
}

const whose = (side, state, p) => (side === "local" ? nameOf(state, p.ends[0].cluster) : side === "remote" ? nameOf(state, p.ends[0].cluster === p.a ? p.b : p.a) : "");

function endDetails(e, state) {
  const st = e.status, g = st.gateway, t = st.traffic, k = st.keys;
  const rate = (d) => (d.rate ? `${bits(d.rate.bytesPerSecond)}, ${short(d.rate.packetsPerSecond)}packets/s` : `${bytes(d.bytes)} so far`);
  const drops = (t?.drops ?? []).slice(0, 6).map((d) => `${d.reason} ${d.packets} (${d.direction})`).join(", ");
  return [
    h("h3", {}, "In ", told(nameOf(state, e.cluster))),
    e.stale ? h("p", { class: "unknown" }, `? The API server does not answer. This was read ${ago(state.clusters.find((c) => c.key === e.cluster)?.readAt)}.`) : "",
    facts(["State", st.state || "–"], ["Latency", e.lost > 1 ? "" : st.latency], ["Pings", e.lost > 1 ? `the last ${e.lost} were lost` : ""],
      ["Gateway", g ? h("button", { class: "link told", type: "button", onclick: () => showObject(e.cluster, `${g.kind} ${st.namespace}/${g.name}`) }, `${g.kind} ${st.namespace}/${g.name}`) : ""],
      ["Endpoint", g?.endpoint], ["MTU", g ? `${g.mtu}${g.pathMTU ? ` (path: ${g.pathMTU})` : ""}${g.peerMTU && g.peerMTU !== g.mtu ? ` (peer: ${g.peerMTU})` : ""}` : ""],
      ["Pods", (e.pods ?? []).map((x) => `${x.name}${x.node ? ` on ${x.node}` : ""}${x.active ? ", active" : ""}${x.ready ? "" : `, not ready: ${x.reason}`}`).join("; ")],
      ["Out", t ? rate(t.egress) : ""], ["In", t ? rate(t.ingress) : ""], ["Dropped since start", drops],
      ["Nodes", st.nodes ? `${st.nodes.joined} of ${st.nodes.known} joined` : ""], ["Not joined", (e.missing ?? []).join(", ")],
      ["Handshake", k?.lastHandshake ? ago(k.lastHandshake) : ""], ["Key", k?.since ? `created ${ago(k.since)}` : ""], ["Memory", e.memory ? bytes(e.memory) : ""],
      ["No answer", e.silent]),
    e.cidrs?.length ? h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "CIDR"), h("th", { scope: "col", class: "told" }, `in ${st.peer}`), h("th", { scope: "col", class: "told" }, `seen from ${nameOf(state, e.cluster)}`))),
      h("tbody", {}, ...e.cidrs.map((c) => h("tr", {}, h("td", {}, c.what), h("td", { class: "mono told" }, c.there), h("td", { class: "mono told" }, c.here ?? "not yet")))))) : "",
  ];
}
