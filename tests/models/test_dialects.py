"""Replies and errors in the dialects of servers, over all wires: what a person could read in them is used, or told."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from microagents import Prompt, Reply, Result, RowTask, run
from microagents.base.errors import InvalidUsage, ModelUnavailable
from microagents.models.model import Call, Model
from microagents.replies.chat import Sample
from microagents.roles.solver import outages
from microagents.runtimes.virtual import run_virtual
from tests.benchmarks import dialects
from tests.models import server as scripted
from tests.models.wires import ANTHROPIC, OPENAI, RESPONSES, Provider, a_call, asking

TEXT = "x = 1"
THOUGHT = "1 it is"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "none")


async def sample_of(provider: Provider, body: object, **options: str) -> Sample:
    async with asking(provider, scripted.reply(body), **options) as (model, _):
        return await model.complete(a_call())


async def failure_of(
    provider: Provider, body: object, status: int = 200, path: str = "", **options: str
) -> ModelUnavailable:
    async with asking(provider, scripted.reply(body, status)) as (_, server):
        model = provider.open(server.url + path, **options)
        with pytest.raises(ModelUnavailable) as caught:
            await model.complete(a_call())
        await model.close()
    return caught.value


def saying(provider: Provider, content: object, reason: object = "stop") -> dict[str, Any]:
    """A reply with this content, and without a reason if that is ``...``."""
    body = provider.good(TEXT)
    if provider is OPENAI:
        choice = body["choices"][0]
        choice["message"] = {"content": content}
        choice["finish_reason"] = reason
        if reason is ...:
            del choice["finish_reason"]
        return body
    field, of_reason = ("output", "status") if provider is RESPONSES else ("content", "stop_reason")
    body[field], body[of_reason] = content, reason
    if reason is ...:
        del body[of_reason]
    return body


PART = {"type": "text", "text": TEXT}
CONTENTS: dict[str, object] = {
    "a text": TEXT,
    "one part": PART,
    "parts": [{"type": "text", "text": "x "}, None, {"type": "output_text", "text": "= 1"}],
    "a part of an unknown type": [{"type": "markdown", "text": TEXT}],
    "text in an object": [{"type": "text", "text": {"value": TEXT, "annotations": []}}],
    "thinking in parts": [{"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}, PART],
    "a summary": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": THOUGHT}]}, PART],
    "a message": [{"type": "message", "role": "assistant", "content": TEXT}],
    "a call beside it": [PART, {"type": "tool_use", "text": "no", "input": {}}, {"type": "tool_result", "content": "no"}],
    "odd reasoning": [{"type": "text", "text": TEXT, "reasoning": 3, "refusal": False}],
}  # fmt: skip


@pytest.mark.parametrize("form", CONTENTS)
async def test_the_text_of_a_reply_is_read_in_any_form(provider: Provider, form: str) -> None:
    sample = await sample_of(provider, saying(provider, CONTENTS[form]))
    assert (sample.text, sample.finish) == (TEXT, "stop")


@pytest.mark.parametrize("reason", [
    ..., "", "EOS_TOKEN", "STOP", "<|im_end|>", "FINISH_REASON_STOP", "TOOL_CALL", 3, "ripe",
])  # fmt: skip
async def test_a_whole_text_has_ended_whatever_the_end_is_called(provider: Provider, reason: object) -> None:
    with capture_logs() as logs:
        async with asking(provider, scripted.reply(saying(provider, [PART], reason))) as (model, _):
            await model.complete(a_call())
            sample = await model.complete(a_call())
    assert (sample.text, sample.finish) == (TEXT, "stop")
    is_unknown = reason in (..., None, "", 3, "ripe")
    assert [entry["reason"] for entry in logs] == ([repr("ripe") if reason == "ripe" else "none"] if is_unknown else [])


@pytest.mark.parametrize(("reason", "finish"), [
    ("MAX_TOKENS", "length"), ("model_length", "length"), ("SAFETY", "content_filter"), ("sensitive", "content_filter"),
    ("insufficient_system_resource", "error"), ("in_progress", "other"), ("aborted", "abort"), ("maxTokens", "length"),
    ("token_limit_reached", "length"), ("context_window_exceeded", "length"), ("contentFiltered", "content_filter"),
])  # fmt: skip
async def test_a_text_that_is_not_whole_is_flagged_whatever_the_reason_is_called(
    provider: Provider, reason: str, finish: str
) -> None:
    assert (await sample_of(provider, saying(provider, [PART], reason))).finish == finish


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-be", "utf-8-sig"])
async def test_json_is_read_in_any_encoding_of_it(provider: Provider, encoding: str) -> None:
    body = json.dumps({**provider.good(TEXT), "note": "\u0142\u00f3d\u017a"}, ensure_ascii=False)
    assert (await sample_of(provider, body.encode(encoding))).text == TEXT


@pytest.mark.parametrize("form", ['"{}"', "{}.0", '"{}.0"'])
async def test_counts_that_are_texts_or_have_a_point_are_billed(provider: Provider, form: str) -> None:
    stated = f'{{"{provider.input_tokens}": {form.format(11)}, "{provider.output_tokens}": {form.format(7)}}}'
    sample = await sample_of(provider, provider.good(TEXT, usage=json.loads(stated)), price_in="1", price_out="1")
    assert (sample.usage.cost_usd, sample.usage.flaw) == (18 / 1e6, "")


WRAPS: dict[str, Callable[[object], object]] = {
    "data": lambda body: {"code": 0, "message": "ok", "data": body},
    "list": lambda body: [body],
    "text": lambda body: {"statusCode": 200, "body": json.dumps(body)},
    "result in a list": lambda body: [{"success": True, "errors": [], "result": body}],
}


@pytest.mark.parametrize("wrap", WRAPS)
async def test_a_reply_in_a_list_or_object_of_a_gateway_is_read_and_billed(provider: Provider, wrap: str) -> None:
    sample = await sample_of(provider, WRAPS[wrap](provider.good(TEXT)))
    assert (sample.text, sample.finish) == (TEXT, "stop")
    assert (sample.usage.input_tokens, sample.usage.output_tokens) == (11, 7)
    for status in (200, 429):
        refused = await failure_of(provider, WRAPS[wrap]({"error": {"message": "slower", "code": 429}}), status)
        assert (refused.kind, "slower" in refused.args[1]) == ("busy", True)


def of_ollama(content: str, *, done: bool = True, **more: object) -> dict[str, Any]:
    counts = {"done_reason": "stop", "prompt_eval_count": 11, "eval_count": 7} if done else {}
    return {"model": "m", "message": {"role": "assistant", "content": content}, "done": done, **counts, **more}


async def test_a_reply_in_the_form_of_ollama_is_read_and_billed() -> None:
    pieces = [of_ollama("x ", done=False), of_ollama("= 1", done=False), of_ollama("")]
    lines = "\n".join(map(json.dumps, pieces)).encode()
    forms: list[object] = [of_ollama(TEXT), {"response": TEXT, **of_ollama(TEXT, message=None)}, lines]
    for form in (*forms, b"".join(map(data, pieces))):
        sample = await sample_of(OPENAI, form)
        assert (sample.text, sample.finish) == (TEXT, "stop"), form
        assert (sample.usage.input_tokens, sample.usage.output_tokens) == (11, 7)
    assert (await sample_of(OPENAI, of_ollama(TEXT, done_reason="length"))).finish == "length"
    for cut in (lines.splitlines()[0], b"\n".join(lines.splitlines()[:2])):
        assert (await failure_of(OPENAI, cut)).kind == "garbled"
    refused = await failure_of(OPENAI, lines.splitlines()[0] + b'\n{"error": "the model ran out of memory"}')
    assert "the model ran out of memory" in refused.args[1]


async def test_a_filtered_choice_needs_no_message_and_a_filtered_reply_no_choice() -> None:
    filtered = {**OPENAI.good(), "choices": [{"index": 0, "finish_reason": "content_filter"}]}
    assert (await sample_of(OPENAI, filtered)).finish == "content_filter"
    for none in (list[object](), None):
        sample = await sample_of(OPENAI, {**OPENAI.good(), "choices": none})
        assert (sample.finish, sample.text) == ("content_filter", "the reply has no choice")


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_an_answer_that_stands_in_the_reasoning_has_a_flag_of_its_own(field: str) -> None:
    body = OPENAI.good("")
    body["choices"][0]["message"] = {"content": None, field: TEXT}
    sample = await sample_of(OPENAI, body)
    assert (sample.finish, sample.text) == ("only_reasoning", TEXT)
    body["choices"][0]["finish_reason"] = "length"
    assert (await sample_of(OPENAI, body)).finish == "length"


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("error", "kind", "status"), [
    ({"message": "no credit", "code": 402}, "refused", 402),
    ({"message": "slower", "code": "429"}, "busy", 429),
    ({"message": "slower", "type": "rate_limit_error"}, "busy", 429),
    ({"message": "slower", "code": 8, "status": "RESOURCE_EXHAUSTED"}, "busy", 429),
    ({"message": "down", "code": 502}, "server", 502),
    ({"message": "odd", "code": 1305}, "garbled", 200),
])  # fmt: skip
async def test_an_error_under_status_200_counts_by_its_code(
    provider: Provider, error: Any, kind: str, status: int
) -> None:
    failed = await failure_of(provider, {"error": error})
    assert (failed.kind, failed.status) == (kind, status)
    assert (error if isinstance(error, str) else error["message"]) in failed.args[1]
    beside_a_reply = {**provider.good(TEXT), "error": error}
    assert (await sample_of(provider, beside_a_reply)).text == TEXT


WORDS = "4096 tokens fit"
ERRORS: dict[str, object] = {
    "an object": {"error": {"message": WORDS}},
    "a list": [{"error": {"code": 400, "message": WORDS, "status": "INVALID_ARGUMENT"}}],
    "errors": {"success": False, "errors": [{"code": 7003, "message": WORDS}]},
    "detail in an object": {"detail": {"error": {"msg": WORDS}}},
    "flat": {"statusCode": 400, "error": "Bad Request", "message": WORDS},
    "problem": {"type": "about:blank", "title": "Bad Request", "status": 400, "detail": WORDS},
    "JSON text": WORDS,
    "HTML": f"<!doctype html><html><head><title>{WORDS}</title></head><body>no</body></html>".encode(),
    "names of its own": {"error_code": 17, "error_msg": WORDS},
    "fields": {"stop": [WORDS]},
    "heading": f"<html><body><h1>{WORDS}</h1><p>nginx".encode(),
}


@pytest.mark.parametrize("form", ERRORS)
async def test_an_error_is_told_in_the_words_of_its_server_with_the_address(provider: Provider, form: str) -> None:
    body = ERRORS[form]
    error = await failure_of(provider, json.dumps(body).encode() if form == "JSON text" else body, 400)
    assert WORDS in error.args[1]
    assert "(HTTP 400, http://127.0.0.1:" in str(error)
    assert str(error).endswith(f"{provider.path})")


async def test_an_error_of_pydantic_names_the_place_and_not_the_input(provider: Provider) -> None:
    detail = [{"type": "missing", "loc": ["body", "stop", 0], "msg": "Field required", "input": {"user": "secret"}}]
    error = await failure_of(provider, {"detail": detail}, 422)
    assert error.args[1] == "body.stop.0: Field required"


@pytest.mark.parametrize(("provider", "given", "meant"), [
    (RESPONSES, "", "/v1"), (ANTHROPIC, "/v1", ""), (OPENAI, "/api", "/api/v1"), (OPENAI, "/v1/chat/completions", "/v1"),
    (OPENAI, "/v1", None), (ANTHROPIC, "", None), (OPENAI, "/openai/deployments/d?api-version=1", None),
])  # fmt: skip
async def test_a_404_says_which_address_was_probably_meant(provider: Provider, given: str, meant: str | None) -> None:
    said = str(await failure_of(provider, b"404 page not found", 404, given))
    assert "404 page not found" in said
    if meant is None:
        assert "did you mean" not in said
    else:
        address = said.partition("did you mean base_url=")[2].partition(" ")[0]
        assert address.partition("127.0.0.1:")[2].lstrip("0123456789") == meant


async def test_an_address_that_never_answered_is_asked_once_by_all_rows_of_a_run() -> None:
    async with scripted.serving(scripted.reply(b"404 page not found", 404)) as server:
        tasks = [Labels(row={"text": f"row {number}."}) for number in range(20)]
        with pytest.raises(ModelUnavailable, match=f"did you mean base_url={server.url}/v1"):
            await run(tasks, models=f"openai:m@base_url={server.url}", k=2, runs_dir=None)
    assert len(server.received) == 1


async def test_the_query_of_an_address_stays_behind_the_path_and_out_of_errors(provider: Provider) -> None:
    async with asking(provider, scripted.reply(provider.good(TEXT))) as (_, server):
        model = provider.open(f"{server.url}/openai/?api-version=2024-10-21&code=secret")
        await model.complete(a_call())
        await model.listed()
        await model.close()
    asked, listed = (request.path for request in server.received)
    assert asked == f"/openai{provider.path}?api-version=2024-10-21&code=secret"
    assert listed.startswith("/openai")
    assert listed.endswith("api-version=2024-10-21&code=secret")
    assert "secret" not in str(await failure_of(provider, b"", 500, "/openai?code=secret"))


@pytest.mark.parametrize(
    ("status", "words"),
    [(400, "System role not supported"), (500, "Conversation roles must alternate user/assistant/user")],
)
async def test_a_system_part_that_a_template_refuses_can_go_into_the_users(
    provider: Provider, status: int, words: str
) -> None:
    error = await failure_of(provider, {"error": {"message": words}}, status)
    assert error.kind == "refused"
    assert "@system=user" in str(error)
    async with asking(provider, scripted.reply(provider.good(TEXT)), system="user") as (model, server):
        await model.complete(a_call(user="What is x?", system="Be brief."))
    sent = server.received[0].json
    assert "Be brief.\\n\\nWhat is x?" in server.received[0].body.decode()
    assert not {"system", "instructions"} & sent.keys()
    assert [each["role"] for each in sent.get("messages", [])] in ([], ["user"])
    with pytest.raises(InvalidUsage, match="system=user"):
        provider.open("http://localhost:1", system="none")


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("HTTP_PROXY", "socks5h://{}127.0.0.1:9"),
        ("all_proxy", "http://{}127.0.0.1:99999"),
        ("HTTP_PROXY", "http://{}[bad"),
    ],
)
async def test_what_is_no_http_proxy_is_named_and_never_spoken_to(
    provider: Provider, name: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, address.format("me:secret@"))
    model = provider.open("http://models.example/v1")
    said = re.escape(f"through {address.format('')}, which is not an HTTP proxy")
    with pytest.raises(InvalidUsage, match=f"{said}.*NO_PROXY") as caught:
        await model.prepare()
    assert "secret" not in str(caught.value)


async def test_a_proxy_that_is_dead_is_named(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "me:secret@127.0.0.1:9")
    model = provider.open("http://models.example/v1")
    with pytest.raises(
        ModelUnavailable, match=r"models.example through the proxy http://127.0.0.1:9: the proxy"
    ) as caught:
        await model.complete(a_call())
    await model.close()
    assert (caught.value.kind, "secret" in str(caught.value)) == ("network", False)


# -- streams -----------------------------------------------------------------------------------------------------------


def event(content: object, reason: object = None, **more: object) -> bytes:
    return data({"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": reason, **more}]})


def data(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


STREAMS: dict[str, bytes] = {
    "whole": event("x ") + event("= 1", "stop") + b"data: [DONE]\n\n",
    "nulls": b": ping\n\n" + event(None) + event("x ", delta=None) + data(None) + data({"choices": None})
    + event("x = 1", "stop", message=None) + data({"choices": [], "usage": {"prompt_tokens": 1}}) + b"data: [DONE]\n\n",
    "no end": event("x ") + event("= 1") + b"data: [DONE]\n\n",
    "an empty end": event("x ") + event("= 1") + event("", "") + b"data: [DONE]\n\n",
    "parts": event([{"type": "thinking", "thinking": THOUGHT}]) + event([PART], "eos"),
    "no index": data({"choices": [{"delta": {"content": TEXT}}]}) + data({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
    "messages": data({"choices": [{"message": {"content": TEXT}, "finish_reason": "stop"}]}),
    "a whole message behind its pieces": event("x ") + event("= 1") + event("", "stop", delta={}, message={"content": TEXT}),
    "a retry first": b"retry: 3000\n\n" + event(TEXT, "stop"),
    "an id first": b"id:1\nevent: message\n" + event(TEXT, "stop"),
    "wrapped": event("x ").replace(b"{", b'[{"data": {', 1).replace(b"\n\n", b"}]\n\n") + event("= 1", "stop"),
    "carriage returns": (event("x ") + event("= 1", "stop")).replace(b"\n", b"\r"),
    "an event of another kind": data({"type": "ping"}) + event(TEXT, "stop"),
}  # fmt: skip


@pytest.mark.parametrize("form", STREAMS)
async def test_a_stream_is_read_in_any_form(form: str) -> None:
    """Also where nobody asked for one."""
    sample = await sample_of(OPENAI, STREAMS[form])
    assert (sample.text, sample.finish) == (TEXT, "stop")


EVENTS: dict[str, list[dict[str, Any]]] = {
    "openai-responses": [
        {"type": "response.created", "response": {"status": "in_progress", "output": []}},
        {"type": "response.content_part.done", "part": {"type": "output_text", "annotations": [{"title": "a page"}]}},
        {"type": "response.completed", "response": RESPONSES.good(TEXT)},
    ],
    "anthropic": [
        {"type": "message_start", "message": {"content": [], "stop_reason": None, "usage": {"input_tokens": 7}}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": THOUGHT}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "x "}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "= 1"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
    ],
}  # fmt: skip


async def test_a_stream_of_responses_is_read_without_the_beginnings_of_its_items() -> None:
    created, *_, completed = EVENTS["openai-responses"]
    pieces = [{"type": "response.output_text.delta", "delta": each} for each in ("x ", "= 1")]
    last = {**completed, "response": {**RESPONSES.good(TEXT), "output": []}}
    sample = await sample_of(RESPONSES, b"".join(map(data, [created, *pieces, last])))
    assert (sample.text, sample.finish, sample.usage.output_tokens) == (TEXT, "stop", 7)


async def test_a_reply_of_another_wire_and_a_broken_stream_are_said_to_be_so() -> None:
    for asked, other in ((OPENAI, RESPONSES), (OPENAI, ANTHROPIC), (ANTHROPIC, OPENAI), (RESPONSES, OPENAI)):
        failed = await failure_of(asked, other.good(TEXT))
        assert re.match(r"Expected an? \w+ with a text|Expected choices with a text; it begins", failed.args[1])
    assert "the stream ends before the reply" in (await failure_of(OPENAI, event("x = 1"))).args[1]


@pytest.mark.parametrize("provider", [RESPONSES, ANTHROPIC])
async def test_a_stream_of_any_wire_that_nobody_asked_for_is_read(provider: Provider) -> None:
    sample = await sample_of(provider, b"".join(map(data, EVENTS[provider.name])))
    assert (sample.text, sample.finish) == (TEXT, "stop")
    assert sample.usage.output_tokens is not None


async def test_a_stream_that_breaks_off_is_no_reply(provider: Provider) -> None:
    """Such as where a proxy ends it: the text so far would be a vote, and x = 1 the beginning of x = 12."""
    if provider is OPENAI:
        events = event("x = 1")
    else:
        events = b"".join(map(data, EVENTS[provider.name][:-1]))
    assert (await failure_of(provider, events)).kind == "garbled"


@pytest.mark.parametrize("encoding", ["Identity", "GZIP", "utf-8", "none", ""])
async def test_a_reply_is_read_whatever_its_server_calls_the_encoding(encoding: str) -> None:
    body = json.dumps(OPENAI.good(TEXT)).encode()
    sent = scripted.reply(gzip.compress(body) if encoding == "GZIP" else body, headers={"content-encoding": encoding})
    async with asking(OPENAI, sent) as (model, _):
        assert (await model.complete(a_call())).text == TEXT


async def test_an_error_in_a_stream_counts_by_its_code() -> None:
    error = await failure_of(OPENAI, event("x ") + data({"error": {"message": "slower", "code": 429}}))
    assert (error.kind, error.status) == ("busy", 429)


@pytest.mark.slow
@pytest.mark.parametrize("part", dialects.PARTS)
async def test_a_spread_of_dialects_is_read_as_a_person_reads_it(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, and other combinations: ``python -m tests.benchmarks.dialects``."""
    monkeypatch.setattr(outages, "BACKOFF_S", (0.001, 0.002))
    spread = list(dialects.PARTS[part](0))[::16]
    tried = await dialects.try_all(spread)
    assert [each for each in tried if each.thrown_away or each.bought_again or each.unclear] == []


