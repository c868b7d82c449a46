"""Groups of replies that mean the same, for elections whose votes are counted by meaning."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


class Groups:
    """Groups of one election. Each is named by the reply of it that was launched first, as JSON.

    Replies are added in launch order, each with the groups that it belongs to. One that belongs to several makes them one.
    """

    def __init__(self) -> None:
        self._representative: dict[Hashable, bytes] = {}
        """The representative of each vote."""

    @property
    def representatives(self) -> list[bytes]:
        """One reply of each group, in launch order."""
        return list(dict.fromkeys(self._representative.values()))

    def of(self, vote: Hashable) -> bytes | None:
        """Find the representative of a vote; None for one that is not grouped yet."""
        return self._representative.get(vote)

    def add(self, vote: Hashable, reply: bytes, same: Sequence[bytes]) -> bool:
        """Add a reply; returns whether groups became one, so that counted votes have changed.

        Args:
            vote: the vote of the reply.
            reply: the reply, as JSON.
            same: the representatives that mean the same; none for a group of its own.
        """
        first = next((each for each in self.representatives if each in same), reply)
        self._representative[vote] = first
        joined = [
            each
            for each, representative in self._representative.items()
            if representative in same and representative != first
        ]
        for each in joined:
            self._representative[each] = first
        return bool(joined)
