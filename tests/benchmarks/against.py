"""What changed in speed since another commit: ``python -m tests.benchmarks.against COMMIT [--only chain] [--turns 5] [--check]``.

Each side is installed in an environment of its own, which takes dependencies from the running interpreter, and runs its own benchmarks.
The sides take turns: the other commit, then this checkout as it stands, changes without a commit in it. Ratios are taken turn by turn.
They have the words and figures of `tests.benchmarks.all`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from statistics import median
from tarfile import open as open_tar

import msgspec
from msgspec import Struct

from tests.benchmarks.all import CHECKOUT, SHORT, run_one

WORSE = 1.05
"""A median ratio beyond it is marked."""
BENCHMARKS = {name: each for name, each in SHORT.items() if any(figure.better for figure in each.figures.values())}


class Compared(Struct, frozen=True, kw_only=True):
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
    code, text = run_one(str(python), name, BENCHMARKS[name].words, python.parents[2])
    if code:
        raise SystemExit(f"{name} failed in {python.parents[2].name}:\n{text}")
    return BENCHMARKS[name].found_in(text)


def _compare(name: str, sides: Sequence[Path], turns: int) -> list[Compared]:
    taken: list[list[dict[str, float]]] = [[] for _ in sides]
    for turn in range(turns):
        for python, each in zip(sides, taken, strict=True):
            print(f"{name}, turn {turn + 1} of {turns}: {python.parents[2].name}", file=sys.stderr)
            each.append(_run(python, name))
    before, now = taken
    compared = []
    for figure, seen in BENCHMARKS[name].figures.items():
        if seen.better is None:
            continue
        if not all(figure in turn for turn in (*before, *now)):
            print(f"{name}: not on both sides: {figure}", file=sys.stderr)
            continue
        ratios = [new[figure] / old[figure] for old, new in zip(before, now, strict=True)]
        ratio = median(ratios)
        compared.append(
            Compared(
                benchmark=name,
                name=figure,
                better=seen.better,
                before=[turn[figure] for turn in before],
                now=[turn[figure] for turn in now],
                ratios=ratios,
                ratio=ratio,
                worse=(ratio if seen.better == "less" else 1 / ratio) > WORSE,
            )
        )
    return compared


def _print(figures: Sequence[Compared], commit: str) -> None:
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
        figures: list[Compared] = []
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
