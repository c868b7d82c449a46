"""Runs by pools of models: turns, and elections in which the models contradict each other, from the vote to the pages of a run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from microagents import Call, Model, Result, Usage, resume, run
from microagents.elections.election import Ballot, ElectionId
from microagents.journal.reading import Reader
from microagents.replies.chat import Sample
from microagents.replies.reply_forms import write
from microagents.runs.words.summary import summary
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from microagents.tasks.drift import Drift, Onward
from tests.cli.commands import COMPLETED, UNDECIDED, microagents

RIGHT, WRONG = "sim:perfect", "sim:perfect@error=1,alternatives=1"
THIRD = "sim:o3-mini@error=0"
POOL = ("--model", RIGHT, "--model", WRONG)


def decided(*words: str, code: int = COMPLETED) -> dict[str, Any]:
    ran = microagents(*words, "--json")
    assert ran.code == code, ran.err
    return ran.json


def outcomes() -> dict[str, str]:
    with Reader(Path("runs/r.sqlite")) as reader:
        assert reader.verify() == []
        return {path: row.outcome for path, row in reader.decisions()}


@pytest.mark.slow
def test_models_that_contradict_each_other_end_the_election_as_contested_after_k_and_six_votes_of_each() -> None:
    ran = decided("run", "drift", "-o", "length=3", *POOL, "--no-speculate", "--run-id", "r", code=UNDECIDED)
    assert (ran["calls"], ran["undecided_at"], ran["contested_at"]) == (18, ["0/step/0"], {"0/step/0": [9, 9]})
    assert "contested after 18 draws: each model of the pool gave one reply only, in 9 of 9 and 9 of 9" in ran["reason"]
    assert outcomes() == {"0/step/0": "contested"}
    shown = microagents("show", "r", "0/step/0").out
    assert "contested; 18 samples" in shown
    assert shown.count(f"by {RIGHT} ") == shown.count(f"by {WRONG} ") == 9
    row = microagents("show", "r").rows["contested"]
    assert row.startswith("1 election, the first at 0/step/0: each model gave one reply only, in 9 of 9 and 9 of 9")


@pytest.mark.parametrize(
    ("words", "path", "outcome"),
    [
        (("resume", "r", "--on-undecided", THIRD), "0/step/0/undecided", "decided"),
        (("decide", "r", "0/step/0", '{"number": 22}'), "0/step/0", "person"),
    ],
    ids=["third model", "person"],
)
def test_a_contested_election_is_settled_by_a_third_model_or_a_person(
    words: tuple[str, ...], path: str, outcome: str
) -> None:
    decided("run", "drift", "-o", "length=1", *POOL, "--run-id", "r", code=UNDECIDED)
    microagents(*words)
    ended = decided("resume", "r")
    assert (ended["errors"], ended["contested_at"], outcomes()[path]) == (0, {}, outcome)


class Says(Model):
    """A model of a pool that adds a number to the right reply, after a while."""

    priced = True

    def __init__(self, spec: str, added: int, after_s: float = 1.0, hanging: tuple[int, ...] = ()) -> None:
        self.spec, self._added, self._after_s, self._hanging = spec, added, after_s, hanging

    async def complete(self, call: Call) -> Sample:
        await asyncio.sleep(1000.0 if call.id.seq in self._hanging and not call.attempt else self._after_s)
        number = Drift().oracle(Drift().state_in(call.prompt)).number
        return Sample(text=write(Onward(number=number + self._added)), usage=Usage(output_tokens=5, cost_usd=1.0))


async def drifted(*models: Any, steps: int = 8, k: int = 3, **options: Any) -> Result:
    strategy = Maker(k=k, max_draws=40)
    return await run(
        Drift(length=steps), models=list(models), strategy=strategy, run_id="r", runs_dir="runs", **options
    )


def test_a_pool_whose_models_contradict_each_other_raises_a_named_error() -> None:
    result = run_virtual(drifted(Says("one", 0), Says("other", 1)))
    assert result.outcome == "undecided"
    assert "with --on-undecided and the spec of a third model" in (result.reason or "")
    assert "contested" in summary(result)


HARD = tuple(
    f"sim:{name}@error=0.02,hard=0.3,hard_error=0.95,flag=0.1,latency=1,sigma=1" for name in ("gpt-4.1-mini", "o3-mini")
)
"""Some steps are contested, some are decided, at some a reply is flagged."""


@pytest.mark.slow
def test_a_run_by_a_pool_that_is_cut_off_anywhere_resumes_to_the_same_decisions() -> None:
    seed = 1
    options: Any = {"on_undecided": "sim:perfect", "runtime": "linked", "seed": seed, "resend_stragglers": False}
    whole = run_virtual(drifted(*HARD, **options), seed=seed).account
    with Reader(Path("runs/r.sqlite")) as reader:
        rows = {path: (row.outcome, row.value) for path, row in reader.decisions()}
    for cut_s in (7.5,):
        for file in Path("runs").iterdir():
            file.unlink()

        with pytest.raises(TimeoutError):
            run_virtual(asyncio.wait_for(drifted(*HARD, **options), cut_s), seed=seed)
        again = run_virtual(resume("r"), seed=seed + 100).account
        assert (again.decisions_sha256, again.ballots_sha256) == (whole.decisions_sha256, whole.ballots_sha256)
        with Reader(Path("runs/r.sqlite")) as reader:
            assert {path: (row.outcome, row.value) for path, row in reader.decisions()} == rows
    assert "contested" in {outcome for outcome, _ in rows.values()}


def test_a_vote_that_another_model_of_the_pool_gave_after_a_straggler_counts_as_its_own() -> None:
    pool = Says("one", 0, hanging=(6,)), Says("other", 1, hanging=(6,))
    result = run_virtual(drifted(*pool, steps=1, k=4))
    with Reader(Path("runs/r.sqlite")) as reader:
        row = reader.decision_at("0/step/0")
    assert row is not None
    place = ElectionId(path="0/step/0", question_digest=row.question_digest)
    ballots = [ballot for ballot in row.ballots if isinstance(ballot, Ballot)]
    voters = [
        ballot.facts.fallback or ("object:one", "object:other")[(place.offset + ballot.seq) % 2] for ballot in ballots
    ]
    values = {"object:one": b'{"number":22}', "object:other": b'{"number":23}'}
    assert [ballot.value for ballot in ballots] == [values[voter] for voter in voters]
    assert [ballot.seq for ballot in ballots if ballot.facts.fallback] == [6]
    assert (row.outcome, min(map(voters.count, values))) == ("contested", 10)
    assert result.account.repeated == {"straggler": 1}
