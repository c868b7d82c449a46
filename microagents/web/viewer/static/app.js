// The pages: each has a path of its own, and reads what it shows from the journal.
import { api, apiUrl, bytes, cachedText, count, decisionUrl, fact, firstOf, h, money, moment, outcomeMark, plural, post, priceAs, quoted, runUrl, said, say, section, table, verdictMark } from "./dom.js";
import { overTime, race, undecidedByRound } from "./charts.js";
import { accountOf, briefMark, decisionsOf, flagsOf, headOf, legendOfSamples, modelsText, STRIP_FROM, withoutResult } from "./facts.js";
import { grid } from "./grid.js";
import { judgePage } from "./judging.js";
import { readRows, rowFacts, rowPanel, rowTable } from "./rows.js";
import { decidedBy, resumption } from "./resuming.js";
import { Strip } from "./strip.js";
import { compared, fieldsOf, shortWords, wordsOf } from "./values.js";
import { agent, drawWork, observed } from "./work.js";

// What is new is read every second; what takes the whole journal, at most a thirtieth of the time, so that no run is slowed.
const LIVE_MS = 1000, REST = 2, LONG_REST = 30, FIRST = 6;
const page = document.getElementById("page"), banner = document.getElementById("banner"), nav = document.getElementById("nav");
let leaving = new AbortController();
// The token of the printed address is kept for this tab and port alone, and leaves the address.
function takeToken() {
  const given = /^#token=([\w-]+)$/.exec(location.hash);
  if (!given) return;
  sessionStorage.setItem("token", given[1]);
  history.replaceState(null, "", location.pathname + location.search);
}

function show(title, ...content) {
  document.title = `${title} · microagents`;
  page.replaceChildren(h("h1", null, said(title)), ...content.flat(Infinity).filter(Boolean));
}

const COLUMNS = [["run", null, "run_id"], ["how it stands", "text", "outcome"], ["task", null, "task"], ["began", null, "created_at"], ["done", "number", "steps"], ["calls", "number", "calls"], ["cost", "number", "cost_usd"]];

async function listPage(signal) {
  const runs = await api("/api/runs", { signal }), query = new URLSearchParams(location.search), chosen = new Set();
  const filter = h("input", { type: "search", "aria-label": "Filter the runs", placeholder: "Filter", value: query.get("filter") ?? "" });
  const compare = h("button", { type: "button", disabled: true, onclick: () => go(`/compare?a=${[...chosen].map(encodeURIComponent).join("&b=")}`) }, "Compare two");
  const host = h("div");
  let [by, way] = [query.get("by"), query.get("way") === "up" ? 1 : -1];
  const remember = () => history.replaceState(null, "", `?${new URLSearchParams({ ...(filter.value && { filter: filter.value }), ...(by && { by, way: way > 0 ? "up" : "down" }) })}`.replace(/^\?$/, location.pathname));
  const choose = (run) => (event) => { if (event.target.checked) chosen.add(run); else chosen.delete(run); compare.disabled = chosen.size !== 2; };
  const fill = () => {
    const found = runs.filter((run) => `${run.run_id} ${run.task ?? ""} ${run.outcome ?? ""} ${run.verdict?.text ?? ""} ${run.models ?? ""}`.toLowerCase().includes(filter.value.toLowerCase()));
    if (by) found.sort((a, b) => way * ((a[by] ?? "") < (b[by] ?? "") ? -1 : (a[by] ?? "") > (b[by] ?? "") ? 1 : 0));
    const head = ([name, kind, field]) => [h("button", { type: "button", "aria-label": `Sort by ${name}`, onclick: () => { way = by === field ? -way : 1; by = field; remember(); fill(); } }, name, by === field ? (way > 0 ? " ↑" : " ↓") : ""), kind];
    host.replaceChildren(h("div", { class: "runs" }, table("Runs", [["", null], ...COLUMNS.map(head)], found.map((run) => {
      const box = h("input", { type: "checkbox", "aria-label": `Compare ${run.run_id}`, checked: chosen.has(run.run_id), onchange: choose(run.run_id) });
      return run.error ? ["", said(run.run_id), h("span", { class: "error" }, "✕ unreadable"), said(run.error), "", "", "", ""] : [box, h("a", { href: runUrl(run.run_id) }, said(run.run_id)), briefMark(run),
        said(`${run.task} · ${run.strategy}`), moment(run.created_at), plural(run.inputs > 1 ? run.inputs : run.steps, run.inputs > 1 ? "input" : run.unit ?? "step"), count(run.calls), money(run.cost_usd, run.price)];
    }))));
    say(plural(found.length, "run"));
  };
  filter.addEventListener("input", () => { remember(); fill(); });
  const waits = runs.reduce((sum, run) => sum + (run.waiting ?? 0), 0);
  show("Runs", h("div", { class: "tools" }, filter, compare, waits ? h("a", { href: "/waiting", class: "undecided" }, `◇ ${count(waits)} wait${waits === 1 ? "s" : ""} for you`) : null), section(null, runs.length ? host : h("p", null, "There is no run in this folder.")));
  fill();
}

