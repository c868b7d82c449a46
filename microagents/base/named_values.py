"""Values by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def stated(values: Mapping[str, T | None]) -> dict[str, T]:
    """Return the values that are not None, by their names."""
    return {name: value for name, value in values.items() if value is not None}
