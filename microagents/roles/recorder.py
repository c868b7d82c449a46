"""The recorder: the only keeper of a run's account."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from hashlib import sha256

from microagents.account import Account, RecordAnswer, RecordCalls, RecordDecision, RecordOutage, RecordProgress, Report
from microagents.actors import Context, Post, Role
from microagents.digests import ChainDigest, TreeDigest
from microagents.elections import Ballot, input_of

Digest = ChainDigest | TreeDigest


class Recorder(Role):
    """Counts what is bought and decided. It lives in the driver's process."""

    def __init__(self, context: Context, post: Post) -> None:
        super().__init__(context, post)
        self._account = Account()
        self._undecided_at: list[str] = []
        self._progress: dict[int, tuple[int, int | None]] = {}
        kind = ChainDigest if context.strategy.conductor.in_order else TreeDigest
        inputs = range(len(context.tasks))
        self._decisions: Mapping[int, Digest] = {each: kind() for each in inputs}
        self._ballots: Mapping[int, Digest] = {each: kind() for each in inputs}

    async def calls(self, request: RecordCalls) -> None:
        """Count calls and what they took."""
        account, usage = self._account, request.usage
        account.calls += request.calls
        account.input_tokens += usage.input_tokens or 0
        account.output_tokens += usage.output_tokens or 0
        account.cost_usd = None if usage.cost_usd is None or account.cost_usd is None else account.cost_usd + usage.cost_usd

    async def outage(self, request: RecordOutage) -> None:
        """Note that a provider does not deliver, or does again."""
        self._account.outage = request.error

    async def decision(self, request: RecordDecision) -> None:
        """Count a decision and its ballots, and take both into the digests."""
        account, verdict, path = self._account, request.verdict, request.id.path
        valid = 0
        for ballot in verdict.ballots:
            if isinstance(ballot, Ballot):
                valid += 1
            else:
                account.flagged[ballot.flag] = account.flagged.get(ballot.flag, 0) + 1
        account.valid += valid
        if verdict.outcome == "undecided":
            self._undecided_at.append(path)
        else:
            account.decided += 1
            account.votes += valid
        if request.correct is not None:
            account.errors = (account.errors or 0) + (not request.correct)
        of_input = request.id.input
        self._decisions[of_input].add(path, verdict.outcome, verdict.winner)
        self._ballots[of_input].add(path, verdict.ballots)

    async def answer(self, request: RecordAnswer) -> None:
        """Take the answer to a `once` into the digest of decisions."""
        self._decisions[input_of(request.path)].add(request.path, "once", request.value)

    async def progress(self, request: RecordProgress) -> None:
        """Note how far an input is."""
        self._progress[request.input] = (request.done, request.total)

    async def report(self, request: Report) -> Account:
        """The account so far."""
        account = copy(self._account)
        account.flagged, account.undecided_at = dict(account.flagged), tuple(self._undecided_at)
        account.steps = sum(done for done, _ in self._progress.values())
        totals = [total for _, total in self._progress.values() if total is not None]
        all_known = len(totals) == len(self._progress) == len(self.context.tasks)
        account.total_steps = sum(totals) if all_known else None
        if request.digests:
            account.decisions_sha256, account.ballots_sha256 = _combined(self._decisions), _combined(self._ballots)
        return account


def _combined(digests: Mapping[int, Digest]) -> str:
    each = [digest.digest() for _, digest in sorted(digests.items())]
    return (each[0] if len(each) == 1 else sha256(b"".join(each)).digest()).hex()
