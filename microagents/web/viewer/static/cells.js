// Rows of a table, drawn: each cell with its mark. For the page of a run on rows, and for the report in one file.
import { count, h, plainMoney, said } from "./dom.js";
import { wordsOf } from "./values.js";

const SHORT = 100;
export const MARKS = { agreed: ["●", "all samples agree"], disputed: ["◆", "disputed"], open: ["◇", "open"], wrong: ["✗", "wrong"], person: ["✎", "settled by a person"], none: ["", ""] };
export const jsonOf = (value) => JSON.stringify(value, (_, each) => (typeof each === "bigint" ? JSON.rawJSON(String(each)) : each));
export const written = (value) => (value === null || value === undefined ? "" : wordsOf(value));
const shortened = (value) => { const text = written(value); return text.length > SHORT ? `${text.slice(0, SHORT)}…` : text; };
export const has = (fields, name) => Object.hasOwn(fields ?? {}, name);

// The value of a cell: a person's, the decided one, or the one that leads.
export function valueOf(row, field) {
  if (row.person && has(row.person, field)) return row.person[field];
  return row.reply && has(row.reply, field) ? row.reply[field] : row.cells[field]?.[0]?.[0];
}

export function markOf(row, field) {
  if (has(row.right, field)) return "wrong";
  if (row.person_fields.includes(field)) return "person";
  if (row.person === null && (row.open.includes(field) || (row.waits && !Object.keys(row.cells).length))) return "open";
  const [own, all] = row.agreement[field] ?? [0, 0];
  return all ? (own < all ? "disputed" : "agreed") : "none";
}

export const votesText = (row, field) => (row.agreement[field] ? row.agreement[field].join("/") : "");
export const replyFields = (rows) => [...new Set(rows.flatMap((row) => [...Object.keys(row.reply ?? {}), ...Object.keys(row.person ?? {}), ...Object.keys(row.cells)]))];

export const legendOfMarks = () => h("ul", { class: "legend" }, Object.entries(MARKS).filter(([, [shape]]) => shape).map(([kind, [shape, name]]) => h("li", { class: kind }, `${shape} ${name}`)));

const stateOf = (row) => (row.is_wrong ? h("span", { class: "wrong" }, "✗ wrong") : row.outcome === null ? "" : row.outcome === "completed" ? said(row.settled_by ?? "") : h("span", { class: row.outcome, title: row.reason }, row.person ? "✎ decided" : row.outcome));

function cell(row, name, fields, open) {
  const mark = markOf(row, name), title = `${MARKS[mark][1]} ${votesText(row, name)}`;
  const content = [h("span", { class: mark, role: "img", "aria-label": MARKS[mark][1] }, MARKS[mark][0]), " ", said(shortened(valueOf(row, name))), row.agreement[name]?.[0] < row.agreement[name]?.[1] ? h("small", null, ` ${votesText(row, name)}`) : null];
  return h("td", { class: `cell ${mark}`, title: open ? null : title }, open ? h("button", { type: "button", title, onclick: () => open(row, name, fields) }, content) : content);
}

// Without a page of each row and of each cell, as in a file, nothing leads to one.
export function rowsDrawn(rows, { open = null, at = null } = {}) {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row.row)))], fields = replyFields(rows), group = (name, n) => h("th", { scope: "colgroup", colspan: String(n) }, name);
  const head = [h("tr", null, h("td"), group("the row", columns.length), fields.length ? group("the reply", fields.length) : null, group("", 3)), h("tr", null, ["row", ...columns, ...fields, "settled by"].map((name) => h("th", { scope: "col" }, said(name))), ["samples", "cost"].map((name) => h("th", { scope: "col", class: "number" }, name)))];
  return h("div", { class: "scroll rows", tabindex: "0", role: "region", "aria-label": "Rows" }, h("table", null, h("thead", null, head), h("tbody", null, rows.map((row) => h("tr", null, h("th", { scope: "row" }, at ? h("a", { href: at(row.input) }, count(row.input)) : count(row.input)),
    columns.map((name) => h("td", null, said(shortened(row.row[name])))), fields.map((name) => cell(row, name, fields, open)), h("td", null, stateOf(row)), h("td", { class: "number" }, row.samples ? count(row.samples) : ""), h("td", { class: "number" }, row.cost_usd === null ? "" : plainMoney(row.cost_usd)))))));
}
