"""A text that a user gives as an option of a task."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, ValidationInfo


def _says_something(given: str, about: ValidationInfo) -> str:
    if not given.strip():
        name = about.field_name
        raise ValueError(f"{name} is blank; write it, or name a file that contains it: -o {name}=@FILE")
    return given


GivenText = Annotated[str, AfterValidator(_says_something)]
"""A text that is not blank."""
