"""Damaged journals: ``python -m tests.benchmarks.damage``.

Journals of several runs, finished, stopped by a limit and killed, are damaged at random: a bit, a byte, a digit or a block is changed,
pages are zeroed, swapped, or taken from an earlier state of the file, the file or its log is cut short, lost, or filled with garbage. Then
one use is made of each: `show --verify`, `show`, its decisions, `resume`, or `run` with the words that began it. It must give what it gives
without the damage, or a beginning of it, or refuse the journal with one sentence; what is refused must be left as it is to the byte, with
the files beside it.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct

from microagents import MicroagentsError, Result, Task, resume, run_sync
from microagents.journal.reading import Reader
from microagents.runs.inspection.runs import inspect_run
from microagents.tasks.drift import Drift
from microagents.tasks.multiplication import Multiplication
from tests.benchmarks.harness import options_of

NOISY = "sim:perfect@error=0.4,flag=0.1"
TASKS: dict[str, tuple[Task | list[Drift], dict[str, Any]]] = {
    "chain": (Drift(length=60), {"models": NOISY, "k": 2}),
    "tree": (Multiplication(digits=3), {"models": "sim:perfect@error=0.2,alternatives=3", "k": 2}),
    "many": ([Drift(length=12), Drift(length=9), Drift(length=15)], {"models": NOISY, "k": 2}),
}
PAGE = 4096
Files = dict[str, bytes]
"""The contents of a folder of journals, by name."""


class Left(Struct, frozen=True, kw_only=True):
    """What a run left on disk, and what it comes to without damage."""

    name: str
    task: Task | list[Drift]
    options: dict[str, Any]
    files: Files
    before: Files
    """An earlier state of the same files."""
    digests: tuple[str, str]
    value: Any
    decisions: dict[str, Any]

    @property
    def is_finished(self) -> bool:
        """Whether the run was completed."""
        return self.name.endswith("finished")


def _run(task: Any, folder: Path, **options: Any) -> Result:
    return run_sync(task, run_id="r", runs_dir=folder, durability="normal", **options)


def _files(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def _put(folder: Path, files: Files) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _digests(result: Result) -> tuple[str, str]:
    return result.account.decisions_sha256, result.account.ballots_sha256


def lefts(folder: Path) -> Iterator[Left]:
    """Journals to be damaged."""
    for name, (task, options) in TASKS.items():
        whole = _run(task, folder / name / "undisturbed", **options)
        states = []
        for most in (whole.calls // 3, whole.calls * 2 // 3, 100_000):
            _run(task, folder / name, max_calls=most, concurrency=4, **options)
            states.append(_files(folder / name))
        before, stopped, finished = states
        decisions = {each.path: each.value for each in whole.decisions()}
        left = partial(
            Left, task=task, options=options, digests=_digests(whole), value=whole.value, decisions=decisions
        )
        yield left(name=f"{name}, finished", files=finished, before=stopped)
        yield left(name=f"{name}, stopped", files=stopped, before=before)
        yield left(name=f"{name}, killed", files=_killed(folder / name, before, stopped), before=before)


def _killed(folder: Path, before: Files, stopped: Files) -> Files:
    """The files of a process that was killed at the same state: an earlier file, and the log of all that came later."""
    _put(folder, before)
    journal = folder / "r.sqlite"
    with closing(sqlite3.connect(journal, isolation_level=None)) as db, tempfile.TemporaryDirectory() as other:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA wal_autocheckpoint = 0")
        source = Path(other, "source.sqlite")
        source.write_bytes(stopped["r.sqlite"])
        db.execute("ATTACH ? AS source", (str(source),))
        tables = [name for (name,) in db.execute("SELECT name FROM source.sqlite_master WHERE type = 'table'")]
        for table in tables:  # a transaction each, as a run has many
            db.execute("BEGIN")
            db.execute(f"DELETE FROM main.{table}")
            db.execute(f"INSERT INTO main.{table} SELECT * FROM source.{table}")
            db.execute("COMMIT")
        return _files(folder)


# -- damage ---------------------------------------------------------------------------------------------------------------------------


def _page(random: Random, content: bytes) -> int:
    return random.randrange(len(content) // PAGE) * PAGE if len(content) > PAGE else 0


def _with(content: bytes, at: int, new: bytes) -> bytes:
    return (content[:at] + new + content[at + len(new) :])[: max(len(content), at + len(new))]


def flip(random: Random, content: bytes, _: bytes) -> bytes:
    at = random.choice([at for at, byte in enumerate(content) if byte] or [0])
    return _with(content, at, bytes([content[at] ^ (1 << random.randrange(8))]))


def byte(random: Random, content: bytes, _: bytes) -> bytes:
    at = random.randrange(len(content))
    return _with(content, at, bytes([content[at] ^ random.randrange(1, 256)]))


def digit(random: Random, content: bytes, _: bytes) -> bytes:
    at = random.choice([at for at, byte in enumerate(content) if byte in b"0123456789"] or [0])
    return _with(content, at, random.choice(b"0123456789".replace(content[at : at + 1], b"")).to_bytes())


def zeros(random: Random, content: bytes, _: bytes) -> bytes:
    return _with(content, _page(random, content), bytes(PAGE))


def garbage(random: Random, content: bytes, _: bytes) -> bytes:
    return _with(content, random.randrange(len(content)), random.randbytes(random.choice([4, 64, 1024, PAGE])))


def swapped(random: Random, content: bytes, _: bytes) -> bytes:
    one, other = _page(random, content), _page(random, content)
    first, second = content[one : one + PAGE], content[other : other + PAGE]
    return _with(_with(content, one, second), other, first)


def stale(random: Random, content: bytes, before: bytes) -> bytes:
    at = _page(random, before or content)
    return _with(content, at, (before or content)[at : at + PAGE])


def cut(random: Random, content: bytes, _: bytes) -> bytes:
    return content[: random.randrange(len(content))]


def lost(_: Random, __: bytes, ___: bytes) -> None:
    return None


DAMAGES: tuple[Callable[[Random, bytes, bytes], bytes | None], ...] = (
    flip,
    flip,
    byte,
    digit,
    digit,
    zeros,
    garbage,
    swapped,
    stale,
    stale,
    cut,
    lost,
)


def damaged(left: Left, random: Random) -> tuple[str, Files]:
    """The files with one damage, and its name."""
    files = dict(left.files)
    name = random.choice([name for name in files if name.startswith("r.sqlite") and files[name]])
    damage = random.choice(DAMAGES)
    found = damage(random, files[name], left.before.get(name, b""))
    if found is None:
        del files[name]
    else:
        files[name] = found
    return f"{damage.__name__} of {name.removeprefix('r.')}", files


# -- uses -----------------------------------------------------------------------------------------------------------------------------


def _verify(left: Left, folder: Path) -> None:  # noqa: ARG001 - all uses are called alike
    with Reader(folder / "r.sqlite") as reader:
        reader.verify()


def _show(left: Left, folder: Path) -> None:
    shown = inspect_run(folder, "r")
    if shown.outcome == "completed":
        assert (_digests(shown), shown.value) == (left.digests, left.value), (_digests(shown), shown.value)


def _decisions(left: Left, folder: Path) -> None:
    for path, value in inspect_run(folder, "r").decisions():
        assert left.decisions[path] == value, (path, value)


def _assert_undisturbed(left: Left, result: Result) -> None:
    came_to = (result.outcome, _digests(result), result.value)
    assert came_to == ("completed", left.digests, left.value), came_to
    assert result.journal is not None
    if left.is_finished:  # it was answered from the ending alone; who reads the decisions hears of the damage
        _decisions(left, result.journal.parent)
        return
    with Reader(result.journal) as reader:
        problems = reader.verify()
    assert problems == [], problems
    assert {each.path: each.value for each in result.decisions()} == left.decisions, "other decisions"


def _resume(left: Left, folder: Path) -> None:
    _assert_undisturbed(left, asyncio.run(resume("r", runs_dir=folder, max_calls=100_000)))


def _again(left: Left, folder: Path) -> None:
    _assert_undisturbed(left, _run(left.task, folder, max_calls=100_000, **left.options))


USES = (_verify, _show, _decisions, _resume, _again)


class Found(Struct, frozen=True, kw_only=True):
    """What came of one damage."""

    refused: bool
    wrong: str | None
    """What must not be; None if all is as it should be."""


def used(left: Left, files: Files, use: Callable[[Left, Path], None], folder: Path) -> Found:
    """Use a journal."""
    _put(folder, files)
    try:
        use(left, folder)
    except MicroagentsError as error:
        after = _files(folder)
        if "\n" in str(error):
            return Found(refused=True, wrong=f"more than one sentence: {error}")
        changed = sorted(name for name in {*files, *after} if files.get(name) != after.get(name))
        return Found(refused=True, wrong=f"refused ({error}), and changed {changed}" if changed else None)
    except AssertionError as error:
        return Found(refused=False, wrong=f"other results: {' '.join(str(error).split())[:200]}")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what must not be
        return Found(refused=False, wrong=f"{type(error).__name__}: {error}")
    return Found(refused=False, wrong=None)


@contextmanager
def journals() -> Iterator[tuple[Sequence[Left], Path]]:
    """The journals to be damaged, and a folder for what is damaged."""
    with tempfile.TemporaryDirectory() as folder:
        yield list(lefts(Path(folder))), Path(folder, "damaged")


def main() -> None:
    """Print what came of it."""
    options = options_of(__doc__, tries=2000, seed=0)
    counts: Counter[tuple[str, bool]] = Counter()
    wrong = 0
    with journals() as (there, folder):
        for number in range(options.tries):
            random = Random(f"{options.seed} {number}")
            left, use = random.choice(there), random.choice(USES)
            name, files = damaged(left, random)
            found = used(left, files, use, folder)
            counts[name, found.refused] += 1
            if found.wrong is not None:
                wrong += 1
                print(f"try {number}: {left.name}, {name}, {use.__name__.strip('_')}: {found.wrong}", flush=True)
    for name in sorted({name for name, _ in counts}):
        print(
            f"{name:<24} {counts[name, True]:>5} refused  {counts[name, False]:>5} as without the damage, or a beginning of it"
        )
    print(f"{options.tries:,} damages: {sum(counts[each] for each in counts if each[1]):,} refused, {wrong} wrong")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
