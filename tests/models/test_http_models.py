"""All HTTP providers against a real, hostile server."""

from __future__ import annotations

import asyncio
import json
import logging
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from microagents.base.errors import InvalidUsage, ModelUnavailable
from microagents.models.http.refusals import MAX_MESSAGE_CHARS, retry_after_s
from microagents.models.http.sending import MAX_BODY_BYTES
from microagents.models.model import Call, Model, ModelSpec
from microagents.models.openai import priority_of
from microagents.models.rates import Rate
from microagents.replies.chat import Sample, Usage
from tests.models import server as scripted
from tests.models.server import Answer, serving
from tests.models.wires import ANTHROPIC, KEY, OPENAI, RESPONSES, Provider, a_call, asking

if TYPE_CHECKING:
    from collections.abc import Callable

TINY_S = "0.3"
"""A timeout that passes."""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, KEY)


async def sample_of(provider: Provider, body: object, **options: str) -> Sample:
    async with asking(provider, scripted.reply(body), **options) as (model, _):
        return await model.complete(a_call())


async def failure_of(
    provider: Provider, *answers: Answer, call: Call | None = None, **options: str
) -> ModelUnavailable:
    async with asking(provider, *answers, **options) as (model, _):
        with pytest.raises(ModelUnavailable) as caught:
            await model.complete(call or a_call())
    assert_plain(caught.value)
    return caught.value


def assert_plain(error: BaseException) -> None:
    """No key in the error, and nothing behind it that could hold one."""
    assert error.__cause__ is None
    assert error.__context__ is None
    for text in (str(error), repr(error), repr(error.args)):
        assert KEY not in text
    assert len(error.args[1]) <= MAX_MESSAGE_CHARS


# -- the plain right call ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "path", "told"),
    [
        (
            OPENAI,
            "/chat/completions",
            {
                "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is x?"}],
                "max_tokens": 64,
            },
        ),
        (RESPONSES, "/responses", {"instructions": "Be brief.", "input": "What is x?", "max_output_tokens": 64, "store": False}),
        (ANTHROPIC, "/v1/messages", {"messages": [{"role": "user", "content": "What is x?"}], "system": "Be brief.", "max_tokens": 64}),
    ],
)  # fmt: skip
async def test_a_wire_is_sent_its_request_and_nothing_more(provider: Provider, path: str, told: dict[str, Any]) -> None:
    async with asking(provider, scripted.reply(provider.good("x = 1"))) as (model, server):
        sample = await model.complete(a_call())
    assert sample == Sample(text="x = 1", usage=Usage(input_tokens=11, output_tokens=7), model=f"{provider.name}:m-1")
    (request,) = server.received
    assert request.path == path
    assert KEY in (request.headers.get("x-api-key"), request.headers["authorization"].removeprefix("Bearer "))
    assert request.headers.get("anthropic-version") == ("2023-06-01" if provider is ANTHROPIC else None)
    assert request.json == {"model": "m-1", "temperature": 0.1, **told}


# -- finish and usage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "reason", "finish"),
    [
        (OPENAI, "stop", "stop"),
        (OPENAI, "length", "length"),
        (OPENAI, "\x1b[2J" + "x" * 1000, "stop"),
        (RESPONSES, "max_output_tokens", "length"),
        (RESPONSES, "\x1b[2J" + "x" * 1000, "other"),
        (ANTHROPIC, "end_turn", "stop"),
        (ANTHROPIC, "max_tokens", "length"),
        (ANTHROPIC, "\x1b[2J" + "x" * 1000, "stop"),
    ],
    ids=lambda value: value.name if isinstance(value, Provider) else value[:30].strip("\x1b"),
)
async def test_every_finish_reason_is_read_by_name(provider: Provider, reason: str, finish: str) -> None:
    assert (await sample_of(provider, provider.good(finish=reason))).finish == finish


