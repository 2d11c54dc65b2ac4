// The path of a packet: what `liqoctl network trace` reports, hop by hop.

import { ask } from "./ask.js";
import { h, told, finding } from "./dom.js";
import { nameOf, showObject } from "./details.js";

export function packetView(place, page) {
  const cluster = h("select", { name: "cluster" }), toCluster = h("select", { name: "toCluster" });
  const fromPods = h("datalist", { id: "from-pods" }), toPods = h("datalist", { id: "to-pods" });
  const from = h("input", { class: "wide", list: "from-pods", placeholder: "namespace/pod", required: true, autocomplete: "off", spellcheck: "false", name: "from" });
  const to = h("input", { class: "wide", list: "to-pods", required: true, autocomplete: "off", spellcheck: "false", name: "to" });
  const port = h("input", { inputmode: "numeric", pattern: "[0-9]{1,5}", size: "6", placeholder: "any", name: "port" });
  const portLabel = h("label", {}, "Port", port);
  const live = h("input", { type: "checkbox", name: "live" });
  const go = h("button", { class: "primary" }, "Trace the packet");
  const note = h("p", { class: "faint", role: "status" });
  const result = h("div", { "aria-live": "polite" });
  const form = h("form", { class: "row" },
    h("label", {}, "From cluster", cluster), h("label", {}, "Pod", from), h("label", {}, "To", toCluster), h("label", {}, "Address or pod", to), portLabel, h("label", { class: "check" }, live, "Watch packets for 5 s"), go);
  place.append(h("section", { class: "sheet" }, h("h2", {}, "Packet path"), form, fromPods, toPods,
    h("p", { class: "faint" }, "No packet is sent. The result shows what would happen to a packet now, judged by what clusters, gateways and nodes report and by the packets dropped in the last minute. If you choose to watch packets, nodes and gateways count matching packets as they pass. Send some meanwhile."), note), result);

  async function pods(list, key) {
    if (list.dataset.of === key || key === "") return;
    list.dataset.of = key;
    list.replaceChildren();
    try {
      const { pods: all, more } = await ask("pods", { cluster: key });
      if (list.dataset.of !== key) return;
      list.replaceChildren(...all.map((p) => h("option", { value: `${p.namespace}/${p.name}`, label: `${p.ip} on ${p.node}` })));
      if (more) note.textContent = "The cluster has more pods than are listed. You can type the name of any other pod.";
    } catch (e) { note.textContent = e.message; }
  }
  function changed() {
    const byAddress = toCluster.value === "";
    portLabel.hidden = byAddress;
    to.placeholder = byAddress ? "10.71.2.20:443" : "namespace/pod";
    if (byAddress) { toPods.dataset.of = ""; toPods.replaceChildren(); } else pods(toPods, toCluster.value);
    pods(fromPods, cluster.value);
  }
  cluster.addEventListener("change", changed);
  toCluster.addEventListener("change", changed);

  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    go.disabled = true;
    note.textContent = live.checked ? "Asking gateways and agents, then watching packets…" : "Asking gateways and agents…";
    result.replaceChildren();
    try {
      const way = await ask("trace", { cluster: cluster.value, from: from.value.trim(), to: to.value.trim(), toCluster: toCluster.value, port: toCluster.value === "" ? "" : port.value, live: live.checked ? "1" : "" });
      note.textContent = "";
      result.replaceChildren(...draw(way));
    } catch (error) { note.textContent = error.message; }
    go.disabled = false;
  });

  function draw(way) {
    const state = page.state();
    const stop = [...way.there, ...(way.back ?? [])].find((x) => x.problem);
    const unseen = !way.back?.length || [...way.there, ...way.back].some((x) => x.unknown);
    let n = 0;
    const part = (title, hops) => (hops?.length ? h("section", { class: "sheet" }, h("h2", {}, title), h("ol", { class: "way" }, ...hops.map((hop) => one(hop, ++n)))) : "");
    const near = cluster.value;
    const place = (hop) => (hop.cluster === "local" ? nameOf(state, near) : way.peer || "other cluster");
    const one = (hop, i) => h("li", { class: hop.problem ? "stop" : hop.unknown ? "unseen" : "" }, h("span", { class: "mark", "aria-hidden": "true" }, hop.problem ? "✕" : String(i)),
      h("div", { class: "hop" },
        h("p", {}, h("strong", {}, hop.kind), " ", told(hop.name), " ", h("span", { class: "faint" }, `(${place(hop)})`)),
        h("p", { class: "mono told" }, `${hop.source ?? "?"} → ${hop.destination ?? "?"}`),
        hop.facts?.length ? h("ul", {}, ...hop.facts.map((f) => h("li", { class: "told" }, f))) : "",
        hop.live?.length ? h("p", { class: "seen" }, "Seen now: ", ...hop.live.flatMap((s, i) => [i ? ", " : "", h("strong", {}, String(s.packets)), ` at ${s.point}`])) : "",
        hop.notCounted ? h("p", { class: "uncounted faint told" }, `Not counted: ${hop.notCounted}`) : "",
        hop.decidedBy ? h("p", {}, h("span", { class: "faint" }, "Decided by "), hop.cluster === "local" || way.remote ? h("button", { class: "link told", type: "button", onclick: () => showObject(hop.cluster === "local" ? near : way.remote, hop.decidedBy) }, hop.decidedBy) : told(hop.decidedBy)) : "",
        hop.unknown ? h("p", { class: "unknown" }, "? Unknown: ", told(hop.unknown)) : "",
        hop.problem ? finding({ kind: "failed", title: "The packet stops here", ...hop.problem }) : ""));
    return [h("p", { class: stop ? "badge down" : unseen ? "badge unknown" : "badge up", role: "status" }, stop ? `✕ The packet stops at the ${stop.kind}` : unseen ? "? Nothing was found that stops the packet, but not everything could be read" : "✓ Nothing stops the packet"),
      part("Forward path", way.there), part("Return path", way.back)].filter((e) => e !== "");
  }

  return {
    update(state) {
      const named = state.clusters.filter((c) => c.named);
      const text = JSON.stringify(named.map((c) => [c.key, c.id]));
      if (form.dataset.of === text) return;
      form.dataset.of = text;
      const [was, to] = [cluster.value, toCluster.value];
      cluster.replaceChildren(...named.map((c) => h("option", { value: c.key }, c.id || c.origin)));
      toCluster.replaceChildren(h("option", { value: "" }, "an address"), ...named.map((c) => h("option", { value: c.key }, `a pod in ${c.id || c.origin}`)));
      if (was) cluster.value = was;
      toCluster.value = to;
      changed();
    },
  };
}
