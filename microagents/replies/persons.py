"""Persons' words on calls: the approval of one, the fate of one whose outcome is unknown, and a customer's answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import msgspec

from microagents.base.messages import address_of
from microagents.replies.chat import Reply

MAX_ANSWER_CHARS = 4_000
"""Characters of a customer's answer."""
ANSWERED = "/answer"
"""Last component of the place of a customer's answer."""


class PersonReply(Reply, frozen=True):
    """A reply that only persons give, in plain words or as JSON."""

    words: ClassVar[tuple[str, ...]]
    """The possible answers in plain words."""
    question: ClassVar[str]
    """What a person is asked of the call."""

    @classmethod
    def in_words(cls, text: str) -> Self | None:
        """Read the words; None if they are none of its own.

        Raises:
            ValueError: a text in them is too long, or empty.
        """
        raise NotImplementedError


class Approval(PersonReply, frozen=True):
    """A person's answer to an action that waits for approval."""

    approved: bool
    text: str = ""

    words: ClassVar[tuple[str, ...]] = ("approve", "reject TEXT")
    question: ClassVar[str] = "may this call be made?"

    @classmethod
    def in_words(cls, text: str) -> Self | None:
        """Read ``approve`` or ``reject TEXT``."""
        word, _, rest = text.partition(" ")
        if word not in ("approve", "reject"):
            return None
        return cls(approved=word == "approve", text=rest.strip())


class SecondApproval(Approval, frozen=True):
    """A person's answer to a call that is equal to an earlier one."""

    question: ClassVar[str] = "an equal call was made before; may it be made once more?"


class FoundOutcome(PersonReply, frozen=True):
    """A person's finding about a call whose outcome is unknown."""

    was_made: bool
    value: Any = None
    """What it returned; of a call that was not made, what the agent gets instead of another try."""

    words: ClassVar[tuple[str, ...]] = ("done VALUE", "not-done")
    question: ClassVar[str] = "was this call made? Nothing was heard of it"

    @classmethod
    def in_words(cls, text: str) -> Self | None:
        """Read ``done VALUE``, with the value as JSON or else a text, or ``not-done``, perhaps with a text for the agent."""
        word, _, rest = text.partition(" ")
        if word == "not-done":
            return cls(was_made=False, value=rest.strip() or None)
        if word != "done":
            return None
        try:
            return cls(was_made=True, value=msgspec.json.decode(rest))
        except msgspec.DecodeError:
            return cls(was_made=True, value=rest.strip() or "done")


class CustomerAnswer(PersonReply, frozen=True):
    """A customer's answer to a question of an agent. It is given once.

    Raises:
        ValueError: the text is blank, or has more than `MAX_ANSWER_CHARS` characters.
    """

    text: str

    words: ClassVar[tuple[str, ...]] = ("answer TEXT",)
    question: ClassVar[str] = "what does the customer answer?"

    def __post_init__(self) -> None:
        """Bound the text, which stands in every later prompt and checkpoint."""
        if not self.text.strip():
            raise ValueError("the answer is blank; say what the customer says")
        if len(self.text) > MAX_ANSWER_CHARS:
            raise ValueError(
                f"the answer has {len(self.text):,} characters, and may have {MAX_ANSWER_CHARS:,}; give a shorter one"
            )

    @classmethod
    def in_words(cls, text: str) -> Self | None:
        """Read ``answer TEXT``."""
        word, _, rest = text.partition(" ")
        if word != "answer":
            return None
        return cls(text=rest.strip())


PERSON_REPLIES: Mapping[str, type[PersonReply]] = {
    address_of(each): each for each in (Approval, SecondApproval, FoundOutcome, CustomerAnswer)
}
"""What persons say, by the address under which journals name it."""
