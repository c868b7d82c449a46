"""What changed in speed since another commit: ``python -m tests.benchmarks.against COMMIT [--only chain] [--turns 5] [--check]``.

Each side is installed in an environment of its own, which takes dependencies from the running interpreter, and runs its own benchmarks.
The sides take turns: the other commit, then this checkout as it stands, changes without a commit in it. Ratios are taken turn by turn.
Benchmarks of one process are counted in processor time, which other programs on the machine disturb less than the wall's.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from statistics import median
from tarfile import open as open_tar

import msgspec
from msgspec import Struct

CHECKOUT = Path(__file__).parents[2]
WORSE = 1.05
"""A median ratio beyond it is marked."""
NUMBER = r"([\d,.]+)"
PROCESSOR = "import runpy, sys, time; time.perf_counter = time.process_time; sys.argv = sys.argv[1:]; "
PROCESSOR += "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"


class Benchmark(Struct, frozen=True, kw_only=True):
    """What one turn runs, and how its figures are found in what it prints."""

    words: str
    less: Mapping[str, str] = {}
    """Figures that are better the lower they are, by pattern."""
    more: Mapping[str, str] = {}
    """Figures that are better the higher they are, by pattern."""
    one_process: bool = False


class Figure(Struct, frozen=True, kw_only=True):
    """One figure on both sides; lists are by turn."""

    benchmark: str
    name: str
    better: str
    """Values that are better: "less" or "more"."""
    before: list[float]
    now: list[float]
    ratios: list[float]
    """Now to before."""
    ratio: float
    """Their median."""
    worse: bool


BENCHMARKS: Mapping[str, Benchmark] = {
    "chain": Benchmark(
        words="--turns 1 --steps 5000",
        less={f"{side}, us a step": rf"{side} +median +{NUMBER}" for side in ("bare loop", "framework")},
        one_process=True,
    ),
    "asks": Benchmark(
        words="--turns 1",
        more={
            f"{number} dispatchers, {flight} at a time": rf"{number} dispatchers?, {flight} at a time +median +{NUMBER}"
            for number in ("one", "two")
            for flight in ("one", "300")
        },
        one_process=True,
    ),
    "transport": Benchmark(
        words="--turns 1 --inputs 200",
        less={
            "one ask alone, ms": rf"one ask alone: {NUMBER} ms",
            "a step across actors, asks": rf"overhead {NUMBER} times one ask",
            "a step across actors, ms": rf"in one process; {NUMBER} ms across",
            "a step colocated, ms": rf"{NUMBER} ms colocated",
        },
        more={
            "asks a second, 300 in flight": rf" 300 in flight: +{NUMBER} asks",
            "times plain calls, 300 in flight": rf" 300 in flight.*, {NUMBER} times",
            "asks a second, 3,000 in flight": rf"3,000 in flight: +{NUMBER} asks",
            "times plain calls, 3,000 in flight": rf"3,000 in flight.*, {NUMBER} times",
            "steps a second on Ray": rf"in one process, {NUMBER} on Ray",
        },
    ),
    "durable": Benchmark(
        words="--turns 1 --steps 30000",
        less={
            "without a journal, s": rf"without a journal {NUMBER} s",
            "with a journal, s": rf"with one {NUMBER} s",
            "on disk, bytes a step": rf"on disk {NUMBER} bytes",
            "memory at the end, MB": rf"{NUMBER} MB at the end",
            "show, s": rf" show {NUMBER} s",
            "show --verify, s": rf"show --verify {NUMBER} s",
        },
    ),
    "scale": Benchmark(
        words="--turns 1 --towers 60",
        more={
            f"{side}, steps a second": rf"^{side} +{NUMBER} steps/s" for side in ("one process", "1 lane", "2 lanes")
        },
        less={f"{side}, driver's us a step": rf"^{side} .*driver {NUMBER} us" for side in ("1 lane", "2 lanes")},
    ),
    "providers": Benchmark(
        words="--part rate",
        more={
            "a model, requests a second": rf"openai: model, 1,000 in flight +{NUMBER}",
            "ballots a second": rf"ballots, 3 in a request +{NUMBER}",
            "a run, calls a second": rf"run of 1,000 chains.*?k = 1 +{NUMBER}",
        },
        less={
            "a model, CPU ms a request": rf"openai: model, 1,000 in flight +{NUMBER} +{NUMBER}",
            "a run, CPU ms a call": rf"run of 1,000 chains.*?k = 1 +{NUMBER} +{NUMBER}",
        },
    ),
}


def _install(tree: Path, side: Path) -> Path:
    """Put a tree's packages into an environment of their own, and its tests beside it; gives its interpreter."""
    venv.create(side / "env", symlinks=True)
    (packages,) = (side / "env").glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(
        "\n".join(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))
    )
    ignored = shutil.ignore_patterns("__pycache__")
    for folder, place in (
        ("microagents", packages / "microagents"),
        ("runtimes", packages / "microagents/runtimes"),
        ("tasks", packages / "microagents/tasks"),
        ("tests", side / "tests"),
    ):
        # Links are followed, so `runtimes` and `tasks` are there already, but for commits from before the links.
        shutil.copytree(tree / folder, place, ignore=ignored, dirs_exist_ok=True)
    return side / "env/bin/python"


