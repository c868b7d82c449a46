"""The count of one election: ballots in launch order, read as votes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from operator import eq, itemgetter, ne
from typing import Any, cast

from msgspec import structs

from microagents.base.messages import resolve
from microagents.elections.certainty import FLAGGED, SeenMasses, is_audited
from microagents.elections.election import (
    AnyBallot,
    Ballot,
    ElectionId,
    FieldVotes,
    Flagged,
    MassTest,
    Question,
    Verdict,
    total_usd,
)
from microagents.elections.red_flags import UNREAD
from microagents.elections.rules import ORDERS, ByField, Certain, Tally
from microagents.replies.masses import Mass
from microagents.replies.reply import Reply, vote_of
from microagents.replies.reply_fields import voted_fields
from microagents.replies.reply_forms import decoder_of, encode_reply

REFUSALS = 2
"""Refusals in a row that end an election without a valid reply."""
UNREADABLE = 20
"""First replies that end the election of one of many inputs if none can be read: by chance one in 10^6, if half of all can be."""


class Count:
    """Counted ballots of an election and their tally. The caller adds ballots in launch order.

    Args:
        election: its id.
        question: its question.
        fits: whether a reply that is composed of the fields of several may win; else the vote goes on.
        is_of_many: whether other inputs tell that replies can be read, so that a question of which none can is to blame.
    """

    def __init__(
        self,
        election: ElectionId,
        question: Question,
        fits: Callable[[bytes], bool] = lambda _: True,
        *,
        is_of_many: bool = False,
    ) -> None:
        self.ballots: list[AnyBallot] = []
        self._election, self._question = election, question
        self._models = {model: index for index, model in enumerate(dict.fromkeys(question.models))}
        """The index of each different model of the pool."""
        self.tally = Tally(question.rule, len(self._models))
        self._decoder = decoder_of(resolve(question.reply, Reply))
        self._fits = fits
        self._parts: list[Callable[[Any], Hashable]] = []
        """Take the part of each group of fields out of a whole vote; empty if replies are voted on as a whole."""
        if isinstance(question.rule, ByField):
            names = voted_fields(resolve(question.reply, Reply))
            self._parts = [itemgetter(*map(names.index, each)) for each in question.rule.fields]
        self._left_out = question.left_out
        self._masses: SeenMasses | None = None
        """The masses of the counted replies; None before the first."""
        self._tests: list[MassTest] = []
        self._may_be_refused = question.max_draws > self.tally.votes_needed
        """Whether more replies may be drawn than it needs. Replies that are drawn at once, without more, are all counted."""
        self._is_of_many = is_of_many and self._may_be_refused
        self._refusing: list[str] = []
        """The models that refused the question in a row, counted last; empty after a valid reply."""
        self._first: dict[Hashable, bytes] = {}
        """The first-launched reply of each vote."""
        self._votes: dict[bytes, Hashable] = {}
        """The vote of each reply that was decoded."""

    def add(self, ballot: AnyBallot) -> None:
        """Count the next ballot.

        Raises:
            TaskFailed: the reply's ``vote()`` raised, or gave a value without a hash.
        """
        self.ballots.append(ballot)
        self._refusing = self._refusing_with(ballot)
        if isinstance(ballot, Flagged):
            if ballot.facts.mass is not None:
                self._see(ballot, ballot.facts.mass, FLAGGED)
                self.tally.flag()
        else:
            vote = self.vote_of(ballot.value)
            if ballot.facts.mass is not None:
                self._see(ballot, ballot.facts.mass, vote)
            model = 0 if len(self._models) == 1 else self._model_of(ballot)
            if ballot.shares:
                self.tally.weigh(vote, ballot.shares, ballot.seq % ORDERS, model)
            else:
                self.tally.count(vote, model)
        if self._parts and not self.tally.votes_needed and self.tally.is_composed and self._composed() is None:
            self.tally.votes_needed = 1

    def _refusing_with(self, ballot: AnyBallot) -> list[str]:
        is_refusal = ballot.facts.said != "" and not self.tally.counts
        if not (self._may_be_refused and is_refusal):
            return []
        return [*self._refusing, self._question.model_of(self._election, ballot.seq)]

    @property
    def is_refused(self) -> bool:
        """Whether the question was refused twice in a row before any valid reply, and by each model of the pool."""
        return len(self._refusing) >= REFUSALS and len({*self._refusing}) == len(self._models)

    @property
    def _cap(self) -> int:
        """Ballots at which the election ends without a decision: fewer while no reply can be read."""
        if self._is_of_many and all(isinstance(each, Flagged) and each.flag in UNREAD for each in self.ballots):
            return min(UNREADABLE, self._question.max_draws)
        return self._question.max_draws

    @property
    def is_over(self) -> bool:
        """Whether no more ballots are counted: the election is decided, contested, refused or at its cap."""
        return not self.tally.votes_needed or self.is_refused or len(self.ballots) == self._cap

    def _see(self, ballot: AnyBallot, mass: Mass, vote: Hashable) -> None:
        """Take in the mass of a reply, which also tests the masses before it."""
        question, rule, fields = self._question, self._question.rule, self.tally.of_fields
        if isinstance(rule, ByField):
            rule = rule.rule
        if not isinstance(rule, Certain):
            return
        if self._masses is None:
            self._masses = SeenMasses(rule.margin, by_branches=rule.branches)
            if not is_audited(self._election.path):
                self.tally.masses = self._masses
                for field in fields:
                    field.masses = SeenMasses(rule.margin, by_branches=False)
        spec, prompts = question.model_of(self._election, ballot.seq), len(question.prompts)
        share = question.models.count(spec) / len(question.models) / prompts
        part = self._models[spec] * prompts + question.prompt_number(ballot.seq)
        led, claimed = self._masses.add(part, share, vote, mass)
        for index, field in enumerate(fields):
            if field.masses is not None:
                of_field = FLAGGED if vote is FLAGGED else cast("tuple[Hashable, ...]", vote)[index]
                field.masses.add(part, share, of_field, mass)
        if claimed:
            self._tests.append(MassTest(spec, claimed, repeated=vote == led))

    def _model_of(self, ballot: Ballot) -> int:
        """Return the index of the model that cast a ballot. One from outside the pool stands in for the model whose turn it was."""
        found = self._models.get(ballot.facts.fallback)
        if found is None:
            return self._models[self._question.model_of(self._election, ballot.seq)]
        return found

    def fewest_draws(self, flagged_ahead: Collection[int]) -> int:
        """Return the number of draws, from the first one on, with which the election can end at the earliest.

        ``flagged_ahead`` are the seqs of flagged replies that are not counted yet.
        """
        tally, drawn = self.tally, len(self.ballots)
        if self._refusing:  # one more reply tells whether the question is refused
            return drawn + 1
        decided_at = min(self._cap, drawn + tally.votes_needed + len(flagged_ahead))
        if not (tally.of_models and tally.votes_needed and tally.may_be_contested):
            return decided_at
        missing = [each.votes_to_contest for each in tally.of_models]
        while any(missing) and drawn < decided_at:
            if drawn not in flagged_ahead:
                model = self._models[self._question.model_of(self._election, drawn)]
                missing[model] = max(0, missing[model] - 1)
            drawn += 1
        return drawn

    def vote_of(self, value: bytes) -> Hashable:
        """Read the vote that a reply casts."""
        if value in self._votes:  # most ballots of an election are the same text
            return self._votes[value]
        vote = vote_of(self._decoder.decode(value), self._left_out)
        if self._parts:
            vote = tuple([part(vote) for part in self._parts])
        self._votes[value] = vote
        self._first.setdefault(vote, value)
        return vote

    def _composed(self) -> bytes | None:
        """Compose the leading reply of the fields of several, each of the first launched that has it; None if the fields do not fit.

        Fields without a vote are taken from the reply that shares most parts with it.
        """
        assert isinstance(self._question.rule, ByField)
        winner = cast("tuple[Hashable, ...]", self.tally.winner)
        votes = cast("list[tuple[Hashable, ...]]", list(self.tally.counts))
        alike = [sum(map(eq, vote, winner)) for vote in votes]
        nearest = votes[alike.index(max(alike))]
        fields: dict[str, Any] = {}
        for index, names in enumerate(self._question.rule.fields):
            if nearest[index] != winner[index]:
                source = next(vote for vote in votes if vote[index] == winner[index])
                reply = self._decoder.decode(self._first[source])
                fields.update({name: getattr(reply, name) for name in names})
        try:
            reply = encode_reply(structs.replace(self._decoder.decode(self._first[nearest]), **fields))
        except (ValueError, TypeError):  # its class checks that its fields fit together
            return None
        return reply if self._fits(reply) else None

    def verdict(self) -> Verdict:
        """Return the verdict of the ballots counted so far."""
        tally = [(self._first[vote], votes) for vote, votes in self.tally.counts.items()]
        leader = self.tally.leader
        if self._parts and self.tally.is_composed:
            reply = self._composed()
            if reply is None:  # only while it is open
                leader = list(self.tally.counts).index(self.tally.plurality)
            else:
                tally.append((reply, 0))
        return Verdict(
            outcome="refused" if self.is_refused else self.tally.outcome or "undecided",
            leader=leader,
            tally=tuple(tally),
            ballots=tuple(self.ballots),
            cost_usd=total_usd([ballot.cost_usd for ballot in self.ballots]),
            probability=self.tally.probability,
            mass_tests=tuple(self._tests),
            open_fields=self._open_fields,
            by_field=self._field_votes() if self._parts else None,
        )

    def _field_votes(self) -> FieldVotes:
        """Count the votes on fields that are not for the leading values."""
        fields, first = self.tally.of_fields, self.ballots[0] if self.ballots else None
        winner: tuple[Hashable, ...] = ()
        if self.tally.counts:
            winner = cast("tuple[Hashable, ...]", self.tally.winner)
        outvoted = sum(field.counted - field.counts.get(part, 0) for field, part in zip(fields, winner, strict=False))
        first_outvoted = len(fields)
        if isinstance(first, Ballot):
            first_outvoted = sum(map(ne, cast("tuple[Hashable, ...]", self._votes[first.value]), winner))
        return FieldVotes(fields=len(fields), outvoted=outvoted, first_outvoted=first_outvoted)

    @property
    def _open_fields(self) -> tuple[tuple[str, ...], ...]:
        rule = self._question.rule
        if not isinstance(rule, ByField) or not self.tally.votes_needed:
            return ()
        fields = zip(rule.fields, self.tally.of_fields, strict=True)
        return tuple([names for names, field in fields if field.votes_needed])

    def losers(self) -> list[int]:
        """List the seqs of valid ballots for another vote than the leading one."""
        leading = self.tally.winner
        if len(self.tally.counts) == 1:
            return []
        return [each.seq for each in self.ballots if isinstance(each, Ballot) and self._votes[each.value] != leading]
