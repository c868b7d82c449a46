"""The measurement of one model: error rates of its votes, the chances they give, and the advice that follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from math import log, sqrt
from random import Random
from statistics import NormalDist, fmean, stdev
from typing import Any, Literal

from msgspec import Struct

from microagents.base.errors import InvalidUsage
from microagents.elections.certainty import audited_of
from microagents.elections.laws import Proportion, chance_of, proportion, race_won
from microagents.elections.race_tables import MAX_DRAWS
from microagents.elections.races import race_end, row_end
from microagents.elections.rules import ORDERS, Certify
from microagents.elections.step_rates import Interval, SeenStep, StepRates, ends_of, mean_errors, trend_chance
from microagents.journal.messages import Promise
from microagents.runs.accuracy import Confusion, confusions
from microagents.studies.analysis import errors_ahead, lookahead_in
from microagents.studies.ceilings import Ceiling, ceiling_of
from microagents.studies.measuring import FIRST, MeasuredStep
from microagents.systems.chains.maker import Maker

MOSTLY = 0.5
FEWEST = 59
"""Number of ordinary steps, none hard, that excludes at 95 % that more than 5 % of all are hard."""
FEWEST_DRAWS = 30
"""With fewer samples no k is advised."""
SURE = 0.95
"""Probability from which on a verdict is given."""
TREND = 0.01
"""Chance of a trend by accident below which it is reported."""
ALONG = (
    "errors change along the chain: {:.2%} in the first third of the sampled steps, {:.2%} in the last (p-value {:.2g})"
)
BY_LENGTH = (
    "errors change with the length of the prompt: {:.2%} in the third with the shortest ones, {:.2%} in that with the longest (p-value "
    "{:.2g})"
)
LONGER = 1.1
"""Prompts that are so many times as long as the longest measured one are told."""

Verdict = Literal["votes-help", "hard-steps", "voting-hurts", "not-sure", "too-few", "too-many-answers"]
"""Advice of a measurement. docs/measuring.md explains each."""
VERDICTS: dict[Verdict, str] = {
    "votes-help": "votes help: `microagents plan` says how many",
    "hard-steps": "hard steps: a wrong reply is the likeliest at {hard} of {steps:,}, and votes decide such a step wrong; take a ladder",
    "voting-hurts": "voting hurts: a wrong reply is the likeliest at most steps; take a stronger model or smaller steps",
    "not-sure": "not sure yet: a wrong reply may be the likeliest at some of {steps:,} steps; draw each more often, by --repeat",
    "too-few": "too few samples for a promise: {needed:,} more are needed, by `measure` with --steps or --repeat",
    "too-many-answers": "answers too many for exact votes: right replies differ from each other; use votes by meaning",
}
RIGHT_WAY = "calls are those of the right way: a run that errs may take twice as many"
"""Sentence on a run that probably errs: docs/planning.md has an example."""
TARGETS = (0.05, 0.01, 0.001)
"""Shares of wrong decisions to which thresholds are fitted."""
LEAST = 0.5001
"""Smallest threshold: the likeliest option must have more than one half."""
_NORMAL_P95 = NormalDist().inv_cdf(0.95)
AS_HELD, IF_ALIKE = (
    "as votes on {} rows were held",
    "if fields err independently, rows are alike and wrong values agree",
)
"""Conditions of the promise of votes on rows."""
STUDENT = 2.1
"""Quantile of Student's t at .975 for some 20 rows."""


def proportion_of(found: Interval) -> Proportion:
    """Return a share by its interval."""
    return Proportion(share=found.mid, low=found.low, high=found.high)


class Threshold(Struct, frozen=True, kw_only=True):
    """A threshold, by the steps of a measurement."""

    target: float
    """Share of wrong decisions that it was fitted to."""
    at_least: float | None
    """Smallest mean probability that decides; None if no threshold reaches the target."""
    decided: Proportion | None = None
    """Share of the steps of the other half that it decides; None without a threshold."""
    wrong: Proportion | None = None
    """Share of wrong ones among these; None if it decides none."""

    @property
    def sentence(self) -> str:
        """Say how many steps it decides, and how many of these wrong."""
        assert self.decided is not None
        assert self.wrong is not None
        return (
            f"at_least={self.at_least:.4f}: {ORDERS} calls a step decide {self.decided.share:.1%} of steps, {self.wrong.share:.1%} of "
            f"them wrong ({self.wrong.low:.1%} to {self.wrong.high:.1%} with 95 %)"
        )


