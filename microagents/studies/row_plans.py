"""Plans of tables: the chance, the calls and the cost of votes on rows, by a law, and as they were held on a pilot of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from microagents.base.errors import InvalidUsage
from microagents.elections.laws import check_target
from microagents.runs.driver.shared_questions import questions_of
from microagents.studies.measured import ModelMeasurement, Pilot
from microagents.studies.trials import AgentMeasurement
from microagents.systems.chains.row_task import RowTask
from microagents.task import Task

MOST_K = 6
"""The largest k that is tried."""
LAW = "the law holds if fields err independently, rows are alike and wrong values agree"
LAW_IS_OFF = (
    "the law is off here: wrong values differ, samples err in several fields at once, or some rows are hard; go by the votes that were "
    "held, at another k by microagents measure TASK --inputs FILE -k K"
)
UNTESTED = "no votes were held, so nothing tests the law: microagents measure TASK --inputs FILE --pilot 20"
UNJUDGED = (
    "nothing judges its replies, so there is no chance and no law; calls and open rows are as the votes were held"
)


class PlannedVotes(Struct, frozen=True, kw_only=True):
    """Votes of one model on all rows."""

    model: str
    votes: Pilot
    """As they were held; as the law has them if they are on no row."""
    calls: float
    """Calls of the table."""
    row_usd: float | None
    """Cost of a row that is asked; None if it is unknown."""
    cost_usd: float | None
    """Cost of the table."""


class PlannedTable(Struct, frozen=True, kw_only=True):
    """The votes that come into question for a table."""

    rows: int
    asked: int
    """Number of rows that are asked: equal ones are asked once."""
    fields: int
    """Number of parts of a reply that are voted on."""
    target: float
    """Wanted chance that all fields of a row are right."""
    votes: tuple[PlannedVotes, ...]
    notes: dict[str, tuple[str, ...]]
    """By model the sentences about what bears on its votes."""
    best: PlannedVotes | None
    """The cheapest that reach the target; None if none do."""
    is_sure: bool
    """Whether they were held: their whole interval reaches it. Else they are the law's."""


def plan_rows(
    rows: Sequence[Task],
    measured: Sequence[ModelMeasurement | AgentMeasurement],
    *,
    target: float = 0.95,
    k: int | None = None,
    max_cost_usd: float | None = None,
) -> PlannedTable:
    """List the votes on the rows of a table: by the law for each k, and as a pilot held them.

    Args:
        rows: a task for each row, all of one class.
        measured: the measurement of each model on rows of this task.
        target: wanted chance that all fields of a row are right.
        k: the only k of the law.
        max_cost_usd: cost that the table may be expected to have.

    Raises:
        InvalidUsage: the tasks are of another kind, or a measurement is of other fields or tells nothing of votes.
    """
    check_target(target)
    first = rows[0]
    if not isinstance(first, RowTask):
        raise InvalidUsage(f"a plan of many inputs is for a RowTask, unlike {type(first).__name__}: leave out --inputs")
    models = [each for each in measured if isinstance(each, ModelMeasurement)]
    names = [" and ".join(each) for each in first.fields_of_vote(first.reply_type())]
    for each in models:
        _check(each, names)
    asked = questions_of(rows)
    ks = range(1, MOST_K + 1) if k is None else [k]
    votes = list[PlannedVotes]()
    for each in models:
        has_law = len(each.fields) == len(names)  # gold may judge some fields only
        votes += _votes_of(each, asked, target, ks if has_law else ())
    enough = [each for each in votes if each.votes.right is not None and each.votes.right.low >= target]
    if max_cost_usd is not None:
        enough = [each for each in enough if each.cost_usd is not None and each.cost_usd <= max_cost_usd]
    sure = [each for each in enough if each.votes.rows]
    off = [each.model for each in models if each.law_is_off]
    by_law = [each for each in enough if each.model not in off]
    return PlannedTable(
        rows=len(rows),
        asked=asked,
        fields=max(1, len(names)),
        target=target,
        votes=tuple(votes),
        notes={each.model: tuple(_notes(each)) for each in models},
        best=min(sure or by_law, key=_price, default=None),
        is_sure=bool(sure),
    )


def _check(found: ModelMeasurement, names: Sequence[str]) -> None:
    if found.judged and ({*found.fields} - {*names} or bool(found.fields) != bool(names)):
        raise InvalidUsage(
            f"the measurement {found.run_id!r} is of votes on {', '.join(found.fields) or 'whole replies'}, and here they are on "
            f"{', '.join(names) or 'whole replies'}; measure these: microagents measure TASK --inputs FILE"
        )
    if not found.judged and found.pilot is None:
        raise InvalidUsage(
            f"the measurement {found.run_id!r} has neither an oracle nor a pilot, so it tells nothing of votes; measure with --pilot 20"
        )


def _price(planned: PlannedVotes) -> tuple[bool, float, float]:
    """Order votes by price; an unknown price comes last."""
    return planned.cost_usd is None, planned.cost_usd or 0.0, planned.calls


def _votes_of(found: ModelMeasurement, asked: int, target: float, ks: Sequence[int]) -> Iterator[PlannedVotes]:
    """Yield the votes by the law up to the first k that is enough, then those that were held."""
    for each in ks:
        law = found.law(each)
        if law is None or law.right is None:
            break
        yield _planned(found, law, asked)
        if law.right.low >= target:
            break
    if found.pilot is not None:
        yield _planned(found, found.pilot, asked)


def _planned(found: ModelMeasurement, votes: Pilot, asked: int) -> PlannedVotes:
    calls, row_usd, cost_usd = votes.calls.mid * asked, None, None
    if found.call_usd is not None:
        row_usd, cost_usd = found.call_usd * votes.calls.mid, found.call_usd * calls
    return PlannedVotes(model=found.model, votes=votes, calls=calls, row_usd=row_usd, cost_usd=cost_usd)


def _notes(found: ModelMeasurement) -> Iterator[str]:
    if not found.judged:
        yield UNJUDGED
        return
    yield LAW
    if found.pilot is None:
        yield UNTESTED
    if found.law_is_off:
        yield LAW_IS_OFF
    kind, said = found.verdict()
    if kind != "votes-help":
        yield said