async function runPage(run, signal) {
  const query = new URLSearchParams(location.search), input = query.get("input") ?? "0", of = `?input=${encodeURIComponent(input)}`;
  if (query.has("input") && (await api(apiUrl(run, "", of), { signal })).is_table) { await rowPage(run, input, signal); return; }
  const [verdict, resuming, account, host, flags, curve, rates, actions, work, waits, inputs, problems, result] = Array.from({ length: 13 }, () => h("div"));
  const zoom = /^#(\d+)-(\d+)$/.exec(location.hash), at = (path, whole = false) => decisionUrl(run, whole ? path : `${input}/${path}`);
  const picture = h("img", { alt: "The roles of this run, the messages between them, and totals", onerror: () => picture.replaceWith(h("p", { class: "note" }, "The code of this run is not here, so its roles are unknown.")) });
  const draw = () => { if (roles.open) picture.src = `${apiUrl(run, "graph")}?${performance.now()}`; }; // nobody looks at a closed one
  const roles = h("details", { open: true, ontoggle: draw }, h("summary", null, "Roles and messages"), h("div", { class: "graph" }, picture));
  let strip = null, steps = new Uint8Array(0), drawnWork = "", state = "", found = null, wholeAt = 0, fillGrid = null, rows = null;
  show(run, verdict, resuming, inputs, waits, problems, result, actions, host, work, h("div", { class: "columns" }, flags, curve), rates, section("Account", account), section(null, roles));
  const isAlone = () => found === null || !found.listed || query.has("input");
  // A strip of a few steps would say less than the steps. Those of an agent are its actions.
  const listSteps = async (wrong = [], right = []) => {
    const { steps: few } = await api(apiUrl(run, "steps", of), { signal });
    if (!isAlone()) return;
    host.replaceChildren(...(few.length ? [section("Steps", decisionsOf(few, { at: (path) => at(path, true), wrong: new Map(wrong.map((number, i) => [`${input}/step/${number}`, right[i]])) }), h("p", { class: "note" }, legendOfSamples))] : []));
  };
  const readSteps = async (ended, asked = found) => {
    // Of a run under way only what is new: from the first step without a row.
    const gap = ended ? 0 : steps.indexOf(0), start = ended ? 0 : gap < 0 ? steps.length : gap;
    const more = await bytes(apiUrl(run, "strip", `${of}&start=${start}`), signal);
    if (start && !more.length) return;
    const joined = new Uint8Array(start + more.length);
    joined.set(steps.subarray(0, start));
    joined.set(more, start);
    if (!isAlone() || !joined.length) return;
    steps = joined;
    if (steps.length < STRIP_FROM) { // of a chain under way the whole length decides
      const { listed, outcome, total_steps: total } = await asked;
      if (listed && !query.has("input")) return;
      if (outcome !== "running" || (total ?? 0) < STRIP_FROM) { await listSteps(); return; }
    }
    if (!strip) {
      const here = h("div");
      host.replaceChildren(section("Steps", here));
      strip = new Strip(here, { label: (i) => `step ${count(i)}`, open: (i) => at(`step/${i}`), from: zoom && [Number(zoom[1]), Number(zoom[2])] });
    }
    strip.set(steps, null, found?.outcome === "running" && !found.listed ? found.total_steps : 0);
  };
  const update = async () => {
    const before = found?.outcome;
    const asked = api(apiUrl(run, "", of), { signal });
    const reading = isAlone() ? readSteps(strip === null, asked) : null; // at once: most runs have one input
    reading?.catch(() => {}); // a failure of the account is told first
    found = await asked;
    if (signal.aborted) return;
    if (!isAlone()) { host.replaceChildren(); strip = null; steps = steps.subarray(0, 0); }
    priceAs(found);
    const isOver = found.outcome !== "running";
    verdict.replaceChildren(headOf(found, found.wrong_at && found.unit === "step" && decisionUrl(run, found.wrong_at)));
    account.replaceChildren(...accountOf(found).filter(Boolean));
    flags.replaceChildren(...flagsOf(found));
    draw();
    const waiting = found.is_table ? [] : (found.undecided_at ?? []).filter((path) => !found.by_persons[path]); // a table has its open rows
    const persons = found.is_table ? [] : Object.entries(found.by_persons);
    resuming.replaceChildren(...(persons.length || (isOver && found.may_resume) ? [section(persons.length ? "Decided" : null, persons.length ? firstOf(persons, (shown) => h("ul", null, shown.map(([path, person]) => h("li", { class: "answered" }, h("a", { href: decisionUrl(run, path) }, said(path)), " ", decidedBy(person)))), FIRST) : null, resumption(run, found))] : []));
    waits.replaceChildren(...(waiting.length ? [section("Undecided", firstOf(waiting, (shown) => h("ul", null, shown.map((path) => h("li", null, h("a", { href: decisionUrl(run, path) }, "◇ ", said(path)), found.contested_at?.[path] ? ` contested: ${found.contested_at[path].map((votes) => `${votes} of ${votes}`).join(" and ")} votes` : ""))), FIRST), h("p", { class: "note" }, "Each has its reply or its approval on its page; a person may decide it there."))] : []));
    if (found.is_table) problems.replaceChildren(); // each row says it
    else if (found.failed) problems.replaceChildren(section(`Input ${input} ${found.failed.outcome}`, h("p", null, said(found.failed.reason ?? ""))));
    else if (found.listed && !query.has("input")) problems.replaceChildren(...withoutResult(found.failed_inputs.filter((each) => each.outcome !== "undecided"), (number) => runUrl(run, `?input=${number}`)));
    if (found.is_table) {
      if (!rows) { const here = h("div"); inputs.replaceChildren(section("Rows", here)); rows = rowTable(here, run, found.inputs, signal); }
      if (found.outcome !== "running" || before !== found.outcome || state !== `${found.steps} ${found.calls} ${found.outcome}`) await rows.set(found.inputs, await bytes(apiUrl(run, "inputs"), signal), found.errors);
    } else if (found.listed && !query.has("input")) {
      if (!fillGrid) { const here = h("div"); inputs.replaceChildren(section("Inputs", here)); fillGrid = grid(here, (i) => runUrl(run, `?input=${i}`)); }
      fillGrid(await bytes(apiUrl(run, "inputs"), signal), found.inputs, found.outcome === "running");
    }
    if (found.result !== null && found.result !== undefined && isAlone()) result.replaceChildren(section(found.listed ? `Result of input ${input}` : "Result", fieldsOf(found.result)));
    const changed = `${found.steps} ${found.calls} ${found.outcome}`;
    await reading;
    if (isAlone() && isOver && before === "running") await readSteps(true);
    if (changed !== state && (isOver || performance.now() > wholeAt)) {
      const began = performance.now(), drawn = undecidedByRound(steps, found), series = await api(apiUrl(run, "series"), { signal });
      curve.replaceChildren(...(drawn ? [section("Undecided by round", drawn)] : []));
      const over = overTime(series, found.unit ?? "step", found.price);
      rates.replaceChildren(...(over ? [section("Over time", over)] : []));
      if (isAlone()) {
        const now = await api(apiUrl(run, "work", of), { signal }), written = JSON.stringify(now);
        if (written !== drawnWork) (now.solution?.goal === undefined ? work : actions).replaceChildren(...drawWork(now, at).filter(Boolean));
        drawnWork = written;
      }
      wholeAt = performance.now() + Math.max(2 * LIVE_MS, LONG_REST * (performance.now() - began));
      state = changed;
    }
    if (found.errors && isOver && isAlone() && steps.length) {
      const { wrong, right, judged, note } = await api(apiUrl(run, "wrong", of), { signal });
      if (!strip) { await listSteps(wrong, right); return; }
      strip.set(steps, wrong);
      if (note || (judged !== null && judged < steps.length)) strip.tools.append(h("span", { class: "soft" }, said(note ?? `the oracle judged the first ${count(judged)} in its time`)));
    }
  };
  let took = 0;
  await update();
  while (found.outcome === "running" && !signal.aborted) {
    await new Promise((done) => setTimeout(done, Math.max(LIVE_MS, (found.listed ? LONG_REST : REST) * took)));
    if (signal.aborted || document.hidden) continue;
    const began = performance.now();
    try {
      await update();
      banner.hidden = true;
    } catch (error) { // a journal that is busy, or a server that comes back: the next update tells
      if (signal.aborted) return;
      banner.textContent = error.message;
      banner.hidden = false;
    }
    took = performance.now() - began;
  }
  if (!signal.aborted) say(`This run is ${found.outcome}: ${found.verdict.text}.`);
}

