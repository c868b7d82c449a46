"""`microagents try --setup`: a line for each thing that is needed, and what to do where it is missing; no paid call but of a tool."""

from __future__ import annotations

import json
import re
import resource
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from microagents.runs import doctor
from microagents.runs.doctor import Finding, examine
from microagents.tasks.drift import Drift
from tests.cli.commands import COMPLETED, FAILED, WRONG_USAGE, microagents
from tests.doubles.simulated.server import Endpoint, serving
from tests.models import server as scripted
from tests.models.server import Answer
from tests.models.server import serving as answering

RUNS = Path("runs")
MODELS = {"data": [{"id": "gpt-6-luna"}, {"id": "gpt-6-sol"}]}


@pytest.fixture(autouse=True)
def without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "OPENAI_BASE_URL",
        "ANTHROPIC_BASE_URL",
        "RAY_ADDRESS",
    ):
        monkeypatch.delenv(name, raising=False)


def found(findings: list[Finding], subject: str) -> tuple[str, str]:
    (one,) = [each for each in findings if each.subject.endswith(subject)]
    return one.state, one.said


async def findings_of(*answers: Answer, name: str = "gpt-6-luna") -> list[Finding]:
    async with answering(*answers) as server:
        findings = await examine([f"openai:{name}@base_url={server.url}"], RUNS)
    first, *others = [(request.path, request.body) for request in server.received]
    assert first == ("/models", b"")
    assert set(others) <= {("/metrics", b""), ("/chat/completions", b"{}")}, "nothing paid is asked for"
    assert all(("authorization" in request.headers) == (request.path != "/metrics") for request in server.received)
    return findings


def test_for_the_simulated_model_nothing_is_missing_and_each_key_is_named() -> None:
    ended = microagents("try", "--setup")
    assert ended.code == COMPLETED
    lines = [line.split(None, 1) for line in ended.out.splitlines()]
    assert {state for state, _ in lines} == {"ok", "optional"}
    for subject in ("sim:gpt-4.1-mini", "open files", "Ray", "disk", "clock"):
        assert any(said.startswith(subject) for state, said in lines if state == "ok")
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        assert any(f"${name} is not set; set it to use" in said for state, said in lines if state == "optional")
    assert "none is set: only simulated models and servers without a key can be asked" in ended.out


def test_json_has_the_same_and_a_missing_key_of_a_named_model_is_a_failure() -> None:
    ended = microagents("try", "--setup", "--model", "openai:gpt-6-luna", "--json")
    (one,) = [each for each in json.loads(ended.out) if each["state"] == "missing"]
    assert ended.code == FAILED
    assert "set the environment variable OPENAI_API_KEY" in one["said"]


def test_a_wrong_model_is_said_in_one_line() -> None:
    assert microagents("try", "--setup", "--model", "sim:gpt-9").code == FAILED
    assert microagents("try", "--setup", "--model", "nonsense").code == WRONG_USAGE


async def test_a_provider_that_answers_tells_key_model_price_and_clock() -> None:
    findings = await findings_of(scripted.reply(MODELS, headers={"date": "Wed, 21 Oct 2020 07:28:00 GMT"}))
    assert found(findings, "endpoint")[0] == "ok"
    assert found(findings, "model") == ("ok", "is served")
    assert found(findings, "clock")[0] == "optional"
    assert "ahead of the provider's; set it" in found(findings, "clock")[1]


@pytest.mark.parametrize(
    ("hits", "said"), [(750, "75 % of 1,000 "), (0, "0 % of 1,000 prompt tokens .* session=prompt$")]
)
async def test_the_share_of_the_prefix_cache_is_read_from_the_metrics_of_vllm(hits: int, said: str) -> None:
    metrics = "\n".join(
        [
            "# TYPE vllm:prefix_cache_queries counter",
            'vllm:prefix_cache_queries_total{engine="0",model_name="m"} 600.0',
            'vllm:prefix_cache_queries_total{engine="1",model_name="m"} 4e+02',
            f'vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} {hits:.1f}',
            'vllm:prefix_cache_hits_created{engine="0",model_name="m"} 1.7e+09\n',
        ]
    )
    async with answering(scripted.reply(MODELS), scripted.raw(b"HTTP/1.1 200 OK\r\n\r\n" + metrics.encode())) as server:
        findings = await examine([f"openai:gpt-6-luna@base_url={server.url}/v1"], RUNS)
    assert [request.path for request in server.received] == ["/v1/models", "/metrics"]
    assert re.match(said, found(findings, "prefix cache")[1])


