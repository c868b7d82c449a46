"""Texts of a measurement, read leniently, strictly and with caps of their length."""

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
def test_wrong_replies_are_counted_by_reading_by_cap_and_by_length() -> None:
    def replies(number: int, right: int) -> list[str]:
        wrong = f"{'Or else? ' * 200}\nnumber = {(right + 1) % 1009}"  # each time the same
        rambles = [wrong, wrong] if number % 5 == 0 else [f"number = {right}"] * 2
        return [*rambles, f"number = {right}", f"**number = {right}**"]

    found = flags_of(recorded(replies))
    lenient, strict, *caps = found.readings
    assert (lenient.valid, lenient.wrong) == (400, 40)
    assert (strict.valid, strict.wrong) == (300, 40), "bold text is no line of the form"
    assert (lenient.collisions, strict.collisions) == (20, 20)
    kept = {(each.valid, each.wrong, each.collisions) for each in caps}
    assert {(360, 0, 0), (260, 0, 0)} <= kept, "a cap flags the 40 long replies, read leniently and strictly"
    assert (sum(each.replies for each in found.lengths), found.lengths[-1].wrong) == (400, 40)
