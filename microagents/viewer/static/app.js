// The pages: each has a path of its own, and reads what it shows from the journal.
import { api, apiUrl, bytes, count, decisionUrl, duration, fact, h, moment, money, outcomeMark, plural, runUrl, said, say, section, table } from "./dom.js";
import { Strip } from "./strip.js";

const LIVE_MS = 1000;
const page = document.getElementById("page"), banner = document.getElementById("banner"), nav = document.getElementById("nav");
let leaving = new AbortController();
const json = (value) => JSON.stringify(value, null, 1);
const quoted = (text) => h("pre", { tabindex: "0", dir: "auto" }, text);

function show(title, ...content) {
  document.title = `${title} · microagents`;
  page.replaceChildren(h("h1", null, said(title)), ...content);
}

async function listPage() {
  const runs = await api("/api/runs");
  const filter = h("input", { type: "search", "aria-label": "Filter the runs", placeholder: "Filter" });
  const host = h("div");
  const fill = () => {
    const found = runs.filter((run) => `${run.run_id} ${run.task ?? ""} ${run.outcome ?? ""} ${run.models ?? ""}`.toLowerCase().includes(filter.value.toLowerCase()));
    host.replaceChildren(table("Runs", [["run", null], ["outcome", null], ["task", null], ["began", null], ["done", "number"], ["cost", "number"]],
      found.map((run) => run.error ? [said(run.run_id), said(run.error), "", "", "", ""] : [h("a", { href: runUrl(run.run_id) }, said(run.run_id)), outcomeMark(run.outcome),
        said(`${run.task} · ${run.strategy}`), moment(run.created_at), plural(run.steps, run.unit ?? "step"), money(run.cost_usd)])));
    say(plural(found.length, "run"));
  };
  filter.addEventListener("input", fill);
  show("Runs", h("div", { class: "tools" }, filter), section(null, runs.length ? host : h("p", null, "There is no run in this folder.")));
  fill();
}

async function runPage(run, signal) {
  const facts = h("dl", { class: "facts" }), reason = h("p", { class: "soft" }), host = h("div"), flags = h("div");
  const query = new URLSearchParams(location.search), input = query.get("input") ?? "0";
  const zoom = /^#(\d+)-(\d+)$/.exec(location.hash);
  const strip = new Strip(host, { label: (i) => `step ${count(i)}`, open: (i) => decisionUrl(run, `${input}/step/${i}`), from: zoom && [Number(zoom[1]), Number(zoom[2])] });
  show(run, reason, section("Account", facts), section("Steps", host), section("Red flags", flags));
  const update = async () => {
    const [found, { steps }] = await Promise.all([api(apiUrl(run, "").replace(/\/$/, "")), bytes(apiUrl(run, "strip", `?input=${encodeURIComponent(input)}`), signal)]);
    if (signal.aborted) return null;
    const account = found;
    reason.replaceChildren(said(`${found.task} by ${found.strategy}${found.reason ? `: ${found.reason}` : ""}`));
    facts.replaceChildren(fact("outcome", outcomeMark(found.outcome)), fact("done", plural(account.steps, found.unit ?? "step"), account.total_steps ? `of ${count(account.total_steps)}` : null),
      fact("cost", money(account.cost_usd)), fact("calls", count(account.calls)), fact("took", duration(found.wall_s)), fact("began", moment(found.created_at)),
      fact("wrong", account.errors === null || account.errors === undefined ? "not checked" : count(account.errors)));
    const kinds = Object.entries(account.flagged ?? {});
    flags.replaceChildren(kinds.length ? table("Red flags", [["flag", null], ["samples", "number"]], kinds.map(([name, number]) => [said(name), count(number)])) : h("p", null, "None."));
    if (steps.length) strip.set(steps, null);
    else strip.readout.textContent = "This run has no chain of steps; microagents show draws its work in the terminal.";
    return found.outcome;
  };
  let outcome = await update();
  while (outcome === "running" && !signal.aborted) {
    await new Promise((done) => setTimeout(done, LIVE_MS));
    if (!signal.aborted && !document.hidden) outcome = await update();
  }
  if (outcome) say(`This run is ${outcome}.`);
}

async function decisionPage(run, path) {
  const found = await api(apiUrl(run, "decision", `?path=${encodeURIComponent(path)}`));
  const checked = { true: "right", false: "WRONG" }[found.correct] ?? "not checked";
  const samples = found.replies.map((reply) => h("div", { class: "row" },
    h("h3", null, `sample ${reply.seq}: `, said(reply.flag ? `▲ red flag ${reply.flag}` : { true: "● agrees", false: "◆ differs" }[reply.agrees] ?? "valid")),
    reply.why ? h("p", null, said(reply.why)) : null,
    reply.flag ? null : quoted(json(reply.vote)),
    reply.text === null ? h("p", { class: "note" }, "text not kept") : quoted(reply.text)));
  const number = /^(.*\/)(\d+)$/.exec(path);
  const beside = number ? h("p", { class: "tools" }, Number(number[2]) > 0 ? h("a", { href: decisionUrl(run, number[1] + (Number(number[2]) - 1)) }, "← before") : null,
    h("a", { href: decisionUrl(run, number[1] + (Number(number[2]) + 1)) }, "after →")) : null;
  show(path, beside, section("Decision", h("dl", { class: "facts" }, fact("outcome", found.outcome), fact("settled by", said(found.settled_by ?? "the vote")), fact("oracle", checked),
    fact("samples", count(found.replies.length)), fact("cost", money(found.cost_usd))), quoted(json(found.value))),
  section("Votes", found.tally.length ? table("Votes", [["votes", "number"], ["reply", "text"]], found.tally.map(([value, votes]) => [count(votes), quoted(json(value))])) : h("p", null, "No valid reply.")),
  section("Prompt", found.user === null ? h("p", null, said(found.note ?? "unknown")) : [quoted(found.system ?? ""), quoted(found.user)]),
  section("Samples in launch order", samples.length ? samples : h("p", null, "None.")),
  found.action ? section("Calls", quoted(json(found.action.calls))) : null);
}

async function route() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  banner.hidden = true;
  nav.replaceChildren();
  const [, kind, run, at, ...path] = location.pathname.split("/").map(decodeURIComponent);
  try {
    if (kind !== "run") await listPage();
    else {
      nav.append(h("a", { href: runUrl(run) }, said(run)));
      if (at === "at") await decisionPage(run, path.join("/"));
      else await runPage(run, signal);
    }
  } catch (error) {
    if (signal.aborted) return;
    banner.textContent = error.message;
    banner.hidden = false;
  }
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='/']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  history.pushState(null, "", link.getAttribute("href"));
  route().then(() => page.focus());
});
window.addEventListener("popstate", route);
route();
