"""Checks of a whole journal: every page and row, and that its totals and digests match its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from microagents.elections.election import input_of
from microagents.journal.books import Books
from microagents.journal.encoding import key_range, path_range, place_of
from microagents.journal.experiment import Experiment
from microagents.journal.messages import Account, record_of
from microagents.journal.queries import check_inputs, read_decisions
from microagents.journal.rows import Rows, checksum
from microagents.journal.statements import BELOW, MISCOUNTED, OF_INPUT, OF_PLACE, one, pragma
from microagents.journal.tables import PLACED, InputRow, PlaceRow, RunRow


def damage(rows: Rows) -> Iterator[str]:
    """Read every page and every row; gives a sentence for each damage."""
    problem = pragma(rows.db, "integrity_check(1)")
    if problem != "ok":
        yield f"the file is damaged: {' '.join(str(problem).split())}"
        return
    try:
        for _ in rows.select(RunRow):
            pass
        yield from damaged_inputs(rows)
        check_inputs(rows)
    except ValueError as error:
        yield str(error)


def damaged_inputs(rows: Rows, of_input: int | None = None) -> Iterator[str]:
    """Read all rows of an input, or of all inputs; gives a sentence for each one with rows that were lost or changed."""
    if of_input is None:
        places = list(rows.select(PlaceRow))
        recorded = rows.select(InputRow)
        ranges: list[tuple[str, tuple[int, ...]]] = [("", ())]
    else:
        below = path_range(str(of_input))
        places = list(rows.select(PlaceRow, BELOW, below))
        recorded = rows.select(InputRow, OF_INPUT, (of_input,))
        ranges = [(OF_PLACE, key_range(each.id)) for each in places]
    inputs = {each.id: input_of(each.path) for each in places}
    found = Counter[int]()
    for place in places:
        found[inputs[place.id]] += checksum(place)
    for kind in PLACED:
        for condition, given in ranges:
            for row in rows.select(kind, condition, given):
                found[inputs.get(place_of(row.key), -1)] += checksum(row)
    for each in recorded:
        if each.content != found[each.input]:
            yield f"rows of input {each.input} are missing, or differ from its digest"


def differences_from_rows(rows: Rows, experiment: Experiment, account: Account) -> Iterator[str]:
    """Give a sentence for each number and digest of an account that its rows do not make."""
    if miscounted := one(rows.db, MISCOUNTED):
        yield f"counted differs from the number of ballots in {miscounted:,} decisions"
    books = Books(experiment.inputs)
    for path, row in read_decisions(rows):
        books.add(record_of(path, row))
    made = books.account()
    for name in ("decided", "valid", "votes", "flagged", "decisions_sha256", "ballots_sha256"):
        if getattr(account, name) != getattr(made, name):
            yield f"{name} is recorded as {getattr(account, name)!r}, its rows make {getattr(made, name)!r}"