# -- replies that cannot be read ---------------------------------------------------------------------------------------


class Label(Reply, frozen=True):
    label: str


class Labels(RowTask[Label]):
    def prompt(self, row: dict[str, Any]) -> Prompt:
        return Prompt(user=row["text"])


class Unreadable(Model):
    """Answers the calls that are not readable with what cannot be read."""

    spec = "unreadable"

    def __init__(self, is_readable: Callable[[int, str], bool], takes_s: float = 0.01) -> None:
        self.calls = 0
        self._is_readable = is_readable
        self._takes_s = takes_s

    async def complete(self, call: Call) -> Sample:
        self.calls += 1
        number = self.calls
        await asyncio.sleep(self._takes_s)
        if self._is_readable(number, call.prompt.user):
            return Sample(text='label = "good"')
        raise ModelUnavailable("garbled", f"upside down {number}", 200)


def labelled(model: Model, rows: int, k: int = 2, **options: Any) -> Result:
    tasks = [Labels(row={"text": f"row {number}."}) for number in range(rows)]
    return run_virtual(run(tasks if rows > 1 else tasks[0], models=model, k=k, runs_dir=None, **options))


@pytest.mark.parametrize(("rows", "k", "solvers"), [(1, 1, 1), (20, 2, 10)])
def test_ten_replies_in_a_row_that_cannot_be_read_end_the_run_and_show_the_first(
    rows: int, k: int, solvers: int
) -> None:
    model = Unreadable(lambda *_: False)
    result = labelled(model, rows, k, deploy={"solver": {"num_replicas": solvers}})
    assert result.outcome == "stopped"
    said = re.search(r"upside down 1 \(HTTP 200\); (\d+) replies in a row in (\d+) s", str(result.reason))
    assert said is not None
    assert 60 <= int(said[2]) < 180
    assert model.calls <= 20 + rows


@pytest.mark.slow
def test_replies_that_cannot_be_read_end_nothing_while_others_can() -> None:
    assert labelled(Unreadable(lambda number, _: number > 15), 20).outcome == "completed"
    assert labelled(Unreadable(lambda number, _: number % 9 != 0), 20).outcome == "completed"


@pytest.mark.slow
def test_a_row_whose_replies_alone_cannot_be_read_fails_alone() -> None:
    result = labelled(Unreadable(lambda _, asked: not asked.startswith("row 7."), takes_s=10), 500, concurrency=10)
    assert (result.account.inputs_done, result.account.inputs_failed) == (499, 1)
    assert "upside down" in str(result.reason)
