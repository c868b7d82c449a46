"""The expected cost of a run, before its first call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Protocol, runtime_checkable

from msgspec import Struct, structs

from microagents.actors.registry import MODELS, STRATEGIES
from microagents.actors.role import Strategy
from microagents.base.errors import InvalidUsage, MicroagentsError
from microagents.base.messages import address_of
from microagents.base.user_code import called
from microagents.elections.rules import FirstToAheadBy, Tally
from microagents.journal.ending import RunEnding
from microagents.journal.messages import Account, Promise
from microagents.journal.opening import holds_nothing
from microagents.journal.sharded import open_run
from microagents.models.model import Model, ModelSpec, most_samples, open_model, without_options
from microagents.models.prices import BATCH, Tariff
from microagents.replies.chat import Usage
from microagents.replies.reply_forms import system_with_instructions
from microagents.runs.driver.budget import stops_again
from microagents.runs.plan import RunPlan
from microagents.runs.settings import own_prices
from microagents.runs.step_counts import steps_of
from microagents.runs.task_list import numbers_of
from microagents.runs.words.money import money, prices_of, specs_in
from microagents.runs.words.summary import known
from microagents.systems.chains.maker import Maker
from microagents.task import ChainTask, Task

CHARS_PER_TOKEN = 4
OUTPUT_TOKENS = 300
"""Length of a reply that is assumed while none is measured."""
MAX_ASKED = 100
"""Number of inputs whose steps are counted; further ones are taken to be like these."""


@runtime_checkable
class MeasuredModel(Protocol):
    """Measurement of a model: `microagents.studies.measured.ModelMeasurement`."""

    @property
    def run_id(self) -> str:
        """Name of the measurement's run."""

    @property
    def model(self) -> str:
        """Spec of the model."""

    @property
    def of_inputs(self) -> bool:
        """Whether it measured inputs of one question each."""

    def promise(self, k: int, steps: int, max_draws: int) -> Promise:
        """State the promise of votes ahead by k, of at most ``max_draws``, for a number of steps."""


class Forecast(Struct, frozen=True, kw_only=True):
    """Expected cost of a run from now on."""

    calls: float | None
    """Expected number of calls; None if the strategy cannot know it beforehand."""
    call_usd: float | None
    """Expected cost of a call; None if a measurement does not know the price."""
    input_tokens: int
    """Tokens of the first prompt, estimated from its length."""
    output_tokens: int
    """Tokens that a call writes, by the assumed length of a reply."""
    is_measured: bool = False
    """Whether calls and cost are measured in the run so far."""
    models: tuple[str, ...]
    """The models that are paid; of a forecast from a measurement its model."""
    promises: tuple[Promise, ...] = ()
    """Promise of the measurement for an input of each run; empty without a measurement."""

    @property
    def cost_usd(self) -> float | None:
        """Expected cost of all calls; None if their number or their price is unknown."""
        if self.calls is None or self.call_usd is None:
            return None
        return self.calls * self.call_usd

    @property
    def is_billed(self) -> bool:
        """Whether calls are billed to an account."""
        return prices_of(self.models).is_billed

    def __str__(self) -> str:
        models = ", ".join(dict.fromkeys(map(without_options, self.models)))
        if self.is_measured:
            basis = "as measured so far"
        elif self.promises:
            basis = "as measured"
        else:
            basis = f"about {self.input_tokens:,} tokens in and {self.output_tokens:,} out each"
        if self.calls is None:
            each = None if self.call_usd is None else 1000 * self.call_usd
            return f"expected cost: not known beforehand; {money(each)} for each 1,000 calls to {models}, {basis}"
        cost = prices_of(self.models)(self.cost_usd) if self.cost_usd is not None else "unknown"
        return f"expected cost: {cost} for {self.calls:,.0f} calls to {models}, {basis}{self._chances()}"

    def _chances(self) -> str:
        """Write the chances that were promised, and their condition."""
        if not self.promises:
            return ""
        chances = dict.fromkeys(f"{known(each.low, each.high)} at k = {each.k}" for each in self.promises)
        conditions = dict.fromkeys(each.condition for each in self.promises)
        return f"; chance that all steps of an input are right: {', '.join(chances)}; {'; '.join(conditions)}"


