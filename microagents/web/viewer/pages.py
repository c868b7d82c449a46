"""Data of the pages, as JSON, read from the journal."""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from microagents.base.errors import InvalidUsage
from microagents.elections.election import AnyBallot, Flagged
from microagents.journal.experiment import Recipe
from microagents.journal.messages import Recalled
from microagents.journal.reading import Reader
from microagents.runs.driver.graph import graph_of
from microagents.runs.driver.role_pictures import svg_of, totals_by_role
from microagents.runs.inspection.climbs import climbs_of
from microagents.runs.inspection.rebuilding import wrong_steps
from microagents.runs.inspection.row_table import is_table, wrong_rows
from microagents.runs.inspection.runs import recorded_result, solution_of
from microagents.runs.plan import plan_of
from microagents.runs.words.batches import batch_lines
from microagents.systems.questions.tree import ProblemNode, fold

STATIC = Path(__file__).parent / "static"
POINTS = 160
"""Points of a chart over time."""
MAX_LISTED = 500
"""Entries of a list on a page."""
MAX_RANGES = 20_000
"""Ranges of steps in which two runs differ."""
MAX_PROBLEMS = 2_000
"""Problems of a tree on a page; deeper ones are folded."""
MAX_FOLDED_DEPTH = 64


def run_facts(reader: Reader, of_input: int) -> dict[str, Any]:
    """Return the object of `show --json`, and the bounds of the run. Of many inputs it has the result of one."""
    experiment = reader.experiment
    result = recorded_result(reader, whole=False)
    ending = None
    if experiment.listed:
        experiment.check_there([of_input])
        ending = reader.input_ending(of_input)
    found, bounds = result.as_json(), result.settings
    if ending is not None and ending.result is not None:
        found["result"] = msgspec.json.decode(ending.result)
    if ending is not None and ending.outcome != "completed":
        found["failed"] = {"outcome": ending.outcome, "reason": ending.reason}
    return {
        **found,
        "listed": experiment.listed,
        "is_table": is_table(reader),
        "inputs_failed": result.account.inputs_failed,
        "total_steps": result.account.total_steps,
        "max_cost_usd": bounds["max_cost_usd"],
        "max_calls": bounds["max_calls"],
        "paused": result.account.paused,
        "may_resume": reader.is_known and result.resumes,
        "batch_lines": batch_lines(reader, result.price),
        "undecided_at": found["undecided_at"][:MAX_LISTED],
        "contested_at": dict(islice(found["contested_at"].items(), MAX_LISTED)),
        "settled_at": dict(islice(found["settled_at"].items(), MAX_LISTED)),
    }


def may_resume(reader: Reader) -> bool:
    """Whether a page may continue a run: `resume` alone does, and this user has begun or continued the run here."""
    return reader.is_known and recorded_result(reader, whole=False).resumes


def decisions_at(reader: Reader, paths: Sequence[str], most: int) -> list[dict[str, Any]]:
    """Return the decisions at the first paths: outcome, reply, and which samples agree with it, are flagged, or differ."""
    found = [(path, reader.decision_at(path)) for path in list(dict.fromkeys(paths))[:most]]
    decisions = []
    for path, row in found:
        if row is not None:
            value, samples = msgspec.json.decode(row.value or b"null"), [_sample(each, row) for each in row.ballots]
            decisions.append({"path": path, "outcome": row.outcome, "value": value, "samples": samples})
    return decisions


def _sample(sample: AnyBallot, row: Recalled) -> str | bool:
    """Return the flag of a sample, else whether it agrees with the decision."""
    if isinstance(sample, Flagged):
        return sample.flag
    return sample.value == row.value


def first_steps(reader: Reader, of_input: int) -> dict[str, Any]:
    """Return the decisions of the first steps of a chain; none of an agent, whose actions the work has."""
    if reader.experiment.unit == "action":
        return {"steps": []}
    count = len(reader.holding(str(of_input)).overview(of_input))
    paths = [f"{of_input}/step/{number}" for number in range(count)]
    return {"steps": decisions_at(reader, paths, MAX_LISTED)}


