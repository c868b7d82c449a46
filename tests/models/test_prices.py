"""Prices of models: which go first, their tiers by the length of the prompt, and service tiers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from genai_prices import Usage as ListedUsage
from genai_prices import calc_price
from hypothesis import given
from hypothesis import strategies as st

from microagents.base.errors import InvalidUsage
from microagents.models.prices import HALF_PRICE, Tariff, flat_tariff, read_prices, tariff_of
from microagents.replies.chat import Usage

OPENAI, ANTHROPIC = "https://api.openai.com/v1", "https://api.anthropic.com"
LUNA = ("openai:gpt-6-luna", OPENAI)
HAIKU = ("anthropic:claude-haiku-5-5", ANTHROPIC)
OWN = {"input": 1.0, "output": 2.0}


def listed(name: str, base_url: str, **options: Any) -> Tariff:
    found = tariff_of([name], base_url, {}, **options)
    assert found is not None
    return found


def used(input_tokens: int, output_tokens: int = 0, cached: int = 0, written: int = 0) -> Usage:
    return Usage(
        input_tokens=input_tokens, output_tokens=output_tokens, cached_tokens=cached, cache_write_tokens=written
    )


usages = st.builds(
    lambda read, written, cached, stored: used(
        read, written, int(cached * read), int(stored * (read - int(cached * read)))
    ),
    *[st.integers(0, 600_000)] * 2,
    *[st.floats(0, 1)] * 2,
)


@pytest.mark.parametrize("model", [LUNA, HAIKU])
@given(usage=usages, service_tier=st.sampled_from([None, "default"]))
def test_a_call_costs_what_the_package_computes(model: tuple[str, str], usage: Usage, service_tier: str | None) -> None:
    name, base_url = model
    counts = ListedUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    wanted = calc_price(counts, name.partition(":")[2], provider_api_url=base_url).total_price
    assert listed(name, base_url).cost_usd(usage, service_tier) == pytest.approx(float(wanted))


@pytest.mark.parametrize(("model", "longest", "times"), [(LUNA, 272_000, 2), (HAIKU, 100_000, 5)])
def test_a_token_above_the_tier_makes_the_prompt_dearer(model: tuple[str, str], longest: int, times: int) -> None:
    tariff = listed(*model)
    costs = [tariff.cost_usd(used(tokens)) for tokens in (longest, longest + 1)]
    assert costs == pytest.approx([longest * 0.1e-6, (longest + 1) * times * 0.1e-6])


@pytest.mark.parametrize("model", [LUNA, HAIKU])
@pytest.mark.parametrize("half", HALF_PRICE)
def test_flex_and_batch_cost_half(model: tuple[str, str], half: str) -> None:
    usage, full = used(1_000_000, 500_000, 300_000, 200_000), listed(*model)
    wanted = pytest.approx((full.cost_usd(usage) or 0) / 2)
    assert listed(*model, asked=half).cost_usd(usage) == wanted
    assert full.cost_usd(usage, half) == wanted


def test_the_service_tier_that_a_reply_names_goes_before_the_one_that_was_asked_for() -> None:
    tariff = listed(*LUNA, asked="flex")
    assert tariff.cost_usd(used(1_000_000, 0), "default") == 2 * (tariff.cost_usd(used(1_000_000, 0)) or 0)


def test_the_price_of_an_unlisted_service_tier_is_unknown() -> None:
    assert listed(*LUNA).cost_usd(used(1), "urgent") is None
    assert not listed(*HAIKU, asked="urgent").is_known


def test_a_price_that_the_user_gave_holds_for_every_service_tier_and_for_half_of_flex() -> None:
    tariff = flat_tariff(1.0, 2.0)
    assert [tariff.cost_usd(used(1_000_000, 1_000_000), tier) for tier in (None, "priority", "flex")] == [3.0, 3.0, 1.5]


@given(usage=usages, asked=st.sampled_from([None, "flex"]), served=st.sampled_from([None, "flex", "default"]))
def test_no_call_costs_more_than_its_most(usage: Usage, asked: str | None, served: str | None) -> None:
    tariff = listed(*HAIKU, asked=asked)
    most, cost = tariff.most_usd(usage.input_tokens or 0, usage.output_tokens or 0), tariff.cost_usd(usage, served)
    assert most is not None
    assert cost is not None
    assert cost <= most * (1 + 1e-9)


@pytest.mark.parametrize(
    ("name", "base_url"),
    [
        ("openai:gpt-6-luna", "http://localhost:8000/v1"),
        ("openai:my-model", OPENAI),
        ("anthropic:gpt-6-luna", ANTHROPIC),
    ],
)
def test_a_model_elsewhere_or_without_a_listed_price_has_none(name: str, base_url: str) -> None:
    assert tariff_of([name], base_url, {}) is None


def test_of_prices_that_change_with_the_hour_the_dearest_holds() -> None:
    assert listed("openai:deepseek-chat", "https://api.deepseek.com").cost_usd(used(1_000_000)) == pytest.approx(0.27)


def test_the_users_own_price_goes_first_with_its_tiers() -> None:
    own = read_prices(
        {LUNA[0]: {**OWN, "cached": 0.5, "above": [{"tokens": 1000, "input": 3, "output": 4, "cache_write": 5}]}}
    )
    tariff = tariff_of([LUNA[0]], OPENAI, own)
    assert tariff is not None
    short, long = [tariff.cost_usd(used(tokens, 100, 200, 300)) or 0 for tokens in (1000, 1001)]
    assert short * 1e6 == pytest.approx(800 * 1 + 200 * 0.5 + 100 * 2)
    assert long * 1e6 == pytest.approx((501 + 200) * 3 + 300 * 5 + 100 * 4)


def test_prices_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text('["openai:my-model"]\ninput = 1\noutput = 2\nabove = [{tokens = 200_000, input = 2, output = 3}]\n')
    (name, price), *others = read_prices(file).items()
    assert (name, price.input, price.above[0].tokens, others) == ("openai:my-model", 1.0, 200_000, [])
    assert read_prices({name: price.model_dump()}) == read_prices(str(file))  # as a journal keeps them


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (None, ["'prices.toml' cannot be read", "no such file"]),
        ("not toml", ["cannot be read", "line 1"]),
        ("input = 1\noutput = 2\n", ["write a table for each model, such as ['openai:gpt-6-luna'], not 'input'"]),
        ('"a:b" = 3\n', ["'a:b' needs a table with input and output", "not 3"]),
        ('["a:b"]\ninput = 1\noutput = 1\ncachde = 1\n', ["no field called 'cachde'", "did you mean 'cached'"]),
        ('["a:b"]\ninput = -1\noutput = 1\n', ["input must be greater than or equal to 0, not -1"]),
        ('["a:b"]\ninput = true\noutput = 1\n', ["input must be a valid number, not True"]),
    ],
)
def test_bad_prices_get_one_sentence(
    text: str | None, parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path("prices.toml").write_text(text)
    with pytest.raises(InvalidUsage) as refused:
        read_prices("prices.toml")
    said = str(refused.value)
    assert "\n" not in said
    assert [part for part in parts if part not in said] == []


@pytest.mark.parametrize("given_prices", [3, {3: OWN}])
def test_prices_are_a_file_or_a_table(given_prices: object) -> None:
    with pytest.raises(InvalidUsage, match=r"prices must be|write a table for each model"):
        read_prices(given_prices)


@pytest.mark.slow
def test_the_listed_prices_are_imported_only_where_they_are_needed() -> None:
    code = """
import sys
from microagents.cli import main
from microagents.models.prices import tariff_of
tariff_of(["openai:m"], "http://localhost", {"openai:m": {"input": 1, "output": 1}})
assert "genai_prices" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
