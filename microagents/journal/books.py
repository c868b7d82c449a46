"""What the records of a run add up to: its account, how far each input is, and the digests of what was decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from hashlib import sha256
from typing import Any

from msgspec import Struct, field, structs

from microagents.elections.election import ESCALATED, Ballot, Flagged, input_of
from microagents.journal.digests import ChainDigest, TreeDigest
from microagents.journal.messages import (
    Account,
    Checkpoint,
    InputEnding,
    InputOutcome,
    Record,
    RecordAnswer,
    RecordCalls,
    RecordDecision,
    RecordLost,
    RecordProgress,
    RecordReply,
    RecordSample,
)

Digest = ChainDigest | TreeDigest


class Progress(Struct, kw_only=True):
    """How far an input is."""

    done: int = 0
    total: int | None = None
    reached: Checkpoint | None = None


class UndecidedElection(Struct, frozen=True, kw_only=True):
    """What was counted in vain at a place; it leaves the books again where a later decision takes over."""

    valid: int
    flagged: dict[str, int]
    reply: str
    """Address of the reply class."""
    choices: tuple[str, ...] = ()
    """The votes that a person may decide for; empty where any will do."""
    after: str
    """The digest of what its input had decided before it; empty where no order is kept."""


class Totals(Struct, kw_only=True):
    """What is kept of the books beside the digests, when they are closed."""

    account: Account = field(default_factory=Account)
    in_flight: dict[str, int] = {}
    """Calls in flight, by the name of who sent them."""
    undecided: dict[str, UndecidedElection] = {}
    """By path."""
    out_of_order: bool = False
    """Whether something was decided at a place that the work had gone on from: then only all decisions, in order, give the digests."""


class Books:
    """Adds up records. Whoever feeds it drops a second decision at one path."""

    def __init__(self, inputs: int, *, in_order: bool, totals: Totals | None = None) -> None:
        self.totals = Totals() if totals is None else totals
        self.progress = [Progress() for _ in range(inputs)]
        self.ended: list[InputOutcome | None] = [None] * inputs
        """How inputs among many ended; None where one has not."""
        self._in_order = in_order
        kind = ChainDigest if in_order else TreeDigest
        self.decisions: list[Digest] = [kind() for _ in range(inputs)]
        self.ballots: list[Digest] = [kind() for _ in range(inputs)]
        # Added up as they change: a commit must not cost more the more inputs there are.
        self._steps = self._total_steps = self._with_total = 0
        self._ended_as: Counter[InputOutcome | None] = Counter()
        self._takers: dict[type[Record], Callable[[Any], None]] = {
            RecordCalls: self._take_calls,
            RecordLost: lambda record: self.lose(record.source),
            RecordDecision: self._decide,
            RecordProgress: self._take_progress,
            RecordAnswer: lambda record: self.take_in_answer(record.id.path, record.value),
            RecordSample: lambda _: None,
            RecordReply: lambda _: None,
            InputEnding: lambda record: self.end_input(record.input, record.outcome),
        }

    def add(self, record: Record) -> None:
        """Take in the next record."""
        self._takers[type(record)](record)

    def _take_progress(self, record: RecordProgress) -> None:
        self.move(record.input, max(self.progress[record.input].done, record.done), record.total)

    def move(self, of_input: int, done: int, total: int | None) -> None:
        """Note how far an input is."""
        progress = self.progress[of_input]
        self._steps += done - progress.done
        self._total_steps += (total or 0) - (progress.total or 0)
        self._with_total += (total is not None) - (progress.total is not None)
        progress.done, progress.total = done, total

    def end_input(self, of_input: int, outcome: InputOutcome | None) -> None:
        """Note how an input among many ended; None where it is to be done again."""
        self._ended_as[self.ended[of_input]] -= 1
        self._ended_as[outcome] += 1
        self.ended[of_input] = outcome

    def _take_calls(self, record: RecordCalls) -> None:
        account, in_flight, usage = self.totals.account, self.totals.in_flight, record.usage
        in_flight[record.source] = in_flight.get(record.source, 0) + record.sent - record.ended
        account.calls += record.billed
        account.input_tokens += usage.input_tokens or 0
        account.output_tokens += usage.output_tokens or 0
        account.cost_usd = None if usage.cost_usd is None or account.cost_usd is None else account.cost_usd + usage.cost_usd

    def lose(self, source: str) -> None:
        """What was in flight from there may have to be paid for, and is bought again."""
        self.totals.account.lost_in_flight += self.totals.in_flight.pop(source, 0)

    def _decide(self, record: RecordDecision) -> None:
        account, verdict, path = self.totals.account, record.verdict, record.id.path
        valid, flagged = _counted(verdict.ballots)
        before = self.totals.undecided.pop(path, None) or self.totals.undecided.get(path.removesuffix(ESCALATED))
        if verdict.outcome == "undecided":
            self.totals.undecided[path] = UndecidedElection(
                valid=valid, flagged=flagged, reply=record.reply, choices=record.choices, after=self._so_far(record.id.input)
            )
            return
        if before is not None and before.after != self._so_far(record.id.input):
            self.totals.out_of_order = True
        account.valid += valid
        for flag, count in flagged.items():
            account.flagged[flag] = account.flagged.get(flag, 0) + count
        if record.settled is not None:
            account.settled_at[path] = record.settled
        if verdict.outcome != "sampled":
            account.decided += 1
            account.votes += valid
        if record.correct is not None:
            account.errors = (account.errors or 0) + (not record.correct)
        self.take_in(path, verdict.outcome, verdict.winner, verdict.ballots)
        if record.done is not None and verdict.winner is not None:
            progress = self.progress[record.id.input]
            self.move(record.id.input, max(progress.done, record.done), progress.total)
            progress.reached = Checkpoint(done=record.done, state=record.state, value=verdict.winner)

    def _so_far(self, of_input: int) -> str:
        return self.decisions[of_input].digest().hex() if self._in_order else ""

    def take_in(self, path: str, outcome: str, winner: bytes | None, ballots: Sequence[Ballot | Flagged]) -> None:
        """Take a decision into the digests."""
        of_input = input_of(path)
        self.decisions[of_input].add(path, outcome, winner)
        # What samples cost is not what was decided, and a journal does not keep it for each of them.
        self.ballots[of_input].add(path, [structs.replace(ballot, cost_usd=None) for ballot in ballots])

    def take_in_answer(self, path: str, value: bytes) -> None:
        """Take the answer to a `once` into the digest of decisions."""
        self.decisions[input_of(path)].add(path, "once", value)

    def account(self) -> Account:
        """The account so far, a copy."""
        account, undecided = copy(self.totals.account), self.totals.undecided
        account.in_flight = sum(self.totals.in_flight.values())
        account.settled_at = dict(account.settled_at)
        flagged = Counter(account.flagged)
        for each in undecided.values():
            account.valid += each.valid
            flagged.update(each.flagged)
        account.flagged = dict(flagged)
        # A solver that died alone may not have told of its last calls; those whose ballots count were made.
        account.calls = max(account.calls, account.valid + flagged.total())
        later = {**undecided, **account.settled_at}
        account.undecided_at = tuple(path for path in undecided if f"{path}{ESCALATED}" not in later)
        account.steps = self._steps
        account.total_steps = self._total_steps if self._with_total == len(self.progress) else None
        account.inputs = len(self.progress)
        account.inputs_done = self._ended_as["completed"]
        account.inputs_failed = self._ended_as["undecided"] + self._ended_as["failed"]
        return account

    def account_with_digests(self) -> Account:
        """The same, with the digests: they take time where decisions form a tree."""
        return structs.replace(self.account(), decisions_sha256=_combined(self.decisions), ballots_sha256=_combined(self.ballots))


def _counted(ballots: Sequence[Ballot | Flagged]) -> tuple[int, dict[str, int]]:
    flagged: dict[str, int] = {}
    for ballot in ballots:
        if isinstance(ballot, Flagged):
            flagged[ballot.flag] = flagged.get(ballot.flag, 0) + 1
    return len(ballots) - sum(flagged.values()), flagged


def _combined(digests: Sequence[Digest]) -> str:
    each = [digest.digest() for digest in digests]
    return (each[0] if len(each) == 1 else sha256(b"".join(each)).digest()).hex()
