"""The log of the library, which is silent unless the program configures structlog or the standard library's logging."""

from __future__ import annotations

import logging
from typing import Any

import structlog

_STANDARD = logging.getLogger("microagents")
_STANDARD.addHandler(logging.NullHandler())  # else Python prints warnings of a program that configures no logging
_OF_LIBRARY = structlog.wrap_logger(
    _STANDARD,
    processors=[
        structlog.stdlib.filter_by_level,
        structlog.processors.format_exc_info,
        structlog.processors.KeyValueRenderer(key_order=["event"]),
    ],
    wrapper_class=structlog.stdlib.BoundLogger,
)


def log() -> Any:
    """Return the structlog of a program that has configured it, as the command line does; else the logger `microagents`."""
    if structlog.is_configured():
        return structlog.get_logger()
    return _OF_LIBRARY
