"""What a model takes: from the table by its exact name, and from what it refuses."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from microagents import InvalidUsage, ModelUnavailable, Reply, RowTask, resume, run
from microagents.actors.role import Context
from microagents.models.capabilities import TABLE, has_ended
from microagents.models.json_schema import strict_schema
from microagents.models.model import ModelSpec, open_model
from microagents.runs.words.summary import summary
from microagents.systems import Maker
from microagents.tasks.drift import Drift
from tests.models import server as scripted
from tests.models.server import Answer, serving
from tests.models.wires import ANTHROPIC, KEY, OPENAI, RESPONSES, Provider, a_call, asking

THINKING = {OPENAI: "gpt-6-luna", RESPONSES: "gpt-6-luna", ANTHROPIC: "claude-haiku-5-5"}
"""A model that thinks by itself, on each wire."""


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, KEY)


async def sent_by(provider: Provider, name: str, **options: str) -> dict[str, Any]:
    """The optional parameters of a request to a model of this name."""
    async with asking(provider, scripted.reply(provider.good()), name=name, **options) as (model, server):
        await model.complete(a_call())
    body: dict[str, Any] = server.received[0].json
    return {
        name: value
        for name, value in body.items()
        if name not in ("model", "messages", "input", "instructions", "system")
    }


def effort_in(provider: Provider, sent: dict[str, Any]) -> object:
    found: Any = sent
    for name in provider.effort_name.split("."):
        found = found.get(name, {})
    return found or None


# -- the table ---------------------------------------------------------------------------------------------------------


def test_the_table_agrees_with_itself() -> None:
    for table in TABLE.values():
        for name, found in table.items():
            assert (found.shutdown is None) == (found.successor == ""), name
            assert not found.successor or not has_ended(table[found.successor], date(2027, 4, 1)), name
            assert found.default_effort is None or found.default_effort in (found.efforts or ()), name


# -- efforts, thinking, tiers and schemas ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wire", "name", "options", "effort", "temperature"),
    [
        *[(wire, name, {}, "low", None) for wire, name in THINKING.items()],
        *[(wire, "gpt-6-luna", {"effort": "none"}, "none", 0.1) for wire in (OPENAI, RESPONSES)],
        (OPENAI, "gpt-4.1", {}, None, 0.1),
        (RESPONSES, "m-1", {}, None, 0.1),
        (ANTHROPIC, "claude-haiku-4-5", {}, None, 0.1),
    ],
)
async def test_a_model_that_thinks_is_asked_for_little_and_gets_a_temperature_only_without_it(
    wire: Provider, name: str, options: dict[str, str], effort: str | None, temperature: float | None
) -> None:
    sent = await sent_by(wire, name, **options)
    assert (effort_in(wire, sent), sent.get("temperature")) == (effort, temperature)


@pytest.mark.parametrize(("served", "cost_usd"), [("flex", 0.00015), ("default", 0.0003), (None, 0.00015)])
async def test_a_call_costs_the_tier_that_served_it(provider: Provider, served: object, cost_usd: float) -> None:
    body = provider.good(usage={provider.input_tokens: 100, provider.output_tokens: 100})
    (body["usage"] if provider is ANTHROPIC else body)["service_tier"] = served
    async with asking(provider, scripted.reply(body), service_tier="flex", price_in="1", price_out="2") as (model, _):
        assert (await model.complete(a_call())).usage.cost_usd == pytest.approx(cost_usd)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("adaptive", {"type": "adaptive"}),
        ("disabled", {"type": "disabled"}),
        ("2000", {"type": "enabled", "budget_tokens": 2000}),
    ],
)
async def test_thinking_is_an_option_of_anthropic(given: str, sent: dict[str, Any]) -> None:
    found = await sent_by(ANTHROPIC, "claude-haiku-4-5", thinking=given)
    assert found["thinking"] == sent
    assert ("temperature" in found) == (given == "disabled"), "a model that thinks takes none"


@pytest.mark.parametrize(
    ("provider", "name", "options", "said"),
    [
        (
            OPENAI,
            "gpt-6.1-sol",
            {"effort": "none"},
            "gpt-6.1-sol takes effort=low, medium, high, xhigh or max, not 'none'",
        ),
        (OPENAI, "gpt-4.1", {"effort": "low"}, "gpt-4.1 has no effort, not 'low'"),
        (
            ANTHROPIC,
            "m",
            {"thinking": "much"},
            "thinking must be adaptive, disabled or a budget of at least 1024 tokens, not 'much'",
        ),
        (OPENAI, "m", {"thinking": "adaptive"}, "no option of openai called 'thinking'"),
        (OPENAI, "m", {"json_schema": "yes"}, "json_schema='yes' is neither true nor false"),
    ],
)
def test_what_a_model_cannot_take_is_said_before_the_first_call(
    provider: Provider, name: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidUsage) as caught:
        provider.open("http://localhost:1", name, **options)
    assert said in str(caught.value)


class Found(Reply, frozen=True):
    number: int
    title: str = ""
    pairs: tuple[tuple[int, str], ...] = ()


async def test_a_schema_is_sent_where_the_spec_asks_for_it(provider: Provider) -> None:
    call = msgspec.structs.replace(a_call(), reply=Found)
    async with asking(provider, scripted.reply(provider.good()), json_schema="true") as (model, server):
        await model.complete(call)
    sent = server.received[0].json
    found = {
        "openai": ("response_format", "json_schema"),
        "openai-responses": ("text", "format"),
        "anthropic": ("output_config", "format"),
    }
    outer, inner = found[provider.name]
    assert sent[outer][inner]["schema"] == strict_schema(Found, has_bounds=provider is not ANTHROPIC)
    assert provider is ANTHROPIC or sent[outer][inner]["name"] == "Found"


def test_a_schema_is_closed_and_requires_all_fields() -> None:
    schema = strict_schema(Found)
    assert (schema["type"], schema["additionalProperties"]) == ("object", False)
    assert schema["required"] == ["number", "title", "pairs"] == list(schema["properties"])
    assert "default" not in msgspec.json.encode(schema).decode()


def test_a_schema_leaves_out_what_a_provider_refuses() -> None:
    class Held(Reply, frozen=True):
        score: Annotated[int, msgspec.Meta(ge=1, le=5)]
        move: tuple[int, int, int]
        mixed: tuple[int, str]

    fields = strict_schema(Held)["properties"]
    assert fields["score"] == {"type": "integer", "minimum": 1, "maximum": 5}
    assert fields["move"] == {"type": "array", "minItems": 3, "maxItems": 3, "items": {"type": "integer"}}
    assert fields["mixed"]["items"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    unbounded = strict_schema(Held, has_bounds=False)["properties"]
    assert (unbounded["score"], unbounded["move"]) == (
        {"type": "integer"},
        {"type": "array", "items": {"type": "integer"}},
    )


class Comment(Reply, frozen=True):
    text: str
    answers: tuple[Comment, ...] = ()


class Commented(RowTask[Comment]):
    format = "json"


def test_a_schema_of_a_type_that_contains_itself_is_refused_where_the_provider_takes_none() -> None:
    context = Context(run_id="r", seed=0, tasks=[Commented(row={"text": "a"})], strategy=Maker())
    open_model("openai:m@base_url=http://localhost:1/v1,json_schema=true", context)
    with pytest.raises(InvalidUsage, match="Comment has a type that contains itself, which Anthropic takes in no"):
        open_model("anthropic:m@base_url=http://localhost:1,json_schema=true", context)


def test_a_schema_is_refused_for_a_task_that_asks_for_lines() -> None:
    context = Context(run_id="r", seed=0, tasks=[Drift()], strategy=Maker())
    with pytest.raises(InvalidUsage, match="Drift asks for lines; give --format json"):
        open_model("openai:m@base_url=http://localhost:1/v1,json_schema=true", context)


async def test_the_responses_api_is_never_asked_for_less_than_it_allows() -> None:
    async with asking(RESPONSES, scripted.reply(RESPONSES.good())) as (model, server):
        await model.complete(msgspec.structs.replace(a_call(), max_output_tokens=3))
    assert server.received[0].json["max_output_tokens"] == 16


# -- models that have ended, and prompts that do not fit ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("openai:o3-mini", "openai:o3-mini was shut down on 2026-10-23; today's nearest is openai:gpt-6-luna"),
        ("anthropic:claude-3-5-haiku-latest", "today's nearest is anthropic:claude-haiku-5-5"),
    ],
)
async def test_a_model_that_is_shut_down_is_refused_with_its_date_and_the_nearest(spec: str, said: str) -> None:
    with pytest.raises(InvalidUsage) as caught:
        await run(Drift(length=1), models=spec, runs_dir=None)
    assert said in str(caught.value)


async def test_a_model_that_its_provider_does_not_know_is_told_with_the_nearest(provider: Provider) -> None:
    unknown = scripted.reply({"error": {"type": "not_found_error", "message": "no such model"}}, 404)
    async with serving(unknown) as server:
        official = type("Official", (provider.model,), {"url": server.url})
        model = official(ModelSpec(provider=provider.name, name=f"{THINKING[provider]}-pro"))
        with pytest.raises(ModelUnavailable) as caught:
            await model.complete(a_call())
        await model.close()
    assert (
        f"there is no model '{THINKING[provider]}-pro'; today's nearest is {provider.name}:{THINKING[provider]}"
        in str(caught.value)
    )


async def test_a_prompt_that_cannot_fit_is_refused_and_not_sent(provider: Provider) -> None:
    name = "claude-haiku-4-5" if provider is ANTHROPIC else "o3"
    async with asking(provider, scripted.reply(provider.good()), name=name) as (model, server):
        with pytest.raises(
            ModelUnavailable,
            match=f"at least 199,991 tokens and --max-output-tokens 64 exceed the 200,000 tokens of .*{name}",
        ):
            await model.complete(a_call(user="word " * 239_988))
    assert server.received == []


# -- what refusals teach -----------------------------------------------------------------------------------------------


def refusing(provider: Provider, name: str, message: str = "") -> Answer:
    told = message or f"Unsupported parameter: '{name}' is not supported with this model."
    error = {"message": told, "type": "invalid_request_error", "param": name, "code": "unsupported_parameter"}
    return scripted.reply(
        {"type": "error", "error": error if provider is not ANTHROPIC else {"type": error["type"], "message": told}},
        400,
    )


@pytest.mark.parametrize(
    "message",
    [
        "Unsupported value: 'none' is not supported with the 'm-1' model. Supported values are: 'low', 'medium', and 'high'.",
        "output_config.effort: Input should be 'low', 'medium' or 'high'",
    ],
)
async def test_an_effort_of_the_users_is_not_left_out_but_explained(provider: Provider, message: str) -> None:
    told = message if provider is not ANTHROPIC else f"{provider.effort_name}: {message}"
    async with asking(provider, refusing(provider, provider.effort_name, told), effort="none") as (model, server):
        with pytest.raises(ModelUnavailable) as caught:
            await model.complete(a_call())
    assert caught.value.args[:2] == ("refused", f"{provider.name}:m-1 takes effort=low, medium or high, not 'none'")
    assert len(server.received) == 1


@pytest.mark.parametrize("provider", [OPENAI], ids=["openai"])  # what all share
async def test_a_resumed_run_does_not_learn_again_and_the_summary_says_it(provider: Provider, tmp_path: Path) -> None:
    def told(connection: scripted.Connection) -> Any:
        request = server.received[-1].json
        if "temperature" in request:
            return refusing(provider, "temperature")(connection)
        number = int(request["messages"][-1]["content"].removeprefix("Number: "))
        return scripted.reply(provider.good(f"number = {(number * 17 + 5) % 1009}"))(connection)

    async with serving(told) as server:
        spec = f"{provider.name}:m@base_url={server.url}"
        options: dict[str, Any] = {"k": 1, "runs_dir": tmp_path, "resend_stragglers": False}
        begun = await run(Drift(length=6), models=spec, max_calls=3, **options)
        with_temperature = ["temperature" in each.json for each in server.received]
        resumed = await resume(begun.run_id, runs_dir=tmp_path, max_calls=100)
        later = ["temperature" in each.json for each in server.received[len(with_temperature) :]]
    assert (begun.outcome, resumed.outcome) == ("stopped", "completed")
    assert with_temperature[0]
    assert later
    assert not any(later)
    assert resumed.as_json()["refused"] == {spec: {"temperature": None}}
    said = f"{provider.name}:m takes no temperature: samples differ by the model's own sampling, and the first is not drawn at 0"
    assert said in summary(resumed)


# -- specs -------------------------------------------------------------------------------------------------------------
