// Drops with their reasons, and the doctor's checks.

import { ask, askText, follow } from "./ask.js";
import { h, dialog, told, finding } from "./dom.js";
import { nameOf, opener, bundleButton } from "./details.js";
import { endName } from "./plots.js";

export function dropsView(place, page, about) {
  const choice = h("select", {}), again = h("button", { type: "button", class: "primary" }, "Read again");
  const note = h("p", { class: "faint", role: "status" }), result = h("div", { class: "scroll" });
  place.append(h("section", { class: "sheet" }, h("h2", {}, "Dropped packets"),
    h("div", { class: "row" }, h("label", {}, "Peering", choice), again),
    h("p", { class: "faint" }, "Gateways keep the headers of the latest packets dropped for each reason, a few per second, and no payload. Addresses are those that the packet had when it was dropped."), note), h("section", { class: "sheet" }, result));
  let asked = "";

  async function read() {
    const p = page.state()?.peerings.find((x) => x.key === choice.value);
    if (!p) { note.textContent = "There are no peerings."; return; }
    asked = p.key;
    again.disabled = true;
    note.textContent = "Asking gateways…";
    const rows = [], troubles = [];
    for (const e of p.ends) {
      try {
        for (const d of await ask("drops", { cluster: e.cluster, peer: e.status.peer })) rows.push({ ...d, end: endName(page.state(), e.key) });
      } catch (error) { troubles.push(`${endName(page.state(), e.key)}: ${error.message}`); }
    }
    again.disabled = false;
    if (asked !== p.key) return;
    rows.sort((a, b) => Date.parse(b.time) - Date.parse(a.time));
    const reasons = [...new Map(rows.map((d) => [d.reason, d])).values()];
    note.textContent = troubles.join(" ") || (rows.length ? "" : "No packets were dropped.");
    result.replaceChildren(
      rows.length ? h("h2", {}, "Reasons") : "", ...reasons.map((d) => finding({ kind: "warning", title: d.reason, message: d.cause ?? "this version does not know this reason", fix: d.fix, object: d.see, show: () => explain(d.reason) })),
      rows.length ? h("h2", {}, "Packets") : "",
      rows.length ? h("table", {}, h("thead", {}, h("tr", {}, ...["Time", "Gateway", "Direction", "Reason", "Packet", "Node"].map((x) => h("th", { scope: "col" }, x)))),
        h("tbody", {}, ...rows.map((d) => h("tr", {}, h("td", { class: "number" }, new Date(d.time).toLocaleTimeString([], { hour12: false })), h("td", { class: "told" }, d.end), h("td", {}, d.direction === "egress" ? "to the peer" : "from the peer"),
          h("td", { class: "told" }, d.reason), h("td", { class: "mono packet" }, packet(d)), h("td", { class: "told" }, d.node ?? ""))))) : "");
  }
  again.addEventListener("click", read);
  choice.addEventListener("change", read);
  return {
    update(state) {
      const text = JSON.stringify(state.peerings.map((p) => p.key));
      if (choice.dataset.of === text) return;
      const was = choice.value || about.peering;
      choice.dataset.of = text;
      choice.replaceChildren(...state.peerings.map((p) => h("option", { value: p.key }, `${nameOf(state, p.a)} – ${nameOf(state, p.b)}`)));
      if (state.peerings.some((p) => p.key === was)) choice.value = was;
      if (choice.value !== asked) read();
    },
  };
}

// The text of a drop starts with reason and direction, which have columns of their own.
const packet = (d) => d.text.replace(/^\S+\s+(to|from) the peer\s+/, "");

// Shows the section of the documentation about drops, scrolled to the row of a reason.
async function explain(reason) {
  const body = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Drops by name" }, "Reading…");
  dialog("Drops by name", body);
  try {
    body.replaceChildren(...markdown(await askText("reasons")));
    const row = [...body.querySelectorAll("tr")].find((tr) => tr.cells[0].textContent.split(", ").includes(reason));
    row?.classList.add("chosen");
    row?.scrollIntoView({ block: "center" });
  } catch (e) { body.textContent = e.message; }
}

// The subset of Markdown that this section uses: paragraphs, tables, code.
function markdown(text) {
  const inline = (line) => line.split(/`([^`]*)`/).map((part, i) => (i % 2 ? h("code", {}, part) : part));
  return text.split(/\n{2,}/).map((block) => {
    const lines = block.split("\n");
    if (block.startsWith("```")) return h("pre", { tabindex: "0" }, lines.slice(1, -1).join("\n"));
    if (!block.startsWith("|")) return h("p", {}, ...inline(lines.join(" ")));
    const [head, , ...rows] = lines.map((line) => line.split("|").slice(1, -1).map((cell) => cell.trim()));
    return h("table", {}, h("thead", {}, h("tr", {}, ...head.map((cell) => h("th", { scope: "col" }, ...inline(cell))))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell) => h("td", {}, ...inline(cell)))))));
  });
}