def _extract(commit: str, folder: Path) -> Path:
    archive = subprocess.run(["git", "archive", commit], cwd=CHECKOUT, check=True, capture_output=True).stdout
    with open_tar(fileobj=BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def _run(python: Path, name: str) -> dict[str, float]:
    """Run one turn of a benchmark; gives its figures."""
    benchmark = BENCHMARKS[name]
    code = ["-c", PROCESSOR] if benchmark.one_process else ["-m"]
    words = [str(python), *code, f"tests.benchmarks.{name}", *benchmark.words.split()]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    ran = subprocess.run(words, cwd=python.parents[2], env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"{name} failed in {python.parents[2].name}:\n{ran.stderr[-2000:]}")
    found: dict[str, float] = {}
    for figure, pattern in (*benchmark.less.items(), *benchmark.more.items()):
        if match := re.search(pattern, ran.stdout, re.MULTILINE):
            found[figure] = float(match[match.re.groups].replace(",", ""))
    return found


def _compare(name: str, sides: Sequence[Path], turns: int) -> list[Figure]:
    taken: list[list[dict[str, float]]] = [[] for _ in sides]
    for turn in range(turns):
        for python, each in zip(sides, taken, strict=True):
            print(f"{name}, turn {turn + 1} of {turns}: {python.parents[2].name}", file=sys.stderr)
            each.append(_run(python, name))
    benchmark, (before, now) = BENCHMARKS[name], taken
    compared = []
    for figure in (*benchmark.less, *benchmark.more):
        if not all(figure in turn for turn in (*before, *now)):
            print(f"{name}: not on both sides: {figure}", file=sys.stderr)
            continue
        ratios = [new[figure] / old[figure] for old, new in zip(before, now, strict=True)]
        ratio = median(ratios)
        compared.append(
            Figure(
                benchmark=name,
                name=figure,
                better="less" if figure in benchmark.less else "more",
                before=[turn[figure] for turn in before],
                now=[turn[figure] for turn in now],
                ratios=ratios,
                ratio=ratio,
                worse=(ratio if figure in benchmark.less else 1 / ratio) > WORSE,
            )
        )
    return compared


def _print(figures: Sequence[Figure], commit: str) -> None:
    print(f"{'':<10} {'':<36} {commit[:10]:>10} {'now':>10}   ratio")
    for each in figures:
        row = f"{each.benchmark:<10} {each.name:<36} {median(each.before):>10,.2f} {median(each.now):>10,.2f}"
        print(f"{row}   {each.ratio:.3f} ({min(each.ratios):.3f} to {max(each.ratios):.3f}){'  WORSE' * each.worse}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print each figure of both sides, and its ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the other side")
    parser.add_argument("--only", choices=BENCHMARKS, action="append", help="repeatable (default: all)")
    parser.add_argument("--turns", type=int, default=5, help="turns of each side (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print figures of each turn as JSON")
    parser.add_argument(
        "--check", action="store_true", help=f"exit with 1 where a figure is worse by more than {WORSE - 1:.0%}%"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        tree = _extract(options.commit, Path(folder, "archive"))
        sides = [_install(tree, Path(folder, "before")), _install(CHECKOUT, Path(folder, "now"))]
        figures: list[Figure] = []
        for name in options.only or BENCHMARKS:
            if Path(tree, f"tests/benchmarks/{name}.py").exists():
                figures += _compare(name, sides, options.turns)
            else:
                print(f"{name}: {options.commit} has no such benchmark", file=sys.stderr)
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(figures)).decode())
    else:
        _print(figures, options.commit)
    if options.check and any(each.worse for each in figures):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