OnForecast = Callable[[Forecast], None]
"""Gets the expected cost of a run before it begins. An exception of it ends the run, and leaves no journal."""


def forecast_of(plan: RunPlan, path: Path | None, measurement: MeasuredModel | None = None) -> Forecast | None:
    """Return the expected cost of a run, or of its rest; None if no paid model has a known price, or no call may be sent.

    Raises:
        InvalidUsage: the measurement says nothing of this run: of its model, or of its votes.
    """
    found = _assumed(plan) if measurement is None else _measured(plan, measurement)
    before, ending = (None, None) if path is None or holds_nothing(path) else _recorded(path)
    if found is None or stops_again(plan.settings, ending):
        return None
    if before is None:
        return found
    return _continued(found, before)


def _measured(plan: RunPlan, measurement: MeasuredModel) -> Forecast:
    """Return the forecast by a measurement. Simulated models have one, too, at list prices."""
    named, strategy, task = f"the measurement {measurement.run_id!r}", plan.strategy, plan.tasks[0]
    others = [spec for spec in specs_in(plan.settings["models"]) if spec != measurement.model]
    if others:
        raise InvalidUsage(
            f"{named} is of {measurement.model}, not of {others[0]}; measure that one, or leave out the measurement"
        )
    if not isinstance(task, ChainTask) and not measurement.of_inputs:
        raise InvalidUsage(f"{named} measured the steps of a chain, and {type(task).__name__} is none")
    steps = mean_if_known([steps_of(each) if isinstance(each, ChainTask) else 1 for each in _some(plan.tasks)])
    if steps is None:
        raise InvalidUsage(
            f"{type(task).__name__} has neither steps() nor an oracle that counts them, so {named} says nothing of all of them"
        )
    if measurement.of_inputs and steps > 1:
        raise InvalidUsage(f"{named} measured inputs of one step each, and these have more")
    rule = strategy.rule_of(task, 0, ceil(steps))
    is_other = strategy.certain != "off" or (isinstance(strategy, Maker) and strategy.steps > 1)
    if is_other or not isinstance(rule, FirstToAheadBy):
        name = STRATEGIES.name_of(address_of(type(strategy)))
        raise InvalidUsage(
            f"{named} measured what a lead of k votes on each step does, without a ladder; {name} as given here decides otherwise"
        )
    promise = measurement.promise(rule.k, ceil(steps), strategy.draw_cap)
    return Forecast(
        calls=promise.calls * len(plan.tasks),
        call_usd=None if promise.cost_usd is None else promise.cost_usd / promise.calls,
        input_tokens=0,
        output_tokens=0,
        models=(measurement.model,),
        promises=(promise,),
    )


def _assumed(plan: RunPlan) -> Forecast | None:
    """Return the forecast by the laws, an assumed error rate, and the length of the first prompt."""
    task, pool = plan.tasks[0], specs_in(plan.settings["models"])
    named = plan.strategy.named_calls(task)
    tariffs = {spec: _tariff(spec, plan) for spec in dict.fromkeys([*pool, *named])}
    paid = tuple([spec for spec, tariff in tariffs.items() if tariff is not None])
    if not paid:
        return None
    try:
        calls, input_tokens = _calls(plan.strategy, plan.tasks), _prompt_tokens(task)
    except MicroagentsError:  # the run itself will say what is wrong with the task
        return None
    # Members of a pool answer one election.
    joined = _replies_per_call(plan, paid) if calls and len(tariffs) == 1 else 1.0
    calls = None if calls is None else calls / joined
    cap = plan.settings["max_output_tokens"] or plan.tasks[0].sampling.max_output_tokens or OUTPUT_TOKENS
    output_tokens = round(joined * min(OUTPUT_TOKENS, cap))
    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    # Samples rotate through the pool. Simulated models cost nothing.
    costs = {spec: 0.0 if tariff is None else tariff.cost_usd(usage) or 0.0 for spec, tariff in tariffs.items()}
    call_usd = fmean([costs[spec] for spec in pool])
    if calls and named:
        to_pool = calls / len(plan.tasks) - sum(named.values())
        input_usd = to_pool * call_usd + sum([number * costs[spec] for spec, number in named.items()])
        call_usd = input_usd * len(plan.tasks) / calls
    return Forecast(
        calls=calls,
        call_usd=call_usd,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        models=paid,
    )


