"""Elections, held by the real voter: what is drawn, what is counted, how they end, and who shares them.

Where the order of arrival matters, a `HeldSolver` takes the solver's place: its replies arrive when the test lets them.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Hashable, Sequence
from contextlib import aclosing
from itertools import permutations
from math import log
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microagents import (
    Conductor,
    Deployment,
    FirstToAheadBy,
    Prompt,
    Reply,
    Role,
    Sample,
    Sampling,
    Strategy,
    Usage,
    Work,
)
from microagents.base.errors import ModelUnavailable, TaskFailed, Undecided
from microagents.elections.election import Ballot, Draw, Flagged, Follow, Question, Verdict
from microagents.elections.rules import Certain, FirstTo, PortableRule, Tally
from microagents.journal.messages import Report
from microagents.replies.masses import Mass, digest_of_text
from microagents.replies.reply_forms import write
from microagents.roles import Solver
from microagents.tasks.drift import Onward
from microagents.work.conductor import Conduct
from tests.roles.voting import Quiz, Say, a_line, a_question, elect, says, scripted, tally_of, turns, voting

both_runtimes = pytest.mark.parametrize("runtime", ["local", "linked"])
"""Those in one process: when a reply arrives is decided in its memory."""


class Touchy(Reply, frozen=True):
    """A vote of a user's own, which raises."""

    word: str

    def vote(self) -> Hashable:
        raise ValueError(f"{self.word!r} is no word of mine")


class Unhashed(Reply, frozen=True):
    """A vote of a user's own, which has no hash."""

    word: str

    def vote(self) -> Hashable:
        return [self.word]  # type: ignore[return-value]


class Resolution:
    """Replies that arrive when the test says so, and what was asked for."""

    def __init__(self, costs_usd: Sequence[float | None] = (), p: float | None = None) -> None:
        self.p = p
        """The probability that each reply claims to have."""
        self.drawn: list[Draw] = []
        self._costs_usd = costs_usd
        self.cancelled: list[int] = []
        self._replies: dict[int, asyncio.Future[str]] = {}

    @property
    def seqs(self) -> list[int]:
        """What was drawn, in order of launch."""
        return [draw.id.seq for draw in self.drawn]

    @property
    def open(self) -> list[int]:
        """What was drawn and has not arrived."""
        return [seq for seq, reply in self._replies.items() if not reply.done()]

    async def reply(self, draw: Draw) -> Sample:
        seq = draw.id.seq
        self.drawn.append(draw)
        self._replies[seq] = asyncio.get_running_loop().create_future()
        try:
            text = await self._replies[seq]
            mass = None if self.p is None else Mass(log=log(self.p), text=digest_of_text(text))
            return Sample(text=text, usage=Usage(cost_usd=self._costs_usd[seq] if self._costs_usd else None), mass=mass)
        except asyncio.CancelledError:
            self.cancelled.append(seq)
            raise

    async def arrive(self, seq: int, reply: Reply | None) -> None:
        """Let a reply arrive, None for one that is flagged, and all happen that follows from it."""
        self._replies[seq].set_result("" if reply is None else write(reply))
        await turns()

    async def fail(self, seq: int, error: Exception) -> None:
        self._replies[seq].set_exception(error)
        await turns()

    async def arrive_in(self, order: Sequence[int], replies: Sequence[Reply | None]) -> None:
        """Let what is open arrive until nothing is, in this order of preference."""
        while left := [seq for seq in order if seq in self.open]:
            await self.arrive(left[0], replies[left[0]])


class HeldSolver(Role):
    """Draws what `Resolution` holds. An object in the options is shared by memory, which local runtimes allow."""

    async def draw(self, request: Draw) -> tuple[Sample, ...]:
        held: Resolution = self.context.options["held"]
        return (await held.reply(request),)


class AskOnceConductor(Conductor[Quiz, "AskOnce"]):
    """Holds one election."""

    async def conduct(self, work: Work[Quiz, AskOnce]) -> object:
        decision = await work.elect("line/7", Prompt(user="?"), Say, max_draws=work.strategy.max_draws)
        if work.strategy.goes_on:
            return {
                "value": decision.value,
                "outcome": decision.outcome,
                "decided": decision.decided,
                "flagged": decision.flagged,
            }
        return decision.require()


class AskOnce(Strategy):
    """A strategy of one election."""

    solves = (Quiz,)
    conductor = AskOnceConductor
    max_draws: int = 100
    goes_on: bool = False