// The reply that a vote names by its label; of other votes the vote itself.
const behind = (found, vote) => found.candidates[typeof vote?.choice === "string" ? vote.choice.trim().toUpperCase() : ""] ?? vote;

// What a person may say here: of a call the words that fit as buttons, else one of the replies, or another one.
function decisionForm(run, path, found, after) {
  const answer = h("p", { role: "status" }), words = found.asked.slice(1);
  const value = h("textarea", { rows: words.length ? "1" : "3", id: "value", "aria-label": words.length ? "The text that goes with it" : "The reply to decide for", placeholder: { 0: "", 1: "the answer" }[words.length] ?? "why not, or what it returned" });
  let again = false;
  const send = async (said) => {
    answer.textContent = "…";
    try {
      after(await post(apiUrl(run, "decide"), { path, value: said, again }));
    } catch (error) { again = error.status === 409; answer.textContent = error.message; }
  };
  const verb = (word, i) => h("button", { type: "button", class: i ? "large" : "large main", "data-key": word[0], onclick: () => send(/ (TEXT|VALUE)$/.test(word) ? `${word.split(" ")[0]} ${value.value}`.trim() : word) }, word.split(" ")[0].replace(/^./, (letter) => letter.toUpperCase()));
  // A reply is filled in field by field, of a label with the reply behind it; without a known form as it was recorded.
  const inputs = found.fields.map((name) => [name, h("textarea", { rows: "1", "aria-label": name })]), typed = (each) => (typeof each === "string" ? each : JSON.stringify(each));
  const fill = (reply) => { value.value = JSON.stringify(reply); for (const [name, input] of inputs) input.value = reply[name] === undefined ? "" : typed(reply[name]); };
  const given = () => (inputs.length ? Object.fromEntries(inputs.filter(([, input]) => input.value !== "").map(([name, input]) => [name, input.value])) : value.value);
  const choose = ([reply, votes], i) => h("div", { class: "choice" }, h("button", { type: "button", "data-key": String(i + 1), onclick: () => fill(reply) }, `Reply ${i + 1}`), h("span", { class: "soft" }, ` ${plural(votes, "vote")} `), said(shortWords(behind(found, reply), 300)));
  return section("Decide it", h("form", { onsubmit: (event) => { event.preventDefault(); if (!words.length) send(given()); } }, h("p", null, said(words.length ? found.asked[0] : "Which reply is right?")),
    words.length ? [h("div", { class: "tools" }, words.map(verb)), value] : [found.tally.map(choose), inputs.length ? h("dl", { class: "list" }, inputs.map(([name, input]) => [h("dt", null, said(name)), h("dd", null, input)])) : value, h("div", { class: "tools" }, h("button", { class: "large main", "data-key": "d" }, "Decide"))], answer));
}

