// Decisions of persons that the next sitting takes up, and the way to continue their run.
import { apiUrl, h, moment, post, runUrl, said } from "./dom.js";

export const decidedBy = ({ who, at }) => ["✎ decided by ", said(who), " ", moment(at), ", not yet resumed"];

// The button that continues a run, if the page may; else the command.
export function resumption(run, { go_on: command, may_resume: may }) {
  if (!command) return h("p", null, "The run continues with it.");
  const answer = h("p", { role: "status" });
  const resume = async () => {
    button.disabled = true;
    answer.textContent = "It begins …";
    try {
      await post(apiUrl(run, "resume"), {});
      location.assign(runUrl(run));
    } catch (error) { button.disabled = false; answer.textContent = error.message; }
  };
  const button = h("button", { type: "button", class: "large main", onclick: resume }, "Resume");
  return may ? h("div", { class: "tools" }, button, answer) : h("p", null, "go on: ", h("code", null, said(command)));
}
