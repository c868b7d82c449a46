"""Elected columns of a dataset of Ray Data: every row is asked until its vote is decided, and new columns hold the replies."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import inspect as types

from microagents.actors.registry import TASKS, unknown
from microagents.base.errors import InvalidUsage, TaskFailed
from microagents.base.packages import require_package
from microagents.base.user_code import called, work_in
from microagents.models.model import most_samples
from microagents.replies.chat import Prompt
from microagents.replies.reply import Reply
from microagents.replies.reply_fields import fields_of
from microagents.runs.driver.begin import RunKeywords, new_plan
from microagents.runs.strategies import Models
from microagents.runs.words.money import specs_in
from microagents.shards.row_elections import RowElections, RowEnding
from microagents.systems.chains.row_task import RowTask

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Elected", "elect"]

BATCH_SIZE = 256
"""Rows of a batch. Beside its calls a run takes about a tenth of a second."""
NEEDED = ("pyarrow", "pandas")
"""Packages of the extra `data`."""
REFUSED = {
    "output": "the replies are columns; `elect` itself has an output, the folder of journals",
    "run_id": "each batch is a run of its own, named by its questions",
    "runs_dir": "the journals are in the output",
    "inputs": "choose rows of the dataset",
    "shards": "batches are spread over actors already",
    "runtime": "each batch runs inside an actor of Ray Data",
    "max_tokens": "it would bound each batch; max_calls and max_cost_usd bound all together",
    "max_time_s": "it would bound each batch",
}
"""Keywords of `run` that batches do not take, and why."""
INT64 = range(-(1 << 63), 1 << 63)


class Elected:
    """Maps Arrow tables to the same ones with further columns: for ``dataset.map_batches(Elected, ...)``, in actors.

    ``state`` and ``why`` are as in `Result.rows`; then there is a column for each field of the reply, null in rows without a decision.
    A column whose name the table has already is called ``NAME_reply``, or ``row_state`` and ``row_why``. Columns are integers, floats,
    booleans, dates or texts, as their field is declared; a value of any other type is a text of JSON.

    Args:
        task: a class of `RowTask`.
        models: as for `run`.
        output: folder of the journals, which all nodes see.
        columns: the columns that reach the task; None for all.
        working: folder of relative names of files, if it is here; empty for the working folder of the process.
        given: keywords of `run`; ``max_calls`` and ``max_cost_usd`` bound all batches together.
    """

    def __init__(
        self,
        task: type[RowTask],
        *,
        models: Models,
        output: str,
        columns: Sequence[str] | None = None,
        working: str = "",
        **given: Any,
    ) -> None:
        work_in(working)
        self._columns = columns
        self._fields = _arrow_fields(task)
        self._is_whole = task.result is not RowTask.result
        self._elections = RowElections(task, models, Path(output), given)

    def __call__(self, table: pa.Table) -> pa.Table:
        """Decide the rows of a table. Rows that are not decided say why, and end no job."""
        import pyarrow as pa  # noqa: PLC0415 - an optional package

        rows = table.select(list(self._columns or table.column_names)).to_pylist()
        endings = self._elections.decide(rows) if rows else []
        for name, values, kind in self._new_columns(table.column_names, endings):
            table = table.append_column(name, pa.array(values, kind))
        return table

    def _new_columns(self, taken: Sequence[str], endings: Sequence[RowEnding]) -> list[tuple[str, list[Any], Any]]:
        """Return name, values and Arrow's type of each new column."""
        import pyarrow as pa  # noqa: PLC0415

        replies, why = list[dict[str, Any]](), [each.why for each in endings]
        for number, each in enumerate(endings):
            found = {} if each.reply is None else msgspec.json.decode(each.reply)
            replies.append({"result": found} if self._is_whole else found)
            large = [name for name, value in replies[-1].items() if isinstance(value, int) and value not in INT64]
            if large:
                why[number] = f"{', '.join(large)}: more than 64 bits; the journal has the number"
        prefix = "row_" if {"state", "why"} & {*taken, *self._fields} else ""
        columns: list[tuple[str, list[Any], Any]] = [
            (f"{prefix}state", [each.state for each in endings], pa.string()),
            (f"{prefix}why", why, pa.string()),
        ]
        for name, (kind, read) in self._fields.items():
            values = [None if each.get(name) is None else read(each[name]) for each in replies]
            columns.append((f"{name}_reply" if name in taken else name, values, kind))
        return columns


