"""The files that `microagents init --rows` writes: a task for the rows of a table, its test, and a table."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import date
from decimal import Decimal
from pathlib import Path
from string import Template
from typing import Any, Literal, get_args, get_origin, get_type_hints

from microagents.base.errors import InvalidUsage
from microagents.cli.options import task_options
from microagents.runs.row_files import opened, read_rows
from microagents.runs.row_forms import ending_of
from microagents.runs.settings import validated
from microagents.tasks.rows import FillTable, columns_in

ASK, ASK_OF_TABLE, COLUMNS = "Where is {place}?", "Fill in the new columns.", "answer"
"""The question, that about a table, and the new columns, if none are given."""
TASK = Template('''\
"""Fill in new columns of a table: one question about each row."""

${imports}
from microagents import Prompt, Reply, RowTask
from microagents.tasks.rows import filled

ASK = """\\
${ask}"""


class ${Name}Columns(Reply, frozen=True, kw_only=True):
    """The new columns. Each is voted on by itself."""

${fields}


class ${Name}(RowTask[${Name}Columns]):
    """microagents run ${name}.py${words} -o out.csv"""

    format = "json"

    def prompt(self, row: dict[str, Any]) -> Prompt:
        return Prompt(user=filled(ASK, row))

    def expert(self, prompt: Prompt, reply: type[Reply]) -> ${Name}Columns:
        """For the simulated model, which tries the file without a key: the same in each row."""
        return ${Name}Columns(
${values}
        )
''')
TEST = Template('''\
"""The task on the simulated model: each row is asked about, and gets its columns."""

from microagents import run_sync
from microagents.tasks.rows import columns_in

from ${name} import ASK, ${Name}

ROW = {name: f"{name} 1" for name in columns_in(ASK) or ["text"]}


def test_the_question_shows_the_row() -> None:
    question = ${Name}(row=ROW).prompt(ROW).user
    assert all(value in question for value in ROW.values())


def test_each_row_gets_its_columns() -> None:
    tasks = ${Name}.rows([ROW, ROW])
    result = run_sync(tasks, models="sim:perfect", k=3, runs_dir=None)
    assert result.outcome == "completed"
    assert len(result.value) == len(tasks)
''')
TABLE = Template("${table}")
_SAMPLES = {str: '"text"', int: "1", Decimal: 'Decimal("1.5")', date: "date(2026, 1, 31)", bool: "True"}


def parts_of(words: list[str], inputs: str | None) -> dict[str, str]:
    """Write the parts of the files.

    Args:
        words: of ``-o``: the question and the new columns, as of the task `rows`; for both there are defaults.
        inputs: path of a table that has the columns; None if there is none yet.

    Raises:
        InvalidUsage: the words or the table cannot be read, or the question names a column that the table does not have.
    """
    given = {"ask": ASK, "columns": COLUMNS}
    if inputs is not None:
        given["ask"] = ASK_OF_TABLE
    task = validated(FillTable, "init --rows", {**given, **task_options(FillTable, words), "row": {"": ""}}, flag="-o")
    shown = columns_in(task.ask)
    if inputs is not None:
        _check_columns(shown, inputs)
    sources = {name: _source(hint) for name, hint in get_type_hints(task.reply_type()).items()}
    kinds = " ".join([kind for kind, _ in sources.values()])
    imports = [f"from {each.__module__} import {each.__name__}\n" for each in (date, Decimal) if each.__name__ in kinds]
    imports.append("from typing import Any")
    if "Literal" in kinds:
        imports.append(", Literal")
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows([shown or ["text"], [f"{name} 1" for name in shown or ["text"]]])
    return {
        "ask": re.sub(r'"$|"(?="")', r"\"", task.ask.replace("\\", "\\\\")),
        "imports": "".join([*imports, "\n"]),
        "fields": "\n".join([f"    {name}: {kind}" for name, (kind, _) in sources.items()]),
        "values": "\n".join([f"            {name}={value}," for name, (_, value) in sources.items()]),
        "table": table.getvalue(),
    }


def _check_columns(shown: list[str], inputs: str) -> None:
    with opened(inputs) as stream:
        _, row = next(iter(read_rows(stream, repr(inputs), ending_of(Path(inputs))).rows), (0, {}))
    if not row:
        raise InvalidUsage(f"{inputs!r} holds no row, whose columns the task would have; nothing was written")
    for name in shown:
        if name not in row:
            raise InvalidUsage(
                f"{inputs!r} has no column {name!r}, which ask names; it has {', '.join(row)}; nothing was written"
            )


def _source(hint: Any) -> tuple[str, str]:
    """Write the type of a column, and a value of it."""
    args = get_args(hint)
    if not args:
        return hint.__name__, _SAMPLES[hint]
    if get_origin(hint) is Literal:
        words = [json.dumps(each, ensure_ascii=False) for each in args]
        return f"Literal[{', '.join(words)}]", words[0]
    kind, value = _source(args[0])
    if get_origin(hint) is list:
        return f"list[{kind}]", f"[{value}]"
    return f"{kind} | None = None", value
