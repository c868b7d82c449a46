"""Several votes for one prompt price: draws of one election go in one request, and the votes are those of single draws."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from microagents import Result, resume, run
from microagents.base.errors import InvalidUsage, ModelUnavailable
from microagents.elections.election import Ballot
from microagents.journal.reading import Reader
from microagents.models.model import Call, Model, ModelSpec, Most
from microagents.models.openai import OpenAIModel
from microagents.models.simulation.simulated import Purchases
from microagents.replies.chat import Sample, Usage
from microagents.replies.reply_forms import write
from microagents.roles.solver import outages
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker, SelfConsistency
from microagents.tasks.drift import Drift, Onward
from microagents.tasks.word_problems import WordProblem
from tests.models.server import Connection, Server, reply, serving

ERRING = "sim:perfect@error=0.2,flag=0.1,latency=1,price_in=1,price_out=1"


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "BACKOFF_S", (0.01, 0.01))


async def drifting(model: Any, *, steps: int = 40, strategy: Maker | None = None, **options: Any) -> Result:
    return await run(Drift(length=steps), models=model, strategy=strategy or Maker(speculate=False), **options)


# -- the simulated model, over seeds of the loop ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "runtime", "speculate"), [(1, "local", True), (2, "linked", False)])
def test_votes_and_digests_are_those_of_single_draws(seed: int, runtime: str, *, speculate: bool) -> None:
    strategy = Maker(k=4, speculate=speculate)
    single, joined, pairs = [
        run_virtual(
            drifting(
                f"{ERRING},votes_per_request={number}",
                steps=8,
                strategy=strategy,
                seed=seed,
                runtime=runtime,
                runs_dir=None,
            ),
            seed=seed,
        ).account
        for number in (1, "auto", 2)
    ]
    assert single.decisions_sha256 == joined.decisions_sha256 == pairs.decisions_sha256
    assert single.ballots_sha256 == joined.ballots_sha256 == pairs.ballots_sha256
    assert single.joined == 0 < pairs.joined < joined.joined
    assert joined.calls < pairs.calls < single.calls


@pytest.mark.slow
def test_the_prompt_is_billed_once_a_request_and_its_price_split_over_the_ballots() -> None:
    async def costs(number: int) -> tuple[Result, list[float | None]]:
        result = await drifting(f"{ERRING},votes_per_request={number}", steps=10)
        return result, [each.cost_usd for each in result.decisions()]

    single, _ = run_virtual(costs(1))
    joined, by_step = run_virtual(costs(128))
    one, several = single.account, joined.account
    assert (one.output_tokens, one.valid, one.flagged) == (several.output_tokens, several.valid, several.flagged)
    assert several.calls + several.joined == one.calls
    assert several.input_tokens == pytest.approx(one.input_tokens * several.calls / one.calls, rel=0.02)
    assert one.cost_usd is not None
    assert several.cost_usd == pytest.approx(one.cost_usd - (one.input_tokens - several.input_tokens) / 1e6)
    assert sum(each or 0.0 for each in by_step) == pytest.approx(several.cost_usd)


def test_max_calls_counts_requests(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv(Purchases.VARIABLE, str(tmp_path / "purchases"))
    result = run_virtual(drifting("sim:perfect@latency=1,votes_per_request=auto", max_calls=7))
    assert (result.outcome, result.calls, result.account.decided) == ("stopped", 7, 3)
    assert (tmp_path / "purchases").read_text().count("sent") == 7


# -- a model in Python: cancelled and late requests -------------------------------------------------------------------------------------


class Choosing(Model):
    """Gives several samples a request, which takes as long as it is told."""

    priced = True
    max_samples = 8
    spec = "choosing"

    def __init__(
        self, late_s: Callable[[Call], float] = lambda _: 1.0, wrong: Callable[[Call], bool] = lambda _: False
    ) -> None:
        self.requests: list[list[int]] = []
        self.bought: list[tuple[str, int]] = []
        self.cancelled = 0
        self._late_s = late_s
        self._wrong = wrong

    async def complete(self, call: Call) -> Sample:
        self.requests.append([call.id.seq])
        await asyncio.sleep(0.5)
        return self._sample(call)

    async def complete_several(self, call: Call) -> Sequence[Sample]:
        singles = call.singles()
        self.requests.append([each.id.seq for each in singles])
        try:
            await asyncio.sleep(1.0 + self._late_s(call))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return [self._sample(each) for each in singles]

    def _sample(self, call: Call) -> Sample:
        self.bought.append((call.prompt.user, call.id.seq))
        right = int(call.prompt.user.rpartition(" ")[2]) + 1
        text = write(Onward(number=right + 7 if self._wrong(call) else right))
        return Sample(text=text, usage=Usage(input_tokens=1, output_tokens=5, cost_usd=1.0))


def test_a_request_that_takes_too_long_is_sent_again_beside_it() -> None:
    model = Choosing(lambda call: 1000.0 if call.id.election.path == "0/step/25" and not call.attempt else 1.0)
    result = run_virtual(drifting(model, steps=30, runs_dir=None))
    assert result.outcome == "completed"
    assert (result.account.repeated, result.account.unanswered, model.cancelled) == ({"straggler": 1}, 1, 1)
    assert model.requests == [*[[0], [1, 2]] * 26, [1, 2], *[[0], [1, 2]] * 4]


class Partial(Choosing):
    """Gives two samples a request at most, or one, and takes no temperature."""

    refused: ClassVar[dict[str, str | None]] = {"temperature": None}

    def __init__(self, given: int) -> None:
        super().__init__()
        self._given = given

    async def complete(self, call: Call) -> Sample:
        await asyncio.sleep((7 - call.id.seq) / 4)
        return await super().complete(call)

    async def complete_several(self, call: Call) -> Sequence[Sample]:
        self.requests.append([each.id.seq for each in call.singles()])
        await asyncio.sleep(1)
        return [self._sample(each) for each in call.singles()[: self._given]]


@pytest.mark.parametrize(("given", "requests"), [
    (8, [[0, 1, 2, 3, 4]]),
    (2, [[0, 1, 2, 3, 4], [2, 3, 4], [4]]),
    (1, [[0, 1, 2, 3, 4], [1], [2], [3], [4]]),
])  # fmt: skip
def test_samples_that_a_request_did_not_give_are_drawn_again(given: int, requests: list[list[int]]) -> None:
    for seed in range(3):
        model = Partial(given)
        result = run_virtual(drifting(model, steps=3, strategy=Maker(k=5, speculate=False), runs_dir=None), seed=seed)
        assert (result.outcome, result.account.valid) == ("completed", 15)
        assert sorted(model.requests[-len(requests) :]) == requests


def test_a_chain_that_guesses_ahead_asks_for_the_first_sample_alone() -> None:
    model = Partial(8)
    run_virtual(drifting(model, steps=3, strategy=Maker(k=3), runs_dir=None))
    assert sorted(model.requests) == [[0]] * 3 + [[1, 2]] * 3


def test_a_request_that_nobody_waits_for_any_more_is_cancelled() -> None:
    """A wrong guess opens a step whose request is in flight when the guess is dropped."""
    model = Choosing(lambda _: 2.0, wrong=lambda call: call.id.seq == 0 and call.id.election.path == "0/step/0")
    result = run_virtual(drifting(model, steps=3, strategy=Maker(k=3), runs_dir=None))
    assert result.outcome == "completed"
    assert model.cancelled >= 1
    assert result.account.unanswered >= 1


@pytest.mark.slow
@pytest.mark.parametrize("model", [lambda: Choosing(late_s=lambda call: call.id.seq / 2), lambda: Partial(1)])
def test_a_run_that_was_cut_off_buys_no_sample_again(model: Callable[[], Choosing]) -> None:
    async def in_two_sittings(asked: Choosing, after_s: float, seed: int) -> Result:
        options: Any = {"steps": 3, "strategy": Maker(k=5, speculate=seed == 1), "run_id": f"cut-{after_s}-{seed}"}
        with suppress(TimeoutError):
            await asyncio.wait_for(drifting(asked, **options), after_s)
        return await drifting(asked, **options)

    whole = run_virtual(drifting(model(), steps=3, strategy=Maker(k=5), runs_dir=None))
    for seed in range(2):
        for after_s in (0.7, 2.2, 2.7, 2.9, 3.3, 4.3):
            asked = model()
            result = run_virtual(in_two_sittings(asked, after_s, seed), seed=seed)
            assert result.account.ballots_sha256 == whole.account.ballots_sha256
            assert sorted(asked.bought) == sorted(set(asked.bought))


# -- limits of tokens and of cost -------------------------------------------------------------------------------------------------------


class Metered(Choosing):
    """Its requests use up to 10 tokens and 10 more a sample, and up to $2 a sample. It counts the most that its sales may come to."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.sold_tokens, self.sold_usd = 0, 0.0
        self.most_tokens, self.most_usd = 0, 0.0

    def at_most(self, call: Call) -> Most:
        return Most(tokens=10 + 10 * call.samples, cost_usd=2.0 * call.samples)

    async def complete(self, call: Call) -> Sample:
        self._sell(1)
        sample = await super().complete(call)
        self._settle(1)
        return sample

    async def complete_several(self, call: Call) -> Sequence[Sample]:
        self._sell(call.samples)
        samples = await super().complete_several(call)
        self._settle(call.samples)
        return samples

    def _sell(self, samples: int) -> None:
        self.sold_tokens += 10 + 10 * samples
        self.sold_usd += 2.0 * samples
        self.most_tokens, self.most_usd = max(self.most_tokens, self.sold_tokens), max(self.most_usd, self.sold_usd)

    def _settle(self, samples: int) -> None:
        self.sold_tokens -= 10 + 4 * samples  # of each sample, 6 are used
        self.sold_usd -= samples


