"""What is said when a problem is cut in two (MAKER, appendix F): the data of each question, and the replies that strategies share.

A question's data go into the user prompt as one JSON object, never into a sentence: whatever a text holds, it stays inside its string.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from hashlib import blake2b

import msgspec
from msgspec import Raw, Struct

from microagents.chat import Prompt, Reply
from microagents.errors import InvalidDefinition


class Decomposition(Reply, frozen=True):
    """Two sub-problems, and how their answers make the whole one's. Without one of the three: "do not decompose"."""

    first: str
    second: str
    compose: str

    @property
    def is_atomic(self) -> bool:
        """Whether it says that the problem is to be answered directly."""
        return not (self.first.strip() and self.second.strip() and self.compose.strip())

    def vote(self) -> Hashable:
        """The words; all that say "do not decompose" say the same."""
        return None if self.is_atomic else tuple(_words(text) for text in (self.first, self.second, self.compose))


ATOMIC = Decomposition(first="", second="", compose="")
"""Do not decompose."""


class Choice(Reply, frozen=True):
    """The label of the candidate that is right."""

    choice: str

    def vote(self) -> str:
        """The label, however the model writes it."""
        return self.choice.strip().upper()


class ToSolve(Struct, frozen=True, tag_field="wanted", tag="answer"):
    """Answer a problem directly."""

    problem: str


class ToDecompose(Struct, frozen=True, tag_field="wanted", tag="decomposition"):
    """Cut a problem in two."""

    problem: str


class ToCompose(Struct, frozen=True, tag_field="wanted", tag="composition"):
    """Make the answer to a problem from those to its two sub-problems."""

    problem: str
    first: str
    answer_to_first: Raw
    second: str
    answer_to_second: Raw
    compose: str


class Labelled(Struct, frozen=True):
    """A candidate as a discriminator sees it."""

    label: str
    reply: Raw


class ToChoose(Struct, frozen=True, tag_field="wanted", tag="choice"):
    """Name the candidate that answers a question right."""

    question: ToSolve | ToDecompose | ToCompose
    candidates: tuple[Labelled, ...]


Asked = ToSolve | ToDecompose | ToCompose | ToChoose
_decoder: msgspec.json.Decoder[Asked] = msgspec.json.Decoder(Asked)


def prompt_of(system: str, asked: Asked) -> Prompt:
    """A question whose data are one JSON object in the user prompt."""
    return Prompt(system=system, user=msgspec.json.format(msgspec.json.encode(asked), indent=1).decode())


def asked_in(prompt: Prompt) -> Asked:
    """The data of a question, read from the prompt's text alone.

    Raises:
        InvalidDefinition: it is another kind of prompt.
    """
    try:
        return _decoder.decode(prompt.user)
    except msgspec.MsgspecError as error:
        raise InvalidDefinition(f"{prompt.user!r:.80} is no question about a problem: {error}") from None


def without_cycles(proposed: Iterable[Decomposition], problem: str, above: Iterable[bytes]) -> tuple[Decomposition, ...]:
    """All but those that lead back to a problem or to one that it came from: they would never end.

    ``above`` are the ids of the problems that it came from.
    """
    seen = {*above, problem_id(problem)}
    return tuple([each for each in proposed if each.is_atomic or not seen & {problem_id(each.first), problem_id(each.second)}])


def problem_id(problem: str) -> bytes:
    """What equal problems have in common: the digest of their words, however these are spaced."""
    return blake2b(_words(problem).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _words(text: str) -> str:
    return " ".join(text.split())
