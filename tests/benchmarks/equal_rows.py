"""A large table with equal rows, killed again and again: python -m tests.benchmarks.equal_rows [--rows N] [--kills N].

30 % of the rows repeat an earlier one. The process is killed by -9 and the run resumed. Each question must be asked k times at most,
and once more for what was in flight at a kill; each row must end once, in order, with the answer to its own question; and the memory of
the process is said. Exit code 1 if one of these is missed.
"""

from __future__ import annotations

import csv
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random

from tests.benchmarks.harness import options_of, until

K, REPEATED = 3, 0.3
TASK = """
    import json, os
    from microagents import Model, Sample


    class Echo(Model):
        def __init__(self):
            self._log = os.open("asked", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

        async def complete(self, call):
            word = call.prompt.user.partition("\\n")[0].partition(" ")[2]
            os.write(self._log, f"{word}\\n".encode())
            return Sample(text=json.dumps({"answer": word.lower()}))
"""


def table(rows: int) -> list[str]:
    """Make the words of the rows: each is new, or that of an earlier row."""
    rng, words = Random(56), list[str]()
    for number in range(rows):
        is_repeated = bool(words) and rng.random() < REPEATED
        words.append(rng.choice(words) if is_repeated else f"WORD{number}")
    return words


def ended(journal: Path) -> int:
    """Count the rows that have ended."""
    if not journal.exists():
        return 0
    with sqlite3.connect(f"file:{journal}?mode=ro", uri=True) as db:
        try:
            found: int = db.execute("SELECT count(*) FROM input WHERE outcome IS NOT NULL").fetchone()[0]
        except sqlite3.OperationalError:
            return 0
    return found


def has_ended(journal: Path, rows: int) -> bool:
    """Whether at least so many rows have ended."""
    return ended(journal) >= rows


def main() -> None:
    of = options_of(__doc__, rows=100_000, kills=10)
    words = table(of.rows)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("echo.py").write_text("\n".join(line[4:] for line in TASK.splitlines()))
        with Path("in.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["number", "word"], *enumerate(words)])
        command = [sys.executable, "-m", "microagents", "run", "rows", "--inputs", "in.csv", "-o", "out.csv"]
        command += ["-o", "ask=Say {word}", "-o", "columns=answer", "--model", "echo.py:Echo", "-k", str(K)]
        command += ["--run-id", "r", "--runs-dir", "runs", "--json"]
        journal, began_s = Path("runs/r.sqlite"), time.monotonic()
        for number in range(1, of.kills + 1):
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                wanted = of.rows * number // (of.kills + 1)
                until(partial(has_ended, journal, wanted), f"{wanted} rows", every_s=0.1, wait_s=3_600)
                process.send_signal(signal.SIGKILL)
            print(f"killed after {ended(journal):,} rows", flush=True)
        last = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        memory_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        with Path("out.csv").open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
        asked = Counter(Path("asked").read_text().split())
    questions = len(set(words))
    wrong = sum(row["answer"] != word.lower() for row, word in zip(rows, words, strict=True))
    is_in_order = [int(row["number"]) for row in rows] == list(range(of.rows))
    again = asked.total() - K * questions
    print(
        f"{of.rows:,} rows, {questions:,} questions, {of.kills} kills, {time.monotonic() - began_s:,.0f} s: {wrong} rows wrong, "
        f"{'in order' if is_in_order else 'NOT IN ORDER'}, {last['shared']:,} shared, {again:,} calls drawn again, "
        f"{last['inputs_done']:,} done, {memory_mb:,.0f} MB"
    )
    is_missed = wrong or not is_in_order or set(asked) != set(words) or min(asked.values()) < K
    sys.exit(bool(is_missed or last["shared"] != of.rows - questions or again > of.kills * K * 1024))


if __name__ == "__main__":
    main()