def holding(held: Resolution) -> Deployment:
    return Deployment(role=HeldSolver, options={"held": held})


def follow(question: Question, path: str = "0/q") -> Follow:
    return Follow(id=question.id_at(path), question=question)


async def verdict_of(
    question: Question, replies: Sequence[Reply | None], order: Sequence[int], runtime: str = "local"
) -> Verdict:
    """The verdict where replies arrive in this order of preference."""
    held = Resolution()
    async with voting(holding(held), runtime=runtime) as messenger:
        asking = asyncio.create_task(messenger.ask(elect(question)))
        await turns()
        await held.arrive_in(order, replies)
        verdict = await asking
        assert held.seqs == list(range(len(verdict.ballots)))
        return verdict


# -- masses -------------------------------------------------------------------------------------------------------------

CERTAIN = Certain(FirstToAheadBy(k=3))


@pytest.mark.parametrize(
    ("rule", "sampling", "asked"),
    [
        (FirstToAheadBy(k=3), Sampling(temperature=1.0), [False, False, False]),
        (CERTAIN, Sampling(), [True, True, True]),
        (CERTAIN, Sampling(first_temperature=0.3), [False, True, True]),  # draws of two laws
        (CERTAIN, Sampling(first_temperature=1.5, temperature=1.5), [False] * 3),
        (CERTAIN, Sampling(first_temperature=None, temperature=None), [False] * 3),
    ],
)
async def test_masses_are_asked_for_if_all_draws_have_one_law_and_none_is_hotter_than_it(
    rule: PortableRule, sampling: Sampling, asked: list[bool]
) -> None:
    held, question = Resolution(p=0.2), a_question(rule, sampling=sampling)
    async with voting(holding(held)) as messenger:
        asking = asyncio.create_task(messenger.ask(elect(question, "0/q/78")))
        await turns()
        await held.arrive_in(range(3), [Say(word="a")] * 3)
        verdict = await asking
    assert [each.needs_mass for each in held.drawn] == asked
    assert [each.facts.mass is not None for each in verdict.ballots] == asked  # one that was not asked for is dropped


# -- what is counted, and in which order -------------------------------------------------------------------------------


@both_runtimes
async def test_ballots_are_counted_in_order_of_launch_whatever_the_order_of_arrival(runtime: str) -> None:
    replies = [Say(word="a", remark="first"), Say(word="b"), None, Say(word="a", remark="second"), Say(word="a")]
    question = a_question(FirstToAheadBy(k=2))
    verdicts = [await verdict_of(question, replies, order, runtime) for order in [*permutations(range(5))][::20]]
    assert all(verdict == verdicts[0] for verdict in verdicts)
    assert verdicts[0].outcome == "decided"
    assert msgspec.json.decode(verdicts[0].winner or b"", type=Say) == replies[0]
    assert [(ballot.seq, type(ballot)) for ballot in verdicts[0].ballots] == [
        (seq, Flagged if seq == 2 else Ballot) for seq in range(5)
    ]


def counted_prefix(replies: Sequence[Reply | None], arrived: set[int], rule: PortableRule, cap: int) -> tuple[int, int]:
    """How many samples are counted once these have arrived, and how many votes are needed then, from the definition."""
    tally, counted = Tally(rule), 0
    while counted in arrived and counted < cap and tally.votes_needed:
        if (reply := replies[counted]) is not None:
            tally.count(reply.vote())
        counted += 1
    return counted, tally.votes_needed


def ends_after(replies: Sequence[Reply | None], k: int, models: int, cap: int) -> tuple[int, str]:
    """After how many samples a pool's election ends, and how: from the definition, with what each model has said so far in a list."""
    said: list[list[Hashable]] = [[] for _ in range(models)]
    for seq, reply in enumerate(replies[:cap]):
        if reply is None:
            continue
        said[seq % models].append(reply.vote())
        votes = sorted(Counter(vote for each in said for vote in each).values(), reverse=True)
        if votes[0] - sum(votes[1:2]) >= k:
            return seq + 1, "decided"
        if models > 1 and all(len(each) >= k + 6 and len(set(each)) == 1 for each in said):
            return seq + 1, "contested"
    return cap, "undecided"


samples = st.text("aaabb.", min_size=30, max_size=30).map(says)
rules = st.builds(FirstToAheadBy, k=st.integers(1, 4)) | st.builds(
    FirstTo, k=st.integers(1, 4), at_most=st.none() | st.integers(1, 6)
)


