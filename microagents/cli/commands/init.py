"""`microagents init`."""

from __future__ import annotations

import keyword
import os
import shlex
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from microagents.base.errors import InvalidUsage, refusing
from microagents.cli import starter
from microagents.cli.reporting import echo

NAME = "dates"
"""Name of the task if none is given."""


def command(
    place: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help=f"Name of the task, such as invoices or work/invoices; or a folder, for a task named {NAME}. [default: {NAME}]",
            show_default=False,
        ),
    ] = NAME,
    rows: Annotated[
        bool,
        typer.Option(
            "--rows", help="A task for the rows of a table, with its question and new columns as -o of the task `rows`."
        ),
    ] = False,
    inputs: Annotated[
        str | None,
        typer.Option("--inputs", metavar="FILE", help="With --rows: the table. [default: one row, NAME.csv]"),
    ] = None,
    option: Annotated[
        list[str],
        typer.Option(
            "-o", metavar="NAME=VALUE", help="With --rows: ask='Where is {place}?', and columns='country, year: int?'."
        ),
    ] = [],  # noqa: B006 - typer copies it
) -> None:
    """Write a task to begin with, NAME.py, and its test, test_NAME.py.

    The task runs as it is, on the simulated model. A file that exists is never overwritten.
    """
    folder, name = _folder_and_name(place)
    task, test = folder / f"{name}.py", folder / f"test_{name}.py"
    names = {"name": name, "Name": _class_name(name)}
    files, words = {task: starter.TASK, test: starter.TEST}, ""
    if rows:
        from microagents.cli import row_starter

        files = {task: row_starter.TASK, test: row_starter.TEST}
        names |= row_starter.parts_of(option, inputs)
        if inputs is None:
            inputs = str(folder / f"{name}.csv")
            files[Path(inputs)] = row_starter.TABLE
        words = names["words"] = f" --inputs {shlex.quote(inputs)}"
    elif inputs is not None or option:
        raise InvalidUsage("--inputs and -o go with --rows; nothing was written")
    _write(folder, files, names)
    _say_what_next(task, test, words)


def _say_what_next(task: Path, test: Path, words: str) -> None:
    quoted = shlex.quote(str(task))
    rows = [
        (f"microagents run {quoted}{words}", "on the simulated model: no key needed"),
        (
            f"pytest {shlex.quote(str(test))}",
            "the same as a test" + ("" if find_spec("pytest") else "; first: pip install pytest"),
        ),
        (f"microagents run {quoted} --help", "the options of the task, and all others"),
        (
            f"microagents try {quoted}{words} --one --model openai:gpt-6-luna",
            "one step by a real model, with $OPENAI_API_KEY",
        ),
    ]
    width = max(len(line) for line, _ in rows)
    echo(f"wrote {task} and {test}; try, then put your own work into {task}:")
    for line, why in rows:
        echo(f"    {line:<{width}}  # {why}")


def _folder_and_name(place: str) -> tuple[Path, str]:
    path = Path(place)
    if place.endswith(os.sep) or os.path.isdir(path):
        path /= NAME
    name = path.name.removesuffix(".py").replace("-", "_")
    if not name.isidentifier() or keyword.iskeyword(name):
        raise InvalidUsage(
            f"{path.name!r} cannot name a task's file; give letters, digits and underscores, such as {NAME}"
        )
    if not os.path.exists(path.parent / f"{name}.py") and find_spec(name) is not None:
        raise InvalidUsage(f"{name!r} is the name of a module that Python has already; give the task another name")
    return path.parent, name


def _class_name(name: str) -> str:
    found = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    if found in starter.OWN_NAMES or not found.isidentifier():
        return f"{found}Task"
    return found


def _write(folder: Path, templates: dict[Path, Template], names: dict[str, str]) -> None:
    """Write all files, or none if one exists."""
    existing = [str(path) for path in templates if os.path.lexists(path)]
    if existing:
        raise InvalidUsage(
            f"{' and '.join(existing)} exist already; nothing was written; give another name: microagents init NAME"
        )
    with refusing(f"no task can be written into {str(folder)!r}"):
        folder.mkdir(parents=True, exist_ok=True)
        for path, template in templates.items():
            with path.open("x", encoding="utf-8") as file:
                file.write(template.substitute(names))
