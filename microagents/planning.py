"""From a task, a strategy and settings to what a journal keeps of them, and back."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from microagents.actors import Strategy
from microagents.chat import fingerprint, system_with_instructions
from microagents.errors import InvalidDefinition, InvalidUsage
from microagents.finding import STRATEGIES, TASKS, find
from microagents.journal.experiment import Experiment, Recipe
from microagents.messages import address_of
from microagents.settings import Settings, strategy_of, validated
from microagents.task import ChainTask, Task, chain_types

SHOWN_CHARS = 200
"""A value that is longer enters the identity by its digest: both values of a change are shown."""


class Plan(Struct, frozen=True, kw_only=True):
    """A run that can begin."""

    task: Task
    strategy: Strategy
    settings: Settings


def experiment_of(plan: Plan) -> Experiment:
    """What a journal keeps of a run."""
    task, strategy, settings = plan.task, plan.strategy, plan.settings
    return Experiment(
        run_id=settings.run_id,
        identity=dict(_identity(task, strategy, settings)),
        recipe=Recipe(
            task=_source(type(task)),
            options=_dumped(task),
            strategy=_source(type(strategy)),
            strategy_options=_dumped(strategy),
            settings=settings.model_dump(mode="json"),
        ),
        inputs=1,
        in_order=strategy.in_order,
    )


def plan_of(experiment: Experiment) -> Plan:
    """The task, the strategy and the settings that a journal was begun with.

    Raises:
        InvalidUsage: the code of one cannot be found any more.
    """
    recipe = experiment.recipe
    for kind, source in (("task", recipe.task), ("strategy", recipe.strategy)):
        if source.startswith("__main__:") or "<locals>" in source:
            raise InvalidUsage(
                f"the {kind} of run {experiment.run_id}, {source}, cannot be imported; run the program that began it again, with "
                f"run_id={experiment.run_id!r}"
            )
    task = validated(find("task", recipe.task, TASKS, Task), f"task {recipe.task!r}", recipe.options)
    chosen = validated(find("strategy", recipe.strategy, STRATEGIES, Strategy), recipe.strategy, recipe.strategy_options)
    return Plan(task=task, strategy=strategy_of(chosen, task, {}), settings=settings_of(experiment))


def settings_of(experiment: Experiment) -> Settings:
    """The settings that a journal was begun with."""
    return validated(Settings, "the run", experiment.recipe.settings)


def _identity(task: Task, strategy: Strategy, settings: Settings) -> Iterator[tuple[str, str]]:
    yield "task", address_of(type(task)).replace("__main__:", f"{Path(sys.argv[0]).stem}:")
    yield from _options("task", task)
    yield "strategy", address_of(type(strategy))
    yield from _options("strategy", strategy)
    for role, pool in sorted(settings.models.items()):
        yield f"model {role}".rstrip(), ", ".join(pool)
    yield "seed", str(settings.seed)
    yield "known_inputs", str(settings.known_inputs).lower()
    if isinstance(task, ChainTask):
        reply = chain_types(type(task))[1]
        yield "reply", fingerprint(reply).hex()
        asked = task.prompt(task.start())
        system = system_with_instructions(asked.system, reply, task.format)
        yield "prompt", blake2b(f"{system}\0{asked.user}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _options(kind: str, options: BaseModel) -> Iterator[tuple[str, str]]:
    for name, value in _dumped(options).items():
        yield f"{kind}.{name}", _shown(value)


def _dumped(options: BaseModel) -> dict[str, Any]:
    try:
        return options.model_dump(mode="json")
    except PydanticSerializationError as error:
        raise InvalidDefinition(f"the options of {type(options).__qualname__} cannot be kept in a journal: {error}") from None


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    digest = blake2b(text.encode(), digest_size=16).hexdigest()
    return text if len(text) <= SHOWN_CHARS else f"{len(text):,} characters with the digest {digest}"


def _source(named: type) -> str:
    """Where a class can be found again: its module, or its file where it is one of the user's own."""
    module = sys.modules[named.__module__]
    file = getattr(module, "__file__", None)
    if file is not None and named.__module__ != "__main__" and "." not in module.__name__ and not hasattr(module, "__path__"):
        return f"{Path(inspect.getfile(named)).resolve()}:{named.__qualname__}"
    return address_of(named)
