"""Totals over the records of a run: its account, with the progress of its inputs and the digests of its decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from msgspec import Meta, Struct, field, structs

from microagents.base.durations import bucket_of
from microagents.elections.certainty import MassAudit
from microagents.elections.election import ESCALATED, NO_FACTS, OPEN_OUTCOMES, USD_DIGITS, AnyBallot, Ballot, Flagged
from microagents.journal.digests import in_order, with_entry
from microagents.journal.messages import (
    NO_DECISION,
    Account,
    CallsOver,
    Lost,
    Mark,
    RecordCalls,
    RecordDecision,
    RecordLoads,
    ReplicaEnded,
    Written,
    verdict_of,
)
from microagents.journal.rows import RunPart
from microagents.journal.tables import InputRow

NO_VOTE = (*OPEN_OUTCOMES, "sampled", "inferred", "once")
"""Outcomes whose valid replies are not counted as votes."""

MAX_WALL_S = 1e300
K = TypeVar("K", int, str)


def is_vote(outcome: str, ballots: Sequence[AnyBallot]) -> bool:
    """Whether the valid replies of an election are votes. Replies that weigh options are not."""
    return outcome not in NO_VOTE and not any(isinstance(each, Ballot) and each.shares for each in ballots)


class UndecidedElection(Struct, frozen=True, kw_only=True):
    """Counts of an election that ended without a decision. A later decision at the same path removes them from the books."""

    valid: int
    """Valid ballots counted."""
    flagged: dict[str, int]
    """Counted red flags by name."""
    reply: str
    """Address of the reply class."""
    choices: tuple[str, ...] = ()
    """Votes that a person may decide for; empty if any vote is allowed."""
    state: str = ""
    """The state that the step was asked in, as JSON; empty for any other question."""
    rung: str | None = None
    """Name of the rung that failed, if the election is one of a ladder: the step is decided, not the rung."""
    contested: tuple[int, ...] = ()
    """Votes of each reply, if the models of a pool contradict each other."""


class Totals(Struct, kw_only=True):
    """Part of the books that is stored as JSON with every commit."""

    account: Account = field(default_factory=Account)
    mark: Lost = Lost()
    """The calls that are lost if the process is killed, at most."""
    undecided: dict[str, UndecidedElection] = {}
    """Undecided elections by path."""
    total_steps: int = 0
    """Steps in all of the inputs that know it."""
    with_total: int = 0
    """Number of these inputs."""
    rows: int = 0
    """Sum of the digests of all inputs and of the checksums of the log."""

    def waiting(self) -> dict[str, UndecidedElection]:
        """Return the elections that are undecided and not settled, by path."""
        # The escalated election reports for both: it is undecided itself, or it settled the first one.
        later = {**self.undecided, **self.account.settled_at}
        return {
            path: each
            for path, each in self.undecided.items()
            if each.rung is None and f"{path}{ESCALATED}" not in later
        }

    def lose(self, lost: Lost) -> None:
        """Count calls as lost: they may be billed, and are made again."""
        account = self.account
        account.lost_in_flight += lost.calls
        account.unsettled_tokens += lost.tokens
        account.unsettled_usd += lost.cost_usd
        account.unpriced += lost.unpriced

    def lose_all(self) -> None:
        """Count all calls without a recorded end as lost, after their process was killed."""
        # A model with batches sends a few calls singly, which no mark covers.
        self.lose(structs.replace(self.mark, calls=max(self.mark.calls, self.account.in_flight)))
        self.account.in_flight_by.clear()
        self.end_calls()

    def end_calls(self) -> None:
        """Drop mark and loads, since no call is in flight."""
        self.mark = Lost()
        self.account.loads.clear()

    def count(self, row: InputRow, sign: int) -> None:
        """Count an input with the sign 1; with -1 count it no more, since its row changes."""
        account = self.account
        account.steps += sign * row.done
        self.total_steps += sign * (row.total or 0)
        self.with_total += sign * (row.total is not None)
        self.rows += sign * row.digest
        if row.outcome == "completed":
            verdict = verdict_of(msgspec.json.decode(row.result or "null"))
            account.inputs_done += sign
            account.inputs_right += sign * (verdict is True)
            account.inputs_wrong += sign * (verdict is False)
        elif row.outcome is not None:
            account.inputs_failed += sign

    def account_with(self, inputs: int) -> Account:
        """Return a copy of the account of a run with so many inputs."""
        account = copy(self.account)
        for name, each in structs.asdict(account).items():
            if isinstance(each, dict):
                setattr(account, name, dict(each))
        if account.cost_usd is not None:  # the last digits of a sum depend on its order, and so on time and kills
            account.cost_usd = round(account.cost_usd, USD_DIGITS)
        account.in_flight_by = {source: by_spec for source, by_spec in account.in_flight_by.items() if by_spec}
        account.samples = account.valid - account.votes
        flagged = Counter(account.flagged)
        for each in self.undecided.values():
            account.valid += each.valid
            flagged.update(each.flagged)
        account.flagged = dict(flagged)
        # A solver that died may not have reported its last calls. Every counted ballot proves one call, or one joined sample.
        account.calls = max(account.calls, account.valid + flagged.total() - account.joined - account.reused)
        waiting = self.waiting()
        account.undecided_at = tuple(waiting)
        account.contested_at = {path: each.contested for path, each in waiting.items() if each.contested}
        account.inputs = inputs
        account.total_steps = self.total_steps if self.with_total == inputs else None
        return account


class AccountRecord(RunPart, frozen=True, kw_only=True):
    """The totals as of a commit."""

    part = "account"
    totals: Totals
    wall_s: Annotated[float, Meta(ge=0, le=MAX_WALL_S)]
    """Seconds that the run has taken, over all its sittings."""
    saved_at: str


class Books:
    """Running totals over records, from stored totals on. The caller drops every decision but the first at a path."""

    def __init__(self, inputs: int, totals: Totals | None = None) -> None:
        self.totals = Totals() if totals is None else totals
        self.inputs = inputs
        self.on_decision: Callable[[RecordDecision], None] | None = None
        """Called with every new decision."""

    def add(self, record: Written) -> None:
        """Add the next record; one without a sum changes nothing."""
        if (handler := self._handlers.get(type(record))) is not None:
            handler(self, record)
        if self.on_decision is not None and isinstance(record, RecordDecision):
            self.on_decision(record)

    def _set_mark(self, record: Mark) -> None:
        self.totals.mark = record.most

    def _add_calls(self, record: RecordCalls) -> None:
        account = self.totals.account
        account.add(record)
        account.unpriced = max(0, account.unpriced)  # a call that died unsent is settled, too
        account.in_flight_by[record.source] = record.in_flight
        for took_s in record.took_s.values():
            for bucket in map(bucket_of, took_s):
                _count(account.durations, bucket)

    def expect(self, cost_usd: float) -> None:
        """Note the expected cost from now on."""
        account = self.totals.account
        account.expected_usd = None if account.cost_usd is None else account.cost_usd + cost_usd

    def _end_replica(self, record: ReplicaEnded) -> None:
        account = self.totals.account
        if record.actor:
            _count(account.deaths, record.actor.partition("/")[0])
        account.in_flight_by.pop(record.source, None)
        account.loads.pop(record.source, None)

    def _add_decision(self, record: RecordDecision) -> None:
        account, verdict, path = self.totals.account, record.verdict, record.id.path
        valid, flagged = _count_ballots(verdict.ballots)
        self.totals.undecided.pop(path, None)
        if verdict.outcome in OPEN_OUTCOMES:
            contested: tuple[int, ...] = ()
            if verdict.outcome == "contested":
                contested = tuple(votes for _, votes in verdict.tally)
            self.totals.undecided[path] = UndecidedElection(
                valid=valid,
                flagged=flagged,
                reply=record.reply,
                choices=record.choices,
                state=record.state.decode(),
                rung=record.rung,
                contested=contested,
            )
            return
        if record.settled is not None:
            account.settled_at[path] = record.settled
        if record.rung is not None:
            _count(account.climbed, record.rung)
        is_decision = verdict.outcome not in NO_DECISION
        account.decided += is_decision
        account.certified += (
            is_decision and verdict.probability is not None and is_vote(verdict.outcome, verdict.ballots)
        )
        for test in verdict.mass_tests:
            audit = account.masses.get(test.model, MassAudit())
            account.masses[test.model] = audit.after(test.claimed, repeated=test.repeated)
        if verdict.outcome != "inferred":  # its votes are samples, which are counted at their own places
            self._count_ballots(record, valid, flagged)
        if record.correct is not None:
            account.errors = (account.errors or 0) + (not record.correct)
            account.checked += 1
            if not record.correct:
                account.wrong_at = min(filter(None, (account.wrong_at, path)), key=in_order)
        self.take_in(path, verdict.outcome, verdict.winner, verdict.ballots)

    def _count_ballots(self, record: RecordDecision, valid: int, flagged: dict[str, int]) -> None:
        account, outcome = self.totals.account, record.verdict.outcome
        account.valid += valid
        for ballot in record.verdict.ballots:
            fallback = ballot.facts.fallback
            if fallback and isinstance(ballot, Ballot):
                _count(account.fallbacks, fallback)
        for flag, count in flagged.items():
            _count(account.flagged, flag, count)
        if is_vote(outcome, record.verdict.ballots):
            account.votes += valid
            if outcome not in NO_DECISION:
                self._count_losers(record, valid)

    def _count_losers(self, record: RecordDecision, valid: int) -> None:
        """Count the votes that a decision overruled, or that led to a wrong one, and whether the first sample was such a one."""
        account, verdict = self.totals.account, record.verdict
        winners = 0 if verdict.leader is None else verdict.tally[verdict.leader][1]
        first = verdict.ballots[0] if verdict.ballots else None
        has_won = isinstance(first, Ballot) and first.value == verdict.winner
        if (of := verdict.by_field) is not None:
            account.fields += of.fields
            account.outvoted_fields += of.outvoted
            account.first_wrong_fields += of.first_outvoted
        account.composed += verdict.outcome == "decided" and not winners
        account.first_wrong += has_won if record.correct is False else not has_won
        if record.correct is False:
            account.misled += winners
            account.unanimous_errors += winners == valid > 1
        else:
            account.outvoted += valid - winners

    def take_in(self, path: str, outcome: str, winner: bytes | None, ballots: Sequence[AnyBallot]) -> None:
        """Add a decision to the digests."""
        account = self.totals.account
        account.decisions_sha256 = with_entry(account.decisions_sha256, path, outcome, winner)
        digested = [_digested(ballot) for ballot in ballots]
        account.ballots_sha256 = with_entry(account.ballots_sha256, path, digested)

    def account(self) -> Account:
        """A copy of the account so far."""
        return self.totals.account_with(self.inputs)

    # Of the class: bound methods in a table of the object would keep the books of many inputs in memory until a full collection.
    _handlers: ClassVar[dict[type[Written], Callable[[Books, Any], object]]] = {
        Mark: _set_mark,
        Lost: lambda books, record: books.totals.lose(record),
        RecordCalls: _add_calls,
        RecordLoads: lambda books, record: books.totals.account.loads.update(record.loads),
        CallsOver: lambda books, _: books.totals.end_calls(),
        ReplicaEnded: _end_replica,
        RecordDecision: _add_decision,
    }


def _digested(ballot: AnyBallot) -> AnyBallot:
    """A ballot as it enters the digest: the parts of the vote alone."""
    if isinstance(ballot, Flagged):
        return structs.replace(ballot, cost_usd=None, facts=NO_FACTS, why="")
    return structs.replace(ballot, cost_usd=None, facts=NO_FACTS)


def _count_ballots(ballots: Sequence[AnyBallot]) -> tuple[int, dict[str, int]]:
    flagged: dict[str, int] = {}
    for ballot in ballots:
        if isinstance(ballot, Flagged):
            _count(flagged, ballot.flag)
    return len(ballots) - sum(flagged.values()), flagged


def _count(counts: dict[K, int], name: K, more: int = 1) -> None:
    counts[name] = counts.get(name, 0) + more