async def test_a_key_that_is_refused_and_a_model_that_is_unknown_are_said() -> None:
    refused = await findings_of(scripted.reply({}, 401))
    assert any(each.state == "missing" and "refuses the key (HTTP 401)" in each.said for each in refused)
    unknown = await findings_of(scripted.reply(MODELS), name="gpt-6-lunar")
    state, said = found(unknown, "model")
    assert (state, "is not among the 2 models" in said, "today's nearest is gpt-6-luna" in said) == (
        "optional",
        True,
        True,
    )


async def test_a_model_with_an_announced_end_names_its_day_and_what_takes_its_place() -> None:
    said = found(await findings_of(scripted.reply({"data": []}), name="gpt-4o-mini"), "model")[1]
    assert "it will be shut down on 2027-01-14" in said or "was shut down on 2027-01-14" in said
    assert "today's nearest is gpt-6-luna" in said


@pytest.mark.parametrize("body", [b"<html>", b'{"data": "many"}'])
async def test_a_list_that_cannot_be_read_is_no_list(body: bytes) -> None:
    assert found(await findings_of(scripted.reply(body)), "model") == ("ok", "is not checked")


async def test_a_provider_that_does_not_answer_takes_no_longer_than_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CHECK_S", 0.3)
    findings = await findings_of(scripted.silent())
    assert any(each.state == "missing" and "no answer within 0.3 s" in each.said for each in findings)


async def test_nobody_listening_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CHECK_S", 100.0)  # the SDK is imported meanwhile
    findings = await examine(["anthropic:m@base_url=http://127.0.0.1:1"], RUNS)
    assert "cannot be reached: no connection to 127.0.0.1:1" in found(findings, "endpoint")[1]
    assert found(findings, "model") == ("missing", "cannot be checked, since the endpoint cannot be reached")


async def test_an_address_that_does_not_know_the_path_of_requests_is_told_with_the_one_that_was_meant() -> None:
    findings = await findings_of(scripted.reply(MODELS), scripted.reply(b""), scripted.reply(b"", 404))
    state, said = found(findings, "endpoint")
    assert state == "missing"
    assert re.search(r"does not know /chat/completions; did you mean base_url=http://127.0.0.1:\d+/v1$", said)


async def test_an_endpoint_of_serve_is_ready() -> None:
    async with serving(Endpoint(model="sim:perfect", task=Drift())) as served:
        for spec in (f"openai:any@base_url={served.url}/v1", f"anthropic:any@base_url={served.url}"):
            assert [each for each in await examine([spec], RUNS) if each.state == "missing"] == []


class Usage(NamedTuple):
    total: int
    used: int
    free: int


async def test_few_open_files_and_a_full_disk_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    monkeypatch.setattr("microagents.runs.doctor.shutil.disk_usage", lambda _: Usage(1, 1, 2**20))
    findings = await examine(["sim:perfect"], RUNS)
    assert "raise the limit: ulimit -n 4096" in found(findings, "open files")[1]
    assert found(findings, "disk")[0] == "missing"


CALLED = {"name": "note", "arguments": '{"text": "ready"}'}
IN_TEXT = 'calls = [{"tool": "note", "arguments": {"text": "ready"}}]'


@pytest.mark.parametrize(
    ("native", "text", "state", "said"),
    [
        ({"tool_calls": [{"id": "a", "function": CALLED}]}, "", "ok", "the model calls tools natively"),
        ({"content": "Noted."}, IN_TEXT, "optional", "calls tools in its text only; give calls=text in the spec"),
        ({"content": "Noted."}, "Noted.", "optional", "the model called no tool; it said 'Noted.'"),
    ],
)
async def test_one_call_tells_how_a_model_calls_tools(native: dict[str, Any], text: str, state: str, said: str) -> None:
    replies = [{"choices": [{"message": each, "finish_reason": "stop"}]} for each in (native, {"content": text})]
    listed = scripted.reply({"data": [{"id": "m"}]})
    answers = [listed, listed, *map(scripted.reply, replies)]
    async with answering(*answers) as server:
        findings = await examine([f"openai:m@base_url={server.url}/v1"], RUNS, asks_calls=True)
    assert found(findings, " calls") == (state, found(findings, " calls")[1])
    assert said in found(findings, " calls")[1]
