"""Stop rules and the tally of one election. Pure, no I/O. The caller counts ballots in launch order."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import lru_cache
from math import ceil
from statistics import fmean
from typing import Any, Literal, cast, get_args

import msgspec
from msgspec import Struct

from microagents.base.errors import InvalidDefinition, InvalidUsage
from microagents.base.messages import address_of, register, resolve
from microagents.elections.betting import sure_votes
from microagents.elections.certainty import SeenMasses
from microagents.elections.dissent import is_improbable

RuleOutcome = Literal["decided", "argmax"]
ORDERS = 2
"""Number of orders in which a model weighs options: one, and its opposite, because models prefer the first or the last option."""
AT_LEAST = 0.9
"""Probability from which an option is decided, unless the spec of the model says otherwise."""
MARGIN = 0.05
"""How much likelier than any other a vote that masses decide is at least: room for the noise of servers."""
LEAST_LEVEL = 1e-9
"""The smallest level of a test that says which reply is the likeliest."""
BEYOND = 6
"""Votes that each model of a pool casts beyond those with which it decides alone, all alike, before an election is contested."""


class Rule(Struct, frozen=True, tag=True):
    """When an election is decided, and for which vote. Subclass it at the top of a module to bring your own.

    A rule is a value: its fields are its options, and they enter the question's digest. Its methods are pure functions of the tally.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        register(cls)

    def votes_needed(self, tally: Tally) -> int:
        """Fewest further valid ballots that can decide the election; 0 once it is decided.

        The voter launches exactly this many draws, so a number that is too high buys ballots that no decision needs.
        """
        raise NotImplementedError

    def winner(self, tally: Tally) -> Hashable:
        """Return the vote that wins a decided election; by default the one with most ballots. It must be among ``tally.counts``."""
        return tally.plurality

    def outcome(self, tally: Tally) -> RuleOutcome:  # noqa: ARG002 - for rules to override
        """How the election is decided. ``argmax`` marks a plurality that did not reach the rule's own bar."""
        return "decided"


class FirstToAheadBy(Rule, frozen=True):
    """Decided once one candidate leads every other by k votes (MAKER, algorithm 2)."""

    k: int = 3

    def __post_init__(self) -> None:
        _check_k(self.k)

    def votes_needed(self, tally: Tally) -> int:
        """Votes that the leader lacks to be k ahead of the second."""
        return max(0, self.k - (tally.leading - tally.second))


class AheadByHarm(Rule, frozen=True):
    """Decided once one candidate leads every other by its own margin: the greatest margin of the parts that it names.

    A vote is the JSON of a list of objects that each name a part, such as the calls of tools (`microagents.systems.agents.actions.Action`).
    """

    margins: dict[str, int]
    """The margin of each part, by its name."""
    otherwise: int
    """The margin of other parts."""
    named_by: str = "tool"
    """The field of an object that names its part."""

    def __post_init__(self) -> None:
        for margin in (*self.margins.values(), self.otherwise):
            _check_k(margin)

    def votes_needed(self, tally: Tally) -> int:
        """Fewest votes with which a candidate, perhaps one without a vote so far, would have its margin."""
        least = min((*self.margins.values(), self.otherwise)) + tally.leading
        for vote, votes in tally.counts.items():
            rival = tally.second if votes == tally.leading else tally.leading
            least = min(least, self.margin_of(vote) + rival - votes)
        return max(0, least)

    def margin_of(self, vote: Hashable) -> int:
        """Return the margin by which a vote has to lead."""
        return _margin(str(vote), self.named_by, tuple(self.margins.items()), self.otherwise)


@lru_cache(maxsize=4096)
def _margin(vote: str, named_by: str, margins: tuple[tuple[str, int], ...], otherwise: int) -> int:
    named = dict(margins)
    return max(named.get(each[named_by], otherwise) for each in msgspec.json.decode(vote))


