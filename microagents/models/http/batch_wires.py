"""How providers take batches: OpenAI's files, Anthropic's message batches, and OpenAI's background windows of single responses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec

from microagents.base.errors import ModelUnavailable
from microagents.elections.sample_batches import LINE_BYTES, SampleBatch
from microagents.models.http.refusals import Redaction, error_in, failure_kind, retry_after_s, status_told
from microagents.models.http.replies import REPLY_FIELDS, UNREADABLE, decode, name_in, object_in, reply_in
from microagents.models.http.sending import Answered, Body, Response, Sender, in_time
from microagents.models.prices import STANDARD

ASK_S = 60.0
"""Longest wait for an answer about a batch."""
TRANSFER_S = 3600.0
"""Longest upload of lines, and longest download of results."""
PAGES = 10_000
"""Most pages of a list that are read: a server may give the same one for ever."""
LONGEST_S = 90_000.0
"""A batch that may be ours is waited for so long: it ends within a day."""
CLOCK_S = 600.0
"""By how much the clock of a provider may be behind."""
SUCCESS, BAD_REQUEST, SERVER_FAILS = 200, 400, 500
OF_SERVER = (408, 429)
"""Statuses below 500 of lines whose request is not at fault."""
BOUNDARY = "microagents-9b0c6f5e2d7a"
RUNNING = ("queued", "in_progress", "validating", "finalizing", "cancelling", "canceling")
"""States of batches and of background responses without all results."""
Result = Response | None
"""Response to a line; None if it failed for no fault of its request, or was not begun."""
OnResult = Callable[[bytes, Result], None]
"""Gets the id of each line, and its result."""


class BatchWire:
    """A provider's interface for batches. Every request is bounded, and raises `ModelUnavailable`.

    Args:
        sender: sends the requests.
        path: path of single requests.
        redaction: keeps the key out of errors.
    """

    state = "status"
    """Field with the state of a batch."""
    after = "after"
    """Parameter of the list with the last name of the page before."""

    def __init__(self, sender: Sender, path: str, redaction: Redaction) -> None:
        self._sender, self._path, self._redaction = sender, path, redaction
        self._batches = "/batches"

    def line(self, line: bytes, body: Body) -> bytes:
        """Write a request as a line."""
        raise NotImplementedError

    async def prepare(self, batch: SampleBatch, lines: Sequence[bytes]) -> bytes:  # noqa: ARG002 - for providers with files
        """Upload the lines of a batch; returns the request that creates it. A repetition costs nothing."""
        return lines[0]

    async def create(self, request: bytes) -> str:
        """Create a batch by one request that is never repeated here; returns its name."""
        return await self._named(self._sender.forward(self._batches, request, {}))

    async def find(self, batch: SampleBatch, others: Sequence[str]) -> str | None:
        """Look for a batch whose name is unknown, newest first; None if the provider's list has none.

        Args:
            batch: the batch.
            others: names of other batches of the run.
        """
        async for each in self._listed():
            with suppress(KeyError, TypeError, ValueError):  # one that does not say when it was made may be it
                if self._made_at(each) < batch.made_at - CLOCK_S:
                    break
            name = name_in(each.get("id"))
            if name not in others and await self._is_it(each, batch):
                return name
        return None

    def _made_at(self, listed: Mapping[str, Any]) -> float:
        """Return the time at which a listed batch was made.

        Raises:
            KeyError, TypeError, ValueError: it cannot be read.
        """
        raise NotImplementedError

    async def _is_it(self, listed: Mapping[str, Any], batch: SampleBatch) -> bool:
        """Whether a listed batch is the recorded one."""
        raise NotImplementedError

    async def poll(self, name: str) -> float | None:
        """Ask whether a batch has ended: None. Else returns the seconds that the provider wants to wait; 0 if it does not say."""
        answer = await self._ask(self._sender.get(self._of(name)))
        state = name_in(answer.found.get(self.state))
        if not state:
            raise ModelUnavailable("garbled", "the answer about a batch names no state")
        if state not in RUNNING:
            return None
        return retry_after_s(answer.headers) or 0.0

    async def results(self, batch: SampleBatch, on_result: OnResult) -> None:
        """Read all results of an ended batch, in any order."""
        raise NotImplementedError

    async def cancel(self, name: str) -> None:
        """Cancel a batch; finished lines keep their results."""
        await self._ask(self._sender.post(self._of(name, "/cancel"), {}, {}))

    async def delete(self, name: str) -> None:
        """Delete results that are stored for the run alone. Files go after a time of the provider's."""

    def _of(self, name: str, more: str = "") -> str:
        return f"{self._batches}/{quote(name, safe='')}{more}"

    async def _ask(self, asked: Awaitable[Answered], within_s: float = ASK_S) -> Response:
        """Wait for an answer, and decode it."""
        answer = await in_time(asked, within_s)
        if isinstance(answer, ModelUnavailable):
            raise answer
        answer = msgspec.structs.replace(answer, found=_object(answer.content))
        if answer.is_success:
            return answer
        words = self._redaction.sanitize(error_in(answer.found).message) or "no explanation"
        status = answer.status_code
        raise ModelUnavailable(failure_kind(status), words, status, retry_after_s(answer.headers))

    async def _named(self, asked: Awaitable[Answered]) -> str:
        """Return the name in an answer."""
        name = name_in((await self._ask(asked, TRANSFER_S)).found.get("id"))
        if not name:
            raise ModelUnavailable("garbled", "the answer names nothing that was made")
        return name

    async def _read_lines(self, path: str, on_result: OnResult) -> None:
        """Read a file of results; lines of others are left out."""
        unread = []

        def take(text: bytes) -> None:
            found = _object(text)
            try:
                line = bytes.fromhex(found["custom_id"])
            except (KeyError, TypeError, ValueError):
                unread.append(text)
            else:
                on_result(line, self._result(found))

        await self._ask(self._sender.lines(path, take), TRANSFER_S)
        if any(each.strip() for each in unread):
            raise ModelUnavailable("garbled", f"{len(unread):,} lines of its results are not readable")

    def _result(self, found: dict[str, Any]) -> Result:
        """Read the result of a line."""
        raise NotImplementedError

    async def _listed(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the batches of the list, newest first, from one page after the other."""
        path, page = f"{self._batches}?limit=100", ""
        for _ in range(PAGES):
            found = (await self._ask(self._sender.get(path + page))).found
            last = ""
            for each in found.get("data") or ():
                last = name_in(object_in(each).get("id"))
                yield object_in(each)
            if not last or found.get("has_more") is not True:
                return
            page = f"&{self.after}={quote(last)}"


class OpenAIFiles(BatchWire):
    """OpenAI's batches: a file of lines is uploaded, and a batch is created from it."""

    def line(self, line: bytes, body: Body) -> bytes:
        """Write a request as a line of the file."""
        request = {"custom_id": line.hex(), "method": "POST", "url": f"/v1{self._path}", "body": body}
        return msgspec.json.encode(request)

    async def prepare(self, batch: SampleBatch, lines: Sequence[bytes]) -> bytes:
        """Upload the file."""
        part = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="'
        head = f'{part}purpose"\r\n\r\nbatch\r\n{part}file"; filename="{batch.tag}.jsonl"\r\n\r\n'
        data = b"".join([head.encode(), b"\n".join(lines), f"\r\n--{BOUNDARY}--\r\n".encode()])
        headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
        request = {
            "input_file_id": await self._named(self._sender.forward("/files", data, headers)),
            "endpoint": f"/v1{self._path}",
            "completion_window": "24h",
            "metadata": {"microagents": batch.tag},
        }
        return msgspec.json.encode(request)

    def _made_at(self, listed: Mapping[str, Any]) -> float:
        return float(listed["created_at"])

    async def _is_it(self, listed: Mapping[str, Any], batch: SampleBatch) -> bool:
        """Tell it by its metadata, or by the name of its file."""
        metadata = object_in(listed.get("metadata"))
        if metadata:
            return metadata.get("microagents") == batch.tag
        return await self._has_file(listed, batch)

    async def _has_file(self, listed: Mapping[str, Any], batch: SampleBatch) -> bool:
        file = quote(name_in(listed.get("input_file_id")), safe="")
        found = (await self._ask(self._sender.get(f"/files/{file}"))).found
        return bool(found.get("filename") == f"{batch.tag}.jsonl")

    async def results(self, batch: SampleBatch, on_result: OnResult) -> None:
        """Read both files: a batch whose lines all failed has no file of results."""
        found = (await self._ask(self._sender.get(self._of(batch.id)))).found
        for each in ("output_file_id", "error_file_id"):
            if file := name_in(found.get(each)):
                await self._read_lines(f"/files/{quote(file, safe='')}/content", on_result)

    def _result(self, found: dict[str, Any]) -> Result:
        response = object_in(found.get("response"))
        body = object_in(reply_in(response.get("body"))) or {"error": found.get("error")}
        if body.get("service_tier") in STANDARD:
            body["service_tier"] = "batch"
        return _result_of(body, response.get("status_code"))


class AnthropicBatches(BatchWire):
    """Anthropic's message batches: one request has all lines. Lists have no marks, so a lost one is known by its results alone."""

    state, after = "processing_status", "after_id"

    def __init__(self, sender: Sender, path: str, redaction: Redaction) -> None:
        super().__init__(sender, path, redaction)
        self._batches = f"{path}/batches"

    def line(self, line: bytes, body: Body) -> bytes:
        """Write a request of the batch."""
        return msgspec.json.encode({"custom_id": line.hex(), "params": body})

    async def prepare(self, batch: SampleBatch, lines: Sequence[bytes]) -> bytes:  # noqa: ARG002 - it has no name
        """Write the whole request."""
        return b'{"requests":[%s]}' % b",".join(lines)

    def _made_at(self, listed: Mapping[str, Any]) -> float:
        return datetime.fromisoformat(listed["created_at"]).timestamp()

    async def _is_it(self, listed: Mapping[str, Any], batch: SampleBatch) -> bool:
        """Tell it by its number of lines, and by its results, for which this waits."""
        numbers = [each for each in object_in(listed.get("request_counts")).values() if isinstance(each, int)]
        return sum(numbers) == batch.lines and await self._is_same(name_in(listed.get("id")), batch)

    async def _is_same(self, name: str, batch: SampleBatch) -> bool:
        try:
            async with asyncio.timeout(LONGEST_S):
                while (wait_s := await self.poll(name)) is not None:  # noqa: ASYNC110 - the provider has no event
                    await asyncio.sleep(wait_s or ASK_S)
        except TimeoutError:
            return False
        ids = set[bytes]()
        await self._read_lines(self._of(name, "/results"), lambda line, _: ids.add(line))
        return b"".join(sorted(ids)) == batch.keys

    async def results(self, batch: SampleBatch, on_result: OnResult) -> None:
        """Read the results, at our address of the provider: another one would get the key."""
        await self._read_lines(self._of(batch.id, "/results"), on_result)

    def _result(self, found: dict[str, Any]) -> Result:
        result = object_in(found.get("result"))
        return _result_of(object_in(reply_in(result.get("message"))) or {"error": result.get("error")})


class ResponseWindows(BatchWire):
    """OpenAI's background responses: each sample is a request of its own, which the provider answers within a window of hours.

    Responses are in no list, so one whose create had no answer is never found.

    Args:
        sender: sends the requests.
        path: path of responses.
        redaction: keeps the key out of errors.
        window: the window that is asked for, ``2h`` or ``8h``.
    """

    def __init__(self, sender: Sender, path: str, redaction: Redaction, window: str) -> None:
        super().__init__(sender, path, redaction)
        self._batches, self._window = path, window

    def line(self, line: bytes, body: Body) -> bytes:
        """Write the request. It must be stored: without that a background reply is gone after some ten minutes."""
        background = {"background": True, "background_options": {"completion_window": self._window}, "store": True}
        return msgspec.json.encode({**body, **background, "metadata": {"microagents": line.hex()}})

    async def results(self, batch: SampleBatch, on_result: OnResult) -> None:
        """Read the response."""
        found = (await self._ask(self._sender.get(self._of(batch.id)))).found
        if found.get("status") not in ("completed", "incomplete"):
            found = {"error": found.get("error")}
        on_result(batch.keys[:LINE_BYTES], _result_of(found))

    async def delete(self, name: str) -> None:
        """Delete the response."""
        await self._ask(self._sender.delete(self._of(name)))


def _result_of(body: Body, stated: Any = None) -> Result:
    """Return the result of a line by its reply or error, and by the status that is stated beside it, if one is."""
    is_reply = not body.keys().isdisjoint(REPLY_FIELDS)
    try:
        status = int(stated)
    except (TypeError, ValueError, OverflowError):
        status = SUCCESS if is_reply else SERVER_FAILS
    status = status_told(body) or status
    if status >= SERVER_FAILS or status in OF_SERVER or (status < BAD_REQUEST and not is_reply):
        return None
    # Halves of a character stay: one alone is no UTF-8.
    return Response(status_code=status, headers={}, content=json.dumps(body).encode(), found=body)


def _object(content: bytes) -> dict[str, Any]:
    try:
        return object_in(decode(content))
    except UNREADABLE:
        return {}