def total_of(forecasts: Iterable[Forecast | None]) -> Forecast | None:
    """One forecast of several runs; None if none of them costs anything."""
    each = [forecast for forecast in forecasts if forecast is not None]
    if not each:
        return None
    calls, cost_usd = mean_if_known([one.calls for one in each]), mean_if_known([one.cost_usd for one in each])
    if calls and cost_usd is not None:
        call_usd: float | None = cost_usd / calls
    else:
        call_usd = mean_if_known([one.call_usd for one in each])
    return Forecast(
        calls=None if calls is None else calls * len(each),
        call_usd=call_usd,
        input_tokens=max(one.input_tokens for one in each),
        output_tokens=max(one.output_tokens for one in each),
        is_measured=all(one.is_measured for one in each),
        models=tuple(dict.fromkeys(spec for one in each for spec in one.models)),
        promises=tuple([promise for one in each for promise in one.promises]),
    )


def _tariff(text: str, plan: RunPlan) -> Tariff | None:
    """Return the tariff of a shipped provider's model. Others report their cost only with their replies."""
    if text in plan.model_objects:
        return None
    spec = ModelSpec.parse(text)
    if spec.provider not in MODELS.addresses:
        return None
    tariff = MODELS.find(spec.provider, Model).tariff(spec, own_prices(plan.settings))
    if tariff is not None and (spec.options.get("batch") or plan.settings["batch"]) == "file":
        tariff.asked = BATCH
    if tariff is not None and plan.settings["runtime"] != "ray":  # on Ray keys are where solvers live
        try:
            open_model(text, plan.context())
        except InvalidUsage:  # the run itself will say what the model lacks, in one sentence
            return None
    return tariff


def _calls(strategy: Strategy, tasks: Sequence[Task]) -> float | None:
    calls = mean_if_known([called(strategy.expected_calls, each) for each in _some(tasks)])
    if calls is None:
        return None
    return calls * len(tasks)


def _some(tasks: Sequence[Task]) -> list[Task]:
    """Take at most some `MAX_ASKED` tasks, evenly spaced."""
    every = max(1, len(tasks) // MAX_ASKED)
    return [tasks[number] for number in numbers_of(tasks)[::every]]


def mean_if_known(numbers: Sequence[float | None]) -> float | None:
    """Return the mean; None if a number is unknown."""
    known = [each for each in numbers if each is not None]
    if len(known) != len(numbers):
        return None
    return fmean(known)


def _replies_per_call(plan: RunPlan, paid: Sequence[str]) -> float:
    """Replies per call if draws go together: the first draws of an election, but seq 0 goes by itself."""
    most, votes = most_samples(paid[0], plan.context()), Tally(plan.strategy.default_rule).votes_needed
    if votes > 1:
        return votes / (1 + ceil((votes - 1) / most))
    return 1.0


def _prompt_tokens(task: Task) -> int:
    asked, reply = called(task.first_prompt), type(task).reply_type()
    if asked is None or reply is None:
        return 0
    return (
        len(
            f"{system_with_instructions(asked.system, reply, task.format, task.reasoning)}{asked.user}".encode(
                "utf-8", "replace"
            )
        )
        // CHARS_PER_TOKEN
    )


def _recorded(path: Path) -> tuple[Account | None, RunEnding | None]:
    try:
        with open_run(path) as reader:
            return reader.account(), reader.ending()
    except InvalidUsage:  # the run itself will refuse its journal
        return None, None


def _continued(whole: Forecast, before: Account) -> Forecast:
    if not before.calls or not before.cost_usd:
        return whole
    calls = whole.calls
    if before.total_steps and before.steps:
        calls = before.calls / before.steps * (before.total_steps - before.steps)
    return structs.replace(whole, calls=calls, call_usd=before.cost_usd / before.calls, is_measured=True)
