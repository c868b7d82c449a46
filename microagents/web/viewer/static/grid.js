// Many inputs as a grid: a canvas as large as the window on it, so 100,000 draw as quickly as 100.
import { colour, count, h, plural, redrawn, share } from "./dom.js";

const CELL = 18;
export const KINDS = [["waiting", "·", "line"], ["running", "▶", "accent"], ["completed", "●", "good"], ["undecided", "◇", "undecided"], ["failed", "✕", "wrong"], ["wrong", "✗", "wrong"]];

export function grid(codes, open) {
  const canvas = h("canvas", { tabindex: "0", role: "slider", "aria-label": "Inputs", "aria-valuemin": "0", "aria-valuemax": String(codes.length - 1) }), tall = h("div");
  const box = h("div", { class: "grid" }, canvas, tall), readout = h("p", { class: "readout" });
  const totals = KINDS.map((_, kind) => codes.reduce((sum, each) => sum + (each === kind), 0));
  let at = 0, columns = 1, waits = 0;
  const paint = () => {
    waits = 0;
    columns = Math.max(1, Math.floor(box.clientWidth / CELL));
    box.style.height = `${Math.ceil(codes.length / columns) * CELL + 2}px`; // as tall as it needs, up to its bound
    const width = box.clientWidth, height = box.clientHeight, ratio = devicePixelRatio || 1;
    if (!width) return;
    tall.style.height = `${Math.max(0, Math.ceil(codes.length / columns) * CELL - height)}px`;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) { canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio); canvas.style.width = `${width}px`; canvas.style.height = `${height}px`; }
    const c = canvas.getContext("2d"), inks = KINDS.map((each) => colour(each[2])), first = Math.floor(box.scrollTop / CELL);
    c.setTransform(ratio, 0, 0, ratio, 0, -(box.scrollTop % CELL) * ratio);
    c.clearRect(0, 0, width, height + CELL);
    c.font = "13px system-ui, sans-serif"; c.textAlign = "center"; c.textBaseline = "middle";
    for (let i = first * columns, n = Math.min(codes.length, (first + Math.ceil(height / CELL) + 1) * columns); i < n; i++) {
      const x = (i % columns) * CELL, y = (Math.floor(i / columns) - first) * CELL;
      c.fillStyle = inks[codes[i]];
      c.fillText(KINDS[codes[i]][1], x + CELL / 2, y + CELL / 2);
      if (i === at) { c.strokeStyle = colour("ink"); c.strokeRect(x + 1, y + 1, CELL - 2, CELL - 2); }
    }
  };
  const draw = () => { waits ||= requestAnimationFrame(paint); };
  const point = (i, scroll) => {
    at = Math.max(0, Math.min(codes.length - 1, i));
    const said = `input ${count(at)}: ${KINDS[codes[at]][0]}`, y = Math.floor(at / columns) * CELL;
    if (scroll && (y < box.scrollTop || y + CELL > box.scrollTop + box.clientHeight)) box.scrollTop = y - box.clientHeight / 2;
    canvas.setAttribute("aria-valuenow", at);
    canvas.setAttribute("aria-valuetext", said);
    readout.replaceChildren(open ? h("a", { href: open(at) }, said) : said);
    draw();
  };
  const under = (event) => { const box = canvas.getBoundingClientRect(); return (Math.floor((event.clientY - box.top + canvas.parentElement.scrollTop % CELL) / CELL) + Math.floor(canvas.parentElement.scrollTop / CELL)) * columns + Math.floor((event.clientX - box.left) / CELL); };
  const next = (kind) => { const i = codes.indexOf(kind, at + 1); point(i < 0 ? codes.indexOf(kind) : i, true); };
  box.addEventListener("scroll", draw);
  canvas.addEventListener("pointermove", (event) => { if (under(event) < codes.length) point(under(event)); });
  canvas.addEventListener("click", () => readout.querySelector("a")?.click());
  canvas.addEventListener("keydown", (event) => {
    const keys = { ArrowLeft: () => point(at - 1, true), ArrowRight: () => point(at + 1, true), ArrowUp: () => point(at - columns, true), ArrowDown: () => point(at + columns, true), Home: () => point(0, true), End: () => point(codes.length - 1, true), Enter: () => readout.querySelector("a")?.click() };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  new ResizeObserver(draw).observe(box);
  redrawn(canvas, draw);
  point(0);
  return [box, readout, h("ul", { class: "legend" }, KINDS.map(([name, shape], kind) => (totals[kind] ? h("li", null, h("button", { type: "button", class: name, onclick: () => next(kind) }, `${shape} ${name} ${count(totals[kind])}`), h("span", { class: "soft" }, ` ${share(totals[kind], codes.length)}`)) : null))),
    h("p", { class: "unseen" }, plural(codes.length, "input"))];
}
