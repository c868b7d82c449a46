// What a run came to, for its page and for the report in one file.
import { count, duration, fact, firstOf, h, moment, money, outcomeMark, plural, said, section, shapeOf, share, table, verdictMark } from "./dom.js";
import { wordsOf } from "./values.js";

// The number of steps from which a strip of them says more than their list.
export const STRIP_FROM = 30;

// Above the fold: how a run stands, and beside it what was done by whom, at which cost, in which time.
export const headOf = (found, href = null) => h("div", { class: "head" }, verdictMark(found, "p", href), h("dl", { class: "facts" }, fact("task", said(found.task), said(`by ${found.strategy}`)), fact("models", said(modelsText(found.models))), found.k ? fact("k", count(found.k)) : null,
  fact("cost", money(found.cost_usd), found.max_cost_usd ? `limit ${money(found.max_cost_usd)}` : null), fact("took", duration(found.wall_s))));

// How a run stands in a word with figures, for a line of a list; the sentence stands in its title.
export function briefMark(run) {
  const { kind, text } = run.verdict, of = (part) => (run.checked ? ` ${count(part)}/${count(run.checked)}` : "");
  const brief = { right: `right${of(run.checked - run.errors)}`, wrong: `WRONG${run.errors ? of(run.errors) : ""}`, waits: `waits${run.waiting ? ` ${count(run.waiting)}` : ""}`, answered: "decided" }[kind] ?? (kind === "done" ? text.split(":")[0] : run.outcome === "completed" ? kind : run.outcome);
  return h("span", { class: `verdict ${kind}`, title: text }, `${shapeOf(kind)} `, brief);
}

// Figures of a run that moves, and below them its facts, in the words of the terminal.
export function accountOf(found) {
  const unit = found.unit ?? "step", total = found.listed ? found.inputs : found.total_steps, done = found.listed ? found.inputs_done : found.steps, lost = found.listed ? found.inputs_failed : 0;
  const facts = h("dl", { class: "facts" }, found.paused ? fact("paused", said(found.paused)) : null, fact("done", plural(done, found.listed ? "input" : unit), total ? `of ${count(total)}, ${share(done, total)}${lost ? `; ${count(lost)} without a result` : ""}` : null), found.listed ? fact(`${unit}s`, count(found.steps)) : null,
    fact("calls", count(found.calls), found.max_calls ? `limit ${count(found.max_calls)}` : found.wasted_calls ? `${count(found.wasted_calls)} wasted` : null),
    fact("tokens", count(found.input_tokens + found.output_tokens), `${count(found.input_tokens)} in, ${count(found.output_tokens)} out`), fact("began", moment(found.created_at)));
  const bar = total ? h("div", { class: "bar", role: "progressbar", "aria-valuemin": "0", "aria-valuemax": String(total), "aria-valuenow": String(done) }, h("i")) : null;
  if (bar) bar.firstChild.style.transform = `scaleX(${Math.min(1, done / total)})`;
  return [...(found.batch_lines ?? []).map((line) => h("p", { class: "soft" }, said(line))), facts, bar, h("dl", { class: "list" }, found.facts.map(([name, text]) => [h("dt", null, name), h("dd", null, said(text))]))];
}

export const modelsText = (models) => (Array.isArray(models) ? models.join(", ") : Object.entries(models ?? {}).map(([role, specs]) => `${role || "all"}: ${specs.join(", ")}`).join("; "));

export function flagsOf(found) {
  const kinds = Object.entries(found.flagged ?? {}).sort((a, b) => b[1] - a[1]), all = kinds.reduce((sum, each) => sum + each[1], 0);
  return kinds.length ? [section("Red flags", table("Red flags", [["flag", null], ["samples", "number"], ["of all samples", "number"]], kinds.map(([name, number]) => [["▲ ", said(name)], count(number), share(number, all + found.valid)])))] : [];
}

// Decisions in lines: the reply, and in launch order whether each sample agrees with it.
export const decisionsOf = (decisions, { at = null, wrong = new Map() } = {}) => table("Decisions", [["decision", null], ["reply", "text"], ...(wrong.size ? [["right is", "text"]] : []), ["samples", null], ["outcome", null]], decisions.map((each) => [at ? h("a", { href: at(each.path) }, said(each.path)) : said(each.path), each.value === null ? "" : said(wordsOf(each.value)), ...(wrong.size ? [wrong.get(each.path) ? said(wordsOf(wrong.get(each.path))) : ""] : []),
  each.samples.map((one) => ({ true: "●", false: "◆" }[one] ?? "▲")).join(""), outcomeMark(wrong.has(each.path) ? "wrong" : each.outcome)]));
export const legendOfSamples = "● agrees, ◆ differs, ▲ red flag; in launch order.";

export const withoutResult = (failed, at) => (failed.length ? [section("Inputs without a result", firstOf(failed, (shown) => table("Inputs without a result", [["input", null], ["outcome", null], ["why", "text"]],
  shown.map((each) => [h("a", { href: at(each.input) }, count(each.input)), outcomeMark(each.outcome), said(each.reason ?? "")]))))] : []);
