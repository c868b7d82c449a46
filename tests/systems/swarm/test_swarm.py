"""The swarm: nothing is forgotten, cut or drawn too often, whatever a judge and a verifier say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from microagents import Call, Reply, Result, resume, run
from microagents.journal.sharded import reader_of
from microagents.replies.reply_forms import write
from microagents.runs.inspection.runs import solution_of
from microagents.runtimes.virtual import run_virtual
from microagents.systems.questions import Problem
from microagents.systems.swarm.notes import SwarmRecord
from microagents.systems.swarm.steps import (
    MORE,
    AskedInSteps,
    Check,
    Pick,
    Plan,
    StepResult,
    ToAssemble,
    ToCheck,
    ToCompress,
    ToPick,
    ToPlan,
    ToWork,
    step_question_in,
)
from microagents.systems.swarm.swarm import Swarm
from microagents.work.prose import MAX_RESULT_CHARS, Summary
from tests.papers.relay import Relay


class Whole(Reply, frozen=True):
    """A text."""

    text: str


class Letters(Problem[Whole]):
    """Write letters one after another."""

    steps: int = 3

    def statement(self) -> str:
        return f"Write {self.steps} letters."

    def correct(self, reply: Whole) -> bool:
        return reply.text == "abcdefghijkl"[: self.steps]


Said = Callable[[Call, Any], Reply | str | None]


def model(said: Said = lambda _, __: None, asked: list[AskedInSteps] | None = None) -> Callable[[Call], Any]:
    """A model that does everything right, but for what ``said`` gives instead."""

    async def complete(call: Call) -> str:
        question = step_question_in(call.prompt)
        if asked is not None:
            asked.append(question)
        reply = said(call, question)
        if reply is None:
            reply = right(question)
        return reply if isinstance(reply, str) else write(reply, "json")

    return complete


def right(asked: AskedInSteps) -> Reply:
    match asked:
        case ToPlan():
            steps = int(asked.problem.split()[1])
            return Plan(steps=tuple(f"Write letter {number}." for number in range(1, steps + 1)))
        case ToWork():
            return StepResult(result="abcdefghijkl"[asked.number - 1], confidence=9)
        case ToAssemble():
            return Whole(text=asked.summary + "".join(each.result for each in asked.recent))
        case ToCompress():
            return Summary(summary=asked.summary + asked.done.result)
        case ToPick():
            return Pick(choice=asked.candidates[0].label, reason="It is right.")
        case ToCheck():
            return Check(passed=True, feedback="")


async def swarm(
    said: Said = lambda _, __: None, *, task: Problem[Any] | None = None, folder: Path | None = None, **options: Any
) -> Result:
    settings = {name: options.pop(name) for name in ("run_id", "max_calls") if name in options}
    return await run(task or Letters(), models=model(said), strategy=Swarm(**options), runs_dir=folder, **settings)


def record(folder: Path, run_id: str) -> SwarmRecord:
    with reader_of(folder, run_id) as reader:
        found = solution_of(reader, 0)
    assert isinstance(found, SwarmRecord)
    return found


def is_number(question: AskedInSteps, number: int) -> bool:
    return isinstance(question, ToWork) and question.number == number


async def test_a_judge_picks_where_workers_differ_and_says_why(tmp_path: Path) -> None:
    def said(call: Call, question: AskedInSteps) -> Reply | None:
        if is_number(question, 2) and call.id.seq == 0:
            return StepResult(result="x", confidence=9)
        if isinstance(question, ToPick):
            label = next(each.label for each in question.candidates if b'"b"' in bytes(each.reply))
            return Pick(choice=label, reason="It follows a.")
        return None

    result = await swarm(said, folder=tmp_path, run_id="picked")
    assert result.value["correct"] is True
    (turn,) = record(tmp_path, "picked").loops[0].steps[1].turns
    assert (turn.by, turn.reason, turn.workers, turn.judged) == ("skeptic", "It follows a.", 2, 1)


async def test_a_judge_who_always_wants_more_gets_five_workers_and_no_more(tmp_path: Path) -> None:
    def said(call: Call, question: AskedInSteps) -> Reply | None:
        if is_number(question, 1):
            return StepResult(result="abcde"[sum(map(ord, call.prompt.system)) % 5] + str(call.id.seq), confidence=9)
        if isinstance(question, ToPick):
            return Pick(
                choice=MORE if question.may_ask_for_more else min(each.label for each in question.candidates),
                reason="None will do.",
            )
        return None

    await swarm(said, folder=tmp_path, run_id="more")
    (turn,) = record(tmp_path, "more").loops[0].steps[0].turns
    assert turn.workers == 5
    assert turn.judged == 3
    assert turn.calls == 5 + 3 + 1  # no worker more than was asked for, flagged ones included
    assert turn.picked is not None


async def test_a_reply_that_a_further_worker_repeats_is_drawn_as_picked_all_the_same(tmp_path: Path) -> None:
    def said(call: Call, question: AskedInSteps) -> Reply | str | None:
        if isinstance(question, ToPick):
            return Pick(choice=MORE, reason="One is too few.")
        return "?" if is_number(question, 1) and call.id.seq == 0 and call.id.election.path.endswith("/2") else None

    await swarm(said, folder=tmp_path, run_id="repeated")
    (turn,) = record(tmp_path, "repeated").loops[0].steps[0].turns
    assert turn.picked is not None
    assert (turn.workers, turn.judged, turn.copies, turn.by, turn.flags) == (3, 1, 2, "skeptic", {"malformed": 1})


@pytest.mark.parametrize(
    ("reply", "flag"),
    [
        (StepResult(result=" ", confidence=9), "empty"),
        (StepResult(result="x" * (MAX_RESULT_CHARS + 1), confidence=9), "too_long"),
        (StepResult(result="x", confidence=2), "unsure"),
        (StepResult(result="I'm sorry, but I can't do that.", confidence=9), "refusal"),
        ("No.", "malformed"),
    ],
)
async def test_results_are_screened_by_name(reply: Reply | str, flag: str) -> None:
    result = await swarm(lambda call, question: reply if is_number(question, 1) and call.id.seq == 0 else None)
    assert result.account.flagged == {flag: 1}
    assert result.value["correct"] is True


async def test_a_step_that_does_not_pass_is_done_again_with_the_feedback_and_checked_again(tmp_path: Path) -> None:
    def said(_: Call, question: AskedInSteps) -> Reply | None:
        if is_number(question, 2) and isinstance(question, ToWork) and not question.rejected:
            return StepResult(result="x", confidence=9)
        if isinstance(question, ToCheck) and isinstance(question.question, ToWork) and b'"x"' in bytes(question.reply):
            return Check(passed=False, feedback="The second letter is b.")
        return None

    result = await swarm(said, folder=tmp_path, run_id="again")
    assert result.value["correct"] is True
    first, second = record(tmp_path, "again").loops[0].steps[1].turns
    assert (first.passed, first.feedback, second.passed) == (False, "The second letter is b.", True)


async def test_a_verifier_that_never_passes_ends_undecided_with_the_best_answer(tmp_path: Path) -> None:
    result = await swarm(
        lambda _, question: Check(passed=False, feedback="No.") if isinstance(question, ToCheck) else None,
        folder=tmp_path,
        run_id="never",
    )
    assert result.outcome == "undecided"
    assert result.value["answer"] == {"text": "abc"}
    assert result.value["verified"] is False
    assert len(result.value["unverified"]) == 3
    loops = record(tmp_path, "never").loops
    assert [len(loop.steps[0].turns) for loop in loops] == [3, 3, 3]  # three loops, and each step done three times


async def test_what_went_wrong_goes_into_the_next_loop() -> None:
    asked: list[AskedInSteps] = []

    def said(_: Call, question: AskedInSteps) -> Reply | None:
        asked.append(question)
        if (
            isinstance(question, ToCheck)
            and isinstance(question.question, ToAssemble)
            and not question.question.lessons
        ):
            return Check(passed=False, feedback="A letter is missing.")
        return None

    result = await swarm(said)
    assert result.value["loops"] == 2
    assert {question.lessons for question in asked if isinstance(question, ToPlan)} == {(), ("A letter is missing.",)}


async def test_a_step_without_a_valid_result_ends_the_loop_and_a_run_of_such_loops_is_undecided() -> None:
    result = await swarm(lambda _, question: "nothing" if is_number(question, 2) else None)
    assert result.outcome == "undecided"
    assert "step 2 (Write letter 2.) had no valid result" in str(result.reason)


async def test_a_lossy_summary_is_found() -> None:
    # Step 8 needs a result that no summary keeps: guesses fail their check, and nothing wrong passes.
    class Forgetful(Relay):
        def expert(self, prompt: Any, reply: type[Reply]) -> Reply:
            found = super().expert(prompt, reply)
            return structs.replace(found, summary="nothing") if isinstance(found, Summary) else found

    task = next(
        each for number in range(100) if "step 1." in (each := Forgetful(length=8, reach=7, instance=number)).steps[7]
    )
    result = await run(task, models="sim:perfect@flag=0", strategy=Swarm(loops=1), runs_dir=None, seed=3)
    assert not (result.outcome == "completed" and result.value["correct"] is False)


@pytest.mark.slow
async def test_a_resumed_run_keeps_its_plan_and_pays_for_nothing_twice(tmp_path: Path) -> None:
    how: dict[str, Any] = {"models": "sim:perfect", "strategy": Swarm(), "runs_dir": tmp_path, "seed": 4}
    whole = await run(Relay(length=10), **how, run_id="whole")
    for calls in (2, 3, 11, 20):
        cut = await run(Relay(length=10), **how, run_id=f"cut-{calls}", max_calls=calls)
        assert cut.outcome == "stopped"
        resumed = await resume(cut.run_id, runs_dir=tmp_path, max_calls=None)
        assert (resumed.account.decisions_sha256, resumed.calls) == (whole.account.decisions_sha256, whole.calls)


def test_strategies_that_cannot_work_are_refused() -> None:
    for options, said in (
        ({"personas": "# nobody\n"}, "it names no persona"),
        (
            {"personas": "one: You count.\nYou never guess.\n"},
            "line 2 of the personas is not NAME: TEXT, but 'You never guess.'",
        ),
        ({"personas": "one: You count.\n\none: You never guess."}, "two personas are called 'one'"),
        ({"workers": (3, 2)}, "workers must rise"),
        ({"workers": []}, "at least 1 item"),
        ({"workers": [-1]}, "greater than or equal to 1"),
        ({"k": 11}, "may take 21 ballots"),
    ):
        with pytest.raises(ValueError, match=said):
            Swarm(**options)


# -- on every runtime ------------------------------------------------------------------------------------------------------------------

ERRING = "sim:perfect@flag=0.05,latency=1.0"


def digests(result: Result) -> tuple[str, str, object]:
    return result.account.decisions_sha256, result.account.ballots_sha256, result.value


@pytest.mark.parametrize("runtime", ["linked", "ray"])
async def test_digests_are_the_same_on_every_runtime(runtime: str) -> None:
    first = await run(Relay(length=9), models="sim:perfect@flag=0.05", runs_dir=None, seed=6)
    again = await run(Relay(length=9), models="sim:perfect@flag=0.05", runs_dir=None, seed=6, runtime=runtime)
    assert digests(again) == digests(first)
    assert again.calls == first.calls


@pytest.mark.slow
def test_digests_are_the_same_whatever_the_order_of_events() -> None:
    found = {
        digests_text(run_virtual(run(Relay(length=9), models=ERRING, runs_dir=None, seed=6), seed=seed))
        for seed in range(4)
    }
    assert len(found) == 1


def digests_text(result: Result) -> str:
    return repr((digests(result), result.calls))