async function waitingPage(signal) {
  const queue = await api("/api/waiting", { signal }), place = h("p", { class: "soft" }), host = h("div"), rest = h("div");
  const decided = new Map();
  let at = 0, shown = 0;
  const step = (by) => { at = (at + by + queue.length) % queue.length; return fill(); };
  const button = (text, key, by) => h("button", { type: "button", "data-key": key, onclick: () => step(by) }, text);
  show("What waits for you", queue.length ? h("div", { class: "tools" }, button("← before", "k", -1), button("next →", "j", 1), place) : h("p", null, "Nothing waits for a person in this folder."), host, rest);
  async function fill() {
    if (!queue.length) { host.replaceChildren(h("p", null, "That was the last one."), ...[...decided].map(([run, done]) => section(null, h("h2", null, h("a", { href: runUrl(run) }, said(run))), resumption(run, done)))); place.textContent = ""; rest.replaceChildren(); return; }
    const each = queue[at], number = ++shown;
    place.textContent = `${count(at + 1)} of ${count(queue.length)}`;
    let found, waits, row = null;
    try {
      [found, waits] = await Promise.all([api(apiUrl(each.run_id, "decision", `?path=${encodeURIComponent(each.path)}`), { signal }), callThatWaits(each.run_id, each.path, signal)]);
      row = await rowOf(each.run_id, each.path, found, signal);
    } catch (error) { if (number === shown && !signal.aborted) host.replaceChildren(h("p", { class: "error" }, said(error.message))); return; }
    if (signal.aborted || number !== shown) return;
    priceAs(found);
    const after = (done) => { decided.set(each.run_id, done); queue.splice(at, 1); at = Math.min(at, queue.length - 1); fill(); say("Decided by you."); };
    const name = h("h2", null, h("a", { href: decisionUrl(each.run_id, each.path) }, said(`${each.path} of ${each.run_id}`)), h("span", { class: "soft" }, ` ${each.task}`));
    host.replaceChildren(...[section(null, name, row ? rowPanel(each.run_id, row, { after }) : waits || found.user === null ? null : quoted(found.user)),
      waits?.goal, waits?.asked, row ? null : decisionForm(each.run_id, each.path, found, after), waits?.votes, waits?.before].filter(Boolean));
    rest.replaceChildren(section("All that waits", firstOf(queue, (some) => h("ol", null, some.map((one, i) => h("li", null, h("button", { type: "button", "aria-current": i === at ? "true" : null, onclick: () => { at = i; fill(); } }, said(`${one.run_id} ${one.path}`))))))));
    say(`${place.textContent}: ${each.path} of ${each.run_id}`);
  }
  await fill();
}