class FirstTo(Rule, frozen=True):
    """Decided once one candidate has k votes; with ``at_most``, the leader after that many valid votes is taken as ``argmax``."""

    k: int = 3
    at_most: int | None = None

    def __post_init__(self) -> None:
        _check_k(self.k)
        if self.at_most is not None and self.at_most < 1:
            raise InvalidUsage(f"at_most must be at least 1, not {self.at_most!r}")

    def votes_needed(self, tally: Tally) -> int:
        """Votes that the leader lacks to have k, or that are left until ``at_most``."""
        needed = max(0, self.k - tally.leading)
        if self.at_most is None:
            return needed
        return min(needed, max(0, self.at_most - tally.counted))

    def outcome(self, tally: Tally) -> RuleOutcome:
        """``argmax`` if no candidate has k votes."""
        if tally.leading >= self.k:
            return "decided"
        return "argmax"


class Certify(Rule, frozen=True):
    """Decided once a test by betting says that the leader is the likeliest reply; see `microagents.elections.betting`.

    It passes the test against the second reply, so against every other, also one without a vote. Each other reply passes it against the
    likeliest one with a chance of at most the level (Ville 1939); and of at most the ratio of their shares to the power of the least
    lead, 7 at level .05, since to exchange the two in a path makes it likelier by that factor. Where the likeliest reply has half of
    the votes or more, the ratios have a sum of at most 1, so that another one is decided with a chance of at most the level + .001. Of
    several equal replies the sum of these bounds is a multiple of the level; each has to pass against all, and more of them are
    decided more rarely (`tests.benchmarks.stopping`).
    """

    level: float = 0.05
    """Greatest chance that it decides for another reply than the likeliest, of two; of more see `Certify`."""

    def __post_init__(self) -> None:
        if not LEAST_LEVEL <= self.level < 0.5:  # noqa: PLR2004
            raise InvalidUsage(f"level must be at least {LEAST_LEVEL:g} and below 0.5, not {self.level!r}")

    def votes_needed(self, tally: Tally) -> int:
        """Votes that the leader lacks to pass the test against the second."""
        return max(0, sure_votes(tally.second, self.level) - tally.leading)


class FirstValid(Rule, frozen=True):
    """No vote: over once n valid replies are in (the samples of `microagents.work.durable.Work.sample`)."""

    n: int = 1

    def __post_init__(self) -> None:
        if self.n < 1:
            raise InvalidUsage(f"at least 1 reply must be asked for, not {self.n!r}")

    def votes_needed(self, tally: Tally) -> int:
        """Replies that are still missing."""
        return max(0, self.n - tally.counted)


class Unanimity(FirstValid, frozen=True):
    """Decided if n votes all agree, else left open (LEAD, algorithm 1: v one-step predictions)."""

    n: int = 8

    def outcome(self, tally: Tally) -> RuleOutcome:
        """``argmax`` if the votes differ."""
        if tally.leading == tally.counted:
            return "decided"
        return "argmax"


class AheadByInRounds(Rule, frozen=True):
    """Decided once, at the end of a round of votes, one candidate leads every other by k (LEAD, algorithm 1: rollouts)."""

    k: int
    votes_a_round: int

    def __post_init__(self) -> None:
        _check_k(self.k)

    def votes_needed(self, tally: Tally) -> int:
        """Votes until the end of the first round that can decide."""
        missing = self.k - (tally.leading - tally.second)
        to_end = -tally.counted % self.votes_a_round
        return max(0, to_end + max(0, ceil((missing - to_end) / self.votes_a_round)) * self.votes_a_round)


