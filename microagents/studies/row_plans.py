"""Plans of tables: the chance, the calls and the cost of votes on rows, by a law, and as they were held on a pilot of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from msgspec import Struct

from microagents.base.errors import InvalidUsage, MicroagentsError
from microagents.elections.laws import check_target
from microagents.runs.driver.shared_questions import questions_of
from microagents.runs.step_counts import longest_prompt
from microagents.studies.measured import ModelMeasurement, Pilot
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
    """Votes on all rows."""

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

    model: str
    rows: int
    asked: int
    """Number of rows that are asked: equal ones are asked once."""
    fields: int
    """Number of parts of a reply that are voted on."""
    target: float
    """Wanted chance that all fields of a row are right."""
    votes: tuple[PlannedVotes, ...]
    """Those of the law, by their k, then those that were held."""
    notes: tuple[str, ...]
    """Sentences on the votes."""
    best: PlannedVotes | None
    """The cheapest that reach the target; None if none do."""

    @property
    def is_sure(self) -> bool:
        """Whether the best were held: their whole interval reaches the target. Else they are the law's."""
        return self.best is not None and self.best.votes.rows > 0


def plan_rows(
    rows: Sequence[Task],
    found: ModelMeasurement,
    *,
    target: float = 0.95,
    k: int | None = None,
    max_cost_usd: float | None = None,
) -> PlannedTable:
    """List the votes on the rows of a table: by the law for each k, and as a pilot held them.

    Args:
        rows: a task for each row, all of one class.
        found: the measurement of a model on rows of this task.
        target: wanted chance that all fields of a row are right.
        k: the only k of the law.
        max_cost_usd: cost that the table may be expected to have.

    Raises:
        InvalidUsage: the tasks are of another kind, or the measurement is of other fields or tells nothing of votes.
    """
    check_target(target)
    first = rows[0]
    if not isinstance(first, RowTask):
        raise InvalidUsage(f"a plan of many inputs is for a RowTask, unlike {type(first).__name__}: leave out --inputs")
    names = [" and ".join(each) for each in first.fields_of_vote(first.reply_type())]
    _check(found, names)
    asked, ks = questions_of(rows), range(1, MOST_K + 1) if k is None else [k]
    has_law = len(found.fields) == len(names)  # gold may judge some fields only
    votes = [_planned(found, each, asked) for each in _votes_of(found, target, ks if has_law else ())]
    enough = [each for each in votes if _reaches(each.votes, target)]
    if max_cost_usd is not None:
        enough = [each for each in enough if each.cost_usd is not None and each.cost_usd <= max_cost_usd]
    held = [each for each in enough if each.votes.rows]
    return PlannedTable(
        model=found.model,
        rows=len(rows),
        asked=asked,
        fields=max(1, len(names)),
        target=target,
        votes=tuple(votes),
        notes=tuple(_notes(found, rows)),
        best=next(iter(held or ([] if found.law_is_off else enough)), None),
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


def _reaches(votes: Pilot, target: float) -> bool:
    return votes.right is not None and votes.right.low >= target


def _votes_of(found: ModelMeasurement, target: float, ks: Sequence[int]) -> Iterator[Pilot]:
    """Yield the votes by the law up to the first k that is enough, then the votes that were held."""
    for each in ks:
        law = found.law(each)
        if law is None:
            break
        yield law
        if _reaches(law, target):
            break
    if found.pilot is not None:
        yield found.pilot


def _planned(found: ModelMeasurement, votes: Pilot, asked: int) -> PlannedVotes:
    row_usd = None if found.call_usd is None else found.call_usd * votes.calls.mid
    cost_usd = None if row_usd is None else row_usd * asked
    return PlannedVotes(votes=votes, calls=votes.calls.mid * asked, row_usd=row_usd, cost_usd=cost_usd)


def _notes(found: ModelMeasurement, rows: Sequence[Task]) -> Iterator[str]:
    sizes = [0]
    for each in rows:
        assert isinstance(each, RowTask)
        with suppress(MicroagentsError):  # the run says why this row cannot be asked, and does the others
            sizes.append(longest_prompt(each))
    longer = found.longer(max(sizes))
    if longer is not None:
        yield longer
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
