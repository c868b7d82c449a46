"""Short forms of options of strategies: keywords of `run` and options of commands that say the same as ``-s NAME=VALUE``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class ShortForm(NamedTuple):
    """Short form of the option that has its name."""

    flag: str
    kind: type[int]
    meaning: str
    metavar: str | None = None


SHORT_FORMS: Mapping[str, ShortForm] = {
    "k": ShortForm("-k", int, "the number of votes that decides an election.", "K"),
    "max_draws": ShortForm(
        "--max-draws", int, "the cap of an election, in samples; a higher one lets undecided elections go on.", "N"
    ),
    "speculate": ShortForm(
        "--speculate/--no-speculate",
        bool,
        "open the next steps on guesses. Decisions do not depend on it. [default: speculate]",
    ),
    "known_inputs": ShortForm(
        "--known-inputs", bool, "start every step from the oracle's state, so that steps run side by side."
    ),
    "max_steps": ShortForm("--max-steps", int, "number of actions after which an agent fails.", "N"),
    "max_repeats": ShortForm("--max-repeats", int, "number of times in a row that an agent may take one action.", "N"),
    "max_tool_errors": ShortForm(
        "--max-tool-errors", int, "number of calls of an agent that may end with an error.", "N"
    ),
    "max_observation": ShortForm(
        "--max-observation", int, "characters of what a tool returned that an agent sees.", "N"
    ),
}
"""The short forms by the names of their options, which are also their keywords."""


def long_form(short: Mapping[str, Any], takes: Callable[[str], bool]) -> dict[str, Any]:
    """Return the options that short forms stand for.

    Args:
        short: short forms by name; None for one that is not given. False of an option that the strategy lacks is what it does anyway.
        takes: whether the strategy has an option of a name.
    """
    return {name: value for name, value in short.items() if value is not None and (value is not False or takes(name))}
