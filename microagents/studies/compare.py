"""Comparisons of strategies on one task: a row for each, all on the same inputs, each a run with its own journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, Unpack

import msgspec

from microagents.actors.registry import STRATEGIES, TASKS, unknown
from microagents.actors.role import Strategy
from microagents.base.errors import InvalidUsage
from microagents.base.messages import address_of
from microagents.base.user_code import called
from microagents.models.model import ModelObject
from microagents.runs.driver.keywords import SharedKeywords, check_arguments, without_control
from microagents.runs.driver.tool_lists import with_tools_of_servers
from microagents.runs.plan import RunPlan
from microagents.runs.settings import Settings, validated
from microagents.runs.strategies import Models, check_for_ray, check_strategy, model_pools, strategy_of
from microagents.runs.task_list import Tasks, compact_options, dump_options, tasks_of
from microagents.studies.comparison import ENDED, Comparison, row_of
from microagents.studies.series import Series, short_digest
from microagents.task import Task

V = TypeVar("V")

DEFAULT_REPEAT = 20
"""Number of inputs of a comparison that is given one task."""


class _Chosen(NamedTuple):
    """A strategy to compare."""

    strategy: Strategy
    given: str
    """The options of only its row."""


async def compare(
    task: Tasks,
    *,
    models: Models,
    strategies: Sequence[str | Strategy] = (),
    k: Sequence[int] = (),
    options: Mapping[str, Any] | None = None,
    repeat: int | None = None,
    runs_dir: str | Path = "runs",
    run_id: str | None = None,
    on_row: Callable[[str], None] | None = None,
    **given: Unpack[SharedKeywords],
) -> Comparison:
    """Compare strategies on the same inputs, one strategy after the other. The same call again continues it.

    An undecided or failed input is not solved, and stops no other.

    Args:
        task: the first input; the others are its variants. A task without variants is done ``repeat`` times. Or a list of all inputs.
        models: as for `run`.
        strategies: names or instances, a row for each; none for the task's default strategy. Options of one row stand behind its name, as
            in ``aot@transitions=1,k=2``.
        k: values of ``k``, a row for each and for every strategy that has a ``k``; none for its default.
        options: options of strategies; each applies to all strategies that have a field of its name.
        repeat: number of inputs, by default 20; of a list the number of times that each input is done. If inputs are done several times,
            the result has the chance that k trials of one succeed (pass^k).
        runs_dir: the folder of journals; each row has one.
        run_id: prefix of the names of the rows' runs; by default made from the arguments of the comparison.
        on_row: called with the name of each row as it begins.
        given: callbacks (`RunControl`), which get the row that is done, and the expected cost of all that is left; and `SettingKeywords`
            for all rows, such as ``seed``. The limits hold over all rows and sittings.

    Raises:
        InvalidUsage: an argument is wrong; nothing was started.
        MicroagentsError: the run of a row failed, see `run`; the results of rows that have ended are kept.
    """
    check_arguments({"runs_dir": runs_dir, "options": options or {}, **given})
    if repeat is not None and repeat < 1:
        raise InvalidUsage(f"repeat must be at least 1, not {repeat!r}")
    if isinstance(task, Task):
        inputs = variants_of(task, repeat or DEFAULT_REPEAT)
    else:
        inputs = [each for each in tasks_of(task) for _ in range(repeat or 1)]
    first, settings = inputs[0], without_control(given)
    chosen = _strategies(first, strategies or [first.default_strategy], k, options or {})
    pools = model_pools(models, [each.strategy for each in chosen])
    shared = validated(Settings, "the comparison", {**settings, "models": pools.pools, "run_id": run_id or "compare"})
    check_for_ray(settings, shared["runtime"])
    options_of_first, own = compact_options(inputs)
    compared = dump_options(task) if isinstance(task, Task) else (options_of_first, list(own))
    address = address_of(type(first))
    # Comparisons whose results could differ have different names.
    digest = short_digest((address, compared, shared["models"], shared["seed"], shared["on_undecided"], len(inputs)))
    prefix = run_id or f"compare-{TASKS.name_of(address).lower()}-{digest}"
    plans = [await with_tools_of_servers(each) for each in _plans(chosen, inputs, shared, pools.objects, prefix)]
    titles = [f"{_title(each)} (row {number} of {len(chosen)})" for number, each in enumerate(chosen, 1)]
    series = Series("comparison", dict(zip(titles, plans, strict=True)), Path(runs_dir), ended=ENDED)
    outcome, reason, results = await series.do(given, on_row)
    rows = [row_of(each.strategy, each.given, result, inputs) for each, result in zip(chosen, results, strict=False)]
    differing = {name for each in own for name in msgspec.json.decode(each, type=dict[str, Any])}
    common = {name: value for name, value in options_of_first.items() if name not in differing}
    return Comparison(
        outcome=outcome,
        reason=reason,
        task=TASKS.name_of(address),
        options=dump_options(task) if isinstance(task, Task) else common,
        models=shared["models"],
        seed=shared["seed"],
        repeat=len(inputs),
        rows=tuple(rows),
        recorded_at=series.recorded_at,
    )


def variants_of(task: Task, repeat: int) -> list[Task]:
    """Return the task and its variants; a task without variants several times."""
    if repeat < 1:
        raise InvalidUsage(f"repeat must be at least 1, not {repeat!r}")
    return [called(task.variant, number, gives=type(task)) for number in range(repeat)]


def _strategies(
    task: Task,
    strategies: Sequence[str | Strategy],
    ks: Sequence[int],
    options: Mapping[str, Any],
) -> list[_Chosen]:
    """Every strategy, once for every k if it has one. Equal ones are taken once."""
    for each in strategies:
        check_strategy(each)
    named = [_with_own_options(each) for each in strategies]
    kinds = [STRATEGIES.find(each, Strategy) if isinstance(each, str) else type(each) for each, _ in named]
    fields = list(dict.fromkeys(name for kind in kinds for name in kind.model_fields))
    for name, value in (*options.items(), *[("k", ks)] * bool(ks)):
        if value is not False and not any(kind.takes(name) for kind in kinds):
            raise InvalidUsage(unknown("option of the compared strategies named", name, fields))
    found: list[_Chosen] = []
    for (given, of_row), kind in zip(named, kinds, strict=True):
        own = {name: value for name, value in options.items() if kind.takes(name)} | of_row
        for more in [{"k": k} for k in ks] if ks and kind.takes("k") and "k" not in of_row else [{}]:
            strategy = strategy_of(given, task, {**own, **more})
            if strategy not in [each.strategy for each in found]:
                found.append(_Chosen(strategy, ",".join(f"{name}={value}" for name, value in of_row.items())))
    return found


def _with_own_options(given: str | Strategy) -> tuple[str | Strategy, dict[str, str]]:
    """A strategy, and the options that stand behind its name: ``aot@transitions=1,k=2``."""
    if not isinstance(given, str):
        return given, {}
    name, _, words = given.rpartition("@")
    if not name or "=" not in words:  # an @ in the path of a file
        return given, {}
    pairs = [word.partition("=") for word in words.split(",")]
    for option, equals, _ in pairs:
        if not (option and equals):
            raise InvalidUsage(f"options behind a name must be NAME=VALUE, with commas between them, not {given!r}")
    return name, {option: value for option, _, value in pairs}


def _title(row: _Chosen) -> str:
    name = STRATEGIES.name_of(address_of(type(row.strategy)))
    named, k = f"{name}@{row.given}" if row.given else name, row.strategy.deciding_votes
    if k is None:
        return named
    return f"{named} k={k}"


def _plans(
    chosen: Sequence[_Chosen], inputs: Sequence[Task], shared: Settings, objects: Mapping[str, ModelObject], prefix: str
) -> list[RunPlan]:
    kinds = [(strategy.conductor, *(each.role for each in strategy.deployments())) for strategy, _ in chosen]
    roles = [[role.__name__.lower() for role in each] for each in kinds]
    everywhere = [role for each in roles for role in each]
    found = []
    for (strategy, _), own in zip(chosen, roles, strict=True):
        k, name = strategy.deciding_votes, STRATEGIES.name_of(address_of(type(strategy)))
        of_row = {
            "run_id": f"{prefix}-{name.lower().replace('+', '-')}{'' if k is None else f'-k{k}'}{_run_id_suffix(strategy)}",
            "models": _for_roles(shared["models"], own, everywhere),
            "deploy": _for_roles(shared["deploy"], own, everywhere),
            "share": "off",  # each input counts as a trial
        }
        settings = validated(Settings, "the comparison", {**shared, **of_row})
        found.append(RunPlan(tasks=inputs, listed=True, strategy=strategy, settings=settings, model_objects=objects))
    return found


def _run_id_suffix(strategy: Strategy) -> str:
    """A suffix that distinguishes a strategy from others with its name and k; empty for a shipped one with default options."""
    address = address_of(type(strategy))
    usual = {name: info.default for name, info in type(strategy).model_fields.items()}
    unusual = {
        name: value
        for name, value in dump_options(strategy).items()
        if name not in ("k", *strategy.changes_no_decision) and value != usual[name]
    }
    if unusual or address not in STRATEGIES.addresses.values():
        return f"-{short_digest((address, unusual))}"
    return ""


def _for_roles(given: Mapping[str, V], own: Sequence[str], everywhere: Sequence[str]) -> dict[str, V]:
    """Options by role, without roles that only other rows have. A row refuses options of unknown roles."""
    return {role: value for role, value in given.items() if role.lower() in own or role.lower() not in everywhere}