def metered(model: Metered, seed: int, replicas: int = 1, **limits: Any) -> Result:
    strategy, tasks = Maker(k=5, speculate=bool(seed % 2)), [Drift(length=3)] * 3
    deploy = {"solver": {"num_replicas": replicas}}
    return run_virtual(
        run(tasks, models=model, strategy=strategy, seed=seed, runs_dir=None, deploy=deploy, **limits), seed=seed
    )


@pytest.mark.parametrize("limits", [
    *({"max_tokens": each} for each in (19, 20, 55)),
    {"max_cost_usd": 20.0},
    {"max_tokens": 110, "max_cost_usd": 40.0, "max_calls": 30, "concurrency": 2},
], ids=str)  # fmt: skip
def test_a_request_is_cut_to_what_the_limits_leave_and_the_run_ends_once_not_one_single_call_fits(
    limits: dict[str, Any],
) -> None:
    max_tokens, max_usd = limits.get("max_tokens", inf), limits.get("max_cost_usd", inf)
    for seed in range(2):
        model = Metered()
        result = metered(model, seed, 1 + 2 * seed, **limits)
        tokens_left, usd_left = (
            max_tokens - result.account.tokens_at_most,
            max_usd - (result.account.cost_at_most_usd or 0.0),
        )
        assert (result.outcome, result.account.in_flight) == ("stopped", 0)
        assert 0 <= tokens_left < 20 or 0 <= usd_left < 2, "a single call fits"
        assert model.most_tokens <= max_tokens
        assert model.most_usd <= max_usd


