"""The strategy and the models of a run, from the names and objects that its caller gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from microagents.actors.registry import STRATEGIES, TASKS, unknown
from microagents.actors.role import Strategy
from microagents.base.errors import InvalidUsage
from microagents.base.messages import address_of
from microagents.models.model import ModelObject, spec_of
from microagents.runs.settings import validated
from microagents.systems.documents.document import Document
from microagents.systems.questions.problem import Problem
from microagents.task import ChainTask, Task

OneModel = str | ModelObject
"""A spec, an object with an async ``complete``, such as an instance of a user's provider, or an async function."""
Models = OneModel | Sequence[OneModel] | Mapping[str, OneModel | Sequence[OneModel]]
"""One model, a pool that samples rotate through, or pools by role."""


class ModelPools(NamedTuple):
    """Models of a run."""

    pools: dict[str, tuple[str, ...]]
    """Pools of specs by role."""
    objects: dict[str, ModelObject]
    """Models that were given as objects, by their spec in the pools."""


def model_pools(models: Models, strategies: Sequence[Strategy]) -> ModelPools:
    """Return the pools by role, from any of the forms that `run` accepts.

    Raises:
        InvalidUsage: a pool is empty, a pool's role asks no model, a role of a strategy has no pool, or two objects have one spec.
    """
    objects: dict[str, ModelObject] = {}
    by_role = models if isinstance(models, Mapping) else {"": models}
    pools = {}
    for role, given in by_role.items():
        if not isinstance(role, str):
            raise InvalidUsage(
                f"{role!r:.100} in models names no role: a dict of models is by role, such as {{'solver': 'sim:o3-mini'}}"
            )
        pool = [given] if isinstance(given, str) or not isinstance(given, Sequence) else given
        pools[role.lower()] = tuple([_spec(each, objects) for each in pool])
    if not (pools and all(pools.values())):
        raise InvalidUsage(f"{models!r} names no model, or a pool without one")
    drawing = [*dict.fromkeys(name for strategy in strategies for name in strategy.drawing())]
    known = [*drawing, *dict.fromkeys(name for strategy in strategies for name in strategy.drawing_in_part())]
    for role in pools:
        if role and role not in known:
            raise InvalidUsage(unknown("role with a model called", role, known))
    missing = [name for name in drawing if name not in pools]
    if "" not in pools and missing:
        raise InvalidUsage(
            f"there is a model for {', '.join(pools)}, but none for {', '.join(missing)}; name one for all other roles, too: "
            "--model SPEC, or the role '' in a dict"
        )
    return ModelPools({"": next(iter(pools.values())), **pools}, objects)


def _spec(model: OneModel, objects: dict[str, ModelObject]) -> str:
    if isinstance(model, str):
        return model
    spec = spec_of(model)
    if objects.setdefault(spec, model) is not model:
        raise InvalidUsage(
            f"two models have the spec {spec!r}; give each object another `spec`: the journal names them by it"
        )
    return spec


def strategy_of(strategy: str | Strategy | None, task: Task, options: Mapping[str, Any]) -> Strategy:
    """Build the strategy, and check that it fits the task.

    Args:
        strategy: a name or an instance; None for the task's default strategy.
        task: the task, or the first of many.
        options: options by name. False for an option that the strategy lacks changes nothing.
    """
    if strategy is None:
        strategy = task.default_strategy
    check_strategy(strategy)
    kind = STRATEGIES.find(strategy, Strategy) if isinstance(strategy, str) else type(strategy)
    options = {name: value for name, value in options.items() if value is not False or kind.takes(name)}
    if isinstance(strategy, str):
        strategy = validated(kind, f"strategy {strategy!r}", options, flag="-s")
    elif options:
        strategy = validated(kind, kind.__name__, {**strategy.model_dump(), **options})
    if not hasattr(strategy, "conductor"):
        raise InvalidUsage(f"{type(strategy).__name__} names no conductor; add one: conductor = MyConductor")
    if not isinstance(task, strategy.solves):
        named, kinds = (
            STRATEGIES.name_of(address_of(type(strategy))),
            " and ".join(map(_kind_solved, strategy.solves)) or "nothing",
        )
        raise InvalidUsage(
            f"{named} solves {kinds}, and {TASKS.name_of(address_of(type(task)))} is {_kind_of(task)}; its own strategy is "
            f"{task.default_strategy}"
        )
    if missing := type(task).missing_methods():
        raise InvalidUsage(
            f"{type(task).__name__} lacks {', '.join(f'{name}()' for name in missing)}, which every task of its kind needs"
        )
    return strategy


_KINDS: dict[type[Task], tuple[str, str]] = {
    Document: ("documents", "a document"),
    Problem: ("problems", "a problem"),
    ChainTask: ("chains of steps", "a chain of steps"),
}
"""Kinds of task in words, several and one. A kind stands before the kinds that it belongs to."""


def _kind_solved(kind: type[Task]) -> str:
    if kind in _KINDS:
        return _KINDS[kind][0]
    return TASKS.name_of(address_of(kind))


def _kind_of(task: Task) -> str:
    return next((one for kind, (_, one) in _KINDS.items() if isinstance(task, kind)), "of another kind")


def check_strategy(given: object) -> None:
    """Refuse a value that is neither the name of a strategy nor an instance."""
    if not isinstance(given, str | Strategy):
        raise InvalidUsage(
            f"strategy must be a name, or an instance such as Maker(k=3), not {given!r:.100}; nothing was started"
        )


WHERE_SET = "it is set on the command line, in a MICROAGENTS_ variable or in a file microagents.toml"
"""The places that an option may come from, for who did not type it."""


def check_for_ray(given: Mapping[str, Any], runtime: str) -> None:
    """Refuse settings for Ray on another runtime, which would ignore them."""
    reasons = {"address": "the address {!r} is a Ray cluster's", "lanes": "lanes={!r} are engines on Ray"}
    for name, reason in reasons.items():
        if given.get(name) is not None and runtime != "ray":
            said = reason.format(given[name])
            raise InvalidUsage(
                f"{said}, but the runtime is {runtime!r}; add --runtime ray, or leave it out: {WHERE_SET}"
            )