def _thresholds(weighed: list[tuple[float, bool]]) -> Iterator[Threshold]:
    """Fit a threshold to each target on one half of the steps, and hold it against the other."""
    Random(0).shuffle(weighed)  # noqa: S311 - no secret; kinds of steps may take turns
    half = len(weighed) // 2
    for target in TARGETS if half else ():
        if (at_least := _fitted(target, weighed[:half])) is None:
            yield Threshold(target=target, at_least=None)
            continue
        decided = [is_right for p, is_right in weighed[half:] if p >= at_least]
        wrong = proportion(decided.count(False), len(decided)) if decided else None
        share = proportion(len(decided), len(weighed) - half)
        yield Threshold(target=target, at_least=at_least, decided=share, wrong=wrong)


def _fitted(target: float, weighed: Sequence[tuple[float, bool]]) -> float | None:
    """Return the smallest threshold with at most the target's share of wrong decisions; None if there is none."""
    for p in sorted({p for p, _ in weighed if p > LEAST}):
        decided = [is_right for other, is_right in weighed if other >= p]
        if decided.count(False) <= target * len(decided):
            return max(LEAST, int(p * 10_000) / 10_000)  # as it is typed
    return None


class Chances(Struct, frozen=True, kw_only=True):
    """Chances that all steps of a task are decided right by one rule."""

    independent: float
    """If all steps had the mean error rate."""
    measured: Proportion
    """By the error rates as they differ from step to step; see `ModelMeasurement.condition`."""
    calls: float
    """Expected number of calls."""


