// The page: views, and the state that all of them show.

import { ask, Refused } from "./ask.js";
import { h, say } from "./dom.js";
import { viewable } from "./details.js";
import { mapView } from "./map.js";
import { plotsView } from "./plots.js";
import { packetView } from "./packet.js";
import { dropsView, doctorView } from "./checks.js";

const views = { map: ["Map", mapView], plots: ["Plots", plotsView], packet: ["Packet path", packetView], drops: ["Drops", dropsView], doctor: ["Doctor", doctorView] };

const place = document.getElementById("view");
const news = document.getElementById("news");
let state = null;
let current = null;

/** go shows a view; what about means, such as a peering, is up to the view. */
function go(name, about) {
  for (const b of document.querySelectorAll("#views button")) {
    if (b.dataset.view === name) b.setAttribute("aria-current", "page");
    else b.removeAttribute("aria-current");
  }
  current?.end?.();
  const inside = place.contains(document.activeElement);
  place.replaceChildren();
  current = views[name][1](place, { go, state: () => state }, about ?? {});
  if (state) current.update(state);
  if (inside) place.focus({ preventScroll: true }); // or the keyboard begins at the top of the page again
}

document.getElementById("views").append(...Object.entries(views).map(([name, [title]]) =>
  h("button", { type: "button", "data-view": name, onclick: () => go(name) }, title)));

function show(next) {
  state = next;
  for (const kind of state.kinds) viewable.add(kind);
  performance.clearMeasures("update");
  const began = performance.now();
  current.update(state);
  performance.measure("update", { start: began });
  const trouble = state.clusters.filter((c) => c.problem).length;
  const down = state.peerings.filter((p) => p.tone === "down").length;
  news.className = trouble || down ? "trouble" : "";
  const reading = state.clusters.some((c) => c.named && !c.readAt && !c.problem);
  const named = state.clusters.filter((c) => c.named).length;
  const count = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
  say(news, (reading ? "Reading the clusters… " : "") + `${count(named, "cluster")}, ${count(state.peerings.length, "peering")}` +
    (down ? `, ${down} down` : "") + (trouble ? `, ${count(trouble, "cluster")} with problems` : ""));
  document.title = down ? `(${down} down) Sluice` : "Sluice";
}

async function poll() {
  let wait = state?.interval ?? 1000;
  try {
    const next = await ask("state", { sequence: state?.sequence });
    if (next) show(next);
    else if (news.dataset.away) show(state);
    delete news.dataset.away;
  } catch (e) {
    if (!(e instanceof Refused)) console.error(e);
    news.className = "trouble";
    news.dataset.away = "yes";
    say(news, e.message);
    wait = 5000;
  }
  // The first answers come while clusters are still being read. A hidden page polls rarely.
  const reading = state?.clusters.some((c) => c.named && !c.readAt);
  setTimeout(poll, document.hidden ? 60_000 : Math.min(reading ? 700 : 1000, wait / 2));
}

document.addEventListener("visibilitychange", async () => {
  if (document.hidden) return;
  try { const next = await ask("state", { sequence: state?.sequence }); if (next) show(next); } catch { /* poll reports it */ }
});

go("map");
poll();