@pytest.mark.parametrize("limits", [{"max_tokens": 288, "max_cost_usd": 46.0}], ids=str)
def test_decisions_of_cut_requests_are_those_of_whole_ones(limits: dict[str, Any]) -> None:
    whole, cut = Metered(), Metered()
    free, limited = metered(whole, 0), metered(cut, 0, **limits)
    assert (free.outcome, limited.outcome) == ("completed", "completed")
    assert (free.account.decisions_sha256, free.account.ballots_sha256) == (
        limited.account.decisions_sha256,
        limited.account.ballots_sha256,
    )
    assert len(whole.requests) < len(cut.requests), "none was cut"


def test_a_limit_with_room_for_single_calls_alone_does_not_end_a_run_of_large_requests() -> None:
    model = "sim:gpt-4.1-nano@votes_per_request=auto"
    result = run_virtual(
        run(WordProblem(depth=3), models=model, strategy=SelfConsistency(), runs_dir=None, max_tokens=60_000)
    )
    assert (result.outcome, result.calls, result.account.samples) == ("completed", 2, 20)


# -- OpenAI's chat API ------------------------------------------------------------------------------------------------------------------


def choices(*texts: str, usage: dict[str, int] | None = None, finishes: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "choices": [
            {
                "index": index,
                "message": {"role": "assistant", "content": text},
                "finish_reason": finishes[index] if finishes else "stop",
            }
            for index, text in enumerate(texts)
        ],
        "usage": usage or {"prompt_tokens": 90, "completion_tokens": 10 * len(texts)},
    }