class UntilImprobable(Rule, frozen=True):
    """Another rule, and the election is left open once its votes, or the masses of its replies, are improbable for an ordinary step."""

    rule: PortableRule
    """One that decides by a majority: agreement of all is a test of its own."""
    p: float | None = None
    """Probability that a vote is right, by calibration; None if it is unknown."""
    alpha: float = 0.01
    """Greatest probability that an election with this p is left open."""
    at_most: int | None = None
    """Number of votes at which it is left open in any case."""

    def votes_needed(self, tally: Tally) -> int:
        """Return the fewest votes with which the rule decides, or with which the votes are improbable."""
        needed = self.rule.votes_needed(tally)
        if not needed or self._is_over(tally, 0):
            return 0
        return next((more for more in range(1, needed) if self._is_over(tally, more)), needed)

    def winner(self, tally: Tally) -> Hashable:
        """The rule's winner; the plurality if it was left open."""
        if not self.rule.votes_needed(tally):
            return self.rule.winner(tally)
        return tally.plurality

    def outcome(self, tally: Tally) -> RuleOutcome:
        """The rule's outcome; ``argmax`` if it was left open."""
        if self.rule.votes_needed(tally):
            return "argmax"
        return self.rule.outcome(tally)

    def _is_over(self, tally: Tally, more: int) -> bool:
        """Whether it is left open after this number of further votes against the leader."""
        votes = tally.counted + more
        if tally.counted and tally.masses is not None and tally.masses.has_no_majority:
            return True
        if self.at_most is not None and votes >= self.at_most:
            return True
        # The statistic is a mean of likelihood ratios, a martingale: looking often raises no rate of false alarms (Ville's inequality).
        return (
            self.p is not None and tally.counted > 0 and is_improbable(votes - tally.leading, votes, self.p, self.alpha)
        )


class Weighed(Rule, frozen=True):
    """No vote: a model gives the probability of each option, once for each order of the options. Decided once the mean is high enough."""

    rule: PortableRule
    """The rule of a vote on the same question."""
    max_draws: int
    """The cap of that vote."""
    at_least: float = AT_LEAST
    """Smallest mean probability that decides. It is above one half, so that the option led in one order."""

    def __post_init__(self) -> None:
        if not 0.5 < self.at_least <= 1:  # noqa: PLR2004
            raise InvalidUsage(f"at_least must be above 0.5 and at most 1, not {self.at_least!r}")

    def votes_needed(self, tally: Tally) -> int:
        """Return the orders in which the options are not weighed yet."""
        return ORDERS - len(tally.weighed)

    def winner(self, tally: Tally) -> Hashable:
        """Return the option with the greatest mean probability, among the options that led in one order."""
        return max(tally.counts, key=tally.probability_of)

    def outcome(self, tally: Tally) -> RuleOutcome:
        """``argmax`` if the probability does not decide."""
        if tally.probability_of(self.winner(tally)) >= self.at_least:
            return "decided"
        return "argmax"


class Certain(Rule, frozen=True):
    """Decided once the masses of the replies say which vote is cast most often, else by another rule.

    The masses of the texts that were seen bound the probability of every vote. The leader has more of it than any other vote, so any
    longer vote of the same draws would end there. It need not be right.
    """

    otherwise: PortableRule
    """One that decides by a majority."""
    margin: float = MARGIN
    """How much likelier than any other vote the leader must be at least."""
    branches: bool = False
    """Whether each vote has one text only, so that the alternatives at the tokens of a text bound all other votes."""

    def __post_init__(self) -> None:
        if not 0 <= self.margin < 1:
            raise InvalidUsage(f"margin must be at least 0 and below 1, not {self.margin!r}")

    def votes_needed(self, tally: Tally) -> int:
        """One vote at first, then the votes of the other rule."""
        if tally.certain is not None:
            return 0
        needed = self.otherwise.votes_needed(tally)
        if tally.counted:
            return needed
        return min(1, needed)

    def winner(self, tally: Tally) -> Hashable:
        """Return the certain vote, else the winner of the other rule."""
        if tally.certain is None:
            return self.otherwise.winner(tally)
        return tally.certain[0]

    def outcome(self, tally: Tally) -> RuleOutcome:
        """``decided`` if a vote is certain, else the outcome of the other rule."""
        if tally.certain is not None:
            return "decided"
        return self.otherwise.outcome(tally)