def elect(
    dataset: Any,
    task: type[RowTask] | str,
    *,
    models: Models,
    output: str | Path,
    columns: Sequence[str] | None = None,
    batch_size: int = BATCH_SIZE,
    actors: int = 2,
    num_cpus: float = 0.5,
    **given: Any,
) -> Any:
    """Return a dataset with the columns of elected replies, which `Elected` describes. Nothing is asked until the dataset is consumed.

    Consuming it again, after a crash too, asks only questions that are not decided in the output with the same task, models, rule and
    seed.

    Args:
        dataset: a dataset of Ray Data, of any source.
        task: a class of `RowTask`, in a module that actors can import; or its name.
        models: specs, as for `run`.
        output: folder of the journals, on storage that all nodes share.
        columns: the columns that reach the task; None for all.
        batch_size: rows of a run.
        actors: most actors that work side by side.
        num_cpus: processors that each actor reserves.
        given: keywords of `run`, such as ``k=3``; ``max_calls`` and ``max_cost_usd`` bound the whole output, also over crashes.

    Raises:
        InvalidUsage: the first row, a column, the task, a model or a keyword is wrong; nothing was asked.
    """
    for package in NEEDED:
        require_package("an elected column (the extra `data`)", package)
    kind = _checked_task(task)
    if actors < 1 or num_cpus <= 0 or batch_size < 1:
        raise InvalidUsage("actors and batch_size are 1 or more, and num_cpus is more than 0; nothing was started")
    for name, why in REFUSED.items():
        if given.get(name) is not None:
            raise InvalidUsage(f"elect takes no {name}: {why}; nothing was started")
    folder = _checked_output(output)
    _check_first_row(dataset, kind, columns, models, given)
    from microagents.runtimes.ray.datasets import map_in_actors  # noqa: PLC0415 - Ray takes a second to import

    named = {"output": str(folder), "columns": columns, "working": str(Path.cwd())}
    arguments = {"task": kind, "models": models, **named, **given}
    return map_in_actors(dataset, Elected, arguments, batch_size=batch_size, actors=actors, num_cpus=num_cpus)


def _checked_task(task: type[RowTask] | str) -> type[RowTask]:
    kind: Any = TASKS.find(task, RowTask) if isinstance(task, str) else task
    if not (isinstance(kind, type) and issubclass(kind, RowTask)):
        raise InvalidUsage(
            f"{task!r:.100} is not a class of RowTask, so it asks nothing about a row; nothing was started"
        )
    for each in (kind, kind.reply_type()):
        if each.__module__ == "__main__":
            raise InvalidUsage(
                f"{each.__qualname__} is defined in the program that was started, which actors cannot import; put it into a module of "
                "its own, and import it from there; nothing was started"
            )
    return kind


def _checked_output(output: str | Path) -> Path:
    if "://" in str(output):
        raise InvalidUsage(f"the output must be a folder that all nodes see, not {str(output)!r}; nothing was started")
    folder = Path(os.path.abspath(output))  # noqa: PTH100 - a path without its links resolved
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidUsage(f"the output {str(folder)!r} cannot be a folder: {error}; nothing was started") from None
    return folder


def _check_first_row(
    dataset: Any, kind: type[RowTask], columns: Sequence[str] | None, models: Models, given: Mapping[str, Any]
) -> None:
    """Try the prompt of the first row, and the arguments of its run, before actors start."""
    if not hasattr(dataset, "select_columns") or isinstance(columns, str):
        raise InvalidUsage(
            "elect takes a dataset of Ray Data, such as ray.data.from_pandas(frame), and a list of columns; nothing was started"
        )
    there = dataset.schema()
    names = [] if there is None else there.names
    for name in columns or ():
        if name not in names:
            raise InvalidUsage(f"{unknown('column called', name, names)}; nothing was started")
    rows = dataset.select_columns(list(columns)).take(1) if columns else dataset.take(1)
    if not rows:
        raise InvalidUsage("the dataset has no rows; nothing was started")
    (task,) = kind.rows(rows)
    plan = new_plan([task], models, cast("RunKeywords", given))
    for spec in specs_in(plan.settings["models"]):
        most_samples(spec, plan.context())  # finds its provider, and needs no key here
    try:
        called(task.prompt, called(task.start), gives=Prompt)
    except TaskFailed as error:
        if isinstance(error.__cause__, KeyError):
            raise InvalidUsage(
                f"{kind.__name__}.prompt needs a column {error.__cause__}, and gets {', '.join(task.row)}; nothing was started"
            ) from None
        raise


def _arrow_fields(kind: type[RowTask]) -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """Return Arrow's type for each column of a result, and the function that makes its value from JSON."""
    import pyarrow as pa  # noqa: PLC0415

    if kind.result is not RowTask.result:
        return {"result": (pa.string(), _text)}
    kinds: Mapping[type, tuple[Any, Callable[[Any], Any]]] = {
        types.IntType: (pa.int64(), _int64),
        types.FloatType: (pa.float64(), _as_it_is),
        types.BoolType: (pa.bool_(), _as_it_is),
        types.DateType: (pa.date32(), date.fromisoformat),
    }
    reply: type[Reply] = kind.reply_type()
    return {each.encode_name: kinds.get(_one_type(each.type), (pa.string(), _text)) for each in fields_of(reply)}


def _one_type(found: types.Type) -> type:
    """Return the type of a field, without None and metadata."""
    if isinstance(found, types.Metadata):
        return _one_type(found.type)
    if isinstance(found, types.UnionType):
        others = [each for each in found.types if not isinstance(each, types.NoneType)]
        if len(others) == 1:
            return _one_type(others[0])
    return type(found)


def _as_it_is(value: Any) -> Any:
    return value


def _int64(value: int) -> int | None:
    """Return a number; None for one that Arrow's integers cannot hold."""
    if value in INT64:
        return value
    return None


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
