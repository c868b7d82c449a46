"""Reading of `.env` files: NAME=value, one a line, in the form that all readers of such files take alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from microagents.errors import InvalidUsage, read_failure
from microagents.files import read_text

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)")
_SINGLE_QUOTED = re.compile(r"\s*'([^']*)'\s*(?:#.*)?")
_DOUBLE_QUOTED = re.compile(r'\s*"([^"]*)"\s*(?:#.*)?')
_BARE = re.compile(r"(?:(?!\s#)[^'\"])*")
_SUBSTITUTED = re.compile(r"[\\`]|\$[A-Za-z_{(]")
"""Some readers replace these, others take them as they are."""


def read_dotenv(path: Path) -> dict[str, str]:
    """Return the variables of a file. Where a name stands twice, the last line counts.

    Raises:
        InvalidUsage: the file cannot be read, or a line has another form. The message names the line and never shows it: it may be a key.
    """
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        raise InvalidUsage(f"{str(path)!r} cannot be read: {read_failure(error)}; --no-config leaves it out") from None
    return dict(_variables(text, path))


def _variables(text: str, path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line.strip())
        value = None if found is None or "\0" in line else _value(found[2])
        if found is None or value is None:
            raise InvalidUsage(
                f"line {number} of {str(path)!r} is not of the form NAME=value or NAME='value'; a value with quotes, backslashes or $NAME "
                "stands in single quotes; --no-config leaves the file out"
            )
        yield found[1], value


def _value(text: str) -> str | None:
    """Return the value behind an equals sign; None for one that readers of such files take in different ways."""
    if quoted := _SINGLE_QUOTED.fullmatch(text):
        return quoted[1]
    quoted, bare = _DOUBLE_QUOTED.fullmatch(text), _BARE.match(text)
    if quoted is not None:
        value = quoted[1]
    elif bare is not None and re.match(r"\s#|$", text[bare.end() :]):
        value = bare[0].strip()
    else:
        return None
    return None if _SUBSTITUTED.search(value) else value
