"""The result of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from html import escape
from operator import eq
from typing import Any, Generic, NamedTuple, cast

import msgspec
from msgspec import structs
from pydantic import ValidationError

from microagents.actors.registry import STRATEGIES, TASKS
from microagents.base.errors import InvalidUsage
from microagents.base.plain_values import values_of
from microagents.base.trust import without_code_of
from microagents.elections.election import input_of
from microagents.journal.ending import RunEnding
from microagents.journal.experiment import Experiment
from microagents.journal.messages import InputEnding, RecordedDecision, recorded_decision
from microagents.journal.opening import unreadable
from microagents.journal.reading import Reader
from microagents.journal.sharded import open_run
from microagents.replies.persons import PERSON_REPLIES, PersonReply
from microagents.replies.tool_calls import Calls, ToolCall
from microagents.runs.cells import OURS, TrustColumns
from microagents.runs.on_access import MadeOnAccess
from microagents.runs.spool import Spool
from microagents.runs.words.summary import facts_of, summary, summary_rows
from microagents.runs.words.verdict import RunFacts, counted, progress_text, verdict_on
from microagents.task import Task, V

MAX_SHOWN = 10
"""Results that `repr` shows."""
_NOT_SHOWN = (
    *("inputs", "inputs_done", "inputs_failed", "inputs_right", "inputs_wrong", "total_steps"),
    *("in_flight_by", "loads", "silent_s", "paused", "outage", "limits", "durations", "state", "renewals"),
)
"""Parts of the account that ``--json`` leaves out, or shows only of many inputs."""


class WaitingCall(NamedTuple):
    """A call of an agent that waits for a person's reply."""

    path: str
    """The place of the reply."""
    call: ToolCall
    asked: type[PersonReply]
    """The class of replies to it."""


def calls_waiting_in(reader: Reader) -> Iterator[WaitingCall]:
    """Yield the calls of a run that wait for a person's reply, and have none for the next sitting."""
    for path, each in reader.waiting().items():
        kind = PERSON_REPLIES.get(each.reply)
        if kind is None:
            continue
        step, _, call = path.partition("/call/")
        rows = [row for _, row in [(step, reader.decision_at(step)), *reader.decisions_below(step)]]
        action = next((row.value for row in rows if row and row.is_decision), None)
        if action is not None:
            try:
                calls = msgspec.json.decode(action, type=Calls).calls
                waiting = calls[int(call.partition("/")[0])]
            except (msgspec.MsgspecError, ValueError, IndexError):
                raise unreadable(reader.path, f"no call of an action waits at {path!r:.100}") from None
            yield WaitingCall(path, waiting, kind)


