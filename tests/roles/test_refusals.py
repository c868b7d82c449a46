"""Questions that a provider refuses for their content: two refusals in a row before any valid reply end the election."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest

from microagents import Call, ModelUnavailable, Prompt, Reply, Result, RowTask, Sample, resume, run
from microagents.cli.reporting import EXIT_CODES
from microagents.elections.red_flags import known_finish
from microagents.models.model import Model
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from microagents.tasks.drift import Drift
from tests.models.server import Answer, Connection, reply, serving
from tests.models.wires import ANTHROPIC, OPENAI, RESPONSES, Provider

ROWS, BAD = 6, 3
"""Number of rows, and the one whose text providers refuse."""


class Label(Reply, frozen=True):
    label: Literal["good", "bad"]


class Labels(RowTask[Label]):
    def prompt(self, row: dict[str, Any]) -> Prompt:
        return Prompt(system="Label the text.", user=row["text"])


def labels() -> list[Labels]:
    return [Labels(row={"text": f"text {number}"}) for number in range(ROWS)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "none")


class Asked(Model):
    """Answers each call with what a function of its prompt and its seq gives, after a time at random: a finish reason, or a valid reply."""

    def __init__(self, spec: str, finish_of: Callable[[str, int], str], seed: int = 0) -> None:
        self.spec = spec
        self.calls: list[str] = []
        self._finish_of = finish_of
        self._random = Random(seed)

    async def complete(self, call: Call) -> Sample:
        self.calls.append(call.prompt.user)
        await asyncio.sleep(self._random.uniform(0.1, 5))
        finish = self._finish_of(call.prompt.user, call.id.seq)
        text = "" if finish else 'label = "good"'
        return Sample(text=text, finish=known_finish(finish or "stop"))


def label(*models: Model, k: int = 2, seed: int = 0, **options: Any) -> Result:
    return run_virtual(run(labels(), models=[*models], strategy=Maker(k=k), **{"runs_dir": None, **options}), seed=seed)


def row(result: Result) -> dict[str, Any]:
    return [*result.rows()][BAD]


async def answered(
    provider: Provider,
    refuse: Callable[[], Answer],
    *,
    all_rows: bool = False,
    options: str = "",
    then: bool = False,
    k: int = 2,
) -> tuple[Result, list[str]]:
    """The run over rows of which a server refuses one, or all; and the prompts that it was asked, after a resume with ``then``."""

    async def answer(connection: Connection) -> None:
        body = server.received[-1].json
        text = body["input"] if provider is RESPONSES else body["messages"][-1]["content"]
        asked.append(text)
        is_bad = text.startswith(f"text {BAD}") or all_rows
        good = provider.good('label = "good"')
        if "choices" in good:
            good["choices"] = [{**good["choices"][0], "index": each} for each in range(body.get("n", 1))]
        await (refuse() if is_bad else reply(good))(connection)

    asked: list[str] = []
    async with serving(answer) as server:
        spec = f"{provider.name}:m@base_url={server.url}{options}"
        result = await run(labels(), models=spec, strategy=Maker(k=k), run_id="r", concurrency=2)
        if then:
            asked.clear()
            result = await resume("r")
    return result, asked


def said_no(provider: Provider) -> Answer:
    body = provider.good("")
    if provider is OPENAI:
        body["choices"][0]["message"] = {"content": None, "refusal": "I cannot label that."}
    else:
        body["output"][0]["content"] = [{"type": "refusal", "refusal": "I cannot label that."}]
    return reply(body)


def refusal_of(status: int, message: str, **more: str) -> Answer:
    return reply({"error": {"message": message, **more}}, status)


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    ("provider", "refuse", "words"),
    [
        (OPENAI, lambda: reply(OPENAI.good("", finish="content_filter")), "content_filter: the provider refused"),
        (OPENAI, lambda: said_no(OPENAI), "refusal: I cannot label that."),
        (RESPONSES, lambda: reply(RESPONSES.good("", finish="content_filter")), "content_filter"),
        (ANTHROPIC, lambda: reply(ANTHROPIC.good("", finish="refusal")), "refusal"),
        (
            OPENAI,
            lambda: refusal_of(400, "the prompt is filtered", code="content_filter"),
            "content_filter: the prompt is filtered (HTTP 400",
        ),
        (OPENAI, lambda: refusal_of(403, "Input flagged by moderation"), "Input flagged by moderation (HTTP 403"),
        (
            OPENAI,
            lambda: refusal_of(500, "of a gateway", code="content_filter"),
            "content_filter: of a gateway (HTTP 400",
        ),
        (OPENAI, lambda: reply({"detail": "9000 tokens, and 4096 fit"}, 422), "9000 tokens, and 4096 fit (HTTP 422"),
    ],
)
async def test_a_row_that_the_provider_refuses_is_asked_twice_and_ends_as_refused_in_its_words(
    provider: Provider, refuse: Callable[[], Answer], words: str
) -> None:
    result, asked = await answered(provider, refuse)
    assert (result.outcome, EXIT_CODES[result.outcome], len(asked)) == ("refused", 6, 2 * ROWS)
    assert result.failed_inputs is not None
    assert [(each.input, each.outcome) for each in result.failed_inputs] == [(BAD, "refused")]
    assert (row(result)["state"], words in row(result)["why"]) == ("refused", True)
    assert f"1 refused, the others are completed; input {BAD}: {words[:7]}" in str(result.reason)


AGAINST = "against the rules"
BEGUN = {"choices": [{"index": 0, "delta": {"content": "lab"}, "finish_reason": None}]}
BROKEN = {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]}
ERROR = {"error": {"message": AGAINST, "code": 400}}
INVALID = {"type": "error", "error": {"type": "invalid_request_error", "message": AGAINST}}
MESSAGE = {"type": "message_start", "message": {"content": [], "stop_reason": None}}
FAILED = {"type": "response.failed", "response": {"status": "failed", "output": [], **ERROR}}


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    ("provider", "events", "options"),
    [
        (OPENAI, [BEGUN, ERROR], ""),
        (OPENAI, [BEGUN, ERROR], ",votes_per_request=2"),
        (OPENAI, [BEGUN, {**BROKEN, **ERROR}], ",votes_per_request=2"),
        (OPENAI, [BEGUN, BROKEN, ERROR], ""),
        (OPENAI, [BEGUN, {"choices": [{**BROKEN["choices"][0], **ERROR}]}], ",votes_per_request=2"),
        (OPENAI, [BEGUN, {"error": AGAINST, "status_code": 422}], ""),
        (RESPONSES, [{"type": "response.created", "response": {"status": "in_progress"}}, INVALID], ""),
        (RESPONSES, [{"type": "response.output_text.delta", "delta": "lab"}, FAILED], ""),
        (
            ANTHROPIC,
            [MESSAGE, {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "lab"}}, INVALID],
            "",
        ),
    ],
)
async def test_a_refusal_within_a_stream_counts_as_any_other(
    provider: Provider, events: list[dict[str, Any]], options: str
) -> None:
    body = b"".join(b"event: e\ndata: " + json.dumps(each).encode() + b"\n\n" for each in events)
    result, asked = await answered(provider, lambda: reply(body), options=options)
    of_row = sum(each.startswith(f"text {BAD}") for each in asked)
    assert (result.outcome, of_row, AGAINST in row(result)["why"]) == ("refused", 2, True)


@pytest.mark.parametrize(
    "refuse",
    [
        lambda: refusal_of(400, "The model `m` does not exist", code="model_not_found"),
        lambda: refusal_of(400, "no"),
    ],
)
async def test_a_refusal_of_every_request_is_a_failure_of_the_run_as_ever(refuse: Callable[[], Answer]) -> None:
    result, asked = await answered(OPENAI, refuse, all_rows=True)
    assert (result.outcome, len(asked) <= 2 * ROWS) == ("failed", True)
    assert result.failed_inputs is not None
    assert [each.outcome for each in result.failed_inputs] == ["failed"] * ROWS
    async with serving(refuse()) as server:
        with pytest.raises(ModelUnavailable, match="answered 'refused'"):
            await run(Drift(length=2), models=f"openai:m@base_url={server.url}", k=2, runs_dir=None)


async def test_a_resumed_run_asks_a_filtered_row_no_more_and_a_request_that_was_not_accepted_again() -> None:
    result, asked = await answered(OPENAI, lambda: reply(OPENAI.good("", finish="content_filter")), then=True)
    assert (result.outcome, asked, "content_filter" in row(result)["why"]) == ("refused", [], True)


async def test_a_request_for_several_samples_that_is_not_accepted_refuses_all_of_them() -> None:
    result, asked = await answered(OPENAI, lambda: refusal_of(413, "no"), options=",votes_per_request=2", k=3)
    of_row = sum(each.startswith(f"text {BAD}") for each in asked)
    assert (result.outcome, of_row) == ("refused", 2), "the first sample, and the others in one request"


@pytest.mark.parametrize("seed", range(2))
def test_refusals_count_in_launch_order_whatever_arrives_first(seed: int) -> None:
    def fourth_time_lucky(text: str, seq: int) -> str:
        if not text.startswith(f"text {BAD}"):
            return ""
        return ["", "content_filter", "content_filter", "refusal", ""][min(seq, 4)]

    result = label(Asked("a", fourth_time_lucky, seed), seed=seed)
    assert (result.outcome, result.account.flagged) == ("completed", {"content_filter": 2, "refusal": 1})

    def in_a_row(text: str, seq: int) -> str:
        if not text.startswith(f"text {BAD}"):
            return ""
        return ["content_filter", "length", "content_filter", "refusal", ""][min(seq, 4)]

    result = label(Asked("a", in_a_row, seed), seed=seed)
    assert (result.outcome, result.account.flagged) == ("refused", {"content_filter": 2, "cut_off": 1, "refusal": 1})


async def test_another_model_settles_what_is_refused() -> None:
    async def answer(connection: Connection) -> None:
        body = server.received[-1].json
        is_refused = body["model"] == "strict" and body["messages"][-1]["content"].startswith(f"text {BAD}")
        finish = "content_filter" if is_refused else "stop"
        await reply(OPENAI.good('label = "good"', finish=finish))(connection)

    async with serving(answer) as server:
        strict, other = (f"openai:{name}@base_url={server.url}" for name in ("strict", "other"))
        result = await run(labels(), models=strict, on_undecided=other, strategy=Maker(k=2), runs_dir=None)
    assert (result.outcome, result.account.settled_at) == ("completed", {f"{BAD}/step/0/undecided": other})
    assert len(server.received) == 2 * ROWS + 2


async def test_a_chain_keeps_the_steps_before_the_one_that_is_refused() -> None:
    class Stops(Model):
        spec = "stops"

        async def complete(self, call: Call) -> Sample:
            number = int(call.prompt.user.removeprefix("Number: "))
            is_late = call.id.election.path != "0/step/0"
            return Sample(text=f"number = {(number * 17 + 5) % 1009}", finish="content_filter" if is_late else "stop")

    result = await run(Drift(length=3), models=Stops(), k=2, runs_dir="runs")
    assert (result.outcome, result.account.steps) == ("refused", 1)
    assert "content_filter: number = " in str(result.reason)
