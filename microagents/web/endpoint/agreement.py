"""Agreement of samples by tool and argument, from a journal: it shows which arguments a policy should leave out."""

from __future__ import annotations

from statistics import fmean

from msgspec import Struct

from microagents.base.messages import address_of
from microagents.elections.election import Ballot
from microagents.journal.reading import Reader
from microagents.replies.reply_forms import decoder_of
from microagents.web.endpoint.acts import Acts, shares_of
from microagents.web.endpoint.policy import TEXT
from microagents.web.endpoint.served_elections import Voted


class Agreement(Struct, frozen=True, kw_only=True):
    """How often samples agree on a tool, or on one argument of it."""

    tool: str
    argument: str
    """Empty for the tool itself."""
    elections: int
    """Number of elections of at least two samples: of the tool itself if one of them calls it, of an argument if two do."""
    share: float
    """Mean share of the samples with the most frequent value."""


def agreement_in(reader: Reader) -> list[Agreement] | None:
    """Read the agreement of the samples of an endpoint's run, by tool; None for any other run."""
    if reader.experiment.recipe.strategy != address_of(Voted):
        return None
    shares: dict[tuple[str, str], list[float]] = {}
    for decision in reader.of_input(0)[0].values():
        samples = [decoder_of(Acts).decode(each.value) for each in decision.ballots if isinstance(each, Ballot)]
        if len(samples) < 2:  # noqa: PLR2004
            continue
        tools = {call.tool for acts in samples for call in acts.calls} - {TEXT}
        for tool in sorted(tools):
            for argument, share in shares_of(tool, samples).items():
                shares.setdefault((tool, argument), []).append(share)
    return [
        Agreement(tool=tool, argument=argument, elections=len(found), share=fmean(found))
        for (tool, argument), found in sorted(shares.items())
    ]
