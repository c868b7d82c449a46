// Elements, figures and requests. All text becomes text nodes, never markup.

export function h(name, given, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(given ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

const plain = new Intl.NumberFormat("en");
export const count = (number) => (number === null || number === undefined ? "–" : plain.format(number));
export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;
export const share = (part, whole) => (whole ? `${((100 * part) / whole).toPrecision(part / whole < 0.1 ? 2 : 3)} %` : "–");

let mark = "";
// The word behind the prices of the run that is shown: of simulated models nobody is billed for them.
export const priceAs = (found) => { mark = found.price ?? ""; };
export const plainMoney = (usd) => (usd === 0 ? "$0" : usd >= 100 ? `$${plain.format(Math.round(usd))}` : usd >= 1 ? `$${usd.toFixed(2)}` : `$${usd.toPrecision(2)}`);
export function money(usd, price = mark) {
  if (usd === null || usd === undefined) return "unknown";
  return price ? `${plainMoney(usd)} ${price}` : plainMoney(usd);
}

// Behind a cost: the tokens of a reply, or of a vote, in the provider's cache.
export const cachedText = (cached) => (cached ? `${count(cached.read)} tokens read from the cache, ${count(cached.written)} written` : null);

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 10) return `${seconds.toPrecision(2)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return minutes < 2880 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${Math.round(minutes / 1440)} days`;
}

// The day and the minute, here, as one word after the other sorts.
export function moment(text) {
  if (!text) return "–";
  const date = new Date(text), two = (number) => String(number).padStart(2, "0");
  return Number.isNaN(date.getTime()) ? text : `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

// Integers beyond those of a browser stay as they were written.
export const exact = (_, value, context) => (typeof value === "number" && !Number.isSafeInteger(value) && Number.isInteger(value) && context?.source ? context.source : value);

export async function api(path, options, revive = exact) {
  const response = await fetch(path, options);
  const text = await response.text();
  let found;
  try { found = JSON.parse(text, revive); } catch { found = { error: `the answer cannot be read (${response.status})` }; }
  if (!response.ok) throw Object.assign(new Error(found.error ?? response.statusText), { status: response.status });
  return found;
}

// What a person changes, with the token that the address had.
export const post = (path, body) => api(path, { method: "POST", headers: { "content-type": "application/json", authorization: `Bearer ${sessionStorage.getItem("token") ?? ""}` }, body: JSON.stringify(body) });

export async function bytes(path, signal) {
  const response = await fetch(path, { signal });
  if (!response.ok) throw Object.assign(new Error((await response.json()).error), { status: response.status });
  return new Uint8Array(await response.arrayBuffer());
}

// SVG: the same as `h`, in its own namespace.
export function svg(name, given, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(given ?? {})) if (value !== null && value !== undefined) node.setAttribute(key, value);
  node.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

const SHOWN = 20000;
// A text of a model or a task. Of a long one the beginning, and the rest on demand: to lay out megabytes stops a browser.
export function quoted(text) {
  const shown = h("pre", { tabindex: "0", dir: "auto" }, text.slice(0, SHOWN));
  if (text.length <= SHOWN) return shown;
  return [shown, h("button", { type: "button", onclick: (event) => { shown.textContent = text; event.target.remove(); } }, `Show all ${count(text.length)} characters`)];
}

// A list of which the first entries are shown, and the others on demand.
export function firstOf(entries, draw, most = 20) {
  const host = h("div"), fill = (shown) => host.replaceChildren(...[draw(entries.slice(0, shown))].flat(Infinity), ...(entries.length > shown ? [h("button", { type: "button", onclick: () => fill(entries.length) }, `Show ${count(entries.length)}`)] : []));
  fill(most);
  return host;
}

export const runUrl = (run, page = "") => `/run/${encodeURIComponent(run)}${page}`;
export const decisionUrl = (run, path) => runUrl(run, `/at/${path.split("/").map(encodeURIComponent).join("/")}`);
export const apiUrl = (run, page = "", query = "") => `/api/run/${encodeURIComponent(run)}${page && "/"}${page}${query}`;

// Text from models and tasks: isolated, so that its direction does not reach what stands beside it.
export const said = (text) => h("bdi", null, text);
export const fact = (name, value, more) => h("div", null, h("dt", null, name), h("dd", null, value, more ? h("small", null, more) : null));
export const section = (title, ...children) => h("section", null, title ? h("h2", null, title) : null, ...children);

const SHAPES = { completed: "●", running: "▶", stopped: "■", failed: "✕", undecided: "◇", contested: "◇", refused: "◇", interrupted: "■", "cut off": "■", open: "○", right: "●", done: "○", wrong: "✗", waits: "◇", answered: "✎" };
export const shapeOf = (word) => SHAPES[word] ?? "●";
export const outcomeMark = (outcome) => h("span", { class: `mark ${outcome.split(" ")[0]}` }, `${shapeOf(outcome)} ${outcome}`);
// How a run stands, in one sentence; its colour says what is wrong before what is done.
export const verdictMark = ({ verdict }, name = "span", href = null) => h(name, { class: `verdict ${verdict.kind}` }, `${shapeOf(verdict.kind)} `, href ? h("a", { href }, said(verdict.text)) : said(verdict.text));

export function table(caption, heads, rows) {
  const of = (kind) => (cell, index) => h(kind, { class: heads[index][1] ?? null, scope: kind === "th" ? "col" : null }, cell);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", null, h("caption", { class: "unseen" }, caption), h("thead", null, h("tr", null, heads.map((each) => each[0]).map(of("th")))),
      h("tbody", null, rows.map((row) => h("tr", null, row.map(of("td")))))));
}

// Canvases that are drawn again in another theme. Those of pages that were left are forgotten.
const drawn = new Map();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((draw) => draw()));
export function redrawn(canvas, draw) {
  for (const each of drawn.keys()) if (!each.isConnected) drawn.delete(each);
  drawn.set(canvas, draw);
}

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
export const say = (text) => { document.getElementById("said").textContent = text; };

export function fit(canvas, height) {
  const width = canvas.parentElement.clientWidth, ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return [context, width];
}