def certain(rule: PortableRule, *, branches: bool) -> PortableRule:
    """Return a rule that lets masses decide before the votes; the rule itself if it decides by no majority.

    A rule that leaves hard steps open takes only a reply that is no sign of one: as likely as right votes are at ordinary steps, or
    unanimous in every other election.
    """
    match rule:
        case UntilImprobable(p=float(share)):
            return Certain(rule, max(MARGIN, 2 * share - 1))
        case Unanimity(n=votes):
            return Certain(rule, max(MARGIN, 2 * 0.5 ** (1 / votes) - 1))
        case FirstToAheadBy() | AheadByHarm() | FirstTo() | Certify() | UntilImprobable():
            return Certain(rule, branches=branches)
    return rule


def without_doubt(rule: PortableRule) -> PortableRule:
    """Return a rule without the test that leaves an election open because its votes are improbable."""
    match rule:
        case UntilImprobable():
            return rule.rule
        case Certain():
            return msgspec.structs.replace(rule, otherwise=without_doubt(rule.otherwise))
        case ByField():
            return msgspec.structs.replace(rule, rule=without_doubt(rule.rule))
    return rule


class ByField(Rule, frozen=True):
    """Decided once all fields of the reply are, at the same time: each field votes by a rule, over the same samples.

    A vote is a tuple with one part for each of the ``fields``. The winner may be one that no sample cast. A field that is ahead goes on
    counting: if fields were closed one by one, samples that read another entity could mix two in one reply.
    """

    rule: PortableRule
    """The rule of each field: one that decides by a majority."""
    fields: tuple[tuple[str, ...], ...]
    """Names of the fields that vote together, for each part of a vote: mostly one."""

    def votes_needed(self, tally: Tally) -> int:
        """Return the greatest number that a field needs."""
        return max([each.votes_needed for each in tally.of_fields])

    def winner(self, tally: Tally) -> Hashable:
        """Return the winners of all fields."""
        return tuple([each.winner for each in tally.of_fields])

    def outcome(self, tally: Tally) -> RuleOutcome:
        """``argmax`` if a field did not reach the bar of its rule."""
        if all(each.outcome == "decided" for each in tally.of_fields):
            return "decided"
        return "argmax"


def by_field(rule: PortableRule, fields: tuple[tuple[str, ...], ...]) -> PortableRule:
    """Return a rule by which the fields of a reply vote; the rule itself if it decides by no majority, or there is one part only."""
    majority = FirstToAheadBy | FirstTo | Certify | UntilImprobable | RuleByAddress
    inner = rule.otherwise if isinstance(rule, Certain) else rule
    if len(fields) > 1 and isinstance(inner, majority):
        return ByField(rule, fields)
    return rule


class RuleByAddress(Rule, frozen=True):
    """A user's rule as it travels between processes and enters the question's digest: the address of its class, and its options."""

    address: str
    options: bytes
    """The rule's fields, as JSON."""

    def votes_needed(self, tally: Tally) -> int:
        """The number of the rule itself.

        Raises:
            InvalidDefinition: the rule gives no count.
        """
        needed: object = self._rule.votes_needed(tally)
        if isinstance(needed, bool) or not isinstance(needed, int) or needed < 0:
            raise InvalidDefinition(
                f"votes_needed() of {self.address} must give a number of votes, 0 or more, not {needed!r}"
            )
        return needed

    def winner(self, tally: Tally) -> Hashable:
        """Verdict of the rule itself.

        Raises:
            InvalidDefinition: no ballot casts that vote.
        """
        winner = self._rule.winner(tally)
        if winner not in tally.counts:
            raise InvalidDefinition(f"winner() of {self.address} must give a vote that was cast, not {winner!r:.100}")
        return winner

    def outcome(self, tally: Tally) -> RuleOutcome:
        """Verdict of the rule itself."""
        outcome = self._rule.outcome(tally)
        if outcome not in get_args(RuleOutcome):
            raise InvalidDefinition(
                f"outcome() of {self.address} must give 'decided' or 'argmax', not {outcome!r:.100}"
            )
        return outcome

    @property
    def _rule(self) -> Rule:
        return _loaded(resolve(self.address, Rule), self.options)


