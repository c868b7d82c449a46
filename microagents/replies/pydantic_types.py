"""Types in replies that msgspec leaves to pydantic: models, and classes that it knows by itself, such as an address of a network."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from typing import Any

from pydantic import PydanticUserError, ValidationError

from microagents.base.errors import TaskFailed, in_own_words
from microagents.base.messages import address_of
from microagents.base.plain_values import WithNumbers, adapter_of, read_by_pydantic, write_value

MAX_FAULTS = 3
"""Number of faults in one value that are named."""


def read(kind: type, found: object) -> Any:
    """Read JSON-like values as an instance of a class, strictly: a text is no number.

    Raises:
        ValueError: they are not of the class.
        TaskFailed: the instance, written as JSON, would be read as another one.
    """
    try:
        value = read_by_pydantic(kind, found, strict=True)
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, each['loc']))}: {in_own_words(each['msg'])}".removeprefix(": ")
            for each in error.errors()
        ]
        raise ValueError("; ".join(faults[:MAX_FAULTS])) from None
    again = None
    with suppress(ValidationError):
        again = read_by_pydantic(kind, write_value(value), strict=True)
    if again != value:
        raise TaskFailed(
            kind.__qualname__,
            "writes as JSON what it then reads as another value, so no vote can be kept; let its serializers, aliases and validators keep "
            "a value that is written and read again",
        )
    return value


@lru_cache(maxsize=256)
def json_schema(kind: type) -> dict[str, Any]:
    """Build the JSON schema of a class. Its definitions have names that no other class gives to its own.

    Raises:
        NotImplementedError: pydantic does not know the class.
    """
    if kind is object:
        raise NotImplementedError
    prefix = re.sub(r"\W", "_", address_of(kind))
    try:
        found = adapter_of(kind).json_schema(schema_generator=WithNumbers, ref_template=f"#/$defs/{prefix}_{{model}}")
    except PydanticUserError:
        raise NotImplementedError from None
    parts = found.get("$defs", {})
    return {**found, "$defs": {f"{prefix}_{name}": part for name, part in parts.items()}}
