"""Runs whose models give the probability of their replies: what they decide, what they cost, and what becomes of false claims."""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from math import exp, log
from pathlib import Path
from random import Random
from typing import Any

import pytest

from microagents import Call, Model, Result, Sample, Usage, run
from microagents.elections.election import Ballot, Flagged
from microagents.journal.reading import Reader
from microagents.journal.statements import FLAGGED, OUTVOTED
from microagents.replies.masses import Mass, digest_of_text
from microagents.replies.reply_forms import write
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from microagents.tasks.drift import Drift, Onward, Place

LENGTH = 120


class Claiming(Model):
    """Right with one probability, and claims another. Half of the other replies are wrong, and half have no form."""

    def __init__(self, p: float = 0.9, claimed: float = 0.9) -> None:
        self.p, self.claimed = p, claimed
        self.asked: list[tuple[bool, bool]] = []
        """For each call whether it repairs a reply, and whether it wants a mass."""

    async def complete(self, call: Call) -> Sample:
        right = Drift().expert(call.question, Onward)
        place = f"{call.id.election.path} {call.id.seq} {call.rejected}".encode()
        chance = int.from_bytes(blake2b(place, digest_size=4).digest()) / 2**32
        assert isinstance(right, Onward)
        text = (
            write(right if chance < self.p else Onward(number=right.number + 1)) if chance < (1 + self.p) / 2 else "?"
        )
        p = self.claimed if chance < self.p else (1 - self.claimed) / 2
        self.asked.append((call.rejected > 0, call.needs_mass))
        mass = Mass(log=log(p), text=digest_of_text(text)) if call.needs_mass else None
        return Sample(text=text, usage=Usage(cost_usd=0.0), mass=mass)


async def ran(model: Model, **options: object) -> Result[Any]:
    strategy = Maker(certain=options.pop("certain", "on"))  # type: ignore[arg-type]
    found = await run(Drift(length=LENGTH), models=model, strategy=strategy, **options)  # type: ignore[call-overload]
    assert isinstance(found, Result)
    return found


@pytest.mark.slow
async def test_masses_that_hold_save_calls_and_their_audit_agrees() -> None:
    off = await ran(Claiming(), certain="off", runs_dir=None)
    on = await ran(Claiming(), runs_dir=None)
    assert (off.account.certified, off.account.masses) == (0, {})
    assert on.account.decisions_sha256 == off.account.decisions_sha256
    assert on.account.certified > 0.6 * LENGTH  # a quarter of the first 80 is audited
    assert on.calls < 0.65 * off.calls
    (audit,) = on.account.masses.values()
    assert audit.draws > 40
    assert audit.repeated == pytest.approx(audit.claimed, abs=4 * (audit.draws * 0.09) ** 0.5)
    assert not audit.is_false
    assert "of decisions by the model's own probabilities; " in str(on)


@pytest.mark.slow
async def test_a_model_that_claims_too_much_certifies_no_more_and_the_summary_says_so(tmp_path: Path) -> None:
    stopped = await ran(Claiming(0.75, 0.9999), max_calls=120, run_id="a", runs_dir=tmp_path)
    assert stopped.account.doubted
    assert stopped.account.certified < 20
    resumed = await ran(Claiming(0.75, 0.9999), run_id="a", runs_dir=tmp_path, max_calls=10_000)
    assert resumed.outcome == "completed"
    assert resumed.account.certified == stopped.account.certified
    assert "DO NOT HOLD" in str(resumed)


class Slow(Claiming):
    """Takes its time by a seed."""

    def __init__(self, seed: int, claimed: float) -> None:
        super().__init__(0.75, claimed)
        self.seed = seed

    async def complete(self, call: Call) -> Sample:
        random = Random(f"{self.seed} {call.id.election.path} {call.id.seq}")
        await asyncio.sleep(exp(0.5 * random.gauss(0, 1)))
        return await super().complete(call)


@pytest.mark.slow
@pytest.mark.parametrize(("claimed", "is_false"), [(0.75, False), (0.97, True)])
def test_whether_masses_hold_does_not_depend_on_the_times_of_calls(claimed: float, *, is_false: bool) -> None:
    """Draws in flight while masses are found false change nothing, so that the journal of a resumed run says the same."""
    accounts = [run_virtual(ran(Slow(seed, claimed), runs_dir=None)).account for seed in range(2)]
    assert {each.decisions_sha256 for each in accounts} == {accounts[0].decisions_sha256}
    assert all(each.masses == accounts[0].masses and bool(each.doubted) == is_false for each in accounts)
    if not is_false:
        assert {(each.ballots_sha256, each.certified) for each in accounts} == {
            (accounts[0].ballots_sha256, accounts[0].certified)
        }


class Checked(Drift):
    """Sends wrong replies back."""

    def verify(self, state: Place, reply: Onward) -> str | None:
        return None if self.correct(state, reply) else "no"


@pytest.mark.slow
async def test_a_repair_has_another_prompt_and_so_no_mass() -> None:
    model = Claiming(0.8, 0.8)
    await run(Checked(length=LENGTH), models=model, strategy=Maker(certain="on"), runs_dir=None)
    assert {needs_mass for is_repair, needs_mass in model.asked if is_repair} == {False}
    assert {needs_mass for is_repair, needs_mass in model.asked if not is_repair} == {True}


@pytest.mark.slow
async def test_a_resumed_run_decides_the_same(tmp_path: Path) -> None:
    whole = await ran(Claiming(), run_id="whole", runs_dir=tmp_path)
    await ran(Claiming(), run_id="r", runs_dir=tmp_path, max_calls=63)
    resumed = await ran(Claiming(), run_id="r", runs_dir=tmp_path, max_calls=10_000)
    assert resumed.account.decisions_sha256 == whole.account.decisions_sha256
    assert resumed.account.ballots_sha256 == whole.account.ballots_sha256
    assert resumed.account.certified == whole.account.certified
    assert resumed.account.masses == whole.account.masses
    with Reader(tmp_path / "whole.sqlite") as reader:
        rows, shown = dict(reader.decisions()), reader.overview(0)
    assert all(each.facts.mass is not None for row in rows.values() for each in row.ballots)
    for step, byte in enumerate(shown):
        row = rows[f"0/step/{step}"]
        flagged = any(isinstance(each, Flagged) for each in row.ballots)
        outvoted = any(isinstance(each, Ballot) and each.value != row.value for each in row.ballots)
        assert byte == len(row.ballots) + FLAGGED * flagged + OUTVOTED * outvoted
    assert {byte & (FLAGGED | OUTVOTED) for byte in shown} >= {0, FLAGGED, OUTVOTED}