const VOTED = 6;
// The different replies beside each other, those with most votes first; `head` says more of each.
function repliesOf(tally, head = (_, i, votes) => plural(votes, "vote"), right = null, shownAs = (value) => value) {
  const ordered = tally.toSorted((a, b) => b[1] - a[1]), more = right === null ? [] : [[right, h("span", { class: "right" }, "● right is")]];
  const columns = (shown) => [...shown.map(([value, votes], i) => [shownAs(value), head(value, i, votes)]), ...more];
  const draw = (all) => (all.length === 1 ? [h("p", { class: "soft" }, all[0][1]), fieldsOf(all[0][0])] : compared("Replies", all.map(([value]) => value), all.map(([, title]) => title)));
  return firstOf(ordered, (shown) => draw(columns(shown)), VOTED);
}

const callOf = (call, href) => h("div", { class: "row" }, h("h3", null, h("a", { href }, said(call.tool)), h("span", { class: "soft" }, ` ${call.effect ?? "no such tool"}; ${call.outcome}${call.person ? `; a person: ${call.person}` : ""}`)),
  fieldsOf(call.arguments), call.observation === null ? null : observed(call.observation));

// What a person needs to know of a call that waits: the goal, what was done before, the call with its arguments, the votes on it.
async function callThatWaits(run, path, signal) {
  const [step, call] = path.split("/call/");
  if (call === undefined) return null;
  const [voted, work] = await Promise.all([api(apiUrl(run, "decision", `?path=${encodeURIComponent(step)}`), { signal }), api(apiUrl(run, "work", `?input=${path.split("/")[0]}`), { signal })]);
  const asked = voted.action?.calls[Number(call.split("/")[0])], { solution } = work;
  if (!asked) return null;
  const before = solution?.actions.slice(0, solution.actions.findIndex((each) => each.path === step)) ?? [];
  return {
    goal: solution ? section("Goal", quoted(solution.goal)) : null, asked: section("Call", callOf(asked, decisionUrl(run, step))),
    votes: voted.tally.length ? section("Votes", repliesOf(voted.tally)) : null,
    before: before.length ? section("What was done before", ...agent({ ...solution, actions: before }, (each) => decisionUrl(run, each)).slice(1)) : null,
  };
}

// The row of an election whose fields are voted on each by itself; null for any other.
const rowOf = async (run, path, found, signal) => (Object.keys(found.cells).length ? (await readRows(run, [path.split("/")[0]], signal))[0] : null);

