"""A scripted model: replays given replies. For tests."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
from msgspec import Struct

from microagents.chat import Sample, Usage
from microagents.errors import InvalidUsage, ModelUnavailable
from microagents.models.model import Call, ModelSpec


class Line(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One reply: the one to sample ``seq`` of the election at ``path``. ``fails`` makes that many attempts fail first, by 503."""

    path: str
    seq: int
    text: str
    finish: str = "stop"
    output_tokens: int | None = None
    after_s: float = 0.0
    fails: int = 0


class ScriptedModel:
    """``scripted:FILE.jsonl``: a `Line` per reply. A sample without one is refused."""

    def __init__(self, spec: ModelSpec) -> None:
        self.name = f"scripted:{spec.name}"
        self.asked: list[tuple[str, int]] = []
        """The samples asked for, in order, each attempt."""
        try:
            lines = msgspec.json.Decoder(Line).decode_lines(Path(spec.name).read_bytes())
        except (OSError, msgspec.MsgspecError) as error:
            raise InvalidUsage(f"the script {spec.name!r} cannot be read: {error}") from None
        self._lines = {(line.path, line.seq): line for line in lines}
        self._failed: dict[tuple[str, int], int] = {}

    @property
    def priced(self) -> bool:
        """Never: a script knows no price."""
        return False

    async def complete(self, call: Call) -> Sample:
        """The scripted reply to this sample."""
        place = (call.id.election.path, call.id.seq)
        self.asked.append(place)
        line = self._lines.get(place)
        if line is None:
            raise ModelUnavailable("refused", f"{self.name} has no reply for sample {place[1]} of {place[0]}")
        if line.after_s:
            await asyncio.sleep(line.after_s)
        failed = self._failed[place] = self._failed.get(place, 0) + 1
        if failed <= line.fails:
            raise ModelUnavailable("server", "scripted failure", 503, 0.0)
        return Sample(text=line.text, finish=line.finish, usage=Usage(output_tokens=line.output_tokens), model=self.name)

    async def close(self) -> None:
        """Nothing to let go of."""
