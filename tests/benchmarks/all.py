"""Benchmarks in their short forms: ``python -m tests.benchmarks.all --short [NAME...]``.

A benchmark has moved if one of its lines says OUTSIDE or DIFFERS, if it ends with another exit code than 0 or takes longer than `MOST_S`,
and if a figure is missing or lies beyond the bounds in `SHORT`. Then the exit code is 1. Without ``--short`` each has its own size.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Literal

from msgspec import Struct

from tests.benchmarks.harness import parser_of

CHECKOUT = Path(__file__).parents[2]
MOST_S = 240.0
NUMBER = r"([\d,.]+)"
MOVED = re.compile(r"^.*\b(?:OUTSIDE|DIFFER).*$", re.MULTILINE)
PROCESSOR = "import runpy, sys, time; time.perf_counter = time.process_time; sys.argv = sys.argv[1:]; "
PROCESSOR += "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"


class Figure(Struct, frozen=True):
    """A number among what a benchmark prints: the last group of a pattern."""

    pattern: str
    low: float = 0.0
    high: float = inf
    better: Literal["less", "more"] | None = None
    """What `tests.benchmarks.against` compares it for."""


class Benchmark(Struct, frozen=True, kw_only=True):
    """A short form."""

    words: str = ""
    figures: Mapping[str, Figure] = {}
    one_process: bool = False
    """Whether times are the processor's, which other programs on the machine disturb less than the wall's."""

    def found_in(self, text: str) -> dict[str, float]:
        """Return the figures that a text has."""
        found = {name: re.search(figure.pattern, text, re.MULTILINE) for name, figure in self.figures.items()}
        return {name: float(match[match.re.groups].replace(",", "")) for name, match in found.items() if match}


SHORT: Mapping[str, Benchmark] = {
    "actor_kills": Benchmark(words="--kills 4 --only recursive"),
    "aot": Benchmark(words="--part table --problems 200"),
    "asks": Benchmark(
        words="--turns 1",
        figures={
            f"{number} dispatchers, {flight} at a time": Figure(
                rf"{number} dispatchers?, {flight} at a time +median +{NUMBER}", low, better="more"
            )
            for number, flight, low in (
                ("one", "one", 1e5),
                ("one", "300", 5e5),
                ("two", "one", 2e3),
                ("two", "300", 2e4),
            )
        },
        one_process=True,
    ),
    "batches": Benchmark(
        words="--kills 12 --rows 500",
        figures={
            "cost": Figure(r"within 5 rounds; ([\d.]+) of the cost", 0.49, 0.52, "less"),
            "rows in rounds, %": Figure(r"^([\d.]+)% of rows decided", 97, 100, "more"),
        },
    ),
    "budget": Benchmark(
        words="--runs 20",
        figures={
            "times that a ceiling was passed": Figure(rf"passed {NUMBER} times", high=0),
            "bills outside of the account's bounds": Figure(rf"bounds {NUMBER} times", high=0),
        },
    ),
    "caps": Benchmark(
        words="--runs 30", figures={"runs beyond their bound": Figure(rf"their cap, {NUMBER} beyond", high=0)}
    ),
    "certain": Benchmark(words="--models tiny:hanoi --disks 5 --runs 1"),
    "plans": Benchmark(words="--worlds 3"),
    "ceiling": Benchmark(words="--only votes --only planted --worlds 100"),
    "chain": Benchmark(
        words="--turns 1 --steps 5000",
        figures={
            "bare loop, us a step": Figure(rf"bare loop +median +{NUMBER}", better="less"),
            "framework, us a step": Figure(rf"framework +median +{NUMBER}", better="less"),
            "ratio": Figure(rf"ratio +median +{NUMBER}", 1.4, 3),
        },
        one_process=True,
    ),
    "contested": Benchmark(words="--runs 5 --trials 40000 --beyond 6"),
    "control": Benchmark(words="--kills 2"),
    "conversations": Benchmark(words="--kills 6"),
    "damage": Benchmark(words="--tries 60"),
    "desk": Benchmark(words="--tickets 20 --trials 4"),
    "dialects": Benchmark(
        words="--fuzzed 40",
        figures={
            "paid replies thrown away": Figure(rf"dialects: {NUMBER} paid", high=0),
            "outages bought again": Figure(rf"^{NUMBER} outages", high=0),
            "told otherwise": Figure(rf"^{NUMBER} told", high=0),
            "texts of MCP tools lost": Figure(rf"tools: {NUMBER} texts", high=0),
        },
    ),
    "disk": Benchmark(words="--seeds 10"),
    "documents": Benchmark(words="--documents 20"),
    "durable": Benchmark(
        words="--turns 1 --steps 30000",
        figures={
            "without a journal, s": Figure(rf"without a journal {NUMBER} s", better="less"),
            "with a journal, s": Figure(rf"with one {NUMBER} s", better="less"),
            "on disk, bytes a step": Figure(rf"on disk {NUMBER} bytes", 100, 250, "less"),
            "memory at the end, MB": Figure(rf"{NUMBER} MB at the end", 30, 120, "less"),
            "show, s": Figure(rf" show {NUMBER} s", better="less"),
            "show --verify, s": Figure(rf"show --verify {NUMBER} s", better="less"),
        },
    ),
    "effects": Benchmark(words="--kills 5"),
    "endpoint": Benchmark(
        words="--part kills --kills 4 --part cap --runs 5",
        figures={
            "runs above their cap": Figure(rf"callers: {NUMBER} above", high=0),
            "refused while a sample would fit": Figure(rf"{NUMBER} refused while", high=0),
            "replies other than their decision": Figure(rf"delivered: {NUMBER} other", high=0),
            "replies before their decision": Figure(rf"{NUMBER} before it was durable", high=0),
        },
    ),
    "equal_rows": Benchmark(words="--rows 1000 --kills 1"),
    "scans": Benchmark(words="--rows 20"),
    "conversation_caches": Benchmark(),
    "faults": Benchmark(words="--seeds 10"),
    "field_law": Benchmark(words="--rows 200 --settings 2"),
    "forgery": Benchmark(words="--tries 60"),
    "handed_kills": Benchmark(words="--kills 4"),
    "lane_kills": Benchmark(words="--kills 2"),
    "lead": Benchmark(words="--part table --size 11 --repeat 10"),
    "memory": Benchmark(words="--inputs 2000", figures={"MB more": Figure(rf"{NUMBER} MB more", high=40)}),
    "native_kills": Benchmark(words="--kills 3"),
    "providers": Benchmark(
        words="--part rate",
        figures={
            "a model, requests a second": Figure(rf"openai: model, 1,000 in flight +{NUMBER}", better="more"),
            "ballots a second": Figure(rf"ballots, 3 in a request +{NUMBER}", better="more"),
            "a run, calls a second": Figure(rf"run of 1,000 chains.*?k = 1 +{NUMBER}", better="more"),
            "a model, CPU ms a request": Figure(
                rf"openai: model, 1,000 in flight +{NUMBER} +{NUMBER}", high=3, better="less"
            ),
            "a run, CPU ms a call": Figure(rf"run of 1,000 chains.*?k = 1 +{NUMBER} +{NUMBER}", high=5, better="less"),
        },
    ),
    "scale": Benchmark(
        words="--turns 1 --towers 60 --disks 6",
        figures={
            **{
                f"{side}, steps a second": Figure(rf"^{side} +{NUMBER} steps/s", low, better="more")
                for side, low in (("one process", 1000), ("1 lane", 800), ("2 lanes", 800))
            },
            **{
                f"{side}, driver's us a step": Figure(rf"^{side} .*driver {NUMBER} us", high=1000, better="less")
                for side in ("1 lane", "2 lanes")
            },
        },
    ),
    "semantic": Benchmark(words="--repeat 40"),
    "soak": Benchmark(words="--hours 0.01"),
    "speculation": Benchmark(
        words="--steps 1000 --seeds 1",
        figures={
            "time / a chain without votes": Figure(rf"0.9978: time / unvoted chain +median {NUMBER}", 0.55, 0.7),
            "time / voting step by step": Figure(rf"0.9978: time / step by step +median {NUMBER}", 0.35, 0.5),
            "wasted calls": Figure(rf"0.9978: wasted calls +median {NUMBER}", 0.001, 0.015),
        },
    ),
    "step_rates": Benchmark(words="votes --worlds 2"),
    "stopping": Benchmark(words=""),
    "swarm": Benchmark(words="--repeat 5 --length 15"),
    "takeovers": Benchmark(words="--takeovers 6"),
    "taken_away": Benchmark(words="--times 1"),
    "talking_desk": Benchmark(words="--trials 20 --seed 0"),
    "telemetry": Benchmark(words="--turns 1 --steps 2000"),
    "throttle": Benchmark(words="--limit 100 --minute 40 --inputs 50"),
    "tiny": Benchmark(
        words="--disks 6",
        figures={
            "draws a second, one at a time": Figure(rf"{NUMBER} draws a second", 30),
            "one sample is wrong or flagged": Figure(rf"wrong or flagged: {NUMBER};", 0.005, 0.03),
            "ahead by 3": Figure(rf"ahead by 3 {NUMBER} at least", 0.99, 1),
        },
    ),
    "tools": Benchmark(words="--turns 1"),
    "tower": Benchmark(
        words="--disks 12",
        figures={
            "wrong decisions": Figure(rf" {NUMBER} wrong,", high=0),
            "votes beyond k / the law": Figure(rf"; ratio {NUMBER}", 0.6, 1.5),
        },
    ),
    "trained_rows": Benchmark(words="--rows 10"),
    "transport": Benchmark(
        words="--turns 1 --inputs 100",
        figures={
            "one ask alone, ms": Figure(rf"one ask alone: {NUMBER} ms", 0, 8, "less"),
            "a step across actors, asks": Figure(rf"overhead {NUMBER} times one ask", better="less"),
            "a step across actors, ms": Figure(rf"in one process; {NUMBER} ms across", better="less"),
            "a step colocated, ms": Figure(rf"{NUMBER} ms colocated", better="less"),
            "asks a second, 300 in flight": Figure(rf" 300 in flight: +{NUMBER} asks", better="more"),
            "times plain calls, 300 in flight": Figure(rf" 300 in flight.*, {NUMBER} times", 8, better="more"),
            "asks a second, 3,000 in flight": Figure(rf"3,000 in flight: +{NUMBER} asks", better="more"),
            "times plain calls, 3,000 in flight": Figure(rf"3,000 in flight.*, {NUMBER} times", 15, better="more"),
            "steps a second on Ray": Figure(rf"in one process, {NUMBER} on Ray", better="more"),
        },
    ),
    "elected": Benchmark(words="--part digests --part kills --rows 300 --kills 1"),
    "shards": Benchmark(words="--part digest --part kills --rows 300 --kills 2"),
    "strict_calls": Benchmark(
        words="--tickets 30", figures={"requests refused": Figure(rf"^{NUMBER} of .* requests refused", high=0)}
    ),
    "promise": Benchmark(words="--worlds 100 --runs 2"),
    "turns": Benchmark(words="--rounds 5", figures={"native / text": Figure(rf"ratio {NUMBER}", 0.7, 1.2)}),
    "usages": Benchmark(
        words="--replies 100",
        figures={"journals refused": Figure(rf"{NUMBER} journals refused", high=0)},
    ),
}
LEFT_OUT = {
    "recursive": "takes six minutes",
    "cascades": "installs another package",
    "side_by_side": "installs another package",
    "against": "compares two commits",
    "marks": "takes an hour",
    "native_calls": "needs llama.cpp, and takes long",
    "hosts": "needs root, and takes minutes",
    "fields": "takes minutes, and has no shorter form",
    "cluster_walk": "takes minutes, and has no shorter form",
    "quick_server": "a server for others",
    "viewing": "needs a browser, and journals of a million steps",
}
"""Programs of this folder that are not among them, and why."""


def run_one(python: str, name: str, words: str, folder: Path) -> tuple[int, str]:
    """Run a benchmark with an interpreter; returns its exit code and what it printed, errors last."""
    code = ["-c", PROCESSOR] if SHORT[name].one_process else ["-m"]
    command = [python, *code, f"tests.benchmarks.{name}", *words.split()]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + (ran.stderr[-2000:] if ran.returncode else "")


def moved(name: str, words: str) -> Iterator[str]:
    """Say what moved in a benchmark."""
    began_s = time.monotonic()
    code, text = run_one(sys.executable, name, words, CHECKOUT)
    took_s = time.monotonic() - began_s
    if code:
        yield f"exit code {code}: {text.rstrip().rpartition(chr(10))[2]}"
        return
    yield from (line.strip() for line in MOVED.findall(text))
    if words and took_s > MOST_S:
        yield f"took {took_s:.0f} s, and {MOST_S:.0f} at most are expected"
    found = SHORT[name].found_in(text)
    for title, figure in SHORT[name].figures.items():
        if title not in found:
            yield f"{title}: not printed"
        elif not figure.low <= found[title] <= figure.high:
            yield f"{title}: {found[title]:g}, expected {figure.low:g} to {figure.high:g}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them one after the other; returns the exit code."""
    parser = parser_of(__doc__, short=False)
    parser.add_argument("name", nargs="*", help=f"of {', '.join(SHORT)}; by default all")
    given = parser.parse_args(arguments)
    if unknown := {*given.name} - {*SHORT}:
        parser.error(f"no benchmark named {min(unknown)}")
    names, failed, began_s = given.name or [*SHORT], 0, time.monotonic()
    for name in names:
        started_s = time.monotonic()
        found = [*moved(name, SHORT[name].words if given.short else "")]
        failed += bool(found)
        print(f"{name:<12} {time.monotonic() - started_s:4.0f} s  {'MOVED' if found else 'as expected'}", flush=True)
        print(*(f"  {line}\n" for line in found), sep="", end="", flush=True)
    print(f"{failed} of {len(names)} moved, {time.monotonic() - began_s:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
