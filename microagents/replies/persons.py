"""Persons' words on calls: the approval of one, the fate of one whose outcome is unknown, and a customer's answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import msgspec

from microagents.base.messages import address_of
from microagents.replies.reply import Reply

MAX_ANSWER_CHARS = 4_000
"""Characters of a customer's answer."""
ANSWERED = "/answer"
"""Last component of the place of a customer's answer."""


class PersonReply(Reply, frozen=True):
    """A reply that only persons give, in plain words or as JSON."""

    words: ClassVar[tuple[str, ...]]
    """The possible answers in plain words, each a word that names it and perhaps a text."""
    question: ClassVar[str]
    """What a person is asked of the call."""

    @classmethod
    def in_words(cls, text: str) -> Self | None:
        """Read the words; None if they are none of its own.

        Raises:
            ValueError: a text in them is too long, or empty.
        """
        word, _, rest = text.partition(" ")
        if word not in [each.partition(" ")[0] for each in cls.words]:
            return None
        return cls._said(word, rest.strip())

    @classmethod
    def _said(cls, word: str, text: str) -> Self:
        """Return the reply of one of its words, and the text behind it."""
        raise NotImplementedError


class Approval(PersonReply, frozen=True):
    """A person's answer to an action that waits for approval."""

    approved: bool
    text: str = ""

    words: ClassVar[tuple[str, ...]] = ("approve", "reject TEXT")
    question = "may this call be made?"

    @classmethod
    def _said(cls, word: str, text: str) -> Self:
        return cls(approved=word == "approve", text=text)


class SecondApproval(Approval, frozen=True):
    """A person's answer to a call that is equal to an earlier one."""

    question = "an equal call was made before; may it be made once more?"


class FoundOutcome(PersonReply, frozen=True):
    """A person's finding about a call whose outcome is unknown."""

    was_made: bool
    value: Any = None
    """What it returned; of a call that was not made, what the agent gets instead of another try."""

    words = ("done VALUE", "not-done")
    question = "was this call made? Nothing was heard of it"

    @classmethod
    def _said(cls, word: str, text: str) -> Self:
        """Read the value as JSON or else a text; behind ``not-done`` it is a text for the agent."""
        if word == "not-done":
            return cls(was_made=False, value=text or None)
        try:
            return cls(was_made=True, value=msgspec.json.decode(text))
        except msgspec.DecodeError:
            return cls(was_made=True, value=text or "done")


class CustomerAnswer(PersonReply, frozen=True):
    """A customer's answer to a question of an agent. It is given once.

    Raises:
        ValueError: the text is blank, or has more than `MAX_ANSWER_CHARS` characters.
    """

    text: str

    words = ("answer TEXT",)
    question = "what does the customer answer?"

    def __post_init__(self) -> None:
        """Bound the text, which stands in every later prompt and checkpoint."""
        if not self.text.strip():
            raise ValueError("the answer is blank; say what the customer says")
        if len(self.text) > MAX_ANSWER_CHARS:
            raise ValueError(
                f"the answer has {len(self.text):,} characters, and may have {MAX_ANSWER_CHARS:,}; give a shorter one"
            )

    @classmethod
    def _said(cls, word: str, text: str) -> Self:  # noqa: ARG003 - it has one word
        return cls(text=text)


PERSON_REPLIES: Mapping[str, type[PersonReply]] = {
    address_of(each): each for each in (Approval, SecondApproval, FoundOutcome, CustomerAnswer)
}
"""What persons say, by the address under which journals name it."""
