"""Conversations: an agent asks its customer, and its input waits for the answer, which is taken once."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

import pytest
from msgspec import Struct

from microagents import AgentTask, Prompt, Prose, Reply, Result, ask, resume, run, run_sync, tool
from microagents.base.errors import AlreadyDecided, InvalidUsage
from microagents.base.foreign_text import fenced_in
from microagents.journal.interventions import ask_live, decide_in
from microagents.journal.requests import Decide
from microagents.journal.sharded import reader_of
from microagents.journal.sitting import Sitting
from microagents.replies.persons import MAX_ANSWER_CHARS
from microagents.replies.tool_calls import ToolCall
from microagents.roles.executor import CustomerQuestion
from microagents.runs.inspection.runs import decide
from microagents.systems.agents.actions import Action
from microagents.tools.toolbox import GivenTool
from tests.benchmarks.harness import until
from tests.cli.commands import COMPLETED, WRONG_USAGE, microagents
from tests.journal.seal import sealed
from tests.systems.agents.shop import done, write

ANSWER = "0/step/0/call/0/answer"


@tool("destructive")
def refund(order: int) -> str:
    """Pay an order back."""
    write("refund", order=order)
    return "paid back"


class Desk(AgentTask):
    """Ask which order is meant, and pay it back."""

    tools: ClassVar[tuple[GivenTool, ...]] = (refund, ask)
    number: int = 0

    def statement(self) -> str:
        return "Pay the order back that the customer means."

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # noqa: ARG002 - it has one kind of reply
        seen = fenced_in(prompt.user, "observation")
        if not seen:
            call = ToolCall("ask", {"text": "Which order is it?"})
        elif len(seen) == 1:
            found = re.search(r"\d+", seen[0])
            assert found is not None
            call = ToolCall("refund", {"order": int(found[0])})
        else:
            call = ToolCall("end", {"answer": seen[0]})
        return Action(calls=[call])


def desk(task: Any = None, **given: Any) -> Result:
    return run_sync(Desk() if task is None else task, models="sim:perfect", **{"run_id": "r", **given})


def orders() -> list[int]:
    return [each["order"] for each in done()]


def test_an_input_waits_for_the_customers_answer_which_the_next_prompt_shows_as_an_observation() -> None:
    waits = desk()
    assert (waits.outcome, orders()) == ("undecided", [])
    assert "the customer is asked 'Which order is it?'" in str(waits.reason)
    (question,) = waits.waiting
    assert (question.path, question.call.arguments) == (ANSWER, {"text": "Which order is it?"})
    done_then = asyncio.run(resume("r", answers={question.path: "Order 7, the lamp."}))
    assert (done_then.outcome, orders(), done_then.waiting) == ("completed", [7], ())
    assert done_then.value["result"] == {"answer": "Order 7, the lamp."}


def test_an_answer_is_given_in_the_terminal_where_show_and_list_say_what_waits() -> None:
    desk()
    shown = microagents("show", "r").out
    assert 'idempotent ask(text="Which order is it?")\n        -> waits\n' in shown
    assert "waits for customers: 1 answer" in microagents("list").out
    assert "say `answer TEXT` there" in microagents("decide", "r", "step/0", "order", "7").err
    said = microagents("decide", "r", "step/0", "answer", "order", "7")
    assert said.code == COMPLETED, said.err
    assert microagents("resume", "r").code == COMPLETED
    assert orders() == [7]


def test_a_second_answer_is_refused_before_and_after_the_first_is_taken_and_the_same_one_changes_nothing() -> None:
    desk()
    for _ in range(2):
        assert microagents("decide", "r", "step/0", "answer", "order 7").code == COMPLETED
        second = microagents("decide", "r", "step/0", "answer", "order 8")
        assert second.code == WRONG_USAGE
        assert "has decided '0/step/0/call/0/answer' already" in second.err
        assert "nothing was changed" in second.err
        assert "to replace" not in second.err
        with pytest.raises(AlreadyDecided):
            asyncio.run(resume("r", answers={ANSWER: "order 8"}))
        assert asyncio.run(resume("r", answers={ANSWER: "order 7"})).outcome == "completed"
    assert orders() == [7]


@pytest.mark.parametrize(
    ("text", "said"),
    [("x" * (MAX_ANSWER_CHARS + 1), "the answer has 4,001 characters, and may have 4,000"), (" ", "is blank")],
)
def test_an_answer_that_is_too_long_or_blank_gets_one_sentence_and_the_question_still_waits(
    text: str, said: str
) -> None:
    waits = desk()
    with pytest.raises(InvalidUsage, match=said):
        asyncio.run(resume("r", answers={ANSWER: text}))
    assert said in microagents("decide", "r", "step/0", json.dumps({"text": text})).err
    assert desk().waiting == waits.waiting


@pytest.mark.parametrize("place", ["x", "7", ""])
def test_a_place_of_no_call_in_a_hostile_journal_is_said_in_one_sentence(place: str) -> None:
    waits = desk()
    assert waits.journal is not None
    with closing(sqlite3.connect(waits.journal)) as db, db:
        for table, column in (("place", "path"), ("run", "content")):
            db.execute(f"UPDATE {table} SET {column} = replace({column}, '/call/0/', ?)", (f"/call/{place}/",))
    sealed(waits.journal)
    with pytest.raises(InvalidUsage, match=rf"no call of an action waits at '0/step/0/call/{place}/answer'"):
        _ = waits.waiting


def test_other_inputs_go_on_while_one_waits() -> None:
    async def one_is_there(question: CustomerQuestion) -> str | None:
        await asyncio.sleep(0)
        return "order 9" if question.path.startswith("1/") else None

    result = desk([Desk(), Desk(number=1), Desk(number=2)], on_ask=one_is_there)
    assert (result.outcome, orders()) == ("undecided", [9])
    assert [each.path for each in result.waiting] == [ANSWER, "2/step/0/call/0/answer"]
    assert asyncio.run(resume("r", answers={each.path: "order 1" for each in result.waiting})).outcome == "completed"
    assert orders() == [9, 1, 1]


@pytest.mark.parametrize("runtime", ["local", "linked", "ray"])
def test_a_callback_answers_at_once_and_its_answer_is_recorded(runtime: str) -> None:
    asked: list[CustomerQuestion] = []

    def on_ask(question: CustomerQuestion) -> str:
        asked.append(question)
        return "order 7"

    assert desk(on_ask=on_ask, runtime=runtime).outcome == "completed"
    assert asked == [CustomerQuestion(path=ANSWER, text="Which order is it?")]
    assert desk(on_ask=on_ask).outcome == "completed"
    assert (len(asked), orders()) == (1, [7])


async def test_a_callback_may_be_a_function_that_returns_an_awaitable_of_the_callers_loop() -> None:
    loop = asyncio.get_running_loop()

    async def answer() -> str:
        assert asyncio.get_running_loop() is loop
        return "order 7"

    assert (await run(Desk(), models="sim:perfect", run_id="r", on_ask=lambda _: answer())).outcome == "completed"


def test_a_plain_callback_that_never_returns_holds_neither_an_interrupted_run_nor_its_process() -> None:
    interrupt = asyncio.Event()

    def on_ask(_: CustomerQuestion) -> None:
        interrupt.set()
        Event().wait()

    assert desk(on_ask=on_ask, interrupt=interrupt).outcome == "interrupted"
    assert asyncio.run(resume("r", answers={})).waiting


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (7, "gave no answer to .*: Expected `str`, got `int`"),
        ("", "is blank"),
        (RuntimeError("gone"), "gone"),
        (SystemExit(3), "SystemExit"),
        (GeneratorExit(), "GeneratorExit"),
    ],
)
def test_a_callback_that_gives_no_answer_fails_its_input_alone(answer: Any, why: str) -> None:
    async def on_ask(question: CustomerQuestion) -> Any:
        if question.path.startswith("1/"):
            return "order 7"
        if isinstance(answer, BaseException):
            raise answer
        return answer

    result = desk([Desk(), Desk(number=1)], on_ask=on_ask)
    assert result.failed_inputs is not None
    (failed,) = result.failed_inputs
    assert (failed.input, failed.outcome, orders()) == (0, "failed", [7])
    assert re.search(why, str(failed.reason))


async def test_an_answer_that_a_person_gave_meanwhile_counts_and_not_that_of_the_callback() -> None:
    await asyncio.to_thread(desk)
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def on_ask(_: CustomerQuestion) -> str:
        asked.set()
        await go_on.wait()
        return "order 8"

    running = asyncio.ensure_future(run(Desk(), models="sim:perfect", run_id="r", on_ask=on_ask))
    await asked.wait()
    await asyncio.to_thread(decide, Path("runs"), "r", "step/0", "answer order 7")
    go_on.set()
    assert (await running).outcome == "completed"
    assert orders() == [7]


def test_an_answer_to_a_run_that_is_killed_before_it_takes_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    desk()
    asked = Path("asked")

    def on_ask(_: CustomerQuestion) -> str:
        asked.touch()
        Event().wait(60)
        return "order 8"

    child = os.fork()
    if not child:
        with suppress(BaseException):
            desk(on_ask=on_ask)
        os._exit(0)
    until(asked.exists, "the customer is asked")

    def killed_first(journal: Path, ask: Decide) -> bool:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return ask_live(journal, ask)

    monkeypatch.setattr("microagents.runs.inspection.runs.ask_live", killed_first)
    decide(Path("runs"), "r", "step/0", "answer order 7")
    with pytest.raises(AlreadyDecided):
        decide(Path("runs"), "r", "step/0", "answer order 9")
    assert desk().outcome == "completed"
    assert orders() == [7]


def test_an_answer_that_comes_while_the_next_sitting_opens_the_journal_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk()
    read = Sitting.read_before_writing

    def answered_then(sitting: Sitting) -> Any:
        found = read(sitting)
        decide(Path("runs"), "r", ANSWER, "answer order 7")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Sitting, "read_before_writing", answered_then)
        result = desk()
    assert (result.outcome, orders()) == ("completed", [7])
    with reader_of(Path("runs"), "r") as reader:
        assert reader.verify() == []


def test_an_answer_that_comes_just_after_the_callbacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    desk()

    def after_the_callback(journal: Path, ask: Decide) -> None:
        desk(on_ask=lambda _: "order 7")
        decide_in(journal, ask)

    monkeypatch.setattr("microagents.runs.inspection.runs.decide_in", after_the_callback)
    with pytest.raises(AlreadyDecided, match="0/step/0/call/0/answer is decided already; nothing was changed"):
        decide(Path("runs"), "r", "step/0", "answer order 8")
    assert orders() == [7]


def replies(*texts: str, step: int = 0) -> None:
    lines = [json.dumps({"path": f"0/step/{step}", "seq": seq, "text": text}) for seq, text in enumerate(texts)]
    with Path("replies.jsonl").open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


def flags(path: str = "0/step/0") -> list[str]:
    ballots = microagents("show", "r", path, "--json").json["replies"]
    return [each["flag"] for each in ballots if each["flag"] is not None]


class Saying(AgentTask):
    """An agent whose result is a text."""

    tools: ClassVar[tuple[GivenTool, ...]] = (refund,)

    def statement(self) -> str:
        return "Say something."


class Sum(Struct, frozen=True):
    """A result that is no text."""

    cents: int
    note: Prose = ""


class Summing(AgentTask[Sum]):
    """An agent whose result has a type."""

    tools: ClassVar[tuple[GivenTool, ...]] = (refund,)

    def statement(self) -> str:
        return "Add it up."


def scripted(task: AgentTask[Any], **given: Any) -> Result:
    return run_sync(task, models="scripted:replies.jsonl", run_id="r", **given)


def test_a_text_without_a_call_ends_an_agent_whose_result_is_a_text_in_the_words_of_the_first_launched() -> None:
    replies("All is well.", "There is nothing to do.", 'calls = [{"tool": "end", "arguments": {"answer": "Fine."}}]')
    result = scripted(Saying())
    assert (result.outcome, result.value["result"]) == ("completed", {"answer": "All is well."})


def test_where_a_customer_is_there_a_text_without_a_call_is_a_question() -> None:
    replies("Which order?", "Tell me the order, please.")
    waits = scripted(Desk())
    assert [each.call for each in waits.waiting] == [ToolCall("ask", {"text": "Which order?"})]


def test_a_question_is_alone_in_its_action() -> None:
    both = [{"tool": "ask", "arguments": {"text": "Which?"}}, {"tool": "refund", "arguments": {"order": 7}}]
    replies(f"calls = {json.dumps(both)}", "Which order?", "Which one?")
    assert len(scripted(Desk()).waiting) == 1
    assert flags() == ["effects_together"]


def test_a_question_waits_for_an_approval_first_where_one_is_wanted() -> None:
    desk(options={"approve": "ask"})
    assert microagents("decide", "r", "step/0", "approve").code == COMPLETED
    (waits,) = asyncio.run(resume("r")).waiting
    assert waits.path == ANSWER
    assert asyncio.run(resume("r", answers={ANSWER: "order 7"})).outcome == "completed"


def test_a_text_without_a_call_is_flagged_where_the_result_has_a_type() -> None:
    replies("It is 12 cents.", *['calls = [{"tool": "end", "arguments": {"cents": 12}}]'] * 3)
    assert scripted(Summing()).value["result"] == {"cents": 12, "note": ""}
    assert flags() == ["said_not_done"]


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    "text",
    [
        'calls = [{"tool": "refund", "arguments": {"order": 7}}',
        'calls = [{"tool": "refund", "arguments": {"order": 7}}], or so I think',
        "<tool_call>refund</tool_call>",
        "<|python_tag|>refund",
        "I call refund(order=7).",
        "calls ",
        "**calls: none**",
    ],
)
def test_a_call_that_is_badly_written_is_no_text(text: str) -> None:
    replies(text, *['calls = [{"tool": "end", "arguments": {"answer": "x"}}]'] * 3)
    assert scripted(Saying()).value["result"] == {"answer": "x"}
    assert flags() == ["malformed"]
