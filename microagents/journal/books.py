"""What the records of a run add up to: its account, how far each input is, and the digests of what was decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from hashlib import sha256
from typing import Any

from msgspec import Struct, field, structs

from microagents.account import (
    Account,
    Reached,
    Record,
    RecordAnswer,
    RecordCalls,
    RecordDecision,
    RecordLost,
    RecordProgress,
    RecordReply,
    RecordSample,
)
from microagents.digests import ChainDigest, TreeDigest
from microagents.elections import UNDECIDED, Ballot, Flagged, input_of

Digest = ChainDigest | TreeDigest


class Progress(Struct, kw_only=True):
    """How far an input is."""

    done: int = 0
    total: int | None = None
    reached: Reached | None = None


class Undecided(Struct, frozen=True, kw_only=True):
    """What was counted in vain at a place; it leaves the books again where a later decision takes over."""

    valid: int
    flagged: dict[str, int]
    reply: str
    """Address of the reply class."""
    after: int
    """How many decisions there were before it."""


class Totals(Struct, kw_only=True):
    """What is kept of the books beside the digests, when they are closed."""

    account: Account = field(default_factory=Account)
    in_flight: dict[str, int] = {}
    """Calls in flight, by the name of who sent them."""
    undecided: dict[str, Undecided] = {}
    """By path."""
    out_of_order: bool = False
    """Whether something was decided at a place that the work had gone on from: then only all decisions, in order, give the digests."""


class Books:
    """Adds up records. Whoever feeds it drops a second decision at one path."""

    def __init__(self, inputs: int, *, in_order: bool, totals: Totals | None = None) -> None:
        self.totals = Totals() if totals is None else totals
        self.progress = {each: Progress() for each in range(inputs)}
        self._in_order = in_order
        kind = ChainDigest if in_order else TreeDigest
        self.decisions: dict[int, Digest] = {each: kind() for each in range(inputs)}
        self.ballots: dict[int, Digest] = {each: kind() for each in range(inputs)}
        self._takers: dict[type[Record], Callable[[Any], None]] = {
            RecordCalls: self._take_calls,
            RecordLost: lambda record: self.lose(record.source),
            RecordDecision: self._decide,
            RecordProgress: self._take_progress,
            RecordAnswer: lambda record: self.take_in_answer(record.id.path, record.value),
            RecordSample: lambda _: None,
            RecordReply: lambda _: None,
        }

    def add(self, record: Record) -> None:
        """Take in the next record."""
        self._takers[type(record)](record)

    def _take_progress(self, record: RecordProgress) -> None:
        progress = self.progress[record.input]
        progress.total = record.total
        progress.done = max(progress.done, record.done)

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
        before = self.totals.undecided.pop(path, None) or self.totals.undecided.get(path.removesuffix(UNDECIDED))
        if verdict.outcome == "undecided":
            self.totals.undecided[path] = Undecided(valid=valid, flagged=flagged, reply=record.reply, after=account.decided)
            return
        if before is not None and before.after != account.decided and self._in_order:
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
            progress.done = max(progress.done, record.done)
            progress.reached = Reached(done=record.done, state=record.state, value=verdict.winner)

    def take_in(self, path: str, outcome: str, winner: bytes | None, ballots: Sequence[Ballot | Flagged]) -> None:
        """Take a decision into the digests."""
        of_input = input_of(path)
        self.decisions[of_input].add(path, outcome, winner)
        self.ballots[of_input].add(path, ballots)

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
        later = {**undecided, **account.settled_at}
        account.undecided_at = tuple(path for path in undecided if f"{path}{UNDECIDED}" not in later)
        account.steps = sum(progress.done for progress in self.progress.values())
        totals = [progress.total for progress in self.progress.values() if progress.total is not None]
        account.total_steps = sum(totals) if len(totals) == len(self.progress) else None
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


def _combined(digests: Mapping[int, Digest]) -> str:
    each = [digest.digest() for _, digest in sorted(digests.items())]
    return (each[0] if len(each) == 1 else sha256(b"".join(each)).digest()).hex()
