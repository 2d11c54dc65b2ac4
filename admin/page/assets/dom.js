// Elements and texts. What a cluster reports enters the page only as text nodes and
// attributes: nothing here turns it into markup.

const svgNamespace = "http://www.w3.org/2000/svg";

function fill(e, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (name === "value") e.value = value;
    else e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.flat(2).filter((c) => c !== undefined && c !== null && c !== false && c !== ""));
  return e;
}

/** h makes an HTML element; strings among its children become text. */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** s makes an SVG element. */
export const s = (tag, attributes, ...children) => fill(document.createElementNS(svgNamespace, tag), attributes, children);

/** set changes an attribute only if its value differs, so that an unchanged page costs nothing. */
export function set(e, name, value) {
  if (e.getAttribute(name) !== String(value)) e.setAttribute(name, value);
}

/** say changes a text only if it differs. */
export function say(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

/** told is a text that a cluster chose. */
export const told = (text, kind = "") => h("span", { class: `told ${kind}` }, text ?? "");

export const signs = { up: "✓", degraded: "!", down: "✕", unknown: "?", off: "–" };
export const words = { up: "Connected", degraded: "Connected, with warnings", down: "Down", unknown: "Unknown", off: "No network" };

export const badge = (tone) => h("span", { class: `badge ${tone}` }, `${signs[tone]} ${words[tone]}`);

/** copyButton copies a text. */
export function copyButton(text) {
  const b = h("button", { type: "button" }, "Copy");
  b.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      b.textContent = "Copied";
    } catch {
      b.textContent = "Select the text instead";
    }
  });
  return b;
}

/** dialog shows elements in front of the page until they are closed. */
export function dialog(title, ...children) {
  const d = h("dialog", { "aria-label": title, onclose: () => d.remove() },
    h("div", { class: "row" }, h("h2", { class: "told" }, title), h("button", { type: "button", onclick: () => d.close() }, "Close")), ...children);
  document.body.append(d);
  d.showModal();
  return d;
}

// A long text scrolls, also by keyboard.
const long = (text) => (text?.length > 200 ? { tabindex: "0" } : {});

/** finding shows what is wrong, why, and what to do about it. */
export function finding({ kind, title, object, message, cause, fix, show }) {
  return h("div", { class: `finding ${kind}` },
    h("p", long(message), title && h("strong", {}, title, ": "), told(message)),
    object && h("p", { class: "faint" }, show ? h("button", { class: "link told", type: "button", onclick: () => show(object) }, object) : told(object)),
    cause && h("p", long(cause), h("span", { class: "faint" }, "Cause: "), told(cause)),
    fix && !commands(fix).includes(fix) && h("p", {}, h("span", { class: "faint" }, "Fix: "), told(fix), commands(fix).length === 0 && [" ", copyButton(fix)]),
    fix && commands(fix).map((c) => h("div", { class: "fix" }, h("code", { class: "told" }, c), copyButton(c))));
}

/** commands are those in the text of a fix, which are quoted there if there is other text. */
function commands(fix) {
  const command = "(?:liqoctl|sluicectl|kubectl) ";
  if (new RegExp(`^${command}`).test(fix)) return [fix];
  return [...fix.matchAll(new RegExp(`'(${command}[^']+)'`, "g"))].map((m) => m[1]);
}

const units = ["", "k", "M", "G", "T"];

/** short writes a number in a few characters: 1.2 M. */
export function short(n) {
  if (n === undefined || n === null || !Number.isFinite(n)) return "–";
  let i = 0;
  while (Math.abs(n) >= 999.5 && i < units.length - 1) { n /= 1000; i++; }
  return `${n === 0 ? 0 : n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : n.toFixed(2)} ${units[i]}`.trimEnd() + (units[i] ? "" : " ");
}

export const bits = (bytes) => (bytes === undefined || bytes === null ? "–" : `${short(bytes * 8)}bit/s`);

export function bytes(n) {
  if (n === undefined || n === null) return "–";
  return n >= 2 ** 30 ? `${(n / 2 ** 30).toFixed(1)} GiB` : n >= 2 ** 20 ? `${(n / 2 ** 20).toFixed(1)} MiB` : `${Math.round(n / 1024)} KiB`;
}

export function ago(time) {
  if (!time) return "–";
  const seconds = Math.max(0, (Date.now() - Date.parse(time)) / 1000);
  if (seconds < 100) return `${Math.round(seconds)} s ago`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min ago`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h ago` : `${Math.round(seconds / 86400)} days ago`;
}
