// Lines over time, the curve of undecided steps, and the race of votes: SVG, each with its figures in a table for those who do not see it.
import { count, h, plainMoney, svg, table } from "./dom.js";

// On a narrow window a chart is drawn narrow, so that its letters stay readable.
const WIDE = Math.max(280, Math.min(460, innerWidth - 60)), H = 170, BOTTOM = 22, TOP = 16, RIGHT = 8;
const MIN_PARTS = 12, FEW = 10;
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

function nice(most) {
  const unit = 10 ** Math.floor(Math.log10(most || 1));
  return unit * ([1, 2, 2.5, 5, 10].find((each) => unit * each >= most) ?? 10);
}

// Lines: [{name, points: [[x, y]], dash, steps}]. With `log` the y axis is logarithmic.
export function lines(title, series, { xName, y = short.format.bind(short), x = short.format.bind(short), log = false, whole = false, mark = null, W = WIDE }) {
  const all = series.flatMap((each) => each.points), xs = all.map((each) => each[0]);
  const high = all.reduce((high, each) => Math.max(high, each[1]), mark ?? 0), most = whole ? Math.max(2, 2 * Math.ceil(high / 2)) : nice(high), left = Math.min(...xs), right = Math.max(...xs, left + 1e-9);
  const least = log ? 10 ** Math.floor(Math.log10(all.reduce((low, each) => (each[1] > 0 ? Math.min(low, each[1]) : low), most))) : 0;
  const decades = Math.max(1, Math.ceil(Math.log10(most / (least || 1))));
  const ticks = log ? Array.from({ length: Math.min(7, decades + 1) }, (_, i) => least * 10 ** Math.round((i * decades) / Math.min(6, decades))) : [0, most / 2, most];
  const LEFT = Math.max(34, 12 + 6.5 * Math.max(...ticks.map((each) => String(y(each)).length)));
  const at = ([px, py]) => [LEFT + ((px - left) / (right - left)) * (W - LEFT - RIGHT),
    H - BOTTOM - (log ? (py <= least ? 0 : Math.log10(py / least) / decades) : py / most) * (H - BOTTOM - TOP)];
  const path = ({ points, steps }) => points.map((each, i) => { const [px, py] = at(each); return i === 0 ? `M${px} ${py}` : steps ? `H${px}V${py}` : `L${px} ${py}`; }).join("");
  return h("figure", null, h("figcaption", null, title),
    svg("svg", { viewBox: `0 0 ${W} ${H}`, class: "chart", role: "img", "aria-label": title },
      ticks.map((each) => { const [, py] = at([left, each]); return [svg("line", { x1: LEFT, x2: W - RIGHT, y1: py, y2: py }), svg("text", { x: LEFT - 6, y: py + 4, "text-anchor": "end" }, y(each))]; }),
      [left, (left + right) / 2, right].map((each, i) => svg("text", { x: at([each, 0])[0], y: H - 5, "text-anchor": ["start", "middle", "end"][i] }, x(each) + (i === 2 ? ` ${xName}` : ""))),
      mark === null ? null : (([, py]) => [svg("line", { class: "at", x1: LEFT, x2: W - RIGHT, y1: py, y2: py }), svg("text", { x: W - RIGHT, y: py - 4, "text-anchor": "end" }, `k = ${mark}`)])(at([left, mark])),
      series.map((each, i) => svg("path", { d: path(each), class: `line c${i}`, "stroke-dasharray": i ? "5 4" : null }))),
    series.length > 1 ? h("p", { class: "note" }, series.map((each, i) => [h("span", { class: `key c${i}` }, i ? "╌╌ " : "── "), each.name, "  "])) : null,
    h("details", { class: "text" }, h("summary", null, "Figures"), table(title, [[xName, "number"], ...series.map((each) => [each.name, "number"])],
      series[0].points.map((each, i) => [x(each[0]), ...series.map((one) => (one.points[i] ? y(one.points[i][1]) : ""))]))));
}

