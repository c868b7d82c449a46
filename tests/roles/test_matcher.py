"""Votes by meaning: replies that mean the same count together, whatever their words and the order in which they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from microagents import Call, Reply, Result, run
from microagents.journal.sharded import reader_of
from microagents.replies.reply_forms import write
from microagents.roles.matcher import Match, ToMatch
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from microagents.systems.questions import Problem


class Capital(Reply, frozen=True):
    """A sentence."""

    sentence: str


class Question(Problem[Capital]):
    """A question about a capital."""

    def statement(self) -> str:
        return "What is the capital of France?"


PARIS = ("Paris.", "It is Paris.", "The capital is Paris.", "Paris, of course.")


def meaning(text: str) -> str:
    return "Paris" if "Paris" in text else text


def models(
    replies: Sequence[str], same: Callable[[str, str], bool] | None = None, asked: list[ToMatch] | None = None
) -> dict[str, Any]:
    async def answer(call: Call) -> str:
        await asyncio.sleep(0.001 * (7 * call.id.seq % 5))  # replies arrive in another order than they are launched
        return write(Capital(sentence=replies[call.id.seq % len(replies)]), "json")

    async def match(call: Call) -> str:
        question = msgspec.json.decode(call.prompt.user, type=ToMatch)
        if asked is not None:
            asked.append(question)
        one, other = (msgspec.json.decode(each, type=Capital).sentence for each in question.replies)
        return write(Match(same=same(one, other) if same else meaning(one) == meaning(other)), "json")

    return {"": answer, "matcher": match}


async def voted(replies: Sequence[str], *, k: int = 2, votes: Any = "semantic", **options: Any) -> Result:
    given = {name: options.pop(name) for name in ("same", "asked") if name in options}
    pools = models(replies, **given)
    if votes == "exact":
        del pools["matcher"]
    return await run(
        Question(), models=pools, strategy=Maker(k=k, votes=votes, speculate=False), **{"runs_dir": None} | options
    )


@pytest.mark.slow
async def test_replies_that_mean_the_same_decide_together() -> None:
    result = await voted(["Paris.", "Lyon.", "It is Paris.", "The capital is Paris."])
    assert result.outcome == "completed"
    assert result.value["answer"] == {"sentence": "Paris."}  # the first of its group that was launched
    exact = await voted(["Paris.", "Lyon.", "It is Paris.", "The capital is Paris."], votes="exact")
    assert exact.outcome == "undecided"


async def test_a_reply_that_joins_two_groups_joins_their_votes() -> None:
    # The matcher cannot tell that the first two are one thing until a third names both.
    def same(one: str, other: str) -> bool:
        return "both" in one or "both" in other

    result = await voted(["A.", "B.", "both"], same=same, k=3)
    assert result.value["answer"] == {"sentence": "A."}
    assert result.account.valid >= 3


async def test_a_matcher_that_cannot_be_read_tells_replies_apart() -> None:
    replies = models(["Paris.", "It is Paris."])

    async def silent(_: Call) -> str:
        return "Hm."

    result = await run(
        Question(),
        models={**replies, "matcher": silent},
        strategy=Maker(k=2, votes="semantic", speculate=False, max_draws=4),
        runs_dir=None,
    )
    assert result.outcome == "undecided"


async def test_comparisons_are_recorded_and_not_paid_again(tmp_path: Path) -> None:
    asked: list[ToMatch] = []
    cut = await voted(PARIS, k=4, asked=asked, runs_dir=tmp_path, run_id="cut", max_calls=6)
    assert cut.outcome == "stopped"
    before = len(asked)
    assert 0 < before < 3
    result = await voted(PARIS, k=4, asked=asked, runs_dir=tmp_path, run_id="cut", max_calls=None)
    assert result.outcome == "completed"
    assert len(asked) == 3
    with reader_of(tmp_path, "cut") as reader:
        assert not reader.verify()


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["local", "linked"])
def test_what_is_decided_does_not_depend_on_the_order_of_events(runtime: str) -> None:
    replies = ["Lyon.", "Paris.", "It is Paris.", "Lyon it is.", "The capital is Paris.", "Paris, of course."]
    results = [run_virtual(voted(replies, k=2, runtime=runtime), seed=seed) for seed in range(4)]
    assert len({(each.account.decisions_sha256, each.account.ballots_sha256, each.calls) for each in results}) == 1