@pytest.mark.parametrize("provider", [OPENAI, RESPONSES])
async def test_a_refusal_of_openai_is_no_reply_that_ended_by_itself(provider: Provider) -> None:
    body, said = provider.good(), "I cannot help with that."
    if provider is OPENAI:
        body["choices"][0]["message"] = {"content": None, "refusal": said}
    else:
        body["output"][0]["content"] = [{"type": "refusal", "refusal": said}]
    sample = await sample_of(provider, body)
    assert (sample.text, sample.finish) == (said, "refusal")


async def test_a_response_as_long_as_allowed_is_cut_off_though_a_server_calls_it_completed() -> None:
    assert (
        await sample_of(RESPONSES, RESPONSES.good(usage={"input_tokens": 11, "output_tokens": 64}))
    ).finish == "length"


@pytest.mark.parametrize(("code", "kind"), [("server_error", "server"), ("rate_limit_exceeded", "busy")])
async def test_a_failed_response_is_no_reply(code: str, kind: str) -> None:
    body = {**RESPONSES.good(), "status": "failed", "error": {"code": code, "message": f"Sorry {KEY}\x1b[31m"}}
    error = await failure_of(RESPONSES, scripted.reply(body))
    assert (error.kind, error.args[1]) == (kind, f"{code}: Sorry [key] [31m")


def test_the_most_of_a_call_is_a_token_for_each_byte_of_its_prompt_and_the_longest_reply(provider: Provider) -> None:
    model = provider.open("http://localhost:1", price_in="1000", price_out="1000")
    most = model.at_most(a_call(user="\N{SNOWMAN}" * 1000, system=""))
    assert most is not None
    assert 3 * 1000 + 64 <= most.tokens < 4 * 1000
    assert most.cost_usd == pytest.approx(most.tokens / 1000)


@pytest.mark.parametrize(("cached", "written", "read"), [(700, 100, (1000, 700, 100)), (0, None, (1000, 0, 0))])
async def test_cached_tokens_are_a_part_of_the_input(
    provider: Provider, cached: object, written: object, read: tuple[int, int, int]
) -> None:
    if provider is ANTHROPIC:  # which counts them apart
        usage = {
            "input_tokens": 1000 - read[1] - read[2],
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": written,
        }
    else:
        details = f"{provider.input_tokens}_details"
        usage = {provider.input_tokens: 1000, details: {"cached_tokens": cached, "cache_write_tokens": written}}
    found = (await sample_of(provider, provider.good(usage=usage))).usage
    assert (found.input_tokens, found.cached_tokens, found.cache_write_tokens) == read


# -- statuses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, "busy"), (408, "server"), (500, "server"), (400, "refused"), (402, "refused"), (302, "refused")],
)
async def test_a_status_says_what_to_do(provider: Provider, status: int, kind: str) -> None:
    headers = {"request-id" if provider is ANTHROPIC else "x-request-id": "req_1"}
    body = {"error": {"type": "some_error", "message": "no such model"}}
    error = await failure_of(provider, scripted.reply(body, status, headers))
    assert (error.kind, error.args[2], error.args[4]) == (kind, status, "req_1")
    if status >= 400:
        assert error.args[1] == "some_error: no such model"


DATE = "Wed, 21 Oct 2026 07:28:00 GMT"
LATER = "Wed, 21 Oct 2026 07:28:30 GMT"
WAITS: list[tuple[str, float | None]] = [
    ("0", 0), ("0.25", 0.25), ("-1", None), ("NaN", None), ("1e308", None), ("9" * 4000, None), ("soon", None),
    (LATER, 30), ("Wed, 21 Oct 2020 07:28:00 GMT", 0), ("Wed, 99 Oct 2026 99:99:99 GMT", None),
]  # fmt: skip


@pytest.mark.parametrize("provider", [OPENAI], ids=["openai"])  # what all share
@pytest.mark.parametrize(("header", "wait_s"), WAITS, ids=lambda value: str(value)[:30])
async def test_retry_after_is_a_wait_or_nothing(provider: Provider, header: str, wait_s: float | None) -> None:
    answer = scripted.reply({}, 429, {"retry-after": header, "date": DATE})
    error = await failure_of(provider, answer)
    assert (error.kind, error.retry_after_s) == ("busy", wait_s)


