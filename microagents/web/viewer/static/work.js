// Work that is no chain: the tree of problems and states, a document, a swarm, an agent; and the steps of a chain that climbed.
import { count, h, money, plural, quoted, said, section, svg, table } from "./dom.js";
import { fieldsOf, shortWords, soleValue, wordsOf } from "./values.js";

const joined = (parts) => parts.filter(Boolean).join(", ");
const flagsText = (flags) => joined(Object.entries(flags ?? {}).map(([name, number]) => `▲ ${number} ${name}`));

export function drawWork(work, at) {
  const { solution } = work;
  const drawn = solution === null ? null : solution.goal !== undefined ? agent(solution, at) : solution.loops ? swarm(solution, at)
    : solution.subtasks ? documentOf(solution, at) : solution.at !== undefined ? tree(solution, at) : fieldsOf(solution);
  return [drawn ? section(solution.goal === undefined ? "Work" : "Actions", drawn) : null, work.note ? section("Work", h("p", null, said(work.note))) : null, work.climbs.length ? climbs(work, at) : null];
}

function tree(node, at) {
  const { branch } = node, marks = branch === null ? "" : `[${joined([`branch ${branch.number}`, branch.same_as && `same as ${branch.same_as}`, branch.ending, branch.chosen && "chosen"])}] `;
  const answer = node.answer === null ? null : [" → ", h("strong", null, said(wordsOf(soleValue(node.answer))))];
  const turns = h("div", { class: "turns" }, node.turns.map((each) => [h("a", { href: at(`${node.at}/${each.turn}`) }, each.turn), ` ${joined([each.outcome, each.flagged && `▲ ${each.flagged} flagged`, plural(each.calls, "call"), money(each.cost_usd), each.other_model && "by another model"])}; `,
    each.candidates.length > 1 ? h("ul", { class: "candidates" }, each.candidates.map((one, i) => h("li", { title: one.label }, `${i === each.winner ? "●" : "○"} `, said(shortWords(one.reply)), h("span", { class: "soft" }, ` ${one.copies}×, ${plural(one.votes, "vote")}`)))) : null]));
  const below = node.folded ? h("p", { class: "turns" }, `and ${plural(node.folded.problems, "problem")} below, ${plural(node.folded.calls, "call")}, ${money(node.folded.cost_usd)}${node.folded.undecided ? `, ◇ ${node.folded.undecided} undecided` : ""}`) : null;
  const line = [h("span", { class: "soft" }, marks), said(node.problem), answer];
  const kept = node.children.map((each) => tree(each, at));
  const inside = kept.length || below ? h("details", { open: node.depth < 4 }, h("summary", null, line), turns, h("ul", null, kept), below) : h("div", { class: "leaf" }, line, turns);
  return node.depth ? h("li", null, inside) : h("ul", { class: "tree" }, h("li", null, inside));
}

function swarm(found, at) {
  const turn = (name, each) => h("div", { class: "row" }, h("h3", null, name, h("span", { class: "soft" }, ` ${joined([`by ${each.by || "nobody"}`, `${each.copies} of ${plural(each.workers, "worker")}`, flagsText(each.flags),
    { true: "● passed", false: "◆ did not pass" }[each.passed], plural(each.calls, "call"), money(each.cost_usd)])}`)),
  h("p", null, Array.from({ length: each.workers ? 1 : 0 }, () => h("a", { href: at(`${each.at}/workers/${each.workers}`) }, "the workers’ replies"))),
  each.picked === null ? h("p", null, "Nothing was picked.") : fieldsOf(soleValue(each.picked)), each.reason ? h("p", null, "The judge: ", said(each.reason)) : null, each.feedback ? h("p", null, "The verifier: ", said(each.feedback)) : null);
  const stepOf = (step) => { const last = step.turns.at(-1); return h("details", { open: step.turns.some((each) => each.passed === false || each.picked === null) }, h("summary", null, `${step.number}. `, said(step.step), last?.picked ? [" → ", h("strong", null, said(shortWords(last.picked)))] : null, h("span", { class: "soft" }, ` ${plural(step.calls, "call")}`)), step.turns.map((each, i) => turn(step.turns.length > 1 ? `try ${i + 1}` : "result", each))); };
  return [quoted(found.problem), found.loops.map((loop) => h("details", { open: true }, h("summary", null, h("strong", null, `Loop ${loop.number}`), ` ${plural(loop.calls, "call")}, ${money(loop.cost_usd)}`),
    turn("Plan", loop.plan), loop.steps.map(stepOf), loop.whole ? turn("Whole", loop.whole) : null))];
}

const asWritten = (_, value, context) => (typeof value === "number" && context?.source ? context.source : value);
// What a call returned: JSON as fields, else its text.
export function observed(observation) {
  let value;
  try { value = JSON.parse(observation, asWritten); } catch { return quoted(observation); }
  return value !== null && typeof value === "object" ? h("div", { class: "quoted" }, fieldsOf(value)) : quoted(observation);
}

