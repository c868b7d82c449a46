// A run on rows as a table: a page of its rows at a time, each cell with a mark and, on a click, its votes. Rows are chosen and ordered
// here, by a few numbers of each; only those of the page are read.
import { api, apiUrl, bytes, count, decisionUrl, h, money, plural, post, runUrl, said, say } from "./dom.js";
import { has, jsonOf, legendOfMarks, MARKS, markOf, replyFields, rowsDrawn, valueOf, votesText, written } from "./cells.js";
import { decidedBy, resumption } from "./resuming.js";
import { differing } from "./values.js";

const PAGE = 50, OPEN = [3, 6], FAILED = 4, DONE = [2, 5], LATER_MS = 250;
// A decision sends values of votes back, so integers beyond those of a browser stay integers.
const revive = (_, value, context) => (typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "") ? BigInt(context.source) : value);
const same = (a, b) => jsonOf(a) === jsonOf(b);

const differs = (value, from) => differing(written(value), written(from));

// What a person types for a field: a text as it is where the votes are texts, else JSON.
function typed(text, votes) {
  if (votes.length && votes.every(([value]) => value === null || typeof value === "string")) return text;
  try { return JSON.parse(text, revive); } catch { return text; }
}

export const readRows = (run, numbers, signal) => api(apiUrl(run, "rows", `?of=${numbers.join(",")}`), { signal }, revive);

// A row beside the votes on its cells; where a person may decide it, its fields can be chosen. The open ones, or the one that was asked for, stand first.
// Of a row without a valid reply the fields are known from other ones.
export function rowPanel(run, row, { field = null, after = null, known = [] } = {}) {
  const own = replyFields([row]), fields = own.length || !row.waits ? own : known, isFirst = (name) => name === field || row.open.includes(name) || !own.length, chosen = new Map();
  const answer = h("p", { role: "status" });
  let again = false;
  const votesOf = (name) => {
    const votes = row.cells[name] ?? [], all = votes.reduce((sum, each) => sum + each[1], 0), leading = votes[0]?.[0], mark = markOf(row, name);
    const other = h("input", { type: "text", "aria-label": `Another value of ${name}`, placeholder: votes.length ? "another value" : "its value", oninput: () => { radio.checked = true; chosen.set(name, () => typed(other.value, votes)); } });
    const radio = h("input", { type: "radio", name: `of ${name}`, "aria-label": `Another value of ${name}`, onchange: () => { chosen.set(name, () => typed(other.value, votes)); other.focus(); } });
    const line = ([value, number], i) => [row.waits ? h("input", { type: "radio", name: `of ${name}`, checked: same(value, valueOf(row, name)), onchange: () => chosen.set(name, () => value) }) : null,
      h("span", { class: "value" }, i ? differs(value, leading) : said(written(value) || "nothing")), h("span", { class: "soft" }, plural(number, "vote")), h("meter", { min: "0", max: String(all), value: String(number), "aria-hidden": "true" })];
    return h("fieldset", { class: "votes" }, h("legend", null, said(name), " ", h("span", { class: mark }, `${MARKS[mark][0]} ${MARKS[mark][1]} ${votesText(row, name)}`)),
      votes.map((each, i) => h("label", null, line(each, i))), row.waits ? h("label", null, votes.length ? radio : null, other) : null,
      !votes.length && valueOf(row, name) !== undefined ? h("p", null, said(written(valueOf(row, name)))) : votes.length && !same(valueOf(row, name), leading) ? h("p", null, "now: ", differs(valueOf(row, name), leading)) : null, has(row.right, name) ? h("p", { class: "wrong" }, "right is: ", differs(row.right[name], valueOf(row, name))) : null);
  };
  const send = async (event) => {
    event.preventDefault();
    // The others stay as they lead.
    const names = fields.filter((name) => chosen.has(name) || row.open.includes(name) || has(row.person, name));
    const value = jsonOf(Object.fromEntries(names.map((name) => [name, chosen.has(name) ? chosen.get(name)() : valueOf(row, name)])));
    answer.textContent = "…";
    try {
      const done = await post(apiUrl(run, "decide"), { path: row.path, value, again });
      event.target.replaceWith(h("p", { role: "status" }, "Decided by you."), resumption(run, done));
      if (after) after(done);
    } catch (error) { again = error.status === 409; answer.textContent = error.message; }
  };
  const first = fields.filter(isFirst), rest = fields.filter((name) => !isFirst(name)), isAll = !first.length;
  const content = [first.map(votesOf), rest.length ? h("details", { open: isAll }, h("summary", null, `${plural(rest.length, first.length ? "other field" : "field")}`), rest.map(votesOf)) : null];
  return h("div", { class: "columns beside" }, h("div", null, h("h3", null, "The row"), h("dl", { class: "list" }, Object.entries(row.row).map(([name, value]) => [h("dt", null, said(name)), h("dd", null, said(written(value)))]))),
    h("div", null, h("h3", null, row.waits ? "Which values are right?" : "Votes on its cells"), row.waits && fields.length ? h("form", { onsubmit: send }, content, h("div", { class: "tools" }, h("button", { class: "large main", "data-key": "d" }, "Decide")), answer) : content,
      row.said ? h("p", { class: "answered" }, decidedBy(row.said)) : null, own.length ? null : h("p", null, "It has no valid reply.")));
}

