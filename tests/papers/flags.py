"""Gains and costs of red flags: the same replies read leniently, strictly, and with caps of their length (MAKER, section 4.5)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import log
from pathlib import Path
from random import Random
from types import NoneType
from typing import Any, NamedTuple

from msgspec import Struct

from microagents.base.errors import InvalidUsage
from microagents.base.user_code import called
from microagents.elections.election import Flagged
from microagents.elections.red_flags import MALFORMED, TOO_LONG
from microagents.journal.reading import Reader
from microagents.journal.sharded import reader_of
from microagents.replies.chat import Reading, Reply
from microagents.replies.parsing import Malformed, parse
from microagents.studies.measured import ModelMeasurement
from microagents.studies.measuring import FIRST, blocks
from microagents.task import ChainTask

QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99)
"""Quantiles of the lengths of all texts that are tried as caps."""
CHARS_PER_TOKEN = 4
"""For the cap of the task itself, which is in tokens. The journal has only texts."""
RESAMPLINGS = 400
MOST_AGAINST = 2
"""Number of resamplings at most in which what is advised gains nothing: 0.5 %, since several caps are tried."""
READ_AGAIN = (TOO_LONG, MALFORMED)
"""Flags of the run that a reading judges anew. A reply with another one, such as one that was cut off, is not a strict reply."""


class FlaggedReading(Struct, frozen=True, kw_only=True):
    """The replies as one reading takes them."""

    name: str
    most_chars: int | None
    """Longer texts are flagged; None for no cap."""
    valid: int
    wrong: int
    """Among the valid ones."""
    right_flagged: int
    """Number of flagged replies that are right if they are read leniently: what the flags cost."""
    collisions: int
    """Number of steps whose first two votes are both wrong (MAKER, figure 9b)."""
    information: float
    """Information of a call about the right reply, in nats, flagged calls included: v (2p - 1) ln(p / (1 - p)). The calls of a vote with
    given errors are inversely proportional to it."""
    gains: bool
    """Whether a call surely gives more information than in the reading it is compared with: lenient for strict, and the same for caps."""


class LengthBin(Struct, frozen=True, kw_only=True):
    """Replies of similar length (MAKER, figure 9a)."""

    most_chars: int
    """Length of the longest one; those of the bin before are shorter."""
    replies: int
    wrong: int
    """Number of replies that are wrong or unreadable if they are read leniently."""


class FlagFindings(Struct, frozen=True, kw_only=True):
    """Findings about flags for one model."""

    replies: int
    readings: tuple[FlaggedReading, ...]
    """Lenient, strict, and each of them with every cap."""
    lengths: tuple[LengthBin, ...]
    """From the shortest replies to the longest."""
    advice: str


Vote = tuple[Any, bool]
"""A vote, None for a flagged reply; and whether it is right."""


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
    own = (task.sampling.flag_above_tokens or 0) * CHARS_PER_TOKEN
    caps = sorted({*(lengths[int(share * (len(lengths) - 1))] for share in QUANTILES), *([own] if own else [])})
    taken = {name: [[getattr(each, name) for each in step] for step in steps] for name in ("lenient", "strict")}
    right_read = sum(is_right for step in taken["lenient"] for _, is_right in step)
    readings = [_judged(name, None, taken[name], taken["lenient"], right_read) for name in taken]
    for name, cap in product(taken, caps):
        kept = [
            [vote if each.chars <= cap else (None, False) for each, vote in zip(step, votes, strict=True)]
            for step, votes in zip(steps, taken[name], strict=True)
        ]
        readings.append(_judged(f"{name}, to {cap:,}", cap, kept, taken[name], right_read))
    return FlagFindings(
        replies=len(lengths), readings=tuple(readings), lengths=tuple(_by_length(steps)), advice=_advice(readings)
    )


def _by_length(steps: Sequence[Sequence[_Read]]) -> Iterator[LengthBin]:
    """Count the wrong replies between the quantiles of the lengths."""
    replies = sorted((each.chars, not each.lenient[1]) for step in steps for each in step)
    after = 0
    for most in sorted({replies[int(share * (len(replies) - 1))][0] for share in (*QUANTILES, 1)}):
        before, after = after, bisect_right(replies, (most, True))
        wrong = sum(is_wrong for _, is_wrong in replies[before:after])
        yield LengthBin(most_chars=most, replies=after - before, wrong=wrong)


def _advice(readings: Sequence[FlaggedReading]) -> str:
    lenient, strict, *others = readings
    capped = [each for each in others if each.name.startswith(strict.name)]
    if lenient.information > strict.information and lenient.right_flagged < strict.right_flagged and not strict.gains:
        form = "the strict form costs right replies and shows no gain"
    else:
        form = f"the strict form {'gains' if strict.gains else 'shows no gain, and costs nothing'}"
    best = max((each for each in capped if each.gains), key=lambda each: each.information, default=None)
    if best is None:
        return f"{form}; no length flag gains: leave it off"
    more = best.information / strict.information - 1 if strict.information else float("inf")
    return f"{form}; flag replies of more than {best.most_chars:,} characters: a call tells {more:.1%} more"


Taken = Sequence[Sequence[Vote]]
"""The replies of each step."""
Counts = Sequence[tuple[int, int, int]]
"""The drawn, valid and right replies of each step."""


def _judged(name: str, cap: int | None, taken: Taken, other: Taken, right_read: int) -> FlaggedReading:
    counts = _counts(taken)
    _, valid, right = map(sum, zip(*counts, strict=True))
    firsts = [[is_right for vote, is_right in step if vote is not None][:FIRST] for step in taken]
    return FlaggedReading(
        name=name,
        most_chars=cap,
        valid=valid,
        wrong=valid - right,
        right_flagged=max(0, right_read - right),
        collisions=firsts.count([False] * FIRST),
        information=_information(counts),
        gains=_gains(counts, _counts(other)),
    )


def _counts(taken: Taken) -> Counts:
    return [
        (len(step), sum(vote is not None for vote, _ in step), sum(is_right for _, is_right in step)) for step in taken
    ]


def _information(counts: Counts) -> float:
    drawn, valid, right = map(sum, zip(*counts, strict=True))
    p = (right + 0.5) / (valid + 1)  # half a wrong reply more than seen: none seen is not none
    if 2 * p > 1:
        return valid / drawn * (2 * p - 1) * log(p / (1 - p))
    return 0.0


def _gains(counts: Counts, others: Counts) -> bool:
    """Return whether a reading gives more information than another, by the bootstrap over steps."""
    if counts == others:
        return False
    rng, both, against = Random(0), list(zip(counts, others, strict=True)), 0
    for _ in range(RESAMPLINGS):
        mine, theirs = zip(*rng.choices(both, k=len(both)), strict=True)
        against += _information(mine) <= _information(theirs)
        if against > MOST_AGAINST:
            return False
    return True


def _steps(reader: Reader, task: ChainTask[Any, Any], drawn: Mapping[int, int]) -> Iterator[list[_Read]]:
    """Read the samples of each step."""
    kind = task.reply_type()

    def read(text: str, reading: Reading, state: Any, right: Reply, number: int) -> Vote:
        try:
            reply = parse(text, kind, task.format, reading)
        except Malformed:
            return None, False
        vote, verdict = task.vote_of(reply), called(task.correct, state, reply, gives=(bool, NoneType), at=number)
        return vote, vote == task.vote_of(right) if verdict is None else bool(verdict)

    for number, state, right in _states(task, kind):
        if number not in drawn:
            continue
        step = []
        for at in (f"0/step/{number}/{start}-{end}" for start, end in blocks(drawn[number])):
            recorded, texts = reader.decision_at(at), {each.seq: each.text for each in reader.texts_at(at)}
            for ballot in () if recorded is None else recorded.ballots:
                if (text := texts.get(ballot.seq)) is None:
                    raise InvalidUsage(
                        f"the text of sample {ballot.seq} of {at} is not in the journal; begin another run"
                    )
                is_read = not isinstance(ballot, Flagged) or ballot.flag in READ_AGAIN
                lenient = read(text, "last", state, right, number)
                strict = read(text, "strict", state, right, number) if is_read else (None, False)
                step.append(_Read(len(text), lenient, strict))
        yield step


def _states(task: ChainTask[Any, Any], kind: type[Reply]) -> Iterator[tuple[int, Any, Reply]]:
    """Walk the oracle's states, with its replies."""
    state, number = called(task.start), 0
    while not called(task.done, state, gives=bool, at=number):
        right = called(task.oracle, state, gives=kind, at=number)
        yield number, state, right
        state, number = called(task.advance, state, right, at=number), number + 1
