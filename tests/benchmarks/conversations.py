"""Conversations under kill -9: ``python -m tests.benchmarks.conversations [--kills 300]``.

Three agents ask their customers which order is meant, pay it back (destructive, without a look-up), ask once more, and write a mail
(destructive, can be looked up). The process of the run is killed amid one of its commits or at any time, and so is the process that
gives a customer's answer; it gives it again afterwards, and then another answer to the same question. Some sittings have a customer at
hand (`on_ask`), and some answers come while the run is under way. A person says of a call of unknown outcome what became of it. The
world's own log is the judge: every effect at most once, and once in the end; every answer that was accepted is taken, once, and none
that was refused.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from microagents import AgentTask, InvalidUsage, MicroagentsError, Prompt, Reply, Result, ToolCall, ask, run_sync
from microagents.base.foreign_text import fenced_in
from microagents.journal.messages import Written
from microagents.journal.reading import Reader
from microagents.journal.record_rows import RecordRows
from microagents.replies.persons import ANSWERED
from microagents.roles.executor import CustomerQuestion
from microagents.runs.inspection.runs import decide, inspect_run
from microagents.systems.agents.actions import Action
from microagents.tools.tool import EffectKey, RunInput, tool
from microagents.tools.toolbox import GivenTool
from tests.benchmarks.harness import options_of

FOLDER = Path(tempfile.gettempdir(), "microagents-conversations")
RUNS = FOLDER / "runs"
CUSTOMERS = 3
COMMITS = 40
"""Commits of an undisturbed sitting, about: at one of them a process is killed."""
SITTING_S = 1.0
"""Time of an undisturbed sitting, about: at any time of it a process is killed."""


def write(run: str, what: str, **more: Any) -> None:
    """Add a line to the log of a run's world."""
    with (FOLDER / f"{run}.log").open("a") as log:
        log.write(json.dumps({"what": what, **more}) + "\n")


def read(run: str) -> list[dict[str, Any]]:
    """All lines of the log of a run's world."""
    log = FOLDER / f"{run}.log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def find_mail(key: EffectKey) -> str | None:
    """Tell what became of a mail."""
    lines = [line for log in FOLDER.glob("*.log") for line in read(log.stem)]
    return next(("wrote" for line in lines if line.get("key") == key), None)


@tool("destructive")
def refund(order: str, run: RunInput) -> str:
    """Pay an order back."""
    write(run.partition("/")[0], "refund", input=run.partition("/")[2], order=order)
    return f"paid {order} back"


@tool("destructive", lookup=find_mail)
def mail(text: str, key: EffectKey, run: RunInput) -> str:
    """Write to the customer."""
    write(run.partition("/")[0], "mail", input=run.partition("/")[2], text=text, key=key)
    return "wrote"


class Talk(AgentTask):
    """Ask which order, pay it back, ask again, and write."""

    tools: ClassVar[tuple[GivenTool, ...]] = (refund, mail, ask)
    number: int = 0

    def statement(self) -> str:
        return "Do what the customer says."

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # noqa: ARG002 - it has one kind of reply
        seen = fenced_in(prompt.user, "observation")
        calls = [
            lambda: ToolCall("ask", {"text": "Which order?"}),
            lambda: ToolCall("refund", {"order": seen[0]}),
            lambda: ToolCall("ask", {"text": "Anything else?"}),
            lambda: ToolCall("mail", {"text": seen[2]}),
            lambda: ToolCall("end", {"answer": f"{seen[0]} {seen[2]}"}),
        ]
        return Action(calls=[calls[len(seen)]()])


def sitting(run: str, rng: random.Random) -> Result:
    """Do a sitting of the run. In some a customer is at hand."""

    async def on_ask(question: CustomerQuestion) -> str | None:
        if rng.random() < 0.3:
            return None
        await asyncio.sleep(rng.uniform(0.0, 0.3))
        text = f"said-{uuid4().hex[:8]}"
        write(run, "offered", path=question.path, text=text)
        return text

    customers = [Talk(number=number) for number in range(CUSTOMERS)]
    given: Any = {"on_ask": on_ask} if rng.random() < 0.5 else {}
    return run_sync(customers, models="sim:perfect@latency=0.01", run_id=run, runs_dir=RUNS, **given)