def test_milliseconds_are_more_exact_than_seconds_and_a_date_needs_the_servers_clock() -> None:
    assert retry_after_s({"retry-after": "2", "retry-after-ms": "1500"}) == 1.5
    assert retry_after_s({"retry-after": LATER}) is None
    assert retry_after_s({}) is None


async def test_a_redirect_is_not_followed(provider: Provider) -> None:
    for status in (302, 307):
        async with serving(scripted.reply(provider.good())) as elsewhere:
            answer = scripted.reply(b"", status, {"location": f"{elsewhere.url}{provider.path}"})
            error = await failure_of(provider, answer)
            assert (error.kind, error.args[2]) == ("refused", status)
            assert "base_url" in str(error)
            assert elsewhere.received == []


# -- bodies that cannot be read ----------------------------------------------------------------------------------------

GARBLED = {
    "html": b"<html><body>Bad gateway</body></html>",
    "a list": b"[]",
    "an empty object": b"{}",
    "truncated": b'{"choices": [{"message": {"content": "x =',
    "not utf-8": b'{"choices": "\xff\xfe", "content": "\xff\xfe"}',
    "nested in the usage": b'{"usage": ' + b"[" * 100_000,
    "nested in what is not read": b'{"other": ' + b"[" * 100_000,
}


@pytest.mark.parametrize("name", GARBLED)
async def test_what_is_no_reply_is_garbled(provider: Provider, name: str) -> None:
    error = await failure_of(provider, scripted.reply(GARBLED[name]))
    assert (error.kind, error.args[2]) == ("garbled", 200)


OPENAI_BODIES: list[object] = [
    {"choices": []},
    {"choices": {}},
    {"choices": [None]},
    {"choices": [{"message": None}]},
    {"choices": [{"message": {"content": 3}, "finish_reason": "stop"}]},
]
RESPONSES_BODIES: list[object] = [
    {"output": []},
    {"output": [None]},
    {"status": "completed", "output": 3},
    {"status": "completed", "output": [{"type": "message", "content": [{"type": "output_text", "text": 3}]}]},
]
ANTHROPIC_BODIES: list[object] = [
    {"content": [None]},
    {"content": 3, "stop_reason": "end_turn"},
    {"content": [{"type": "text", "text": 3}], "stop_reason": "end_turn"},
]


@pytest.mark.parametrize(
    ("provider", "body"),
    [
        *((OPENAI, body) for body in OPENAI_BODIES),
        *((RESPONSES, body) for body in RESPONSES_BODIES),
        *((ANTHROPIC, body) for body in ANTHROPIC_BODIES),
    ],
    ids=lambda value: value.name if isinstance(value, Provider) else json.dumps(value)[:70],
)
async def test_wrong_types_and_missing_fields_are_garbled(provider: Provider, body: object) -> None:
    assert (await failure_of(provider, scripted.reply(body))).kind == "garbled"


async def test_a_body_that_is_compressed_too_often_is_garbled_and_let_go(provider: Provider) -> None:
    headers = {"content-encoding": ", ".join(["gzip"] * 6), "content-length": "1000"}
    async with asking(provider, scripted.reply(b"", headers=headers)) as (model, server):
        with pytest.raises(ModelUnavailable) as caught:
            await model.complete(a_call())
        await server.gone.wait()
    assert caught.value.kind == "garbled"
    assert_plain(caught.value)


async def test_a_failing_server_keeps_its_status_unless_its_words_tell_a_refusal() -> None:
    overloaded = scripted.reply(b'{"error": {"type": "overloaded_error", "message": "later"}}', 529)
    filtered = scripted.reply(b'{"error": {"code": "content_filter", "message": "no"}}', 500)
    for answer, told in ((overloaded, ("server", 529)), (filtered, ("refused", 400))):
        async with asking(OPENAI, answer) as (model, _):
            with pytest.raises(ModelUnavailable) as caught:
                await model.complete(a_call())
        assert (caught.value.kind, caught.value.status) == told