// Facts of one row, in one line.
export function rowFacts(row) {
  const state = row.outcome === null ? "not done yet" : row.outcome;
  return h("p", { class: "soft" }, [state, row.is_wrong && "wrong", row.settled_by && (row.settled_by === "shared" ? "shared" : `settled by ${row.settled_by}`), plural(row.samples, "sample"), row.flagged && `▲ ${count(row.flagged)} flagged`, row.cost_usd !== null && money(row.cost_usd)].filter(Boolean).join(", "),
    row.reason && !(row.waits && row.open.length) ? [": ", said(row.reason)] : null);
}

const FILTERS = {
  all: () => true, open: (i, all) => OPEN.includes(all.codes[i]), disputed: (i, all) => all.least[i] > 0 && all.least[i] < 1,
  wrong: (i, all) => all.wrong.has(i), flagged: (i, all) => all.flagged[i] > 0, failed: (i, all) => all.codes[i] === FAILED,
};
const OF_VOTES = ["disputed", "flagged"];
const ORDERS = { "": "number", agreement: "least agreement", cost: "most cost", samples: "most samples" };

// Returns what takes the bytes of the inputs (see grid.js) and the number of errors, once they have changed.
export function rowTable(host, run, size, signal) {
  const query = new URLSearchParams(location.search), all = { codes: new Uint8Array(0), least: new Float32Array(0), flagged: new Float32Array(0), wrong: new Set(), sums: [] };
  let show = has(FILTERS, query.get("show")) ? query.get("show") : "all", at = Math.max(0, (Number(query.get("page")) || 1) - 1), order = Uint32Array.from({ length: size }, (_, i) => i), found = null, shown = 0, totals = { all: size, open: 0, wrong: 0, failed: 0 }, isNew = true, hasVotes = false, isJudged = false, hasErrors = false, drawn = "";
  const by = h("select", { "aria-label": "Order by", onchange: () => choose() }, Object.entries(ORDERS).map(([value, name]) => h("option", { value, selected: value === query.get("by") }, name)));
  const search = h("input", { type: "search", "aria-label": "Search the rows", placeholder: "Search", value: query.get("search") ?? "" });
  const chips = h("div", { class: "tools chips", role: "group", "aria-label": "Show" }), body = h("div"), place = h("span", { class: "soft" }), dialog = h("dialog", { class: "cell", "aria-label": "Votes on a cell" }), note = h("p", { class: "note", hidden: true });
  const step = (text, key, to) => h("button", { type: "button", "data-key": key, onclick: () => { at = to(); fill(); } }, text);
  const last = () => Math.max(0, Math.ceil(order.length / PAGE) - 1), before = step("← before", "k", () => Math.max(0, at - 1)), next = step("next →", "j", () => Math.min(last(), at + 1));
  host.append(chips, h("div", { class: "tools" }, search, h("label", null, "Order by ", by), before, next, place), body, legendOfMarks(), note, dialog);

  const drawChips = () => chips.replaceChildren(...Object.keys(FILTERS).filter((name) => name === "all" || name === show || totals[name] !== 0).map((name) => h("button", { type: "button", "aria-pressed": String(name === show), onclick: () => { show = name; choose(); } }, `${name} ${totals[name] === undefined ? "…" : count(totals[name])}`)));
  const remember = () => history.replaceState(null, "", `${location.pathname}?${new URLSearchParams({ ...(show !== "all" && { show }), ...(by.value && { by: by.value }), ...(search.value && { search: search.value }), ...(at && { page: String(at + 1) }) })}`.replace(/\?$/, ""));
  const arrange = () => {
    const isShown = FILTERS[show], n = all.codes.length, numbers = found ?? all.codes.keys(), kept = new Uint32Array(n);
    let length = 0;
    for (const i of numbers) if (i < n && isShown(i, all)) kept[length++] = i;
    order = kept.subarray(0, length);
    const values = { agreement: all.least, cost: all.sums[1], samples: all.sums[0] }[by.value], way = by.value === "agreement" ? 1 : -1;
    if (values?.length) order.sort((a, b) => way * (values[a] - values[b]) || a - b);
    at = Math.min(at, last());
  };
  const choose = async () => {
    at = 0;
    if (show === "wrong" && !isJudged) await judge();
    arrange();
    await fill();
  };
  // All rows are judged only for the filter: code of the task takes long.
  const judge = async () => {
    place.textContent = "all rows are judged …";
    try {
      const { wrong, judged, note: why } = await api(apiUrl(run, "wrong"), { signal });
      all.wrong = new Set(wrong);
      isJudged = true;
      note.hidden = !why && judged === all.codes.reduce((sum, code) => sum + DONE.includes(code), 0);
      note.textContent = why ?? `the first ${plural(judged, "row")} were judged in the time for it`;
      tally();
    } catch (error) { note.hidden = false; note.textContent = error.message; }
  };
  const open = (row, name, fields) => {
    dialog.replaceChildren(h("h2", null, h("a", { href: runUrl(run, `?input=${row.input}`) }, `Row ${count(row.input)}`), h("span", { class: "soft" }, " ", said(name))), rowFacts(row), rowPanel(run, row, { field: name, known: fields, after: () => { say("Decided by you."); fill(); } }),
      h("form", { method: "dialog", class: "tools" }, row.path ? h("a", { href: decisionUrl(run, row.path) }, "its samples") : null, h("button", { class: "last" }, "Close")));
    dialog.showModal();
  };
  const draw = (rows) => { body.replaceChildren(rows.length ? rowsDrawn(rows, { open, at: (input) => runUrl(run, `?input=${input}`) }) : h("p", null, "No row is like that.")); };
  const fill = async () => {
    const number = ++shown, of = [...order.subarray(at * PAGE, (at + 1) * PAGE)];
    remember();
    drawChips();
    before.disabled = at === 0;
    next.disabled = at >= last();
    place.textContent = order.length > PAGE ? `page ${count(at + 1)} of ${count(last() + 1)}, ${plural(order.length, "row")}` : plural(order.length, "row");
    let rows;
    body.setAttribute("aria-busy", "true");
    try { rows = of.length ? await readRows(run, of, signal) : []; } catch (error) { if (number === shown && !signal.aborted) { body.removeAttribute("aria-busy"); body.replaceChildren(h("p", { class: "error" }, said(error.message))); } return; }
    const now = jsonOf(rows);
    if (number !== shown || signal.aborted) return;
    body.removeAttribute("aria-busy");
    if (now === drawn) return;
    drawn = now;
    draw(rows);
    say(place.textContent);
  };
  const searched = async () => { found = search.value ? new Uint32Array((await bytes(apiUrl(run, "search", `?text=${encodeURIComponent(search.value)}`), signal)).buffer) : null; };
  const look = async () => {
    const text = search.value;
    try { await searched(); } catch (error) { if (!signal.aborted) body.replaceChildren(h("p", { class: "error" }, said(error.message))); return; }
    if (text === search.value) choose();
  };
  let later = 0;
  search.addEventListener("input", () => { clearTimeout(later); later = setTimeout(look, LATER_MS); });
  // The numbers of rows of each filter; unknown until their votes are read.
  const tally = () => { totals = Object.fromEntries(Object.entries(FILTERS).map(([name, is]) => [name, (OF_VOTES.includes(name) ? hasVotes : name !== "wrong" || isJudged || !hasErrors) ? all.codes.reduce((sum, _, i) => sum + is(i, all), 0) : undefined])); };
  const pageOf = () => String(order.subarray(at * PAGE, (at + 1) * PAGE));
  const refresh = async () => {
    const seen = pageOf();
    tally();
    arrange();
    if (seen === pageOf() && drawn) drawChips();
    else await fill();
  };
  // The first page of all rows needs no more than their number.
  const isPlain = show === "all" && !by.value && !search.value;
  if (isPlain) fill();
  return {
    set: async (inputs, read, errors) => {
      hasErrors = errors > 0;
      isJudged = false;
      all.codes = read.subarray(0, inputs);
      all.sums = read.length > inputs ? [0, 1].map((i) => new Float32Array(read.slice(inputs + 4 * inputs * i, inputs + 4 * inputs * (i + 1)).buffer)) : [];
      if (search.value) await searched();
      if (show === "wrong") await judge();
      if (isNew && isPlain) await refresh();
      else { tally(); arrange(); await fill(); }
      isNew = false;
      const votes = new Float32Array((await bytes(apiUrl(run, "agreement"), signal)).buffer);
      all.least = votes.subarray(0, inputs);
      all.flagged = votes.subarray(inputs);
      hasVotes = true;
      await refresh();
    },
  };
}
