"""The red-flagger: what is discarded under which name, in which order, and what is read out of the rest."""

from __future__ import annotations

from typing import Any

import pytest

from microagents import Context, Deployment, Reply, Sample, Task, Usage
from microagents.base.errors import TaskFailed
from microagents.base.messages import address_of
from microagents.elections.election import Ballot, ElectionId, Flagged, SampleFacts, SampleId, Screen, Wanted
from microagents.replies.masses import Mass
from microagents.replies.reply_forms import write
from microagents.roles import RedFlagger
from microagents.runtimes.local import LocalRuntime
from microagents.systems import Maker
from tests.roles.voting import Quiz, Say

FLAG_ABOVE_TOKENS = 750
RIGHT, RUDE = write(Say(word="a")), write(Say(word="damn"))


class Judged(Task):
    """Flags every reply as its options say."""

    verdict: Any

    def flag(self, reply: Reply) -> str | None:  # noqa: ARG002 - whatever it is
        found: str | None = self.verdict
        return found


async def screened(
    text: str,
    *,
    task: Task | None = None,
    finish: str = "stop",
    tokens: int = 10,
    choices: str = "",
    fallback: str = "",
    mass: Mass | None = None,
) -> Ballot | Flagged:
    """What a red-flagger makes of a sample; ``choices`` are the votes that count, a letter each."""
    sample = Sample(text=text, finish=finish, usage=Usage(output_tokens=tokens), fallback=fallback, mass=mass)
    of = SampleId(election=ElectionId(path="0/q", question_digest=b""), seq=7)
    asked = Screen(
        id=of, sample=sample, reply=address_of(Say), flag_above_tokens=FLAG_ABOVE_TOKENS, choices=tuple(choices)
    )
    context = Context(run_id="a", seed=0, tasks=[task or Quiz()], strategy=Maker())
    async with LocalRuntime(context, [Deployment(role=RedFlagger)]) as roles:
        found = await roles.messenger.ask(asked)
    assert not isinstance(found, Wanted)
    return found


async def test_each_flag_discards_a_reply_before_the_next_is_looked_for() -> None:
    """A reply that has all flags has the first; whatever is mended, the next one shows."""
    choices, rambling = "ab", FLAG_ABOVE_TOKENS + 1
    samples: list[tuple[str, dict[str, Any]]] = [
        ("cut_off", {"text": "", "finish": "length", "tokens": rambling}),
        ("refusal", {"text": "", "finish": "refusal", "tokens": rambling}),
        ("too_long", {"text": "", "tokens": rambling}),
        ("empty", {"text": " \n"}),
        ("malformed", {"text": "damn"}),
        ("no_such_choice", {"text": RUDE, "choices": choices}),
        ("rude", {"text": RUDE}),
    ]
    found = [await screened(**sample) for _, sample in samples]
    why = {"malformed": "no line `word = ...`"}
    expected = [
        Flagged(seq=7, flag=flag, facts=SampleFacts(said=flag * (flag == "refusal")), why=why.get(flag, ""))
        for flag, _ in samples
    ]
    assert found == expected


@pytest.mark.parametrize("verdict", [True, "", "two\nlines", "x" * 61, 7])
async def test_a_tasks_own_flag_that_is_no_short_name_is_refused(verdict: object) -> None:
    with pytest.raises(TaskFailed, match=r"Judged\.flag must give None or a short name, not"):
        await screened(RIGHT, task=Judged(verdict=verdict))


class Counting(Task):
    """Counts how often it is asked for a flag."""

    asked: list[str]

    def flag(self, reply: Reply) -> str | None:
        self.asked.append(getattr(reply, "word", ""))
        return "rude" if getattr(reply, "word", "") == "damn" else None


async def test_equal_replies_to_one_question_are_judged_once_and_each_under_its_own_seq() -> None:
    task = Counting(asked=[])
    context = Context(run_id="a", seed=0, tasks=[task], strategy=Maker())
    found = []
    async with LocalRuntime(context, [Deployment(role=RedFlagger)]) as roles:
        for state in (b"1", b"2"):
            for seq, text in enumerate((RIGHT, f"Well.\n{RIGHT}", RUDE, RUDE, RIGHT)):
                of = SampleId(election=ElectionId(path="0/q", question_digest=b""), seq=seq)
                screen = Screen(
                    id=of, sample=Sample(text=text), reply=address_of(Say), flag_above_tokens=None, state=state
                )
                found.append(await roles.messenger.ask(screen))
    assert task.asked == ["a", "damn", "a", "damn"]
    assert [(each.seq, isinstance(each, Flagged)) for each in found] == 2 * [
        (0, False),
        (1, False),
        (2, True),
        (3, True),
        (4, False),
    ]
