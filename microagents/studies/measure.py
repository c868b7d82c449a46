"""Measurements of models on random steps of a task: the prospects of their votes, before a long run is paid for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import msgspec
from msgspec import Struct, structs

from microagents.actors.registry import TASKS, reference_to
from microagents.base.durations import quantile_s
from microagents.base.errors import InvalidUsage
from microagents.base.messages import address_of
from microagents.base.named_values import stated
from microagents.base.user_code import called
from microagents.journal.sharded import reader_of
from microagents.runs.driver.keywords import SharedKeywords, check_arguments, without_control
from microagents.runs.driver.tool_lists import with_tools_of_servers
from microagents.runs.inspection.runs import recorded_result
from microagents.runs.plan import RunPlan
from microagents.runs.references import references_in
from microagents.runs.result import Result, Results
from microagents.runs.settings import Settings, own_prices, validated
from microagents.runs.strategies import OneModel, check_for_ray, model_pools, strategy_of
from microagents.runs.task_list import Tasks, dump_options, tasks_of
from microagents.runs.words.verdict import counted
from microagents.studies.ceilings import Ceiling, ceiling_of
from microagents.studies.compare import variants_of
from microagents.studies.measured import Latency, ModelMeasurement
from microagents.studies.measuring import FIRST, Measured, Measuring, chosen_among
from microagents.studies.pools import groups_of
from microagents.studies.series import Series, SeriesOutcome, short_digest
from microagents.studies.states import States, has_oracle
from microagents.studies.trials import AgentMeasurement, check_judged, trials_in
from microagents.systems.agents.act import Act
from microagents.systems.agents.agent import AgentTask
from microagents.systems.chains.row_task import RowTask
from microagents.systems.questions.problem import Problem
from microagents.task import ChainTask, Task

STEPS, TRIALS = 1_000, 20
"""Number of steps, and of trials of an agent, by default."""
ROWS = 20
"""Number of rows on which votes are held by default: if one in seven stayed open, at least one of these would in .95."""
FACTS = (
    *("model", "run_id", "total", "draws", "calls", "cost_usd", "call_usd", "input_tokens", "output_tokens"),
    *("latency", "limits", "valid", "judged", "certified", "lookahead", "thresholds"),
)
"""Fields of every measured model in ``--json``."""
JUDGED = ("completed", "undecided", "refused")
"""Outcomes of a measured run whose work has ended."""
EXTENDED = tuple(f"strategy.{name}" for name in ("steps", "draws", "rollouts", "horizon", "states", "of"))
"""Fields that may differ when a measurement is asked again: its journal has the samples so far, and only others are bought."""


class Measurement(Struct, frozen=True, kw_only=True):
    """Measurements of models on one task."""

    outcome: SeriesOutcome
    reason: str | None
    """Why it ended early, in one sentence; None if it is completed."""
    task: str
    options: dict[str, Any]
    seed: int
    source: str
    """Source of the states of the steps."""
    models: tuple[ModelMeasurement, ...] = ()
    """The models whose samples are complete, in the order given."""
    agents: tuple[AgentMeasurement, ...] = ()
    """The same for the trials of an agent."""
    pools: tuple[Ceiling, ...] = ()
    """Ceilings of every two models that are judged, and of all."""
    recorded_at: str | None = None
    """When the first of the recorded runs began that gave all answers; None if a sample was drawn by this call."""

    def as_json(self) -> dict[str, Any]:
        """Build the object that ``--json`` prints: the same however often the measurement was continued."""
        left_out = ("models", "recorded_at")
        found: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__ if name not in left_out}
        return {**found, "models": [_facts(each) for each in self.models]}


async def measure(
    task: Tasks,
    models: OneModel | Sequence[OneModel],
    *,
    steps: int | None = None,
    draws: int | None = None,
    states: States | None = None,
    rollouts: int = 0,
    horizon: int = 8,
    pilot: int | None = None,
    k: int | None = None,
    options: Mapping[str, Any] | None = None,
    runs_dir: str | Path = "runs",
    run_id: str | None = None,
    on_model: Callable[[str], None] | None = None,
    **given: Unpack[SharedKeywords],
) -> Measurement:
    """Measure models on random steps of a task, one after the other. The same call again continues it.

    With more steps, draws or rollouts, only the further samples are drawn.

    Args:
        task: a chain with an oracle; or inputs that are one question each: problems, or chains of one step, also without an oracle; or an
            agent with a `check`.
        models: the models, each on its own, all on the same steps.
        steps: number of steps or inputs, at most all; by default 1,000. Of an agent the number of trials, by default 20.
        draws: number of samples of every step; by default two, and ten if they are not both right.
        states: the states of the steps; by default the oracle's. Without an oracle, only the agreement of two samples is measured.
        rollouts: number of rollouts from each step.
        horizon: number of steps in a rollout.
        pilot: number of rows of a table on which complete votes are held besides, with samples of their own; by default 20.
        k: the lead that decides these votes; by default the strategy's.
        options: of an agent options of `act`, such as its margins.
        runs_dir: the folder of journals; each model has one.
        run_id: name of the run of one model, or prefix of several names; by default made from the arguments.
        on_model: called with the spec of each model as its run begins.
        given: callbacks (`RunControl`), which get the run that is done, and the expected cost of all that is left; and `SettingKeywords`
            for all runs, such as ``seed``. The limits hold over all models and sittings.

    Raises:
        InvalidUsage: an argument is wrong; nothing was started.
        MicroagentsError: the run of a model failed, see `run`; the samples so far are kept.
    """
    check_arguments({"runs_dir": runs_dir, **given})
    models = [models] if isinstance(models, str) or not isinstance(models, Sequence) else models
    chain = task if isinstance(task, ChainTask) and not isinstance(task, AgentTask) else None
    _check(chain, models, states=states, rollouts=rollouts)
    if options and not isinstance(task, AgentTask):
        raise InvalidUsage(
            "options of a strategy are for the trials of an agent, and the horizon for --rollouts N; leave them out"
        )
    settings = {"keep_texts": "all", "share": "off", **without_control(given)}
    asked: dict[str, Any] = {"steps": steps, "draws": draws, "rollouts": rollouts, "horizon": horizon}
    wanted = stated(asked)
    seed = given.get("seed", 0)
    accepted: Sequence[str] = ()
    strategy: Measuring | Act
    given_tasks = tasks_of([task] if isinstance(task, Task) else task)
    is_of_rows = chain is None and isinstance(given_tasks[0], RowTask)
    if not is_of_rows and (pilot or k is not None):
        raise InvalidUsage("a pilot and its k are for the rows of a table; leave them out")
    if isinstance(task, AgentTask):
        tasks, strategy = _trials(task, wanted, options or {})
        source = f"{len(tasks):,} trials"
        identity: list[Any] = [dump_options(strategy), *map(dump_options, tasks)]
    elif chain is not None:
        accepted, source = EXTENDED, "the oracle" if states is None else states.source
        tasks, strategy = [chain], validated(Measuring, "the measurement", wanted)
        if states is not None:
            chosen = states.chosen(strategy.steps, seed)
            of = {"steps": len(chosen), "states": chosen, "of": len(states.given), "judged": has_oracle(chain, states)}
            strategy = strategy.model_copy(update=of)
        identity = [dump_options(chain), *([each.state for each in states.given] if states else [])]
    else:
        if is_of_rows:
            wanted |= {} if k is None else {"k": k}
        tasks, strategy = _inputs(given_tasks, wanted, seed, ROWS if is_of_rows and pilot is None else pilot or 0)
        source = f"{counted(strategy.of or 1, 'input')}, each one step"
        votes = [strategy.pilot, strategy.k] if strategy.pilot else []
        identity = [strategy.of, *votes, *map(dump_options, tasks)]
    plans = _plans(tasks, strategy, models, identity, listed=chain is None, run_id=run_id, settings=settings)
    plans = {spec: await with_tools_of_servers(plan) for spec, plan in plans.items()}
    series = Series("measurement", plans, Path(runs_dir), ended=JUDGED, accepted=accepted)
    outcome, reason, begun = await series.do(given, on_model)
    ended = {spec: each for spec, each in zip(plans, begun, strict=False) if each.outcome in JUDGED}
    first = tasks[0]
    report = Measurement(
        outcome=outcome,
        reason=reason,
        task=TASKS.name_of(address_of(type(first))),
        options=dump_options(task) if isinstance(task, Task) else {},
        seed=plans[next(iter(plans))].settings["seed"],
        source=source,
        recorded_at=series.recorded_at,
    )
    if isinstance(task, AgentTask):
        return structs.replace(report, agents=tuple([trials_in(Path(runs_dir), each) for each in ended.values()]))
    found = [_findings(*each) for each in ended.items()]
    assert isinstance(strategy, Measuring)
    return structs.replace(
        report,
        models=tuple(found),
        pools=tuple(_pools([each for each in found if each.judged])),
    )


def measured_from(runs_dir: Path, run_id: str, task: Task | None = None) -> ModelMeasurement | AgentMeasurement:
    """Read the measurements of a run; if a task is given, of it, perhaps with other options, such as another size.

    Raises:
        InvalidUsage: the run is unknown, is neither a completed measurement nor several trials of an agent, or is another task's.
    """
    with reader_of(runs_dir, run_id) as reader:
        recipe, result, is_known = reader.experiment.recipe, recorded_result(reader), reader.is_known
    is_agent = recipe.strategy == reference_to(Act) and isinstance(result.recorded, Results)
    if not is_agent and recipe.strategy != reference_to(Measuring):
        raise InvalidUsage(f"run {run_id!r} is not a measurement; make one: microagents measure {result.task}")
    if task is not None and result.task != (own := TASKS.name_of(address_of(type(task)))):
        raise InvalidUsage(
            f"run {run_id!r} is a measurement of {result.task}, not of {own}; make one: microagents measure {own}"
        )
    if result.outcome not in JUDGED:
        raise InvalidUsage(f"the measurement {run_id!r} has not ended; the command that began it continues it")
    if not is_known and (named := references_in([("model", result.models[0])])):
        raise InvalidUsage(
            f"you did not begin the measurement {run_id!r} here, and it gives {named[0]}, which may send your keys elsewhere; if you trust "
            f"it: microagents show {run_id} --trust-journal"
        )
    if is_agent:
        return trials_in(runs_dir, result)
    return _findings(result.models[0], result)


def model_measured(runs_dir: Path, run_id: str, task: Task) -> ModelMeasurement:
    """Read a run's measurements of the steps or inputs of a task, for the forecast of a run.

    Raises:
        InvalidUsage: see `measured_from`; or it measured trials of an agent.
    """
    found = measured_from(runs_dir, run_id, task)
    if isinstance(found, AgentMeasurement):
        raise InvalidUsage(
            f"run {run_id!r} measured trials of an agent, which promise no number of calls; plan it: microagents plan"
        )
    return found


def _check(
    chain: ChainTask | None,
    models: Sequence[OneModel],
    *,
    states: States | None,
    rollouts: int,
) -> None:
    if not models:
        raise InvalidUsage("a measurement needs at least one model")
    if chain is None:
        if states is not None or rollouts:
            raise InvalidUsage("states and rollouts belong to one chain of steps; leave them out")
        return
    strategy_of(Measuring(), chain, {})
    start, name = called(chain.start), type(chain).__name__
    if called(chain.done, start):
        raise InvalidUsage(f"{name} is done before its first step, so there is nothing to measure")
    if states is None and called(chain.oracle, start) is None:
        raise InvalidUsage(
            f"{name} has no oracle, so its replies cannot be judged; define the method `oracle`, or take the states of an earlier run: "
            "measure --from RUN"
        )
    if states is not None and not has_oracle(chain, states) and rollouts:
        raise InvalidUsage(f"{name} has no oracle, so rollouts cannot be judged")


def _trials(task: AgentTask, wanted: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[list[Task], Act]:
    if "draws" in wanted:
        raise InvalidUsage("an agent's actions are voted on as in a run; leave out --repeat, and give --steps trials")
    check_judged(task)
    return variants_of(task, wanted.get("steps", TRIALS)), validated(Act, "strategy 'act'", options, flag="-s")


def _inputs(given: Sequence[Task], wanted: Mapping[str, Any], seed: int, pilot: int) -> tuple[list[Task], Measuring]:
    strategy = validated(Measuring, "the measurement", dict(wanted))
    judged = _judged_by_gold(given)
    chosen_of = chosen_among(len(judged), min(strategy.steps, len(judged)), seed)
    numbers = [judged[each] for each in sorted(chosen_of)]
    chosen = [given[number] for number in numbers]
    is_judged = [_has_right_reply(number, task) for number, task in zip(numbers, chosen, strict=True)]
    if any(is_judged) and not all(is_judged):
        number = numbers[is_judged.index(False)]
        raise InvalidUsage(
            f"{type(given[0]).__name__} has an oracle for some inputs, and none for input {number}, so its replies cannot be judged"
        )
    at = chosen_among(len(judged), min(pilot, len(numbers)), seed)  # the first of those chosen
    held = tuple([judged[each] for each in sorted(at)])
    of = {"numbers": tuple(numbers), "of": len(judged), "judged": all(is_judged), "pilot": held}
    return chosen, strategy.model_copy(update=of)


def _judged_by_gold(given: Sequence[Task]) -> Sequence[int]:
    """Number the inputs to choose among: those with a gold value if there are gold columns, else all."""
    if not (isinstance(given[0], RowTask) and given[0].gold):
        return range(len(given))
    return [number for number, each in enumerate(given) if isinstance(each, RowTask) and each.gold_values]


def _has_right_reply(number: int, task: Task) -> bool:
    """Whether code knows the right reply to an input; else only the agreement of its samples is measured."""
    name = type(task).__name__
    if isinstance(task, Problem):
        if type(task).correct is Problem.correct:
            raise InvalidUsage(f"{name} has no method `correct`, so its answers cannot be judged")
    elif not isinstance(task, ChainTask) or isinstance(task, AgentTask):
        raise InvalidUsage(f"{name} is neither a problem nor a chain, so its inputs cannot be measured")
    elif called(task.steps) != 1:
        raise InvalidUsage(
            f"input {number} of {name} is not one step, and a measurement of its first one would say nothing of the others; measure the "
            "steps of one input"
        )
    else:
        start = called(task.start)
        return bool(called(task.right_fields, start)) or called(task.oracle, start) is not None
    return True


def _plans(
    tasks: Sequence[Task],
    strategy: Measuring | Act,
    models: Sequence[OneModel],
    identity: object,
    *,
    listed: bool,
    run_id: str | None,
    settings: Mapping[str, Any],
) -> dict[str, RunPlan]:
    """Build a plan for each model, by its name."""
    plans, address = {}, address_of(type(tasks[0]))
    for model in models:
        given = model_pools(model, [strategy])
        shared = validated(
            Settings, "the measurement", {**settings, "models": given.pools, "run_id": run_id or "measure"}
        )
        check_for_ray(settings, shared["runtime"])
        spec = ", ".join(given.pools[""])
        asked = short_digest((address, identity, shared["seed"], isinstance(strategy, Act)))
        prefix = run_id or f"measure-{TASKS.name_of(address).lower()}-{asked}"
        own = run_id if run_id is not None and len(models) == 1 else f"{prefix}-{short_digest(spec)}"
        named: Settings = {**shared, "run_id": own}
        plans[spec] = RunPlan(
            tasks=tasks, listed=listed, strategy=strategy, settings=named, model_objects=given.objects
        )
    return plans


def _findings(spec: str, result: Result) -> ModelMeasurement:
    of_inputs, account = isinstance(result.recorded, Results), result.account
    found = msgspec.convert(list(result.recorded) if of_inputs else [result.recorded], list[Measured])
    return ModelMeasurement(
        model=spec,
        run_id=result.run_id,
        total=found[0].total,
        of_inputs=of_inputs,
        steps=tuple([step for each in found for step in each.steps]),
        calls=result.calls,
        flags=account.flagged,
        input_tokens=account.input_tokens,
        output_tokens=account.output_tokens,
        cost_usd=result.cost_usd,
        cached_tokens=account.cached_tokens,
        prices=own_prices(result.settings),
        limits=account.limits.get(spec, {}),
        latency=_latency(account.durations),
    )


def _latency(durations: Mapping[int, int]) -> Latency | None:
    if not durations:
        return None
    return Latency(p50=quantile_s(durations, 0.5), p95=quantile_s(durations, 0.95), p99=quantile_s(durations, 0.99))


def _pools(models: Sequence[ModelMeasurement]) -> Iterator[Ceiling]:
    """Yield the ceilings of every two models, and of all if they are more."""
    for group in groups_of(models):
        yield ceiling_of([each.model for each in group], [each.steps for each in group])


def _facts(found: ModelMeasurement) -> dict[str, Any]:
    facts: dict[str, Any] = {name: getattr(found, name) for name in FACTS}
    if found.pilot is not None:
        facts["pilot"] = found.pilot
    facts |= {
        "steps": len(found.steps),
        "agreement": found.agreement if any(each.first_valid == FIRST for each in found.steps) else None,
    }
    if not found.judged:
        return facts | {name: getattr(found, name) for name in ("p_high", "as_decided", "differing")}
    rates, (kind, said) = found.rates(), found.verdict()
    facts |= {
        name: getattr(found, name)
        for name in ("p", "hard", "trend", "by_length", "mistakes", "fields", "confused", "ceiling")
    }
    facts |= {"p_ordinary": rates.p_ordinary, "correlation": rates.correlation, "most_hard": rates.hard.high}
    return {**facts, "condition": found.condition(found.total), "verdict": kind, "said": said}
