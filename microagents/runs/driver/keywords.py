"""Keywords of a call that runs something: the control of the run by its caller, and the check of their types."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, StrictInt, StrictStr, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from microagents.base.errors import InvalidUsage, refusal
from microagents.journal.messages import Account
from microagents.roles.decision_callback import OnDecision
from microagents.roles.executor import OnAsk
from microagents.runs.driver.batch import OnEnding
from microagents.runs.driver.following import OnSolution
from microagents.runs.driver.forecast import MeasuredModel, OnForecast
from microagents.runs.fields import annotations_of
from microagents.runs.settings import SettingKeywords

OnProgress = Callable[[Account], None]
OnStart = Callable[[str], None]


class RunControl(TypedDict, total=False):
    """Callbacks and events by which a caller watches a run and ends it early: keywords of `run`, `resume`, `compare` and `measure`."""

    on_start: OnStart | None
    """Called with a sentence before the run's actors start on Ray, and one once they have started: in which time."""
    on_progress: OnProgress | None
    """Called a few times a second with the account as of the last commit."""
    on_decision: OnDecision | None
    """Called with each `RecordedDecision` once it is durable, in the order of commits; a plain function or an async one. What it raises
    ends the run."""
    on_ask: OnAsk | None
    """Called with each question of an agent to its customer (`CustomerQuestion`), once a sitting; a plain function or an async one. It
    returns the answer, or None to let the input wait for one. What it raises fails the input."""
    on_solution: OnSolution | None
    """Called about once a second with the recorded work on the only input, such as a `DocumentRecord`, if its strategy draws it and a
    journal records it. It returns whether it wants further calls."""
    on_ending: OnEnding | None
    """Called with the ending of each of many inputs, once it is durable."""
    on_forecast: OnForecast | None
    """Called with the expected cost (`Forecast`) before the run begins, if it asks models at a known price. What it raises ends the
    call, and nothing was started."""
    measurement: MeasuredModel | None
    """The measurement of the model, from which the expected calls, cost and chance are; see `measured_from`."""
    interrupt: asyncio.Event | None
    """Once set, the run ends as ``interrupted`` after the calls in flight."""
    terminate: asyncio.Event | None
    """Once set, the run ends as ``interrupted`` at once."""


class SharedKeywords(SettingKeywords, RunControl, total=False):
    """Keywords of `run`, `resume`, `compare` and `measure`: the settings of a run, and its control."""


def without_control(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of a call that are no control of the run."""
    return {name: value for name, value in given.items() if name not in RunControl.__annotations__}


def is_ended_by_caller(control: RunControl) -> bool:
    """Whether the caller has ended the run."""
    return any(event.is_set() for event in ends_in(control))


def ends_in(control: RunControl) -> list[asyncio.Event]:
    """Return the events by which the caller may end the run."""
    given = (control.get("interrupt"), control.get("terminate"))
    return [event for event in given if event is not None]


_KINDS: dict[str, Any] = {
    "run_id": StrictStr,
    "runs_dir": StrictStr | Path,
    "accept_changes": Sequence[StrictStr],
    "inputs": Sequence[StrictInt] | None,
    "answers": Mapping[str, StrictStr],
    "options": Mapping[str, Any],
    **annotations_of(RunControl),
}


def check_arguments(given: Mapping[str, object]) -> None:
    """Refuse arguments of wrong types before anything starts. Settings are checked by `Settings`."""
    for name in filter(given.__contains__, _KINDS):
        kind: TypeAdapter[Any] = TypeAdapter(_KINDS[name], config=ConfigDict(arbitrary_types_allowed=True))
        try:
            kind.validate_python(given[name])
        except ValidationError as error:
            said = refusal(name, error.errors()[0]["msg"], given[name])
            raise InvalidUsage(f"{said}; nothing was started") from None
