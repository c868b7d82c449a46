"""The policy of an endpoint: by tool, the harm that its calls can do and the arguments that cast no vote."""

from __future__ import annotations

import tomllib
from collections.abc import Hashable, Mapping
from importlib.resources import files
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from microagents.base.errors import refusing
from microagents.base.files import read_text
from microagents.elections.rules import AheadByHarm, RuleOutcome, Tally
from microagents.tools.tool import Effect

MARGINS: Mapping[Effect, int] = {"read_only": 1, "idempotent": 2, "destructive": 4}
"""Votes by which a call leads every other one, by the harm that it can do: as of the actions of agents."""
PATIENCE = 4
"""Times the margin of the leading reply, in votes, after which an election ends without a decision."""
TEXT = ""
"""Stands for the name of a tool in the vote of a reply without calls."""
_SHIPPED = files("microagents.web.endpoint") / "policies"


class ToolPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The harm of one tool, and its arguments without a vote."""

    effect: Effect | None = None
    """The harm that a call can do, which sets the margin; without it the margin is `-k`."""
    ignore: tuple[str, ...] = ()
    """Arguments that cast no vote, since they explain or tune."""
    approve: bool = False
    """Whether a call waits for the approval of a person once it is elected."""
    text: tuple[str, ...] = ()
    """Arguments whose text one sample gives: the call is elected, and they are not."""


_ANY = ToolPolicy()


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How replies vote."""

    votes: Literal["end", "text"] = "end"
    """Replies without calls are one vote, the end of the turn; or each is a vote for its text, white space aside."""
    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.1
    """Temperature of the repeats of a request that names a lower one. The first sample is asked for as the client wrote it."""
    keep_bodies: bool = False
    """Whether the journal keeps the bodies of requests whole, each at the path of its election and ``/body``; else their digests."""
    hedge: Annotated[int, Meta(ge=0)] = 0
    """Samples in flight beyond those that can decide, while these are two or more: a second round of samples is rarer, and each costs."""
    tools: dict[str, ToolPolicy] = {}
    """By the name of the tool."""

    def rule(self, k: int, *, is_settled: bool = False) -> AheadOrLeading:
        """Return the rule of an election.

        Args:
            k: the margin of texts and of tools without an effect.
            is_settled: whether all texts are one vote, and no call is expected: then one text is enough.
        """
        margins = {name: MARGINS[each.effect] for name, each in self.tools.items() if each.effect is not None}
        if is_settled:
            margins[TEXT] = 1
        return AheadOrLeading(margins=margins, otherwise=k, hedge=self.hedge)

    @property
    def unvoted(self) -> dict[str, tuple[str, ...]]:
        """By tool, the arguments that cast no vote."""
        return {name: (*each.ignore, *each.text) for name, each in self.tools.items() if each.ignore or each.text}

    def of(self, tool: str) -> ToolPolicy:
        """Return the policy of a tool, which may have no table."""
        return self.tools.get(tool, _ANY)


class AheadOrLeading(AheadByHarm, frozen=True):
    """Decided like `AheadByHarm`; `argmax` once the votes are four times the margin of the leading reply."""

    hedge: int = 0
    """Votes asked for beyond the fewest that can decide, while these are two or more. They change no decision."""

    @property
    def most(self) -> int:
        """Votes after which any election is over."""
        return PATIENCE * max((*self.margins.values(), self.otherwise))

    def votes_needed(self, tally: Tally) -> int:
        """Fewest votes with which a reply has its margin, or after which the leader is taken; and the hedge."""
        missing = super().votes_needed(tally)
        if missing > 1:
            missing += self.hedge
        if not tally.counted:
            return missing
        leader: Hashable = tally.plurality
        left = PATIENCE * self.margin_of(leader) - tally.counted
        return max(0, min(missing, left))

    def outcome(self, tally: Tally) -> RuleOutcome:
        """``argmax`` if no reply has its margin."""
        if super().votes_needed(tally):
            return "argmax"
        return "decided"


def shipped_policies() -> list[str]:
    """List the names of the policies that ship with the package."""
    return sorted(each.name.removesuffix(".toml") for each in _SHIPPED.iterdir() if each.name.endswith(".toml"))


def read_policy(given: str | None) -> Policy:
    """Read the policy of a TOML file, or a shipped one by its name; None for the default.

    Raises:
        InvalidUsage: it cannot be read, or a line of it is wrong.
    """
    if given is None:
        return Policy()
    names = shipped_policies()
    hint = "" if given.endswith(".toml") else f"; shipped policies are {', '.join(names)}"
    with refusing(f"the policy {given!r:.200} cannot be read", hint):
        if given in names:
            text = (_SHIPPED / f"{given}.toml").read_text(encoding="utf-8")
        else:
            text = read_text(given)
        return msgspec.convert(tomllib.loads(text), Policy)