export function agent(found, at) {
  // The actions of an agent that work was handed off to stand below the action that did so.
  const ownerOf = (path) => path.slice(0, Math.max(0, path.lastIndexOf("/agent/"))), below = (owner) => found.actions.filter((each) => ownerOf(each.path) === owner).map(row);
  const row = (action) => h("div", { class: "row" },
    h("h3", null, h("a", { href: at(action.path, true) }, action.path.split("/").slice(1).join("/")), h("span", { class: "soft" }, ` ${joined([action.outcome, action.options.map((each) => each[1]).join(":") && `votes ${action.options.map((each) => each[1]).join(":")}`,
      flagsText(action.flags), money(action.cost_usd), action.decided_ms !== null && `${(action.decided_ms / 1000).toFixed(1)} s`])}`)),
    action.result ? [h("p", null, "the end:"), fieldsOf(action.result)] : null,
    action.calls.map((call, i) => [h("p", null, h("a", { href: at(`${action.path}/call/${i}`, true) }, said(call.tool)), said(` ${Object.entries(call.arguments).map(([name, value]) => `${name}: ${wordsOf(value)}`).join("; ")}`),
      h("span", { class: "soft" }, ` ${joined([call.effect ?? "no such tool", call.person && `a person: ${call.person}`, call.outcome])}`)), call.observation === null ? null : observed(call.observation)]),
    h("div", { class: "handed" }, below(action.path)));
  return [quoted(found.goal), below("")];
}

const LONG = 120, STATES = { waiting: "○", writing: "▶", split: "⇊", done: "●" };
function documentOf(found, at) {
  // A subtask stands behind the one that was split to get it, and behind those that it builds on.
  const depthOf = new Map(), order = found.subtasks, beforeOf = (each) => [...each.parents, each.at.replace(/\/part\/\d+$/, "")].filter((at) => at !== each.at && depthOf.has(at));
  for (const each of order) depthOf.set(each.at, Math.max(0, ...beforeOf(each).map((at) => depthOf.get(at) + 1)));
  const numberOf = (at) => at.split("/part/").slice(1).join(".");
  const rows = [], where = new Map();
  for (const each of order) { const column = depthOf.get(each.at); rows[column] = (rows[column] ?? 0) + 1; where.set(each.at, [20 + column * 190, 14 + (rows[column] - 1) * 46]); }
  const graph = order.length > 1 ? h("div", { class: "graph", tabindex: "0", role: "region", "aria-label": "Graph of subtasks" }, svg("svg", { width: rows.length * 190 + 30, height: Math.max(...rows) * 46 + 20, role: "img", "aria-label": "Which subtask is written after which" },
    order.flatMap((each) => beforeOf(each).map((parent) => { const [x1, y1] = where.get(parent), [x2, y2] = where.get(each.at); return svg("path", { d: `M${x1 + 150} ${y1 + 15}C${x1 + 170} ${y1 + 15} ${x2 - 20} ${y2 + 15} ${x2} ${y2 + 15}` }); })),
    order.map((each) => { const [x, y] = where.get(each.at); return svg("g", null, svg("rect", { x, y, width: 150, height: 30, rx: 5 }), svg("text", { x: x + 8, y: y + 19 }, `${STATES[each.state]} ${numberOf(each.at)} ${each.objective.slice(0, 15)}…`)); }))) : null;
  const name = (index) => said(index === null || index === undefined ? "nobody" : found.agents[index] ?? `agent ${index}`);
  const subtask = (each) => h("details", { open: found.subtasks.length < 6 }, h("summary", null, `${STATES[each.state]} ${numberOf(each.at)} ${each.state} `, said(each.objective.length > LONG ? `${each.objective.slice(0, LONG)}…` : each.objective), h("span", { class: "soft" }, ` ${joined([`depth ${each.depth}`, plural(each.rounds.length, "round"), !each.agreed && "NOT AGREED"])}`), each.author !== null ? [" by ", name(each.author)] : null), each.objective.length > LONG ? quoted(each.objective) : null,
    each.rounds.map((drafts, round) => drafts.map((draft) => h("div", { class: "row" }, h("h3", null, `round ${round + 1}: `, name(draft.agent), h("span", { class: "soft" }, ` ${joined([draft.outcome, plural(draft.validations.filter((one) => one.passes === true).length, "approval"), plural(draft.validations.filter((one) => one.passes === false).length, "objection")])}`)),
      draft.segment ? quoted(draft.segment.text ?? wordsOf(draft.segment)) : null,
      h("ul", null, draft.validations.map((one) => h("li", null, { true: "● approves ", false: "◆ objects " }[one.passes] ?? `○ ${one.missing || "open"} `, name(one.agent), one.reason ? [": ", said(one.reason)] : null)))))),
    each.rankings.length ? h("p", null, "Ranked best: ", each.rankings.map((one) => [name(one.best), " by ", one.agent === null ? "the neutral ranker" : name(one.agent), "; "])) : null,
    each.refused_splits.map((fault) => h("p", null, "Split refused: ", said(fault))));
  return [h("p", null, `${plural(found.calls, "call")}, ${money(found.cost_usd)}; agents: `, found.agents.map((each, i) => [i ? ", " : "", said(each)])), graph, found.subtasks.map(subtask), found.text ? [h("h3", null, "Text"), quoted(found.text)] : null];
}

function climbs(work, at) {
  const rungs = (each) => each.rungs.map((rung) => [h("a", { href: at(`${each.path}/${rung.name}`, true) }, rung.name), ` ${joined([rung.outcome, rung.votes.length && rung.votes.map((vote) => vote[1]).join(":"), plural(rung.samples, "sample"), money(rung.cost_usd)])} `]);
  return section(`${plural(work.climbed, "step")} climbed`, table("Steps that climbed the ladder", [["step", null], ["own votes", null], ["rungs", "text"], ["decided by", null], ["changed it", null], ["cost", "number"]],
    work.climbs.map((each) => [h("a", { href: at(each.path, true) }, each.path), each.votes.map((vote) => vote[1]).join(":"), rungs(each), each.decided_by ?? "◇ undecided", { true: "yes", false: "no" }[each.differs] ?? "–", money(each.cost_usd)])),
  work.climbed > work.climbs.length ? h("p", { class: "note" }, `The first ${count(work.climbs.length)}.`) : null);
}
