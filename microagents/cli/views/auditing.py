"""The audit of an output, row by row in the terminal."""

from __future__ import annotations

from pathlib import Path

from microagents.base.printing import printable
from microagents.cli.reporting import echo, json_text
from microagents.cli.views.waiting import said_by_person
from microagents.studies.audits import drawn, keep

ANSWERS = {"y": True, "n": False}


def audit(path: Path, sample: int, runs_dir: Path, *, of_cells: bool) -> None:
    """Ask the person about random decided rows, or cells, of an output, and end with the bound. Each judgment is kept at once."""
    judged, rows = drawn(path, sample, runs_dir, of_cells=of_cells)
    for row in rows[len(judged.right) :]:
        echo(printable(f"\n{len(judged.right) + 1} of {len(rows)}"))
        for name, value in row.items():
            echo(printable(f"{name}: {value if isinstance(value, str) else json_text(value)}"))
        while (said := said_by_person("is it right? y, n; q ends")) not in (*ANSWERS, "q", None):
            pass
        if said not in ANSWERS:
            break
        judged.right.append(ANSWERS[said])
        keep(judged, path)
    echo(str(judged))
