"""Admission: the new work that the keeper allows."""

from __future__ import annotations

from typing import Literal

Admission = Literal["elections", "draws", "paused", "halted", "nothing"]
"""Work that may be launched: elections and their draws; only draws of open elections; nothing until it changes; nothing until then, and the
calls in flight are cancelled; nothing any more."""
PAUSES: tuple[Admission, ...] = ("paused", "halted")