// One row alone; with the prompt and the samples of its election, if there is one.
async function rowPage(run, input, signal) {
  const [row] = await readRows(run, [encodeURIComponent(input)], signal);
  if (row.path) await decisionPage(run, row.path, signal, row);
  else show(`Row ${count(row.input)}`, besideRow(run, row.input), section(null, rowFacts(row), rowPanel(run, row)));
}

const besideRow = (run, number) => h("p", { class: "tools" }, number > 0 ? h("a", { href: runUrl(run, `?input=${number - 1}`), rel: "prev" }, "← before") : null, h("a", { href: runUrl(run, `?input=${number + 1}`), rel: "next" }, "after →"));

async function decisionPage(run, path, signal, given = null) {
  const number = /^(.*\/)(\d+)$/.exec(path);
  let beside = given ? besideRow(run, given.input) : number ? h("p", { class: "tools" }, Number(number[2]) > 0 ? h("a", { href: decisionUrl(run, number[1] + (Number(number[2]) - 1)), rel: "prev" }, "← before") : null,
    h("a", { href: decisionUrl(run, number[1] + (Number(number[2]) + 1)), rel: "next" }, "after →")) : null;
  show(given ? `Row ${count(given.input)}` : path, beside);
  const found = await api(apiUrl(run, "decision", `?path=${encodeURIComponent(path)}`), { signal });
  priceAs(found);
  const row = given ?? await rowOf(run, path, found, signal), hasCells = row !== null && Object.keys(row.cells).length > 0;
  if (row) beside = besideRow(run, row.input);
  const waits = await callThatWaits(run, path, signal), isVote = found.replies.length > 0;
  const raced = race(found.replies, found.k), checked = { true: "● right", false: "✕ WRONG" }[found.correct];
  // Each reply is printed once: with the votes on it, and with the sample only where nothing was voted on.
  const isSame = (a, b) => JSON.stringify(a) === JSON.stringify(b), replyOf = (value) => found.replies.find((each) => !each.flag && isSame(each.vote, value)), isCounted = (reply) => found.tally.some(([value]) => isSame(value, reply.vote));
  const isDecided = (value) => isSame(value, found.value) || replyOf(value)?.agrees === true;
  const head = (value, _, votes) => [isDecided(value) ? "● " : found.value === null ? "" : "◆ ", raced && replyOf(value) ? `${raced.letter(replyOf(value))}, ` : "", plural(votes, "vote")];
  const tally = found.value === null || found.tally.some(([value]) => isDecided(value)) ? found.tally : [[found.value, 0], ...found.tally];
  const text = (reply) => (reply.text === null ? null : [quoted(reply.text), reply.text_is_cut ? h("p", { class: "note" }, "the rest of the text is not kept") : null]);
  const samples = found.replies.map((reply, i) => h("div", { class: "row" },
    h("h3", null, `sample ${reply.seq}: `, h("span", { class: reply.flag ? "flagged" : reply.agrees === false ? "outvoted" : "" }, said(reply.flag ? `▲ red flag ${reply.flag}` : { true: "● agrees", false: "◆ differs" }[reply.agrees] ?? "valid")),
      h("span", { class: "soft" }, raced ? ` ${reply.flag ? "no vote" : `votes ${raced.letter(reply)}`}; the lead is ${raced.leads[i]}` : "", reply.cost_usd === null ? "" : `, ${money(reply.cost_usd)}`, reply.cached ? `, ${cachedText(reply.cached)}` : "", reply.model ? [", by ", said(reply.model)] : "")),
    reply.why ? h("p", null, said(reply.why)) : null,
    reply.rollout ? h("p", null, "predicted by the rollout at ", h("a", { href: decisionUrl(run, reply.rollout) }, said(reply.rollout))) : null,
    Object.keys(reply.shares ?? {}).length ? table("Probabilities", [["probability", "number"], ["option", "text"]], Object.entries(reply.shares).map(([option, part]) => [part.toFixed(4), said(shortWords(found.candidates[option] ?? option))])) : null,
    reply.flag || isCounted(reply) || isSame(reply.vote, found.value) ? null : fieldsOf(behind(found, reply.vote)), reply.flag ? text(reply) : reply.text === null ? null : h("details", null, h("summary", null, "its text"), text(reply))));
  const unkept = found.replies.filter((reply) => reply.text === null).length;
  const mayDecide = ["open", "undecided", "contested", "refused"].includes(found.outcome) && !found.settled_by && !found.person;
  const decided = found.person && section("Decided", h("p", { class: "answered" }, decidedBy(found.person)), fieldsOf(JSON.parse(found.person.value)), resumption(run, await api(apiUrl(run), { signal })));
  const settled = found.settled_by ?? (found.person ? "a person, once it is resumed" : mayDecide ? "nobody yet" : isVote ? "the vote" : null);
  show(row ? `Row ${count(row.input)}` : path, beside, row ? section(null, rowFacts(row), rowPanel(run, row)) : null, section("Decision", h("dl", { class: "facts" }, fact("outcome", found.person ? h("span", { class: "mark answered" }, "✎ decided") : outcomeMark(found.outcome)), settled ? fact("settled by", said(settled), found.settled_at ? moment(found.settled_at) : null) : null, checked ? fact("oracle", checked) : null,
    isVote ? [fact("samples", count(found.replies.length)), fact("cost", money(found.cost_usd), cachedText(found.cached))] : null, found.probability === null ? null : fact("probability", found.probability.toFixed(4)),
    found.decided_by ? fact("decided at", h("a", { href: decisionUrl(run, found.decided_by) }, said(found.decided_by))) : null)),
  waits?.goal, waits?.asked, decided, mayDecide && !(hasCells && row.waits) ? decisionForm(run, path, found, route) : null, waits?.votes,
  row || !tally.length || (tally.length === 1 && found.action?.calls.length) ? null : h("div", { class: "columns" }, h("div", null, section(tally.length > 1 ? "Replies" : "Reply", repliesOf(tally, head, found.right, (vote) => behind(found, vote)))), raced && found.replies.some((reply) => reply.agrees !== true) ? h("div", null, section("Race", raced.chart)) : null), waits?.before,
  found.action ? section("Calls", found.action.calls.map((each, i) => callOf(each, decisionUrl(run, `${path}/call/${i}`)))) : null,
  waits ? null : section("Prompt", found.user === null ? h("p", null, said(found.note ?? "unknown")) : [found.system ? quoted(found.system) : null, quoted(found.user), found.prompts > 1 ? h("p", { class: "note" }, `The first of ${found.prompts} through which samples cycle.`) : null]),
  isVote ? section("Samples in launch order", samples, unkept ? h("p", { class: "note" }, `${plural(unkept, "text")} not kept: `, h("code", null, "--keep-texts all"), " keeps each") : null) : null);
  say(`Decision ${path}: ${found.outcome}`);
}

