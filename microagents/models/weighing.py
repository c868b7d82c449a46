"""Models that weigh the options of a reply: they give the probability of each, and no text.

The probability is the share of votes that an option would have among infinitely many ballots without reasoning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec
from msgspec import Struct, structs
from msgspec import inspect as types

from microagents.base.errors import InvalidUsage, ModelUnavailable
from microagents.elections.red_flags import UNWEIGHED
from microagents.elections.rules import (
    AT_LEAST,
    ORDERS,
    FirstValid,
    PortableRule,
    Weighed,
    likeliest,
)
from microagents.models.model import Call, ModelSpec
from microagents.replies.chat import Prompt, Sample
from microagents.replies.reply import Reply
from microagents.replies.reply_fields import fields_of, voted_fields
from microagents.replies.reply_forms import instructions

DECISIONS = "openai-decisions"
"""The provider whose models do nothing else."""
LOGPROBS = "logprobs"
"""The value of the option ``ballots`` with which a chat model weighs options by the probability of its first token."""
MAX_FLAGGED = 2
"""Number of times that options are weighed again in each order after a red flag: a model that refuses once mostly refuses again."""
LETTERS = "ABCDEFGHIJKLMNOPQRST"
"""The labels of options when a model answers with one token; servers give the probabilities of at most 20 tokens."""
LEAST_MASS = 0.5
"""Probability that the options have together, at least. A model that would rather say something else has not weighed them."""


class Options(Struct, frozen=True):
    """Options of a reply."""

    field: str
    """Name of the field that is voted on."""
    values: dict[str, str | bool | int | None]
    """The value of the field for each option, by the option's text."""
    others: tuple[str, ...]
    """Names of the other fields, which stay empty: such a model gives no reasons."""

    def text(self, option: str) -> str:
        """Write the reply for an option, as JSON."""
        return msgspec.json.encode({**dict.fromkeys(self.others, ""), self.field: self.values[option]}).decode()


@lru_cache(maxsize=1024)
def options_of(reply: type[Reply], choices: tuple[str, ...]) -> Options | None:
    """List the options of a reply: its choices, or the few values of its one voted field. None if it has neither."""
    voted, fields = voted_fields(reply), fields_of(reply)
    others = [field for field in fields if field.required and field.name not in voted]
    if len(voted) != 1 or any(not isinstance(_plain(field.type), types.StrType) for field in others):
        return None
    (field,) = [field for field in fields if field.name in voted]
    values = choices or _values(_plain(field.type))
    texts = [value if isinstance(value, str) else msgspec.json.encode(value).decode() for value in values]
    named = dict(zip(texts, values, strict=True))
    if len(named) > 1:
        return Options(field.encode_name, named, tuple([each.encode_name for each in others]))
    return None


def _plain(info: types.Type) -> types.Type:
    if isinstance(info, types.Metadata):
        return _plain(info.type)
    return info


def _values(info: types.Type) -> Sequence[str | bool | int | None]:
    match info:
        case types.BoolType():
            return (True, False)
        case types.LiteralType():
            return info.values
        case types.EnumType():
            return [member.value for member in info.cls]
    return ()


@lru_cache(maxsize=256)
def at_least(pool: tuple[str, ...]) -> float | None:
    """Return the probability from which the models of a pool decide; None if they vote.

    Raises:
        InvalidUsage: only some of them weigh options, or the option ``at_least`` is not such a probability.
    """
    specs = [ModelSpec.parse(spec) for spec in pool]
    weighing = [spec for spec in specs if spec.provider == DECISIONS or spec.options.get("ballots") == LOGPROBS]
    if not weighing:
        return None
    thresholds = {spec.options.get("at_least") for spec in weighing}
    if len(thresholds) > 1 or len(weighing) < len(specs):
        raise InvalidUsage(
            f"the models of one pool must all vote, or weigh options from the same at_least, not {', '.join(pool)}"
        )
    text = weighing[0].options.get("at_least", str(AT_LEAST))
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0.5 < found <= 1:  # noqa: PLR2004
        raise InvalidUsage(f"at_least of {pool[0]!r} must be above 0.5 and at most 1, not {text!r}")
    return found


