"""A usage that cannot be right counts at the most that its call can have used, is named once, and leaves a journal that can be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from microagents import Call, Result, Sample, resume, run
from microagents.journal.reading import Reader
from microagents.models.model import Model, Most
from microagents.models.possible_usage import possible
from microagents.replies.chat import Usage
from microagents.runs.words.summary import summary
from microagents.systems import Maker
from microagents.tasks.drift import Drift
from tests.benchmarks import usages
from tests.models.server import Connection, reply, serving
from tests.models.wires import OPENAI

MOST = Most(tokens=1000, cost_usd=0.1)


class Claiming(Model):
    """A right model of one's own that states any usage."""

    spec = "claiming"
    priced = True

    def __init__(self, usage: Usage) -> None:
        self._usage = usage

    def at_most(self, call: Call) -> Most:  # noqa: ARG002 - all alike
        return MOST

    async def complete(self, call: Call) -> Sample:
        number = int(call.prompt.user.removeprefix("Number: "))
        return Sample(text=f"number = {(number * 17 + 5) % 1009}", usage=self._usage)


async def drifting(model: object, **limits: Any) -> Result:
    options: Any = {"models": model, "strategy": Maker(k=1, speculate=False), "run_id": "r", **limits}
    return await run(Drift(length=4), **options)


def problems() -> list[str]:
    with Reader(Path("runs/r.sqlite")) as reader:
        return reader.verify()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")


@pytest.mark.parametrize(
    ("usage", "limits"),
    [({"completion_tokens": 3000}, {"max_tokens": 8_000}), ({"prompt_tokens": 3000}, {"max_cost_usd": 1.0})],
)
async def test_one_count_above_what_was_reserved_leaves_a_journal_that_resumes(
    usage: dict[str, int], limits: dict[str, Any]
) -> None:
    async def answer(connection: Connection) -> None:
        number = int(server.received[-1].json["messages"][-1]["content"].removeprefix("Number: "))
        await reply(OPENAI.good(f"number = {(number * 17 + 5) % 1009}", usage=usage))(connection)

    async with serving(answer) as server:
        model = f"openai:m@base_url={server.url},price_in=10,price_out=50"
        result = await drifting(model, flag_above_tokens=0, **limits)
        assert result.account.miscounted == result.calls > 0
        assert result.account.tokens_at_most > 3000 * result.calls, "the unknown count is not nothing"
        assert problems() == []
        again = await resume("r", max_tokens=None, max_cost_usd=None)
    assert (again.outcome, problems()) == ("completed", [])


IMPOSSIBLE: Any = [
    {"input_tokens": -1, "output_tokens": 5},
    {"input_tokens": 5},
    {"input_tokens": 10**30, "output_tokens": 5},
    {"input_tokens": 5, "output_tokens": True},
    {"input_tokens": 5, "output_tokens": 5, "cached_tokens": 6},
    {"input_tokens": 5, "output_tokens": 5, "reasoning_tokens": 6},
    {"input_tokens": 5, "output_tokens": 5, "cost_usd": float("nan")},
    {"input_tokens": 5, "output_tokens": 5, "cost_usd": "free"},
]


@pytest.mark.parametrize("usage", IMPOSSIBLE, ids=str)
async def test_an_impossible_usage_counts_at_the_most_and_is_named(usage: dict[str, Any]) -> None:
    result = await drifting(Claiming(Usage(**usage)), max_cost_usd=0.25, max_tokens=2500)
    account = result.account
    assert account.miscounted == account.calls == 2
    assert account.cost_usd == pytest.approx(account.calls * 0.1)
    assert f"{account.calls} replies with a usage that cannot be right" in summary(result)
    assert problems() == []


@pytest.mark.parametrize(
    ("usage", "tokens", "cost_usd"),
    [
        (Usage(), 1000, 0.1),
        (Usage(output_tokens=400), 1000, 0.1),
        (Usage(output_tokens=3000), 4000, 0.4),
        (Usage(input_tokens=10, output_tokens=3000, cost_usd=0.3), 3010, 0.3),
    ],
)
def test_an_unknown_count_is_the_most_beside_what_is_known(usage: Usage, tokens: int, cost_usd: float) -> None:
    assert MOST.tokens_of(usage) == tokens
    assert MOST.cost_of(usage) == pytest.approx(cost_usd)


@pytest.mark.parametrize(
    "usage",
    [
        Usage(),
        Usage(input_tokens=5, output_tokens=7, reasoning_tokens=7, cached_tokens=3, cache_write_tokens=2, cost_usd=0.0),
        Usage(input_tokens=5, output_tokens=7, reasoning_tokens=None),
    ],
)
def test_a_usage_that_can_be_right_is_left_as_it_is(usage: Usage) -> None:
    assert possible(usage) is usage


def test_a_part_that_is_not_stated_is_none() -> None:
    stated: Any = Usage(input_tokens=5, output_tokens=7, cached_tokens=None, cost_usd=1)  # type: ignore[arg-type]
    assert possible(stated) == Usage(input_tokens=5, output_tokens=7, cost_usd=1.0)


@pytest.mark.slow
async def test_journals_of_usages_at_random_are_verified_and_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microagents.roles.solver.outages.BACKOFF_S", (0.001, 0.002))
    found = await usages.measure(40)
    assert (found.refused, found.miscounted > 0) == ([], True)
