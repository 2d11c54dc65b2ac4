// Requests to the server. The token arrives in the fragment of the address, which browsers
// do not send, and is sent in a header. It is kept for this tab only. The page may be given another one, of a console that
// was started again.

const kept = "token";

function takeToken() {
  const given = location.hash.slice(1);
  if (/^[A-Z2-7]{20,}$/.test(given)) {
    sessionStorage.setItem(kept, given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(kept) ?? "";
}

let token = takeToken();
addEventListener("hashchange", () => { token = takeToken(); });

/** Refused is a request that was not answered; its message is for the user. */
export class Refused extends Error {}

async function send(path, parameters, method) {
  const query = new URLSearchParams(Object.entries(parameters ?? {}).filter(([, v]) => v !== undefined && v !== null && v !== ""));
  let r;
  try {
    r = await fetch(`/api/${path}?${query}`, { method, headers: { Authorization: `Bearer ${token}` }, cache: "no-store" });
  } catch {
    throw new Refused("'liqoctl console' does not answer: it has exited or is suspended. Start it again and open the address that it prints.");
  }
  if (!r.ok) throw new Refused((await r.text()).trim() || `${r.status}`);
  return r;
}

/** ask returns the JSON of an answer; null: nothing new. */
export async function ask(path, parameters, method = "GET") {
  const r = await send(path, parameters, method);
  return r.status === 204 ? null : r.json();
}

export const askText = async (path, parameters) => (await send(path, parameters, "GET")).text();

/** follow calls each with every line of an answer, as it arrives. */
export async function follow(path, parameters, each) {
  const lines = (await send(path, parameters, "POST")).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await lines.read();
    const whole = (rest + (value ?? "")).split("\n");
    rest = whole.pop();
    for (const line of whole) each(JSON.parse(line));
    if (done) return;
  }
}

/** download saves an answer as a file. */
export async function download(path, parameters) {
  const r = await send(path, parameters, "POST");
  const url = URL.createObjectURL(await r.blob());
  const a = document.createElement("a");
  a.href = url;
  a.download = (r.headers.get("X-Filename") ?? "download").replace(/[^\w.-]/g, "_");
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
  return a.download;
}
