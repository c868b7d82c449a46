"""Prices of models: the user's own first, then the package genai-prices, in tiers by the length of the prompt."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from microagents.actors.registry import unknown
from microagents.base.errors import InvalidUsage, refusal, refusing
from microagents.base.files import read_text
from microagents.base.named_values import stated

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

    from microagents.replies.chat import Usage

STANDARD = (None, "auto", "default", "standard", "on_demand")
"""Service tiers at the standard price; None if neither the spec nor the reply names one."""
BATCH = "batch"
"""Service tier of calls in files."""
HALF_PRICE = ("flex", BATCH)
"""Service tiers at half of the standard price, unless another price of them is known."""
_TOKENS = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")
_ALSO_PAID = ("requests_kcount", "output_reasoning_mtok", "output_citation_mtok")
"""Units besides tokens of input and output that some models charge for. Replies do not report them, so their price is unknown."""
_HOURS = range(24)
UserPrices = Mapping[str, Any]
"""A user's prices by ``provider:model``."""
NO_PRICES: UserPrices = MappingProxyType({})
Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]  # a file may have true, which is no dollar


class TokenRates(BaseModel):
    """US dollars per million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: Dollars
    output: Dollars
    cached: Dollars | None = None
    """Input that is read from the provider's cache; None for the price of all input."""
    cache_write: Dollars | None = None
    """Input that is written into the cache; None for the price of all input."""


class LongRates(TokenRates):
    """Rates of calls with long prompts."""

    tokens: Annotated[int, Field(ge=1, strict=True)]
    """They hold for all tokens of a call whose prompt has more tokens than this."""


class OwnPrice(TokenRates):
    """Price of one model in a user's file of prices."""

    above: tuple[LongRates, ...] = ()


def read_prices(given: object) -> dict[str, OwnPrice]:
    """Read a user's prices by ``provider:model``, from a TOML file or from a table of this form.

    Raises:
        InvalidUsage: the file cannot be read, or a price is malformed.
    """
    where, table = "prices", given
    if isinstance(given, str | Path):
        where = f"the prices file {str(given)!r}"
        with refusing(f"{where} cannot be read"):
            table = tomllib.loads(read_text(given))
    if not isinstance(table, Mapping):
        raise InvalidUsage(f"prices must be the name of a TOML file, or a dict of prices by model, not {given!r:.100}")
    return {name: _own_price(name, price, where) for name, price in table.items()}


