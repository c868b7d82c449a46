"""A scripted model for tests: it replays the replies of a file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Self

import msgspec
from msgspec import Struct

from microagents.actors.role import Context
from microagents.base.errors import ModelUnavailable, refusing
from microagents.models.model import Call, Model, ModelSpec
from microagents.replies.chat import Sample, Usage


class ScriptLine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a script: the reply to sample ``seq`` of the election at ``path``."""

    path: str
    seq: int
    text: str
    finish: str = "stop"
    output_tokens: int | None = None
    after_s: float = 0.0
    """Seconds until the reply comes."""
    fails: int = 0
    """Number of attempts that fail first, with HTTP status 503."""


class ScriptedModel(Model):
    """Model ``scripted:FILE.jsonl``: one `ScriptLine` per reply. A sample without a line is refused.

    Raises:
        InvalidUsage: the script cannot be read.
    """

    throttled_as = None
    takes_files = True

    def __init__(self, spec: ModelSpec) -> None:
        self.name = f"scripted:{spec.name}"
        self.asked: list[tuple[str, int]] = []
        """Path and seq of every attempt, in order."""
        with refusing(f"the script {spec.name!r} cannot be read"):
            lines = msgspec.json.Decoder(ScriptLine).decode_lines(Path(spec.name).read_bytes())
        self._lines = {(line.path, line.seq): line for line in lines}
        self._failed: dict[tuple[str, int], int] = {}

    @classmethod
    def open(cls, spec: ModelSpec, context: Context) -> Self:  # noqa: ARG003 - the interface of every provider
        """Open the model of a spec."""
        return cls(spec)

    async def complete(self, call: Call) -> Sample:
        """Return the scripted reply to this sample.

        Raises:
            ModelUnavailable: the script has no reply, or it asks for a failure.
        """
        place = (call.id.election.path, call.id.seq)
        self.asked.append(place)
        line = self._lines.get(place)
        if line is None:
            raise ModelUnavailable(
                "refused", f"{self.name} has no reply for sample {place[1]} of {place[0]}; add a line to the script"
            )
        if line.after_s:
            await asyncio.sleep(line.after_s)
        failed = self._failed[place] = self._failed.get(place, 0) + 1
        if failed <= line.fails:
            raise ModelUnavailable("server", "scripted failure", 503, 0.0)
        return Sample(
            text=line.text, finish=line.finish, usage=Usage(output_tokens=line.output_tokens), model=self.name
        )

    async def close(self) -> None:
        """Do nothing: there are no connections."""
