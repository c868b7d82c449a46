// Rows that a person judges one after the other. The samples of a row are shown once its answer is kept: the server has them no earlier.
import { api, count, h, post, said, say, section } from "./dom.js";
import { written } from "./cells.js";
import { rowPanel } from "./rows.js";

const rowOf = (row) => h("div", null, h("h3", null, "The row"), h("dl", { class: "list" }, Object.entries(row).map(([name, value]) => [h("dt", null, said(name)), h("dd", null, said(written(value)))])));

// `show` draws a page by its title and content.
export async function judgePage(show, signal) {
  const found = await api("/api/judge", { signal });
  const ended = async (title) => {
    const { said: sentence } = await post("/api/judge", { number: null });
    show(title, section(null, h("p", { class: "verdict" }, said(sentence)), h("p", null, "The command in the terminal goes on. The same command continues here.")));
    say(sentence);
  };
  const stop = (title) => h("button", { type: "button", onclick: () => ended(title) }, "Stop here");
  const ask = ({ title, waiting }) => {
    if (waiting === null) return ended(title);
    const answer = h("p", { role: "status" }), names = Object.keys(waiting.asked);
    const send = async (answers) => {
      answer.textContent = "…";
      try {
        const next = await post("/api/judge", { number: waiting.number, answers });
        if (next.samples) reveal(waiting, answers, next); else await ask(next);
      } catch (error) {
        answer.textContent = error.message;
        const now = await api("/api/judge", { signal });
        if (now.waiting?.number !== waiting.number) { await ask(now); say(error.message); }
      }
    };
    const inputs = names.map((name) => h("input", { type: "text", "aria-label": name, placeholder: waiting.asked[name], autocomplete: "off" }));
    const fields = () => [names.map((name, i) => h("label", null, said(name), " ", inputs[i])), h("div", { class: "tools" }, h("button", { class: "large main" }, "Keep"))];
    const choices = () => h("div", { class: "tools" }, waiting.choices.map((choice) => h("button", { type: "button", class: "large", "data-key": choice, onclick: () => send({ [names[0]]: choice }) }, said(choice))));
    const form = h("form", { onsubmit: (event) => { event.preventDefault(); send(Object.fromEntries(names.map((name, i) => [name, inputs[i].value]))); } },
      h("h3", null, waiting.choices.length ? said(names[0]) : "Which value is right?"), waiting.choices.length ? choices() : fields(), answer);
    show(title, section(`${count(waiting.number + 1)} of ${count(waiting.of)}`, h("div", { class: "columns beside" }, rowOf(waiting.row), h("div", null, form))), stop(title)); // not the bound so far: a person might stop where it is best
    if (!waiting.choices.length) inputs[0].focus();
    return null;
  };
  const reveal = (waiting, answers, next) => {
    const further = h("button", { type: "button", class: "large main", "data-key": "Enter", onclick: () => ask(next) }, "Next");
    show(next.title, section(`${count(waiting.number + 1)} of ${count(waiting.of)}: its samples`, h("p", null, "Your label: ", Object.entries(answers).map(([name, value]) => [said(name), " ", said(value), " "])), rowPanel("", { ...next.samples, waits: false }), h("div", { class: "tools" }, further)), stop(next.title));
    further.focus();
  };
  await ask(found);
}
