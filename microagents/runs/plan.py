"""Plans of runs, and their conversion to and from the experiment that a journal records."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct, structs

from microagents.actors.registry import STRATEGIES, TASKS, can_be_found, reference_to
from microagents.actors.role import Context, Strategy
from microagents.base.code_digests import code_digest
from microagents.base.errors import InvalidUsage, MicroagentsError
from microagents.base.messages import address_of
from microagents.base.named_values import stated
from microagents.base.struct_types import learn_all
from microagents.base.text_digests import digest_of
from microagents.base.user_code import called
from microagents.journal.experiment import CODE, FIRST_PROMPT, INPUTS, Experiment, InputsDigest, Recipe
from microagents.journal.opening import holds_nothing
from microagents.journal.reading import Reader, journal_of
from microagents.models.model import ModelObject
from microagents.replies.chat import Prompt
from microagents.replies.reply_forms import fingerprint, system_with_instructions
from microagents.runs.on_access import MadeOnAccess
from microagents.runs.references import references_in
from microagents.runs.settings import LIMITS, Settings, dumped, pools_of, validated
from microagents.runs.strategies import strategy_of
from microagents.runs.task_list import TaskList, asked_in, compact_options, dump_options
from microagents.systems.chains.row_task import RowTask
from microagents.task import ChainTask, Task

Form = Literal["format", "reasoning"]
FORM: tuple[Form, ...] = get_args(Form)
"""Settings that go before those of the task's class."""
OfReplies = Literal["max_output_tokens", "flag_above_tokens", "format", "reasoning"]
OF_REPLIES: tuple[OfReplies, ...] = get_args(OfReplies)
"""Settings that decisions depend on."""
MAX_VALUE_CHARS = 200
"""A longer value enters the identity as a digest, because error messages show both values of a change."""


class RunPlan(Struct, frozen=True, kw_only=True):
    """Everything that a run needs to begin."""

    tasks: Sequence[Task]
    """One task for each input, all of one class."""
    listed: bool
    """Whether the run was given a list of inputs. It then has a list of results."""
    strategy: Strategy
    settings: Settings
    model_objects: Mapping[str, ModelObject] = {}
    """Models that were given as objects, by their spec in the settings."""
    shards: int = 0
    """Number of the runs that do the inputs; 0 for this one."""
    of_inputs: int | None = None
    """Of one of these: the number of the inputs of all."""
    sharers: int = 1
    """Number of runs that share the limits of providers."""

    def __post_init__(self) -> None:
        learn_all()  # the task's classes are there now, and the run may be one of several threads'
        given: dict[str, object] = {name: self.settings[name] for name in FORM}
        form = stated(given)
        if form:
            structs.force_setattr(self, "tasks", asked_in(self.tasks, form))

    def context(self) -> Context:
        """Everything that the roles of the run are built from."""
        settings, named = self.settings, self.strategy.named_models
        return Context(
            run_id=settings["run_id"],
            seed=settings["seed"],
            tasks=self.tasks,
            is_of_many=(self.of_inputs or len(self.tasks)) > 1,
            strategy=self.strategy,
            models={**pools_of(settings), "ladder": named} if named else pools_of(settings),
            model_objects=self.model_objects,
            settings=dumped(settings),
            sharers=self.sharers,
        )


def check_batches(plan: RunPlan) -> None:
    """Refuse batches for steps that wait for each other, unless the user says how long each may take.

    Raises:
        InvalidUsage: the task is a chain, and ``batch_within`` is not given.
    """
    task, strategy = plan.tasks[0], plan.strategy
    waits = isinstance(task, ChainTask) and not isinstance(task, RowTask)
    if not plan.context().is_in_batches or plan.settings["batch_within"] is not None:
        return
    if waits and not (strategy.knows_inputs or strategy.asks_at_once):
        raise InvalidUsage(
            f"each step of {type(task).__name__} waits for the one before it, and in batches each may take a day; leave --batch and @batch "
            "out, or say how long a step may take: --batch-within 24h"
        )


def experiment_of(plan: RunPlan) -> tuple[Experiment, Sequence[str]]:
    """Return the experiment that a journal records for a plan, and per listed input, as JSON, its options that differ from the first's."""
    task, strategy, settings = plan.tasks[0], plan.strategy, plan.settings
    first, own = (plan.tasks.first, plan.tasks.own) if isinstance(plan.tasks, TaskList) else compact_options(plan.tasks)
    own = own if plan.listed else ()
    identity = dict(_identity(plan, first, own))
    code = code_digest([type(task), type(strategy)])
    if code is not None:
        identity[CODE] = code
    experiment = Experiment(
        run_id=settings["run_id"],
        identity=identity,
        recipe=Recipe(
            task=reference_to(type(task)),
            options=first,
            strategy=reference_to(type(strategy)),
            strategy_options=dump_options(strategy),
            settings=dumped(settings, "json"),
        ),
        inputs=len(plan.tasks),
        draws_solution=strategy.draws_solution,
        unit=type(task).progress_unit,
        listed=plan.listed,
        shards=plan.shards,
        of_inputs=plan.of_inputs,
    )
    return experiment, own


