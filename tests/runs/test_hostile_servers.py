"""A run goes on through every hostile reply, on every wire, and leaves no key behind where one ends it."""

from __future__ import annotations

import gzip
import json
import logging
import traceback
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest
import structlog

from microagents import MicroagentsError, Result, run
from microagents.models.http.sending import MAX_BODY_BYTES
from microagents.runs.words.summary import summary
from microagents.tasks.drift import Drift
from tests.models import server as scripted
from tests.models.server import Answer, Connection, serving
from tests.models.wires import ANTHROPIC, KEY, OPENAI, RESPONSES, Provider

LENGTH = 40
TIMEOUT_S = "0.6"


@pytest.fixture(autouse=True)
def without_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microagents.roles.solver.outages.BACKOFF_S", (0.001, 0.002))
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, KEY)


def right(provider: Provider, connection: Connection, server: scripted.Server) -> Awaitable[None]:
    """The right reply to the question that the server has just received."""
    sent = server.received[-1].json
    asked: str = sent["input"] if provider is RESPONSES else sent["messages"][-1]["content"]
    number = int(asked.removeprefix("Number: "))
    return scripted.reply(provider.good(f"number = {(number * 17 + 5) % 1009}"))(connection)


def bomb() -> bytes:
    return gzip.compress(b" " * 32 * 2**20, 1)


def hostile(provider: Provider) -> Iterator[tuple[str, Answer]]:
    """Each hostile reply, with the name under which the run counts it."""
    deep = b"[" * 100_000
    for wait in (None, "0", "NaN"):
        yield "busy", scripted.reply({}, 429, {} if wait is None else {"retry-after": wait})
    for status in (500, 529):
        yield "server", scripted.reply(b"<html>", status)
    for slow in (scripted.silent, scripted.dripped_headers, scripted.dripped_body):
        yield "timeout", slow()
    yield "broken", scripted.reset()
    yield "broken", scripted.cut_off(b'{"a": ', missing=10)
    yield "garbled", scripted.raw(b"\x00\xff garbage \r\n\r\n")
    for body in (b"<html>", b"null", b'{"choices": [{"mess', deep, b'{"usage": ' + deep, b" " * (MAX_BODY_BYTES + 2)):
        yield "garbled", scripted.reply(body)
    yield "garbled", scripted.reply(bomb(), headers={"content-encoding": "gzip"})
    for name in ("choices", "output", "content"):
        yield "garbled", scripted.reply({name: [3]})
    yield "empty", scripted.reply(provider.good(""))
    reasons = {
        OPENAI: {"length": "cut_off", "content_filter": "content_filter"},
        RESPONSES: {"max_output_tokens": "cut_off", "\x1b[2J": "other"},
        ANTHROPIC: {"max_tokens": "cut_off", "refusal": "refusal"},
    }
    for reason, flag in reasons[provider].items():
        yield flag, scripted.reply(provider.good("number = 22", finish=reason))
    usages: list[object] = [
        {},
        {provider.output_tokens: -5},
        {provider.output_tokens: 10**30, provider.input_tokens: "x"},
    ]
    for usage in usages:
        yield "valid", scripted.reply(provider.good("number = 1", usage=usage))


@pytest.mark.slow
async def test_a_run_goes_on_through_every_hostile_reply_and_counts_each_by_its_name(provider: Provider) -> None:
    answers = [(name, answer) for name, answer in hostile(provider) if name != "valid"]
    expected: dict[str, int] = {}
    for name, _ in answers:
        expected[name] = expected.get(name, 0) + 1
    waiting: list[Answer] = []

    def answered(connection: Connection) -> Awaitable[None]:
        # Every other request is answered rightly, so that no sample fails for long.
        if len(server.received) % 2 and waiting:
            return waiting.pop(0)(connection)
        return right(provider, connection, server)

    async with serving(answered) as server:
        spec = f"{provider.name}:m@base_url={server.url},timeout_s={TIMEOUT_S}"
        await run(Drift(length=2), models=spec, k=1, runs_dir=None)  # imports the SDK
        waiting += [answer for _, answer in answers]
        result = await run(Drift(length=LENGTH), models=spec, k=1, runs_dir=None, resend_stragglers=False)
    assert (result.outcome, result.account.errors, waiting) == ("completed", 0, [])
    assert {**result.account.repeated, **result.account.flagged} == expected
    assert "3 calls timed out" in summary(result)


@pytest.mark.slow_after(1)
async def test_a_usage_that_cannot_be_true_costs_the_most_and_one_that_is_missing_is_unknown(
    provider: Provider,
) -> None:
    *missing, negative, too_large = [answer for name, answer in hostile(provider) if name == "valid"]
    for usage in (*missing, negative, too_large):
        async with serving(usage) as server:
            spec = f"{provider.name}:m@base_url={server.url},price_in=1,price_out=1"
            result = await run(Drift(length=1), models=spec, k=1, runs_dir=None)
        assert (result.outcome, result.account.output_tokens) == ("completed", 0)
        assert (result.cost_usd is None, result.account.miscounted) == ((True, 0) if usage in missing else (False, 1))


def files_in(folder: Path) -> list[str]:
    return [path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()]


def echo(status: int) -> Answer:
    """A server that repeats the key wherever it can."""
    error = {"message": f"{KEY} is wrong; Bearer {KEY}", "type": KEY, "code": KEY, "param": KEY}
    headers = dict.fromkeys(("x-request-id", "request-id", "x-ratelimit-limit-requests", "retry-after", "x-other"), KEY)
    return scripted.reply({"error": error, KEY: KEY}, status, headers)


@pytest.mark.slow
@pytest.mark.parametrize("status", [200, 401])
async def test_a_key_is_in_nothing_that_a_failing_run_leaves_behind(
    provider: Provider, status: int, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
    left: list[str] = []
    try:
        async with serving(echo(status)) as server:
            spec = f"{provider.name}:m@base_url={server.url}"
            try:
                result: Result = await run(Drift(length=1), models=spec, runs_dir=tmp_path, max_outage_s=0.02)
                left += [summary(result), json.dumps(result.as_json())]
            except MicroagentsError as error:
                left += traceback.format_exception(error)
                left += [repr(error.args), repr(getattr(error, "__notes__", ""))]
    finally:
        structlog.reset_defaults()
    assert left
    left += [logging.Formatter().format(record) + repr(vars(record)) for record in caplog.records]
    left += capfd.readouterr()
    assert not [text for text in (*left, *files_in(tmp_path)) if KEY in text]
