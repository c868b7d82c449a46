"""The files that `microagents init --rows` writes: a task for the rows of a table, its test, and a table."""

from __future__ import annotations

import json
import re
from datetime import date
from decimal import Decimal
from pathlib import Path
from string import Template
from typing import Any, Literal, get_args, get_origin, get_type_hints

from microagents.base.errors import InvalidUsage
from microagents.cli.options import task_options
from microagents.runs.row_files import ending_of, opened, read_rows
from microagents.runs.settings import validated
from microagents.tasks.rows import FillTable, columns_in

ASK, ASK_OF_TABLE, COLUMNS = "Where is {place}?", "Fill in the new columns.", "answer"
"""The question, that about a table, and the new columns, if none are given."""
TASK = Template('''\
"""Fill in new columns of a table: one question about each row."""

${imports}
from microagents import Prompt, Reply, RowTask

ASK = """\\
${ask}"""


class ${Name}Columns(Reply, frozen=True, kw_only=True):
    """The new columns. Each is voted on by itself."""

${fields}


class ${Name}(RowTask[${Name}Columns]):
    """microagents run ${name}.py${words} -o out.csv"""

    format = "json"

    def prompt(self, row: dict[str, Any]) -> Prompt:
        return Prompt(user=ASK.format_map(row))

    def expert(self, prompt: Prompt, reply: type[Reply]) -> ${Name}Columns:
        """For the simulated model, which tries the file without a key: the same in each row."""
        return ${Name}Columns(
${values}
        )
''')
TEST = Template('''\
"""The task on the simulated model: each row is asked about, and gets its columns."""

from string import Formatter

from microagents import run_sync

from ${name} import ASK, ${Name}

ROW = {name: f"{name} 1" for _, name, _, _ in Formatter().parse(ASK) if name}


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
_SAMPLES = {int: "1", Decimal: 'Decimal("1.5")', date: "date(2026, 1, 31)", bool: "True"}


def parts_of(words: list[str], inputs: str | None) -> dict[str, str]:
    """Write the parts of the files.

    Args:
        words: of ``-o``: the question and the new columns, as of the task `rows`; for both there are defaults.
        inputs: path of a table that has the columns; None if there is none yet.

    Raises:
        InvalidUsage: the words or the table cannot be read, or the question names a column that the table or the task cannot have.
    """
    columns, given = None, {"ask": ASK, "columns": COLUMNS}
    if inputs is not None:
        columns, given["ask"] = _columns_of(inputs), ASK_OF_TABLE
    given |= task_options(FillTable, words)
    task = validated(FillTable, "init --rows", {**given, "row": {"": ""}}, flag="-o")
    ask, shown = re.sub(r"\{\s*([^{}]+?)\s*\}", r"{\1}", task.ask), columns_in(task.ask)
    if not shown:
        shown = columns or ["text"]
        ask = "\n".join([ask, "", *(f"{name}: {{{name}}}" for name in shown)])
    for name in shown:
        if columns is not None and name not in columns:
            raise InvalidUsage(
                f"{inputs!r} has no column {name!r}, which ask names; it has {', '.join(columns)}; nothing was written"
            )
        if re.fullmatch(r"[\w -]+", name) is None:
            raise InvalidUsage(
                f"rename the column {name!r} to letters, digits and blanks, or ask without it; nothing was written"
            )
    sources = {name: _source(hint, name) for name, hint in get_type_hints(task.reply_type()).items()}
    kinds = " ".join([kind for kind, _ in sources.values()])
    typing = "from typing import Any"
    if "Literal" in kinds:
        typing += ", Literal"
    imports = [f"from {each.__module__} import {each.__name__}\n" for each in (date, Decimal) if each.__name__ in kinds]
    return {
        "ask": re.sub(r'"$|"(?="")', r"\"", ask.replace("\\", "\\\\")),
        "imports": f"{''.join(imports)}{typing}\n",
        "fields": "\n".join([f"    {name}: {kind}{_default(kind)}" for name, (kind, _) in sources.items()]),
        "values": "\n".join([f"            {name}={value}," for name, (_, value) in sources.items()]),
        "table": "".join(
            [f"{','.join(shown)}\n", *(",".join([f"{name} {row}" for name in shown]) + "\n" for row in (1, 2))]
        ),
    }


def _columns_of(inputs: str) -> list[str]:
    with opened(inputs) as stream:
        row = next(iter(read_rows(stream, repr(inputs), ending_of(Path(inputs))).rows), None)
    if row is None:
        raise InvalidUsage(f"{inputs!r} holds no row, whose columns the task would have; nothing was written")
    return list(row[1])


def _default(kind: str) -> str:
    if kind.endswith(" | None"):
        return " = None"
    return ""


def _source(hint: Any, name: str) -> tuple[str, str]:
    """Write the type of a column, and a value of it."""
    args = get_args(hint)
    if get_origin(hint) is Literal:
        words = [json.dumps(each, ensure_ascii=False) for each in args]
        return f"Literal[{', '.join(words)}]", words[0]
    if not args:
        return hint.__name__, _SAMPLES.get(hint, f'"{name}"')
    kind, value = _source(args[0], name)
    if get_origin(hint) is list:
        return f"list[{kind}]", f"[{value}]"
    return f"{kind} | None", value
