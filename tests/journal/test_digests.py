"""Digests of decisions: equal for equal decisions, and different once a voter counts ballots as they arrive.

Towers of Hanoi decide the same whatever an engine does. On `drift` every reply is legal and the walk goes on from wherever it leads, so
that one ballot counted wrongly changes what follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from hashlib import blake2b, sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from microagents import Deployment, Result, Sample, run
from microagents.elections.election import Ballot, Draw
from microagents.journal.digests import with_entry
from microagents.roles import Solver
from microagents.roles.running_election import RunningElection
from microagents.systems import Maker
from microagents.tasks.drift import Drift

ERRING = "sim:perfect@error=0.4,flag=0.1"
"""Right in six of ten, one reply in ten flagged."""
STEPS = 80

both_ks = pytest.mark.parametrize("k", [1, 2])
in_one_process = pytest.mark.parametrize("runtime", ["local", "linked"])
"""For mutants: other processes do not hear of them."""


class ShufflingSolver(Solver):
    """Lets replies arrive in another order than they were launched in, the same one every time."""

    async def draw(self, request: Draw) -> tuple[Sample, ...]:
        samples = await super().draw(request)
        for _ in range(blake2b(f"{request.id.election.path} {request.id.seq}".encode()).digest()[0] % 16):
            await asyncio.sleep(0)
        return samples


class Shuffled(Maker):
    """MAKER with the other."""

    def deployments(self) -> list[Deployment]:
        return [Deployment(role=ShufflingSolver) if each.role is Solver else each for each in super().deployments()]


async def drift(strategy: Maker, *, runtime: str = "local", seed: int = 0, known_inputs: bool = False) -> Result:
    result = await run(
        Drift(length=STEPS),
        models=ERRING,
        strategy=strategy,
        runtime=runtime,
        seed=seed,
        known_inputs=known_inputs,
        speculate=False,
    )
    assert result.account.decided == STEPS
    return result


def digests(result: Result) -> tuple[str, str]:
    return result.account.decisions_sha256, result.account.ballots_sha256


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("k", "runtime", "strategy"),
    [
        (1, "linked", Shuffled),
        (2, "local", Shuffled),
        pytest.param(2, "linked", Shuffled, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("known_inputs", [False, True])
async def test_digests_do_not_depend_on_runtime_or_latency(
    k: int, runtime: str, strategy: type[Maker], *, known_inputs: bool
) -> None:
    first = await drift(Maker(k=k), known_inputs=known_inputs)
    again = await drift(strategy(k=k), runtime=runtime, known_inputs=known_inputs)
    assert digests(again) == digests(first)
    timed = structs.replace(first.account, durations=again.account.durations)
    assert again.account == timed
    assert len(set(digests(first))) == 2


@pytest.mark.slow
@both_ks
async def test_digests_differ_between_seeds(k: int) -> None:
    results = [await drift(Maker(k=k), seed=seed) for seed in range(3)]
    assert len({digest for result in results for digest in digests(result)}) == 6


async def test_what_a_run_decides_is_told_from_how() -> None:
    """A right model decides the same with any k, by other ballots."""
    one, two = [await run(Drift(length=9), models="sim:perfect", k=k) for k in (1, 2)]
    assert one.account.decisions_sha256 == two.account.decisions_sha256
    assert one.account.ballots_sha256 != two.account.ballots_sha256


# -- mutants -----------------------------------------------------------------------------------------------------------


def count_as_they_arrive(election: RunningElection) -> None:
    """What `RunningElection._count_arrived` must not do."""
    while election._count.tally.votes_needed and election._arrived:
        ballot = election._arrived.pop(next(iter(election._arrived)))
        election._count.add(ballot)
        if not isinstance(ballot, Ballot):
            election._flagged_ahead.discard(ballot.seq)


@pytest.mark.slow
@in_one_process
async def test_a_voter_that_counts_arrivals_is_seen_by_its_ballots(
    runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = await drift(Maker(k=2))
    monkeypatch.setattr(RunningElection, "_count_arrived", count_as_they_arrive)
    mutant = await drift(Shuffled(k=2), runtime=runtime)
    assert mutant.account.ballots_sha256 != true.account.ballots_sha256
    # It decides the same: as no draw is launched that could turn out unneeded, whatever is launched is counted before the decision.
    assert mutant.account.decisions_sha256 == true.account.decisions_sha256


# -- the digests themselves --------------------------------------------------------------------------------------------

Decided = list[tuple[str, str]]
"""Paths, and what was decided there."""
paths = st.lists(st.sampled_from(["0", "2", "10", "007", "a"]), min_size=1, max_size=4).map("/".join)
decisions = st.dictionaries(paths, st.sampled_from(["x", "y"]), max_size=8).map(lambda each: list(each.items()))


def digest(decided: Iterable[tuple[str, str]]) -> str:
    found = ""
    for path, value in decided:
        found = with_entry(found, path, "decided", value)
    return found


@given(decisions, decisions, st.data())
def test_digests_are_equal_where_the_decisions_are_in_any_order_and_only_there(
    one: Decided, other: Decided, data: st.DataObject
) -> None:
    assert digest(data.draw(st.permutations(one))) == digest(one)
    assert (digest(one) == digest(other)) == (dict(one) == dict(other))


def test_a_digest_is_the_sum_of_the_hashes_of_its_entries() -> None:
    hashes = [sha256(msgspec.msgpack.encode((path, "decided", "x"))).hexdigest() for path in ("0/a", "0/b")]
    assert digest([("0/a", "x"), ("0/b", "x")]) == f"{sum(int(each, 16) for each in hashes) % (1 << 256):064x}"
