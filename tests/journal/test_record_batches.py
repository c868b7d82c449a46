"""Records that leave a process together: one message in the place of many, without what a decision makes needless."""

from __future__ import annotations

from microagents.elections.election import Ballot, ElectionId, Flagged, SampleId, Verdict
from microagents.journal.messages import (
    Entry,
    Record,
    RecordCalls,
    RecordDecision,
    RecordProgress,
    RecordReply,
    RecordSample,
)


def election(step: int) -> ElectionId:
    return ElectionId(path=f"0/step/{step}", question_digest=b"q")


def sample(step: int, seq: int, *, valid: bool = True) -> RecordSample:
    ballot = Ballot(seq=seq, value=b"{}") if valid else Flagged(seq=seq, flag="empty")
    return RecordSample(id=SampleId(election=election(step), seq=seq), ballot=ballot)


def decision(step: int, outcome: str = "decided") -> RecordDecision:
    verdict = Verdict(outcome=outcome, leader=0, tally=((b"{}", 2),), ballots=())  # type: ignore[arg-type]
    return RecordDecision(id=election(step), verdict=verdict)


def together(*waiting: Entry) -> Record:
    return Record.together([Record.of(each) for each in waiting])


def test_valid_samples_of_elections_that_are_decided_in_the_same_batch_are_left_out_but_counted() -> None:
    lost = RecordReply(id=SampleId(election=election(0), seq=1), text="no")
    draws = (sample(0, 0), sample(0, 1), lost, sample(1, 0), sample(0, 2, valid=False))
    batch = together(*draws, decision(0))
    assert batch.entries == (*draws[2:], decision(0)), "flags are counted one by one"
    assert batch.valid == 2


def test_samples_of_an_undecided_election_stay() -> None:
    batch = together(sample(0, 0), decision(0, "undecided"))
    assert (batch.entries, batch.valid) == ((sample(0, 0), decision(0, "undecided")), 0)


def test_decisions_keep_their_order_and_of_the_progress_of_an_input_the_last_counts() -> None:
    first, last = RecordProgress(input=0, done=1, total=9), RecordProgress(input=0, done=2, total=9)
    other = RecordProgress(input=1, done=5, total=None)
    batch = together(decision(3), first, decision(1), last, other)
    assert batch.entries == (decision(3), decision(1), last, other)


def calls(source: str = "Solver/0", cost_usd: float | None = 0.5, sent: int = 0, billed: int = 0) -> RecordCalls:
    return RecordCalls(
        source=source,
        input_tokens=9,
        cost_usd=cost_usd,
        repeated={"busy": 1},
        refused={"m": {f"sent {sent}": None}},
        calls=billed,
        in_flight={"sim:x": sent},
    )


def test_calls_of_one_solver_are_added_up_and_one_without_a_price_makes_the_sum_unknown() -> None:
    batch = together(calls(sent=2, billed=1), calls(sent=1, billed=2), calls("Solver/1", sent=5))
    first, second = batch.entries
    assert isinstance(first, RecordCalls)
    assert isinstance(second, RecordCalls)
    assert (first.calls, first.in_flight, first.repeated) == (3, {"sim:x": 1}, {"busy": 2})
    assert (first.input_tokens, first.cost_usd, first.refused) == (18, 1.0, {"m": {"sent 2": None, "sent 1": None}})
    assert (second.source, second.in_flight) == ("Solver/1", {"sim:x": 5})
    (unknown,) = together(calls(), calls(cost_usd=None)).entries
    assert isinstance(unknown, RecordCalls)
    assert unknown.cost_usd is None