@settings(max_examples=15)
@given(replies=samples, rule=rules, cap=st.integers(1, 30), order=st.permutations(range(30)))
async def test_exactly_the_decisive_prefix_is_drawn_and_at_every_moment_no_more_than_can_be_needed(
    replies: list[Reply | None], rule: PortableRule, cap: int, order: list[int]
) -> None:
    held, arrived = Resolution(), set[int]()
    prefix, left_open = counted_prefix(replies, set(range(30)), rule, cap)
    async with voting(holding(held)) as messenger:
        asking = asyncio.create_task(messenger.ask(elect(a_question(rule, max_draws=cap))))
        await turns()
        while held.open:
            assert not asking.done()
            counted, needed = counted_prefix(replies, arrived, rule, cap)
            flagged_ahead = sum(seq >= counted and replies[seq] is None for seq in arrived)
            assert held.seqs == list(range(min(cap, counted + needed + flagged_ahead)))
            seq = next(seq for seq in order if seq in held.open)
            arrived.add(seq)
            await held.arrive(seq, replies[seq])
        verdict = await asking
    assert held.seqs == list(range(prefix))
    assert [ballot.seq for ballot in verdict.ballots] == held.seqs
    assert [isinstance(ballot, Flagged) for ballot in verdict.ballots] == [reply is None for reply in replies[:prefix]]
    assert (verdict.outcome == "undecided") == bool(left_open)


one_sided = st.builds(
    lambda words, flags: [None if flag else Say(word=word) for word, flag in zip(words * 10, flags, strict=True)],
    st.sampled_from(["ababab", "abcabc", "aabaab", "abbabb", "ababba"]),
    st.lists(st.sampled_from([False, False, False, True]), min_size=60, max_size=60),
)
"""Each model of a pool of two or three mostly says the same."""


@pytest.mark.slow
@settings(max_examples=25)
@given(
    replies=one_sided | st.text("aaab.", min_size=60, max_size=60).map(says),
    k=st.integers(1, 4),
    models=st.integers(1, 3),
    cap=st.integers(1, 30),
    order=st.permutations(range(30)),
)
async def test_a_pool_draws_exactly_the_prefix_that_decides_or_shows_that_its_models_contradict_each_other(
    replies: list[Reply | None], k: int, models: int, cap: int, order: list[int]
) -> None:
    question = a_question(FirstToAheadBy(k), models=[f"m:{number}" for number in range(models)], max_draws=cap)
    prefix, outcome = ends_after(replies, k, models, cap)
    verdict = await verdict_of(question, replies, order)  # which asserts that nothing else was drawn
    assert (len(verdict.ballots), verdict.outcome) == (prefix, outcome)


async def test_a_flagged_reply_uses_its_seq_but_casts_no_vote(tmp_path: Path) -> None:
    words: list[Reply | None] = [Say(word="a"), None, Say(word="damn"), Say(word="a"), Say(word="a")]
    model = scripted(tmp_path / "script", [a_line(seq, word) for seq, word in enumerate(words)])
    async with voting(Deployment(role=Solver), model=model) as messenger:
        verdict = await messenger.ask(elect(a_question(models=[model])))
        account = await messenger.ask(Report(when="written"))
    flags = [ballot.flag if isinstance(ballot, Flagged) else None for ballot in verdict.ballots]
    assert flags == [None, "empty", "rude", None, None]
    assert (verdict.outcome, tally_of(verdict), account.calls) == ("decided", {"a": 3}, 5)


# -- what is drawn -----------------------------------------------------------------------------------------------------


async def all_drawn(question: Question, words: str, path: str = "0/q") -> list[Draw]:
    """What an election draws, in which these letters come back."""
    held = Resolution()
    async with voting(holding(held)) as messenger:
        asking = asyncio.create_task(messenger.ask(elect(question, path)))
        await turns()
        await held.arrive_in(range(len(words)), says(words))
        await asking
    return held.drawn


@pytest.mark.slow
async def test_the_models_of_a_pool_take_turns_and_elections_begin_with_different_ones() -> None:
    models = ("m:one", "m:two", "m:three")
    question, firsts = a_question(FirstToAheadBy(k=7), models=models), []
    for path in (f"0/step/{number}" for number in range(30)):
        asked = [draw.model for draw in await all_drawn(question, "a.aaaaaa", path)]
        offset = models.index(asked[0])
        assert asked == [models[(offset + seq) % 3] for seq in range(8)]
        assert [draw.model for draw in await all_drawn(question, "a.aaaaaa", path)] == asked
        firsts.append(asked[0])
    assert min(map(firsts.count, models)) >= 4  # of 30; a fair draw has fewer for one of the three once in 200


