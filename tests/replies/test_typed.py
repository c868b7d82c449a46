"""Replies as persons type them: fields by name, in words of their types."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from microagents.replies.reply import Reply
from microagents.replies.reply_forms import decoder_of
from microagents.replies.typed import fields_in, reply_json


class Move(Reply, frozen=True):
    """A move, with all kinds of fields."""

    text: str = ""
    number: int | str = 0
    price: Decimal | None = None
    sure: bool = False
    parts: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    state: tuple[tuple[int, ...], ...] = ()
    anything: Any = None


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ("text=the red house number=3", {"text": "the red house", "number": 3}),
        ("text=a=b no=field", {"text": "a=b no=field"}),
        ('text="Yes", he said', {"text": '"Yes", he said'}),
        ('text="Yes"', {"text": '"Yes"'}),
        ("text=3", {"text": "3"}),
        ("text=null price=null", {"text": "null", "price": None}),
        ("number=three", {"number": "three"}),
        ("price=12.30 sure=true", {"price": Decimal("12.30"), "sure": True}),
        ("parts=1, 2, 3 names=Ada, Bo", {"parts": (1, 2, 3), "names": ("Ada", "Bo")}),
        ("state=[[3, 2], [], [1]]", {"state": ((3, 2), (), (1,))}),
        ("state=[3], [] names=", {"state": ((3,), ()), "names": ()}),
        ("anything=a text", {"anything": "a text"}),
    ],
)
def test_fields_that_a_person_types_are_read_by_their_types(words: str, fields: dict[str, Any]) -> None:
    written = reply_json(fields_in(words, Move), Move)
    assert decoder_of(Move).decode(written) == Move(**fields)


@pytest.mark.parametrize("words", ["", "the red house", "so text=3", '{"text": "a=b"}'])
def test_other_words_name_no_fields(words: str) -> None:
    assert fields_in(words, Move) == {}


def test_an_unknown_first_name_is_kept_to_be_refused() -> None:
    assert fields_in("txt=3 number=4", Move) == {"txt": "3", "number": "4"}
    assert msgspec.json.decode(reply_json({"txt": "3"}, Move)) == {"txt": "3"}
