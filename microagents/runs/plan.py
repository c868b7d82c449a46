"""From a task, a strategy and settings to what a journal keeps of them, and back."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from microagents.actors import Strategy
from microagents.chat import fingerprint, system_with_instructions
from microagents.errors import InvalidUsage
from microagents.journal.experiment import FIRST_PROMPT, INPUTS, Experiment, Recipe
from microagents.journal.reading import Reader
from microagents.messages import address_of
from microagents.models.model import Model, ModelFunction
from microagents.registry import STRATEGIES, TASKS, source_of
from microagents.runs.settings import Settings, strategy_of, validated
from microagents.runs.task_list import TaskList, dump_options, compact_options
from microagents.task import Task

SHOWN_CHARS = 200
"""A value that is longer enters the identity by its digest: both values of a change are shown."""


class Plan(Struct, frozen=True, kw_only=True):
    """A run that can begin."""

    tasks: Sequence[Task]
    """One for each input, all of one class."""
    listed: bool
    """Whether it was given as a list of inputs: then it gives a list of results."""
    strategy: Strategy
    settings: Settings
    model_objects: Mapping[str, Model | ModelFunction] = {}
    """Models that were given as objects, by the spec that stands for each in the settings."""


def experiment_of(plan: Plan) -> tuple[Experiment, Sequence[str]]:
    """What a journal keeps of a run; and where it has a list of inputs, which options of each differ from the first's, as JSON."""
    task, strategy, settings = plan.tasks[0], plan.strategy, plan.settings
    first, own = (plan.tasks.first, plan.tasks.own) if isinstance(plan.tasks, TaskList) else compact_options(plan.tasks)
    own = own if plan.listed else []
    experiment = Experiment(
        run_id=settings.run_id,
        identity=dict(_identity(plan, first, own)),
        recipe=Recipe(
            task=source_of(type(task)),
            options=first,
            strategy=source_of(type(strategy)),
            strategy_options=dump_options(strategy),
            settings=settings.model_dump(mode="json"),
        ),
        inputs=len(plan.tasks),
        in_order=strategy.in_order,
        cuts_problems=strategy.cuts_problems,
        listed=plan.listed,
    )
    return experiment, own


def plan_of(reader: Reader) -> Plan:
    """The task, the strategy and the settings that a journal was begun with.

    Raises:
        InvalidUsage: the code of one cannot be found any more.
    """
    experiment = reader.experiment
    recipe = experiment.recipe
    for kind, source in (("task", recipe.task), ("strategy", recipe.strategy)):
        if source.startswith("__main__:") or "<locals>" in source:
            raise InvalidUsage(
                f"the {kind} of run {experiment.run_id}, {source}, cannot be imported; run the program that began it again, with "
                f"run_id={experiment.run_id!r}"
            )
    kind_of_task = TASKS.find(recipe.task, Task)
    each = (validated(kind_of_task, f"task {recipe.task!r}", options) for options in reader.options())
    tasks = TaskList(kind_of_task, *compact_options(each)) if experiment.listed else list(each)
    kind_of_strategy = STRATEGIES.find(recipe.strategy, Strategy)
    options = {**recipe.strategy_options, **recipe.moved_options(kind_of_strategy.model_fields)}
    chosen = strategy_of(validated(kind_of_strategy, recipe.strategy, options), tasks[0], {})
    return Plan(tasks=tasks, listed=experiment.listed, strategy=chosen, settings=settings_of(experiment))


def settings_of(experiment: Experiment) -> Settings:
    """The settings that a journal was begun with."""
    return validated(Settings, "the run", experiment.recipe.run_settings)


def _identity(plan: Plan, first: dict[str, Any], own: Sequence[str]) -> Iterator[tuple[str, str]]:
    """All that decisions depend on, field by field."""
    task, strategy, settings = plan.tasks[0], plan.strategy, plan.settings
    yield "task", address_of(type(task)).replace("__main__:", f"{Path(sys.argv[0]).stem}:")
    if plan.listed:
        yield INPUTS, f"{len(own):,} with the digest {_digest_of(first, own)}"
    else:
        yield from _options("task", first)
    yield "strategy", address_of(type(strategy))
    options = dump_options(strategy)
    yield from _options("strategy", {name: options[name] for name in options if name not in strategy.changes_no_decision})
    for role, pool in sorted(settings.models.items()):
        yield f"model {role}".rstrip(), ", ".join(pool)
    yield "seed", str(settings.seed)
    if (reply := type(task).reply_type()) is None:
        return
    yield "reply", fingerprint(reply).hex()
    try:
        asked = task.first_prompt()
    except Exception:  # a user's code may raise anything
        if not plan.listed:
            raise
        return  # that input fails where it is conducted, and must not hold up the others
    if asked is not None:
        system = system_with_instructions(asked.system, reply, task.format)
        yield FIRST_PROMPT, blake2b(f"{system}\0{asked.user}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _digest_of(first: dict[str, Any], own: Sequence[str]) -> str:
    """Of the options of all inputs: they are too many to be compared one by one whenever a journal is opened."""
    digest = blake2b(msgspec.json.encode(first), digest_size=16)
    for each in own:
        digest.update(f"\n{each}".encode())
    return digest.hexdigest()


def _options(kind: str, options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in options.items():
        yield f"{kind}.{name}", _shown(value)


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    digest = blake2b(text.encode(), digest_size=16).hexdigest()
    return text if len(text) <= SHOWN_CHARS else f"{len(text):,} characters with the digest {digest}"
