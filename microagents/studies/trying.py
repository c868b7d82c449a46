"""A first try of one model on a task: the form in which it replies, how often it is right, and the settings that follow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Unpack

import msgspec
from msgspec import Struct, structs

from microagents.actors.registry import MODELS, STRATEGIES, TASKS
from microagents.actors.role import Strategy
from microagents.base.aio import TaskScope
from microagents.base.errors import InvalidUsage, MicroagentsError, Stopped
from microagents.base.messages import address_of
from microagents.base.plain_values import write_value
from microagents.base.user_code import called
from microagents.models.capabilities import UNKNOWN, capabilities_of
from microagents.models.http.provider import HttpModel
from microagents.models.model import Model, ModelSpec
from microagents.runs.doctor import examined_model
from microagents.runs.driver.begin import new_plan
from microagents.runs.driver.keywords import SharedKeywords, is_ended_by_caller, without_control
from microagents.runs.task_list import Tasks, dump_options, tasks_of
from microagents.studies.measure import measure
from microagents.studies.measured import ModelMeasurement, Verdict
from microagents.studies.measuring import FIRST, GivenState
from microagents.studies.preview import ShownStep, show_step
from microagents.studies.series import short_digest
from microagents.studies.states import States
from microagents.systems.agents.agent import AgentTask
from microagents.systems.chains.maker import Maker
from microagents.systems.chains.row_task import FIRST_ROWS, RowTask
from microagents.task import ChainTask, Task

KNOWN_STEPS = 3
"""Number of steps on which each form is tried."""
FORM_S = 15.0
"""Seconds for the samples in one form."""
UNKNOWN_TOKENS = 512
"""Limit of a reply by a model whose capabilities are not in the table: a small one on this machine may ramble."""
TOKENS_ROUNDED, ROOM = 64, 4
"""The advised limit of a reply is so many times the mean length, rounded up to a multiple."""
Advice = Literal["unreachable", "all-flagged", "unjudged"] | Verdict
SENTENCES: dict[Advice, str] = {
    "unreachable": "not with this model: {why}",
    "all-flagged": "not with this model: no reply is valid in any form; `try --one` shows replies in full",
    "unjudged": "it replies in the form asked for; whether rightly is not known without an oracle",
}
"""All that a try may advise besides the verdicts of a measurement. Docs: models.md."""
USELESS: tuple[Advice, ...] = ("unreachable", "all-flagged", "voting-hurts")
"""Advice against the model."""


class TriedForm(Struct, frozen=True, kw_only=True):
    """A form of reply, and the measurement of the model in it."""

    name: str
    model: str
    """The spec, with the schema if there is one."""
    settings: Mapping[str, Any]
    """Settings that ask for the form, if the task's class does not."""
    found: ModelMeasurement | None = None
    """None if the samples are not complete, for the reason."""
    reason: str | None = None

    @property
    def right(self) -> int | None:
        """Number of right samples; None if nothing judges them."""
        if self.found is None or not self.found.judged:
            return None
        return sum(each.valid - each.wrong for each in self.found.steps)

    @property
    def valid(self) -> int:
        """Number of samples without a red flag."""
        if self.found is None:
            return 0
        return sum(each.valid for each in self.found.steps)

    @property
    def tokens(self) -> float | None:
        """Mean number of tokens of a reply."""
        if self.found is None:
            return None
        return self.found.output_tokens / max(1, self.found.calls)

    def as_json(self) -> dict[str, Any]:
        """Build the object that ``--json`` prints."""
        facts = {
            name: getattr(self, name) for name in ("name", "model", "settings", "reason", "right", "valid", "tokens")
        }
        if (found := self.found) is not None:
            facts |= {"samples": found.draws, "flags": found.flags, "latency": found.latency}
            facts |= {"cost_usd": found.cost_usd, "run_id": found.run_id}
        return facts


