"""A trained model on a table of sums with eight fields: python -m tests.benchmarks.trained_rows [--rows 100].

Each field of a row is one sum, which ``tiny:sums`` replies to at temperature 1; a sample of the row has one reply for each field, and its
mass is the product of theirs. The same samples are voted on by row, by field, and by field with certificates. Replies to each sum are
enumerated: a field that is decided by fewer than k votes must have its likeliest value. Exit code 1 if one has not, or if votes by field
take more calls than by row.
"""

from __future__ import annotations

import asyncio
import json
import sys
from functools import cache
from random import Random
from typing import Any, ClassVar

from msgspec import structs

from microagents import Call, Model, Prompt, Reply, RowTask, Sample, Usage, run
from microagents.models.tiny.trained import TinyModel
from microagents.replies.chat import Sampling
from microagents.replies.masses import Mass, digest_of_text
from microagents.replies.parsing import Malformed, parse
from microagents.systems import Maker
from tests.benchmarks.harness import options_of
from tests.benchmarks.tiny import UNSEEN

SYSTEM = "Add the two numbers."
DIGITS, K = 4, 3


class Sum(Reply, frozen=True):
    """What the model was trained on."""

    total: int


class Sums(Reply, frozen=True):
    """The sums of a row."""

    a: int
    b: int
    c: int
    d: int
    e: int
    f: int
    g: int
    h: int


class AddRow(RowTask[Sums]):
    """Eight sums a row."""

    format = "json"
    sampling: ClassVar[Sampling] = Sampling(first_temperature=1.0, temperature=1.0)

    def prompt(self, row: dict[str, Any]) -> Prompt:
        return Prompt(system=SYSTEM, user=json.dumps(row))


class AddRowAsOne(AddRow):
    """The same, voted on by row."""

    vote_by = "row"


class OfSums(Model):
    """Replies to a row with what the trained model replies to each of its sums."""

    throttled_as = None
    priced = True

    def __init__(self) -> None:
        self.name = "sums"
        self._model = TinyModel("sums")

    async def complete(self, call: Call) -> Sample:
        """Draw one reply to each sum."""
        row: dict[str, str] = json.loads(call.prompt.user.partition("\n")[0])
        asked = [
            structs.replace(
                call,
                id=structs.replace(
                    call.id, election=structs.replace(call.id.election, path=f"{call.id.election.path}/{name}")
                ),
                prompt=Prompt(system=SYSTEM, user=words),
                reply=Sum,
            )
            for name, words in row.items()
        ]
        drawn = await asyncio.gather(*map(self._model.complete, asked))
        try:
            text = json.dumps({name: parse(each.text, Sum).total for name, each in zip(row, drawn, strict=True)})
        except Malformed:
            text = "none"
        masses = [each.mass for each in drawn if each.mass is not None]
        is_whole = len(masses) == len(drawn) and text != "none"
        mass = Mass(log=sum(each.log for each in masses), text=digest_of_text(text)) if is_whole else None
        return Sample(text=text, usage=Usage(input_tokens=1, output_tokens=1, cost_usd=0.0), mass=mass)


def table(rows: int) -> list[dict[str, str]]:
    """Make rows of eight sums."""
    rng, most = Random(8), 10**DIGITS
    return [
        {name: f"{rng.randrange(1 - most, most)} and {rng.randrange(1 - most, most)}" for name in "abcdefgh"}
        for _ in range(rows)
    ]


@cache
def law(words: str) -> dict[int, float]:
    """The probability of each value of one sum, likeliest first."""
    found = dict[int, float]()
    for text, mass in trained().law(Prompt(system=SYSTEM, user=words), 1.0, UNSEEN).items():
        try:
            total = parse(text, Sum).total
        except Malformed:
            continue
        found[total] = found.get(total, 0.0) + mass
    return dict(sorted(found.items(), key=lambda share: -share[1]))


@cache
def trained() -> TinyModel:
    """The model whose replies are enumerated."""
    return TinyModel("sums")


def right(words: str) -> int:
    """The sum."""
    first, second = words.split(" and ")
    return int(first) + int(second)


async def held(kind: type[AddRow], rows: list[dict[str, str]], *, certain: bool) -> tuple[float, int, int, int, int]:
    """Fill a table; returns calls a row, wrong and open rows, certified fields, and those of them that are not the likeliest value."""
    strategy = Maker(k=K, certain="on" if certain else "off")
    result = await run(kind.rows(rows), models=OfSums(), strategy=strategy)
    wrong = certified = missed = undecided = 0
    values: list[dict[str, int] | None] = list(result.value)
    for row, value, columns in zip(rows, values, result.rows(trust=True), strict=True):
        if value is None:
            undecided += 1
            continue
        wrong += any(value[name] != right(words) for name, words in row.items())
        for name, words in row.items():
            if int(columns[f"{name}_agreement"].partition("/")[0]) < K:  # too few votes for a lead
                certified += 1
                missed += value[name] != next(iter(law(words)))
    return result.calls / len(rows), wrong, undecided, certified, missed


def main() -> None:
    of = options_of(__doc__, rows=100)
    rows = table(of.rows)
    single = sum(law(words).get(right(words), 0.0) for row in rows for words in row.values()) / (8 * len(rows))
    print(
        f"tiny:sums, {of.rows} rows of 8 sums of {DIGITS} digits, k = {K}: a field is right in {single:.4f} of samples",
        flush=True,
    )
    calls = {}
    misses = 0
    for title, kind, certain in (
        ("by row", AddRowAsOne, False),
        ("by field", AddRow, False),
        ("certified", AddRow, True),
    ):
        calls[title], wrong, undecided, certified, missed = asyncio.run(held(kind, rows, certain=certain))
        misses += missed
        said = f"; {certified} certified fields, {missed} not the likeliest value" if certain else ""
        print(
            f"  {title:9} {calls[title]:6.2f} calls a row, {wrong} rows wrong, {undecided} undecided{said}", flush=True
        )
    sys.exit(bool(misses or calls["by field"] > calls["by row"]))


if __name__ == "__main__":
    main()