class Result(RunFacts, Generic[V], frozen=True, kw_only=True):
    """Outcome, value and account of a run, over all its sittings."""

    source: type[Task] | str = ""
    """The class of the task; or a reference to it, which is followed only if its module is imported already."""
    created_at: str | None = None
    """Time at which the run began, in UTC; None for a run without a journal."""

    @property
    def value(self) -> V:
        """The task's ``result`` in its declared type; JSON-like values if the class of the task is not at hand, or does not fit.

        A list of inputs has `Results`, in their order. None if the run has no result.
        """
        kind, found = self._task_at_hand(), self.recorded
        value: Any = found.read_by(kind) if isinstance(found, Results) else _typed(kind, found)
        return cast("V", value)

    def _task_at_hand(self) -> type[Task] | None:
        if isinstance(self.source, type):
            return self.source
        with suppress(InvalidUsage, ValueError), without_code_of(self.run_id):
            return TASKS.find(self.source, Task)
        return None

    @property
    def calls(self) -> int:
        """Number of requests sent to models."""
        return self.account.calls

    @property
    def cost_usd(self) -> float | None:
        """Cost of all calls; None if a price is unknown."""
        return self.account.cost_usd

    def __str__(self) -> str:
        return summary(self)

    def __repr__(self) -> str:
        return f"<Result of run {self.run_id}: {self.outcome}, {self.task}, {progress_text(self)}, {counted(self.calls, 'call')}>"

    def _repr_html_(self) -> str:
        """Return the summary as a table, which notebooks show for a result at the end of a cell."""
        cells = "".join(
            f"<tr><th>{escape(name)}</th><td style='text-align: left'>{escape(text)}</td></tr>"
            for name, text in summary_rows(self)
        )
        return f"<table>{cells}</table>"

    def _opened(self) -> Reader:
        if self.journal is None:
            raise InvalidUsage(
                f"run {self.run_id} kept no journal, so its records cannot be read; run it again with a runs_dir"
            )
        return open_run(self.journal)

    def decisions(self) -> Iterator[RecordedDecision]:
        """Read every decision from the journal, in the order of paths. Each unpacks into its path and its value.

        Raises:
            InvalidUsage: the run has no journal, or the journal is damaged.
        """
        settled, kind = self.account.settled_at, self._task_at_hand()
        with self._opened() as reader:
            for path, row in reader.decisions():
                if row.value is None or row.outcome == "climbed":
                    continue
                at = {"settled_at": settled.get(path), "decided_at": reader.moment(row.after_ms)}
                reply = None if kind is None else kind.reply_at(path.partition("/")[2])
                try:
                    decision = recorded_decision(
                        path, row.outcome, row.value, row.ballots, cost_usd=row.cost_usd, reply=reply, **at
                    )
                except msgspec.MsgspecError as error:
                    raise unreadable(reader.path, error) from None
                yield decision

    @property
    def waiting(self) -> tuple[WaitingCall, ...]:
        """Calls of agents that wait for a person: for a customer's answer, an approval, or the fate of a call.

        Raises:
            InvalidUsage: the run has no journal, or the journal is damaged.
        """
        with self._opened() as reader:
            return tuple(calls_waiting_in(reader))

    def rows(self, *, as_json: bool = False, trust: bool = False) -> Iterator[dict[str, Any]]:
        """Yield a row for each input, in their order: its columns, ``state``, ``why``, and the columns of its result.

        Values have their declared types, as in ``value``; with ``as_json`` they are JSON-like, as in a file. The columns of an input are
        its ``row``, or its options. A column of the result that an input has, too, is called ``NAME_reply``; columns of ours that have
        the name of another one begin with ``row_``. With ``trust`` there are those of `TrustColumns`, too.
        The state is ``decided``, ``undecided`` (it waits for a person), ``flagged`` (undecided, since every reply was flagged), ``failed``
        or ``not done``; ``why`` is its reason. A table of pandas is ``pandas.DataFrame(result.rows())``.

        Raises:
            InvalidUsage: the run has no journal, or the journal is damaged.
        """
        with self._opened() as reader, closing(reader.inputs()) as inputs:
            whole = None if reader.experiment.listed else reader.ending()
            flagged = flagged_inputs(reader)
            at_hand = self._task_at_hand() if trust or not as_json else None
            kind = None if as_json else at_hand
            trusted = TrustColumns(reader, at_hand) if trust else None
            names = _own_names(reader)
            for number, given, of_input in inputs:
                ending = of_input if whole is None else _as_input(whole)
                columns = {} if trusted is None or "row" not in given else trusted.of(number, ending)
                yield _row(_given(kind, given), ending, kind, names, columns, is_flagged=number in flagged)

    def as_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        account, settings = self.account, self.settings
        failed = [
            {"input": each.input, "outcome": each.outcome, "reason": each.reason} for each in self.failed_inputs or ()
        ]
        inputs = {"inputs": account.inputs, "inputs_done": account.inputs_done, "failed_inputs": failed}
        counts = {name: each for name, each in msgspec.to_builtins(account).items() if name not in _NOT_SHOWN}
        return {
            "run_id": self.run_id,
            "outcome": self.outcome,
            "reason": self.reason,
            "verdict": structs.asdict(verdict_on(self)),
            "task": self.task,
            "strategy": self.strategy,
            "k": self.k,
            "models": settings["models"][""] if len(settings["models"]) == 1 else settings["models"],
            "seed": settings["seed"],
            "runtime": settings["runtime"],
            **(inputs if self.failed_inputs is not None else {}),
            "unit": self.unit,
            "right": self.right,
            **({"promise": self.promise} if self.promise else {}),
            **({} if self.accuracy is None else {"accuracy": msgspec.to_builtins(self.accuracy)}),
            **counts,
            "facts": [*facts_of(self)],
            "wasted_calls": account.wasted_calls,
            "bound_usd": account.bound_usd,
            "votes_per_step": account.votes_per_step,
            "votes_per_decision": account.votes_per_decision,
            "price": self.price.mark,
            "created_at": self.created_at,
            "wall_s": round(self.wall_s, 3),
            "result": list(self.recorded) if isinstance(self.recorded, Results) else self.recorded,
            **({"outputs": [str(each) for each in self.outputs]} if self.outputs else {}),
            "journal": None if self.journal is None else str(self.journal),
            "by_persons": {path: structs.asdict(each) for path, each in self.by_persons.items()},
            "go_on": self.go_on,
        }


def facts_in(experiment: Experiment, ending: RunEnding) -> dict[str, Any]:
    """Return the facts of a result that the experiment of its run and its ending state."""
    recipe, identity = experiment.recipe, experiment.identity
    return {
        "outcome": ending.outcome,
        "reason": ending.reason,
        "limit": ending.limit,
        "run_id": experiment.run_id,
        "task": TASKS.name_of(identity.get("task", "")),
        "strategy": STRATEGIES.name_of(identity.get("strategy", "")),
        "options": {} if experiment.listed else recipe.options,
        "by_gold": "row" in recipe.options and bool(recipe.options.get("gold")),
        "promise": recipe.strategy_options.get("promise", ""),
        "needs_program": recipe.needs_program,
        "k": recipe.deciding_votes,
        "unit": experiment.unit,
    }