const order = ["failed", "warning", "skipped", "ok"];
const marks = { ok: ["✓", "up"], warning: ["!", "degraded"], failed: ["✕", "down"], skipped: ["–", "off"] };

export function doctorView(place, page, about) {
  const choice = h("select", {}), run = h("button", { class: "primary", type: "button" }, "Run the checks");
  const note = h("p", { class: "faint", role: "status" }), steps = h("ul", { class: "steps", "aria-label": "Progress" }), result = h("div", {}), bundles = h("div", {});
  place.append(h("section", { class: "sheet" }, h("h2", {}, "Doctor"), h("div", { class: "row" }, h("label", {}, "What to examine", choice), run), bundles,
    h("p", { class: "faint" }, "Examines both clusters of a peering if both can be read, queries the gateways twice and pings through the tunnel. Nothing is changed."), note, steps), result);
  const chosen = () => JSON.parse(choice.value || "{}");

  run.addEventListener("click", async () => {
    const what = chosen();
    run.disabled = true;
    result.replaceChildren();
    steps.replaceChildren();
    const began = Date.now();
    const clock = setInterval(() => { note.textContent = `Examining… ${Math.round((Date.now() - began) / 1000)} s`; }, 250);
    try {
      let report = null, refusal = "the answer ended early";
      await follow("doctor", what, (line) => {
        if (line.step) step(line.step);
        report = line.report ?? report;
        refusal = line.error ?? refusal;
      });
      if (!report) throw new Error(refusal);
      steps.replaceChildren();
      result.replaceChildren(...draw(report, what));
      note.textContent = `Examined at ${new Date(report.time).toLocaleTimeString([], { hour12: false })}.`;
    } catch (e) { note.textContent = e.message; } finally { clearInterval(clock); run.disabled = false; }
  });

  // The next step of a cluster replaces the line that says what it is waiting for.
  function step({ cluster, text, waiting, failed }) {
    for (const e of steps.querySelectorAll(".waiting")) if (e.dataset.of === (cluster ?? "")) e.remove();
    const [mark, tone] = waiting ? ["…", "waiting"] : failed ? marks.failed : marks.ok;
    steps.append(h("li", { class: tone, "data-of": cluster ?? "" }, h("span", { class: "badge" }, mark), " ", told(text), cluster ? h("span", { class: "faint" }, ` (${cluster})`) : ""));
  }

  function draw(report, what) {
    const ids = Object.fromEntries(report.clusters.map((c) => [c.name ?? "", c.clusterID || c.origin || c.apiServer || ""]));
    const checks = new Map();
    for (const f of report.findings) checks.set(f.check, [...(checks.get(f.check) ?? []), f]);
    const { ok, warnings, failed, skipped } = report.summary;
    const keys = { local: what.cluster, remote: page.state()?.clusters.find((c) => c.named && c.id && c.id === ids.remote)?.key };
    return [h("p", { class: `badge ${failed ? "down" : warnings ? "degraded" : "up"}` }, `${failed ? `✕ ${failed} failed` : "✓ Nothing failed"}, ${warnings} warnings, ${ok} passed, ${skipped} skipped`),
      h("section", { class: "sheet" }, ...[...checks.values()].map((fs) => {
        const worst = order.find((x) => fs.some((f) => f.status === x));
        const [mark, tone] = marks[worst];
        const inner = fs.map((f) => finding({ ...f, kind: f.status, title: [ids[f.cluster ?? "none"], report.clusters.length === 1 && f.peer].filter(Boolean).join(", "), show: opener(keys[f.cluster] ?? what.cluster, f.object) }));
        return h("details", { open: worst === "failed" || worst === "warning" }, h("summary", {}, h("span", { class: `badge ${tone}` }, `${mark} `), fs[0].title), ...inner);
      }))];
  }

  return {
    update(state) {
      const options = [
        ...state.peerings.map((p) => [{ cluster: p.ends[0].cluster, peer: p.ends[0].status.peer }, `Peering ${nameOf(state, p.a)} – ${nameOf(state, p.b)}`]),
        ...state.clusters.filter((c) => c.named).map((c) => [{ cluster: c.key }, `Cluster ${c.id || c.origin}, all its peerings`]),
      ].map(([value, text]) => [JSON.stringify(value), text]);
      const text = JSON.stringify(options);
      if (choice.dataset.of === text) return;
      const was = choice.value || JSON.stringify(about.peer ? { cluster: about.cluster, peer: about.peer } : about.cluster ? { cluster: about.cluster } : {});
      choice.dataset.of = text;
      choice.replaceChildren(...options.map(([value, label]) => h("option", { value }, label)));
      if (options.some(([value]) => value === was)) choice.value = was;
      const show = () => bundles.replaceChildren(...(choice.value ? bundleButton(chosen().cluster, chosen().peer) : []));
      choice.onchange = show;
      show();
    },
  };
}
