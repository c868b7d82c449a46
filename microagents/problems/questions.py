"""Questions about problems that are cut in two (MAKER, appendix F): their data, and the replies that strategies share.

The data of a question are one JSON object in the user prompt, not part of a sentence: no text can leave its JSON string.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from hashlib import blake2b

import msgspec
from msgspec import Raw, Struct

from microagents.chat import Prompt, Reply
from microagents.errors import InvalidDefinition


# Another docstring here would change the digests of questions: see `Reply`.
class Decomposition(Reply, frozen=True):
    """Two sub-problems, and how their answers make the whole one's. Without one of the three: "do not decompose"."""

    first: str
    second: str
    compose: str

    @property
    def is_atomic(self) -> bool:
        """Whether the problem should be answered directly, without cutting it."""
        return not (self.first.strip() and self.second.strip() and self.compose.strip())

    def vote(self) -> Hashable:
        """The three texts without regard to spacing; all atomic decompositions are equal."""
        return None if self.is_atomic else tuple(_normalized(text) for text in (self.first, self.second, self.compose))


ATOMIC = Decomposition(first="", second="", compose="")
"""The decomposition that says: do not decompose."""


class Choice(Reply, frozen=True):
    """The label of the candidate that is right."""

    choice: str

    def vote(self) -> str:
        """The label, without regard to case and blanks."""
        return self.choice.strip().upper()


class ToSolve(Struct, frozen=True, tag_field="wanted", tag="answer"):
    """Answer a problem directly."""

    problem: str


class ToDecompose(Struct, frozen=True, tag_field="wanted", tag="decomposition"):
    """Cut a problem in two."""

    problem: str


class ToCompose(Struct, frozen=True, tag_field="wanted", tag="composition"):
    """Compose the answer to a problem from the answers to its two sub-problems."""

    problem: str
    first: str
    answer_to_first: Raw
    second: str
    answer_to_second: Raw
    compose: str


class Labelled(Struct, frozen=True, omit_defaults=True):
    """A candidate in the prompt of a discriminator."""

    label: str
    reply: Raw
    copies: int | None = None
    """Number of samples that gave it; None where ballots do not see it."""


class ToChoose(Struct, frozen=True, tag_field="wanted", tag="choice"):
    """Choose the candidate that is the right reply to a question."""

    question: ToSolve | ToDecompose | ToCompose
    candidates: tuple[Labelled, ...]


Asked = ToSolve | ToDecompose | ToCompose | ToChoose
_decoder: msgspec.json.Decoder[Asked] = msgspec.json.Decoder(Asked)


def prompt_of(system: str, asked: Struct) -> Prompt:
    """The prompt of a question: the user prompt is its data as one JSON object."""
    return Prompt(system=system, user=msgspec.json.format(msgspec.json.encode(asked), indent=1).decode())


def asked_in(prompt: Prompt) -> Asked:
    """Read the data of a question from the text of its prompt.

    Raises:
        InvalidDefinition: the prompt is of another kind.
    """
    try:
        return _decoder.decode(prompt.user)
    except msgspec.MsgspecError as error:
        raise InvalidDefinition(f"{prompt.user!r:.80} is no question about a problem: {error}") from None


def without_cycles(proposed: Iterable[Decomposition], problem: str, above: Iterable[bytes]) -> tuple[Decomposition, ...]:
    """Drop decompositions that repeat the problem or one of its ancestors, since these would never end.

    Args:
        proposed: decompositions of the problem.
        problem: the text of the problem.
        above: ids of its ancestors.
    """
    seen = {*above, problem_id(problem)}
    return tuple([each for each in proposed if each.is_atomic or not seen & {problem_id(each.first), problem_id(each.second)}])


def problem_id(problem: str) -> bytes:
    """Digest of the words of a problem. Texts that differ only in spacing have the same id."""
    return blake2b(_normalized(problem).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _normalized(text: str) -> str:
    return " ".join(text.split())
