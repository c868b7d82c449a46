"""Lines of results files in the dialects of providers: a reply is never bought again, and a refused request not sent again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from microagents.elections.sample_batches import LINE_BYTES, SampleBatch
from microagents.models.http.batch_wires import AnthropicBatches, BatchWire, OpenAIFiles, ResponseWindows, Result
from microagents.models.http.refusals import Redaction
from microagents.models.http.sending import Response, Sender
from tests.models import server as scripted

LINE = b"\x01" * LINE_BYTES
BODY: dict[str, Any] = {"choices": [{"message": {"content": "x = 1"}, "finish_reason": "stop"}]}
BAD = {"type": "invalid_request_error", "message": "the prompt is bad"}
BUSY = {"type": "overloaded_error", "message": "later"}
WHOLE = json.dumps({"custom_id": LINE.hex(), "response": {"status_code": 200, "body": BODY}, "error": None})


async def result_of(wire: type[BatchWire], *answers: object) -> Result:
    batch = SampleBatch(kind="file", model="m", path="/p", account="a", id="b", keys=LINE)
    found: dict[bytes, Result] = {}
    async with scripted.serving(*map(scripted.reply, answers)) as server:
        sender = Sender(server.url, {})
        more = ("8h",) if wire is ResponseWindows else ()
        await wire(sender, "/p", Redaction(None), *more).results(batch, found.__setitem__)
        await sender.close()
    return found[LINE]


async def of_file(line: object) -> Result:
    return await result_of(OpenAIFiles, {"status": "completed", "output_file_id": "f"}, line)


@pytest.mark.parametrize("line", [
    WHOLE, WHOLE.replace("200", '"200"'), WHOLE.replace("200", "200.0"), WHOLE.replace('"status_code": 200, ', ""),
    f"\ufeff{WHOLE}\r\n\r\n", WHOLE.replace("x = 1", "x =\t1"), WHOLE.replace("x = 1", "\\ud83d"),
    WHOLE.replace('"finish_reason"', '"p": NaN, "finish_reason"'),
    WHOLE.replace(json.dumps(BODY), json.dumps([{"data": BODY}])),
    WHOLE.replace(json.dumps(BODY), '{"message": {"content": "x = 1"}, "done": true, "done_reason": "stop"}'),
])  # fmt: skip
async def test_a_reply_in_a_results_file_is_read_in_any_form(line: str) -> None:
    result = await of_file(line.encode())
    assert isinstance(result, Response)
    assert (result.status_code, json.loads(result.content)["choices"][0]["finish_reason"]) == (200, "stop")


@pytest.mark.parametrize(("stated", "status"), [
    ({"response": {"status_code": 400, "body": {"error": BAD}}}, 400), ({"response": None, "error": BAD}, 400),
    ({"response": {"status_code": 400, "body": None}, "error": BAD}, 400),
    ({"response": {"status_code": 200, "body": {"error": BUSY}}}, None),
    ({"response": {"status_code": 400, "body": [{"error": BAD}]}}, 400),
    ({"response": {"status_code": 200, "body": {}}}, None), ({"response": None, "error": {"code": "batch_expired"}}, None),
    ({"response": None, "error": "no"}, None), ({"response": {"status_code": 429, "body": {}}}, None),
])  # fmt: skip
async def test_a_line_without_a_reply_is_refused_or_sent_again_by_its_error(
    stated: dict[str, Any], status: int | None
) -> None:
    result = await of_file({"custom_id": LINE.hex(), **stated})
    assert (result and result.status_code) == status


@pytest.mark.parametrize(("error", "status"), [
    ({"type": "error", "error": BAD}, 400), (BAD, 400), ({"type": "error", "error": {"type": "not_found_error"}}, 404),
    ({"type": "error", "error": BUSY}, None), (None, None),
])  # fmt: skip
async def test_an_error_of_a_batch_of_messages_is_read_nested_or_not(error: object, status: int | None) -> None:
    line = {"custom_id": LINE.hex(), "result": {"type": "errored", "error": error}}
    result = await result_of(AnthropicBatches, line)
    assert (result and result.status_code) == status


@pytest.mark.parametrize(("stated", "status"), [
    ({"status": "completed", "output": []}, 200),
    ({"status": "failed", "error": {"code": "invalid_prompt"}, "output": []}, 400),
    ({"status": "failed", "error": None, "output": []}, None), ({"status": "cancelled", "output": []}, None),
])  # fmt: skip
async def test_a_background_reply_is_taken_refused_or_asked_for_again(
    stated: dict[str, Any], status: int | None
) -> None:
    result = await result_of(ResponseWindows, stated)
    assert (result and result.status_code) == status
