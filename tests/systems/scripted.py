"""Problems whose every reply is scripted: what each role is told, turn by turn, and what came of it.

What has no line in a script must not be asked, or the run fails.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from microagents import Reply, Result, Sample, run
from microagents.elections.election import Draw
from microagents.journal.reading import Reader
from microagents.models.simulation.scripted import ScriptLine
from microagents.replies.reply_forms import write
from microagents.roles import Solver
from microagents.systems.questions.candidates import labels_of
from microagents.systems.questions.questions import Choice, Decomposition
from microagents.systems.questions.recursive import Recursive
from microagents.tasks.ask import Answer, Ask

CUT = Decomposition(first="How many legs?", second="How many arms?", compose="Add them.")
QUESTION = "How many limbs are left?"
Script = Mapping[str, Sequence[Reply | str]]


def four(answer: str = "4") -> Answer:
    return Answer(answer=answer)


def label(wanted: Reply, *candidates: Reply) -> Choice:
    """The ballot for one of the candidates."""
    labels = labels_of([msgspec.json.encode(each) for each in candidates])
    return Choice(choice=labels[candidates.index(wanted)])


def scripted(file: str, script: Script, after_s: Mapping[str, float] = MappingProxyType({})) -> str:
    """A model that replies so, by path; a text stands for itself."""
    lines = [
        ScriptLine(
            path=f"0/{path}",
            seq=seq,
            text=reply if isinstance(reply, str) else write(reply, "json"),
            after_s=after_s.get(path, 0.0),
        )
        for path, replies in script.items()
        for seq, reply in enumerate(replies)
    ]
    Path(file).write_bytes(msgspec.json.Encoder().encode_lines(lines))
    return f"scripted:{file}"


async def solved(script: Script, *, problem: str = QUESTION, depth: int = 1, k: int = 2, **options: Any) -> Result:
    """The run of a problem whose every reply is scripted."""
    spec = scripted("script.jsonl", script)
    strategy = Recursive(k=k, depth=depth, **options.pop("strategy", {}))
    return await run(Ask(text=problem), models=spec, strategy=strategy, run_id="solved", **options)


def rows() -> dict[str, tuple[str, Any]]:
    """What was decided, by path: how, and what."""
    with Reader(Path("runs/solved.sqlite")) as reader:
        return {
            path.removeprefix("0/"): (row.outcome, json.loads(row.value or b"null")) for path, row in reader.decisions()
        }


def noted_draws(monkeypatch: pytest.MonkeyPatch) -> list[Draw]:
    """What solvers are asked to draw from now on."""
    drawn: list[Draw] = []
    draw = Solver.draw

    async def noted(solver: Solver, request: Draw) -> tuple[Sample, ...]:
        drawn.append(request)
        return await draw(solver, request)

    noted.__annotations__ = draw.__annotations__
    monkeypatch.setattr(Solver, "draw", noted)
    return drawn