# -- bodies that are too large -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """64 MB of JSON blanks in 64 kB."""
    packer = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    blanks = b" " * 2**20
    return b"".join(packer.compress(blanks) for _ in range(64)) + packer.flush()


@pytest.mark.parametrize("provider", [OPENAI], ids=["openai"])  # what all share
@pytest.mark.parametrize("given", ["bomb 200", "bomb 500", "more than is needed"])
async def test_no_reply_takes_more_memory_than_its_bound(provider: Provider, bomb: bytes, given: str) -> None:
    unread = json.dumps(provider.good())[:-1] + ', "usage": [' + "[]," * 2**21 + "0]}"
    status = 500 if given == "bomb 500" else 200
    packed = scripted.reply(bomb, status, {"content-encoding": "gzip"})
    answer = packed if given.startswith("bomb") else scripted.reply(unread.encode())
    async with asking(provider, scripted.reply(provider.good()), answer) as (model, _):
        await model.complete(a_call())
        tracemalloc.start()
        try:
            outcome: object = (await model.complete(a_call())).usage
        except ModelUnavailable as error:
            outcome = error.kind
        finally:
            _, peak_bytes = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    assert outcome == {"bomb 200": "garbled", "bomb 500": "server"}.get(given, "garbled")
    assert peak_bytes < 4 * MAX_BODY_BYTES


