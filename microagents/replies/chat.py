"""Prompts to models, and the samples that they give."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct, structs

from microagents.base.foreign_text import fenced
from microagents.base.plain_values import in_python
from microagents.replies.masses import Mass
from microagents.replies.media import Media, checked_files
from microagents.replies.turns import Turn, files_of, flat_text, flaw_of, flaw_of_tools, without_feedback


class Prompt(Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """One question to a model, perhaps with the turns of a conversation behind it, and tools to call."""

    user: str
    """The part that changes from question to question."""
    system: str = ""
    """The constant part, which providers cache."""
    static_chars: int = 0
    """Number of characters at the start of ``user`` that are constant, too, such as a document that all questions are about."""
    files: tuple[Media, ...] = ()
    """Pictures and files, between the constant and the changing part of ``user``: ``files=[Image("scan.png")]``."""
    turns: tuple[Turn, ...] = ()
    """Turns that follow ``user``."""
    tools: str = ""
    """Tools that the model may call: a JSON list of objects with ``name``, ``description`` and ``parameters``; empty for none."""
    calls_as_text: str = ""
    """The part behind ``system`` that a model without native calls reads: its tools, and how to call them in a text."""

    def __post_init__(self) -> None:
        if self.files:
            structs.force_setattr(self, "files", checked_files(self.files))
        if self.turns and (flaw := flaw_of(self.turns)) is not None:
            raise TypeError(f"the turns of a Prompt cannot be sent: {flaw}")
        if self.tools and (flaw := flaw_of_tools(self.tools)) is not None:
            raise TypeError(
                f"the tools of a Prompt must be a JSON list of objects with name, description and parameters; {flaw}"
            )
        for name, value in (("user", self.user), ("system", self.system)):
            if not isinstance(value, str):
                raise TypeError(f"the {name} part of a Prompt must be a text, not {value!r:.100}")
            try:
                value.encode()
            except UnicodeEncodeError:
                raise TypeError(
                    f"the {name} part of a Prompt has half of a character, which no model can read"
                ) from None
            structs.force_setattr(self, name, in_python(value))
        given: object = self.static_chars
        if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= len(self.user):
            raise TypeError(
                f"static_chars of a Prompt must be a number of characters of its user part, from 0 to {len(self.user)}, not {given!r:.100}"
            )

    @property
    def user_parts(self) -> tuple[str, str]:
        """Constant and the changing part of the user's text; one of them may be empty."""
        return self.user[: self.static_chars], self.user[self.static_chars :]

    @property
    def is_conversation(self) -> bool:
        """Whether it has turns or tools."""
        return bool(self.turns or self.tools)

    @property
    def flat(self) -> Prompt:
        """The same question as one text of the user, for a model that takes no turns."""
        if not self.is_conversation:
            return self  # kept, it would be a reference to itself, and never freed
        return self._flat

    @cached_property
    def _flat(self) -> Prompt:
        system, user = "\n\n".join(filter(None, (self.system, self.calls_as_text))), self.user + flat_text(self.turns)
        return Prompt(system=system, user=user, static_chars=self.static_chars, files=self.all_files)

    @cached_property
    def all_files(self) -> tuple[Media, ...]:
        """Its files, and then the files of its turns."""
        return (*self.files, *files_of(self.turns))

    @cached_property
    def size(self) -> int:
        """Most bytes that the texts of the question have as UTF-8, in either form."""
        texts = (self.system, self.user, self.tools, self.calls_as_text)
        encoded = [text.encode("utf-8", "replace") for text in texts]
        return sum(map(len, encoded)) + sum(turn.size for turn in self.turns)

    @property
    def conversation(self) -> tuple[object, ...]:
        """All that it has beyond its texts, for digests; empty for a question of texts only."""
        if not self.is_conversation:
            return self.files
        return (b"".join([turn.digest for turn in self.turns]), self.tools, self.calls_as_text, *self.files)

    def without_feedback(self, answers: int) -> Prompt:
        """Return the question without its last answers that were found wrong, and without the feedback on them."""
        if not answers:
            return self
        return structs.replace(self, turns=without_feedback(self.turns, answers))


class Sampling(Struct, frozen=True, kw_only=True):
    """Sampling settings of a question (MAKER, section 4.4)."""

    first_temperature: float | None = 0.0
    """Temperature of seq 0 only; None leaves it to the provider."""
    temperature: float | None = 0.1
    """Temperature of every other seq; None leaves it to the provider."""
    max_output_tokens: int = 2048
    """The limit that is sent to the provider, which cuts a longer reply off."""
    flag_above_tokens: int | None = 750
    """Longer replies get the red flag ``too_long``; None disables the flag. Separate from the provider's limit on purpose."""

    def temperature_of(self, seq: int) -> float | None:
        """Return the temperature of the seq-th sample, counted from 0."""
        if seq == 0:
            return self.first_temperature
        return self.temperature


class Cached(Struct, frozen=True, kw_only=True):
    """Input tokens in a provider's cache."""

    read: int
    """Number of tokens that were read from it."""
    written: int
    """Number of tokens that were written into it for a higher price."""


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens and cost of one reply by the provider's count; None if the provider gives none."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    reasoning_tokens: int | None = 0
    """Number of the output tokens that are not in the reply's text; None if there are some, in unknown number."""
    cached_tokens: int = 0
    """Number of the input tokens that the provider read from its cache; 0 if it does not say."""
    cache_write_tokens: int = 0
    """Number of the input tokens that it wrote into its cache for a higher price; 0 if it does not say."""
    flaw: str = ""
    """A number that cannot be right, and is left out. The call then counts at the most that it can have used."""

    @property
    def cached(self) -> Cached | None:
        """Its input tokens in the provider's cache; None if there are none."""
        if not self.cached_tokens and not self.cache_write_tokens:
            return None
        return Cached(read=self.cached_tokens, written=self.cache_write_tokens)

    @property
    def visible_tokens(self) -> int | None:
        """Output tokens of the reply's text; None if their number is unknown."""
        if self.output_tokens is None or self.reasoning_tokens is None:
            return None
        return self.output_tokens - self.reasoning_tokens


class Sample(Struct, frozen=True, kw_only=True):
    """One reply of a model, not yet parsed."""

    text: str
    finish: str = "stop"
    """``stop`` for a complete reply, else the reason why it ended."""
    usage: Usage = Usage()
    model: str = ""
    fallback: str = ""
    """Spec of the fallback that gave it; empty for the model that was asked."""
    shares: dict[str, float] = {}
    """Probability of each option, of a model that weighs the options of a reply; the text is then the likeliest one as JSON."""
    mass: Mass | None = None
    """Probability of the whole text, if the call asked for it and the provider gives it."""
    turn: Turn | None = None
    """The native calls of a reply, with all that their wire gives; None for a reply in text."""
    took_s: float = 0.0
    """Seconds from the sending of its call to its reply, in a run that is traced; else 0."""


def with_turns(asked: Prompt, turns: Sequence[Turn]) -> Prompt:
    """Put turns behind a question."""
    if not turns:
        return asked
    return structs.replace(asked, turns=(*asked.turns, *turns))


def feedback_turn(feedback: str) -> Turn:
    """Return the user's turn behind an answer that was found wrong."""
    text = f"It was checked, and it is wrong:\n{fenced('feedback', feedback)}\n\nAnswer again, in the same form."
    return Turn(role="user", text=text)
