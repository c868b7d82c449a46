"""Errors of replies by their reading and their length: the same texts read leniently, strictly, and with caps (MAKER, figure 9)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from microagents.base.errors import InvalidUsage
from microagents.base.user_code import called
from microagents.elections.election import Flagged
from microagents.elections.red_flags import MALFORMED, TOO_LONG
from microagents.journal.reading import Reader
from microagents.journal.sharded import reader_of
from microagents.replies.parsing import Malformed, parse
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import Reading
from microagents.studies.measured import ModelMeasurement
from microagents.studies.measuring import FIRST, blocks
from microagents.task import ChainTask

QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99)
"""Quantiles of the lengths of all texts that are tried as caps."""
CHARS_PER_TOKEN = 4
"""For the cap of the task itself, which is in tokens. The journal has only texts."""
READ_AGAIN = (TOO_LONG, MALFORMED)
"""Flags of the run that a reading judges anew. A reply with another one, such as one that was cut off, is not a strict reply."""


class FlaggedReading(NamedTuple):
    """The replies as one reading takes them."""

    name: str
    most_chars: int | None
    """Longer texts are flagged; None for no cap."""
    valid: int
    wrong: int
    """Among the valid ones."""
    collisions: int
    """Number of steps whose first two votes are both wrong (MAKER, figure 9b)."""


class LengthBin(NamedTuple):
    """Replies of similar length (MAKER, figure 9a)."""

    most_chars: int
    """Length of the longest one; those of the bin before are shorter."""
    replies: int
    wrong: int
    """Number of replies that are wrong or unreadable if they are read leniently."""


class FlagFindings(NamedTuple):
    """Findings about flags for one model."""

    readings: list[FlaggedReading]
    """Lenient, strict, and each of them with every cap."""
    lengths: list[LengthBin]
    """From the shortest replies to the longest."""


Vote = bool | None
"""Whether a vote is right; None for a flagged reply."""


class _Read(NamedTuple):
    """A reply, read both ways."""

    chars: int
    lenient: Vote
    strict: Vote


def flags_in(runs_dir: Path, task: ChainTask[Any, Any], found: ModelMeasurement) -> FlagFindings:
    """Read the texts of a measurement again.

    Args:
        runs_dir: the folder of its journal.
        task: the task.
        found: the measurement.

    Raises:
        InvalidUsage: the journal has not all texts.
    """
    with reader_of(runs_dir, found.run_id) as reader:
        steps = list(_steps(reader, task, {each.number: each.drawn for each in found.steps}))
    lengths = sorted(each.chars for step in steps for each in step)
    if not lengths:
        raise InvalidUsage("the model gave no reply, so no flag can be judged")
    caps = {lengths[int(share * (len(lengths) - 1))] for share in QUANTILES}
    if task.sampling.flag_above_tokens:
        caps.add(task.sampling.flag_above_tokens * CHARS_PER_TOKEN)
    taken = {name: [[getattr(each, name) for each in step] for step in steps] for name in ("lenient", "strict")}
    readings = [_judged(name, None, votes) for name, votes in taken.items()]
    for name, cap in product(taken, sorted(caps)):
        kept = [[getattr(each, name) if each.chars <= cap else None for each in step] for step in steps]
        readings.append(_judged(f"{name}, to {cap:,}", cap, kept))
    return FlagFindings(readings, list(_by_length(steps)))


def _by_length(steps: Sequence[Sequence[_Read]]) -> Iterator[LengthBin]:
    """Count the wrong replies between the quantiles of the lengths."""
    replies = sorted((each.chars, not each.lenient) for step in steps for each in step)
    after = 0
    for most in sorted({replies[int(share * (len(replies) - 1))][0] for share in (*QUANTILES, 1)}):
        before, after = after, bisect_right(replies, (most, True))
        wrong = sum(is_wrong for _, is_wrong in replies[before:after])
        yield LengthBin(most, after - before, wrong)


def _judged(name: str, cap: int | None, taken: Sequence[Sequence[Vote]]) -> FlaggedReading:
    votes = [[each for each in step if each is not None] for step in taken]
    firsts = [step[:FIRST] for step in votes]
    return FlaggedReading(
        name=name,
        most_chars=cap,
        valid=sum(map(len, votes)),
        wrong=sum(step.count(False) for step in votes),
        collisions=firsts.count([False] * FIRST),
    )


def _steps(reader: Reader, task: ChainTask[Any, Any], drawn: Mapping[int, int]) -> Iterator[list[_Read]]:
    """Read the samples of each step."""
    kind = task.reply_type()

    def read(text: str, reading: Reading, state: Any, number: int) -> Vote:
        try:
            reply = parse(text, kind, task.format, reading)
        except Malformed:
            return None
        is_right: bool = called(task.correct, state, reply, gives=bool, at=number)
        return is_right

    for number, state in _states(task, kind):
        if number not in drawn:
            continue
        step = []
        for at in (f"0/step/{number}/{start}-{end}" for start, end in blocks(drawn[number])):
            recorded = reader.decision_at(at)
            if recorded is None:
                continue
            texts = reader.texts_at(at, recorded.question_digest)
            for ballot in recorded.ballots:
                text, _ = texts.get(ballot.seq, (None, False))
                if text is None:
                    raise InvalidUsage(
                        f"the text of sample {ballot.seq} of {at} is not in the journal; begin another run"
                    )
                lenient, strict = read(text, "last", state, number), None
                if not isinstance(ballot, Flagged) or ballot.flag in READ_AGAIN:
                    strict = read(text, "strict", state, number)
                step.append(_Read(len(text), lenient, strict))
        yield step


def _states(task: ChainTask[Any, Any], kind: type[Reply]) -> Iterator[tuple[int, Any]]:
    """Walk the oracle's states."""
    state, number = called(task.start), 0
    while not called(task.done, state, gives=bool, at=number):
        yield number, state
        right = called(task.oracle, state, gives=kind, at=number)
        state, number = called(task.advance, state, right, at=number), number + 1
