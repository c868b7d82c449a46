"""Models behind a user's own client of an SDK, against a hostile server: within the same bounds as a spec's."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from structlog.testing import capture_logs

from microagents import InvalidUsage, Model, ModelUnavailable, client_model, run
from microagents.tasks.drift import Drift
from tests.models import server as scripted
from tests.models.server import Answer, Server, serving
from tests.models.wires import KEY, OPENAI, Provider, a_call

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROBUST_S, TINY_S = "10", "0.3"
"""Timeouts that are not meant to pass, and one that is."""


def client_of(provider: Provider, url: str) -> Any:
    return (
        AsyncAnthropic(api_key=KEY, base_url=url)
        if provider.name == "anthropic"
        else AsyncOpenAI(api_key=KEY, base_url=url)
    )


@asynccontextmanager
async def asking(provider: Provider, *answers: Answer, **options: str) -> AsyncIterator[tuple[Model, Server]]:
    async with serving(*answers) as server, client_of(provider, server.url) as client:
        given: Any = {"timeout_s": ROBUST_S, **options}
        model = client_model(client, "m-1", responses=provider.name == "openai-responses", **given)
        try:
            yield model, server
        finally:
            await model.close()


async def failure_of(provider: Provider, *answers: Answer, **options: str) -> ModelUnavailable:
    async with asking(provider, *answers, **options) as (model, _):
        with pytest.raises(ModelUnavailable) as caught:
            await model.complete(a_call())
    assert KEY not in repr((caught.value, caught.value.__context__, caught.value.__cause__))
    return caught.value


async def test_a_call_has_the_clients_address_and_key_and_our_body(provider: Provider) -> None:
    async with asking(provider, scripted.reply(provider.good("x = 1"))) as (model, server):
        sample = await model.complete(a_call())
        await model.close()
        await model.complete(a_call())  # the client is still open
    assert (sample.text, sample.usage.input_tokens, sample.model) == ("x = 1", 11, f"{provider.name}:m-1")
    request = server.received[0]
    assert (request.path, request.json["model"]) == (provider.path, "m-1")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["idempotency-key"].startswith("/0/step/66/0/0/0/")


@pytest.mark.parametrize("provider", [OPENAI], ids=["openai"])  # what all share
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (scripted.reply({}, 429, {"retry-after": "3"}), "busy"),
        (scripted.reply({}, 500), "server"),
        (scripted.reply({}, 401), "refused"),
        (scripted.reply(b"", 302, {"location": "http://localhost:1/"}), "refused"),
        (scripted.reply(b"<html>"), "garbled"),
        (scripted.reply(b"this is not gzip", headers={"content-encoding": "gzip"}), "garbled"),
        (scripted.reset(), "broken"),
        (scripted.raw(b""), "broken"),
        (scripted.raw(b"SSH-2.0-OpenSSH_9.6\r\n"), "broken"),
    ],
)
async def test_a_failure_is_named_and_its_request_not_repeated(provider: Provider, answer: Answer, kind: str) -> None:
    async with asking(provider, answer) as (model, server):
        with pytest.raises(ModelUnavailable) as caught:
            await model.complete(a_call())
    assert caught.value.kind == kind
    assert caught.value.retry_after_s == (3 if kind == "busy" else None)
    assert len(server.received) == 1


@pytest.mark.slow
@pytest.mark.parametrize("provider", [OPENAI], ids=["openai"])  # what all share
@pytest.mark.parametrize("answer", [scripted.silent, scripted.dripped_headers, scripted.dripped_body])
async def test_a_call_ends_by_our_clock_and_lets_go(provider: Provider, answer: Any) -> None:
    async with asking(provider, answer(), timeout_s=TINY_S) as (model, server):
        with pytest.raises(ModelUnavailable) as caught:
            await model.complete(a_call())
        await server.gone.wait()
    assert caught.value.kind == "timeout"


@pytest.mark.parametrize("provider", [OPENAI], ids=["openai"])  # what all share
@pytest.mark.parametrize("status", [200, 400])
async def test_a_body_of_100_mb_is_not_read_to_its_end(provider: Provider, status: int) -> None:
    async with asking(provider, scripted.endless_body(lambda: server, status)) as (model, server):
        with pytest.raises(ModelUnavailable):
            await model.complete(a_call())
        await server.gone.wait()
    assert server.sent_bytes < 32 * 2**20


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("status", [200, 401])
async def test_a_key_is_in_no_error_and_no_log(
    provider: Provider, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    headers = dict.fromkeys(("x-request-id", "request-id", "retry-after"), KEY)
    answer = scripted.reply({"error": {"message": f"{KEY} is wrong", "type": KEY}}, status, headers)
    with capture_logs() as logs:
        await failure_of(provider, answer)
    # Below the SDKs, the HTTP client may log what it reads.
    records = [
        record for record in caplog.records if record.name.partition(".")[0] in ("openai", "anthropic", "microagents")
    ]
    assert records
    assert KEY not in " ".join(logging.Formatter().format(record) for record in records)
    assert KEY not in repr(logs)


def test_what_is_no_client_is_refused() -> None:
    given: Any = object()
    with pytest.raises(InvalidUsage, match=r"is not a known client: give an openai\.AsyncOpenAI"):
        client_model(given, "m")


async def test_an_empty_name_is_refused() -> None:
    async with AsyncOpenAI(api_key=KEY) as client:
        with pytest.raises(InvalidUsage, match="the name of the model is empty"):
            client_model(client, "")


async def test_a_limit_of_cost_without_a_price_says_how_python_gives_one() -> None:
    async with AsyncOpenAI(api_key=KEY, base_url="http://127.0.0.1:1") as client:
        with pytest.raises(
            InvalidUsage,
            match=r"max_cost_usd=1 cannot be kept; give .* client_model\(\.\.\., price_in='1', price_out='6'\)",
        ):
            await run(Drift(length=1), models=client_model(client, "m"), runs_dir=None, max_cost_usd=1)


@pytest.mark.parametrize("provider", [OPENAI], ids=["openai"])  # what all share
@pytest.mark.parametrize(
    ("own", "cost_usd"), [({}, 53e-6), ({"price_in": "0", "price_out": "1"}, 7e-6)], ids=["run", "own"]
)
async def test_a_run_prices_a_clients_model_by_its_name_unless_the_model_has_a_price(
    provider: Provider, own: dict[str, str], cost_usd: float
) -> None:
    prices = {f"{provider.name}:m-1": {"input": 1, "output": 6}}
    async with asking(provider, scripted.reply(provider.good("number = 5")), **own) as (model, server):
        ran = await run(Drift(length=1), models=model, k=1, runs_dir=None, prices=prices, max_cost_usd=1)
    assert ran.calls == 1
    assert ran.cost_usd == pytest.approx(cost_usd)
    assert server.received[0].headers["idempotency-key"].startswith(f"{ran.run_id}/0/step/0/")


async def test_a_run_sends_through_an_http_client_of_the_callers_and_closes_it(provider: Provider) -> None:
    made: list[httpx2.AsyncClient] = []

    def http_client() -> httpx2.AsyncClient:
        made.append(httpx2.AsyncClient(headers={"x-unused": "1"}))
        return made[-1]

    async with serving(scripted.reply(provider.good("number = 5"))) as server, client_of(provider, server.url) as given:
        responses = provider.name == "openai-responses"
        model = client_model(given, "m-1", responses=responses, http_client=http_client)
        ran = await run(Drift(length=1), models=model, k=1, runs_dir=None)
    assert (ran.calls, [each.is_closed for each in made]) == (1, [True])


@pytest.mark.parametrize("name", ["base_url", "api_key_env"])
async def test_the_clients_own_address_and_key_cannot_be_changed(name: str) -> None:
    async with AsyncOpenAI(api_key=KEY) as client:
        given: Any = {name: "x"}
        with pytest.raises(InvalidUsage, match="the client has the address and the key"):
            client_model(client, "m", **given)


@pytest.mark.slow
async def test_a_client_is_not_sent_to_ray(ray_here: None) -> None:  # noqa: ARG001 - a cluster
    async with AsyncOpenAI(api_key=KEY) as client:
        with pytest.raises(
            InvalidUsage, match="a client cannot be sent to Ray's actors: name the model in a spec, such as openai:m"
        ):
            await run(Drift(length=1), models=client_model(client, "m"), runtime="ray", runs_dir=None)
