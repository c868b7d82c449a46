// Values of replies, states, calls and results as people read them: fields in tables, without the signs of JSON, differing parts marked.
import { firstOf, h, quoted, said, table } from "./dom.js";

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isEqual = (a, b) => JSON.stringify(a, numerals) === JSON.stringify(b, numerals);
const numerals = (_, value) => (typeof value === "bigint" ? String(value) : value);

// A value in a line; a list within a list stands in brackets.
export function wordsOf(value) {
  if (value === null || value === undefined) return "none";
  if (Array.isArray(value)) return value.length ? value.map((each) => (Array.isArray(each) ? inBrackets(each) : wordsOf(each))).join(", ") : "none";
  if (isObject(value)) return Object.entries(value).map(([name, each]) => `${name}: ${Array.isArray(each) ? inBrackets(each) : wordsOf(each)}`).join("; ");
  return String(value);
}
const inBrackets = (list) => (list.length ? `(${wordsOf(list)})` : "()");

// A reply with one field is named by the value of it.
export const soleValue = (value) => (isObject(value) && Object.keys(value).length === 1 ? Object.values(value)[0] : value);
export const shortWords = (value, most = 120) => { const words = wordsOf(soleValue(value)); return words.length > most ? `${words.slice(0, most)}…` : words; };

const LINE = 400;
const laidOut = (words) => (words.length > LINE || words.includes("\n") ? quoted(words) : said(words));

// A text with what differs from another one marked: all between their common beginning and end.
export function differing(text, other) {
  if (text === other) return said(text);
  let start = 0, end = 0;
  while (start < text.length && text[start] === other[start]) start++;
  while (end < text.length - start && end < other.length - start && text.at(-1 - end) === other.at(-1 - end)) end++;
  const middle = text.slice(start, text.length - end);
  return said([text.slice(0, start), middle ? h("mark", null, middle) : h("mark", { title: "something is missing here" }, "‸"), text.slice(text.length - end)]);
}

// A value with the parts marked in which it differs from another one.
export function markedAgainst(value, other) {
  if (isEqual(value, other)) return laidOut(wordsOf(value));
  if (Array.isArray(value) && Array.isArray(other) && value.length && value.length === other.length)
    return said(value.map((each, i) => [i ? ", " : "", Array.isArray(each) ? ["(", each.length ? markedAgainst(each, other[i]) : "", ")"] : markedAgainst(each, other[i])]));
  if (isObject(value) && isObject(other)) return said(Object.entries(value).map(([name, each], i) => [i ? "; " : "", `${name}: `, markedAgainst(each, other[name])]));
  const words = wordsOf(value);
  if (words.length > LINE) return laidOut(words);
  return typeof value === typeof other && typeof value !== "number" && other !== null ? differing(words, wordsOf(other)) : h("mark", null, said(words));
}

// Values beside each other, one a column, with a row for each field. Parts that differ from the first are marked, in the first from the second.
export function compared(caption, values, heads) {
  const names = values.every(isObject) ? [...new Set(values.flatMap(Object.keys))] : [null];
  const of = (value, name) => (name === null || value === null || value === undefined ? value : value[name]);
  const cell = (name) => (value, i) => markedAgainst(of(value, name), of(values[i ? 0 : Math.min(1, values.length - 1)], name));
  return h("div", { class: "compared" }, table(caption, [["", null], ...heads.map((head) => [head, "text"])], names.map((name) => [name === null ? "" : said(name), ...values.map(cell(name))])));
}

// One value: lists of objects as a table, objects as names and values, texts as they are.
export function fieldsOf(value) {
  if (value === null || typeof value !== "object") return laidOut(wordsOf(value));
  const isFlat = (each) => each === null || typeof each !== "object" || JSON.stringify(each, numerals).length < 90;
  if (Array.isArray(value)) {
    if (!value.length || !value.every((each) => isObject(each) && Object.values(each).every(isFlat))) return value.length > 1 && (!value.every(isFlat) || (typeof value[0] === "string" && wordsOf(value).length > LINE / 4)) ? firstOf(value, (shown) => h("ol", { class: "values" }, shown.map((each) => h("li", null, fieldsOf(each))))) : laidOut(wordsOf(value));
    const names = [...new Set(value.flatMap(Object.keys))];
    return firstOf(value, (shown) => table("Result", names.map((name) => [said(name), "text"]), shown.map((row) => names.map((name) => (name in row ? said(wordsOf(row[name])) : "")))));
  }
  if (!Object.keys(value).length) return said("none");
  return h("dl", { class: "list" }, Object.entries(value).map(([name, each]) => [h("dt", null, said(name)), h("dd", null, fieldsOf(each))]));
}
