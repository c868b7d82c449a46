"""What code of your own does happens once, under the key of the decision at hand."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from microagents import Call, InvalidUsage, Sample, current_effect_key, run_sync
from microagents.base.errors import ModelUnavailable
from microagents.replies.reply_forms import write
from microagents.tasks.drift import Drift

MODEL = "sim:perfect@error=0.2,alternatives=1"
KEYS: defaultdict[str, list[str]] = defaultdict(list)
"""The keys that each piece of code saw, in this test."""


@pytest.fixture(autouse=True)
def _no_keys() -> None:
    KEYS.clear()


class Keyed(Drift):
    """Its code takes the key wherever it is called."""

    def verify(self, state: Any, reply: Any) -> str | None:  # noqa: ARG002 - it only takes keys
        KEYS["verify"].append(current_effect_key())
        return None

    def advance(self, state: Any, reply: Any) -> Any:
        KEYS["advance"].append(current_effect_key())
        return super().advance(state, reply)


def decided(run_id: str = "r", task: Drift | None = None, **given: Any) -> list[str]:
    KEYS["decision"] = []
    run_sync(
        task or Keyed(length=4),
        models=given.pop("models", MODEL),
        run_id=run_id,
        on_decision=lambda _: KEYS["decision"].append(current_effect_key()),
        **given,
    )
    return KEYS["decision"]


def test_a_decision_has_one_key_in_all_code_that_is_called_for_it_and_every_decision_another() -> None:
    keys = decided()
    assert len(set(keys)) == 4
    assert set(keys) <= set(KEYS["verify"])
    assert set(keys) <= set(KEYS["advance"])


@pytest.mark.slow
def test_the_key_is_that_of_the_run_and_survives_its_end() -> None:
    first = decided("first")
    assert set(first).isdisjoint(decided("second"))
    stopped = decided("third", max_calls=12, speculate=False)
    resumed = decided("third", max_calls=1_000, speculate=False)
    assert 0 < len(stopped) < 4
    assert len({*stopped, *resumed}) == 4
    for path in Path("runs").glob("first*"):
        path.unlink()  # as if nothing had ever been recorded
    assert decided("first") == first


def test_an_effect_under_the_key_is_made_once_although_the_code_is_called_for_every_guess_and_resume() -> None:
    paid: dict[str, str] = {}

    class Paying(Keyed):
        def verify(self, state: Any, reply: Any) -> str | None:  # noqa: ARG002 - it only pays
            paid.setdefault(current_effect_key("pay"), "paid")
            paid.setdefault(current_effect_key("mail"), "mailed")
            return None

    decided("r", Paying(length=4), models="sim:perfect", max_calls=5)
    decided("r", Paying(length=4), models="sim:perfect", max_calls=1_000)
    assert Counter(paid.values()) == {"paid": 4, "mailed": 4}


async def by_hand(call: Call) -> Sample:
    key = current_effect_key()
    KEYS["sample"].append(key)
    if KEYS["sample"].count(key) == 1:
        raise ModelUnavailable("timeout", "nothing was heard")
    return Sample(text=write(Keyed(length=4).expert(call.prompt, call.reply)), model="by hand")


@pytest.mark.slow
def test_a_provider_of_your_own_has_one_key_for_all_attempts_at_a_sample() -> None:
    result = run_sync(Keyed(length=2), models=by_hand, strategy="maker", runs_dir=None)
    assert result.outcome == "completed"
    assert set(Counter(KEYS["sample"]).values()) == {2}
    assert len(set(KEYS["sample"])) == result.account.votes


def test_elsewhere_there_is_no_key() -> None:
    with pytest.raises(InvalidUsage, match="gives the key of the decision at hand"):
        current_effect_key()
