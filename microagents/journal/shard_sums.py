"""Accounts of the shards of a run, added up to the account of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from msgspec import structs

from microagents.elections.certainty import MassAudit
from microagents.elections.election import USD_DIGITS
from microagents.journal.digests import in_order, sum_of_digests
from microagents.journal.messages import Account

_UNKNOWN_IF_ONE_IS = ("cost_usd", "saved_usd", "total_steps")
_DIGESTS = ("decisions_sha256", "ballots_sha256")


def with_shards(whole: Account, shards: Sequence[Account]) -> Account:
    """Return the account of a run in shards.

    Args:
        whole: the account of its own journal, which has its inputs and its state, and no calls.
        shards: the accounts of its shards.
    """
    found = dict[str, Any]()
    for name in Account.__struct_fields__:
        values = [getattr(each, name) for each in shards]
        known = [each for each in values if each is not None]
        if name in _DIGESTS:
            found[name] = sum_of_digests(values)
        elif name == "wrong_at":
            found[name] = min(known, key=in_order, default=None)
        elif name in _UNKNOWN_IF_ONE_IS and len(known) < len(values):
            found[name] = None
        elif name == "outage":
            found[name] = next(iter(known), None)
        elif name == "cost_usd":
            found[name] = round(sum(known), USD_DIGITS)
        elif known and not isinstance(known[0], str) and name not in ("inputs", "limits", "promise", "expected_usd"):
            found[name] = reduce(_plus, known)
    return structs.replace(whole, **found)


def _plus(ours: Any, theirs: Any) -> Any:
    """Add up numbers, tests, places, and the parts of mappings and other structs; of two texts the first stays."""
    if isinstance(ours, dict):
        both = {name: _plus(ours[name], theirs[name]) for name in ours.keys() & theirs.keys()}
        return {**ours, **theirs, **both}
    if isinstance(ours, int | float | tuple | MassAudit):
        return ours + theirs
    if isinstance(ours, str) or ours is None:
        return ours
    parts = {name: _plus(getattr(ours, name), getattr(theirs, name)) for name in ours.__struct_fields__}
    return type(ours)(**parts)