// Sums over equal parts of the time of a run: rates, samples and cost.
export function overTime(series, unit, price) {
  if (series.filter((each) => each[1]).length < MIN_PARTS) return null;
  const part = series[0][0], seconds = (value) => (value >= 7200 ? `${short.format(value / 3600)} h` : value >= 180 ? `${short.format(value / 60)} min` : `${short.format(value)} s`);
  let spent = 0;
  const given = { xName: "", x: seconds, W: Math.min(WIDE, 300) };
  return h("div", { class: "columns four" },
    lines("Decisions a second", [{ name: `${unit}s a second`, points: series.map(([end, n]) => [end, n / part]) }], given),
    lines("Samples a decision", [{ name: "samples a decision", points: series.filter(([, n]) => n).map(([end, n, samples]) => [end, samples / n]) }], given),
    lines("Seconds a decision", [{ name: "seconds from one decision to the next", points: series.filter(([, n]) => n).map(([end, n]) => [end, part / n]) }], given),
    series.some((each) => each[3]) ? lines(price ? `Cost, ${price}` : "Cost", [{ name: "cost so far", points: series.map(([end, , , cost]) => [end, (spent += cost)]) }], { ...given, y: plainMoney }) : null);
}

// Share of steps without a decision after each sample, if each is right with a chance and a lead of k decides (MAKER, figure 8).
function theory(k, right, flagged, rounds) {
  let lead = new Map([[0, 1]]);
  const open = [1];
  for (let round = 1; round <= rounds; round++) {
    const next = new Map(), add = (at, part) => { if (Math.abs(at) < k) next.set(at, (next.get(at) ?? 0) + part); };
    for (const [at, part] of lead) { add(at, part * flagged); add(at + 1, part * (1 - flagged) * right); add(at - 1, part * (1 - flagged) * (1 - right)); }
    lead = next;
    open.push([...lead.values()].reduce((sum, each) => sum + each, 0));
  }
  return open;
}

// A byte has up to 14 samples exactly, so the curve ends there.
export function undecidedByRound(steps, found) {
  const needed = new Float64Array(16);
  let n = 0;
  for (const byte of steps) if (byte) { n++; needed[byte >> 6 === 1 ? 15 : byte & 15]++; }
  if (n < FEW || !found.k || found.samples) return null;
  let open = n;
  const last = Math.max(2, needed.findLastIndex((each) => each > 0)), measured = [];
  for (let round = 0; round < Math.min(15, last + 1); round++) { open -= round ? needed[round] : 0; measured.push([round, open]); }
  const flags = Object.values(found.flagged ?? {}).reduce((sum, each) => sum + each, 0), wrong = (found.outvoted ?? 0) + (found.misled ?? 0);
  const expected = found.votes ? theory(found.k, 1 - wrong / found.votes, flags / (flags + found.valid || 1), measured.length - 1).map((each, round) => [round, each * n]) : null;
  return lines("Undecided steps after each sample", [{ name: "measured", points: measured, steps: true }, ...(expected ? [{ name: `theory, k = ${found.k}`, points: expected, steps: true }] : [])], { xName: "samples", log: true, x: (value) => String(Math.round(value)) });
}

// The race of the votes of one decision: the votes of each reply after each sample, and the lead of the first.
export function race(replies, k) {
  const keys = new Map(), flat = replies.filter((each) => !each.flag && Object.keys(each.shares ?? {}).length === 0);
  if (flat.length < 2) return null;
  for (const each of flat) { const key = each.agrees === true ? "" : JSON.stringify(each.vote); keys.set(key, (keys.get(key) ?? 0) + 1); }
  const runners = [...keys].sort((a, b) => b[1] - a[1]).map((each) => each[0]), shown = runners.slice(0, 6);
  const votes = new Map(runners.map((each) => [each, 0])), leads = [];
  const series = shown.map((_, i) => ({ name: `reply ${"ABCDEF"[i]}`, points: [[0, 0]], steps: true }));
  replies.forEach((each, i) => {
    const key = each.agrees === true ? "" : JSON.stringify(each.vote);
    if (votes.has(key) && !each.flag) votes.set(key, votes.get(key) + 1);
    shown.forEach((one, j) => series[j].points.push([i + 1, votes.get(one)]));
    const ordered = [...votes.values()].sort((a, b) => b - a);
    leads.push(ordered[0] - (ordered[1] ?? 0));
  });
  const letters = new Map(shown.map((each, i) => [each, "ABCDEF"[i]]));
  return { leads, letter: (each) => letters.get(each.agrees === true ? "" : JSON.stringify(each.vote)) ?? "other", chart: lines("Votes after each sample", series, { xName: "samples", x: (value) => String(Math.round(value)), whole: true, mark: k ?? null }), runners: count(runners.length) };
}