async function comparePage(signal) {
  const query = new URLSearchParams(location.search), names = [query.get("a") ?? "", query.get("b") ?? ""], input = query.get("input") ?? "0", of = `input=${encodeURIComponent(input)}`;
  const both = await Promise.all(names.map((run) => api(apiUrl(run, "", `?${of}`), { signal })));
  const hosts = names.map(() => h("div"));
  const facts = both.map((run) => ({ "how it stands": run.verdict.text, task: `${run.task} by ${run.strategy}`, ...Object.fromEntries(run.facts) }));
  const differ = h("div");
  show(`${names[0]} and ${names[1]}`, differ, section("Account", table("Account", [["", null], ...names.map((run) => [h("a", { href: runUrl(run) }, said(run)), "text"])], [...new Set(facts.flatMap(Object.keys))].map((name) => [name, ...facts.map((each) => said(each[name] ?? "–"))]))),
    hosts.map((host, i) => section(h("span", null, "Steps of ", said(names[i])), host)));
  const found = await api(apiUrl(names[0], "differences", `?${of}&other=${encodeURIComponent(names[1])}`), { signal });
  const numbers = found.ranges.flatMap(([from, to]) => Array.from({ length: to - from }, (_, i) => from + i));
  const row = (each) => [said(each.path), ...each.values.map((value, i) => (value === null ? h("span", { class: "soft" }, "none") : h("a", { href: decisionUrl(names[i], each.path) }, said(shortWords(value, 300)))))];
  const [first, ...others] = found.differ, links = names.map((run) => h("a", { href: first && decisionUrl(run, first.path) }, said(run)));
  const given = [["task", (run) => run.task], ["strategy", (run) => run.strategy], ["models", (run) => modelsText(run.models)]].map(([name, of]) => [name, both.map(of)]), otherwise = [...given, ...Object.entries(found.options)].filter(([, [a, b]]) => JSON.stringify(a) !== JSON.stringify(b));
  differ.replaceChildren(otherwise.length ? section("Different options", compared("Different options", [0, 1].map((i) => Object.fromEntries(otherwise.map(([name, values]) => [name, values[i]]))), names.map(said))) : "",
    section(first ? `First difference: ${first.path}` : "Where they differ", first ? [compared("First difference", first.values, links),
      others.length ? h("details", null, h("summary", null, `${plural(found.count - 1, "decision")}${found.ended ? "" : " and more"} after it`), firstOf(others, (shown) => table("Where they differ", [["decision", null], ...names.map((run) => [said(run), "text"])], shown.map(row)))) : null] : h("p", null, "Both decided the same everywhere.")));
  await Promise.all(names.map(async (run, i) => {
    const steps = await bytes(apiUrl(run, "strip", `?${of}`), signal);
    if (!steps.length) { hosts[i].textContent = "This work is no chain of steps."; return; }
    new Strip(hosts[i], { label: (step) => `step ${count(step)}`, open: (step) => decisionUrl(run, `${input}/step/${step}`), wrongName: "differs" }).set(steps, numbers);
  }));
  say(`${plural(found.count, "decision")} differ.`);
}