class Mortal:
    """Work in a process that is killed: amid one of its commits, or after a time; or not at all."""

    def __init__(self, work: Callable[[], object], rng: random.Random, within_s: float, commits: int) -> None:
        self._way = rng.choice(("commit", "commit", "time", "none"))
        commit, before, seed = rng.randrange(commits), rng.random() < 0.5, rng.random()
        self._kill_at_s = time.monotonic() + rng.uniform(0.0, within_s)
        self.pid = os.fork()
        if self.pid:
            return
        with (FOLDER / "output.txt").open("a") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        code = 1
        try:
            if self._way == "commit":
                _die_amid(commit, is_before=before)
            rng.seed(seed)
            work()
            code = 0
        except MicroagentsError as error:
            print(error, flush=True)
        finally:
            os._exit(code)

    def is_killed(self, meanwhile: Callable[[], object] = lambda: None) -> bool:
        """Wait for its end, and do something meanwhile; returns whether it was killed."""
        while not (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            if self._way == "time" and time.monotonic() > self._kill_at_s:
                os.kill(self.pid, signal.SIGKILL)
            meanwhile()
            time.sleep(0.002)
        return os.WIFSIGNALED(ended[1])


def _die_amid(commit: int, *, is_before: bool) -> None:
    """Kill this process amid a commit, counted from 0: before its records are written, or before it ends."""
    usual, left = RecordRows.write, [commit]

    def writing(rows: RecordRows, records: list[Written]) -> None:
        left[0] -= 1
        if left[0] < 0 and is_before:
            os.kill(os.getpid(), signal.SIGKILL)
        usual(rows, records)
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    RecordRows.write = writing  # type: ignore[method-assign,assignment]


class Trial:
    """One run, from its first sitting to its end."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._run = f"talk-{uuid4().hex[:12]}"
        self._accepted: dict[str, str] = {}
        """Answers that were accepted, by their places."""
        self.kills = Counter[str]()
        self.refused = self.late = 0

    def check(self) -> None:
        """Go on until the run is completed, and let the log judge.

        Raises:
            AssertionError: an effect was made twice or not at all, or an answer was lost, taken twice or taken although refused.
        """
        outcome = ""
        while outcome != "completed":
            sits = Mortal(lambda: sitting(self._run, self._rng), self._rng, SITTING_S, COMMITS)
            self.kills["run"] += sits.is_killed(lambda: self._answer(0.05))
            self._settle()
            self._answer(0.3)
            outcome = self._outcome()
        self._judge()

    def _outcome(self) -> str:
        with suppress(InvalidUsage), Reader(RUNS / f"{self._run}.sqlite") as reader:
            ending = reader.ending()
            return "" if ending is None else ending.outcome
        return ""

    def _waiting(self) -> list[tuple[str, str]]:
        with suppress(InvalidUsage):  # it has no journal yet
            return [(path, call.tool) for path, call, _ in inspect_run(RUNS, self._run).waiting]
        return []

    def _answer(self, share: float) -> None:
        """Answer some of the questions that wait: in a process that may be killed, then again, and then otherwise."""
        for path, _ in self._waiting():
            if not path.endswith(ANSWERED) or self._rng.random() > share:
                continue
            text = f"said-{uuid4().hex[:8]}"
            write(self._run, "offered", path=path, text=text)
            gives = Mortal(lambda path=path, text=text: self._give(path, text), self._rng, 0.1, 1)  # type: ignore[misc]
            self.kills["customer"] += gives.is_killed()
            if self._give(path, text):
                self._accepted[path] = text
                self._refuse(path)
            else:
                self.late += 1

    def _give(self, path: str, text: str) -> bool:
        """Give an answer; returns whether it counts. That of a callback may have been faster."""
        try:
            decide(RUNS, self._run, path, f"answer {text}")
        except InvalidUsage:
            return False
        return True

    def _refuse(self, path: str) -> None:
        """Give another answer to an answered question, which must be refused."""
        other = f"second-{uuid4().hex[:8]}"
        try:
            decide(RUNS, self._run, path, f"answer {other}", again=True)
        except InvalidUsage:
            self.refused += 1
        else:
            raise AssertionError(f"a second answer to {path} was accepted")

    def _settle(self) -> None:
        """Say of calls of unknown outcome what became of them."""
        for path, name in self._waiting():
            if path.endswith("/found"):
                done = [
                    line for line in read(self._run) if line["what"] == name and line["input"] == path.split("/")[0]
                ]
                with suppress(InvalidUsage):
                    decide(RUNS, self._run, path, "done it was made" if done else "not-done")

    def _judge(self) -> None:
        lines, run = read(self._run), self._run
        made = Counter((line["what"], line["input"]) for line in lines if line["what"] != "offered")
        wanted = {(what, str(number)): 1 for what in ("refund", "mail") for number in range(CUSTOMERS)}
        assert made == wanted, f"{run}: {made}"
        offered = {(line["path"], line["text"]) for line in lines if line["what"] == "offered"}
        with Reader(RUNS / f"{run}.sqlite") as reader:
            assert reader.verify() == [], run
            rows = [(path, row.value or b"") for path, row in reader.decisions() if path.endswith(ANSWERED)]
            taken = {path: json.loads(value)["text"] for path, value in rows}
            results = [json.loads(each.result or b"null") for each in reader.input_endings()]
        assert len(rows) == len(taken) == 2 * CUSTOMERS, f"{run}: {rows}"
        assert set(taken.items()) <= offered, f"{run}: {taken} was never said"
        lost = {path: text for path, text in self._accepted.items() if taken[path] != text}
        assert not lost, f"{run}: accepted and not taken: {lost}; taken: {taken}"
        for number, result in enumerate(results):
            said = [taken[f"{number}/step/{step}/call/0{ANSWERED}"] for step in (0, 2)]
            assert result["result"]["answer"].split() == said, f"{run}: {result}, {said}"
            effects = {line["what"]: line for line in lines if line.get("input") == str(number)}
            assert [effects["refund"]["order"], effects["mail"]["text"]] == said, f"{run}: {effects}"
        for each in (*FOLDER.glob(f"{run}.*"), *RUNS.glob(f"{run}.*")):  # those of a run that failed are kept
            each.unlink()


def main(kills: int, first: int) -> None:
    """Kill so many processes."""
    FOLDER.mkdir(exist_ok=True)
    began_s, counts, refused, late, seed = time.monotonic(), Counter[str](), 0, 0, first
    while counts.total() < kills:
        trial = Trial(seed)
        trial.check()
        counts += trial.kills
        refused += trial.refused
        late += trial.late
        seed += 1
    print(
        f"{counts.total()} kills ({counts['run']} of the run, {counts['customer']} amid an answer) in {seed - first} runs of {CUSTOMERS} "
        f"customers, {time.monotonic() - began_s:.0f} s"
    )
    print(
        f"every effect once, every accepted answer taken once, {refused} second answers refused, {late} that came after a callback's"
    )


if __name__ == "__main__":
    arguments = options_of(__doc__.partition("\n")[0], kills=300, first=0)
    # Under its own name, so that the journal finds its classes again.
    import_module("tests.benchmarks.conversations").main(arguments.kills, arguments.first)