def flagged_inputs(reader: Reader) -> set[int]:
    """Return the inputs with an undecided election of which every reply was flagged."""
    return {input_of(path) for path, each in reader.undecided().items() if each.flagged and not each.valid}


def state_of(ending: InputEnding | None, *, is_flagged: bool) -> str:
    """Name the state of an input, as `Result.rows` has it."""
    if ending is None:
        return "not done"
    if ending.outcome == "completed":
        return "decided"
    if ending.outcome == "undecided" and is_flagged:
        return "flagged"
    return ending.outcome


def _as_input(ending: RunEnding) -> InputEnding:
    """Return the ending of a run with one task as the ending of its input."""
    outcome = ending.outcome if ending.outcome in ("completed", "undecided", "refused") else "failed"
    return InputEnding(input=0, outcome=outcome, reason=ending.reason, result=ending.result)


def _typed(kind: type[Task] | None, found: Any) -> Any:
    """Return a result in the type that the class of its task declares; as it is without the class, or if that is another one by now."""
    with suppress(Exception):  # a user's validators may raise anything
        if kind is None or found is None:
            return found
        return kind.read_result(found)
    return found


def _given(kind: type[Task] | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of an input in the types of the task's fields."""
    if kind is None:
        return options
    with suppress(ValidationError):
        task = kind(**options)
        return {name: getattr(task, name) for name in options}
    return options


def _own_names(reader: Reader) -> dict[str, str]:
    """Name the columns of ours so that no column of the first input or of the first result has the same name."""
    with closing(reader.options()) as options:
        given = next(options, {})
    results = (each.result for each in reader.input_endings() if each.result is not None)
    found = msgspec.json.decode(next(results, "null"))
    row = given.get("row")
    taken = {*(row if isinstance(row, dict) else given), *(found if isinstance(found, dict) else ())}
    names = {}
    for name in OURS:
        names[name] = name
        while names[name] in taken:
            names[name] = f"row_{names[name]}"
    return names


def _row(
    options: dict[str, Any],
    ending: InputEnding | None,
    kind: type[Task] | None,
    names: Mapping[str, str],
    trusted: Mapping[str, Any],
    *,
    is_flagged: bool,
) -> dict[str, Any]:
    given = options.get("row")
    row = dict(given if isinstance(given, dict) else options)
    reason = None if ending is None else ending.reason
    row.update({names["state"]: state_of(ending, is_flagged=is_flagged), names["why"]: reason})
    value = {} if ending is None or ending.result is None else _typed(kind, msgspec.json.decode(ending.result))
    found = value if isinstance(value, dict) else values_of(value) or {"result": value}
    for name, each in found.items():
        row[f"{name}_reply" if name in row else name] = each
    for name, each in trusted.items():
        row[names.get(name) or (f"{name}_of_votes" if name in row else name)] = each
    return row


class Results(MadeOnAccess[V]):
    """Results of many inputs, in their order, decoded on access; None for an input without one."""

    def __init__(self, encoded: Sequence[str], kind: type[Task] | None = None) -> None:
        self._encoded = encoded
        self._kind = kind

    def read_by(self, kind: type[Task] | None) -> Results[Any]:
        """Return the same results in the types that a class of tasks declares."""
        return Results(self._encoded, kind)

    def _read(self, encoded: str) -> V:
        return cast("V", _typed(self._kind, msgspec.json.decode(encoded)))

    def __len__(self) -> int:
        return len(self._encoded)

    def made(self, index: int) -> V:
        """Decode a result."""
        return self._read(self._encoded[index])

    def __iter__(self) -> Iterator[V]:
        return map(self._read, self._encoded)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Results | list | tuple):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        more = f" and {len(self) - MAX_SHOWN:,} more" if len(self) > MAX_SHOWN else ""
        return f"{self[:MAX_SHOWN]!r}{more}"


def results_of(endings: Iterable[InputEnding], inputs: int) -> tuple[Results, tuple[InputEnding, ...]]:
    """Return the results of many inputs, and the inputs that did not complete, from endings in the order of inputs."""
    results, failed = Spool(), []
    for ending in endings:
        results.extend("null" for _ in range(ending.input - len(results)))
        results.append(ending.result or "null")
        if ending.outcome != "completed":
            failed.append(ending)
    results.extend("null" for _ in range(inputs - len(results)))
    return Results(results), tuple(failed)
