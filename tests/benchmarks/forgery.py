"""Forged journals: ``python -m tests.benchmarks.forgery``.

One value of a journal is replaced by one that no run writes: of another type, a huge number, text that is not UTF-8, JSON with a part that
is missing or of another kind. Then all digests are made right again, as somebody does who knows them. Each command that reads the
journal, each page and `resume` must go on, or refuse it with one sentence: never end in a traceback.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from microagents.journal.tables import ROWS
from microagents.web.viewer.server import viewing
from tests.benchmarks.harness import options_of
from tests.cli.commands import microagents
from tests.journal.seal import sealed

NOISY = "sim:perfect@error=0.4,flag=0.1"
INPUTS = '{"length": 3}\n{"length": 5}\n{"length": 4}\n'
RUNS: Mapping[str, Sequence[str]] = {
    "chain": ("drift", "-o", "length=20", "--model", NOISY, "-k", "2"),
    "stopped": ("drift", "-o", "length=20", "--model", NOISY, "-k", "2", "--max-calls", "41"),
    "undecided": ("drift", "--model", "sim:perfect@error=0.4,alternatives=1", "-k", "9", "-s", "max_draws=13"),
    "ladder": ("drift", "--model", NOISY, "-k", "2", "-s", "ladder=paraphrase,lookahead", "-s", "max_draws=5"),
    "many": ("drift", "--inputs", "inputs.jsonl", "--model", NOISY, "-k", "2", "--max-calls", "20"),
    "tree": ("multiplication", "-o", "digits=2", "--model", "sim:perfect@error=0.2,alternatives=3", "-k", "2"),
    "atoms": ("word-problems", "--strategy", "aot"),
    "document": ("writing", "-o", "brief=Write of the sea.", "-s", "same_model=true"),
    "agent": ("desk",),
    "waiting": ("desk", "-s", "approve=destructive,idempotent"),
}
"""The runs whose journals are forged."""
VALUES: Sequence[Any] = (
    *(None, "", "x", b"\xff\x00", -1, 0, 1, 7, 2**63 - 1, -(2**63), 1e308, -1.5, float("inf"), float("nan")),
    *("{}", "[]", "null", "1e999", "NaN", "true", '"\\ud800"', "[" * 20_000, "1" + "0" * 400, '{"a":' * 300),
    *(
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "0/step/1/../x",
        "\0",
        "\N{RIGHT-TO-LEFT OVERRIDE}<script>",
    ),
    *("--max-cost 1e999999999 is reached", "a" * 100_000),
)
"""Values that stand in the place of a whole column."""
LEAVES: Sequence[Any] = (
    *(None, True, False, "", "x", "\ud800", "\n\n", "../../x", "a" * 5_000, "1e999"),
    *(-1, 0, 1, 10**15, 2**63, -(2**63), 10**400, 1e308, -1.5, [], {}, [[]], {"x": None}, ["x", 1]),
)
"""Values that stand in the place of a part of a JSON column."""
ABSENT = object()
PATHS = ("0/step/3", "0/step/1", "0/answer", "0/problem", "1/step/2", "0/write", "0/step/0/call/0/approval")
COMMANDS: Sequence[tuple[str, ...]] = (
    *[
        ("list",),
        ("list", "--json"),
        ("list", "--live"),
        ("ctl", "r", "status"),
        ("show", "r", "--live"),
        ("list", "--remove", "r", "--yes"),
    ],
    *[("show", "r"), ("show", "r", "--json"), ("show", "r", "--verify"), ("show", "r", "--input", "1")],
    *[("show", "r", path) for path in PATHS],
    *[("view", "r", "-o", "report.html"), ("export", "r"), ("export", "r", "--format", "csv")],
    *[("export", "r", "--actions"), ("plan", "drift", "--from", "r")],
    *[("decide", "r", path, "approve") for path in PATHS],
    *[("resume", "r", "--max-calls", "200")] * 3,
)
PAGES = (
    *("/api/runs", "/metrics", "/api/run/r", "/api/run/r?input=1", "/api/run/r/differences?other=r"),
    *(f"/api/run/r/{page}" for page in ("strip", "series", "inputs", "work", "wrong")),
    *(f"/api/run/r/decision?path={path}" for path in PATHS),
)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the places of all parts of a JSON value."""
    yield at
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from places(part, (*at, name))