def onward(body: dict[str, Any], *, wrong: bool = False) -> str:
    return write(Onward(number=int(body["messages"][-1]["content"].rpartition(" ")[2]) + 1 + wrong))


async def served(
    give: Callable[[dict[str, Any], int], Any],
    *,
    steps: int = 2,
    several: str = "auto",
    keeps: bool = False,
    k: int = 3,
) -> tuple[Result, Server]:
    """The run of a chain against a server that is asked for several choices."""

    async def answer(connection: Connection) -> None:
        body = server.received[-1].json
        given = give(body, body.get("n", 1))
        await (reply(given) if isinstance(given, dict) else given)(connection)

    async with serving(answer) as server:
        spec = f"openai:m@base_url={server.url},votes_per_request={several},price_in=1,price_out=2"
        options = {"run_id": "served"} if keeps else {"runs_dir": None}
        result = await drifting(spec, steps=steps, strategy=Maker(k=k, speculate=False), **options)
        return result, server


def asked(server: Server) -> list[int]:
    """The numbers of choices that requests asked for, in no order: those of a step are under way at the same time."""
    return sorted(each.json.get("n", 1) for each in server.received)


async def test_one_request_asks_for_all_votes_that_are_launched_together() -> None:
    result, server = await served(lambda body, n: choices(*[onward(body)] * n), keeps=True)
    assert (result.outcome, result.calls, result.account.joined, asked(server)) == ("completed", 4, 2, [1, 1, 2, 2])
    assert result.account.input_tokens == 4 * 90
    assert [each.cost_usd for each in result.decisions()] == [pytest.approx((90 + 90 + 2 * 30) / 1e6)] * 2


async def test_choice_i_is_the_ith_seq_in_launch_order_with_a_flag_of_its_own() -> None:
    def give(body: dict[str, Any], n: int) -> dict[str, Any]:
        if n != 3:
            return choices(*[onward(body)] * n)
        given = choices(onward(body), onward(body, wrong=True), onward(body)[:3], finishes=["stop", "stop", "length"])
        given["choices"].reverse()  # the index counts, and not the place
        return given

    await served(give, steps=1, k=4, keeps=True)
    with Reader(Path("runs/served.sqlite")) as reader:
        row = reader.decision_at("0/step/0")
    assert row is not None
    drawn = [each.value if isinstance(each, Ballot) else each.flag for each in row.ballots[:4]]
    right, wrong = (msgspec.json.encode(Onward(number=number)) for number in (2, 3))
    assert drawn == [right, right, wrong, "cut_off"]


@pytest.mark.parametrize("message", [
    "'n' : number must be at most 1",
    "Only one completion choice is allowed",
    "Unsupported parameter: 'n'",
    "no",
])  # fmt: skip
async def test_a_server_that_refuses_several_choices_is_asked_singly(message: str) -> None:
    refusal = reply({"error": {"message": message, "type": "invalid_request_error"}}, status=400)
    result, server = await served(lambda body, n: refusal if n > 1 else choices(onward(body)))
    assert (result.outcome, result.calls) == ("completed", 6)
    assert asked(server).count(2) == 1


