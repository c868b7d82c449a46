"""A plan of a promise on the terminal: labels, calls, cost, and the rows that must stay open."""

from __future__ import annotations

from msgspec import structs

from microagents.base.printing import printable
from microagents.cli.reporting import echo, json_text
from microagents.studies.promised import PromisePlan


def print_promise(found: PromisePlan, *, as_json: bool) -> None:
    """Print a plan, as sentences or as one object."""
    if as_json:
        echo(json_text({**structs.asdict(found), "missing": found.missing}))
        return
    echo(printable(str(found)))
    if found.missing:
        echo(f"{found.missing} labels are missing at least: the same words with run draw the rows to label")
    if found.least_open is None:
        echo(
            "rows that must stay open: not known before the labelled rows are asked, or --from RUN measured the strong model"
        )
    else:
        echo(f"rows that must stay open: at least {found.least_open:.1%}")
