"""Control of a live run by another process of the same user: requests that its keeper takes, and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from microagents.actors.registry import unknown
from microagents.base.errors import InvalidUsage
from microagents.journal.interventions import ask_live
from microagents.journal.messages import Account
from microagents.journal.reading import Reader
from microagents.journal.requests import Ask, EndRun, PauseRun, ResumeRun, SetRun
from microagents.journal.sharded import reader_of
from microagents.journal.tables import LogRow
from microagents.runs.inspection.runs import recorded_result
from microagents.runs.plan import RunPlan, plan_of
from microagents.runs.result import Result
from microagents.runs.settings import ADJUSTABLE, Settings, validated, word_of
from microagents.runs.words.verdict import local_time

VERBS: Mapping[str, Ask] = {
    "pause": PauseRun(),
    "resume": ResumeRun(),
    "drain": EndRun(after="elections"),
    "stop": EndRun(after="calls"),
    "cancel": EndRun(after="calls", cancels_batches=True),
}
"""Requests without values, by their verbs."""
NOW: Mapping[str, Ask] = {"pause": PauseRun(now=True), "stop": EndRun(after="nothing")}
"""Requests that may cancel the calls in flight."""


class Asked(NamedTuple):
    """A request to a run, and whether the run has taken it."""

    is_taken: bool
    """False if it has not answered yet: it takes the request as soon as it can."""
    before: RunStatus
    status: RunStatus


class RunStatus(NamedTuple):
    """Activity of a run now."""

    result: Result
    requests: Sequence[LogRow]
    """All requests that it has taken, in their order."""

    def as_json(self) -> dict[str, Any]:
        """Return the same as JSON values."""
        requests = [{**structs.asdict(each), "payload": msgspec.json.decode(each.payload)} for each in self.requests]
        return {
            **self.result.as_json(),
            "in_flight": self.result.account.in_flight,
            "paused": self.result.account.paused is not None,
            "requests": requests,
        }


def status_of(runs_dir: Path, run_id: str) -> RunStatus:
    """Activity of a run now, judged only by its journal.

    Raises:
        InvalidUsage: no run has this name.
    """
    with reader_of(runs_dir, run_id, watched=True) as reader:
        return _status(reader)


def _status(reader: Reader) -> RunStatus:
    return RunStatus(recorded_result(reader, whole=False), reader.requests())


def ask_run(runs_dir: Path, run_id: str, ask: Ask, *, why: str = "") -> Asked:
    """Ask a live run for something, and wait until it has taken it, at most `MAX_TAKING_S`.

    Args:
        runs_dir: the folder of journals.
        run_id: name of the run.
        ask: the request.
        why: the reason, for its journal.

    Raises:
        InvalidUsage: the run is not under way, or has spent more than a new limit; its lanes cannot change.
    """
    with reader_of(runs_dir, run_id, watched=True) as reader:
        journal, before = reader.path, _status(reader)
        if reader.lease().is_free:
            go_on = before.result.go_on
            raise InvalidUsage(
                f"run {run_id} is not under way, so nothing was changed{'; go on with it: ' if go_on else ''}{go_on or ''}"
            )
        if isinstance(ask, SetRun) and ask.lanes is not msgspec.UNSET:
            _check_lanes(plan_of(reader))
        if isinstance(ask, SetRun) and reader.experiment.shards:
            _check_sharded(ask, run_id)
        if isinstance(ask, SetRun):
            _check_limits(ask, before.result.account, run_id)
    is_taken = ask_live(journal, ask, why)
    return Asked(is_taken, before, status_of(runs_dir, run_id))


def setting_of(texts: Mapping[str, str]) -> SetRun:
    """Return the change of settings that texts ask for.

    Args:
        texts: values by settings or by their options, such as ``max_cost_usd`` or ``max-cost``; ``inf`` lifts a bound.

    Raises:
        InvalidUsage: a name is unknown or cannot be changed meanwhile, or a value is wrong.
    """
    given: dict[str, Any] = {}
    for name, text in texts.items():
        field = ADJUSTABLE.get(name.removeprefix("--"), name.replace("-", "_"))
        if field not in ADJUSTABLE.values():
            if field in Settings.__annotations__:
                hint = "; begin it again with `resume` for another"
            else:
                hint = ""
            raise InvalidUsage(f"{unknown('setting of a live run called', name, sorted(ADJUSTABLE))}{hint}")
        given[field] = None if text == "none" else text
    if not given:
        raise InvalidUsage(f"give NAME=VALUE for what is to be set; known: {', '.join(sorted(ADJUSTABLE))}")
    checked = validated(Settings, "the run", {"models": {"": ("sim:perfect",)}, "run_id": "any", **given})
    return msgspec.convert({name: value for name, value in checked.items() if name in given}, SetRun)


def change_text(before: RunStatus, ask: SetRun) -> str:
    """Write the changes of settings, old and new: before are the recorded ones, and those that were set since."""
    known = dict[str, Any](before.result.settings)
    for each in before.requests:
        if each.refused is None and each.kind == "set":
            known |= msgspec.json.decode(each.payload)
    changes = [
        f"{word_of(name)} from {_limit_text(known[name])} to {_limit_text(value)}"
        for name, value in ask.changed.items()
    ]
    return ", ".join(changes)


def _limit_text(value: Any) -> str:
    return "no limit" if value is None else str(value)


def _check_lanes(plan: RunPlan) -> None:
    run_id, runtime = plan.settings["run_id"], plan.settings["runtime"]
    if runtime != "ray":
        raise InvalidUsage(
            f"lanes are engines on Ray, but the runtime of run {run_id} is {runtime!r}; nothing was changed"
        )
    if len(plan.tasks) == 1:
        raise InvalidUsage(f"run {run_id} has one input, which stays in its lane; nothing was changed")
    if plan.strategy.spreads_inputs:
        raise InvalidUsage(
            f"each input of run {run_id} is spread over all lanes, so none can begin or end meanwhile; stop it, then begin it again "
            f"with other lanes: microagents resume {run_id} --lanes N"
        )


def _check_sharded(ask: SetRun, run_id: str) -> None:
    limits = [name for name in ask.changed if name.startswith("max_") or name == "concurrency"]
    if limits:
        option = word_of(limits[0])
        raise InvalidUsage(
            f"the shards of run {run_id} share --{option} from their beginning on; stop it, and go on with another one: microagents "
            f"resume {run_id} --{option} N"
        )


def _check_limits(ask: SetRun, account: Account, run_id: str) -> None:
    spent = {"max_calls": account.calls, "max_tokens": account.tokens_at_most, "max_cost_usd": account.cost_at_most_usd}
    for name, value in ask.changed.items():
        used = spent.get(name, 0)
        if value is None:
            continue
        if used is None:
            raise InvalidUsage(
                f"the cost of run {run_id} is unknown, so {word_of(name)}={value} cannot be kept; nothing was changed"
            )
        if name in spent and value < used:
            raise InvalidUsage(
                f"{word_of(name)}={value} is below the {used:g} that run {run_id} has used; nothing was changed; `microagents ctl "
                f"{run_id} stop` ends it"
            )


def request_text(request: LogRow) -> str:
    """Write a request on one line: its content, author, time, reason and outcome."""
    asked = msgspec.json.decode(request.payload)
    given = [f" {name}={value}" for name, value in asked.items() if name not in ("type", "again")]
    said = f"{request.kind}{''.join(given)} by {request.who} at {local_time(request.asked_at)}"
    if request.why:
        said += f": {request.why}"
    if request.refused is not None:
        said += f" (refused, {request.refused})"
    return said