class Latency(Struct, frozen=True, kw_only=True):
    """Quantiles of the durations of calls in seconds, from the sending of a call to its reply; waiting for leave to send is left out."""

    p50: float
    p95: float
    p99: float

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm, of the lognormal distribution with these quantiles at .5 and .95."""
        return log(self.p95 / self.p50) / _NORMAL_P95


class Pilot(Struct, frozen=True, kw_only=True):
    """Votes on rows of a table."""

    k: int
    rows: int
    """Number of rows on which they were held; 0 for a law."""
    calls: Interval
    """Mean number of calls a row."""
    open: Proportion
    """Share of the rows that stay open."""
    right: Proportion | None
    """Share of the rows that are decided, and all right; None if nothing judges them."""
    fields: Proportion | None
    """Share of their fields that are, over rows."""


class ModelMeasurement(Struct, frozen=True, kw_only=True, dict=True):
    """Measurement of one model."""

    model: str
    run_id: str
    total: int
    """Number of steps of the task, or of inputs."""
    steps: tuple[MeasuredStep, ...]
    of_inputs: bool = False
    """Whether a step is the only question of an input."""
    calls: int
    flags: Mapping[str, int] = {}
    """Number of red flags by name."""
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    """None if a price is unknown."""
    cached_tokens: int = 0
    """Input tokens that the provider read from its cache."""
    prices: Mapping[str, Any] = {}
    """The user's prices by ``provider:model``."""
    limits: Mapping[str, int] = {}
    """Limits a minute that the provider stated, by their unit: ``requests``, ``tokens``, ``input tokens`` or ``output tokens``."""
    latency: Latency | None = None
    """None if it was not measured: of a model that answers at once."""

    @cached_property
    def certified(self) -> float | None:
        """Share of the first samples whose probability decides a step by itself; None if the model gives no probabilities."""
        known = [each.certain for each in self.steps if each.certain is not None]
        if not known:
            return None
        return sum(known) / (FIRST * len(self.steps))

    @cached_property
    def thresholds(self) -> tuple[Threshold, ...]:
        """Values of ``at_least``, of a chain whose options the model weighs; empty of another."""
        if self.of_inputs:
            return ()
        return tuple(_thresholds([each.likeliest for each in self.steps if each.likeliest is not None]))

    @property
    def judged(self) -> bool:
        """Whether an oracle judged the samples."""
        return all(each.right is not None for each in self.steps)

    @property
    def draws(self) -> int:
        """Number of samples."""
        return sum(each.drawn for each in self.steps)

    @property
    def call_usd(self) -> float | None:
        """Mean cost of a call."""
        if self.cost_usd is None or not self.calls:
            return None
        return self.cost_usd / self.calls

    @cached_property
    def _by_total(self) -> dict[int, StepRates]:
        return {}

    def rates(self, total: int | None = None) -> StepRates:
        """Return the error rates of a run with this number of steps, by default the measured task's: its steps are then those sampled.

        Raises:
            InvalidUsage: no reply is valid.
        """
        steps = self.total if total is None else total
        if steps not in self._by_total:
            self._by_total[steps] = self._rates(steps)
        return self._by_total[steps]

    def _rates(self, total: int) -> StepRates:
        if not any(each.valid for each in self.steps):
            raise InvalidUsage(
                f"{self.model} gave no valid reply to {len(self.steps):,} steps, so nothing is known of its errors"
            )
        return StepRates([_seen(each, is_own=total == self.total) for each in self.steps], total)

    @cached_property
    def p(self) -> Proportion:
        """Share of the valid replies that are right, over steps.

        Raises:
            InvalidUsage: no reply is valid, or nothing judges them.
        """
        if not self.judged:
            raise InvalidUsage(f"run {self.run_id!r} had no oracle, and agreement by itself promises nothing")
        return proportion_of(self.rates().p)

    @cached_property
    def valid(self) -> Proportion:
        """Share of the replies without a red flag, over steps."""
        return proportion_of(self.rates().valid)

    @cached_property
    def ceiling(self) -> Ceiling:
        """The share of steps that no choice among its samples gets right; see `ceiling_of`."""
        return ceiling_of([self.model], [self.steps])

    @cached_property
    def agreement(self) -> Proportion:
        """Share of the steps at which the first two samples give the same vote, among steps where both are valid.

        Raises:
            InvalidUsage: there are none.
        """
        pairs = [each.votes[0] == each.votes[1] for each in self.steps if each.first_valid == FIRST]
        if not pairs:
            raise InvalidUsage(f"{self.model} gave no two valid replies to any of {len(self.steps):,} steps")
        return proportion(sum(pairs), len(pairs))

    @property
    def p_high(self) -> float:
        """Upper bound of the share of right replies, whatever is right: of a right share p, two samples agree in at least its square.

        Its lower bound is that of the agreement, if each step's most frequent reply is right: two samples of a step agree with the chance
        of the sum of squares of the shares of its replies, which is at most the largest share.
        """
        return sqrt(self.agreement.high)

    @cached_property
    def as_decided(self) -> Proportion | None:
        """Share of the valid replies that an earlier run decided, over steps; None without such a run."""
        shares = [each.decided / each.valid for each in self.steps if each.decided is not None and each.valid]
        if not shares:
            return None
        return proportion(sum(shares), len(shares))

    @property
    def differing(self) -> list[int]:
        """Numbers of the steps at which the first two samples differ."""
        return [each.number for each in self.steps if each.first_valid == FIRST and each.votes[0] != each.votes[1]]

    @cached_property
    def hard(self) -> list[int]:
        """Numbers of the steps that are called hard."""
        rates = self.rates()
        return [rates.seen[index].number for index in rates.hard_found]

    @cached_property
    def ahead(self) -> tuple[float, ...]:
        """Share of errors of rollouts at hard steps, by the number of steps before them from 1; empty if it was not measured."""
        return errors_ahead(self.steps, self.hard)

    @cached_property
    def lookahead(self) -> tuple[Proportion | None, ...]:
        """Accuracy of steps by themselves, then at each position of a rollout; empty without rollouts."""
        if not self.horizon:
            return ()
        return lookahead_in(self.steps, self.horizon)

    @property
    def horizon(self) -> int:
        """Number of steps of the longest measured rollout; 0 without one."""
        return max([len(said) for each in self.steps for said in each.rollouts], default=0)

    @cached_property
    def trend(self) -> str | None:
        """Say how errors change along the chain; None if they may be the same."""
        if self.of_inputs:
            return None
        return self._change([each.number for each in self.steps], ALONG)

    @cached_property
    def by_length(self) -> str | None:
        """Say how errors change with the length of the prompt; None if they may be the same."""
        return self._change([each.length for each in self.steps], BY_LENGTH)

    def _change(self, values: Sequence[int], said: str) -> str | None:
        """Say how errors change with a value of each step, if they do."""
        known = self._in_order(values)
        chance = trend_chance(*zip(*known, strict=True)) if known else 1.0
        if chance >= TREND:
            return None
        third = max(1, len(known) // 3)
        parts = known[:third], known[-third:]
        ends = [float(mean_errors([each for _, each in part]).mean()) for part in parts]
        return said.format(*ends, chance)

    def _in_order(self, values: Sequence[int]) -> list[tuple[int, SeenStep]]:
        """Return the steps with a valid sample, each behind its value, by these values."""
        known = [
            (value, _seen(each, is_own=True)) for value, each in zip(values, self.steps, strict=True) if each.valid
        ]
        return sorted(known, key=lambda each: each[0])

    @cached_property
    def most_at_end(self) -> float:
        """Share of wrong replies that the samples leave possible in the last third of the chain (95 %)."""
        known = self._in_order([each.number for each in self.steps])
        last = [each for _, each in known[-max(1, len(known) // 3) :]]
        return ends_of(mean_errors(last)).high

    def longer(self, size: int) -> str | None:
        """Say that a run has longer prompts than were measured; None if it has none.

        Args:
            size: bytes of the longest prompt of the run.
        """
        most = max(each.length for each in self.steps)
        if size <= LONGER * most or not most:
            return None
        return f"prompts have up to {size:,} bytes, and those that were measured {most:,}: no sample tells how often longer ones fail"

    @property
    def mistakes(self) -> dict[str, int]:
        """Number of wrong samples by the first field that is wrong."""
        counted: Counter[str] = Counter()
        for each in self.steps:
            counted.update(each.mistakes)
        return dict(counted.most_common())

    @property
    def alike(self) -> float:
        """Share of the right samples of a step that give the most frequent right reply."""
        counts = [
            Counter(vote for vote in each.votes if each.right is not None and each.right[vote]) for each in self.steps
        ]
        right = sum(map(Counter.total, counts))
        if not right:
            return 1.0
        return sum(max(each.values(), default=0) for each in counts) / right

    @cached_property
    def fields(self) -> dict[str, Proportion]:
        """For each part of a vote by field the share of the valid replies that have it right, over inputs; empty of other votes."""
        # More samples are drawn where the first ones err, so they would count errors too rarely.
        is_fixed = len({each.drawn for each in self.steps}) == 1
        shares: dict[str, list[float]] = {}
        for each in self.steps:
            for name, (first, wrong) in each.wrong_fields.items():
                if is_fixed:
                    shares.setdefault(name, []).append(1 - wrong / each.valid)
                elif each.first_valid:
                    shares.setdefault(name, []).append(1 - first / each.first_valid)
        return {name: proportion(sum(found), len(found)) for name, found in shares.items()}

    @cached_property
    def confused(self) -> tuple[Confusion, ...]:
        """Wrong values in the place of right ones, by the samples: the most frequent ones of each field."""
        return confusions(chain.from_iterable(each.confused for each in self.steps))

    @cached_property
    def cells(self) -> StepRates:
        """Error rates of single fields of inputs, each against one rival; those of whole replies without votes by field."""
        if not self.fields:
            return self.rates()
        seen = list[SeenStep]()
        for each in self.steps:
            flagged, rows = each.drawn - each.valid, len(seen)
            for _, wrong in each.wrong_fields.values():
                errors = (wrong,) if wrong else ()
                seen.append(SeenStep(right=each.valid - wrong, wrong=errors, flagged=flagged, number=rows, is_own=True))
        return StepRates(seen, self.total * len(self.fields))

    @cached_property
    def pilot(self) -> Pilot | None:
        """The votes that were held on some rows; None if none were."""
        held = [each.held for each in self.steps if each.held is not None]
        if not held:
            return None
        count, right, fields = len(held), None, None
        if self.judged:
            parts = max(1, len(self.fields))
            wrong = [parts if each.is_open else min(parts, each.wrong) for each in held]
            right = proportion(wrong.count(0), count)
            fields = proportion(count - sum(wrong) / parts, count)
        is_open = proportion(sum(each.is_open for each in held), count)
        calls = _mean_calls([each.drawn for each in held])
        return Pilot(k=held[0].k, rows=count, calls=calls, open=is_open, right=right, fields=fields)

    def law(self, k: int) -> Pilot | None:
        """Compute how votes on a row end if fields err independently, wrong values agree and all rows are alike; None without an oracle.

        Replies that vote as a whole are one field.
        """
        if not self.judged:
            return None
        shares = [*self.fields.values()] or [self.p]
        cap, per_vote = Maker(k=k).max_draws, self.draws / sum(each.valid for each in self.steps)
        figures = list[tuple[float, ...]]()
        for end in ("share", "low", "high"):
            found = row_end([getattr(each, end) for each in shares], k, cap)
            figures.append((found.draws * per_vote, found.undecided, found.right, found.right ** (1 / len(shares))))
        calls, is_open, right, field = [Interval(each[0], min(each), max(each)) for each in zip(*figures, strict=True)]
        of_rows = [proportion_of(each) for each in (is_open, right, field)]
        return Pilot(k=k, rows=0, calls=calls, open=of_rows[0], right=of_rows[1], fields=of_rows[2])

    @property
    def law_is_off(self) -> bool:
        """Whether the votes that were held refute the law."""
        held = self.pilot
        law = None if held is None else self.law(held.k)
        if held is None or law is None or law.right is None or held.right is None:
            return False
        compared = ((held.calls, law.calls), (held.right, law.right))
        return any(one.high < other.low or other.high < one.low for one, other in compared)

    def lost_if_independent(self, k: int | Certify) -> float:
        """Compute the chance that votes do not decide a step right, if all steps have the mean error rate."""
        if isinstance(k, Certify):
            return race_end(1 - self.p.share, k, MAX_DRAWS).lost
        return race_won(1 - self.p.share, k)

    def chances(self, k: int | Certify, total: int | None = None, max_draws: int = MAX_DRAWS) -> Chances:
        """Compute the chances at a k or by the rule certify, of the task's steps or another number of them; of inputs over one of these."""
        steps = self.total if total is None else total
        is_input = self.of_inputs and steps == 1
        rates, scale = self.rates(self.total if is_input else steps), self.total if is_input else 1
        calls = rates.calls(k, max_draws=max_draws)
        return Chances(
            independent=chance_of(self.lost_if_independent(k), steps),
            measured=proportion_of((rates.decided if is_input else rates.chance)(k, max_draws=max_draws)),
            calls=calls.mid / scale,
        )

    def spared_of(self, k: int, number: int) -> float:
        """Return the calls that ``-s certain=on`` spares at least in so many elections: a certain reply stands for k votes or more."""
        return (k - 1) * (self.certified or 0.0) * (number - audited_of(number))

    def verdict(self) -> tuple[Verdict, str]:
        """Say whether the right reply is the likeliest one at the sampled steps, with advice."""
        rates = self.cells
        sampled, hard = len(rates.seen), len(rates.hard_found)
        needed = max(FIRST * (min(FEWEST, self.total) - len(self.steps)), FEWEST_DRAWS - self.draws)
        if rates.mostly_hard >= SURE:
            kind: Verdict = "voting-hurts"
        elif hard:
            kind = "hard-steps"
        elif not self.fields and self.alike < MOSTLY:
            kind = "too-many-answers"
        elif needed > 0:
            kind = "too-few"
        else:
            kind = "votes-help" if rates.none_hard >= SURE else "not-sure"
        return kind, VERDICTS[kind].format(hard=hard, steps=sampled, needed=needed)

    def promise(self, k: int, steps: int, max_draws: int = MAX_DRAWS) -> Promise:
        """State the promise of votes ahead by k, of at most ``max_draws``, for this number of steps."""
        votes = self._votes_by_field(k) if self.of_inputs and steps == 1 else None
        if votes is not None and votes.right is not None:
            calls, chance = votes.calls.mid, votes.right
            condition = AS_HELD.format(votes.rows) if votes.rows else IF_ALIKE
        else:
            chances = self.chances(k, steps, max_draws)
            calls, chance, condition = chances.calls, chances.measured, self.condition(steps)
        return Promise(
            measurement=self.run_id,
            model=self.model,
            k=k,
            calls=calls,
            cost_usd=None if self.call_usd is None else self.call_usd * calls,
            chance=chance.share,
            low=chance.low,
            high=chance.high,
            condition=condition,
        )

    def _votes_by_field(self, k: int) -> Pilot | None:
        """Return the votes on rows as they were held, else as the law has them; None of whole replies."""
        if self.pilot is not None and self.pilot.k == k:
            return self.pilot
        return self.law(k) if self.fields else None

    def condition(self, total: int) -> str:
        """Name the conditions of the measured chances."""
        if self.of_inputs and total == 1:
            return f"of one of the {self.total:,} inputs that were given: {self.rates().condition}"
        said = self.rates(total).condition
        if total != self.total and not self.of_inputs:
            known = self.trend or f"up to {self.most_at_end:.2%} may be wrong in the last third of the chain (95 %)"
            said += f"; {known}: a run of another size is taken to have the same mix of positions"
        if self.hard and not self.of_inputs:
            return f"{said}; {RIGHT_WAY}"
        return said


def _mean_calls(drawn: Sequence[int]) -> Interval:
    """Return the mean number of calls a row. If all rows took equally many, 3 of n others may still take two more each."""
    count, mean = len(drawn), fmean(drawn)
    spread = STUDENT * stdev([*drawn, mean]) / sqrt(count)
    return Interval(mean, max(float(min(drawn)), mean - spread), mean + max(spread, 6 / count))


def _seen(step: MeasuredStep, *, is_own: bool) -> SeenStep:
    """Count the samples of a step by its replies; those that nothing judges count as right."""
    votes, right = Counter(step.votes), step.right
    wrong = tuple([count for vote, count in votes.items() if right is not None and not right[vote]])
    return SeenStep(
        right=step.valid - sum(wrong),
        wrong=wrong,
        flagged=step.drawn - step.valid,
        number=step.number,
        is_own=is_own,
    )