def rule_for(
    rule: PortableRule, max_draws: int, pool: tuple[str, ...], options: Options | None
) -> tuple[PortableRule, int]:
    """Choose the rule by which the models of a pool decide, and its cap.

    It replaces the rule of a vote or of other models. A sample without a vote stays one: its reply is the likeliest option.

    Raises:
        InvalidUsage: the models weigh options, and the reply has none.
    """
    if isinstance(rule, Weighed):
        return rule_for(rule.rule, rule.max_draws, pool, options)
    least = at_least(pool)
    if least is None:
        return rule, max_draws
    if options is None:
        raise InvalidUsage(
            f"{pool[0]} weighs given options, and this question has none; give the model to a role that chooses, such as "
            "--model discriminator=SPEC or --model judge=SPEC"
        )
    if type(rule) is FirstValid:  # its subclasses hold votes
        return rule, max_draws
    return Weighed(rule, max_draws, least), min(max_draws, ORDERS * (1 + MAX_FLAGGED))


def in_order(call: Call, options: Options) -> list[str]:
    """Put the options in the order of a call: every other sample sees the opposite one."""
    if call.id.seq % ORDERS == 0:
        return list(options.values)
    return list(options.values)[::-1]


def question_in(call: Call) -> Prompt:
    """Strip the format instructions from a prompt: nothing is written."""
    system = call.prompt.system
    for form in ("lines", "json"):
        for reasoning in (True, False):
            system = system.removesuffix(instructions(call.reply, form, reasoning)).rstrip("\n")
    return structs.replace(call.prompt, system=system)


def by_letter(call: Call) -> Prompt:
    """Write the prompt of a call that asks for the letter of an option.

    Raises:
        ModelUnavailable: there are more options than letters.
    """
    options, asked = asked_for(call), question_in(call)
    if len(options.values) > len(LETTERS):
        raise ModelUnavailable(
            "refused", f"{len(options.values)} options are more than {len(LETTERS)}, which logprobs can weigh at a time"
        )
    lettered = zip(LETTERS, in_order(call, options), strict=False)
    listed = "\n".join(f"{letter} = {option}" for letter, option in lettered)
    last = f"Which value of `{options.field}` is right? Answer with its letter alone, without any other text.\n{listed}"
    return structs.replace(asked, user=f"{asked.user}\n\n{last}")


def weighed_by_letter(call: Call, found: Mapping[str, float], written: Sample) -> Sample:
    """Build the sample of a model that gave these probabilities of its first token.

    Args:
        call: the call.
        found: the probability of each token.
        written: the reply as it was written.
    """
    options = asked_for(call)
    shares = dict.fromkeys(options.values, 0.0)
    of_letter = dict(zip(LETTERS, in_order(call, options), strict=False))
    for token, share in found.items():  # " A" and "A" are two tokens, and the same answer
        option = of_letter.get(token.strip())
        if option is not None:
            shares[option] += share
    return weighed(options, shares, written)


def asked_for(call: Call) -> Options:
    """List the options of a call.

    Raises:
        ModelUnavailable: it has none.
    """
    options = options_of(call.reply, call.choices)
    if options is None:
        raise ModelUnavailable("refused", f"{call.reply.__qualname__} has no options to weigh")
    return options


def weighed(options: Options, found: Mapping[str, float], written: Sample) -> Sample:
    """Build the sample of a model that gave these probabilities; it is flagged if they are of no use."""
    shares = {option: found.get(option, 0.0) for option in options.values}
    total = sum(shares.values())
    are_shares = all(0 <= share <= 1 for share in shares.values())
    if not are_shares or not LEAST_MASS <= total <= 1 + 1e-3:
        return structs.replace(written, finish=UNWEIGHED)
    shares = {option: share / total for option, share in shares.items()}
    return structs.replace(written, text=options.text(likeliest(shares)), shares=shares)
