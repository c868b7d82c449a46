"""Admission: the new work that the recorder allows, and the messages by which roles follow it."""

from __future__ import annotations

from typing import Literal

from microagents.base.messages import Request, Stream

Admission = Literal["elections", "draws", "paused", "halted", "nothing"]
"""Work that may be launched: elections and their draws; only draws of open elections; nothing until it changes; nothing until then, and the
calls in flight are cancelled; nothing any more."""
PAUSES: tuple[Admission, ...] = ("paused", "halted")


class FollowAdmission(Stream[Admission], frozen=True, kw_only=True):
    """Follow the changes of the admission, which starts as ``elections``.

    Once nothing is admitted, a follower finishes its work and closes the stream. The end of the run waits for that.
    """


class Drain(Request[None], frozen=True, kw_only=True):
    """Stop admitting draws, and wait until none is in flight."""
