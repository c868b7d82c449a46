"""The site of the documents: ``python -m tests.site`` writes ``build/site``, which opens without a server and asks no other host.

The pages of ``docs/`` are taken as they are, and the README is the first page. Pages of reference are written from the code: commands from
their own help, options from the classes of tasks and strategies, the Python interface from its docstrings. A file of the repository that a
page links to becomes a page. A link that leads nowhere is an error.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

import microagents
from microagents import Strategy, Task
from microagents.actors.registry import STRATEGIES, TASKS
from microagents.base import errors
from microagents.cli import app
from microagents.elections import red_flags
from microagents.runs.fields import fields_in_words

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BUILD = ROOT / "build" / os.environ.get("PYTEST_XDIST_WORKER", "")
"""The folder of what is written; each process of tests has one of its own."""
PAGES, SITE = BUILD / "pages", BUILD / "site"
ELSEWHERE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages outside of `DOCS`, and their names on the site."""
LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml"}
COLUMNS = 100
"""Width of the help of a command."""
FENCE = "`" * 4
INTERNALS = (
    "reference/python",
    "reference/errors",
    "reference/tasks",
    "notebooks",
    "notebooks/benchmarks",
    "notebooks/evidence",
    "notebooks/papers",
    "contributing",
    "design",
    "changelog",
)
"""Pages of which the search knows only the headings: who types a word looks for a guide."""
UNSOUGHT = ("files/", "examples/")
"""Pages that the search leaves out: files, but the guide for clusters."""
SHIM = "iframe-worker.js"
"""Lets the search work in pages that are opened as files. Zensical takes it from another host."""


def build() -> None:
    """Write the pages, and the site; ends the program where a link leads nowhere."""
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir(parents=True)
    for path in sorted(DOCS.rglob("*")):
        if path.suffix == ".md":
            place(path, PAGES / path.relative_to(DOCS))
        elif path.suffix in {".svg", ".png"}:
            to = PAGES / path.relative_to(DOCS)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to)
    for name, on_site in ELSEWHERE.items():
        place(ROOT / name, PAGES / on_site)
    reference = {"commands": commands(), "tasks": options(), "python": interface(), "errors": troubles()}
    for name, parts in reference.items():
        write(PAGES / "reference" / f"{name}.md", "\n\n".join(parts) + "\n")
    settings = shutil.copy(DOCS / "zensical.toml", PAGES.parent)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", settings]
    if subprocess.run(command, check=False, env={**os.environ, "NO_COLOR": "1"}).returncode:
        raise SystemExit("the site was not built; mend what is named above")
    shutil.copy(DOCS / "vendored" / SHIM, SITE / "assets")
    index = json.loads((SITE / "search.json").read_text(encoding="utf-8"))
    index["items"] = [*sought(index["items"])]
    (SITE / "search.json").write_text(json.dumps(index, ensure_ascii=False), encoding="utf-8")
    for page in SITE.rglob("*.html"):
        up = "../" * (len(page.relative_to(SITE).parts) - 1)
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace("https://unpkg.com/iframe-worker/shim", f"{up}assets/{SHIM}"), encoding="utf-8")


