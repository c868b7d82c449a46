"""Comparisons of strategies on one task: a row for each, all on the same inputs, each a run with its own journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct, structs

from microagents.actors import Strategy
from microagents.errors import InvalidUsage, JournalMismatch, MicroagentsError
from microagents.journal.opening import holds_nothing
from microagents.journal.reading import journal_of, reader_of
from microagents.messages import address_of
from microagents.models.model import ModelObject
from microagents.registry import STRATEGIES, TASKS, unknown
from microagents.runs.arguments import check_arguments
from microagents.runs.driver.budget import Budget
from microagents.runs.driver.execute import OnProgress, RunControl, execute_plan
from microagents.runs.driver.forecast import OnForecast, announce_forecast
from microagents.runs.inspection.runs import recorded_at, recorded_result
from microagents.runs.plan import Plan, experiment_of
from microagents.runs.result import Result
from microagents.runs.settings import Models, Settings, check_address, check_strategy, model_pools, strategy_of, validated
from microagents.runs.short_forms import long_form
from microagents.runs.studies.comparison import ENDED, Comparison, ComparisonOutcome, Row, row_of
from microagents.runs.task_list import compact_options, dump_options, tasks_of
from microagents.task import Task
from microagents.user_code import called

V = TypeVar("V")

DEFAULT_REPEAT = 20
"""Number of inputs of a comparison that is given one task."""


class _Chosen(NamedTuple):
    """A strategy to compare."""

    strategy: Strategy
    given: str
    """The options of its row alone."""


class _Entry(Struct, frozen=True, kw_only=True):
    """A strategy in the comparison, and the run of its row."""

    name: str
    k: int | None
    given: str
    """The options of this row alone, as they are written behind its name."""
    plan: Plan

    @property
    def run_id(self) -> str:
        return self.plan.settings.run_id

    @property
    def title(self) -> str:
        name = f"{self.name}@{self.given}" if self.given else self.name
        return name if self.k is None else f"{name} k={self.k}"

    def row(self, result: Result) -> Row:
        return structs.replace(row_of(self.plan.strategy, result, oracle_judges=self.plan.tasks[0].oracle_judges_result), given=self.given)


async def compare(
    task: Task | Sequence[Task],
    *,
    models: Models,
    strategies: Sequence[str | Strategy] = (),
    k: Sequence[int] = (),
    options: Mapping[str, Any] | None = None,
    repeat: int | None = None,
    speculate: bool | None = None,
    known_inputs: bool | None = None,
    max_draws: int | None = None,
    runs_dir: str | Path = "runs",
    run_id: str | None = None,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    max_cost_usd: float | None = None,
    max_time_s: float | None = None,
    on_row: Callable[[str], None] | None = None,
    on_progress: OnProgress | None = None,
    on_forecast: OnForecast | None = None,
    interrupt: asyncio.Event | None = None,
    terminate: asyncio.Event | None = None,
    **settings: Any,
) -> Comparison:
    """Compare strategies on the same inputs, one strategy after the other. The same call again continues where it ended.

    An undecided or failed input is not solved, and stops no other.

    Args:
        task: the first input; the others are its variants. A task without variants is done ``repeat`` times. Or a list of all inputs.
        models: as for `run`.
        strategies: names or instances, a row for each; none for the task's default strategy. Options of a row alone stand behind its
            name, as in ``aot@transitions=1,k=2``.
        k: values of ``k``, a row for each and for every strategy that has a ``k``; none for its default.
        options: options of strategies; each applies to all strategies that have a field of its name.
        repeat: number of inputs; by default 20, or all of a list.
        speculate: as for `run`.
        known_inputs: as for `run`.
        max_draws: as for `run`.
        runs_dir: the folder of journals; each row has one.
        run_id: prefix of the names of the rows' runs; by default made from the arguments of the comparison.
        max_calls: stop after this many calls, over all rows and sittings.
        max_tokens: stop before these calls use more tokens.
        max_cost_usd: stop before these calls cost more.
        max_time_s: stop this many seconds after the call.
        on_row: called with the name of each row as it begins.
        on_progress: called a few times a second with the account of the current row.
        on_forecast: called with the expected cost of all that is left, as for `run`.
        interrupt: once set, the comparison ends as ``interrupted`` after the calls in flight.
        terminate: once set, the comparison ends as ``interrupted`` at once.
        settings: other fields of `Settings` for all rows, such as ``seed``.

    Raises:
        InvalidUsage: an argument is wrong; nothing was started.
        MicroagentsError: the run of a row failed, see `run`; the results of rows that have ended are kept.
    """
    check_address(settings.get("address"), settings.get("runtime", "local"))
    check_arguments(runs_dir=runs_dir, on_progress=on_progress, on_forecast=on_forecast, interrupt=interrupt, terminate=terminate)
    inputs = _variants(task, DEFAULT_REPEAT if repeat is None else repeat) if isinstance(task, Task) else _listed(task, repeat)
    first, common = inputs[0], dump_options(task) if isinstance(task, Task) else _common_options(inputs)
    short = {"speculate": speculate, "known_inputs": known_inputs, "max_draws": max_draws}
    chosen = _strategies(first, strategies or [first.default_strategy], k, options or {}, short)
    given = model_pools(models, [each.strategy for each in chosen])
    limits = {"max_calls": max_calls, "max_tokens": max_tokens, "max_cost_usd": max_cost_usd, "max_time_s": max_time_s}
    shared = validated(Settings, "the comparison", {**settings, **limits, "models": given.pools, "run_id": run_id or "compare"})
    compared = dump_options(task) if isinstance(task, Task) else _options_of(inputs)
    entries = _entries(chosen, inputs, shared, given.objects, run_id or _run_id_prefix(first, compared, shared, len(inputs)))
    recorded = _recorded_rows(entries, Path(runs_dir))
    announce_forecast(
        [each.plan for each in entries if each.run_id not in recorded or recorded[each.run_id].done is None], runs_dir, on_forecast
    )
    outcome, reason, rows = await _do_rows(
        entries,
        recorded,
        Path(runs_dir),
        RunControl(on_progress=on_progress, interrupt=interrupt, terminate=terminate),
        on_row or (lambda _: None),
    )
    return Comparison(
        outcome=outcome,
        reason=reason,
        task=TASKS.name_of(address_of(type(first))),
        options=common,
        models=shared.models,
        seed=shared.seed,
        repeat=len(inputs),
        rows=rows,
        recorded_at=recorded_at([recorded[each.run_id].done if each.run_id in recorded else None for each in entries]),
    )


async def _do_rows(
    entries: Sequence[_Entry], recorded: dict[str, Recorded], runs_dir: Path, control: RunControl, on_row: Callable[[str], None]
) -> tuple[ComparisonOutcome, str | None, tuple[Row, ...]]:
    """Do the rows one after the other until one is stopped. Rows whose inputs have all ended are not done again.

    An undecided input may have sub-problems that were cancelled with it: to continue them would buy calls that change nothing.
    """
    rows: list[Row] = []
    budget = Budget(entries[0].plan.settings, {name: each.result for name, each in recorded.items()})
    for number, each in enumerate(entries, 1):
        place = f"{each.title} (row {number} of {len(entries)})"
        before = recorded.get(each.run_id)
        if before is not None and before.done is not None:
            rows.append(each.row(before.done))
            continue
        if any(event is not None and event.is_set() for event in (control.interrupt, control.terminate)):
            return "interrupted", f"interrupted before {place}", tuple(rows)
        if (limit := budget.spent_before(each.run_id)) is not None:
            return "stopped", f"{limit} is reached before {place}", tuple(rows)
        on_row(place)
        settings = each.plan.settings.model_copy(update=budget.left_for(each.run_id))
        try:
            result = await execute_plan(
                structs.replace(each.plan, settings=settings),
                runs_dir=runs_dir,
                only=None if before is None else before.left,
                control=control,
            )
        except MicroagentsError as error:
            if rows:
                error.add_note(f"this happened in {place}; the results of the rows before it are kept")
            raise
        budget.take(result)
        rows.append(each.row(result))
        if result.outcome == "interrupted":
            return "interrupted", f"interrupted in {place}", tuple(rows)
        if result.outcome not in ENDED:
            limit = budget.reached(result)
            return "stopped", f"{limit} is reached in {place}" if limit else f"stopped in {place}: {result.reason}", tuple(rows)
    return "completed", None, tuple(rows)


# -- entries --------------------------------------------------------------------------------------------------------------------------


def _variants(task: Task, repeat: int) -> list[Task]:
    """The inputs of all rows: the task and its variants."""
    if repeat < 1:
        raise InvalidUsage(f"repeat={repeat!r} will not do: a comparison needs at least one input")
    return [called(task.variant, number, gives=type(task)) for number in range(repeat)]


def _listed(given: Sequence[Task], repeat: int | None) -> Sequence[Task]:
    """The inputs of all rows, as they are given."""
    if repeat is not None:
        raise InvalidUsage(f"all inputs are given, so repeat={repeat!r} has no meaning; leave it out")
    return tasks_of(given)


def _options_of(inputs: Sequence[Task]) -> tuple[dict[str, Any], list[str]]:
    first, own = compact_options(inputs)
    return first, list(own)


def _common_options(inputs: Sequence[Task]) -> dict[str, Any]:
    """The options that are the same in all inputs."""
    first, own = compact_options(inputs)
    differing = {name for each in own for name in msgspec.json.decode(each, type=dict[str, Any])}
    return {name: value for name, value in first.items() if name not in differing}


def _run_id_prefix(task: Task, inputs: object, settings: Settings, repeat: int) -> str:
    """Prefix of the names of all rows. Comparisons whose results could differ have different ones."""
    address = address_of(type(task))
    compared = (address, inputs, settings.models, settings.seed, settings.on_undecided, repeat)
    return f"compare-{TASKS.name_of(address).lower()}-{_digest(compared)}"


def _strategies(
    task: Task, strategies: Sequence[str | Strategy], ks: Sequence[int], options: Mapping[str, Any], short: Mapping[str, Any]
) -> list[_Chosen]:
    """Every strategy, once for every k if it has one. Equal ones are taken once."""
    for each in strategies:
        check_strategy(each)
    named = [_with_own_options(each) for each in strategies]
    kinds = [STRATEGIES.find(each, Strategy) if isinstance(each, str) else type(each) for each, _ in named]
    fields = list(dict.fromkeys(name for kind in kinds for name in kind.model_fields))
    options = {**options, **long_form(short, lambda name: any(kind.takes(name) for kind in kinds))}
    for name in (*options, *["k"] * bool(ks)):
        if not any(kind.takes(name) for kind in kinds):
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
    """A strategy, and the options that stand behind its name: ``aot@transitions=1,k=2``.

    Raises:
        InvalidUsage: one has no value.
    """
    if not isinstance(given, str):
        return given, {}
    name, _, words = given.rpartition("@")
    if not name or "=" not in words:  # an @ in the path of a file
        return given, {}
    pairs = [word.partition("=") for word in words.split(",")]
    for option, equals, _ in pairs:
        if not (option and equals):
            raise InvalidUsage(f"{given!r} will not do: options behind a name are of the form NAME=VALUE, with commas between them")
    return name, {option: value for option, _, value in pairs}


def _entries(
    chosen: Sequence[_Chosen], inputs: Sequence[Task], shared: Settings, objects: Mapping[str, ModelObject], prefix: str
) -> list[_Entry]:
    roles = [_role_names(each.strategy) for each in chosen]
    everywhere = [role for each in roles for role in each]
    found = []
    for (strategy, row_options), own in zip(chosen, roles, strict=True):
        k = strategy.deciding_votes
        name = STRATEGIES.name_of(address_of(type(strategy)))
        settings = {
            **shared.model_dump(),
            "run_id": f"{prefix}-{name.lower().replace('+', '-')}{'' if k is None else f'-k{k}'}{_run_id_suffix(strategy)}",
            "models": _for_roles(shared.models, own, everywhere),
            "deploy": _for_roles(shared.deploy, own, everywhere),
        }
        plan = Plan(
            tasks=inputs, listed=True, strategy=strategy, settings=validated(Settings, "the comparison", settings), model_objects=objects
        )
        found.append(_Entry(name=name, k=k, given=row_options, plan=plan))
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
    return f"-{_digest((address, unusual))}" if unusual or address not in STRATEGIES.addresses.values() else ""


def _digest(value: object) -> str:
    return blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=4).hexdigest()


def _role_names(strategy: Strategy) -> list[str]:
    return [role.__name__.lower() for role in (strategy.conductor, *(each.role for each in strategy.deployments()))]


def _for_roles(given: Mapping[str, V], own: Sequence[str], everywhere: Sequence[str]) -> dict[str, V]:
    """Options by role, without those of roles that only other rows have. A row refuses options of unknown roles."""
    return {role: value for role, value in given.items() if role.lower() in own or role.lower() not in everywhere}


# -- journals -------------------------------------------------------------------------------------------------------------------------


class Recorded(NamedTuple):
    """The result of a row in earlier sittings."""

    result: Result
    left: list[int]
    """Numbers of the inputs that have not ended."""

    @property
    def done(self) -> Result | None:
        """The result if the row needs no more work."""
        return self.result if self.result.outcome in ENDED and not self.left else None


def _recorded_rows(entries: Sequence[_Entry], runs_dir: Path) -> dict[str, Recorded]:
    """The rows that have journals, by the names of their runs. All journals are checked before the first row begins.

    Raises:
        JournalMismatch: a journal belongs to another comparison; nothing was started.
    """
    found = {}
    for each in entries:
        if holds_nothing(journal_of(runs_dir, each.run_id)):
            continue
        with reader_of(runs_dir, each.run_id) as reader:
            try:
                reader.changes_to(*experiment_of(each.plan), ())
            except JournalMismatch as error:
                remedy = f"run {each.run_id} differs from the row {each.title}, and a comparison changes no run; give another --run-id"
                raise error.with_remedy(remedy) from None
            ended = {ending.input for ending in reader.input_endings()}
            left = [number for number in range(len(each.plan.tasks)) if number not in ended]
            found[each.run_id] = Recorded(recorded_result(reader), left)
    return found
