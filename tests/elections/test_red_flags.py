"""Red flags that a reply has before it is read."""

from __future__ import annotations

import pytest

from microagents.elections.red_flags import CUT_OFF, EMPTY, TOO_LONG, flag_unread
from microagents.replies.chat import Sample, Usage


def sample(text: str = "move = 1", finish: str = "stop", output_tokens: int | None = 10) -> Sample:
    return Sample(text=text, finish=finish, usage=Usage(output_tokens=output_tokens))


def test_a_reply_that_ended_by_itself_within_the_length_has_no_flag() -> None:
    assert flag_unread(sample(), 750) is None


def test_a_reply_cut_off_at_the_cap_is_flagged_however_readable_and_short_it_is() -> None:
    assert flag_unread(sample(finish="length"), 750) == CUT_OFF


@pytest.mark.parametrize("finish", ["refusal", "content_filter", "tool_use"])
def test_a_reply_that_ended_for_another_reason_is_flagged_by_that_reason(finish: str) -> None:
    assert flag_unread(sample(finish=finish), 750) == finish


@pytest.mark.parametrize(("tokens", "flag"), [(749, None), (750, None), (751, TOO_LONG)])
def test_only_a_reply_above_the_limit_is_too_long(tokens: int, flag: str | None) -> None:
    assert flag_unread(sample(output_tokens=tokens), 750) == flag


def test_length_is_what_the_provider_counts_and_neither_characters_nor_words() -> None:
    assert flag_unread(sample(text="word " * 100_000, output_tokens=700), 750) is None
    assert flag_unread(sample(text="word " * 100_000, output_tokens=None), 750) is None


def test_without_a_limit_no_reply_is_too_long() -> None:
    assert flag_unread(sample(output_tokens=10**6), None) is None


@pytest.mark.parametrize("text", ["", " ", "\n\t \r\n", "\u00a0"])
def test_a_blank_reply_is_empty(text: str) -> None:
    assert flag_unread(sample(text=text, output_tokens=0), 750) == EMPTY


def test_the_first_reason_names_the_flag() -> None:
    assert flag_unread(sample(text="", finish="length", output_tokens=2048), 750) == CUT_OFF
    assert flag_unread(sample(text="", output_tokens=2048), 750) == TOO_LONG