def replaced(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    """Return a JSON value with one part replaced, or left out."""
    if not at:
        return new
    copy = value.copy()
    if len(at) == 1 and new is ABSENT:
        del copy[at[0]]
    else:
        copy[at[0]] = replaced(value[at[0]], at[1:], new)
    return copy


def forged_value(random: Random, old: object) -> tuple[Any, str]:
    """Return what stands in the place of a value, and how it is called."""
    try:
        read = json.loads(old) if isinstance(old, str) and random.random() < 0.85 else None
    except ValueError:
        read = None
    if not isinstance(read, dict | list):
        new = random.choice(VALUES)
        return new, f"{new!r:.60}"
    at = random.choice(list(places(read)))
    part = random.choice([*LEAVES, *[ABSENT] * bool(at) * 3])
    return json.dumps(
        replaced(read, at, part)
    ), f"{'.'.join(map(str, at))} = {'nothing' if part is ABSENT else repr(part)[:60]}"


def forge(journal: Path, random: Random) -> str | None:
    """Replace one value, and make all digests right; None where SQLite refuses the value."""
    with closing(sqlite3.connect(journal)) as db, db:
        db.text_factory = lambda content: content.decode("utf-8", "replace")
        counts = {kind.table: db.execute(f"SELECT count(*) FROM {kind.table}").fetchone()[0] for kind in ROWS}
        kind = random.choice([*(each for each in ROWS if counts[each.table]), *[ROWS[0]] * 4])
        table, columns = kind.table, kind.__struct_fields__
        column = random.choice(columns)
        rowid = ", ".join(columns[: 3 if table in ("sample", "reply") else 1])
        *keys, old = db.execute(
            f"SELECT {rowid}, {column} FROM {table} LIMIT 1 OFFSET ?", (random.randrange(counts[table]),)
        ).fetchone()
        new, said = forged_value(random, old)
        try:
            names = " AND ".join(f"{name.strip()} = ?" for name in rowid.split(","))
            db.execute(f"UPDATE {table} SET {column} = ? WHERE {names}", (new, *keys))
        except sqlite3.IntegrityError:
            return None
    sealed(journal)
    return f"{table}.{column} {said}"


def ask_pages() -> None:
    """Ask for every page."""

    async def ask() -> None:
        async with viewing(Path("runs")) as url, aiohttp.ClientSession() as session:
            for page in PAGES:
                async with session.get(f"{url}{page}") as got:
                    await got.read()
                    assert got.status < 500, f"{page}: {got.status}"

    asyncio.run(ask())


def use(random: Random) -> tuple[str, Callable[[], object]]:
    """Choose how the journal is read: its name, and what does it."""
    words = random.choice([*COMMANDS, *[()] * 4])
    return (" ".join(words), lambda: give(words)) if words else ("pages", ask_pages)


def give(words: Sequence[str]) -> None:
    """Give a command, which may refuse the journal in one sentence."""
    ran = microagents(*words)
    assert "Traceback" not in ran.out + ran.err
    assert ran.code != 2 or len(ran.err.strip().splitlines()) <= 3, ran.err  # logs and what was read are lines, too


@contextmanager
def journals() -> Iterator[dict[str, bytes]]:
    """Yield the journals to be forged, in a working folder of their own."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="forgery-") as folder:
        os.chdir(folder)
        try:
            Path("inputs.jsonl").write_text(INPUTS, encoding="utf-8")
            found = {}
            for name, words in RUNS.items():
                ran = microagents("run", *words, "--run-id", "r", "--durability", "normal")
                assert ran.code in (0, 3, 4, 5), ran.err
                found[name] = Path("runs/r.sqlite").read_bytes()
                shutil.rmtree("runs")
            yield found
        finally:
            os.chdir(before)


def tried(there: Mapping[str, bytes], number: int) -> str | None:
    """Forge one value and use the journal; returns what must not be, or None."""
    random = Random(number)
    name = random.choice(list(there))
    shutil.rmtree("runs", ignore_errors=True)
    Path("runs").mkdir()
    Path("report.html").unlink(missing_ok=True)
    journal = Path("runs/r.sqlite")
    journal.write_bytes(there[name])
    said = forge(journal, random)
    if said is None:
        return None
    how, do = use(random)
    try:
        do()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what must not be
        return f"try {number}: {name}, {said}, {how}: {type(error).__name__}: {error!s:.300}"
    return None


def main() -> None:
    """Print what came of it."""
    options = options_of(__doc__, tries=2000, first=0)
    wrong = 0
    with journals() as there:
        for number in range(options.first, options.first + options.tries):
            found = tried(there, number)
            if found is not None:
                wrong += 1
                print(found, flush=True)
    print(f"{options.tries:,} forged values: {wrong} ended in a traceback")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
