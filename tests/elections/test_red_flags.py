"""Red flags that a reply has before it is read."""

from __future__ import annotations

from typing import Any

import pytest

from microagents.elections.red_flags import CUT_OFF, EMPTY, TOO_LONG, flag_unread
from microagents.replies.chat import Sample, Usage


def sample(text: str = "move = 1", finish: str = "stop", output_tokens: int | None = 10) -> Sample:
    return Sample(text=text, finish=finish, usage=Usage(output_tokens=output_tokens))


@pytest.mark.parametrize(
    ("given", "limit", "flag"),
    [
        ({}, 750, None),
        ({"finish": "length"}, 750, CUT_OFF),
        *[({"finish": finish}, 750, finish) for finish in ("refusal", "content_filter", "tool_use")],
        ({"output_tokens": 750}, 750, None),
        ({"output_tokens": 751}, 750, TOO_LONG),
        ({"text": "word " * 100_000, "output_tokens": 700}, 750, None),  # neither characters nor words are counted
        ({"text": "word " * 100_000, "output_tokens": None}, 750, None),
        ({"output_tokens": 10**6}, None, None),
        *[({"text": text, "output_tokens": 0}, 750, EMPTY) for text in ("", " ", "\n\t \r\n", "\u00a0")],
        ({"text": "", "finish": "length", "output_tokens": 2048}, 750, CUT_OFF),  # the first reason counts
        ({"text": "", "output_tokens": 2048}, 750, TOO_LONG),
    ],
)
def test_a_reply_is_flagged_by_the_first_reason(given: dict[str, Any], limit: int | None, flag: str | None) -> None:
    assert flag_unread(sample(**given), limit) == flag