async def test_each_of_several_prompts_is_put_to_every_model_of_a_pool() -> None:
    prompts = [Prompt(user=f"{number}") for number in range(2)]
    drawn = await all_drawn(a_question(FirstToAheadBy(k=4), prompts=prompts, models=["m:one", "m:two"]), "aaaa")
    assert [draw.prompt.user for draw in drawn] == ["0", "0", "1", "1"]
    assert len({(draw.prompt.user, draw.model) for draw in drawn}) == 4


# -- how it ends -------------------------------------------------------------------------------------------------------


async def test_at_its_cap_an_election_is_undecided_and_its_leader_no_decision(tmp_path: Path) -> None:
    model = scripted(
        tmp_path / "script", [a_line(seq, word, path="0/line/7") for seq, word in enumerate(says("ab.aa"))]
    )
    async with voting(Deployment(role=Solver), model=model, strategy=AskOnce(max_draws=5, goes_on=True)) as messenger:
        result = await messenger.ask(Conduct(input=0))
        account = await messenger.ask(Report(when="written"))
    given = msgspec.json.decode(result)
    assert given == {"value": None, "outcome": "undecided", "decided": False, "flagged": 1}
    assert (account.decided, account.undecided_at, account.calls) == (0, ("0/line/7",), 5)


async def test_to_require_a_decision_of_an_undecided_election_names_its_path_and_tally(tmp_path: Path) -> None:
    model = scripted(
        tmp_path / "script", [a_line(seq, word, path="0/line/7") for seq, word in enumerate(says("ab.aa"))]
    )
    async with voting(Deployment(role=Solver), model=model, strategy=AskOnce(max_draws=5)) as messenger:
        with pytest.raises(
            Undecided,
            match=r"^the election at 0/line/7 is undecided after 5 draws \(3 x \{.*1 x \{.*; 1 flagged, mostly empty\)",
        ) as raised:
            await messenger.ask(Conduct(input=0))
    assert (raised.value.path, raised.value.args[1]) == ("0/line/7", 5)


# -- failures ----------------------------------------------------------------------------------------------------------


@both_runtimes
async def test_a_refusal_ends_the_election_once_and_for_all_who_follow_it(runtime: str) -> None:
    held, question = Resolution(), a_question()
    async with voting(holding(held), runtime=runtime) as messenger:
        asking = [asyncio.create_task(messenger.ask(elect(question))) for _ in range(3)]
        await turns()
        await held.fail(1, ModelUnavailable("refused", "no such model", 404))
        ended = await asyncio.gather(*asking, return_exceptions=True)
        await turns()
    assert [type(each) for each in ended] == [ModelUnavailable] * 3
    assert [each.args for each in ended if isinstance(each, ModelUnavailable)] == [
        ("refused", "no such model", 404, None, None, None)
    ] * 3
    assert held.seqs == [0, 1, 2]
    assert held.cancelled == [0, 2]


@both_runtimes
@pytest.mark.parametrize("reply", [Touchy, Unhashed])
async def test_a_vote_that_raises_gives_one_typed_error_and_no_other_noise(
    runtime: str, reply: type[Touchy | Unhashed]
) -> None:
    noise: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: noise.append(context))
    held, question = Resolution(), a_question(reply=reply)
    async with voting(holding(held), runtime=runtime) as messenger:
        asking = [asyncio.create_task(messenger.ask(elect(question))) for _ in range(2)]
        await turns()
        await held.arrive(1, reply(word="x"))
        await held.arrive(0, reply(word="x"))
        ended = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(each) for each in ended] == [TaskFailed, TaskFailed]
    assert all(reply.__name__ in str(each) for each in ended)
    gc.collect()  # a task's exception that nobody took is told by its end
    assert noise == []


# -- sharing -----------------------------------------------------------------------------------------------------------


@both_runtimes
async def test_two_who_ask_for_one_election_share_its_draws(runtime: str) -> None:
    held, question = Resolution(), a_question()
    async with voting(holding(held), runtime=runtime) as messenger:
        first = asyncio.create_task(messenger.ask(elect(question)))
        await turns()
        await held.arrive(1, Say(word="a"))
        second = asyncio.create_task(messenger.ask(elect(question)))
        await turns()
        await held.arrive_in([0, 2], says("aaa"))
        assert await first == await second
    assert held.seqs == [0, 1, 2]


