"""Models that weigh the options of a reply, behind a real server: by the decision endpoint, and by log-probabilities of one letter."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import Struct

from microagents import ChainTask, InvalidUsage, Prompt, Reply, Result, resume, run
from microagents.elections.rules import FirstValid, Rule
from microagents.journal.reading import Reader
from microagents.models.model import Call, ModelSpec
from microagents.models.openai import OpenAIModel
from microagents.models.openai_decisions import OpenAIDecisions
from microagents.models.weighing import LETTERS, at_least, options_of
from microagents.replies.reply_forms import write
from microagents.runs.inspection.decision import InspectedDecision, inspect_decision
from microagents.studies.measure import measure
from microagents.studies.measured import Threshold
from microagents.systems.chains.maker import Maker
from microagents.systems.questions.candidates import labels_of
from microagents.systems.questions.questions import Choice
from microagents.systems.questions.recursive import Recursive
from microagents.tasks.ask import Ask
from tests.cli.commands import COMPLETED, microagents
from tests.models.server import Answer, Connection, Server, reply, serving
from tests.systems.scripted import four, label, rows, scripted

Weigh = Callable[[list[str], int], Mapping[str, float] | Answer]
"""The probability of each option, in the order in which they are listed, at a request of this number; or any bytes of HTTP."""
Wire = Literal["decisions", "systemone", "logprobs"]


def decisions(probabilities: Mapping[str, float], kind: str = "choice") -> Answer:
    values = {"true": True, "false": False}
    weighed = [{"value": values.get(option, option), "probability": share} for option, share in probabilities.items()]
    best = max(probabilities, key=lambda option: probabilities[option], default="")
    answer = {"type": kind, "name": None, "choice": best, "confidence": 0.5, "probabilities": weighed}
    return reply({"model": "gpt-6-luna", "answers": [answer], "usage": {"input_tokens": 100, "output_tokens": 1}})


def system_one(probabilities: Mapping[str, float]) -> Answer:
    answer = {"type": "choice", "choice": "", "confidence": 0.5, "probabilities": probabilities}
    return reply({"model": "nimble", "answers": {"choice": answer}, "usage": {"input_tokens": 100, "output_tokens": 1}})


def logprobs(probabilities: Mapping[str, float], content: str = "A", finish: str = "length") -> Answer:
    top = [
        {"token": token, "logprob": math.log(share) if share else -9999.0, "bytes": None}
        for token, share in probabilities.items()
    ]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": content},
        "finish_reason": finish,
        "logprobs": {"content": [{"token": content, "logprob": -0.1, "top_logprobs": top}]},
    }
    return reply({"choices": [choice], "usage": {"prompt_tokens": 100, "completion_tokens": 1}})


@asynccontextmanager
async def weighing(wire: Wire, weigh: Weigh) -> AsyncIterator[tuple[str, Server]]:
    async def answer(connection: Connection) -> None:
        number, body = len(server.received) - 1, server.received[-1].json
        if wire == "decisions":
            listed = [
                each["value"] if isinstance(each["value"], str) else json.dumps(each["value"])
                for each in body["questions"][0]["choices"]
            ]
        elif wire == "systemone":
            (asked,) = body["questions"].values()
            listed = list(asked["criteria"])
        else:
            lines = body["messages"][-1]["content"].splitlines()
            listed = [line[4:] for line in lines if line[1:4] == " = "]
        found = weigh(listed, number)
        if isinstance(found, Mapping):
            by_letter = {LETTERS[place]: found.get(option, 0.0) for place, option in enumerate(listed)}
            answers = {"decisions": decisions(found), "systemone": system_one(found), "logprobs": logprobs(by_letter)}
            found = answers[wire]
        await found(connection)

    async with serving(answer) as server:
        options = f"base_url={server.url},price_in=1,price_out=1"
        yield (
            f"openai:m@{options},ballots=logprobs"
            if wire == "logprobs"
            else f"openai-decisions:m@{options},wire={wire}",
            server,
        )


async def chosen(spec: str, **options: Any) -> Result:
    """The run of a problem with the candidates A and B, among which the model of the spec chooses."""
    script = {"solve/answer": [four("A"), four("B"), four("B")]}
    models = {"": scripted("script.jsonl", script), "discriminator": spec}
    return await run(Ask(text="How many?"), models=models, strategy=Recursive(k=2, depth=0), run_id="solved", **options)


def label_of(answer: str) -> str:
    return label(four(answer), four("A"), four("B")).choice


async def shown(run_id: str, path: str) -> InspectedDecision:
    def read() -> InspectedDecision:
        with Reader(Path(f"runs/{run_id}.sqlite")) as reader:
            return inspect_decision(reader, path)

    return await asyncio.to_thread(read)  # it builds the question again in a loop of its own


@pytest.mark.parametrize("wire", ["decisions", "systemone", "logprobs"])
async def test_two_opposite_orders_decide_by_their_mean_probability(wire: Wire) -> None:
    """The model prefers the option that it reads first, and A beyond that."""
    a, b = label_of("A"), label_of("B")

    def weigh(listed: list[str], number: int) -> Mapping[str, float]:  # noqa: ARG001
        return {a: 0.99, b: 0.01} if listed[0] == a else {a: 0.93, b: 0.07}

    async with weighing(wire, weigh) as (spec, server):
        result = await chosen(spec)
    assert result.value == {"answer": {"answer": "A"}, "correct": None, "argmax": []}
    assert rows()["solve/answer/vote"] == ("decided", {"choice": a})
    decision = await shown("solved", "0/solve/answer/vote")
    assert decision.probability == pytest.approx(0.96)
    assert sorted(each.shares[a] for each in decision.replies) == pytest.approx([0.93, 0.99])
    assert len(server.received) == 2
    # the candidates stand in opposite orders as well
    texts = [json.dumps([each.json.get(name) for name in ("input", "state", "messages")]) for each in server.received]
    assert {each.path for each in server.received} == {f"/{wire}" if wire != "logprobs" else "/chat/completions"}
    assert (texts[0].index(a) < texts[0].index(b)) != (texts[1].index(a) < texts[1].index(b))


async def test_what_was_weighed_counts_as_calls_and_never_as_votes() -> None:
    async with weighing("decisions", lambda *_: {label_of("A"): 1.0}) as (spec, _):
        result = await chosen(spec)
    assert (result.calls, result.account.valid, result.account.votes, result.account.outvoted) == (5, 5, 0, 0)
    with Reader(Path("runs/solved.sqlite")) as reader:
        assert reader.verify() == []


REFUSAL = reply({"answers": [{"type": "refusal", "name": None}], "usage": {}})
UNREADABLE = [
    reply({"answers": 7, "usage": {"input_tokens": -1}}),
    reply({"answers": [{"type": "choice", "probabilities": "all"}]}),
    reply({"answers": [{"type": "choice", "probabilities": [{"value": "A", "probability": 1e300}]}]}),
    decisions({"another": 1.0}),
]


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(("wire", "answer", "flag"), [
    ("decisions", REFUSAL, "refusal"),
    *[("decisions", each, "unweighed") for each in UNREADABLE],
    ("systemone", reply({"answers": {"choice": {"noul": 0.9}}}), "unweighed"),
    ("logprobs", logprobs({}, finish="content_filter"), "content_filter"),
    ("logprobs", logprobs({"Well": 0.9, "A": 0.1}), "unweighed"),
    ("logprobs", reply({"choices": [{"message": {"content": "A"}, "finish_reason": "length", "logprobs": {"content": "A"}}]}), "unweighed"),
])  # fmt: skip
async def test_an_order_whose_answer_is_flagged_is_weighed_again(wire: Wire, answer: Answer, flag: str) -> None:
    shares = {label_of("A"): 0.0, label_of("B"): 1.0}
    async with weighing(wire, lambda _, number: answer if number == 0 else shares) as (spec, server):
        result = await chosen(spec)
    assert result.value["answer"] == {"answer": "B"}
    assert result.account.flagged == {flag: 1}
    assert len(server.received) in (3, 4)  # the next sample has the order of seq 0
    decision = await shown("solved", "0/solve/answer/vote")
    assert len({each.seq % 2 for each in decision.replies if each.flag is None}) == 2


async def test_a_model_that_refuses_twice_ends_the_vote() -> None:
    async with weighing("decisions", lambda *_: REFUSAL) as (spec, server):
        result = await chosen(spec)
    assert (result.outcome, len(server.received), result.account.flagged) == ("refused", 2, {"refusal": 2})


async def test_a_resumed_run_asks_only_for_the_order_that_is_missing() -> None:
    """The probabilities of an open election are in the journal."""
    shares = {label_of("A"): 0.25, label_of("B"): 0.75}
    async with weighing("decisions", lambda _, number: shares if number == 0 else reply({}, status=401)) as (
        spec,
        server,
    ):
        with pytest.raises(Exception, match="401"):
            await chosen(spec, resend_stragglers=False)
        server.answers[:] = [decisions(shares)]
        result = await resume("solved")
        assert len(server.received) == 3
    assert result.value["answer"] == {"answer": "B"}
    assert (await shown("solved", "0/solve/answer/vote")).probability == pytest.approx(0.75)


class Even(Reply, frozen=True):
    even: bool


class Number(Struct, frozen=True):
    number: int


class Parity(ChainTask[Number, Even]):
    """Say of 3, 2 and 1 whether they are even."""

    def start(self) -> Number:
        return Number(3)

    def steps(self) -> int:
        return 3

    def done(self, state: Number) -> bool:
        return state.number == 0

    def prompt(self, state: Number) -> Prompt:
        return Prompt(system="Say whether a number is even.", user=str(state.number))

    def advance(self, state: Number, reply: Even) -> Number:  # noqa: ARG002
        return Number(state.number - 1)

    def oracle(self, state: Number) -> Even:
        return Even(even=state.number % 2 == 0)

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Even:  # noqa: ARG002
        return self.oracle(Number(int(prompt.user)))


class Long(Parity):
    """Say of 100, 99, ... 1 whether they are even."""

    def start(self) -> Number:
        return Number(100)

    def steps(self) -> int:
        return 100


class Odd(Parity):
    """Say of 3, 3 and 1 whether they are even."""

    def prompt(self, state: Number) -> Prompt:
        return super().prompt(Number(state.number | 1))

    def oracle(self, state: Number) -> Even:
        return super().oracle(Number(state.number | 1))


class Single(Maker):
    """One sample a step, and no vote."""

    @property
    def default_rule(self) -> Rule:
        return FirstValid(1)


async def even_numbers(share: float, **options: Any) -> Result:
    """The run of a chain whose model is sure of odd numbers, and of even ones with a probability."""

    async def answer(connection: Connection) -> None:
        number = int(server.received[-1].json["input"][1]["content"])
        shares = {"true": 0.01, "false": 0.99} if number % 2 else {"true": share, "false": 1 - share}
        await decisions(shares)(connection)

    async with serving(answer) as server:
        spec = f"openai-decisions:m@base_url={server.url}"
        return await run(Parity(), models=spec, run_id="even", **options)


@pytest.mark.slow
async def test_a_step_of_a_chain_is_decided_by_probability_too() -> None:
    result = await even_numbers(0.95)
    assert (result.outcome, result.account.errors, result.calls, result.account.votes) == ("completed", 0, 6, 0)
    assert [each.value for each in result.decisions()] == [{"even": False}, {"even": True}, {"even": False}]


async def test_a_step_below_the_bar_is_undecided() -> None:
    result = await even_numbers(0.7)
    assert (result.outcome, result.account.undecided_at) == ("undecided", ("0/step/1",))


async def test_an_undecided_step_goes_to_an_ordinary_vote_of_another_model() -> None:
    result = await even_numbers(0.7, on_undecided="sim:perfect")
    assert (result.outcome, result.account.settled_at) == ("completed", {"0/step/1/undecided": "sim:perfect"})
    assert (result.account.votes, result.account.errors) == (3, 0)
    decision = await shown("even", "0/step/1/undecided")
    assert (decision.outcome, decision.probability, len(decision.replies), decision.note) == ("decided", None, 3, None)


@pytest.mark.slow
@pytest.mark.usefixtures("few_simulated_steps")
def test_a_measurement_fits_the_threshold_on_one_half_and_holds_it_against_the_other() -> None:
    """The model is more sure of larger numbers, and wrong of those of which it is sure by less than .7."""

    async def answer(connection: Connection) -> None:
        number = int(servers[0].received[-1].json["input"][1]["content"])
        p, is_even = 0.55 + 0.004 * number, number % 2 == 0
        said = is_even == (p >= 0.7)
        await decisions({"true": p if said else 1 - p, "false": 1 - p if said else p})(connection)

    async def measured() -> tuple[str, Sequence[Threshold]]:
        async with serving(answer) as running:
            servers.append(running)
            spec = f"openai-decisions:m@base_url={running.url}"
            return spec, (await measure(Long(), spec, draws=2)).models[0].thresholds

    servers: list[Server] = []
    spec, found = asyncio.run(measured())
    ended = microagents(
        "measure", "tests.models.test_weighing:Long", "--model", spec, "--repeat", "2"
    )  # it has all samples
    assert ended.code == COMPLETED
    _, _, strict = found
    assert [each.target for each in found] == [0.05, 0.01, 0.001]
    assert strict.at_least is not None
    assert strict.decided is not None
    assert strict.wrong is not None
    assert 0.7 <= strict.at_least < 0.75
    assert 0.5 < strict.decided.share < 0.8
    assert strict.wrong.share == 0 < strict.wrong.high
    assert (found[0].at_least or 1) <= strict.at_least
    assert f"0.1%    {strict.at_least:.4f}" in ended.out
    run_id = ended.out.split("--from ")[1].split()[0]
    planned = microagents("plan", "tests.models.test_weighing:Long", "--from", run_id, "--target", "1e-40")
    assert (
        f"at_least={strict.at_least:.4f}: 2 calls a step decide {strict.decided.share:.1%} of steps, 0.0% of them wrong"
        in planned.out
    )
    refused = microagents("plan", "tests.models.test_weighing:Long", "--from", run_id, "--target", "0.9")
    assert "is above the ceiling" in refused.err
    assert f"or a person where the model is not sure: at_least={strict.at_least:.4f}: 2 calls a step" in refused.err


async def torn(call: Call) -> str:
    return write(Even(even=call.id.seq % 2 == 0))


async def test_a_judge_weighs_the_replies_so_far_and_is_given_no_reasons() -> None:
    right = labels_of([b'{"even":true}', b'{"even":false}'])[1]
    async with weighing("logprobs", lambda *_: {right: 0.95}) as (spec, server):
        result = await run(Odd(), models={"": torn, "judge": spec}, strategy=Maker(ladder="judge", p=0.99))
    assert (result.outcome, result.account.errors, result.account.climbed) == ("completed", 0, {"judge": 3})
    assert len(server.received) == 6


async def test_a_sample_without_a_vote_takes_one_call_and_is_the_likelier_value() -> None:
    result = await even_numbers(0.6, strategy=Single())
    assert (result.outcome, result.account.errors, result.calls) == ("completed", 0, 3)


def test_options_are_the_choices_or_the_values_of_the_one_field_that_is_voted_on() -> None:
    class Account(Reply, frozen=True):
        account: Literal["rent", "wages"]

    class Free(Reply, frozen=True):
        text: str

    both = options_of(Even, ())
    assert both is not None
    assert (list(both.values), both.text("true")) == (["true", "false"], '{"even":true}')
    rent = options_of(Account, ())
    assert rent is not None
    assert rent.text("rent") == '{"account":"rent"}'
    assert options_of(Free, ()) is None
    chosen = options_of(Choice, ("ABCD", "EFGH"))
    assert chosen is not None
    assert list(chosen.values) == ["ABCD", "EFGH"]


@pytest.mark.parametrize(("spec", "effort"), [("gpt-6-luna", "none"), ("gpt-4o", None), ("a-model", None)])
def test_log_probabilities_are_asked_for_without_reasoning(spec: str, effort: str | None) -> None:
    model = OpenAIModel(ModelSpec.parse(f"openai:{spec}@base_url=http://127.0.0.1:9,ballots=logprobs"))
    assert model._effort == effort


@pytest.mark.parametrize(("spec", "message"), [
    ("gpt-6.1-sol@ballots=logprobs", "openai:gpt-6.1-sol gives no log-probabilities while it reasons"),
    ("gpt-6-luna@ballots=logprobs,effort=low", "while it reasons; it does with effort=none"),
    ("gpt-6-luna@at_least=0.8", "weighs options only with ballots=logprobs"),
])  # fmt: skip
def test_a_model_that_cannot_tell_them_is_refused(spec: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k3y-Zebra-Quartz-77")
    with pytest.raises(InvalidUsage, match=message):
        OpenAIModel(ModelSpec.parse(f"openai:{spec}"))


def test_an_unknown_wire_is_refused() -> None:
    with pytest.raises(InvalidUsage, match="wire='x' is not decisions or systemone"):
        OpenAIDecisions(ModelSpec.parse("openai-decisions:m@base_url=http://127.0.0.1:9,wire=x"))


async def test_a_question_without_options_is_refused_before_a_call() -> None:
    with pytest.raises(
        InvalidUsage, match="weighs given options, and this question has none; give the model to a role that chooses"
    ):
        await chosen_everywhere("openai-decisions:m@base_url=http://127.0.0.1:9")


async def chosen_everywhere(spec: str) -> Result:
    return await run(Ask(text="How many?"), models=spec, strategy="recursive")


@pytest.mark.parametrize(("pool", "message"), [
    (("openai:a@ballots=logprobs", "openai:b"), "the models of one pool must all vote, or weigh"),
    (("openai:a@ballots=logprobs,at_least=0.8", "openai:b@ballots=logprobs"), "from the same at_least"),
    (("openai-decisions:a@at_least=0.5",), "at_least of 'openai-decisions:a@at_least=0.5' must be above 0.5 and at most 1, not '0.5'"),
    (("openai-decisions:a@at_least=high",), "must be above 0.5 and at most 1, not 'high'"),
])  # fmt: skip
def test_a_pool_that_cannot_decide_is_refused(pool: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidUsage, match=message):
        at_least(pool)
