"""What recursive decomposition and MAKER are compared with: one call, and the answer that most of many calls give."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from microagents import InvalidUsage, Result, run
from microagents.models.simulation.scripted import ScriptLine
from microagents.replies.chat import Prompt
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import write
from microagents.runtimes.virtual import run_virtual
from microagents.systems.chains.maker import Maker
from microagents.systems.chains.self_consistency import SelfConsistency
from microagents.systems.questions.chain_of_thought import ChainOfDraft, Cot
from microagents.tasks.ask import Answer, Ask
from microagents.tasks.drift import Drift, Onward
from microagents.tasks.multiplication import Multiplication

ERROR = 0.3


async def by_self_consistency(word: str) -> Result:
    """The answer from replies that give these letters, and none where there is a question mark."""
    replies = [Answer(answer=letter) if letter != "?" else None for letter in word]
    model = scripted(["well" if reply is None else write(reply, "json") for reply in replies])
    return await run(Ask(text="Which letter?"), models=model, strategy=SelfConsistency(samples=len(word)))


def scripted(texts: list[str]) -> str:
    lines = [ScriptLine(path="0/answer", seq=seq, text=text) for seq, text in enumerate(texts)]
    Path("script.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(lines))
    return "scripted:script.jsonl"


@pytest.mark.parametrize(
    ("word", "answer", "marked"),
    [
        ("AAB", "A", False), ("ABB", "B", False), ("ABC", "A", True), ("CBBAA", "B", True), ("?A?", "A", True),
        ("A?A", "A", False),
    ],
)  # fmt: skip
async def test_self_consistency_takes_the_plurality_and_marks_it(word: str, answer: str, *, marked: bool) -> None:
    result = await by_self_consistency(word)
    assert result.value == {"answer": {"answer": answer}, "correct": None, "argmax": ["0/answer"] if marked else []}
    assert result.calls == len(word)


async def test_a_single_shot_is_one_call_and_what_cannot_be_read_is_undecided() -> None:
    result = await run(Multiplication(), models="sim:perfect", strategy="single-shot")
    assert (result.outcome, result.calls, result.account.steps) == ("completed", 1, 1)
    undecided = await run(Ask(text="Why?"), models=scripted([""]), strategy="single-shot")
    assert (undecided.outcome, undecided.calls) == ("undecided", 1)
    many = await by_self_consistency("????")
    assert (many.outcome, many.account.undecided_at) == ("undecided", ("0/answer",))
    step = await run(Drift(length=3), models=scripted_steps("111", "???"), strategy=SelfConsistency(samples=3))
    assert (step.outcome, step.account.undecided_at) == ("undecided", ("0/step/1",))


class EvenlyHard(Multiplication):
    """Products that a simulated model has wrong with one probability, whatever it is asked."""

    def difficulty(self, prompt: Prompt, reply: type[Reply]) -> float:  # noqa: ARG002 - the same for all
        return ERROR


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ChainOfDraft])
def test_drafts_and_analogies_are_right_as_often_as_most_of_their_samples(kind: type[Cot]) -> None:
    """The share lies outside of four standard deviations once in 16,000 seeds; the seed is fixed."""
    samples = 5
    tasks = [EvenlyHard(instance=number) for number in range(120)]
    options: dict[str, Any] = {"models": "sim:perfect@alternatives=1,latency=1", "strategy": kind(samples=samples)}
    local, linked = (
        run_virtual(run(tasks, **options, runtime=runtime, runs_dir=None), seed=seed)
        for seed, runtime in enumerate(["local", "linked"])
    )
    assert (local.account.decisions_sha256, local.account.ballots_sha256) == (
        linked.account.decisions_sha256,
        linked.account.ballots_sha256,
    )
    assert local.calls == samples * len(tasks)
    rng = Random(1)
    expected = sum(2 * sum(rng.random() < ERROR for _ in range(samples)) < samples for _ in range(100_000)) / 100_000
    spread = (expected * (1 - expected) / len(tasks)) ** 0.5
    assert abs(sum(value["correct"] for value in local.value) / len(tasks) - expected) < 4 * spread


async def test_maker_answers_a_problem_by_one_election_with_a_lead_of_k_votes() -> None:
    words = [Answer(answer=letter) for letter in "ABAA"]
    model = scripted([write(word, "json") for word in words])
    result = await run(Ask(text="Which letter?"), models=model, strategy="maker", k=2)
    assert result.value == {"answer": {"answer": "A"}, "correct": None, "argmax": []}
    assert (result.calls, result.account.decided, result.account.votes_per_step) == (4, 1, 4.0)
    assert [path for path, _ in result.decisions()] == ["0/answer", "0/solve"]


async def test_makers_answer_to_a_problem_is_undecided_at_the_cap_and_has_no_known_inputs() -> None:
    model = scripted([write(Answer(answer=letter), "json") for letter in "ABAB"])
    result = await run(Ask(text="Which letter?"), models=model, strategy=Maker(k=2, max_draws=4))
    assert (result.outcome, result.account.undecided_at, result.calls) == ("undecided", ("0/answer",), 4)
    with pytest.raises(InvalidUsage, match="Multiplication has no steps, so their inputs are not known"):
        await run(Multiplication(), models="sim:perfect", strategy="maker", known_inputs=True)


def scripted_steps(*words: str) -> str:
    """Replies to the steps of a walk: a digit for a number, a question mark for none."""
    lines = [
        ScriptLine(path=f"0/step/{step}", seq=seq, text="?" if digit == "?" else write(Onward(number=int(digit))))
        for step, word in enumerate(words)
        for seq, digit in enumerate(word)
    ]
    Path("script.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(lines))
    return "scripted:script.jsonl"


@pytest.mark.parametrize("speculate", [True, False])
async def test_self_consistency_takes_the_most_frequent_reply_at_each_step_of_a_chain(*, speculate: bool) -> None:
    model = scripted_steps("12344", "5?5??", "12345")
    result = await run(Drift(length=3), models=model, strategy=SelfConsistency(samples=5), speculate=speculate)
    assert [value["number"] for _, value in result.decisions()] == [4, 5, 1]
    assert (result.outcome, result.account.valid, result.account.flagged) == ("completed", 12, {"malformed": 3})


async def test_a_chain_without_a_margin_is_resumed_after_its_last_step(tmp_path: Path) -> None:
    task = Drift(length=20)
    strategy = SelfConsistency(samples=5)
    options: dict[str, Any] = {"models": "sim:perfect@error=0.3", "strategy": strategy, "speculate": False}
    undisturbed = await run(task, **options, runs_dir=None)
    stopped = await run(task, **options, concurrency=1, max_calls=undisturbed.calls // 2, run_id="a", runs_dir=tmp_path)
    resumed = await run(task, **options, run_id="a", runs_dir=tmp_path, max_calls=None)
    assert (stopped.outcome, resumed.calls) == ("stopped", undisturbed.calls)
    assert resumed.account.ballots_sha256 == undisturbed.account.ballots_sha256
