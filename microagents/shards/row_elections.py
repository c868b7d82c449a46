"""Elections for batches of rows: each batch is a run of this process, and a decided reply serves all later ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from microagents.base.errors import MicroagentsError
from microagents.base.text_digests import digest_of
from microagents.journal.ending import RunEnding
from microagents.journal.experiment import FIRST_PROMPT, INPUTS
from microagents.journal.opening import holds_nothing
from microagents.journal.reading import Reader, journal_of
from microagents.runs.driver.begin import RunKeywords, new_plan, run_sync
from microagents.runs.plan import RunPlan, experiment_of
from microagents.runs.result import flagged_inputs, state_of
from microagents.runs.strategies import Models
from microagents.shards.capped_sittings import NO_LIMITS, CappedSittings
from microagents.shards.decided_replies import DecidedReplies, question_keys
from microagents.shards.file_locks import LOCK, locked
from microagents.systems.chains.row_task import RowTask

NAME_BYTES = 16


class RowEnding(NamedTuple):
    """How a row ended."""

    state: str
    """As in `Result.rows`."""
    why: str | None = None
    reply: str | None = None
    """The decided reply, as JSON."""


def terms_digest(plan: RunPlan) -> str:
    """Return a digest of all that decisions depend on, but for the rows."""
    experiment, _ = experiment_of(plan)
    terms = {name: text for name, text in experiment.identity.items() if name not in (INPUTS, FIRST_PROMPT)}
    return digest_of(msgspec.json.encode(terms, order="deterministic"), 8).hex()


class RowElections:
    """Decides rows by runs in this process.

    The runs of one task, models and rule share a folder of the output, whose name is a digest of these. A run is named by the digest of the
    questions of its batch. An attempt at it holds a lock, so a second one waits, and then continues it or finds it done.

    Args:
        kind: the class of rows.
        models: as for `run`.
        output: folder on storage that all processes share.
        given: keywords of `run`; ``max_calls`` and ``max_cost_usd`` bound all runs of the output together.
    """

    def __init__(self, kind: type[RowTask], models: Models, output: Path, given: Mapping[str, Any]) -> None:
        self._kind, self._models, self._output = kind, models, output
        caps = {name: given.get(name) for name in NO_LIMITS}
        self._given = {name: value for name, value in given.items() if name not in caps}
        self._sittings = CappedSittings(output, **caps)
        self._replies: DecidedReplies | None = None
        self._folder = output

    def decide(self, rows: Sequence[Mapping[str, Any]]) -> list[RowEnding]:
        """Decide rows, and return how each ended, in their order. Rows that ask the same question are asked once."""
        tasks = self._kind.rows(rows)
        keys = question_keys(tasks)
        firsts = dict[bytes, RowTask]()
        for key, task in zip(keys, tasks, strict=True):
            firsts.setdefault(key, task)
        try:
            endings = self._endings(list(firsts), list(firsts.values()))
        except (MicroagentsError, OSError, sqlite3.Error) as error:
            endings = dict.fromkeys(firsts, RowEnding("not done", f"{error}; all decisions so far are kept"))
        return [endings[key] for key in keys]

    def _endings(self, keys: Sequence[bytes], tasks: Sequence[RowTask]) -> dict[bytes, RowEnding]:
        replies = self._opened(tasks)
        decided = replies.of(keys)
        found = dict[bytes, RowEnding]()
        if len(decided) < len(keys):
            run = f"rows-{digest_of(b''.join(keys), NAME_BYTES).hex()}"
            with locked(self._folder / f"{run}{LOCK}"):
                decided = replies.of(keys)  # another attempt may have held the lock
                left = [number for number, key in enumerate(keys) if key not in decided]
                if left:
                    replies.forget(run)
                    endings = self._run(run, tasks, left)
                    found = {keys[number]: ending for number, ending in endings.items()}
                    replies.keep(run, [(key, each.reply) for key, each in found.items() if each.reply is not None])
        return found | {key: RowEnding("decided", None, reply) for key, reply in decided.items()}

    def _opened(self, tasks: Sequence[RowTask]) -> DecidedReplies:
        """Open the folder of the runs with the terms of the first batch."""
        if self._replies is None:
            self._folder = self._output / terms_digest(
                new_plan(tasks[:1], self._models, cast("RunKeywords", self._given))
            )
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # replies are this user's, like journals
            self._replies = DecidedReplies(self._folder, self._kind)
        return self._replies

    def _run(self, run: str, tasks: Sequence[RowTask], numbers: Sequence[int]) -> dict[int, RowEnding]:
        """Conduct some rows of a batch to their end; returns it by their number."""
        sitting = self._sittings.hold(f"{self._folder.name}/{run}", partial(self._sit, run, tasks, numbers))
        endings, flagged = {}, set[int]()
        journal = journal_of(self._folder, run)
        if not holds_nothing(journal):
            with Reader(journal) as reader:
                endings = {each.input: each for each in reader.input_endings()}
                flagged = flagged_inputs(reader)
        found = {}
        for number in numbers:
            ending = endings.get(number)
            state = state_of(ending, is_flagged=number in flagged)
            if ending is None:
                found[number] = RowEnding(state, sitting.reason)
            else:
                found[number] = RowEnding(state, ending.reason, ending.result)
        return found

    def _sit(self, run: str, tasks: Sequence[RowTask], numbers: Sequence[int], limits: dict[str, Any]) -> RunEnding:
        """Hold one sitting of a run; returns how it ended."""
        only = numbers if len(numbers) < len(tasks) else None
        named: dict[str, Any] = {**self._given, **NO_LIMITS, **limits}
        named |= {"run_id": run, "runs_dir": self._folder, "inputs": only}
        try:
            found = run_sync(tasks, models=self._models, share="off", **named)
        except MicroagentsError as error:
            return RunEnding(outcome="failed", reason=str(error))
        return RunEnding(outcome=found.outcome, reason=found.reason, limit=found.limit)
