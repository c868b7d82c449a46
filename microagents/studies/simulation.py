"""Simulations of planned runs: the engine itself in virtual time, with models that err as measured, over many seeds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from statistics import fmean

import msgspec
from msgspec import Struct

from microagents.actors.role import Strategy
from microagents.base.errors import InvalidUsage
from microagents.elections.laws import Proportion, proportion
from microagents.elections.race_tables import OTHERS, Array
from microagents.elections.step_rates import HARD
from microagents.models.model import ModelSpec
from microagents.models.simulation.answers import Answers, SimulatedReply
from microagents.models.simulation.simulated import SimulatedModel
from microagents.replies.chat import Prompt
from microagents.replies.reply import Reply
from microagents.runs.driver.begin import run
from microagents.runs.result import Result
from microagents.runtimes.virtual import run_virtual
from microagents.studies.measured import ModelMeasurement
from microagents.systems.chains.stepwise import Stepwise
from microagents.tasks.drift import Drift, Onward, Place

AHEAD = (0.5, 0.1)
"""Error rates at a hard step that a rollout reaches from one step before, and from two or more, while none is measured (LEAD, table 2)."""


class SimulatedRates(Struct, frozen=True, kw_only=True):
    """Error rates of steps, and the other facts that a simulated model takes from a measurement."""

    draw: Callable[[int, int], tuple[Array, Array]]
    """By a seed and a number of steps: the error rate at each step, and the first rival's share of the wrong votes."""
    flag: float = 0.0
    """Share of flagged replies."""
    ahead: tuple[float, ...] = AHEAD
    """Greatest error rates at a hard step that a rollout reaches from 1, 2, ... steps before; the last one holds from there on."""
    latency: tuple[float, float] = (0.0, 0.0)
    """The median in seconds, and the standard deviation of the logarithm; 0 for a model that answers at once."""


def simulated_rates(found: ModelMeasurement, total: int, *, hard: float = 0.0, timed: bool = True) -> SimulatedRates:
    """Take the data of a simulated model from a measurement.

    Args:
        found: the measurement.
        total: number of steps of the run.
        hard: share of the steps that are replaced by hard ones.
        timed: whether it takes the measured time, rather than to answer at once.
    """
    latency = (0.0, 0.0)
    if timed and found.latency is not None:
        latency = (found.latency.p50, found.latency.sigma)
    draw = partial(found.rates(total).rates, hard=hard)
    return SimulatedRates(draw=draw, flag=1 - found.valid.share, ahead=found.ahead or AHEAD, latency=latency)


class Simulation(Struct, frozen=True, kw_only=True):
    """Outcomes of simulated runs."""

    runs: int
    success: Proportion
    """Share of the runs that were completed without a wrong decision."""
    undecided: int
    """Number of runs that ended undecided."""
    steps: float
    """Mean number of steps that a run has done."""
    hard: int
    """Number of hard steps of all runs, done or not."""
    lost: int
    """Number of wrong and of undecided decisions in all runs."""
    calls: float
    """Mean number of calls of a run."""
    rollouts: float
    """Mean number of samples of a run that are no votes, such as rollouts."""
    duration_s: float
    """Mean duration of a run in virtual time."""


class SimulatedChain(Drift):
    """A walk in which every step is another question."""

    def prompt(self, state: Place) -> Prompt:
        """Ask for the next place; the number of the step makes the question another one."""
        return Prompt(system="Walk on.", user=f"{state.number} {state.steps_done}")

    def state_in(self, prompt: Prompt) -> Place:
        """Read the place that a prompt shows, or the data in the prompt of a judge or a paraphraser."""
        shown = prompt.user if prompt.user[:1] != "{" else msgspec.json.decode(prompt.user)["user"]
        number, done = map(int, shown.split()[:2])
        return Place(number=number, steps_done=done)

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Onward:  # noqa: ARG002 - it has one kind of reply
        """Return the right reply."""
        return self.oracle(self.state_in(prompt))


class _MeasuredModel(SimulatedModel):
    """A simulated model that errs at each step as drawn from a measurement."""

    def __init__(self, of: SimulatedRates, rates: tuple[Array, Array], task: SimulatedChain, seed: int) -> None:
        latency, sigma = of.latency
        options = {"error": 0, "flag": of.flag, "latency": latency, "sigma": sigma}
        spec = ModelSpec(provider="sim", name="perfect", options={name: str(value) for name, value in options.items()})
        super().__init__(spec, [task], seed)
        self.spec = "measured-0"
        self._chain_of_steps = task
        self._errors, self._rivals = rates
        self._ahead = of.ahead

    def _place(self, prompt: Prompt) -> int:
        return self._chain_of_steps.state_in(prompt).steps_done

    def is_hard(self, prompt: Prompt) -> bool:
        """Return whether a question is wrong in half of the samples or more."""
        return bool(self._errors[self._place(prompt)] >= HARD)

    def _choose(self, answers: Answers, rate: float, error: float, alternative: float) -> SimulatedReply:
        """Choose the right answer, the first wrong one, or another: two of these are the same as often as in the measurement's law."""
        if error >= rate:
            return answers.right
        first = self._rivals[self._place(answers.prompt)]
        return answers.wrong(
            0 if alternative < first else 1 + int((alternative - first) / (1 - first) * (OTHERS[0] + 1))
        )

    def _error_rate(self, answers: Answers, temperature: float | None, steps_before: int = 0) -> float:  # noqa: ARG002 - as measured
        alone = float(self._errors[self._place(answers.prompt)])
        if not answers.hard or not steps_before:
            return alone
        return min(alone, self._ahead[min(steps_before, len(self._ahead)) - 1])


def simulate(
    of: SimulatedRates, steps: int, strategy: Strategy, runs: int, *, concurrency: int | None = None
) -> Simulation:
    """Do a chain of steps ``runs`` times in virtual time, each time by another draw of the error rates; nothing is recorded.

    Raises:
        InvalidUsage: an argument is out of range.
    """
    if runs < 1:
        raise InvalidUsage(f"the number of simulated runs must be at least 1, not {runs!r}")
    if not isinstance(strategy, Stepwise):
        raise InvalidUsage(f"{type(strategy).__name__} decides no steps of a chain, so it cannot be simulated")

    async def one(seed: int) -> tuple[Result, float, int]:
        task, rates = SimulatedChain(length=steps), of.draw(seed, steps)
        model = _MeasuredModel(of, rates, task, seed)
        result = await run(task, models=model, strategy=strategy, seed=seed, runs_dir=None, concurrency=concurrency)
        ended_s = asyncio.get_running_loop().time()  # it began at 0
        return result, ended_s, int((rates[0] >= HARD).sum())

    results, durations_s, hard = zip(*[run_virtual(one(seed)) for seed in range(runs)], strict=True)
    return Simulation(
        runs=runs,
        success=proportion(sum(each.outcome == "completed" and each.account.errors == 0 for each in results), runs),
        undecided=sum(each.outcome == "undecided" for each in results),
        steps=fmean(each.account.steps for each in results),
        hard=sum(hard),
        lost=sum((each.account.errors or 0) + len(each.account.undecided_at) for each in results),
        calls=fmean(each.calls for each in results),
        rollouts=fmean(each.account.samples for each in results),
        duration_s=fmean(durations_s),
    )