class _RecordedOptions(MadeOnAccess[str]):
    """Options of many inputs that are read on access."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __len__(self) -> int:
        return self._reader.experiment.inputs

    def made(self, index: int) -> str:
        return self._reader.own_options(index)


def plan_of(reader: Reader, *, whole: bool = False) -> RunPlan:
    """Return the plan of a recorded run: its tasks, strategy and settings. The code of the task and of the strategy is imported.

    The options of many inputs are read while the reader is open, or ``whole``, and checked, at once.
    """
    experiment = reader.experiment
    recipe = experiment.recipe
    for kind, reference in (("task", recipe.task), ("strategy", recipe.strategy)):
        if not can_be_found(reference):
            raise InvalidUsage(
                f"the {kind} of run {experiment.run_id}, {reference}, cannot be imported; start the program that began the run again, with "
                f"run_id={experiment.run_id!r}"
            )
    kind_of_task = TASKS.find(recipe.task, Task)
    tasks: Sequence[Task]
    if experiment.listed and not whole:
        tasks = TaskList(kind_of_task, recipe.options, _RecordedOptions(reader))
    else:
        with closing(reader.options()) as recorded:
            each = (validated(kind_of_task, f"task {recipe.task!r}", options) for options in recorded)
            if experiment.listed:
                tasks = TaskList(kind_of_task, *compact_options(each))
            else:
                tasks = list(each)
    kind_of_strategy = STRATEGIES.find(recipe.strategy, Strategy)
    chosen = strategy_of(validated(kind_of_strategy, recipe.strategy, recipe.strategy_options), tasks[0], {})
    return RunPlan(
        tasks=tasks,
        listed=experiment.listed,
        strategy=chosen,
        settings=settings_of(experiment),
        shards=experiment.shards,
        of_inputs=experiment.of_inputs,
    )


def what_stranger_names(reader: Reader) -> str | None:
    """Explain the risks of resuming a run that this user has neither begun nor continued here; None for any other run."""
    if reader.is_known:
        return None
    experiment, recipe = reader.experiment, reader.experiment.recipe
    settings = {name: value for name, value in recipe.settings.items() if name != "run_id"}
    parts = {"task": recipe.task, "strategy": recipe.strategy}
    named = references_in(
        [*parts.items(), *recipe.options.items(), *recipe.strategy_options.items(), *settings.items()]
    )
    if named:
        uses = f"uses {', '.join(named)}"
    else:
        uses = "names no code, no host and no file beyond this package"
    return f"you did not begin run {experiment.run_id} here, and to resume it does what its journal says, which {uses}"


def settings_of(experiment: Experiment) -> Settings:
    """Return the recorded settings of a run."""
    return validated(Settings, "the run", experiment.recipe.settings)


def recorded_limits(runs_dir: Path, run_id: str) -> dict[str, Any]:
    """Return the recorded limits of a run, by their setting, and its prices; none if nothing is recorded."""
    path = journal_of(runs_dir, run_id)
    if holds_nothing(path):
        return {}
    with Reader(path) as reader:
        settings = settings_of(reader.experiment)
    return {**{name: settings[name] for name in LIMITS}, "prices": settings["prices"]}


def _identity(plan: RunPlan, first: dict[str, Any], own: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the values that decisions depend on, by field."""
    task, strategy, settings = plan.tasks[0], plan.strategy, plan.settings
    yield "task", address_of(type(task)).replace("__main__:", f"{Path(sys.argv[0]).stem}:")
    if plan.listed:
        yield INPUTS, str(InputsDigest.of(first, own))
    else:
        yield from _option_fields("task", first)
    yield "strategy", address_of(type(strategy))
    options = dump_options(strategy)
    yield from _option_fields(
        "strategy", {name: options[name] for name in options if name not in strategy.changes_no_decision}
    )
    for role, pool in sorted(settings["models"].items()):
        yield f"model {role}".rstrip(), ", ".join(pool)
    yield "seed", str(settings["seed"])
    for name in OF_REPLIES:
        if (limit := settings[name]) is not None:
            yield name, str(limit)
    yield "reading", settings["reading"] or task.reading
    if settings["reuse"] is not None:
        yield "reuse", settings["reuse"]
    if (reply := type(task).reply_type()) is None:
        return
    yield "reply", fingerprint(reply).hex()
    try:
        asked: Prompt | None = called(task.first_prompt, gives=(Prompt, NoneType))
    except MicroagentsError:
        if not plan.listed:
            raise
        return  # the first input will fail when it is conducted, and must not stop the others
    if asked is not None:
        system = system_with_instructions(asked.system, reply, task.format, task.reasoning)
        yield FIRST_PROMPT, digest_of(f"{system}\0{asked.user}").hex()


def _option_fields(kind: str, options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in options.items():
        yield f"{kind}.{name}", _value_text(value)


def _value_text(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    if len(text) <= MAX_VALUE_CHARS:
        return text
    return f"{len(text):,} characters with the digest {digest_of(text).hex()}"
