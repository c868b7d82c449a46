"""The probability of a whole reply, from the log-probabilities that servers list: what is taken, and what leaves a doubt."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from msgspec import structs

from microagents import Sample
from microagents.base.errors import InvalidUsage
from microagents.models.model import Call
from microagents.models.token_masses import Token, mass_of, tokens_in
from microagents.replies.masses import Mass, digest_of_text
from tests.models import server as scripted
from tests.models.server import Answer
from tests.models.wires import OPENAI, RESPONSES, Provider, a_call, asking


def listed(*tokens: tuple[str | bytes, float], key: str = "logprob", top: bool = True) -> list[dict[str, Any]]:
    """Tokens as servers list them, each with one other that has half of what is left."""
    found = []
    for text, log in tokens:
        raw = text if isinstance(text, bytes) else text.encode()
        one = {"token": raw.decode("utf-8", "ignore"), "bytes": list(raw), key: log}
        other = {"token": "~", "bytes": [126], key: math.log(max(1e-9, (1 - math.exp(log)) / 2))}
        found.append({**one, f"top_{key}s": [one, other]} if top else one)
    return found


def read(tokens: list[dict[str, Any]] | dict[str, Any], text: str = "x = 1", *, is_closed: bool = False) -> Mass | None:
    return mass_of(tokens_in(tokens), text, law="model", is_closed=is_closed)


X, END = [("x", -0.1), (" =", -0.2), (" 1", -0.4)], ("", -0.3)
NAMED = ("<|im_end|>", -0.3)


@pytest.mark.parametrize("end", [END, NAMED, ("</s>", -0.3)])
def test_the_mass_is_that_of_all_tokens_and_of_the_end(end: tuple[str, float]) -> None:
    mass = read({"content": listed(*X, end)})
    assert mass is not None
    assert mass.log == pytest.approx(-1.0)
    assert (mass.law, mass.text) == ("model", digest_of_text("x = 1"))
    # The best alternative after the prefix: at " 1" it has (1 - e^-.4) / 2 behind e^-.3.
    assert mass.branch == pytest.approx(-0.3 + math.log((1 - math.exp(-0.4)) / 2))
    plain = read(listed(*X, end, top=False))
    assert plain == structs.replace(mass, branch=None)
    # Another list of tokens of the same text, with other numbers: one text.
    again = read(listed(("x =", -0.7), (" 1", -0.6), end))
    assert again is not None
    assert again.text == mass.text
    assert again.log == pytest.approx(-1.6)
    other = read(listed(*X[:2], (" 2", -0.4), end), "x = 2")
    assert other is not None
    assert other.text != mass.text


WITHOUT = {
    "no list": [],
    "no end": listed(*X),
    "a stop string is cut off": listed(*X[:2], (" 1\n", -0.4)),
    "a hidden thought": listed(("<think>", -0.1), ("x", -0.1), ("</think>", -0.1), *X, END),
    "a hidden token without a text": listed(X[0], ("", -0.1), *X[1:], END),
    "a part of a character without its bytes": [{"token": "", "logprob": -0.1}, *listed(*X, END)],
    "after sampling": listed(*X, END, key="prob"),
    "a number that is none": [*listed(*X), {"token": "", "bytes": [], "logprob": "-0.1"}],
    "a positive number": listed(*X, ("", 0.1), top=False),
    "a constant": listed(*[(text, -0.5) for text, _ in (*X, END)], top=False),
    "more than 1 at a place": [{**each, "top_logprobs": [each, each, each]} for each in listed(*X, END, top=False)],
    "bytes that are none": [*listed(*X), {"token": "", "bytes": [300], "logprob": -0.1}],
    "nested too deep": {"content": "[" * 10},
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT)
def test_a_list_that_leaves_a_doubt_gives_no_mass(name: str) -> None:
    given: Any = WITHOUT[name]
    assert read(given) is None


@pytest.mark.parametrize("log", [math.nan, -math.inf, 1e-3])
def test_a_number_that_is_no_log_probability_gives_no_mass(log: float) -> None:
    for top in (None, [Token(token="x", logprob=log)]):
        first = Token(token="x = 1", logprob=log if top is None else -0.1, top_logprobs=top)
        found = mass_of([first, Token(logprob=-0.2)], "x = 1", law="draw")
        assert found is None or -1 > log != first.logprob


def texts_of(seed: int) -> Iterator[tuple[str, list[Token], float]]:
    """All texts of a law over words of a and b that end after four letters, each with its list and its probability."""
    random = Random(seed)

    def grow(text: str, before: list[Token], mass: float) -> Iterator[tuple[str, list[Token], float]]:
        weights = [random.random() ** 3 for _ in range(3)] if len(text) < 4 else [0.0, 0.0, 1.0]
        logs = [math.log(each / sum(weights)) if each else -9999.0 for each in weights]
        nexts = [Token(token=each, logprob=log) for each, log in zip(("a", "b", ""), logs, strict=True)]
        ranked = sorted(nexts, key=lambda each: -(each.logprob or 0.0))
        for each, log in zip(nexts, logs, strict=True):
            tokens = [*before, structs.replace(each, top_logprobs=ranked[:2])]
            if not each.token:
                yield text, tokens, mass * math.exp(log)
            elif log > -9999.0:
                yield from grow(text + each.token, tokens, mass * math.exp(log))

    return grow("", [], 1.0)


@pytest.mark.parametrize("seed", range(2))
def test_masses_and_branches_agree_with_enumeration(seed: int) -> None:
    texts = list(texts_of(seed))
    assert math.fsum(mass for _, _, mass in texts) == pytest.approx(1.0)
    for text, tokens, mass in texts:
        found = mass_of(tokens, text, law="draw")
        assert found is not None
        assert math.exp(found.log) == pytest.approx(mass)
        assert found.branch is not None
        others = [other for another, _, other in texts if another != text]
        assert math.exp(found.branch) >= max(others) - 1e-12
    assert len({getattr(mass_of(tokens, text, law="draw"), "text", b"") for text, tokens, _ in texts}) == len(texts)


# -- the wires ---------------------------------------------------------------------------------------------------------

JSON = [('{"', -0.1), ('x":', -0.2), ("1}", -0.4)]


def answer(provider: Provider, text: str, tokens: list[dict[str, Any]], **more: Any) -> Answer:
    body = provider.good(text, usage={provider.input_tokens: 11, provider.output_tokens: len(tokens), **more})
    if provider is RESPONSES:
        body["output"][0]["content"][0]["logprobs"] = tokens
    else:
        body["choices"][0]["logprobs"] = {"content": tokens}
    return scripted.reply(body)


def wanting(temperature: float | None = 1.0) -> Call:
    return structs.replace(a_call(temperature=temperature), needs_mass=True)


ASKED: dict[str, Any] = {"logprobs": True, "top_logprobs": 2}
OFF = {"top_k": 0, "top_p": 1, "min_p": 0}
INCLUDED: dict[str, Any] = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
TEXT, CLOSED = ("x = 1", listed(*X, END)), ('{"x":1}', listed(*JSON))


@pytest.mark.parametrize(("provider", "spec", "temperature", "given", "expected"), [
    (OPENAI, {}, 1.0, TEXT, ({**ASKED, **OFF}, "draw")),
    (OPENAI, {}, 0.0, TEXT, (ASKED, "model")),
    (OPENAI, {}, 1.1, TEXT, ({}, None)),
    (OPENAI, {"logprobs": "processed"}, 0.7, TEXT, (ASKED, "draw")),
    (OPENAI, {"logprobs": "processed"}, 0.0, TEXT, ({}, None)),
    (OPENAI, {"logprobs": "off"}, 1.0, TEXT, ({}, None)),
    (OPENAI, {"json_schema": "true"}, 1.0, ('{"x":1}', listed(*JSON, END)), (ASKED, "model")),
    (OPENAI, {"json_schema": "true"}, 1.0, CLOSED, (ASKED, None)),  # an unknown server may let space follow
    (OPENAI, {"name": "gpt-4.1-mini", "json_schema": "true"}, 0.1, CLOSED, (ASKED, "model")),
    (OPENAI, {"name": "gpt-6-luna", "json_schema": "true"}, 0.1, CLOSED, ({}, None)),  # it thinks
    (OPENAI, {"name": "gpt-6-luna", "json_schema": "true", "effort": "none"}, 0.1, CLOSED, (ASKED, "model")),
    (RESPONSES, {"name": "gpt-4.1-mini", "json_schema": "true"}, 0.1, CLOSED, (INCLUDED, "model")),
    (RESPONSES, {}, 1.0, ("x = 1", []), ({**INCLUDED, **OFF}, None)),  # llama.cpp
])  # fmt: skip
async def test_a_call_that_needs_a_mass_asks_for_it_where_the_model_can_give_it(
    provider: Provider, spec: dict[str, str], temperature: float | None, given: Any, expected: tuple[Any, str | None]
) -> None:
    asked, law = expected
    async with asking(provider, answer(provider, *given), **spec) as (model, server):
        sample = await model.complete(wanting(temperature))
        plain = await model.complete(structs.replace(wanting(temperature), needs_mass=False))
    assert (sample.mass.law if sample.mass else None) == law
    assert sample.mass is None or sample.mass.log == pytest.approx(-0.7 if given is CLOSED else -1.0)
    first, second = (request.json for request in server.received)
    told = {*ASKED, *OFF, *INCLUDED}
    assert {name: value for name, value in first.items() if name in told} == asked
    assert not told & set(second)
    assert plain.mass is None


async def sample_of(*answers: Answer, call: Call | None = None) -> Sample:
    async with asking(OPENAI, *answers) as (model, _):
        return await model.complete(call or wanting())


def choice(**more: Any) -> Answer:
    body = OPENAI.good(
        "x = 1", more.pop("finish", None), {"prompt_tokens": 9, "completion_tokens": 4, **more.pop("usage", {})}
    )
    body["choices"][0] |= {"logprobs": {"content": listed(*X, END)}, **more.pop("choice", {})}
    body["choices"][0]["message"] |= more
    return scripted.reply(body)


@pytest.mark.parametrize(("name", "given"), [
    ("cut off", choice(finish="length")),
    ("a refusal", choice(refusal="no")),
    ("hidden reasoning", choice(usage={"completion_tokens_details": {"reasoning_tokens": 3}})),
    ("more tokens than are listed", choice(usage={"completion_tokens": 9})),
])  # fmt: skip
async def test_a_reply_that_is_not_all_there_is_has_no_mass(name: str, given: Answer) -> None:
    assert (await sample_of(choice())).mass is not None
    assert (await sample_of(given)).mass is None, name


async def test_a_refused_parameter_costs_the_mass_or_its_exactness_and_no_call() -> None:
    """A sampler that is refused for its value leaves a bound, as SGLang does; log-probabilities that are refused leave nothing."""
    value = scripted.reply({"error": {"message": "top_k must be -1 (disable), or at least 1, got 0."}}, 400)
    none = scripted.reply({"error": {"message": "Requested sample logprobs of 2, at most 0 are allowed"}}, 400)
    async with asking(OPENAI, value, choice(), none, choice()) as (model, server):
        laws = [sample.mass and sample.mass.law for sample in [await model.complete(wanting()) for _ in range(2)]]
    assert laws == ["model", None]
    assert [set(request.json) & {*ASKED, *OFF} for request in server.received] == [
        {*ASKED, *OFF}, {*ASKED}, {*ASKED}, set(),
    ]  # fmt: skip
    assert model.refused == {"top_k": None, "logprobs": None}


async def test_at_an_unknown_temperature_there_is_no_mass() -> None:
    refusal = scripted.reply({"error": {"message": "Unsupported parameter: temperature", "param": "temperature"}}, 400)
    assert (await sample_of(refusal, choice())).mass is None


def test_another_kind_of_log_probabilities_is_refused() -> None:
    with pytest.raises(InvalidUsage, match="logprobs='true' is not raw, processed or off"):
        OPENAI.open("http://127.0.0.1:9", logprobs="true")
