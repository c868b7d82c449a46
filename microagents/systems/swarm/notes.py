"""What a swarm notes of its work on one problem: its plans, the picked replies with reasons, the faults, and the cost of each step."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct, field

from microagents.elections.election import Flagged
from microagents.systems.swarm.steps import StepResult
from microagents.work.notes import Note, Records


class SwarmTurn(Struct, kw_only=True):
    """One turn: the replies of workers, the judge's choice and the check."""

    at: str
    workers: int = 0
    """Number of workers that were asked."""
    judged: int = 0
    """Number of times that the judge was asked."""
    flags: dict[str, int] = field(default_factory=dict)
    """Number of discarded replies, by red flag."""
    picked: Raw | None = None
    """The reply that was picked, as JSON; None while there is none."""
    by: str = ""
    """The persona that gave it first."""
    reason: str = ""
    """The judge's reason; empty if there was nothing to choose."""
    copies: int = 0
    """Number of workers that gave it."""
    passed: bool | None = None
    """Whether it passed; None if it was not checked."""
    feedback: str = ""
    calls: int = 0
    cost_usd: float | None = 0.0


class StepRecord(Struct, kw_only=True):
    """A step of a plan, with one turn for each time that it was done."""

    number: int
    step: str
    turns: list[SwarmTurn] = field(default_factory=list)
    calls: int = 0
    cost_usd: float | None = 0.0

    @property
    def last(self) -> SwarmTurn | None:
        """Last turn with a valid result."""
        return next((turn for turn in reversed(self.turns) if turn.picked is not None), None)

    @property
    def result(self) -> str:
        """Result that later steps see."""
        if self.last is None or self.last.picked is None:
            return ""
        return msgspec.json.decode(self.last.picked, type=StepResult).result


class LoopRecord(Struct, kw_only=True):
    """One loop: the plan, its steps, and the whole."""

    number: int
    """From 1."""
    plan: SwarmTurn
    steps: list[StepRecord] = field(default_factory=list)
    """Steps that have begun."""
    whole: SwarmTurn | None = None
    calls: int = 0
    """Number of samples and ballots of this loop and of its summaries."""
    cost_usd: float | None = 0.0

    @property
    def at(self) -> str:
        """Its place."""
        return f"loop/{self.number - 1}"

    @property
    def answer(self) -> Raw | None:
        """Answer to the problem, as JSON."""
        if self.whole is None:
            return None
        return self.whole.picked

    @property
    def passed(self) -> bool:
        """Whether there is an answer without a found fault."""
        return self.whole is not None and self.whole.picked is not None and self.whole.passed is not False

    @property
    def unverified(self) -> list[StepRecord]:
        """Steps whose last result did not pass."""
        return [step for step in self.steps if step.last is not None and step.last.passed is False]

    @property
    def lesson(self) -> str:
        """Faults, for the next loop."""
        said = [
            f"step {each.number} ({each.step}) did not pass: {each.last.feedback}"
            for each in self.unverified
            if each.last
        ]
        if self.answer is not None:
            if self.passed or self.whole is None:
                return ""
            return "\n".join([*said, self.whole.feedback])
        failed = next((each for each in self.steps if each.last is None), None)
        if self.plan.picked is None:
            said.append("no valid plan was proposed")
        elif failed is not None:
            said.append(f"step {failed.number} ({failed.step}) had no valid result")
        else:
            said.append("no valid answer was composed")
        return "\n".join(said)


class SwarmRecord(Struct, frozen=True, kw_only=True):
    """Recorded work on one problem."""

    problem: str
    loops: tuple[LoopRecord, ...]


class SwarmNotes(Struct, kw_only=True):
    """Work on one problem."""

    problem: str
    workers: Sequence[int]
    """Numbers of workers that a turn may ask, the first ones first."""
    personas: Sequence[str]
    """Names of the personas, through which the workers of a turn cycle."""
    loops: list[LoopRecord] = field(default_factory=list)

    def drawn(self, notes: Sequence[Note], records: Records) -> SwarmRecord:  # noqa: ARG002 - there is one
        """Return the loops that have begun, with the facts that only the records have: flags, costs, and the author of the picked reply."""
        for loop in self.loops:
            turns = [loop.plan, *(turn for step in loop.steps for turn in step.turns)]
            for turn in [*turns, *([loop.whole] if loop.whole else [])]:
                self._fill_in(turn, records)
            for step in loop.steps:
                step.turns = [turn for turn in step.turns if turn.workers]
                step.calls, step.cost_usd = records.spent(f"{loop.at}/step/{step.number}")
            loop.steps = [step for step in loop.steps if step.turns]
            loop.whole = loop.whole if loop.whole and loop.whole.workers else None
            loop.calls, loop.cost_usd = records.spent(loop.at)
        return SwarmRecord(problem=self.problem, loops=tuple(loop for loop in self.loops if loop.plan.workers))

    def _fill_in(self, turn: SwarmTurn, records: Records) -> None:
        picked = None if turn.picked is None else bytes(turn.picked)
        for size in self.workers:
            ballots = records.ballots(f"{turn.at}/workers/{size}")
            if not ballots:
                break
            for ballot in ballots:
                if isinstance(ballot, Flagged):
                    turn.flags[ballot.flag] = turn.flags.get(ballot.flag, 0) + 1
                elif ballot.value == picked:
                    turn.by = turn.by or self.personas[(turn.workers + ballot.seq) % len(self.personas)]
            turn.workers = size
        turn.calls, turn.cost_usd = records.spent(turn.at)
