"""Red flags by the texts of a measurement: their gains and their costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from microagents.models.simulation.scripted import ScriptLine
from microagents.tasks.drift import Drift
from tests.papers.flags import FlagFindings, flags_in
from tests.studies.measured import only


def recorded(replies: Callable[[int, int], Sequence[str]], length: int = 100) -> str:
    """A file of replies to each step of a drift, given its number and the right answer."""
    task, lines = Drift(length=length), []
    state = task.start()
    for number in range(length):
        state = task.advance(state, task.oracle(state))
        texts = replies(number, state.number)
        lines += [
            ScriptLine(path=f"0/step/{number}/{block}", seq=seq, text=text)
            for block, drawn in (("0-2", texts[:2]), ("2-4", texts[2:]))
            for seq, text in enumerate(drawn)
        ]
    Path("replies.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(lines))
    return "scripted:replies.jsonl"


def flags_of(model: str) -> FlagFindings:
    task = Drift(length=100)
    return flags_in(Path("runs"), task, only(model, task=task, draws=4))


@pytest.mark.slow
def test_a_cap_is_advised_where_long_replies_are_wrong_and_what_flags_cost_is_counted() -> None:
    def replies(number: int, right: int) -> list[str]:
        wrong = f"{'Or else? ' * 200}\nnumber = {(right + 1) % 1009}"  # each time the same
        rambles = [wrong, wrong] if number % 5 == 0 else [f"number = {right}"] * 2
        return [*rambles, f"number = {right}", f"**number = {right}**"]

    found = flags_of(recorded(replies))
    lenient, strict, *caps = found.readings
    assert (lenient.valid, lenient.wrong, lenient.right_flagged) == (400, 40, 0)
    assert (strict.valid, strict.wrong, strict.right_flagged) == (300, 40, 100), "bold text is no line of the form"
    short = next(each for each in caps if each.gains)
    assert (lenient.collisions, strict.collisions, short.collisions, short.wrong) == (20, 20, 0, 0)
    assert (sum(each.replies for each in found.lengths), found.lengths[-1].wrong) == (400, 40)
    assert found.advice.startswith("the strict form costs right replies and shows no gain; flag replies of more than ")


def test_no_cap_is_advised_where_long_replies_are_right_as_often_as_short_ones() -> None:
    def replies(number: int, right: int) -> list[str]:
        return [f"{'So. ' * (7 * number % 50)}\nnumber = {(right + (number % 10 == each)) % 1009}" for each in range(4)]

    found = flags_of(recorded(replies))
    assert not any(each.gains for each in found.readings)
    assert found.advice == "the strict form shows no gain, and costs nothing; no length flag gains: leave it off"
