// Many inputs as a grid: a canvas as large as the window on it, so 100,000 draw as quickly as 100.
import { colour, count, duration, h, money, plural, redrawn, share, svg } from "./dom.js";

const CELL = 18, BINS = 32;
const KINDS = [["waiting", "·", "line"], ["running", "▶", "accent"], ["completed", "●", "good"], ["undecided", "◇", "undecided"], ["failed", "✕", "wrong"], ["wrong", "✗", "wrong"], ["refused", "◇", "undecided"]];
const CUT_OFF = ["begun, not ended", "■", "line"]; // what "running" is in a run that has stopped
const MEASURES = [["samples", (samples) => plural(samples, "sample")], ["cost", money], ["time", (seconds) => `${duration(seconds)} into the run`]];

function histogram(values, [name, written]) {
  const found = values.filter((each) => each > 0), least = found.reduce((a, b) => Math.min(a, b), Infinity), most = found.reduce((a, b) => Math.max(a, b), 0);
  if (!(most > least)) return [];
  const bars = new Array(name === "samples" ? Math.min(BINS, most - least + 1) : BINS).fill(0), wide = 320 / bars.length;
  for (const each of found) bars[Math.min(bars.length - 1, Math.floor((bars.length * (each - least)) / (most - least)))]++;
  const high = Math.max(...bars);
  return [h("figure", null, svg("svg", { viewBox: "0 0 320 50", preserveAspectRatio: "none", class: "bars", role: "img", "aria-label": `How many inputs have which ${name}` },
    bars.map((n, i) => (n ? svg("rect", { x: wide * i, width: wide * 0.9, y: 49 - (49 * n) / high, height: 1 + (49 * n) / high }) : null))),
  h("figcaption", { class: "ends" }, h("span", null, written(least)), h("span", null, `highest bar: ${count(high)} inputs`), h("span", null, written(most))))];
}

// Returns what takes a byte for each input and, if known, three floats: samples, cost and seconds until the last decision, for all inputs each.
export function grid(host, open) {
  const canvas = h("canvas", { tabindex: "0", role: "slider", "aria-label": "Inputs", "aria-valuemin": "0" }), tall = h("div"), bars = h("div"), legend = h("ul", { class: "legend" });
  const box = h("div", { class: "grid" }, canvas, tall), readout = h("p", { class: "readout" });
  const choice = h("select", { onchange: () => { at = box.scrollTop = 0; sort(); } }, h("option", { value: "" }, "number"), MEASURES.map(([name], i) => h("option", { value: String(i) }, `${name}, most first`)));
  const tools = h("div", { class: "tools", hidden: true }, h("label", null, "Order by ", choice));
  let kinds = KINDS, codes = new Uint8Array(0), sums = [], order = codes, at = 0, columns = 1, waits = 0;
  const paint = () => {
    waits = 0;
    columns = Math.max(1, Math.floor(box.clientWidth / CELL));
    box.style.height = `${Math.ceil(codes.length / columns) * CELL + 2}px`; // as tall as it needs, up to its bound
    const width = box.clientWidth, height = box.clientHeight, ratio = devicePixelRatio || 1;
    if (!width) return;
    tall.style.height = `${Math.max(0, Math.ceil(codes.length / columns) * CELL - height)}px`;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) { canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio); canvas.style.width = `${width}px`; canvas.style.height = `${height}px`; }
    const c = canvas.getContext("2d"), inks = kinds.map((each) => colour(each[2])), first = Math.floor(box.scrollTop / CELL);
    c.setTransform(ratio, 0, 0, ratio, 0, -(box.scrollTop % CELL) * ratio);
    c.clearRect(0, 0, width, height + CELL);
    c.font = "13px system-ui, sans-serif"; c.textAlign = "center"; c.textBaseline = "middle";
    for (let i = first * columns, n = Math.min(codes.length, (first + Math.ceil(height / CELL) + 1) * columns); i < n; i++) {
      const x = (i % columns) * CELL, y = (Math.floor(i / columns) - first) * CELL, code = codes[order[i]];
      c.fillStyle = inks[code];
      c.fillText(kinds[code][1], x + CELL / 2, y + CELL / 2);
      if (i === at) { c.strokeStyle = colour("ink"); c.strokeRect(x + 1, y + 1, CELL - 2, CELL - 2); }
    }
  };
  const draw = () => { waits ||= requestAnimationFrame(paint); };
  const point = (i, scroll) => {
    at = Math.max(0, Math.min(codes.length - 1, i));
    const number = order[at], said = `input ${count(number)}: ${kinds[codes[number]][0]}`, y = Math.floor(at / columns) * CELL;
    const more = sums[0]?.[number] ? `, ${MEASURES.map(([, written], i) => written(sums[i][number])).join(", ")}` : "";
    if (scroll && (y < box.scrollTop || y + CELL > box.scrollTop + box.clientHeight)) box.scrollTop = y - box.clientHeight / 2;
    canvas.setAttribute("aria-valuenow", at);
    canvas.setAttribute("aria-valuetext", said + more);
    readout.replaceChildren(open ? h("a", { href: open(number) }, said) : said, more);
    draw();
  };
  const sort = () => {
    const values = sums[Number(choice.value)];
    order = Uint32Array.from(codes.keys());
    if (choice.value) order.sort((a, b) => values[b] - values[a] || a - b);
    bars.replaceChildren(...(sums.length ? histogram(values, MEASURES[Number(choice.value)]) : []));
    point(at);
  };
  const under = (event) => { const place = canvas.getBoundingClientRect(); return (Math.floor((event.clientY - place.top + box.scrollTop % CELL) / CELL) + Math.floor(box.scrollTop / CELL)) * columns + Math.floor((event.clientX - place.left) / CELL); };
  const next = (kind) => { const found = (number) => codes[number] === kind, i = order.subarray(at + 1).findIndex(found); point(i < 0 ? order.findIndex(found) : at + 1 + i, true); };
  box.addEventListener("scroll", draw);
  canvas.addEventListener("pointermove", (event) => { if (under(event) < codes.length) point(under(event)); });
  canvas.addEventListener("click", () => readout.querySelector("a")?.click());
  canvas.addEventListener("keydown", (event) => {
    const keys = { ArrowLeft: () => point(at - 1, true), ArrowRight: () => point(at + 1, true), ArrowUp: () => point(at - columns, true), ArrowDown: () => point(at + columns, true), Home: () => point(0, true), End: () => point(codes.length - 1, true), Enter: () => readout.querySelector("a")?.click() };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  host.append(tools, bars, box, readout, legend);
  new ResizeObserver(draw).observe(box);
  redrawn(canvas, draw);
  return (body, inputs, isRunning) => {
    kinds = isRunning ? KINDS : KINDS.with(1, CUT_OFF);
    codes = body.subarray(0, inputs);
    sums = body.length > inputs ? MEASURES.map((_, i) => new Float32Array(body.slice(inputs + 4 * inputs * i, inputs + 4 * inputs * (i + 1)).buffer)) : [];
    tools.hidden = !sums.length;
    canvas.setAttribute("aria-valuemax", String(inputs - 1));
    const totals = kinds.map((_, kind) => codes.reduce((sum, each) => sum + (each === kind), 0));
    legend.replaceChildren(...kinds.flatMap(([name, shape], kind) => (totals[kind] ? [h("li", null, h("button", { type: "button", class: KINDS[kind][0], onclick: () => next(kind) }, `${shape} ${name} ${count(totals[kind])}`), h("span", { class: "soft" }, ` ${share(totals[kind], inputs)}`))] : [])));
    sort();
  };
}