def sought(items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What the search knows of the sections: guides in full, so that they are found before internals."""
    for each in items:
        page = each["location"].partition(".html")[0]
        if page in INTERNALS:
            yield {**each, "title": (each["path"] or ["Changes"])[-1], "text": each["title"], "path": each["path"][:1]}
        elif not page.startswith(UNSOUGHT) or page == "files/cluster/README.md":
            yield each


def place(page: Path, to: Path) -> None:
    """Write a page of the repository where the site has it, with its links."""
    up = "../" * (len(to.relative_to(PAGES).parts) - 1)

    def link(match: re.Match[str]) -> str:
        file, hash_, heading = match[1].partition("#")
        return f"]({up}{page_of((page.parent / file).resolve())}{hash_}{heading})" if file else match[0]

    write(to, re.sub(r"\]\((?!https?:)([^)\s]+)\)", link, page.read_text(encoding="utf-8")))


def page_of(target: Path) -> str:
    """The name on the site of a page or a picture; a file becomes a page."""
    name = target.relative_to(ROOT).as_posix()
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    if target.is_relative_to(DOCS) and target.suffix in {".md", ".svg", ".png"}:
        return target.relative_to(DOCS).as_posix()
    to = PAGES / "files" / f"{name}.md"
    if target.suffix == ".md":
        place(target, to)
    elif target.is_file():
        shown = f"{FENCE}{LANGUAGES.get(target.suffix, '')}\n{target.read_text(encoding='utf-8')}{FENCE}"
        write(to, f"# {target.name}\n\n`{name}`\n\n{shown}\n")
    else:
        files = [each for each in sorted(target.iterdir()) if each.is_file()]
        up = "../" * (len(to.relative_to(PAGES).parts) - 1)
        write(to, f"# {target.name}\n\n" + "".join(f"- [{each.name}]({up}{page_of(each)})\n" for each in files))
    return to.relative_to(PAGES).as_posix()


def write(page: Path, text: str) -> None:
    """Write a page."""
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")


# -- reference, from the code -------------------------------------------------------------------------------------------------------


def commands() -> Iterator[str]:
    """Every command with its own help."""
    yield "# Commands\n\nEach command with what `--help-all` says of it. [The command line](../commands.md) is the introduction."
    group: Any = get_command(app)
    with group.make_context("microagents", [], resilient_parsing=True) as top:
        for name in group.list_commands(top):
            command = group.get_command(top, name)
            with command.make_context(name, [], parent=top, resilient_parsing=True, terminal_width=COLUMNS) as context:
                rows = [each.get_help_record(context) for each in command.get_params(context)]
                about = context.command.help or ""
                yield f"## {name}\n\n{FENCE}text\n{command.get_usage(context)}\n{FENCE}\n\n{prose_of(about)}"
                yield "\n".join(["| option | meaning |", "|---|---|", *(option_row(name, row) for row in rows if row)])


def option_row(command: str, record: tuple[str, str]) -> str:
    """An option of a command as a row with an anchor, such as ``run--max-cost``."""
    flags, meaning = record
    name = next(iter(re.findall(r"--[a-z][-a-z]*", flags)), f"-{flags.split()[0].lower()}")
    return f"| <code>{cell(flags)}</code><a id='{command}{name}'></a> | {cell(meaning)} |"


def options() -> Iterator[str]:
    """The options of every shipped strategy and task."""
    yield "# Options of strategies and tasks\n\nOf a strategy with `-s NAME=VALUE`, of a task with `-o NAME=VALUE`."
    kinds: list[tuple[str, Any, Any]] = [("Strategy", STRATEGIES, Strategy), ("Task", TASKS, Task)]
    for title, registry, base in kinds:
        for name in sorted(registry.shipped):
            kind = registry.find(name, base)
            yield f"## {title} {name}\n\n{inspect.getdoc(kind)}"
            if fields := fields_in_words(kind):
                rows = (
                    f"| `{each.name}`<a id='{title.lower()}-{name}-{each.name}'></a> | {cell(each.meaning)} | {cell(each.values)} | "
                    f"{'required' if each.required else code(each.default)} |"
                    for each in fields
                )
                yield "\n".join(["| option | meaning | values | default |", "|---|---|---|---|", *rows])


def cell(text: str | None) -> str:
    """A text for a cell of a table."""
    return " ".join((text or "").split()).replace("|", "\\|").replace("<", "&lt;")


def code(text: str | None) -> str:
    """A default value for a cell of a table."""
    words = cell(text)
    return f"`{words}`" if words and len(words) <= COLUMNS else words[:COLUMNS]


def interface() -> Iterator[str]:
    """What `import microagents` offers: signatures and docstrings."""
    yield "# Python\n\nWhat `microagents` exports. [From Python](../starting.md#from-python) is the introduction."
    for name in microagents.__all__:
        thing = getattr(microagents, name)
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        yield f"## {name}\n\n{FENCE}python\n{signature(name, thing)}\n{FENCE}\n\n{prose(thing)}"
        if inspect.isclass(thing):
            methods = {
                each: value
                for each, value in vars(thing).items()
                if inspect.isfunction(value) and not each.startswith("_") and value.__doc__
            }
            for each, value in methods.items():
                yield f"**{name}.{each}**\n\n{FENCE}python\n{signature(each, value)}\n{FENCE}\n\n{prose(value)}"


def troubles() -> Iterator[str]:
    """Every error that a program can meet, and every flag that a reply can get."""
    yield (
        "# Errors and flags\n\nWhat `microagents.base.errors` has, for programs; all are `MicroagentsError`. "
        "The command line says each in one sentence, with an [exit code](../commands.md#output-and-exit-codes)."
    )
    found = {
        name: kind
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and kind.__module__ == errors.__name__
    }
    for name, kind in found.items():
        bases = ", ".join(f"`{each.__name__}`" for each in kind.__bases__)
        yield f"## {name}\n\n{prose(kind)}\n\nA kind of {bases}."
    yield "## Red flags\n\nA reply with a flag is discarded and drawn again. A task's own `flag` may return others."
    meanings = dict(
        re.findall(r'^[A-Z_]+ = "(\w+)"\n(?:"""(.+?)""")?', inspect.getsource(red_flags), re.MULTILINE | re.DOTALL)
    )
    yield "\n".join(
        ["| flag | meaning |", "|---|---|", *(f"| `{name}` | {cell(text)} |" for name, text in meanings.items())]
    )


def signature(name: str, thing: Any) -> str:
    """A function or class as it is called."""
    try:
        text = f"{name}{inspect.signature(thing)}"
    except (TypeError, ValueError):
        return name
    text = text.replace("microagents.", "").replace("'", "")
    return text if len(text) <= COLUMNS else re.sub(r", (?=\*{0,2}\w+(?:: | *=))", ",\n    ", text)


def prose(thing: Any) -> str:
    """A docstring as Markdown: its sections become lists."""
    return prose_of(inspect.getdoc(thing) or "")


def prose_of(text: str) -> str:
    """The same of its text."""
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    text = re.sub(r"^(Args|Raises|Returns|Yields):$", r"\n\1:\n", text, flags=re.MULTILINE)
    return re.sub(r"^ {4}(\*{0,2}\w+): ", r"- `\1`: ", text, flags=re.MULTILINE).replace("<", "&lt;")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    build()
