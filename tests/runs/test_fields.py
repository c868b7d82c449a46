"""Options in words: what each accepts, for messages and for help."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import ConfigDict, Field, create_model, field_validator

from microagents import InvalidUsage, Task
from microagents.runs.fields import FieldInWords, allowed_values, fields_in_words
from microagents.runs.settings import validated


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Parcel(Task):
    weight: Decimal
    """Weight in kilograms, with `wrapping`."""
    sent: date = date(2026, 1, 31)
    notes: str | None = None


def accepting(annotation: Any) -> type[Task]:
    return create_model("Accepting", __base__=Task, option=(annotation, ...))


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Annotated[int, Field(ge=1, le=64)], "an integer from 1 to 64"),
        (Annotated[float, Field(gt=0, lt=2)], "a number above 0 below 2"),
        (Annotated[Decimal, Field(ge=0)], "a number of at least 0"),
        (Literal["all", "half"], "one of all, half"),
        (Size, "one of small, large"),
        (bool, "true or false"),
        (date, "a date such as 2026-01-31"),
        (Path, "a path"),
        (Annotated[str, Field(min_length=2)], "a text of 2 or more characters"),
        (list[int], "a list of integers, as JSON"),
        (dict[str, int], "an object, as JSON"),
        (Any, None),
    ],
    ids=str,
)
def test_the_values_of_an_option_are_put_into_words(annotation: Any, words: str | None) -> None:
    assert allowed_values(accepting(annotation), "option") == words


def test_a_type_that_json_does_not_have_has_no_words() -> None:
    model = create_model(
        "Calling", __config__=ConfigDict(arbitrary_types_allowed=True), option=(Callable[[], None], ...)
    )
    assert allowed_values(model, "option") is None


def test_a_field_is_shown_with_its_default_and_its_docstring() -> None:
    assert fields_in_words(Parcel) == [
        FieldInWords(
            name="weight", values="a number", default=None, required=True, meaning="Weight in kilograms, with wrapping."
        ),
        FieldInWords(name="sent", values="a date such as 2026-01-31", default="2026-01-31", required=False, meaning=""),
        FieldInWords(name="notes", values="a text", default=None, required=False, meaning=""),
    ]


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (list[int], "[1, 2]", [1, 2]),
        (tuple[str, ...], '["a"]', ("a",)),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (list[float], "[4.50]", [4.5]),
        (list[str] | None, "[]", []),
        (str, "[1]", "[1]"),
    ],
    ids=str,
)
def test_a_text_where_a_list_belongs_is_read_as_json(annotation: Any, text: str, value: object) -> None:
    assert validated(accepting(annotation), "it", {"option": text}).model_dump() == {"option": value}


def test_an_assertion_of_a_validator_is_told_in_its_words() -> None:
    class Even(Task):
        size: int

        @field_validator("size")
        @classmethod
        def _check(cls, value: int) -> int:
            assert value % 2 == 0, "size must be even"
            return value

    with pytest.raises(InvalidUsage, match=r"^it: size must be even"):
        validated(Even, "it", {"size": 3})