def _own_price(name: object, price: object, where: str) -> OwnPrice:
    if not (isinstance(name, str) and all(name.partition(":"))):
        raise InvalidUsage(f"{where}: write a table for each model, such as ['openai:gpt-6-luna'], not {name!r:.100}")
    if isinstance(price, OwnPrice):
        return price
    if not isinstance(price, Mapping):
        raise InvalidUsage(
            f"{where}: {name!r} needs a table with input and output, in US dollars per million tokens, not {price!r:.100}"
        )
    try:
        return OwnPrice(**price)
    except ValidationError as error:
        # A misspelt field is also missing: the misspelling says more.
        first = min(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
        field = ".".join(map(str, first["loc"]))
        match first["type"]:
            case "extra_forbidden":
                known = list(OwnPrice.model_fields if len(first["loc"]) == 1 else LongRates.model_fields)
                why = unknown("field called", field, known)
            case "missing":
                why = f"{field} is missing"
            case _:
                why = refusal(field, first["msg"], first["input"])
        raise InvalidUsage(f"{where}: the price of {name!r}: {why}") from None


class PriceTier(Struct, frozen=True):
    """Rates of calls whose prompt has more than a number of tokens."""

    above: int
    input: float
    output: float
    cached: float
    cache_write: float

    def halved(self) -> PriceTier:
        """Return the step at half the price."""
        return PriceTier(self.above, self.input / 2, self.output / 2, self.cached / 2, self.cache_write / 2)


Steps = tuple[PriceTier, ...]
"""The steps of one service tier, shortest prompts first."""


class Tariff:
    """Prices of the calls to one model.

    Args:
        standard: the steps of the standard service tier.
        tiers: the steps of other service tiers, by name. ``flex`` and ``batch`` cost half unless they are among them.
        is_own: whether the user gave the prices: they then hold for all other service tiers, too.
        asked: the service tier that calls ask for.
    """

    def __init__(
        self,
        standard: Steps,
        tiers: Mapping[str, Steps] | None = None,
        *,
        is_own: bool = False,
        asked: str | None = None,
    ) -> None:
        self._standard = standard
        halved = tuple([step.halved() for step in standard])
        self._tiers = {**dict.fromkeys(HALF_PRICE, halved), **(tiers or {})}
        self._is_own = is_own
        self.asked = asked
        """The service tier that calls ask for."""

    @property
    def is_known(self) -> bool:
        """Whether the price of the asked service tier is known."""
        return self._steps(self.asked) is not None

    def cost_usd(self, usage: Usage, served: str | None = None) -> float | None:
        """Price a reply; None if a count or the price of its service tier is unknown.

        Args:
            usage: its tokens.
            served: the service tier that the reply names; None for the one that was asked for.
        """
        steps = self._steps(served or self.asked)
        if steps is None or usage.input_tokens is None or usage.output_tokens is None:
            return None
        step = _step_of(steps, usage.input_tokens)
        plain = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
        read_usd = plain * step.input + usage.cached_tokens * step.cached + usage.cache_write_tokens * step.cache_write
        return (read_usd + usage.output_tokens * step.output) / 1e6

    def reads_pay(self, input_tokens: int) -> bool:
        """Whether a prompt of so many tokens costs less if it is read from the provider's cache than if it is written into it."""
        steps = self._steps(self.asked)
        if steps is None:
            return False
        step = _step_of(steps, input_tokens)
        return step.cached < step.cache_write

    def most_usd(self, input_tokens: int, output_tokens: int) -> float | None:
        """Bound the cost of these numbers of tokens, in the tier asked for or the standard one; None if a price is unknown."""
        asked = self._steps(self.asked)
        if asked is None:
            return None
        costs = [
            input_tokens * max(step.input, step.cached, step.cache_write) + output_tokens * step.output
            for step in (*self._standard, *asked)
            if input_tokens > step.above or not step.above
        ]
        return max(costs) / 1e6

    def _steps(self, service_tier: str | None) -> Steps | None:
        if service_tier in STANDARD:
            return self._standard
        return self._tiers.get(service_tier or "", self._standard if self._is_own else None)


def _step_of(steps: Steps, input_tokens: int) -> PriceTier:
    """Return the rates of a call with a prompt of so many tokens."""
    reached = [each for each in steps if input_tokens > each.above or not each.above]
    return max(reached, key=attrgetter("above"))


def flat_tariff(price_in: float, price_out: float, *, asked: str | None = None) -> Tariff:
    """Build the tariff of two prices that a spec gives."""
    return Tariff((PriceTier(0, price_in, price_out, price_in, price_in),), is_own=True, asked=asked)


def tariff_of(names: Sequence[str], base_url: str, own: UserPrices, *, asked: str | None = None) -> Tariff | None:
    """Look up the tariff of a model; None if its price is unknown.

    Args:
        names: the names under which the user's prices may have it, as ``provider:model``.
        base_url: address of its server: a model of the same name elsewhere may have another price, or none.
        own: the user's prices.
        asked: the service tier that calls ask for.
    """
    for name in names:
        if name in own:
            price = OwnPrice.model_validate(own[name])
            return Tariff(tuple(_own_steps(price)), is_own=True, asked=asked)
    # Here, since it imports 1.6 MB of prices, which takes 0.15 s.
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415

    try:
        _, model = get_snapshot().find_provider_model(names[0].partition(":")[2], None, None, base_url)
    except LookupError:
        return None
    standard = _steps(_dearest(model))
    if standard is None:
        return None
    found = {name: _steps(_dearest(model, context)) for name, context in _service_tiers(model)}
    tiers = stated(found)
    return Tariff(standard, tiers, asked=asked)


def _own_steps(price: OwnPrice) -> Iterator[PriceTier]:
    longer = sorted(price.above, key=lambda long: long.tokens)
    for above, rates in [(0, price), *[(long.tokens, long) for long in longer]]:
        cached = rates.input if rates.cached is None else rates.cached
        yield PriceTier(
            above, rates.input, rates.output, cached, rates.input if rates.cache_write is None else rates.cache_write
        )


def _service_tiers(model: ModelInfo) -> Iterator[tuple[str, dict[str, str]]]:
    """List the service tiers whose prices are listed, with the context that selects each."""
    for variant in model.price_variants or ():
        match variant.when:
            case {"service_tier": name} | {"processing": name} if len(variant.when) == 1:
                yield name, variant.when


def _dearest(model: ModelInfo, context: Mapping[str, str] | None = None) -> ModelPrice:
    """Choose today's prices; if hours differ, the dearest hour's, an upper bound."""
    now = datetime.now(UTC)
    by_hour = [model.get_prices(now.replace(hour=hour), context) for hour in _HOURS]
    return max(by_hour, key=lambda price: _at(price.output_mtok, 0) or 0)


def _steps(price: ModelPrice) -> Steps | None:
    """Read the steps of listed prices; None if they have none for tokens, or others besides."""
    by_unit = [getattr(price, unit) for unit in _TOKENS]
    if by_unit[0] is None or by_unit[1] is None or any(getattr(price, unit) is not None for unit in _ALSO_PAID):
        return None
    starts = sorted({0, *(tier.start for each in by_unit for tier in getattr(each, "tiers", ()))})
    steps = []
    for start in starts:
        input_usd, output_usd, cached_usd, write_usd = [_at(each, start) for each in by_unit]
        assert input_usd is not None
        assert output_usd is not None
        steps.append(
            PriceTier(
                start,
                input_usd,
                output_usd,
                input_usd if cached_usd is None else cached_usd,
                input_usd if write_usd is None else write_usd,
            )
        )
    return tuple(steps)


def _at(price: Decimal | TieredPrices | None, start: int) -> float | None:
    """Read a listed price for prompts just longer than ``start``."""
    if price is None or isinstance(price, Decimal):
        if price is None:
            return None
        return float(price)
    return float([price.base, *(tier.price for tier in price.tiers if tier.start <= start)][-1])
