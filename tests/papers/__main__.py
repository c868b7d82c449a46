"""Print figures of the papers beside ours: ``python -m tests.papers [PAPER [FIGURE...]] [--model SPEC] [--write]``."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill

from microagents.base.errors import MicroagentsError
from microagents.cli.views.tables import Columns, table
from tests.papers import lead_figures, maker_figures, other_figures
from tests.papers.figures import Figure, Lab, Line

PAGE = Path(__file__).parents[2] / "docs" / "notebooks" / "papers.md"
PAPERS = {
    "maker": "MAKER (arXiv 2511.09030)",
    "swarm": "The swarm",
    "lead": "LEAD",
    "seqcv": "SeqCV",
    "aot": "Atom of Thoughts",
}
FIGURES = [*maker_figures.FIGURES, *lead_figures.FIGURES, *other_figures.FIGURES]
HOLDS = {True: "yes", False: "**no**", None: "-"}
HEAD = ["number", "published", "ours", "95 % interval", "n", "model", "as published"]
INTRO = """# Papers

The tables and figures of five papers, published and ours side by side, by

    python -m tests.papers PAPER FIGURE... [--model SPEC] [--n N] [--data DIR]

The word beside each number says who answered: a simulated model with planted error rates, which tests the
machinery; a small trained model (`tiny:...`); a key's model; or nobody, for a formula. `--model` puts a model in
place of each figure's own; its bill is shown and asked for before, if its price is known. `python -m tests.papers
--write` writes this page: its short forms take a few minutes of a core, and `--n` larger ones. Numbers of which a paper
says nothing are printed by the commands only.

*As published* says whether ours shows what the paper says. The rates of simulated models are planted after the
papers: that they agree shows that the machinery works, and nothing of a model.
"""


def chosen(paper: str | None, names: Sequence[str]) -> list[Figure]:
    """Return the figures that a command names."""
    found = [each for each in FIGURES if paper in (None, each.paper) and (not names or each.name in names)]
    if unknown := {*names} - {each.name for each in found}:
        known = ", ".join(each.name for each in FIGURES if each.paper == paper)
        raise SystemExit(f"{paper} has no figure {min(unknown)!r}; there are {known}")
    return found


async def lines_of(figure: Figure, lab: Lab) -> list[Line]:
    """Compute a figure; no lines if it lacks what it needs."""
    lacks = ("model" in figure.needs and not lab.models) or ("data" in figure.needs and lab.data is None)
    return [] if figure.compute is None or lacks else await figure.compute(lab)


def cells(line: Line) -> list[str]:
    """Return the cells of a line."""
    n = "-" if line.n is None else f"{line.n:,}"
    return [line.what, line.published, line.ours, line.interval, n, line.model, HOLDS[line.holds]]


def reason(figure: Figure, *, is_made: bool) -> str:
    """Say why ours differs, or what is missing."""
    options = {"model": "`--model SPEC`", "data and model": "`--data DIR` and `--model SPEC`"}
    return figure.why if is_made or not figure.needs else f"Needs {options[figure.needs]}. {figure.why}"


def claims(figures: Iterable[Sequence[Line]]) -> list[Line]:
    """Return the numbers of which the paper says something, each once: some stand in several figures."""
    return list(dict.fromkeys(line for lines in figures for line in lines if line.holds is not None))


def compared(lines: Sequence[Line]) -> list[Line]:
    """Return the numbers that the paper has, too: the others are only printed."""
    return [line for line in lines if line.published != "-"]


def page(found: Sequence[tuple[Figure, list[Line]]]) -> Iterator[str]:
    """Write the page."""
    judged = [line.holds for line in claims(lines for _, lines in found)]
    yield INTRO
    yield f"{sum(map(bool, judged))} of {len(judged)} claims are seen, a claim of several figures counted once. Not seen:\n"
    for figure, lines in found:
        yield from (f"- `{figure.command}`: {line.what}" for line in lines if line.holds is False)
    yield ""
    for paper, title in PAPERS.items():
        own = [(figure, lines) for figure, lines in found if figure.paper == paper]
        yield f"## {title}\n"
        yield "\n".join([f"| command | {' | '.join(HEAD)} |", "|---" * (len(HEAD) + 1) + "|"])
        for figure, lines in own:
            for at, line in enumerate(compared(lines)):
                yield f"| {'' if at else f'`{figure.command}`'} | {' | '.join(cells(line))} |"
        yield ""
        reasons: dict[str, list[str]] = {}
        for figure, lines in own:
            reasons.setdefault(reason(figure, is_made=bool(lines)), []).append(f"**{figure.name}** {figure.subject}")
        for text, names in reasons.items():
            yield fill(f"- {', '.join(names)}: {text}", 110, subsequent_indent="  ", break_on_hyphens=False)
        yield ""


async def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], prog="python -m tests.papers")
    parser.add_argument("paper", nargs="?", choices=PAPERS)
    parser.add_argument("figure", nargs="*", help="(default: all)")
    parser.add_argument("--model", action="append", default=[], help="in place of each figure's own; repeatable")
    parser.add_argument("--n", type=int, help="inputs, steps or problems of each number (default: a short form)")
    parser.add_argument("--data", type=Path, help="folder with gsm8k.jsonl, math.jsonl, hotpotqa.jsonl and others")
    parser.add_argument("--runs-dir", type=Path, help="folder of journals (default: runs with --model, else none)")
    parser.add_argument("--yes", action="store_true", help="do not ask before a model is paid")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    given = parser.parse_args(arguments)
    figures = chosen(given.paper, given.figure)
    if given.write and given.paper:
        parser.error("--write takes all papers")
    with TemporaryDirectory() as folder:
        runs_dir = given.runs_dir or Path("runs" if given.model else folder)
        lab = Lab(runs_dir, models=given.model, count=given.n, data=given.data, asks=not given.yes)
        found = []
        for figure in figures:
            lines = await lines_of(figure, lab)
            found.append((figure, lines))
            print(f"{figure.command}: {figure.subject}")
            print(table(Columns([HEAD, *map(cells, lines)], to_the_left=range(6))) if lines else "  no numbers")
            print(f"  {reason(figure, is_made=bool(lines))}\n", flush=True)
    if given.write:
        PAGE.write_text("\n".join(page(found)), encoding="utf-8")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except MicroagentsError as error:
        sys.exit(f"{error}")