def work_on(reader: Reader, of_input: int) -> dict[str, Any]:
    """Return the work on an input as its conductor notes it, and the steps that climbed; a part that cannot be drawn has a note."""
    solution, note = None, None
    if reader.experiment.draws_solution:
        try:
            solution = _folded(solution_of(reader, of_input))
        except InvalidUsage as error:
            note = str(error)
    climbs = climbs_of(reader, of_input)
    shown = {"solution": solution, "note": note, "climbs": climbs[:MAX_LISTED], "climbed": len(climbs)}
    return msgspec.json.decode(msgspec.json.encode(shown))  # type: ignore[no-any-return]


def graph(reader: Reader) -> str:
    """Draw the roles of a run and their messages, with the facts of its account about each role."""
    plan = plan_of(reader)
    found, unit = graph_of(plan), type(plan.tasks[0]).progress_unit
    account = reader.account()
    placed = structs.replace(found, placement=account.placement)
    return svg_of(placed, totals_by_role(found, account, unit))


def _folded(solution: Struct) -> Struct:
    if isinstance(solution, ProblemNode) and solution.below.problems > MAX_PROBLEMS:
        depth = MAX_FOLDED_DEPTH
        while depth and _count(fold(solution, depth)) > MAX_PROBLEMS:
            depth -= 1
        return fold(solution, depth)
    return solution


def _count(node: ProblemNode) -> int:
    return 1 + sum(map(_count, node.children))


def judged(reader: Reader, of_input: int, within_s: float) -> dict[str, Any]:
    """Return the steps that the task's oracle calls wrong, and how many it judged; without the task's code a note says why none.

    Beside them stand the right replies. Of a table they are its rows. A run without an error has none, and takes no time.
    """
    if not reader.account().errors:
        return {"wrong": [], "judged": None}
    number: int | None
    try:
        if is_table(reader):
            rows, number = wrong_rows(reader, within_s)
            return {"wrong": rows, "judged": number}
        steps, number = wrong_steps(reader, of_input, within_s)
    except InvalidUsage as error:
        return {"wrong": [], "judged": None, "note": f"what is wrong is not marked: {error}"}
    wrong = dict(islice(steps.items(), MAX_LISTED))
    return {"wrong": list(wrong), "right": list(wrong.values()), "judged": number}


def differences(reader: Reader, other: Reader, of_input: int, within_s: float) -> dict[str, Any]:
    """Compare the decisions of two runs: the number of differences, the first places with both values, the ranges of steps."""
    ends_s, count, ended = time.monotonic() + within_s, 0, True
    found: list[dict[str, Any]] = []
    ranges: list[list[int]] = []
    steps = f"{of_input}/step/"
    for path, *values in reader.holding(str(of_input)).differences(other, of_input):
        count += 1
        if len(found) < MAX_LISTED:
            decoded = [msgspec.json.decode(each or b"null") for each in values]
            found.append({"path": path, "values": decoded})
        if path.startswith(steps) and (number := path.removeprefix(steps)).isdecimal():
            if ranges and ranges[-1][1] == int(number):
                ranges[-1][1] += 1
            else:
                ranges.append([int(number), int(number) + 1])
        if time.monotonic() > ends_s:
            ended = False
            break
    return {
        "differ": found,
        "count": count,
        "ended": ended,
        "ranges": ranges[:MAX_RANGES],
        "options": _other_options(reader.experiment.recipe, other.experiment.recipe),
    }


def _other_options(recipe: Recipe, other: Recipe) -> dict[str, list[Any]]:
    """Return the options of task and strategy that differ, with both values."""
    own, others = ({**each.options, **each.strategy_options} for each in (recipe, other))
    return {name: [own.get(name), others.get(name)] for name in {**own, **others} if own.get(name) != others.get(name)}


def packed(content: bytes) -> bytes:
    """Compress the bytes of a strip: most repeat the one before."""
    compressor = zlib.compressobj(6, zlib.DEFLATED, 15, 9, zlib.Z_RLE)
    return compressor.compress(content) + compressor.flush()


def source(name: str) -> str:
    """Return the text of a file of the pages."""
    return (STATIC / name).read_text(encoding="utf-8")