class Tried(Struct, frozen=True, kw_only=True):
    """Findings of a try."""

    model: str
    task: str
    advice: Advice
    said: str
    """The advice in one sentence."""
    forms: tuple[TriedForm, ...] = ()
    best: TriedForm | None = None
    """The form with the most right replies, or valid ones if nothing judges them; of equal ones the task's own."""
    settings: dict[str, Any] = {}
    """Advised options of the command line."""
    k: int | None = None
    """The k at which calls and cost are counted."""
    calls: float | None = None
    """Expected calls of the whole task; None if unknown."""
    cost_usd: float | None = None
    """Their cost."""
    hard: list[int] = []
    """Numbers of the hard steps that were seen."""
    served: str = ""
    """The provider's words on the model: its limits, inputs and end; empty without a provider."""
    rows: tuple[ShownStep, ...] = ()
    """The first rows of a table, each with its prompt and one reply in the best form; empty of other work."""
    is_interrupted: bool = False

    def as_json(self) -> dict[str, Any]:
        """Build the object that ``--json`` prints."""
        facts: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__}
        best = None if self.best is None else self.best.name
        return {**facts, "forms": [each.as_json() for each in self.forms], "best": best}


async def try_model(
    task: Tasks,
    model: str,
    *,
    steps: int | None = None,
    runs_dir: str | Path = "runs",
    on_form: Callable[[str], None] = lambda _: None,
    **given: Unpack[SharedKeywords],
) -> Tried:
    """Try a model on three steps of a task in each form of reply, and on more steps in the best one.

    Args:
        task: a chain, or inputs that are one question each. A chain without an oracle is tried on its first step, unjudged.
        model: its spec.
        steps: number of steps in the best form, each sampled twice; by default `KNOWN_STEPS`.
        runs_dir: folder of journals: each form is a measurement with its own.
        on_form: called with the name of each form as it begins.
        given: as for `measure`.

    Raises:
        InvalidUsage: the task cannot be measured, or not on so few steps.
    """
    steps = KNOWN_STEPS if steps is None else steps
    if steps < KNOWN_STEPS:
        raise InvalidUsage(f"a try takes {KNOWN_STEPS} or more steps, not {steps}")
    tasks = tasks_of(task)
    first, name = tasks[0], TASKS.name_of(address_of(type(tasks[0])))
    if isinstance(first, AgentTask):
        raise InvalidUsage(f"an agent is measured by trials: microagents measure {name}")
    examined = await examined_model(model)
    missing = [each for each in examined if each.state == "missing"]
    if missing:
        why = f"{missing[0].subject.removeprefix(model)} {missing[0].said}".lstrip()
        said = SENTENCES["unreachable"].format(why=why)
        return Tried(model=model, task=name, advice="unreachable", said=said)
    spec = ModelSpec.parse(model)
    if _provider(spec) is not None and capabilities_of(spec.provider, spec.name) is UNKNOWN:
        given = {"max_output_tokens": min(first.sampling.max_output_tokens, UNKNOWN_TOKENS), **given}
    given = {"max_outage_s": FORM_S, **given}
    forms = list[TriedForm]()
    for form in _forms_of(first, model):
        on_form(form.name)
        forms.append(await _tried(form, task, KNOWN_STEPS, runs_dir, {**given, "on_forecast": None}))
        if is_ended_by_caller(given):
            break
    best = max((each for each in forms if each.valid), key=lambda each: (each.right or 0, each.valid), default=None)
    if best is not None and steps > KNOWN_STEPS and not is_ended_by_caller(given):
        on_form(f"{best.name}, {steps:,} steps")
        more = await _tried(best, task, steps, runs_dir, given)
        best = more if more.found is not None else best
    found = _advised(name, model, tasks, best, forms)
    if best is not None and isinstance(first, RowTask) and not is_ended_by_caller(given):
        found = structs.replace(found, rows=await _first_rows(tasks, best, given))
    served = next((each.said for each in examined if each.subject == f"{model} model"), "")
    return structs.replace(found, served=served, is_interrupted=is_ended_by_caller(given))


async def _first_rows(tasks: Sequence[Task], form: TriedForm, given: SharedKeywords) -> tuple[ShownStep, ...]:
    """Ask for one reply to each of the first rows; none if that takes too long."""
    strategy = Maker(k=1, max_draws=1)
    asked: Any = {**without_control(given), **form.settings, "strategy": strategy, "run_id": "try"}
    plans = [new_plan(each, form.model, asked) for each in tasks[:FIRST_ROWS]]
    with suppress(MicroagentsError, TimeoutError):
        async with asyncio.timeout(FORM_S), TaskScope() as scope:
            shown = [scope.start(show_step(each, 0)) for each in plans]
            await scope.join()
            return tuple([each.result() for each in shown])
    return ()


def _provider(spec: ModelSpec) -> type[HttpModel] | None:
    """Return the class of models behind HTTP that the spec names; None for any other."""
    kind = MODELS.find(spec.provider, Model) if spec.provider in MODELS.addresses else None
    if kind is not None and issubclass(kind, HttpModel):
        return kind
    return None


