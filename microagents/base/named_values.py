"""Values by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K", bound=str)
T = TypeVar("T")


def stated(values: Mapping[K, T | None]) -> dict[K, T]:
    """Return the values that are not None, by their names."""
    return {name: value for name, value in values.items() if value is not None}
