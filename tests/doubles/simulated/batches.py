"""A provider's desk for batches: OpenAI's files and background responses, Anthropic's message batches, with faults that were asked for."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from aiohttp import web
from msgspec import Struct, field

from microagents.base.errors import MicroagentsError
from microagents.models.model import Call
from microagents.replies.chat import Sample
from tests.doubles.simulated.requested_calls import RequestedCalls
from tests.doubles.simulated.sample_keys import read_key
from tests.doubles.simulated.wires import Wire

MARK = "microagents"
PAGE = 100


class BatchFaults(Struct, frozen=True, kw_only=True):
    """Faults of a desk. Shares are of batches, or of lines, and are drawn from a seed."""

    seed: int = 0
    upload_s: float = 0.0
    """Time that an upload takes."""
    late_s: float = 0.0
    """Time from the create to the results."""
    poll_s: float | None = None
    """Seconds after which the desk wants to be asked again."""
    lag_s: float = 0.0
    """Time after which a batch is in the list."""
    unseen_s: float = 0.0
    """Time after a create in which the batch answers 404."""
    flicker: float = 0.0
    """Share of questions about a batch that are answered 404."""
    made_500: float = 0.0
    """Share of creates that succeed and answer 500."""
    unmade_500: float = 0.0
    """Share of creates that answer 500 and make nothing."""
    vanished: int = 0
    """Number of first batches that are bought and never seen again."""
    failed: float = 0.0
    """Share of lines that fail, and are not billed."""
    expired: float = 0.0
    """Share of lines that expire, and are not billed."""
    missing: float = 0.0
    """Share of lines that are billed and have no result."""
    doubled: float = 0.0
    """Share of lines whose result stands twice."""
    broken: bool = False
    """Whether files of results are no JSON."""
    without_marks: bool = False
    """Whether metadata are dropped, as by servers that do not know them."""
    odd_times: bool = False
    """Whether batches say in words when they were made."""
    refused: int = 0
    """Status by which every create is refused; 0 for none."""


class Made(Struct, kw_only=True):
    """A batch at the desk."""

    id: str
    wire: Wire
    lines: dict[str, dict[str, Any]]
    """Bodies by their ids."""
    made_s: float
    metadata: dict[str, str]
    file: str = ""
    is_vanished: bool = False
    is_cancelled: bool = False
    results: list[dict[str, Any]] | None = None
    errors: list[dict[str, Any]] = field(default_factory=list)


class BatchDesk:
    """Takes batches, and answers them later.

    Args:
        wires: the wires of single requests, by their path.
        calls: makes calls of requests.
        draw: draws the samples of calls.
        faults: the faults.
        seed: their seed.
        keys: a file with the id of each line and the idempotency key that it stands for; None to draw by the order of requests.
    """

    def __init__(
        self,
        wires: Sequence[Wire],
        calls: RequestedCalls,
        draw: Callable[[Sequence[Call]], Awaitable[list[Sample]]],
        faults: BatchFaults,
        *,
        seed: int,
        keys: Path | None,
    ) -> None:
        self._wires = {wire.path: wire for wire in wires}
        self._calls, self._draw = calls, draw
        self.faults = faults
        self._random = Random(seed + faults.seed)
        self._keys_at, self._keys = keys, dict[str, str]()
        self._numbers = count(1)
        self._files: dict[str, tuple[str, bytes]] = {}
        self.made: dict[str, Made] = {}
        self.rows_singly = set[int]()
        """Rows that were asked about by single calls."""
        self.bought = Counter[str]()
        """How often each line was drawn, and billed."""
        self.creates = Counter[str]()
        """Creates by their answer."""
        self.events = Counter[str]()
        """Points of batches' lives that were met."""
        self.most_unsent = 0
        """Most batches whose upload had begun, and whose create had not."""
        self.on_event: Callable[[str], None] | None = None
        """Called at each of them, before the answer."""

    def _meet(self, event: str) -> None:
        self.events[event] += 1
        if self.on_event is not None:
            self.on_event(event)

    def add_routes(self, application: web.Application) -> None:
        """Add all routes but that of single responses."""
        for method, path, handler in (
            ("POST", "/v1/files", self._upload),
            ("GET", "/v1/files/{id}", self._file),
            ("GET", "/v1/files/{id}/content", self._content),
            ("POST", "/v1/batches", self._create_from_file),
            ("GET", "/v1/batches", self._list),
            ("GET", "/v1/batches/{id}", self._state),
            ("POST", "/v1/batches/{id}/cancel", self._cancel),
            ("POST", "/v1/messages/batches", self._create_of_messages),
            ("GET", "/v1/messages/batches", self._list),
            ("GET", "/v1/messages/batches/{id}", self._state),
            ("GET", "/v1/messages/batches/{id}/results", self._results),
            ("POST", "/v1/messages/batches/{id}/cancel", self._cancel),
            ("GET", "/v1/responses/{id}", self._state),
            ("POST", "/v1/responses/{id}/cancel", self._cancel),
            ("DELETE", "/v1/responses/{id}", self._delete),
            ("GET", "/desk", self._tell),
        ):
            application.router.add_route(method, path, handler)

    async def _tell(self, _: web.Request) -> web.Response:
        """Tell the bills and the events."""
        return web.json_response({"bought": self.bought, "creates": self.creates, "events": self.events})

    # -- creates ----------------------------------------------------------------------------------------------------------------------

    async def _upload(self, request: web.Request) -> web.Response:
        self._meet("upload")
        self.most_unsent = max(self.most_unsent, self.events["upload"] - self.events["create"])
        await asyncio.sleep(self.faults.upload_s)
        parts = await request.post()
        given = parts["file"]
        assert isinstance(given, web.FileField)
        assert parts["purpose"] == "batch"
        name = f"file-{next(self._numbers)}"
        self._files[name] = given.filename, given.file.read()
        return web.json_response({"id": name, "object": "file", "filename": given.filename, "purpose": "batch"})

    async def _create_from_file(self, request: web.Request) -> web.Response:
        asked = await request.json()
        lines = [json.loads(line) for line in self._files[asked["input_file_id"]][1].splitlines() if line.strip()]
        assert asked["completion_window"] == "24h"
        assert {line["url"] for line in lines} == {asked["endpoint"]}
        bodies = {line["custom_id"]: line["body"] for line in lines}
        marks = {} if self.faults.without_marks else asked.get("metadata") or {}
        return self._create(self._wires[asked["endpoint"]], bodies, marks, asked["input_file_id"])

    async def _create_of_messages(self, request: web.Request) -> web.Response:
        lines = (await request.json())["requests"]
        return self._create(self._wires["/v1/messages"], {each["custom_id"]: each["params"] for each in lines}, {})

    def create_response(self, body: Mapping[str, Any]) -> web.Response:
        """Take a background response."""
        assert body["store"] is True, "a background reply that is not stored is gone"
        assert body["background_options"]["completion_window"] in ("2h", "8h")
        name = body["metadata"][MARK]
        return self._create(self._wires["/v1/responses"], {name: dict(body)}, {}, kind="resp")

    def _create(
        self,
        wire: Wire,
        lines: dict[str, dict[str, Any]],
        metadata: dict[str, str],
        file: str = "",
        kind: str = "batch",
    ) -> web.Response:
        self._meet("create")
        faults, chance = self.faults, self._random.random()
        if faults.refused:
            return self._refusal(faults.refused)
        if chance < faults.unmade_500:
            self.creates["500, not made"] += 1
            return self._refusal(500)
        made = Made(
            id=f"{kind}_{next(self._numbers)}",
            wire=wire,
            lines=lines,
            made_s=time.time(),
            metadata=metadata,
            file=file,
            is_vanished=len(self.made) < faults.vanished,
        )
        self.made[made.id] = made
        self._meet("made")
        if made.is_vanished:
            self.bought.update(list(lines))
        if chance < faults.unmade_500 + faults.made_500:
            self.creates["500, made"] += 1
            return self._refusal(500)
        self.creates["made"] += 1
        return web.json_response(self._shown(made))

    # -- questions --------------------------------------------------------------------------------------------------------------------

    async def _list(self, request: web.Request) -> web.Response:
        self._meet("list")
        is_of_messages = "messages" in request.path
        shown = [
            self._shown(each)
            for each in reversed(self.made.values())
            if not each.is_vanished
            and time.time() - each.made_s >= self.faults.lag_s
            and (each.wire.path == "/v1/messages") == is_of_messages
        ]
        after = request.query.get("after") or request.query.get("after_id")
        names = [each["id"] for each in shown]
        start = names.index(after) + 1 if after in names else 0
        page = shown[start : start + PAGE]
        return web.json_response({"object": "list", "data": page, "has_more": start + PAGE < len(shown)})

    async def _file(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        if name not in self._files:
            return self._refusal(404)
        return web.json_response({"id": name, "object": "file", "filename": self._files[name][0]})

    async def _state(self, request: web.Request) -> web.Response:
        self._meet("poll")
        made = self._seen(request)
        if made is None:
            return self._refusal(404)
        if self._has_ended(made):
            await self._answer(made)
            self._meet("ended")
        wait = {} if self.faults.poll_s is None else {"retry-after": f"{self.faults.poll_s:g}"}
        return web.json_response(self._shown(made), headers=wait)

    def _seen(self, request: web.Request) -> Made | None:
        made = self.made.get(request.match_info["id"])
        if made is None or made.is_vanished or time.time() - made.made_s < self.faults.unseen_s:
            return None
        return None if self._random.random() < self.faults.flicker else made

    def _has_ended(self, made: Made) -> bool:
        return made.is_cancelled or time.time() - made.made_s >= self.faults.late_s

    async def _cancel(self, request: web.Request) -> web.Response:
        self._meet("cancel")
        made = self.made[request.match_info["id"]]
        made.is_cancelled = True
        return web.json_response(self._shown(made))

    async def _delete(self, request: web.Request) -> web.Response:
        self._meet("delete")
        if self.made.pop(request.match_info["id"], None) is None:
            return self._refusal(404)
        return web.json_response({"id": request.match_info["id"], "deleted": True})

    async def _content(self, request: web.Request) -> web.Response:
        self._meet("results")
        name, _, part = request.match_info["id"].rpartition("-")
        made = self.made.get(name)
        if made is None or self._random.random() < self.faults.flicker:
            return self._refusal(404)
        return self._written(made.errors if part == "errors" else made.results or [])

    async def _results(self, request: web.Request) -> web.Response:
        self._meet("results")
        made = self._seen(request)
        if made is None or made.results is None:
            return self._refusal(404)
        return self._written([*made.results, *made.errors])

    def _written(self, lines: Sequence[dict[str, Any]]) -> web.Response:
        body = "".join([json.dumps(each) + "\n" for each in lines])
        if self.faults.broken:
            body = body[: len(body) // 2]
        return web.Response(text=body, content_type="application/jsonl")

    async def answer_all(self) -> None:
        """Draw all lines that were taken and never asked about: they are billed, too."""
        for made in list(self.made.values()):
            await self._answer(made)

    # -- answers ----------------------------------------------------------------------------------------------------------------------

    async def _answer(self, made: Made) -> None:
        """Draw the samples of all lines, in any order."""
        if made.results is not None or made.is_vanished:
            return
        made.results, faults = [], self.faults
        names = list(made.lines)
        self._random.shuffle(names)
        for name in names:
            chance = self._random.random()
            if made.is_cancelled or chance < faults.expired:
                made.errors.append(self._unserved(made, name, "expired"))
            elif chance < faults.expired + faults.failed:
                made.errors.append(self._unserved(made, name, "failed"))
            else:
                result = await self._result(made, name)
                self.bought[name] += 1
                chance = self._random.random()
                if chance >= faults.missing:
                    made.results += [result] * (2 if chance < faults.missing + faults.doubled else 1)

    async def _result(self, made: Made, name: str) -> dict[str, Any]:
        asked = made.wire.read(json.dumps(made.lines[name]).encode())
        try:
            samples = await self._draw(self._calls.of(asked, self._key_of(name)))
            status, body = 200, made.wire.whole(asked, samples, next(self._numbers))
        except MicroagentsError as error:
            status, body = 400, made.wire.error(400, str(error))
        if made.wire.path == "/v1/messages":
            if status != 200:
                return {"custom_id": name, "result": {"type": "errored", "error": body}}
            body["usage"]["service_tier"] = "batch"
            return {"custom_id": name, "result": {"type": "succeeded", "message": body}}
        body["service_tier"] = "default"
        return {
            "id": f"req_{name}",
            "custom_id": name,
            "response": {"status_code": status, "body": body},
            "error": None,
        }

    def _unserved(self, made: Made, name: str, why: str) -> dict[str, Any]:
        if made.wire.path == "/v1/messages":
            if why == "expired":
                return {"custom_id": name, "result": {"type": "expired"}}
            error = {"type": "error", "error": {"type": "api_error", "message": why}}
            return {"custom_id": name, "result": {"type": "errored", "error": error}}
        response = {"status_code": 500, "body": made.wire.error(500, why)} if why == "failed" else None
        code = {"code": "batch_expired", "message": why}
        return {"id": f"req_{name}", "custom_id": name, "response": response, "error": code}

    def rows_after(self, rounds: int) -> set[int]:
        """Return the rows that were asked about in more batches than this."""
        asked = Counter(row for each in self.made.values() for row in {self.row_of(line) for line in each.lines})
        return {row for row, number in asked.items() if number > rounds}

    def row_of(self, line: str) -> int:
        """Return the row that a line is about."""
        key = read_key(self._key_of(line) or "")
        assert key is not None
        return key.id.election.input

    def _key_of(self, line: str) -> str | None:
        if self._keys_at is None:
            return None
        if line not in self._keys:
            pairs = [(text[:32], text[33:]) for text in self._keys_at.read_text().splitlines()]
            self._keys.update(dict(pairs))
        return self._keys[line]

    # -- forms ------------------------------------------------------------------------------------------------------------------------

    def _shown(self, made: Made) -> dict[str, Any]:
        has_ended = made.results is not None
        if made.id.startswith("resp"):
            return self._shown_response(made)
        if made.wire.path == "/v1/messages":
            served = len(made.results or ())
            counts = {"processing": 0 if has_ended else len(made.lines), "succeeded": served, "errored": 0}
            counts["expired"] = len(made.lines) - served if has_ended else 0
            made_at = self._said_time(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(made.made_s)))
            state = "ended" if has_ended else "in_progress"
            return {"id": made.id, "processing_status": state, "request_counts": counts, "created_at": made_at}
        return {
            "id": made.id,
            "object": "batch",
            "status": "completed" if has_ended else "in_progress",
            "input_file_id": made.file,
            "output_file_id": f"{made.id}-results" if made.results else None,
            "error_file_id": f"{made.id}-errors" if made.errors else None,
            "metadata": made.metadata or None,
            "created_at": self._said_time(int(made.made_s)),
        }

    def _said_time(self, at: object) -> object:
        return "just now" if self.faults.odd_times else at

    def _shown_response(self, made: Made) -> dict[str, Any]:
        if made.results:
            return {**made.results[0]["response"]["body"], "id": made.id}
        state = "failed" if made.results is not None else "queued"
        return {"id": made.id, "object": "response", "status": state, "background": True, "output": []}

    def _refusal(self, status: int) -> web.Response:
        error = {"message": "a fault that was asked for", "type": "server_error", "param": None, "code": None}
        return web.json_response({"error": error}, status=status)
