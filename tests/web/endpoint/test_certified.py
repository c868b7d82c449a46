"""One call where one is enough: a reply that its model gives in most cases, by its own probabilities, needs no further one."""

from __future__ import annotations

import json
from math import log
from typing import Any

import aiohttp
import pytest

from microagents.web.endpoint.policy import Policy
from tests.doubles.acting import Answer, Request
from tests.web.endpoint.test_forwarding import ASKED, posted, saying, voted

TEXT = Policy(votes="text")
PLAIN: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "2+2?"}], "input": "2+2?"}
SCHEMA: dict[str, Any] = {
    **PLAIN,
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}},
}


def likely(p: float, *pieces: str, refuses: bool = False) -> Answer:
    """Answer with a text of some tokens, and with their log-probabilities if they are asked for."""

    def token(text: str, log_p: float) -> dict[str, Any]:
        other = {"token": "x", "logprob": log(0.004), "bytes": None}
        return {"token": text, "logprob": log_p, "bytes": list(text.encode()), "top_logprobs": [other]}

    def answer(request: Request) -> Any:
        asked, text = request.json, "".join(pieces)
        is_asked = bool(asked.get("logprobs") or "logprobs" in str(asked.get("include")))
        if is_asked and refuses:
            return json.dumps(
                {"error": {"message": "logprobs are not supported with this model", "code": 400}}
            ).encode()
        tokens = [token(each, log(p) if place == 0 else -0.001) for place, each in enumerate((*pieces, "<eos>"))]
        listed = tokens if is_asked else []
        usage = {"completion_tokens": len(tokens), "prompt_tokens": 9, "input_tokens": 9, "output_tokens": len(tokens)}
        if request.path.endswith("responses"):
            part = {"type": "output_text", "text": text, "logprobs": listed, "annotations": []}
            output = [{"type": "message", "id": "m", "role": "assistant", "content": [part]}]
            return json.dumps({"id": "r", "status": "completed", "output": output, "usage": usage}).encode()
        if not asked.get("stream"):
            choice = {
                "index": 0,
                "message": {"content": text},
                "finish_reason": "stop",
                "logprobs": {"content": listed},
            }
            return json.dumps({"id": "c", "choices": [choice], "usage": usage}).encode()
        events: list[dict[str, Any]] = []
        for place, each in enumerate((*pieces, "")):
            chunk = {"index": 0, "delta": {"content": each}, "logprobs": {"content": listed[place : place + 1]}}
            events.append({"id": "c", "choices": [{**chunk, "finish_reason": None if each else "stop"}]})
        events.append({"id": "c", "choices": [], "usage": usage})
        return b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in events) + b"data: [DONE]\n\n"

    return answer


@pytest.fixture(autouse=True)
def _no_audits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vote in no election only to test its masses."""
    monkeypatch.setattr("microagents.elections.count.is_audited", lambda _: False)


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
@pytest.mark.parametrize(("p", "samples"), [(0.9, 1), (0.4, 3)])
async def test_a_likely_value_is_elected_by_one_sample_and_an_unlikely_one_by_votes(
    path: str, p: float, samples: int
) -> None:
    async with voted(likely(p, '{"sum":', "4}")) as (double, served):
        status, reply, headers = await posted(served, path, SCHEMA)
    assert (status, len(double.requests), headers["x-microagents-elected"]) == (200, samples, "true")
    assert "logprob" not in json.dumps(reply).replace('"logprobs": []', "").replace('"logprobs": null', "")
    assert '"token"' not in json.dumps(reply)
    assert double.requests[0].json["top_logprobs"] == 2


async def test_streamed_texts_are_certified_and_their_log_probabilities_left_out() -> None:
    async with voted(likely(0.9, "fo", "ur"), TEXT) as (double, served):
        body = {**PLAIN, "stream": True, "stream_options": {"include_usage": True}}
        status, text = await streamed(served, body)
    assert (status, len(double.requests)) == (200, 1)
    assert '"token"' not in text
    assert '"fo"' in text


async def test_log_probabilities_are_left_out_of_a_reply_with_a_raw_tab_too() -> None:
    def tabbed(request: Request) -> Any:
        reply: Any = likely(0.9, "four")(request)
        return reply.replace(b"{", b'{"from": "a\tb", ', 1)

    async with voted(tabbed, TEXT) as (_, served):
        status, reply, headers = await posted(served, "chat/completions", PLAIN)
    assert (status, headers["x-microagents-elected"], reply["choices"][0]["logprobs"]) == (200, "true", None)


async def streamed(served: Any, body: dict[str, Any]) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.post(f"{served.url}/v1/chat/completions", json=body) as got:
        return got.status, await got.text()


async def test_a_client_that_asks_for_log_probabilities_gets_them() -> None:
    async with voted(likely(0.9, "four"), TEXT) as (double, served):
        _, reply, _ = await posted(served, "chat/completions", {**PLAIN, "logprobs": True, "top_logprobs": 5})
    assert len(reply["choices"][0]["logprobs"]["content"]) == 2
    assert [each.json["top_logprobs"] for each in double.requests] == [5]


async def test_a_model_that_refuses_them_is_asked_without_and_votes_decide() -> None:
    async with voted(likely(0.9, "four", refuses=True), TEXT) as (double, served):
        assert (await posted(served, "chat/completions", PLAIN))[0] == 200
        assert [("logprobs" in each.json) for each in double.requests] == [True, False, False, False]
        assert (await posted(served, "chat/completions", PLAIN))[0] == 200
        assert len(double.requests) == 7


async def test_a_server_that_tells_none_is_asked_for_them_once() -> None:
    async with voted(saying("four"), TEXT) as (double, served):
        for _ in range(2):
            assert (await posted(served, "chat/completions", PLAIN))[0] == 200
    assert [("logprobs" in each.json) for each in double.requests] == [True] + [False] * 5


@pytest.mark.parametrize(
    ("asked", "policy"),
    [(ASKED, TEXT), ({**PLAIN, "temperature": 1.5}, TEXT), (PLAIN, Policy(votes="text", temperature=2))],
)
async def test_calls_and_hot_samples_are_not_certified(asked: dict[str, Any], policy: Policy) -> None:
    async with voted(likely(0.9, "four"), policy) as (double, served):
        assert (await posted(served, "chat/completions", asked))[0] == 200
    assert [("logprobs" in each.json) for each in double.requests] == [False] * 3


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
async def test_where_every_reply_is_the_end_one_sample_is_enough(path: str) -> None:
    async with voted(saying("four", "five")) as (double, served):
        status, _, headers = await posted(served, path, {**PLAIN, "max_tokens": 9})
        assert (status, headers["x-microagents-elected"], len(double.requests)) == (200, "true", 1)
        assert (await posted(served, path, {**PLAIN, "max_tokens": 9, "tools": [{"name": "read"}]}))[0] == 200
    assert len(double.requests) == 4