def _forms_of(task: Task, model: str) -> list[TriedForm]:
    """List the forms to try, the task's own first."""
    spec = ModelSpec.parse(model)
    wanted = [(task.format, task.reasoning), ("lines", True), ("lines", False), ("json", False)]
    forms = []
    for form, reasoning in dict.fromkeys(wanted):
        settings = {"format": form, "reasoning": reasoning}
        own = {name: value for name, value in settings.items() if value != getattr(task, name)}
        named = {"lines": "lines", "json": "JSON"}[form] + ("" if reasoning else ", no reasoning")
        forms.append(TriedForm(name=named, model=model, settings=own))
    has_schema = capabilities_of(spec.provider, spec.name).json_schema is not False and not task.looks_up
    if _provider(spec) is None or not has_schema:
        return forms
    *_, last = forms if task.format == "lines" or task.reasoning else forms[:1]
    if "json_schema" in spec.options:
        constrained = model
    else:
        constrained = f"{model}{',' if '@' in model else '@'}json_schema=true"
    schema = TriedForm(name="JSON schema", model=constrained, settings=last.settings)
    if constrained == model:
        return [schema]
    return [*forms, schema]


async def _tried(form: TriedForm, task: Tasks, steps: int, runs_dir: str | Path, given: SharedKeywords) -> TriedForm:
    first = tasks_of(task)[0]
    identity = (
        dump_options(first),
        None if isinstance(task, Task) else steps,  # a run keeps the inputs that it began with
        form.model,
        form.name,
        {name: given.get(name) for name in ("seed", "max_output_tokens")},
    )
    chosen: dict[str, Any] = {"steps": steps, "draws": FIRST if steps == KNOWN_STEPS else None}
    if isinstance(task, ChainTask) and called(task.oracle, called(task.start)) is None:
        state = GivenState(number=0, state=msgspec.to_builtins(called(task.start), enc_hook=write_value))
        chosen = {"draws": FIRST * steps, "states": States(source="the start", given=(state,))}
    run_id = f"try-{TASKS.name_of(address_of(type(first))).lower()}-{short_digest(identity)}"
    try:
        async with asyncio.timeout(FORM_S if steps == KNOWN_STEPS else None):
            report = await measure(
                task, form.model, **chosen, pilot=0, runs_dir=runs_dir, run_id=run_id, **{**given, **form.settings}
            )
    except (InvalidUsage, Stopped):
        raise
    except (TimeoutError, MicroagentsError) as error:
        slow = f"too slow for a try: its replies take more than {FORM_S:g} s; take `measure`"
        return structs.replace(form, reason=slow if isinstance(error, TimeoutError) else str(error))
    return structs.replace(form, found=next(iter(report.models), None), reason=report.reason)


def _advised(name: str, model: str, tasks: Sequence[Task], best: TriedForm | None, forms: Sequence[TriedForm]) -> Tried:
    advice: Advice
    if best is None or best.found is None:
        failed = next((each.reason for each in forms if each.reason is not None), None)
        advice = "all-flagged" if failed is None else "unreachable"
        return Tried(
            model=model, task=name, advice=advice, said=SENTENCES[advice].format(why=failed), forms=tuple(forms)
        )
    found, task = best.found, tasks[0]
    settings: dict[str, Any] = {"model": best.model, **best.settings}
    cap = TOKENS_ROUNDED * -(-int(ROOM * (best.tokens or 0)) // TOKENS_ROUNDED)
    if 0 < cap < task.sampling.max_output_tokens:
        settings["max-output-tokens"] = cap
    tried = Tried(
        model=model,
        task=name,
        advice="unjudged",
        said=SENTENCES["unjudged"],
        forms=tuple(forms),
        best=best,
        settings=settings,
    )
    if not found.judged:
        return tried
    advice, said = found.verdict()
    tried = structs.replace(
        tried, advice=advice, said=f"{said}; --from {found.run_id} takes these samples", hard=found.hard
    )
    strategy = STRATEGIES.find(task.default_strategy, Strategy)
    if not strategy.takes("k"):
        return tried
    k, cost_usd = strategy.model_fields["k"].default, None
    calls = found.chances(k).calls
    if found.call_usd is not None:
        cost_usd = calls * found.call_usd
    return structs.replace(tried, k=k, calls=calls, cost_usd=cost_usd)