# -- time and connections ----------------------------------------------------------------------------------------------


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("provider", [OPENAI], ids=["openai"])  # what all share
@pytest.mark.parametrize("answer", [scripted.silent, scripted.dripped_headers, scripted.dripped_body])
async def test_a_call_ends_by_our_clock_and_lets_go(provider: Provider, answer: Callable[[], Answer]) -> None:
    async with asking(provider, answer(), timeout_s=TINY_S) as (model, server):
        with pytest.raises(ModelUnavailable) as caught:
            await model.complete(a_call())
        await server.gone.wait()
    assert caught.value.kind == "timeout"
    assert_plain(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("provider", [OPENAI], ids=["openai"])  # what all share
async def test_the_clock_runs_over_both_requests_of_a_call(provider: Provider) -> None:
    async with asking(provider, refusal_of("temperature"), scripted.silent(), timeout_s="1") as (model, server):
        with pytest.raises(ModelUnavailable) as caught:
            await model.complete(a_call())
    assert (caught.value.kind, len(server.received)) == ("timeout", 2)


async def test_a_cancelled_call_is_cancelled_and_lets_go(provider: Provider) -> None:
    async with asking(provider, scripted.silent()) as (model, server):
        task = asyncio.create_task(model.complete(a_call()))
        await server.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.gone.wait()


# -- keys and prompts stay where they are ------------------------------------------------------------------------------


def echo(status: int) -> Answer:
    """A server that repeats the key wherever it can."""
    body = {"error": {"message": f"{KEY} is wrong; Bearer {KEY}", "type": KEY, "code": KEY, "param": KEY}}
    headers = dict.fromkeys(("x-request-id", "request-id", "retry-after", "x-other", "content-type"), KEY)
    return scripted.reply(body, status, headers)


@pytest.mark.parametrize(
    "answer",
    [
        *map(echo, (200, 401, 429)),
        scripted.raw(f"HTTP/1.1 {KEY}\r\n\r\n".encode()),
        scripted.reply(f'"{KEY}"'.encode()),
    ],
    ids=["200", "401", "429", "status line", "text"],
)
async def test_a_key_is_in_no_error_and_no_log(
    provider: Provider, answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with capture_logs() as logs:
        await failure_of(provider, answer)
    for record in caplog.records:
        assert KEY not in logging.Formatter().format(record)
    assert KEY not in repr(logs)


async def test_a_key_that_a_server_repeats_in_a_reply_is_replaced(provider: Provider) -> None:
    sample = await sample_of(provider, provider.good(text=f"you sent Bearer {KEY}", finish=KEY))
    assert (sample.text, KEY in sample.finish) == ("you sent Bearer [key]", False)
    assert KEY not in repr(provider.open("http://localhost:1"))


async def test_what_looks_like_a_key_is_masked_though_it_is_not_ours(provider: Provider) -> None:
    body = {"error": {"message": "Incorrect API key provided: sk-proj-ab***************yz12."}}
    error = await failure_of(provider, scripted.reply(body, 401))
    assert "yz12" not in str(error)
    assert "Incorrect API key" in str(error)


async def test_an_error_does_not_repeat_the_prompt(provider: Provider) -> None:
    user = "The patient, Ada Lovelace,\nwas seen on Tuesday."
    body = {
        "error": {"type": "invalid_prompt", "message": f"cannot process {user!r}; Ada Lovelace, was seen on Tuesday."}
    }
    error = await failure_of(provider, scripted.reply(body, 400), call=a_call(user=user))
    assert "Ada" not in str(error)
    assert "invalid_prompt" in str(error)


async def test_an_error_is_one_short_printable_line(provider: Provider) -> None:
    body = {"error": {"message": "a\r\nb\x1b[31m\u202e\x00" + "long " * 1000}}
    message = (await failure_of(provider, scripted.reply(body, 500))).args[1]
    assert message.isprintable()
    assert len(message) <= MAX_MESSAGE_CHARS


# -- parameters that a model refuses -----------------------------------------------------------------------------------


def refusal_of(parameter: str, message: str | None = None) -> Answer:
    error = {
        "message": message or f"Unsupported value: '{parameter}' does not support 0.1 with this model.",
        "type": "invalid_request_error",
        "param": parameter,
        "code": "unsupported_value",
    }
    return scripted.reply({"type": "error", "error": error}, 400)


def only_message(message: str) -> Answer:
    return scripted.reply({"type": "error", "error": {"type": "invalid_request_error", "message": message}}, 400)


@pytest.mark.parametrize(
    "refusal",
    [
        refusal_of("temperature"),
        only_message("`temperature` is deprecated for this model."),
    ],
)
async def test_a_refused_temperature_is_dropped_once_and_remembered(provider: Provider, refusal: Answer) -> None:
    answers = (refusal, scripted.reply(provider.good()))
    with capture_logs() as logs:
        async with asking(provider, *answers) as (model, server):
            first = await model.complete(a_call())
            second = await model.complete(a_call())
    assert first == second
    assert ["temperature" in request.json for request in server.received] == [True, False, False]
    kept = {name: value for name, value in server.received[0].json.items() if name != "temperature"}
    assert server.received[1].json == kept
    assert [(entry["log_level"], entry["parameter"], entry["model"]) for entry in logs] == [
        ("warning", "temperature", model.name)
    ]


async def test_a_refused_name_of_the_cap_is_exchanged_and_remembered() -> None:
    refusal = refusal_of(
        "max_tokens",
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    )
    answers = (refusal, refusal_of("temperature"), scripted.reply(OPENAI.good()))
    with capture_logs() as logs:
        async with asking(OPENAI, *answers) as (model, server):
            await model.complete(a_call())
            await model.complete(a_call())
    sent = [set(request.json) - {"model", "messages"} for request in server.received]
    assert sent == [
        {"max_tokens", "temperature"},
        {"max_completion_tokens", "temperature"},
        {"max_completion_tokens"},
        {"max_completion_tokens"},
    ]
    assert server.received[-1].json["max_completion_tokens"] == 64
    assert [entry["parameter"] for entry in logs] == ["max_tokens", "temperature"]


async def test_a_server_that_refuses_both_names_is_not_asked_for_ever() -> None:
    answers = (refusal_of("max_tokens"), refusal_of("max_completion_tokens"))
    async with asking(OPENAI, *answers) as (model, server):
        with pytest.raises(ModelUnavailable) as caught:
            await model.complete(a_call())
    assert caught.value.kind == "refused"
    assert len(server.received) == 2


# -- options and keys --------------------------------------------------------------------------------------------------


def opened(provider: Provider, **options: str) -> Model:
    return provider.model(ModelSpec(provider=provider.name, name="m-1", options=options))


def test_a_missing_key_is_said_when_the_model_is_opened(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(provider.key_env)
    with pytest.raises(InvalidUsage, match=provider.key_env):
        opened(provider)
    with pytest.raises(InvalidUsage, match="MY_KEY"):
        opened(provider, base_url="http://localhost:8000", api_key_env="MY_KEY")


@pytest.mark.parametrize(("options", "bearer"), [({"api_key_env": "MY_KEY"}, "other-key"), ({}, "none")])
async def test_a_key_may_stand_in_another_variable_and_a_local_server_needs_none(
    provider: Provider, options: dict[str, str], bearer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(provider.key_env)
    monkeypatch.setenv("MY_KEY", "other-key\n")
    async with asking(provider, scripted.reply(provider.good()), **options) as (model, server):
        await model.complete(a_call())
    assert server.received[0].headers["authorization"] == f"Bearer {bearer}"


@pytest.mark.parametrize("key", ["two\nlines", "schlüssel"])
def test_an_impossible_key_is_not_shown(provider: Provider, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(provider.key_env, key)
    with pytest.raises(InvalidUsage, match=provider.key_env) as caught:
        opened(provider)
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout": "3"}, r"'timeout'; did you mean 'timeout_s'.*base_url, api_key_env"),
        ({"price_in": "1"}, "price_out"),
    ],
)
def test_an_unknown_option_and_half_a_price_are_refused(provider: Provider, options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidUsage, match=said):
        opened(provider, **options)


@pytest.mark.parametrize("provider", [OPENAI], ids=["openai"])  # what all share
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("timeout_s", value) for value in ("0", "nan", "soon")),
        *(("price_in", value) for value in ("-1", "inf", "free")),
        *(("base_url", value) for value in ("localhost:8000", "ftp://host", "http://host:99999", "http://u:p@h")),
    ],
)
def test_an_option_out_of_range_is_refused(provider: Provider, name: str, value: str) -> None:
    both = {"price_in": "1", "price_out": "1"} if name == "price_in" else {}
    with pytest.raises(InvalidUsage, match=name):
        opened(provider, **{**both, name: value})


