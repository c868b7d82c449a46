"""What changed in speed since another commit: ``python -m tests.benchmarks.against COMMIT [--only chain] [--turns 5] [--check]``.

Each side is installed in an environment of its own, which takes dependencies from the running interpreter, and runs its own benchmarks.
The sides take turns: the other commit, then this checkout as it stands, changes without a commit in it. Ratios are taken turn by turn.
They have the words and figures of `tests.benchmarks.all`.
"""

from __future__ import annotations

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

from tests.benchmarks.all import CHECKOUT, SHORT, run_one
from tests.benchmarks.harness import parser_of, spread

WORSE = 1.05
"""A median ratio beyond it is marked."""
BENCHMARKS = {name: each for name, each in SHORT.items() if any(figure.better for figure in each.figures.values())}


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


def _compare(name: str, sides: Sequence[Path], turns: int) -> bool:
    """Print the figures of both sides by turns; returns whether one is worse."""
    taken: list[list[dict[str, float]]] = [[] for _ in sides]
    for turn in range(turns):
        for python, each in zip(sides, taken, strict=True):
            print(f"{name}, turn {turn + 1} of {turns}: {python.parents[2].name}", file=sys.stderr)
            each.append(_run(python, name))
    worse = False
    for figure, seen in BENCHMARKS[name].figures.items():
        if seen.better is None or not all(figure in turn for turn in (*taken[0], *taken[1])):
            continue
        before, now = ([turn[figure] for turn in side] for side in taken)
        ratios = [new / old for old, new in zip(before, now, strict=True)]
        is_worse = (median(ratios) if seen.better == "less" else 1 / median(ratios)) > WORSE
        row = f"{name:<10} {figure:<36} {median(before):>10,.2f} {median(now):>10,.2f}   {spread(ratios, '.3f')}"
        print(f"{row}{'  WORSE' * is_worse}", flush=True)
        worse |= is_worse
    return worse


def main() -> None:
    """Print each figure of both sides, and its ratio."""
    parser = parser_of(__doc__, only=BENCHMARKS, turns=5, check=False)
    parser.add_argument("commit", help="the other side")
    options = parser.parse_args()
    worse = False
    with tempfile.TemporaryDirectory() as folder:
        tree = _extract(options.commit, Path(folder, "archive"))
        sides = [_install(tree, Path(folder, "before")), _install(CHECKOUT, Path(folder, "now"))]
        for name in options.only:
            worse |= _compare(name, sides, options.turns)
    sys.exit(options.check and worse)


if __name__ == "__main__":
    main()
