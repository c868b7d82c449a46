"""Google's models: `gemini:NAME`, through a double that keeps the rules of Google's address for OpenAI's clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from microagents import InvalidUsage, run
from microagents.actors.role import Context, Strategy
from microagents.models.http.provider import HttpModel
from microagents.models.http.usage import Meter
from microagents.models.model import ModelSpec, open_model
from microagents.models.prices import flat_tariff
from microagents.runs.doctor import examine
from tests.cli.commands import microagents
from tests.doubles import dialects
from tests.doubles.dialects import CHAT_STREAMS, Said
from tests.doubles.strict_wires import strict_wires
from tests.models.wires import a_call
from tests.systems.agents.shop import Ticket, done

from .test_native_calls import SAID, asked, next_call, saying

FLASH = "gemini:gemini-3.8-flash"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "none")
    monkeypatch.delenv("GEMINI_BASE_URL", raising=False)


def opened(spec: str) -> HttpModel:
    model = open_model(spec, Context(run_id="r", seed=0, tasks=[], strategy=Strategy()))
    assert isinstance(model, HttpModel)
    return model


@pytest.mark.parametrize("dialect", ["plain", *CHAT_STREAMS])
async def test_calls_come_in_any_form_of_googles_and_nothing_is_refused(dialect: str) -> None:
    said = SAID["one tool twice"]
    async with strict_wires(saying(said)) as server:
        model = opened(server.spec("chat", "gemini", dialect))
        sample = await model.complete(asked())
        await model.close()
    assert server.refused == []
    assert sample.turn is not None
    assert [each.arguments for each in sample.turn.calls] == [each.arguments for each in said.calls]
    assert "thought_signature" in sample.turn.items


async def test_an_agents_thought_signatures_go_back_with_its_calls() -> None:
    async with strict_wires(next_call) as server:
        spec = server.spec("chat", "gemini", "streamed without index")
        result = await run(Ticket(), models=spec, runs_dir=None)
    assert (result.outcome, server.refused) == ("completed", [])
    assert [each["what"] for each in done()] == ["label", "refund", "mail"]
    assert "thought_signature" in str(server.bodies[-1]["messages"])


async def test_thoughts_are_paid_as_output_although_only_the_total_has_them() -> None:
    async with strict_wires(saying(Said(text="x = 1"))) as server:
        model = opened(f"{server.spec('chat', 'gemini')},price_in=1,price_out=10")
        usage = (await model.complete(a_call())).usage
        await model.close()
    written = 10 + dialects.GOOGLES_THOUGHTS
    assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens) == (50, written, dialects.GOOGLES_THOUGHTS)
    assert usage.cost_usd == pytest.approx((50 + 10 * written) / 1e6)


def test_thoughts_that_only_the_total_has_are_paid_at_any_server() -> None:
    """As at xAI, which tells more tokens of reasoning than of output."""
    stated = {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 90}
    details = {"completion_tokens_details": {"reasoning_tokens": 30}}
    usage = Meter(flat_tariff(1, 10)).usage({"usage": {**stated, **details}})
    assert (usage.output_tokens, usage.reasoning_tokens, usage.flaw) == (40, 30, "")
    assert usage.cost_usd == pytest.approx((50 + 10 * 40) / 1e6)


@pytest.mark.parametrize("total", [None, "60", 40, True])
def test_a_total_that_cannot_be_one_adds_nothing(total: object) -> None:
    reply: dict[str, Any] = {"usage": {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": total}}
    usage = Meter(flat_tariff(1, 10)).usage(reply)
    assert (usage.output_tokens, usage.reasoning_tokens) == (10, 0)


async def test_setup_asks_google_for_limits_and_ends() -> None:
    async with strict_wires(next_call) as server:
        base = server.base_url("chat", "gemini")
        names = ("gemini-3.8-flash", "gemini-3.1-pro-preview", "gemini-4-argon", "gemini-9")
        said = []
        for name in names:
            findings = await examine([f"gemini:{name}@base_url={base}"], Path("runs"))
            said += [f"{each.state}: {each.said}" for each in findings if each.subject.endswith(" model")]
    assert said[0].startswith("ok: is served; reads 1,048,576 tokens; it will be shut down on 2099-01-02")
    assert said[1].startswith("missing: is retired, its provider says")
    assert said[2] == "ok: is served; reads 1,048,576 tokens"
    assert "is not among the 3 models" in said[3]


def test_a_name_without_its_provider_is_told_with_it() -> None:
    ended = microagents("run", "hanoi", "--model", "gemini-3.8-flash")
    assert "did you mean gemini:gemini-3.8-flash?" in ended.err
    with pytest.raises(InvalidUsage, match=r"shut down on 2026-06-01; today's nearest is gemini:gemini-3\.8-flash"):
        opened("gemini:gemini-2.0-flash")
    assert opened(FLASH).priced


@pytest.mark.parametrize("options", ["effort=max", "ballots=logprobs"])
def test_an_option_that_its_models_lack_is_refused(options: str) -> None:
    with pytest.raises(InvalidUsage, match="gemini"):
        opened(f"{FLASH}@{options}")


def test_a_spec_has_its_parts() -> None:
    assert ModelSpec.parse(FLASH) == ModelSpec(provider="gemini", name="gemini-3.8-flash")
