"""What recursive decomposition is compared with: one call, and the answer that most of many calls give."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from microagents import Result, run
from microagents.chat import write
from microagents.models.scripted import Line
from microagents.strategies.self_consistency import SelfConsistency
from microagents.tasks.ask import Answer, Ask
from microagents.tasks.multiplication import Multiplication


async def by_self_consistency(word: str) -> Result:
    """The answer from replies that give these letters, and none where there is a question mark."""
    replies = [Answer(answer=letter) if letter != "?" else None for letter in word]
    model = scripted(["well" if reply is None else write(reply, "json") for reply in replies])
    return await run(Ask(text="Which letter?"), models=model, strategy=SelfConsistency(samples=len(word)))


def scripted(texts: list[str]) -> str:
    lines = [Line(path="0/answer", seq=seq, text=text) for seq, text in enumerate(texts)]
    Path("script.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(lines))
    return "scripted:script.jsonl"


@pytest.mark.parametrize(
    ("word", "answer", "marked"),
    [
        ("AAB", "A", False),
        ("ABB", "B", False),
        ("ABC", "A", True),
        ("CBBAA", "B", True),
        ("?A?", "A", True),
        ("A?A", "A", False),
    ],
)
async def test_self_consistency_takes_the_answer_that_is_given_most_often_and_marks_it_where_it_is_no_majority(
    word: str, answer: str, *, marked: bool
) -> None:
    result = await by_self_consistency(word)
    assert result.value == {"answer": {"answer": answer}, "correct": None, "argmax": ["0/answer"] if marked else []}
    assert result.calls == len(word)


async def test_many_answers_of_which_none_can_be_read_are_undecided() -> None:
    result = await by_self_consistency("????")
    assert (result.outcome, result.account.undecided_at) == ("undecided", ("0/answer",))


async def test_a_single_shot_is_one_call_and_a_reply_that_cannot_be_read_is_undecided() -> None:
    result = await run(Multiplication(), models="sim:perfect", strategy="single-shot")
    assert (result.outcome, result.calls, result.account.steps) == ("completed", 1, 1)
    undecided = await run(Ask(text="Why?"), models=scripted([""]), strategy="single-shot")
    assert (undecided.outcome, undecided.calls) == ("undecided", 1)


async def test_a_problem_is_solved_recursively_where_no_strategy_is_named() -> None:
    result = await run(Multiplication(digits=2), models="sim:perfect")
    assert result.strategy == "recursive"
