"""The recorded work of a swarm on one problem: its plans, who was picked and why, what did not pass, and what each step cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from microagents.elections.election import Ballot, Flagged, total_usd
from microagents.journal.messages import OpenElection, Recalled
from microagents.problems.candidates import labels_of, merged
from microagents.problems.steps import MORE, Check, Pick, Plan, StepResult
from microagents.replies.chat import A, Reply, decoder_of


class SwarmTurn(Struct, frozen=True, kw_only=True):
    """One turn: the replies of workers, the judge's choice and the check."""

    at: str
    workers: int
    """Number of workers that were asked."""
    judged: int
    """Number of times that the judge was asked."""
    flags: dict[str, int]
    """Number of discarded replies, by red flag."""
    picked: Raw | None
    """The reply that was picked, as JSON; None while there is none."""
    by: str = ""
    """The persona that gave it first."""
    reason: str = ""
    """The judge's reason; empty where there was nothing to choose."""
    copies: int = 0
    """Number of workers that gave it."""
    passed: bool | None = None
    """Whether it passed; None where it was not checked."""
    feedback: str = ""
    calls: int = 0
    cost_usd: float | None = 0.0


class StepRecord(Struct, frozen=True, kw_only=True):
    """A step of a plan, with one turn for each time that it was done."""

    number: int
    step: str
    turns: tuple[SwarmTurn, ...]
    calls: int
    cost_usd: float | None


class LoopRecord(Struct, frozen=True, kw_only=True):
    """One loop: the plan, its steps, and the whole."""

    number: int
    """From 1."""
    plan: SwarmTurn
    steps: tuple[StepRecord, ...] = ()
    """Those that have begun."""
    whole: SwarmTurn | None = None
    calls: int = 0
    """Number of samples and ballots of this loop, those of its summaries included."""
    cost_usd: float | None = 0.0


class SwarmRecord(Struct, frozen=True, kw_only=True):
    """The recorded work on one problem."""

    problem: str
    loops: tuple[LoopRecord, ...]


def swarm_record(
    of_input: int,
    problem: str,
    answer: type[Reply],
    rows: Mapping[str, Recalled],
    open_elections: Iterable[OpenElection],
    *,
    workers: Sequence[int],
    names: Sequence[str],
) -> SwarmRecord:
    """Read the loops of one input from a journal.

    Args:
        of_input: number of the input.
        problem: its text.
        answer: class of its answers.
        rows: decisions and answers by path.
        open_elections: elections without a verdict, with their paid samples.
        workers: the numbers of workers of a turn.
        names: names of the personas, in their order.
    """
    records = _Records(of_input, rows, {each.id.path: each.ballots for each in open_elections}, workers, names)
    loops: list[LoopRecord] = []
    while (loop := records.loop(len(loops), answer)) is not None:
        loops.append(loop)
    return SwarmRecord(problem=problem, loops=tuple(loops))


class _Records:
    def __init__(
        self,
        of_input: int,
        rows: Mapping[str, Recalled],
        bought: Mapping[str, Sequence[Ballot | Flagged]],
        workers: Sequence[int],
        names: Sequence[str],
    ) -> None:
        self._input = of_input
        self._rows = rows
        self._bought = bought
        self._workers = workers
        self._names = names

    def loop(self, number: int, answer: type[Reply]) -> LoopRecord | None:
        """The records of a loop; None where it has not begun."""
        at = f"loop/{number}"
        plan = self._turn(f"{at}/plan", Plan)
        if plan is None:
            return None
        texts = () if plan.picked is None else decoder_of(Plan).decode(plan.picked).steps
        steps = [step for place, text in enumerate(texts, 1) if (step := self._step(at, place, text)) is not None]
        calls, cost_usd = self._spent(f"{at}/")
        whole = self._turn(f"{at}/whole", answer)
        return LoopRecord(number=number + 1, plan=plan, steps=tuple(steps), whole=whole, calls=calls, cost_usd=cost_usd)

    def _step(self, loop: str, number: int, text: str) -> StepRecord | None:
        at = f"{loop}/step/{number}"
        turns: list[SwarmTurn] = []
        while (turn := self._turn(f"{at}/{len(turns)}", StepResult)) is not None:
            turns.append(turn)
        if not turns:
            return None
        calls, cost_usd = self._spent(f"{at}/")
        return StepRecord(number=number, step=text, turns=tuple(turns), calls=calls, cost_usd=cost_usd)

    def _turn(self, at: str, reply: type[Reply]) -> SwarmTurn | None:
        """The records of a turn; None where it has not begun."""
        decode = decoder_of(reply).decode
        replies: list[Any] = []
        by: list[str] = []
        flags: dict[str, int] = {}
        asked, judged, reason, chosen = 0, 0, "", None
        for size in self._workers:
            ballots = self._ballots(f"{at}/workers/{size}")
            if not ballots:
                break
            for ballot in ballots:
                if isinstance(ballot, Flagged):
                    flags[ballot.flag] = flags.get(ballot.flag, 0) + 1
                else:
                    replies.append(decode(ballot.value))
                    by.append(self._names[(asked + ballot.seq) % len(self._names)])
            asked = size
            pick = self._value(f"{at}/judge/{size}", Pick)
            if pick is not None:
                judged += 1
                reason, chosen = pick.reason, pick.vote()
                if chosen != MORE:
                    break
        if not asked:
            return None
        candidates = merged(replies)
        texts = [msgspec.json.encode(each.reply) for each in candidates]
        labels = labels_of(texts) if texts else []
        place = labels.index(chosen) if chosen in labels else 0 if len(candidates) == 1 and chosen is None else None
        check = self._value(f"{at}/check", Check)
        calls, cost_usd = self._spent(f"{at}/")
        return SwarmTurn(
            at=at,
            workers=asked,
            judged=judged,
            flags=flags,
            picked=None if place is None else Raw(texts[place]),
            by="" if place is None else by[next(n for n, each in enumerate(replies) if each.vote() == candidates[place].reply.vote())],
            reason=reason,
            copies=0 if place is None else candidates[place].copies,
            passed=None if check is None else check.passed,
            feedback="" if check is None else check.feedback,
            calls=calls,
            cost_usd=cost_usd,
        )

    def _ballots(self, at: str) -> Sequence[Ballot | Flagged]:
        path = f"{self._input}/{at}"
        return self._rows[path].ballots if path in self._rows else self._bought.get(path, ())

    def _value(self, at: str, reply: type[A]) -> A | None:
        row = self._rows.get(f"{self._input}/{at}")
        return None if row is None or row.value is None else decoder_of(reply).decode(row.value)

    def _spent(self, below: str) -> tuple[int, float | None]:
        """Number and cost of all samples and ballots below a place."""
        prefix = f"{self._input}/{below}"
        rows = [row for path, row in self._rows.items() if path.startswith(prefix)]
        bought = [ballot for path, ballots in self._bought.items() if path.startswith(prefix) for ballot in ballots]
        calls = sum(len(row.ballots) for row in rows) + len(bought)
        return calls, total_usd([*(row.cost_usd for row in rows if row.ballots), *(each.cost_usd for each in bought)])
