// The report in one file: the page of a run, with everything that it shows inside.
import { count, h, json, outcomeMark, plural, quoted, said, section, table } from "./dom.js";
import { overTime, undecidedByRound } from "./charts.js";
import { accountOf, flagsOf, withoutResult } from "./facts.js";
import { grid } from "./grid.js";
import { Strip } from "./strip.js";
import { drawWork } from "./work.js";

const content = JSON.parse(document.getElementById("content").textContent), whole = document.getElementById("page");
const add = (...children) => whole.append(...children.flat(Infinity).filter(Boolean));
const unpacked = async (text) => new Uint8Array(await new Response(new Blob([Uint8Array.from(atob(text), (each) => each.charCodeAt(0))]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer());

const { run } = content, steps = await unpacked(content.steps), unit = run.unit ?? "step";
add(accountOf(run));
if (content.inputs) add(section("Inputs", ...grid(await unpacked(content.inputs), null)));
if (run.failed_inputs?.length) add(withoutResult(run.failed_inputs, () => null));
if (steps.length) {
  const host = h("div");
  add(section("Steps", host));
  new Strip(host, { label: (i) => `${unit} ${count(i)}`, open: null }).set(steps, content.wrong);
}
const curve = undecidedByRound(steps, run), over = overTime(content.series, unit);
add(h("div", { class: "columns" }, flagsOf(run), curve ? section("Undecided by round", curve) : null), over ? section("Over time", over) : null);
if (content.decisions?.length) add(section(`${plural(content.decisions.length, "decision")} to look at`, h("p", { class: "note" }, "● agrees, ◆ differs, ▲ red flag; in launch order."), table("Decisions to look at", [["decision", null], ["outcome", null], ["samples", null], ["value", "text"]],
  content.decisions.map((each) => [said(each.path), outcomeMark(each.outcome), each.samples.map((one) => ({ true: "●", false: "◆" }[one] ?? "▲")).join(""), quoted(json(each.value))]))));
if (content.work) add(drawWork(content.work, () => null));
if (run.result !== null && run.result !== undefined) add(section("Result", quoted(typeof run.result === "string" ? run.result : json(run.result))));
addEventListener("beforeprint", () => document.querySelectorAll("details:not(.text)").forEach((each) => { each.open = true; }));
document.documentElement.dataset.drawn = "";