async def test_a_busy_server_is_asked_for_several_again() -> None:
    busy = iter([reply({}, status=429), reply({}, status=503)])
    result, server = await served(
        lambda body, n: next(busy, choices(*[onward(body)] * n)) if n > 1 else choices(onward(body)), steps=1
    )
    assert (result.outcome, asked(server)) == ("completed", [1, 2, 2, 2])
    assert (result.calls, result.account.repeated) == (2, {"busy": 1, "server": 1})


async def test_a_usage_that_counts_one_choice_alone_is_corrected_by_the_lengths_of_the_texts() -> None:
    """As llama.cpp does."""
    long = "So it goes on, and on, and on. " * 40

    def give(body: dict[str, Any], n: int) -> dict[str, Any]:
        return choices(*[f"{long}\n{onward(body)}"] * n, usage={"prompt_tokens": 90, "completion_tokens": 300})

    result, _ = await served(give, steps=1, k=4)
    assert result.account.output_tokens == pytest.approx(300 + 3 * len(long) / 4, rel=0.02)


async def test_a_long_choice_among_short_ones_is_too_long() -> None:
    def give(body: dict[str, Any], n: int) -> dict[str, Any]:
        texts = [onward(body)] * n
        if n > 1 and len(flagged) == 0:
            flagged.append(n)
            texts[0] = "word " * 2000 + "\n" + texts[0]
        return choices(*texts, usage={"prompt_tokens": 90, "completion_tokens": 10 + len(texts[0]) // 5})

    flagged: list[int] = []
    result, _ = await served(give, steps=1)
    assert result.account.flagged == {"too_long": 1}


async def test_a_resumed_run_does_not_ask_again_for_what_was_not_given() -> None:
    count = 0

    async def answer(connection: Connection) -> None:
        nonlocal count
        count += 1
        await reply(choices(onward(server.received[-1].json)) if count != 6 else {}, status=200 if count != 6 else 401)(
            connection
        )

    async with serving(answer) as server:
        spec = f"openai:m@base_url={server.url},votes_per_request=auto"
        with pytest.raises(ModelUnavailable):
            await drifting(spec, steps=3, run_id="later")
        before = len(server.received)
        result = await resume("later")
    assert result.outcome == "completed"
    assert all("n" not in each.json for each in server.received[before:])


@pytest.mark.parametrize("refuses_one", [False, True])
async def test_a_refusal_of_several_choices_is_remembered_once_one_is_accepted(*, refuses_one: bool) -> None:
    is_up = False

    async def answer(connection: Connection) -> None:
        body = server.received[-1].json
        n = body.get("n", 1)
        if not is_up and (n > 1 or (refuses_one and body["temperature"])):
            await reply({"error": {"message": "no"}}, status=410)(connection)
        else:
            await reply(choices(*[onward(body)] * n))(connection)

    async with serving(answer) as server:
        spec = f"openai:m@base_url={server.url},votes_per_request=auto"
        with suppress(ModelUnavailable):
            await drifting(spec, steps=2, run_id="refused", strategy=Maker(k=4, speculate=False), max_calls=4)
        is_up, before = True, len(server.received)
        result = await resume("refused", max_calls=100)
    assert result.outcome == "completed"
    assert any("n" in each.json for each in server.received[before:]) == refuses_one


@pytest.mark.parametrize("text", ["0", "129", "two", "1.5", "", "-1"])
def test_a_number_of_votes_that_no_request_can_ask_for_is_refused(text: str) -> None:
    with pytest.raises(InvalidUsage, match="must be auto or a number from 1 to 128, not "):
        OpenAIModel(
            ModelSpec(
                provider="openai", name="m", options={"base_url": "http://127.0.0.1:9", "votes_per_request": text}
            )
        )
