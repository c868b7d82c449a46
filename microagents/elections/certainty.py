"""Certainty: evidence of the probabilities of replies for the vote that a model casts most often, and whether they hold.

The law of one draw is a mixture: each pair of a model and a prompt, a *part*, has its share. A text that was seen has a known mass in its
part; the rest of the part may be any vote's.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import ceil, exp, log, prod
from operator import add, mul
from statistics import fmean
from zlib import crc32

from msgspec import Struct

from microagents.replies.masses import Mass

MILLION = 1_000_000
"""Masses are counted in millionths: down for the leader, up for its rivals."""
FIRST = 80
"""Number of the first elections of a chain, of which more are audited: by these a model is known before most of a long run is certified."""
FIRST_EVERY, EVERY = 4, 100
"""One in so many of the first elections is voted in any case, so that its masses are tested; and one in so many of all later ones."""
FALSE_ALARM = 1e-4
"""Greatest probability that masses which hold are ever found false."""
POWERS = (0.5, 0.25)
"""Alternatives that they are tested against: the chance of another reply than one of mass p is a power of 1 - p."""

FLAGGED, UNSEEN = object(), object()
"""Stand for the vote of a flagged text, and for one that was not cast yet."""


def is_audited(path: str) -> bool:
    """Whether the votes of an election decide, and its masses are only tested: a share of all, larger of the first ones by their numbers.

    It depends on nothing but the path, so that no decision depends on the order in which elections end. Numbers are multiplied, so that
    the first steps of one chain and the first inputs of a run are among the first, and not all steps of many short chains.
    """
    number = prod(int(part) + 1 for part in path.split("/") if part.isdecimal())
    return crc32(path.encode()) % (FIRST_EVERY if number <= FIRST else EVERY) == 0


def audited_of(elections: int) -> float:
    """Return the expected number of audited ones among some elections of one chain, or of one for each input."""
    return min(elections, FIRST) / FIRST_EVERY + max(0, elections - FIRST) / EVERY


def decides_alone(mass: Mass, margin: float) -> bool:
    """Return whether the mass of one text decides an election of one model and prompt, whatever else is drawn."""
    return mass.log <= 0 and 2 * exp(mass.log) > 1 + margin


class TextMass:
    """Knowledge of one text in one part."""

    __slots__ = ("branch", "least", "most", "vote")

    def __init__(self, vote: Hashable) -> None:
        self.vote = vote
        self.least, self.most = MILLION, 0
        """The smallest and the greatest mass that was given, in millionths."""
        self.branch: int | None = 0
        """The greatest mass of any other text; None if it is unknown."""

    def see(self, mass: Mass, least: int, most: int) -> None:
        """Take in a mass that was given."""
        self.least, self.most = min(self.least, least), max(self.most, most)
        if mass.branch is None or self.branch is None or not mass.branch <= 0:
            self.branch = None
        else:
            self.branch = max(self.branch, ceil(exp(mass.branch) * MILLION))


class MixturePart:
    """The texts that were seen of one model and prompt, by the law of their masses.

    Several masses add up only by the law of the draw. By the model's law at temperature 1 a text above one half is the likeliest one at
    any lower temperature, too, and its mass is then at least as great; nothing else follows.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self._of_draw: dict[bytes, TextMass] = {}
        self._of_model: dict[bytes, TextMass] = {}

    def add(self, vote: Hashable, mass: Mass) -> None:
        """Add a text. A mass that cannot be right is left out: above 1, no number, or above 1 together with the other texts."""
        if not mass.log <= 0:  # also nan
            return
        texts = self._of_draw if mass.law == "draw" else self._of_model
        p = exp(mass.log) * MILLION
        known = texts.get(mass.text)
        if known is None:
            least = sum(each.least for each in texts.values())
            if texts and least + int(p) > MILLION:
                return
            known = texts[mass.text] = TextMass(vote)
        known.see(mass, int(p), ceil(p))

    def least_of(self, vote: Hashable) -> int:
        """Return a lower bound of the mass of a vote."""
        least = sum(each.least for each in self._of_draw.values() if each.vote == vote)
        alone = [each.least for each in self._of_model.values() if each.vote == vote and 2 * each.least > MILLION]
        if alone:
            return max(least, *alone)
        return least

    def most_of(self, vote: Hashable) -> int:
        """Return an upper bound of the mass of a vote, by the law of the draw. All unseen mass may be its own."""
        own = sum(each.most for each in self._of_draw.values() if each.vote == vote)
        return MILLION + own - sum(each.least for each in self._of_draw.values())

    @property
    def texts(self) -> Sequence[TextMass]:
        """The texts with a vote whose masses are by the law of the draw."""
        return [each for each in self._of_draw.values() if each.vote is not FLAGGED]

    @property
    def leading(self) -> tuple[Hashable, int]:
        """The vote with the greatest lower bound, and that bound."""
        votes = {each.vote: None for texts in (self._of_draw, self._of_model) for each in texts.values()}
        bounds = [(self.least_of(vote), vote) for vote in votes if vote is not FLAGGED]
        least, vote = max(bounds, key=lambda bound: bound[0], default=(0, None))
        return vote, least