@lru_cache(maxsize=256)
def _loaded(kind: type[Rule], options: bytes) -> Rule:
    return msgspec.json.decode(options, type=kind)


PortableRule = (
    FirstToAheadBy
    | AheadByHarm
    | FirstTo
    | Certify
    | FirstValid
    | Unanimity
    | UntilImprobable
    | Weighed
    | Certain
    | ByField
    | RuleByAddress
)
"""The rules that a question can hold."""


def portable(rule: Rule) -> PortableRule:
    """Return the form in which a rule is put into a question.

    Raises:
        InvalidDefinition: other processes could not build the rule from its options, or it is decided without a vote.
    """
    if isinstance(rule, PortableRule):
        return rule
    address = address_of(type(rule))
    try:
        options = msgspec.json.encode(rule, order="deterministic")
        known = resolve(address, Rule) is type(rule) and _loaded(type(rule), options) == rule
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidDefinition(
            f"the options of rule {address} cannot be written as JSON and read back: {error}"
        ) from None
    if not known:
        raise InvalidDefinition(
            f"rule {address} does not survive JSON; give its class a name of its own, and options that JSON can hold"
        )
    by_address = RuleByAddress(address=address, options=options)
    if not Tally(by_address).votes_needed:
        raise InvalidDefinition(
            f"rule {address} needs no vote at all, so no ballot could decide; votes_needed() of an empty tally is 1 or more"
        )
    return by_address


def _check_k(k: int) -> None:
    if not k >= 1:  # also nan
        raise InvalidUsage(f"k must be at least 1, not {k!r}")


def likeliest(shares: Mapping[str, float]) -> str:
    """Return the option with the greatest probability, the first of equals."""
    return max(shares, key=shares.__getitem__)


