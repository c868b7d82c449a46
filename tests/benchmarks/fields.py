"""Votes by field against votes on whole rows: python -m tests.benchmarks.fields.

Each setting is a table whose fields are right with one probability, independently, and else one of some rival values. The same samples
are voted on by field and by row. Then samples read another entity of the row: votes by field must mix two in few rows. Exit code 1 if an
aim is missed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from random import Random
from types import new_class
from typing import Any

from msgspec import Struct

from microagents import Call, Model, Prompt, Reply, RowTask, Sample, run
from microagents.replies.chat import Usage
from tests.benchmarks.harness import options_of

MOST_MIXED = 0.005


class Setting(Struct, frozen=True, kw_only=True):
    """One table, and the aims for votes by field; an aim of None is shown only."""

    fields: int
    right: float
    """Probability that a field is right."""
    rates: tuple[float, ...] = ()
    """The same for each field, if they differ."""
    rivals: int
    other_entity: float = 0.0
    """Probability that a sample reads another entity, all of whose fields are 9."""
    most_votes: float | None = None
    most_wrong: int | None = None


SETTINGS = (
    Setting(fields=20, right=0.9, rivals=4, most_votes=7.0, most_wrong=1),
    Setting(fields=8, right=0.95, rivals=4, most_votes=4.9, most_wrong=1),
    Setting(fields=20, right=0.9, rivals=1),
    Setting(fields=8, right=0.95, rivals=1),
    Setting(fields=8, right=0.97, rivals=4, other_entity=0.3),
    Setting(fields=8, right=0.97, rivals=4, other_entity=0.4),
)


def task_of(fields: int, vote_by: str) -> type[RowTask[Any]]:
    """Make a task whose reply has some fields."""
    name = f"Row{fields}"
    annotations = {f"field{number}": int for number in range(fields)}
    reply = new_class(
        name, (Reply,), {"frozen": True}, lambda made: made.update(__annotations__=annotations, __module__=__name__)
    )
    globals()[name] = reply

    class Fill(RowTask[reply]):  # type: ignore[valid-type]
        format = "json"

        def prompt(self, row: dict[str, Any]) -> Prompt:
            return Prompt(user=f"Row {row['number']}")

    Fill.vote_by = vote_by  # type: ignore[assignment]
    return Fill


def judged_task_of(fields: int) -> type[RowTask[Any]]:
    """Make the same task with an oracle: every field is 0."""
    made = task_of(fields, "field")
    right = made.reply_type()(**{f"field{number}": 0 for number in range(fields)})

    class Judged(made):  # type: ignore[valid-type, misc]
        def oracle(self, row: dict[str, Any]) -> Reply:  # noqa: ARG002 - all rows are alike
            return right

    return Judged


class ErrsByField(Model):
    """Errs in each field by itself; the right value is 0."""

    answers_at_once = True
    throttled_as = None

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    async def complete(self, call: Call) -> Sample:
        """Draw one reply by its key."""
        of = self._setting
        row = call.prompt.user.partition("\n")[0]
        rng = Random(f"{row}/{call.id.seq}")
        entity = 9 if rng.random() < of.other_entity else 0
        fields = {}
        for number in range(of.fields):
            is_right = rng.random() < (of.rates[number] if of.rates else of.right)
            fields[f"field{number}"] = entity if is_right else 1 + rng.randrange(of.rivals)
        return Sample(text=json.dumps(fields), usage=Usage(input_tokens=20, output_tokens=20))


async def held(setting: Setting, vote_by: str, rows: int, k: int) -> tuple[float, int, int, int, int]:
    """Fill a table; returns the votes a row, and the numbers of rows that are wrong, mixed, undecided and composed."""
    task = task_of(setting.fields, vote_by)
    table = [{"number": number} for number in range(rows)]
    result = await run(task.rows(table), models=ErrsByField(setting), k=k)
    value: Sequence[dict[str, int] | None] = result.value
    found = [set(row.values()) for row in value if row is not None]
    wrong = sum(values != {0} for values in found)
    mixed = sum(values >= {0, 9} for values in found)
    return result.calls / rows, wrong, mixed, rows - len(found), result.account.composed


def main() -> None:
    of = options_of(__doc__, rows=1_000, k=3)
    is_missed = False
    for setting in SETTINGS:
        about = f"{setting.fields} fields right in {setting.right}, {setting.rivals} rival values"
        if setting.other_entity:
            about += f", another entity in {setting.other_entity}"
        print(f"{about}, {of.rows:,} rows, k = {of.k}:", flush=True)
        for vote_by in ("field", "row"):
            votes, wrong, mixed, undecided, composed = asyncio.run(held(setting, vote_by, of.rows, of.k))
            said = ""
            if vote_by == "field":
                misses = [
                    setting.most_votes is not None and votes > setting.most_votes,
                    setting.most_wrong is not None and wrong + undecided > setting.most_wrong,
                    mixed > MOST_MIXED * of.rows,
                ]
                said = "  OUTSIDE" if any(misses) else ""
                is_missed = is_missed or any(misses)
            counts = f"{wrong} wrong, {mixed} mixed, {undecided} undecided, {composed} composed"
            print(f"  by {vote_by:5} {votes:5.2f} votes a row, {counts}{said}", flush=True)
    sys.exit(is_missed)


if __name__ == "__main__":
    main()
