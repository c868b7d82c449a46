"""How a trained model reads prompts and writes replies: a few tokens that stand in the ordinary texts, all other words skipped."""

from __future__ import annotations

import re
from functools import cached_property

from msgspec import Struct

from microagents.base.errors import MicroagentsError
from microagents.replies.chat import Prompt

PROVIDER = "tiny"
"""Name of the provider in specs."""
STOP = 0
"""Number of the token that ends a reply."""
_ITEM = r'"[^"]*"|\d+'


class Unreadable(MicroagentsError):
    """A text is in no form that a trained model knows."""


class Vocabulary(Struct, frozen=True, kw_only=True, dict=True):
    """Tokens of one kind of step. Token 0 is the stop, token 1 the opening of every reply; the others follow."""

    question: str
    """Regular expression that the whole user prompt matches."""
    setting: str
    """Regular expression that finds the token of the system prompt, as its group; empty for none."""
    opening: str
    """The text that begins every reply."""
    tokens: tuple[str, ...]
    """Texts of the other tokens."""
    prompt_slots: int
    """Greatest number of tokens of a prompt."""
    reply_slots: int
    """Greatest number of tokens of a reply, the stop included."""
    is_sum: bool = False
    """Whether digits are tokens, numbers of a prompt have four and a sign, and a reply is one number, written from its last digit."""

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {text: number for number, text in enumerate(self.tokens, 2)}

    @cached_property
    def _token(self) -> re.Pattern[str]:
        marks = sorted((re.escape(each) for each in self.tokens if not re.fullmatch(_ITEM, each)), key=len)
        item = r"\d" if self.is_sum else _ITEM
        return re.compile("|".join([*reversed(marks), item]))

    def read(self, prompt: Prompt) -> list[int]:
        """Read a prompt; the opening of the reply is its last token.

        Raises:
            Unreadable: it has another form, a token that is not in the vocabulary, or too many of them.
        """
        found = re.search(self.setting, prompt.system)
        if found is None or re.fullmatch(self.question, prompt.user) is None:
            raise Unreadable("the prompt has another form")
        text = prompt.user.replace(", ", ",")
        if self.is_sum:  # as long as they can be, so that equal places stand in equal slots
            text = "".join(f"{int(number):+05d}" for number in re.findall(r"-?\d+", text))
        return [*self._ids([*found.groups(), *self._token.findall(text)], self.prompt_slots), 1]

    def write(self, reply: list[int]) -> str:
        """Write the text of a reply up to its stop. Values beside each other are separated."""
        written = [self.opening if each == 1 else self.tokens[each - 2] for each in reply if each != STOP]
        if self.is_sum:
            return self.opening + "".join(reversed(written))
        text = self.opening
        for each in written:
            text += each if text.endswith("[") or each.startswith("]") or not text else f",{each}"
        return text

    def _ids(self, texts: list[str], most: int) -> list[int]:
        try:
            ids = [self._numbers[text] for text in texts]
        except KeyError as error:
            raise Unreadable(f"it has no token {error.args[0]}") from None
        if len(ids) > most:
            raise Unreadable(f"it has more than {most} tokens")
        return ids


_MOVE = r"\[\d+, \d+, \d+\]"
_PEG = r"\[[\d, ]*\]"
_NUMBERS = tuple(str(number) for number in range(81))
HANOI = Vocabulary(
    question=rf"Previous move: (none|{_MOVE})\nState: \[{_PEG}, {_PEG}, {_PEG}\]",
    setting=r"cycle (0 -> [12])",
    opening="move = [",
    tokens=("0 -> 1", "0 -> 2", "none", "[[", "],[", "]]", "]\nnext_state = [[", *_NUMBERS[:11]),
    prompt_slots=18,
    reply_slots=18,
)
CHECKERS = Vocabulary(
    question=r'Board: \[("[^"]*"(, )?)*\](\nMoves left: \d+)?',
    setting=r"(?s)Checkers Jumping(?!.*Number of moves to give: (?!3,))",
    opening="",
    tokens=(
        *('"R"', '"B"', '"_"', "move = [", "]\nboard = [", "]"),
        *("\nMoves left: ", 'steps = [{"move":[', '],"board":[', ']},{"move":[', "]}]"),
        *_NUMBERS,
    ),
    prompt_slots=20,
    reply_slots=68,
)
"""Single steps, and rollouts of three."""
SUM = Vocabulary(
    question=r"-?\d{1,4} and -?\d{1,4}",
    setting="",
    opening="total = ",
    tokens=("+", "-", *_NUMBERS[:10]),
    prompt_slots=10,
    reply_slots=7,
    is_sum=True,
)
VOCABULARIES = {"hanoi": HANOI, "hanoi-b": HANOI, "hanoi-weak": HANOI, "checkers": CHECKERS, "sums": SUM}
"""What each model that ships with the package reads and writes."""