# -- what the solvers of a run share ------------------------------------------------------------------------------------


async def test_what_a_provider_allows_each_minute_is_read_from_its_first_reply() -> None:
    first = scripted.reply(
        OPENAI.good(), headers={"x-ratelimit-limit-requests": "500", "x-ratelimit-remaining-requests": "499"}
    )
    async with asking(OPENAI, first) as (model, _):
        assert model.rates == {}
        await model.complete(a_call())
        assert model.rates == {"requests": Rate(each_minute=500, left=499)}


async def test_all_calls_with_one_prompt_and_no_others_have_the_header_of_one_session() -> None:
    prompts = [f"What is {number} + 1?" for number in range(8)] * 2
    async with asking(OPENAI, scripted.reply(OPENAI.good()), session="prompt") as (model, server):
        for each in prompts:
            await model.complete(a_call(each))
    sessions = [request.headers["x-session-id"] for request in server.received]
    assert sessions[:8] == sessions[8:]
    assert len({*sessions}) == 8
    with pytest.raises(InvalidUsage, match="the only session is session=prompt"):
        OPENAI.open("http://127.0.0.1:1", session="run")


async def test_a_request_carries_its_place_in_the_queue_where_the_server_takes_one() -> None:
    answer = scripted.reply(OPENAI.good())
    async with asking(OPENAI, answer, priority="true") as (model, server):
        await model.complete(a_call())
    async with asking(OPENAI, answer) as (model, plain):
        await model.complete(a_call())
    assert server.received[0].json["priority"] == priority_of(a_call().id.election.path)
    assert "priority" not in plain.received[0].json
    assert priority_of("0/step/9") < priority_of("0/step/10/undecided") < priority_of("1/line/2")