class Tally:
    """Votes of one election, in launch order.

    Args:
        rule: decides it.
        models: number of different models that vote.
    """

    def __init__(self, rule: Rule, models: int = 1) -> None:
        self.rule = rule
        self.counts: dict[Hashable, int] = {}
        """Votes by candidate, in the order in which candidates were first launched."""
        self.counted = 0
        """Valid ballots so far."""
        self.leading = 0
        """Votes of the candidate with most."""
        self.second = 0
        """Votes of the candidate with second most; equal to ``leading`` in a tie."""
        self.weighed: dict[int, Mapping[str, float]] = {}
        """The probabilities of the options in each order in which they were weighed. The last ones of an order count."""
        self._options: dict[Hashable, str] = {}
        """The option of each vote that led in one order."""
        self.masses: SeenMasses | None = None
        """The masses of the replies, if they may decide."""
        self.of_fields: tuple[Tally, ...] = ()
        """The votes on each field; empty if replies are voted on as a whole."""
        if isinstance(rule, ByField):
            self.of_fields = tuple([Tally(rule.rule) for _ in rule.fields])
        if models > 1:
            self.of_models = tuple([Tally(rule) for _ in range(models)])
        else:
            self.of_models = ()
        """The votes of each model; empty if one model casts all."""
        self.is_contested = False
        """Whether the models contradict each other: each has `BEYOND` votes more than it needs alone, all alike, and they differ."""
        self.decided_with = 0
        """Number of votes with which it was decided; 0 before."""
        self.votes_needed = rule.votes_needed(self)
        """Fewest further votes that can decide; 0 once the election is decided or contested."""

    def weigh(self, vote: Hashable, shares: Mapping[str, float], order: int, model: int = 0) -> None:
        """Count one ballot with the probabilities of all options, weighed in an order. It is for the likeliest."""
        self.weighed[order] = shares
        self._options.setdefault(vote, likeliest(shares))
        self.count(vote, model)

    def probability_of(self, vote: Hashable) -> float:
        """Return the mean probability of the option of a vote."""
        option = self._options.get(vote, "")
        return fmean(shares.get(option, 0.0) for shares in self.weighed.values())

    def count(self, vote: Hashable, model: int = 0) -> None:
        """Count one ballot, of the model with this index."""
        votes = self.counts[vote] = self.counts.get(vote, 0) + 1
        self.counted += 1
        if votes > self.leading:  # a new leader was level with the old one, who is level with the second
            self.leading = votes
        else:
            self.second = max(self.second, votes)
        if self.of_fields:
            for field, part in zip(self.of_fields, cast("tuple[Hashable, ...]", vote), strict=True):
                field.count(part)
        self.votes_needed = self.rule.votes_needed(self)
        if not self.votes_needed and not self.decided_with:
            self.decided_with = self.counted
        if self.of_models:
            self.of_models[model].count(vote)
            # With k alike of each, two models that err at 45 % of a hard step's replies would stop there every tenth time.
            if self.votes_needed and self.may_be_contested:
                self.is_contested = not any(each.votes_to_contest for each in self.of_models)
                self.votes_needed *= not self.is_contested

    def flag(self) -> None:
        """Note that a reply was flagged whose mass is among the masses."""
        for field in self.of_fields:
            field.flag()
        if not self.is_contested:
            self.votes_needed = self.rule.votes_needed(self)

    @property
    def certain(self) -> tuple[Hashable, float] | None:
        """The vote that is cast most often, by the masses of the replies, and the least that its probability can be; None if unknown."""
        if self.of_fields:
            found = [field.certain for field in self.of_fields]
            known = [each for each in found if each is not None]
            if len(known) < len(found):
                return None
            votes, bounds = zip(*known, strict=True)
            return votes, min(bounds)
        if self.masses is None:
            return None
        return self.masses.certain

    @property
    def may_be_contested(self) -> bool:
        """Whether each model has voted for one value only so far, and not all of them for the same."""
        is_unanimous = all(len(each.counts) <= 1 for each in self.of_models)
        is_heard = all(each.counts for each in self.of_models)
        return is_unanimous and not (is_heard and len(self.counts) == 1)

    @property
    def votes_to_contest(self) -> int:
        """Fewest further votes, all alike, until it has `BEYOND` more than decide it."""
        needed = self.votes_needed
        if self.decided_with:
            needed = self.decided_with - self.counted
        return max(0, needed + BEYOND)

    @property
    def plurality(self) -> Hashable:
        """Vote with most ballots, the first launched of equals; None before the first vote."""
        return max(self.counts, key=self.counts.__getitem__, default=None)

    @property
    def winner(self) -> Hashable:
        """The vote that wins; while the election is open, the plurality, of each field by itself. None before the first vote."""
        if self.is_contested or not self.counts:
            return self.plurality
        if self.votes_needed and self.of_fields:
            return tuple([field.plurality for field in self.of_fields])
        if self.votes_needed:
            return self.plurality
        return self.rule.winner(self)

    @property
    def is_composed(self) -> bool:
        """Whether no ballot casts the vote that wins: its fields are from several."""
        return bool(self.counts) and self.winner not in self.counts

    @property
    def leader(self) -> int | None:
        """Winner's place in ``counts``, behind its end if it is composed. None before the first vote."""
        if not self.counts:
            return None
        return [*self.counts, self.winner].index(self.winner)

    @property
    def probability(self) -> float | None:
        """Probability of the leader: by the models that weighed the options, or by its masses the least; None in a vote."""
        if self.certain is not None:
            return self.certain[1]
        leader = self.leader
        if leader is None or not self.weighed:
            return None
        return self.probability_of(list(self.counts)[leader])

    @property
    def outcome(self) -> RuleOutcome | Literal["contested"] | None:
        """How the election has ended; None while it is open."""
        if self.is_contested:
            return "contested"
        if self.votes_needed:
            return None
        return self.rule.outcome(self)
