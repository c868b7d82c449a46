"""One shard of a run: the one-process engine on its inputs, with its own journal. As a program it runs until stdin is closed."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import threading
from array import array
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from microagents.base.aio import TaskScope
from microagents.base.errors import MicroagentsError
from microagents.base.printing import results, users_print_to_stderr
from microagents.base.user_code import extend_import_path
from microagents.journal.creating import make_folder
from microagents.journal.ending import RunEnding
from microagents.journal.reading import Reader
from microagents.journal.seals import is_sealed, seal
from microagents.journal.sharded import read_dealt, shard_journal, shard_name
from microagents.runs.driver.execute import execute_plan
from microagents.runs.plan import RunPlan, plan_of
from microagents.runs.result import Result
from microagents.runs.spool import Spool
from microagents.runs.task_list import TaskList
from microagents.shards.capped_sittings import NO_LIMITS, CappedSittings
from microagents.shards.file_locks import LOCK, locked

LOOK_EVERY_S = 0.1
"""Interval between checks whether the whole has been ended."""


class ShardEnding(RunEnding, frozen=True, kw_only=True):
    """How the sitting of a shard ended."""

    is_error: bool = False
    """Whether its process failed, and not its inputs."""


def do_shard(whole: Path, shard: int, ended: threading.Event) -> ShardEnding:
    """Begin a shard, or continue it from its journal, until it ends, the cap of the whole is reached, or ``ended`` is set.

    A failure is an ending, too: `MicroagentsError` becomes its text.
    """
    journal = shard_journal(whole, shard)
    if is_sealed(journal):
        return ShardEnding(outcome="completed")
    try:
        plan = shard_plan(whole, shard)
        settings: dict[str, Any] = dict(plan.settings)
        caps = {name: settings[name] for name in NO_LIMITS}

        def sit(limits: dict[str, Any]) -> RunEnding:
            limited: Any = {**settings, **NO_LIMITS, **limits}
            found = asyncio.run(_sit(structs.replace(plan, settings=limited), journal, ended))
            return RunEnding(outcome=found.outcome, reason=found.reason, limit=found.limit)

        with locked(journal.with_suffix(LOCK)):
            ending = CappedSittings(journal.parent, **caps).hold(journal.stem, sit, ended.is_set)
            if ending.outcome == "completed":
                seal(journal)
    except MicroagentsError as error:
        return ShardEnding(outcome="failed", reason=str(error), is_error=True)
    except (OSError, sqlite3.Error) as error:
        return ShardEnding(outcome="stopped", reason=f"{error}; all decisions so far are kept")
    return ShardEnding(**structs.asdict(ending))


def shard_plan(whole: Path, shard: int) -> RunPlan:
    """Return the plan of a shard, by the journal of the whole.

    Raises:
        InvalidUsage: the journal cannot be read, or its code not be imported.
    """
    with Reader(whole) as reader:
        plan, inputs = plan_of(reader), reader.experiment.inputs
        shards = read_dealt(whole, inputs)
        numbers = array("Q", (number for number in range(inputs) if shards[number] == shard))
        own = Spool(map(reader.own_options, numbers))
        recipe = reader.experiment.recipe
    tasks = TaskList(type(plan.tasks[0]), recipe.options, own, numbers=numbers)
    concurrency = plan.settings["concurrency"]
    if concurrency is not None:
        concurrency = max(1, concurrency // plan.shards)
    settings: Any = {
        **plan.settings,
        "run_id": shard_name(plan.settings["run_id"], shard),
        "concurrency": concurrency,
        "max_time_s": None,
        "output": None,
        "runtime": "local",
        "lanes": None,
        "deploy": {},
        "address": None,
    }
    return structs.replace(plan, tasks=tasks, settings=settings, shards=0, of_inputs=inputs, sharers=plan.shards)


async def _sit(plan: RunPlan, journal: Path, ended: threading.Event) -> Result:
    make_folder(journal.parent)
    interrupt = asyncio.Event()
    async with TaskScope() as scope:
        scope.start(_watch(ended, interrupt))
        return await execute_plan(plan, journal, control={"interrupt": interrupt})


async def _watch(ended: threading.Event, interrupt: asyncio.Event) -> None:
    while not ended.is_set():  # noqa: ASYNC110 - a thread sets it
        await asyncio.sleep(LOOK_EVERY_S)
    interrupt.set()


def main() -> None:
    """Do a shard until it ends, or stdin is closed: by the program that began it, or with its death.

    The user's modules are importable from its folders, behind all packages.
    """
    _, whole, shard, *folders = sys.argv
    extend_import_path(folders)
    ended = threading.Event()

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    with users_print_to_stderr():
        ending = do_shard(Path(whole), int(shard), ended)
        results().write(msgspec.json.encode(ending).decode())
        results().flush()


if __name__ == "__main__":
    main()
