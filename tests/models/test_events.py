"""Events of streams put together."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from microagents.models.http.events import StreamedReply

BEGINS: dict[str, list[dict[str, Any]]] = {
    "messages": [{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}],
    "responses": [
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}},
    ],
}
PIECES: dict[str, dict[str, Any]] = {
    "messages": {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": "four words a piece "},
    },
    "responses": {"type": "response.output_text.delta", "output_index": 0, "delta": "four words a piece "},
}


def taken_s(wire: str, pieces: int) -> float:
    """Processor time of a reply of so many pieces."""
    reply, piece = StreamedReply(1), b"data: " + json.dumps(PIECES[wire]).encode()
    began_s = time.process_time()
    for event in BEGINS[wire]:
        reply.read(b"data: " + json.dumps(event).encode())
    for _ in range(pieces):
        reply.read(piece)
    assert json.dumps(reply.whole()).count("four words") == pieces
    return time.process_time() - began_s


@pytest.mark.slow
@pytest.mark.parametrize("wire", BEGINS)
def test_the_time_of_a_streamed_reply_grows_with_its_length_and_not_with_the_square(wire: str) -> None:
    few_s = min(taken_s(wire, 5_000) for _ in range(3))
    assert taken_s(wire, 60_000) < 3 * 12 * few_s
