"""Agreement of samples by tool and argument, from a journal: it shows which arguments a policy should leave out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import fmean

from msgspec import Struct

from microagents.base.messages import address_of
from microagents.elections.election import Ballot
from microagents.journal.messages import Recalled
from microagents.journal.reading import Reader
from microagents.replies.chat import decoder_of
from microagents.replies.turns import ToolCall, canonical
from microagents.web.endpoint.acts import Acts
from microagents.web.endpoint.policy import TEXT
from microagents.web.endpoint.served_elections import Voted


class Agreement(Struct, frozen=True, kw_only=True):
    """How often samples agree on a tool, or on one argument of it."""

    tool: str
    argument: str
    """Empty for the tool itself."""
    elections: int
    """Number of elections in which at least two samples call the tool, or in which one does for the tool itself."""
    share: float
    """Mean share of the samples with the most frequent value."""


def agreement_in(reader: Reader) -> list[Agreement] | None:
    """Read the agreement of the samples of an endpoint's run, by tool; None for any other run."""
    if reader.experiment.recipe.strategy != address_of(Voted):
        return None
    decisions, _ = reader.of_input(0)
    return agreement_of(decisions.values())


def agreement_of(decisions: Iterable[Recalled]) -> list[Agreement]:
    """Compute the agreement of samples, by tool."""
    shares: dict[tuple[str, str], list[float]] = {}
    for decision in decisions:
        samples = [decoder_of(Acts).decode(each.value).calls for each in decision.ballots if isinstance(each, Ballot)]
        for tool in sorted({call.tool for calls in samples for call in calls} - {TEXT}):
            first = [next((call for call in calls if call.tool == tool), None) for calls in samples]
            made = [call for call in first if call is not None]
            if len(samples) > 1:
                shares.setdefault((tool, ""), []).append(len(made) / len(samples))
            for argument, share in _shares(made):
                shares.setdefault((tool, argument), []).append(share)
    return [
        Agreement(tool=tool, argument=argument, elections=len(found), share=fmean(found))
        for (tool, argument), found in sorted(shares.items())
    ]


def _shares(made: list[ToolCall]) -> list[tuple[str, float]]:
    """Return the share of each argument's most frequent value among several calls of a tool."""
    if len(made) < 2:  # noqa: PLR2004
        return []
    found = []
    for argument in sorted({name for call in made for name in call.arguments}):
        values = Counter(canonical(call.arguments.get(argument)) for call in made)
        found.append((argument, max(values.values()) / len(made)))
    return found