async function route() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  banner.hidden = true;
  nav.replaceChildren();
  const [, kind, run, at, ...path] = location.pathname.split("/").map(decodeURIComponent);
  try {
    if (kind === "compare") await comparePage(signal);
    else if (kind === "waiting") await waitingPage(signal);
    else if (kind === "judge") await judgePage(show, signal);
    else if (kind !== "run") await listPage(signal);
    else {
      nav.append(h("a", { href: runUrl(run) }, said(run)));
      if (at === "at") {
        if (path.length > 1) nav.append(h("a", { href: runUrl(run, path[0] === "0" ? "" : `?input=${path[0]}`) }, `input ${path[0]}`));
        await decisionPage(run, path.join("/"), signal);
      } else await runPage(run, signal);
    }
  } catch (error) {
    if (signal.aborted) return;
    banner.replaceChildren(said(error.message), kind ? h("a", { href: "/" }, "all runs") : "");
    banner.hidden = false;
  }
}

const go = (href) => { history.pushState(null, "", href); route().then(() => page.focus()); };
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='/']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  go(link.getAttribute("href"));
});
const KEYS = [["?", "shows the keys"], ["/", "filters the list"], ["w", "what waits for you"], ["l", "the list of runs"], ["j, k", "next, before, in the queue"], ["a, r", "approve, reject"], ["y, n", "right, wrong, in an audit"], ["← →, + −, 0", "moves and zooms the strip"], ["n, N", "next and earlier wrong step; without one, marked step"], ["Enter", "opens it"]];
const help = h("dialog", { "aria-label": "Keys" }, h("h2", null, "Keys"), h("dl", { class: "list" }, KEYS.map(([key, what]) => [h("dt", null, key), h("dd", null, what)])), h("form", { method: "dialog" }, h("button", null, "Close")));
document.body.append(help);
// Keys act from the whole page: on a button that names its key, else on the strip or the grid, unless something else has the focus.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, canvas, pre, .scroll, dialog")) return;
  const button = [...page.querySelectorAll("[data-key]")].find((each) => each.dataset.key === event.key), canvas = page.querySelector("canvas[tabindex]");
  if (event.key === "?") help.showModal();
  else if (event.key === "/") page.querySelector("input[type=search]")?.focus();
  else if (event.key === "w" || event.key === "l") go(event.key === "w" ? "/waiting" : "/");
  else if (button && !button.disabled) { if (button.dataset.key === "r" && !page.querySelector("#value").value) page.querySelector("#value").focus(); else button.click(); }
  else if (canvas && ["ArrowLeft", "ArrowRight", "+", "-", "0", "n", "N", "Home", "End"].includes(event.key)) { canvas.focus(); canvas.dispatchEvent(new KeyboardEvent("keydown", { key: event.key, shiftKey: event.shiftKey })); } else return;
  event.preventDefault();
});
window.addEventListener("popstate", route);
window.addEventListener("hashchange", takeToken);
takeToken();
route();
