"""Calls of tools in the dialects of servers: each is read as the vote that the standard form casts, and no later request is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from microagents import run
from microagents.systems.agents.act import Act
from microagents.systems.agents.actions import AgentState
from tests.doubles.clerk import ACTIONS, RESULTS, Clerk, right
from tests.doubles.dialects import EDITS, OF_ALL, PLAIN, STREAMS, Said
from tests.doubles.histories import Heard
from tests.doubles.strict_wires import PROVIDERS, strict_wires

KINDS: Mapping[str, Sequence[str]] = {
    "ids": ("no id", "a null id", "an empty id", "one id"),
    "ends": ("no end", "a null end", "an unknown end"),
    "no arguments": tuple(name for name in OF_ALL if name.endswith("for no arguments")),
    "encodings": ("arguments twice", "bare arguments", "parts twice"),
    "texts": ("text", "text without an end", "text behind words"),
}
OF_WIRES = {f"{wire}'s own": (wire, [name for name in EDITS[wire] if name not in OF_ALL]) for wire in PROVIDERS}
OF_KINDS = {
    **{f"{kind} on {wire}": (wire, names) for kind, names in KINDS.items() for wire in PROVIDERS},
    **{f"streams of {wire}": (wire, [*streams]) for wire, streams in STREAMS.items()},
}
CASES = {**OF_WIRES, **OF_KINDS}
UNCLEAR = ("streamed lists so far", "streamed all of index 0")
"""Streams in which, without ids of their own, nobody can tell a call that is written again from an equal one."""


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "none")


async def check(wire: str, dialects: Sequence[str], family: str = "openai") -> None:
    """Each action is decided by equal votes, one in each dialect; nothing is refused, and each result is told as it is."""
    heard = list[Heard]()

    def brain(said: Heard) -> Said:
        heard.append(said)
        return right(said)

    k = max(2, len(dialects))
    async with strict_wires(brain) as server:
        models = [server.spec(wire, family, dialect) for dialect in dialects]
        strategy = Act(k_read=k, k_write=k, k_destructive=k, k_end=k)
        result = await run(Clerk(), models=models, strategy=strategy, runs_dir=None)
    assert (server.refused, result.outcome, result.account.flagged) == ([], "completed", {})
    assert (result.account.calls, result.value["actions"]) == (k * len(ACTIONS), len(ACTIONS) - 1)
    assert max(heard, key=lambda each: each.steps).results == RESULTS


@pytest.mark.slow_after(len(OF_WIRES))
@pytest.mark.parametrize("case", CASES)
async def test_calls_in_dialects_are_votes_for_the_same_as_in_the_standard_form(case: str) -> None:
    wire, dialects = CASES[case]
    await check(wire, [PLAIN, *dialects])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wire", "stream"), [(wire, stream) for wire, streams in STREAMS.items() for stream in streams]
)
async def test_mixtures_of_dialects_are_votes_for_the_same(wire: str, stream: str) -> None:
    edits = [edit for edit in EDITS[wire] if stream not in UNCLEAR or edit not in KINDS["ids"]]
    await check(wire, [f"{stream}.{edit}" for edit in edits])


@pytest.mark.slow_after(3)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("family", ["mistral", "deepseek", "gemini"])
@pytest.mark.parametrize("dialect", [PLAIN, "streamed with the id behind"])
async def test_a_server_gets_ids_reasoning_and_signatures_as_it_wants_them(family: str, dialect: str) -> None:
    await check("chat", [dialect], family)


class Remarking(Clerk):
    """A clerk whose task says something behind the results of each action."""

    def summary(self, state: AgentState, /) -> str:
        return f"{state.taken} done." if state.taken else ""


async def test_words_behind_results_follow_a_word_of_the_assistant_once_they_were_refused() -> None:
    async with strict_wires(right) as server:
        result = await run(Remarking(), models=server.spec("chat", "mistral"), runs_dir=None)
    assert (result.outcome, result.account.flagged, server.refused) == (
        "completed", {}, ["Unexpected role 'user' after role 'tool'"],
    )  # fmt: skip


async def test_refusals_of_unreasoned_calls_that_meet_turn_these_calls_into_words_and_no_more() -> None:
    two_at_once = Act(k_read=4, k_write=4, k_end=4)
    async with strict_wires(right) as server:
        models = [server.spec("chat", "deepseek"), server.spec("messages")]
        result = await run(Clerk(), models=models, strategy=two_at_once, runs_dir=None)
    assert (result.outcome, result.account.flagged) == ("completed", {})
    assert set(server.refused) <= {"Missing `reasoning_content` field in the assistant message."}
    assert all("tools" in body for body in server.bodies)