class SeenMasses:
    """The masses of the texts of one election, added in launch order.

    Args:
        margin: how much likelier than any other, also one that was not seen, the certain vote must be.
        by_branches: whether each vote is one text, so that the alternatives at its tokens bound all others.
    """

    def __init__(self, margin: float, *, by_branches: bool) -> None:
        self._margin, self._by_branches = margin * MILLION, by_branches
        self._parts: dict[int, MixturePart] = {}
        self._votes: dict[Hashable, None] = {}
        self.certain: tuple[Hashable, float] | None = None
        """The vote that is cast most often, and the least that its probability can be; None while it is unknown."""

    def add(self, part: int, share: float, vote: Hashable, mass: Mass) -> tuple[Hashable, float]:
        """Add a reply with its vote, `FLAGGED` if it casts none.

        Args:
            part: number of the model and the prompt.
            share: the share of the draws that are put to them.
            vote: its vote.
            mass: its mass.

        Returns:
            The vote that led in the part before, and the probability with which this draw had to cast it, at least; 0 if none is known.
        """
        books = self._parts.get(part)
        if books is None:
            books = self._parts[part] = MixturePart(share)
        led, least = books.leading
        books.add(vote, mass)
        if vote is not FLAGGED:
            self._votes[vote] = None
        self.certain = self._by_masses()
        if self.certain is None and self._by_branches:
            self.certain = self._by_branch()
        return led, least / MILLION

    def _by_masses(self) -> tuple[Hashable, float] | None:
        parts = self._parts.values()
        shares = [part.share for part in parts]
        leader, least = None, 0.0
        for vote in self._votes:
            bound = sum(map(mul, shares, [part.least_of(vote) for part in parts]))
            if bound > least:
                leader, least = vote, bound
        if least <= self._margin:
            return None
        unasked = self._unasked
        for rival in (UNSEEN, *self._votes):
            if rival != leader:
                most = [min(MILLION - part.least_of(leader), part.most_of(rival)) for part in parts]
                total = sum(map(mul, shares, most))
                if least <= total + unasked + self._margin:
                    return None
        return leader, least / MILLION

    @property
    def has_no_majority(self) -> bool:
        """Whether no vote, also an unseen one, can have half of the probability: none is right as often as at ordinary steps."""
        parts, votes = self._parts.values(), (UNSEEN, *self._votes)
        for vote in votes:
            most = sum(part.share * part.most_of(vote) for part in parts)
            if 2 * (self._unasked + most) >= MILLION:
                return False
        return True

    @property
    def _unasked(self) -> float:
        return MILLION * (1 - sum([part.share for part in self._parts.values()]))

    def _by_branch(self) -> tuple[Hashable, float] | None:
        (part, *others) = self._parts.values()
        texts = [] if others or part.share < 1 else part.texts
        if len({each.vote for each in texts}) < len(texts):
            return None
        found = [each for each in texts if each.branch is not None and each.least > each.branch + self._margin]
        if not found:
            return None
        return (found[0].vote, found[0].least / MILLION)


class MassAudit(Struct, frozen=True, kw_only=True):
    """Test of the masses that one model gives, by the draws that follow them. It may be read after each of them (Ville's inequality)."""

    draws: int = 0
    """Draws from a part with a leading vote."""
    repeated: int = 0
    """Those among them that cast it."""
    claimed: float = 0.0
    """The number that should have cast it by the masses, at least."""
    evidence: tuple[float, ...] = (0.0,) * len(POWERS)
    """Logarithm of the likelihood ratio of each alternative."""

    def after(self, claimed: float, *, repeated: bool) -> MassAudit:
        """Return the test after one more draw, which should have cast a vote with this probability, at least.

        Masses found false stay so, however many draws were in flight: a resumed run doubts them, too.
        """
        if self.is_false:
            return self
        rest = max(1 - claimed, 1 / MILLION)
        if repeated:
            ratios = [log((1 - rest**power) / (1 - rest)) for power in POWERS]
        else:
            ratios = [(power - 1) * log(rest) for power in POWERS]
        return self + MassAudit(draws=1, repeated=int(repeated), claimed=claimed, evidence=tuple(ratios))

    def __add__(self, other: MassAudit) -> MassAudit:
        """Return the test by the draws of both."""
        return MassAudit(
            draws=self.draws + other.draws,
            repeated=self.repeated + other.repeated,
            claimed=self.claimed + other.claimed,
            evidence=tuple(map(add, self.evidence, other.evidence)),
        )

    @property
    def is_false(self) -> bool:
        """Whether the masses do not hold."""
        likelier = [exp(min(each, 700)) for each in self.evidence]
        return fmean(likelier) >= 1 / FALSE_ALARM
