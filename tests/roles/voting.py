"""What tests of an election's roles share: questions with words for replies, and the voter with its company around a solver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import msgspec

from microagents import Context, Deployment, FirstToAheadBy, Prompt, Reply, Role, Sampling, Strategy, Task, Unvoted
from microagents.base.messages import address_of
from microagents.elections.election import Elect, Question, Verdict
from microagents.elections.rules import PortableRule
from microagents.models.simulation.scripted import ScriptLine
from microagents.replies.reply_forms import fingerprint, write
from microagents.roles import Keeper, RedFlagger, Voter
from microagents.runs.driver.execute import runtime_of
from microagents.runtimes.dispatcher import RoleMessenger
from microagents.systems import Maker

ROBUST_S = 60.0
"""A time that is not meant to pass."""
TURNS = 40
"""Turns of the loop in which all has happened that can happen without another arrival, links between dispatchers included."""


class Say(Reply, frozen=True):
    """A word, and what is not voted on."""

    word: str
    remark: Annotated[str, Unvoted] = ""


class Quiz(Task):
    """Screens two words."""

    def flag(self, reply: Reply) -> str | None:
        word = getattr(reply, "word", "")
        if word == "explosive":
            raise ValueError("boom")
        return "rude" if word == "damn" else None


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


@asynccontextmanager
async def voting(
    solver: Deployment,
    *,
    runtime: str = "local",
    strategy: Strategy | None = None,
    model: str = "",
    max_outage_s: float = 0.0,
    concurrency: int | None = 100,
) -> AsyncIterator[RoleMessenger]:
    """The roles of an election around a solver; with a strategy, its conductor too."""
    settings = {"concurrency": concurrency, "max_outage_s": max_outage_s}
    context = Context(
        run_id="a",
        seed=0,
        tasks=[Quiz()],
        strategy=strategy or Maker(),
        models={"": (model,)} if model else {},
        settings=settings,
    )
    roles: list[type[Role]] = [
        Keeper,
        Voter,
        RedFlagger,
        *([] if strategy is None else [strategy.conductor]),
    ]
    async with (
        asyncio.timeout(ROBUST_S),
        runtime_of(runtime, context, [*[Deployment(role=role) for role in roles], solver]) as opened,
    ):
        yield opened.messenger


def scripted(file: Path, lines: Sequence[ScriptLine]) -> str:
    """A model that replies by a script."""
    file.write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    return f"scripted:{file}"


def a_line(seq: int, reply: Reply | None, *, fails: int = 0, after_s: float = 0.0, path: str = "0/q") -> ScriptLine:
    """A line of it; None is a reply that is flagged."""
    return ScriptLine(path=path, seq=seq, text="" if reply is None else write(reply), fails=fails, after_s=after_s)


def a_question(
    rule: PortableRule | None = None,
    *,
    prompts: Sequence[Prompt] = (Prompt(user="?"),),
    reply: type[Reply] = Say,
    sampling: Sampling | None = None,
    models: Sequence[str] = ("held",),
    max_draws: int = 100,
    state: bytes = b"",
) -> Question:
    return Question(
        prompts=tuple(prompts),
        reply=address_of(reply),
        form=fingerprint(reply),
        rule=rule or FirstToAheadBy(k=3),
        sampling=sampling or Sampling(),
        models=tuple(models),
        max_draws=max_draws,
        state=state,
    )


def elect(question: Question, path: str = "0/q") -> Elect:
    return Elect(id=question.id_at(path), question=question)


def says(words: str) -> list[Reply | None]:
    """A reply per letter; a dot for one that is flagged."""
    return [None if word == "." else Say(word=word) for word in words]


def tally_of(verdict: Verdict) -> dict[str, int]:
    return {msgspec.json.decode(value, type=Say).word: votes for value, votes in verdict.tally}
