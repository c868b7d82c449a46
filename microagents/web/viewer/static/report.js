// The report in one file: the page of a run, with everything that it shows inside.
import { count, exact, firstOf, h, plural, priceAs, section } from "./dom.js";
import { legendOfMarks, rowsDrawn } from "./cells.js";
import { overTime, undecidedByRound } from "./charts.js";
import { decisionsOf, flagsOf, legendOfSamples, STRIP_FROM, withoutResult } from "./facts.js";
import { grid } from "./grid.js";
import { Strip } from "./strip.js";
import { fieldsOf } from "./values.js";
import { drawWork } from "./work.js";

const content = JSON.parse(document.getElementById("content").textContent, exact), whole = document.getElementById("drawn");
const add = (...children) => whole.append(...children.flat(Infinity).filter(Boolean));
const unpacked = async (text) => new Uint8Array(await new Response(new Blob([Uint8Array.from(atob(text), (each) => each.charCodeAt(0))]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer());

const { run } = content, steps = await unpacked(content.steps), unit = run.unit ?? "step", wrong = new Map(content.wrong.map((number, i) => [`0/step/${number}`, content.right?.[i]]));
priceAs(run);
if (run.result !== null && run.result !== undefined) add(section("Result", fieldsOf(run.result)));
if (content.inputs) { const here = h("div"); add(section("Inputs", here)); grid(here, null)(await unpacked(content.inputs), run.inputs, run.outcome === "running"); }
if (content.rows?.length) add(section("Rows", rowsDrawn(content.rows), legendOfMarks(), content.rows.length < run.inputs ? h("p", { class: "note" }, `The first ${count(content.rows.length)} of ${count(run.inputs)} rows; `, h("code", null, "microagents view RUN"), " shows all.") : null));
add(withoutResult(run.failed_inputs ?? [], () => null));
const isAgent = content.work?.solution?.goal !== undefined;
if (isAgent) add(drawWork(content.work, () => null)); // an agent's actions say more than their strip
if (steps.length >= STRIP_FROM) {
  const host = h("div");
  add(section("Steps", host));
  new Strip(host, { label: (i) => `${unit} ${count(i)}`, open: null }).set(steps, content.wrong);
}
const curve = undecidedByRound(steps, run), over = overTime(content.series, unit, run.price);
add(h("div", { class: "columns" }, flagsOf(run), curve ? section("Undecided by round", curve) : null), over ? section("Over time", over) : null);
if (content.decisions?.length) add(section(plural(content.decisions.length, "decision"), h("p", { class: "note" }, `Undecided and wrong ones first, then those with most samples. ${legendOfSamples}`), firstOf(content.decisions, (shown) => decisionsOf(shown, { wrong }), 60)));
if (content.work && !isAgent) add(drawWork(content.work, () => null));
addEventListener("beforeprint", () => document.querySelectorAll("details:not(.text)").forEach((each) => { each.open = true; }));
document.documentElement.dataset.drawn = "";
