"""Estimates of tasks: the k and the cap that a task needs, its chance and its calls, as `microagents run` would do it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from msgspec import Struct

from microagents.base.errors import InvalidUsage
from microagents.elections.laws import (
    check_chance,
    check_majority,
    check_steps,
    check_target,
    check_whole,
    expected_bill,
    expected_votes,
    k_min,
    p_full,
    p_vote,
    smallest,
    uneven_race_lost,
    uneven_race_votes,
    votes_per_sample,
)
from microagents.elections.races import MAX_WORK, CapOutcome, Course, Race, simulated
from microagents.elections.rules import BestOf, FirstTo, FirstToAheadBy, Rule

RULES: dict[str, type[FirstToAheadBy | FirstTo | BestOf]] = {
    "ahead-by": FirstToAheadBy,
    "first-to": FirstTo,
    "best-of": BestOf,
}
"""Rules by name. ``k`` is the number of ballots of `BestOf`."""


class RuleAtK(Struct, frozen=True, kw_only=True):
    """A rule for each k."""

    name: str
    at: Callable[[int], Rule]
    """The rule at a k."""
    has_k: bool
    """Whether the rule depends on k."""


MAX_DRAWS = 1_000_000
"""The largest cap that a run accepts."""
_HALF = 0.5


class Estimate(Struct, frozen=True, kw_only=True):
    """Estimated success and cost of a task, at a margin and a cap."""

    rule: str
    rivals: int
    """Number of wrong replies, all equally likely."""
    k_min: int | None
    """The smallest margin that reaches the target, if the cap allows it; None if it is too large to be computed.

    If a race against several rivals has too many courses, the race of two candidates stands for it, the worst case.
    """
    k: int | None
    """The given margin, else ``k_min``; None for a rule without a k."""
    max_draws: int
    """The cap of an election, in draws."""
    max_draws_min: int | None
    """The smallest cap at which ``k`` reaches the target; None if none does, or if it is too large to be computed."""
    p_success: float
    """Probability that every election is decided for the right reply."""
    p_undecided: float
    """Probability that a run ends at an undecided election."""
    expected_votes_per_step: float
    """Expected votes of one election, comparable to ``votes_per_step`` of a run."""
    expected_calls: float
    """Expected samples of a run, which ends at its first undecided election. Includes flagged samples and those for no racer."""
    steps_per_call: int = 1
    """Number of steps that one call does."""
    p_success_of_paper: float | None = None
    """The same as ``p_success`` by equation 13 of MAKER: all rivals are one reply with one given step wrong, others cast no vote. None for
    calls of one step, and for all races but that between two candidates by ahead-by."""
    p_success_interval: tuple[float, float] | None = None
    """95 % confidence interval of ``p_success`` if it was simulated; None if it is exact."""
    expected_calls_interval: tuple[float, float] | None = None
    """The same of ``expected_calls``."""


def estimate(
    p: float,
    steps: int,
    target: float | None = None,
    *,
    valid: float = 1.0,
    steps_per_call: int = 1,
    k: int | None = None,
    max_draws: int = 100,
    rule: str | RuleAtK = "ahead-by",
    rivals: int = 1,
) -> Estimate:
    """Estimate a task, with the smallest margin that reaches the target or with the given k, which needs no target.

    Against several rivals the figures of one election are exact to 1e-10, or simulated if there are too many courses of the race. With
    several steps a call, a reply is right if all of its steps are, and all wrong replies are votes: for the rival, or evenly for several.

    Raises:
        InvalidUsage: an argument is out of range, the rule is unknown, or a step would take too many draws.
    """
    if isinstance(rule, str):
        if rule not in RULES:
            raise InvalidUsage(
                f"no law is known for the rule {rule!r}: give one of your own as FILE:Class; known are {', '.join(RULES)}"
            )
        rule = RuleAtK(name=rule, at=RULES[rule], has_k=True)
    if k is not None and not rule.has_k:
        raise InvalidUsage(f"the rule {rule.name} has no k; leave -k out")
    if target is not None:
        check_target(target)
    elif k is None and rule.has_k:
        raise InvalidUsage("give the wanted chance, --target T, or the margin to judge, -k K")
    check_steps(steps, steps_per_call)
    check_whole("max_draws", max_draws)
    right = p_vote(p, steps_per_call=steps_per_call)
    _check_rivals(right, rivals, steps_per_call)
    votes_per_draw = votes_per_sample(right, valid=valid)
    task = _Task(
        p=right,
        rule=rule,
        rivals=rivals,
        steps=steps,
        steps_per_call=steps_per_call,
        target=target or 1.0,
        votes_per_draw=votes_per_draw,
    )
    elections = task.elections
    enough = task.smallest_k() if rule.has_k and target is not None else None
    used = 1 if not rule.has_k else enough if k is None else k
    if used is None:
        raise InvalidUsage(f"the smallest k of the rule {rule.name!r} is too large to be computed; choose one: -k K")
    check_whole("k", used)
    course = task.course(used)
    ending = task.ending(used, max_draws, course)
    held = _elections_held(ending.undecided, elections)
    return Estimate(
        rule=rule.name,
        rivals=rivals,
        k_min=enough,
        k=used if rule.has_k else None,
        max_draws=max_draws,
        max_draws_min=None if course is None or target is None else task.smallest_cap(course),
        p_success=_power(ending.wrong + ending.undecided, elections),
        p_undecided=1 - _power(ending.undecided, elections),
        steps_per_call=steps_per_call,
        p_success_of_paper=p_full(p, used, steps, steps_per_call=steps_per_call)
        if steps_per_call > 1 and task.is_of_two
        else None,
        expected_votes_per_step=ending.draws * votes_per_draw,
        expected_calls=ending.draws * held,
        p_success_interval=None
        if ending.right_interval is None
        else _each(ending.right_interval, lambda right: right**elections),
        expected_calls_interval=None
        if ending.draws_interval is None
        else _each(ending.draws_interval, lambda draws: draws * held),
    )


class AgentEstimate(Struct, frozen=True, kw_only=True):
    """Estimated success and cost of an agent whose actions have margins by the harm that they can do."""

    actions: dict[str, int]
    """Number of actions by kind."""
    margins: dict[str, int]
    """The margin of each kind."""
    p_success: float
    """Probability that no action that does harm, nor an end too early, is taken by mistake: pass^1."""
    pass_k: dict[int, float]
    """Probability that all trials succeed, by their number."""
    expected_calls: float
    """Expected samples of a trial, flagged ones included."""
    expected_cost_usd: float | None
    """None if the price of a call was not given."""


READ = "read"
"""The kind of action that does no harm: one taken by mistake costs its calls."""


def estimate_agent(
    p: float,
    actions: Mapping[str, int],
    margins: Mapping[str, int],
    *,
    valid: float = 1.0,
    call_usd: float | None = None,
) -> AgentEstimate:
    """Estimate an agent: MAKER's races, each between the margins of the right action and of the rival.

    The worst case: all wrong replies are one action that does harm, of the kind with the smallest margin.

    Args:
        p: probability that a valid reply is right.
        actions: number of actions on the right way, by kind.
        margins: the margin of each kind.
        valid: probability that a reply is valid.
        call_usd: US dollars of one call.

    Raises:
        InvalidUsage: an argument is out of range, or a kind is unknown.
    """
    if not actions:
        raise InvalidUsage(f"say how many actions the agent takes, by kind: {', '.join(margins)}")
    for kind, number in actions.items():
        if kind not in margins:
            raise InvalidUsage(f"unknown kind of action {kind!r}; known: {', '.join(margins)}")
        check_whole(f"the number of actions {kind}", number)
    # An end too early is always possible, and so is each effect of the agent.
    rival = min(
        (margin for kind, margin in margins.items() if kind != READ and (kind in actions or kind == "end")), default=1
    )
    lost = math.fsum(
        number * math.log1p(-uneven_race_lost(p, margins[kind], rival)) for kind, number in actions.items()
    )
    votes = math.fsum(number * uneven_race_votes(p, margins[kind], rival) for kind, number in actions.items())
    calls = votes / votes_per_sample(p, valid=valid)
    return AgentEstimate(
        actions=dict(actions),
        margins=dict(margins),
        p_success=math.exp(lost),
        pass_k={k: math.exp(k * lost) for k in (2, 4, 8)},
        expected_calls=calls,
        expected_cost_usd=None if call_usd is None else expected_bill(call_usd, calls),
    )


class _TooLong(Exception):
    """A course is too long to be computed."""


class _Task(Struct, frozen=True, kw_only=True):
    """Elections of a task."""

    p: float
    """Probability that a valid reply is right."""
    rule: RuleAtK
    rivals: int
    steps: int
    steps_per_call: int
    target: float
    votes_per_draw: float

    @property
    def elections(self) -> float:
        """Number of elections."""
        return self.steps / self.steps_per_call

    @property
    def is_of_two(self) -> bool:
        """Whether an election is a race of two candidates by a margin."""
        return self.rivals == 1 and self.rule.name == "ahead-by"

    @property
    def allowed(self) -> float:
        """Largest chance that an election is not decided right."""
        return -math.expm1(math.log(self.target) / self.elections)

    def smallest_k(self) -> int | None:
        """Return the smallest margin that reaches the target without a cap; None if it is too large to be computed."""
        if not self.is_of_two:
            try:
                # An even number of ballots may end in a tie, which decides nothing.
                return (
                    2 * smallest(lambda half: self._is_enough(2 * half - 1)) - 1
                    if self.rule.name == "best-of"
                    else smallest(self._is_enough)
                )
            except _TooLong:
                if self.rule.name != "ahead-by" or self.p <= _HALF:
                    return None
        # Also against several rivals that are too many to follow: two candidates are the worst case.
        return k_min(self.p, self.steps, self.target, steps_per_call=self.steps_per_call)

    def _is_enough(self, k: int) -> bool:
        course = self.course(k, max_work=MAX_WORK // 4)
        if course is None or not course.is_whole:
            raise _TooLong
        return course.loss <= self.allowed

    def course(self, k: int, *, max_work: int = MAX_WORK) -> Course | None:
        """Return the course of an election; None if it is too long even to begin."""
        if k > MAX_DRAWS or (expected_votes(self.p, k) * k if self.is_of_two else k * k) > MAX_WORK:
            return None
        return Course(Race(p=self.p, rule=self.rule.at(k), rivals=self.rivals), max_work=max_work)

    def ending(self, k: int, max_draws: int, course: Course | None) -> CapOutcome:
        """Compute the ending of an election at a cap."""
        if k > max_draws:
            return CapOutcome(right=0.0, wrong=0.0, undecided=1.0, draws=float(max_draws))
        if course is not None and course.covers(max_draws):
            return course.ending(max_draws, self.votes_per_draw)
        return simulated(Race(p=self.p, rule=self.rule.at(k), rivals=self.rivals), max_draws, self.votes_per_draw)

    def smallest_cap(self, course: Course) -> int | None:
        """Find the smallest cap that reaches the target. None if no cap of a run does, or it cannot be computed."""
        if course.loss > self.allowed:
            return None
        try:
            return smallest(lambda cap: self._is_enough_cap(course, cap))
        except _TooLong:
            return None

    def _is_enough_cap(self, course: Course, cap: int) -> bool:
        if cap > MAX_DRAWS or not course.covers(cap):
            raise _TooLong
        ending = course.ending(cap, self.votes_per_draw)
        return ending.wrong + ending.undecided <= self.allowed


def _check_rivals(p: float, rivals: int, steps_per_call: int) -> None:
    check_whole("rivals", rivals)
    if steps_per_call > 1 and p <= (1 - p) / rivals:
        raise InvalidUsage(
            f"a reply of {steps_per_call:,} steps has all of them right with a chance of {p:.3g}, and a wrong reply may have one of "
            f"{(1 - p) / rivals:.3g}: voting would decide for it; put fewer steps into a call"
        )
    if rivals == 1:
        check_majority(p)
    check_chance(p)
    if p <= (1 - p) / rivals:
        raise InvalidUsage(
            f"p must be above the chance of each rival, {(1 - p) / rivals:.3g}, not {p!r}: voting would decide for a rival"
        )


def _power(loss: float, elections: float) -> float:
    """Compute the chance that no election is lost."""
    return math.exp(elections * math.log1p(-loss)) if loss < 1 else 0.0


def _elections_held(undecided: float, elections: float) -> float:
    """Estimate the number of elections up to the first undecided one."""
    return (
        elections
        if not undecided
        else -math.expm1(elections * math.log1p(-undecided)) / undecided
        if undecided < 1
        else 1.0
    )


def _each(interval: tuple[float, float], law: Callable[[float], float]) -> tuple[float, float]:
    return law(interval[0]), law(interval[1])