@both_runtimes
async def test_who_joins_late_is_first_shown_what_has_arrived(runtime: str) -> None:
    held, question = Resolution(), a_question()
    async with voting(holding(held), runtime=runtime) as messenger:
        asking = asyncio.create_task(messenger.ask(elect(question)))
        await turns()
        await held.arrive(2, Say(word="c"))
        await held.arrive(0, Say(word="a"))
        async with aclosing(messenger.stream(follow(question))) as items:
            early = [await anext(items), await anext(items)]
            assert [item.seq for item in early if isinstance(item, Ballot)] == [2, 0]
            await held.arrive_in(range(6), says("aacaaa"))
            later = [item async for item in items]
        assert [item.seq for item in later if isinstance(item, Ballot)] == [1, 3, 4]
        assert later[-1] == await asking
    assert held.seqs == [0, 1, 2, 3, 4]


async def test_who_joins_an_election_that_has_ended_and_is_still_read_gets_its_verdict() -> None:
    held, question = Resolution(), a_question()
    async with voting(holding(held)) as messenger, aclosing(messenger.stream(follow(question))) as items:
        reading = asyncio.ensure_future(anext(items))
        await turns()
        await held.arrive_in(range(3), says("aaa"))
        assert isinstance(await reading, Ballot)
        assert tally_of(await messenger.ask(elect(question))) == {"a": 3}
    assert held.seqs == [0, 1, 2]


@both_runtimes
async def test_one_who_leaves_does_not_end_it_for_the_other(runtime: str) -> None:
    held, question = Resolution(), a_question()
    async with voting(holding(held), runtime=runtime) as messenger:
        leaving, staying = [asyncio.create_task(messenger.ask(elect(question))) for _ in range(2)]
        await turns()
        leaving.cancel()
        await turns()
        assert leaving.cancelled()
        assert not staying.done()
        assert held.cancelled == []
        await held.arrive_in(range(3), says("aaa"))
        assert tally_of(await staying) == {"a": 3}


@both_runtimes
async def test_when_the_last_one_leaves_the_draws_are_cancelled_in_order_of_launch(runtime: str) -> None:
    held, question = Resolution(), a_question(FirstToAheadBy(k=6))
    async with voting(holding(held), runtime=runtime) as messenger:
        asking = asyncio.create_task(messenger.ask(elect(question)))
        await turns()
        await held.arrive(2, Say(word="a"))
        asking.cancel()
        await turns()
        assert asking.cancelled()
        assert held.cancelled == [0, 1, 3, 4, 5]


# -- names -------------------------------------------------------------------------------------------------------------

VARIANTS = {
    "user": a_question(prompts=[Prompt(user="??")]),
    "system": a_question(prompts=[Prompt(user="?", system="s")]),
    "two prompts": a_question(prompts=[Prompt(user="?"), Prompt(user="??")]),
    "their order": a_question(prompts=[Prompt(user="??"), Prompt(user="?")]),
    "one twice": a_question(prompts=[Prompt(user="?"), Prompt(user="?")]),
    "k": a_question(FirstToAheadBy(k=4)),
    "rule": a_question(FirstTo(k=3)),
    "at_most": a_question(FirstTo(k=3, at_most=3)),
    "first temperature": a_question(sampling=Sampling(first_temperature=0.1)),
    "temperature": a_question(sampling=Sampling(temperature=0.2)),
    "provider's temperature": a_question(sampling=Sampling(temperature=None)),
    "tokens": a_question(sampling=Sampling(max_output_tokens=1024)),
    "flag above": a_question(sampling=Sampling(flag_above_tokens=None)),
    "model": a_question(models=["other"]),
    "pool": a_question(models=["held", "other"]),
    "pool's order": a_question(models=["other", "held"]),
    "reply": a_question(reply=Touchy),
    "cap": a_question(max_draws=99),
    "state": a_question(state=b"\x00"),
}


def test_the_fork_differs_with_all_that_makes_the_question() -> None:
    forks = [question.id_at("0/q").question_digest for question in (a_question(), *VARIANTS.values())]
    assert len(set(forks)) == 1 + len(VARIANTS)
    assert all(len(fork) == 16 for fork in forks)


def test_the_fork_is_the_same_in_every_process() -> None:
    fork = (
        a_question(FirstTo(k=3), prompts=[Prompt(user="?", system="s")], reply=Onward)
        .id_at("0/q")
        .question_digest.hex()
    )
    assert fork == "a07eb05ecd71b17547308383f2f858d2"  # a change of it would orphan every journal
