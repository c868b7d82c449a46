"""The tree of sub-problems, made from the journals of real runs with the simulated model.

`microagents.systems.questions.tree` and `microagents.runs.inspection.runs` are not in `__all__`: the command line shows what they give.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec import structs

from microagents import Prompt, Reply, Result, resume, run
from microagents.elections.election import Ballot, ElectionId, Flagged, total_usd
from microagents.journal.messages import OpenElection, Recalled
from microagents.journal.sharded import reader_of
from microagents.replies.chat import Sampling
from microagents.runs.inspection.runs import decide, solution_of
from microagents.systems.questions.notes import BegunTurn, ProblemNotes
from microagents.systems.questions.questions import Choice, Decomposition, ToSolve
from microagents.systems.questions.recursive import Recursive
from microagents.systems.questions.tree import ROOT, ProblemNode, SubtreeTotals, TurnKind, TurnResult, fold
from microagents.systems.questions.turns import AnswerDirectly
from microagents.tasks.multiplication import Multiplication
from microagents.work.notes import Records

RUNS = Path("runs")
PRICED = "sim:gpt-4.1-mini"
UNDECIDED_VOTE: dict[str, Any] = {
    "models": "sim:perfect@flag=0.5,price_in=1,price_out=2",
    "strategy": Recursive(k=2, depth=2, max_draws=3),
    "seed": 32,
}
"""With these the vote on how to cut the whole problem ends undecided: one vote, two flagged ballots."""
AT = "0/solve/decompose/vote"


class Wavering(Multiplication):
    """Votes on candidates are wrong more often than right."""

    def difficulty(self, prompt: Prompt, reply: type[Reply]) -> float:
        return 0.9 if issubclass(reply, Choice) else super().difficulty(prompt, reply)


class Circling(Multiplication):
    """Cutting leads back to the same problem."""

    def expert_decomposition(self, problem: str) -> Decomposition:
        return Decomposition(first=f" {problem}", second=problem, compose="Take any of them.")

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> Reply:
        return right if isinstance(right, Decomposition) else super().mistake(prompt, right, rng)


async def solve(task: Any = None, **how: Any) -> Result:
    options: dict[str, Any] = {"models": PRICED, "strategy": Recursive(k=2), "run_id": "r"} | how
    return await run(Multiplication(digits=5) if task is None else task, **options)


def tree(of_input: int = 0, run_id: str = "r") -> ProblemNode:
    with reader_of(RUNS, run_id) as reader:
        found = solution_of(reader, of_input)
        assert isinstance(found, ProblemNode)
        return found


def direct(rows: Mapping[str, Recalled], *open_elections: OpenElection) -> ProblemNode:
    """A problem with the turn for a direct answer."""
    notes = ProblemNotes(task=Multiplication(), root=ProblemNode(at=ROOT))
    ask: AnswerDirectly = AnswerDirectly(
        at=f"{ROOT}/{TurnKind.ANSWER}", asked=ToSolve(problem=""), max_draws=3, sampling=Sampling()
    )
    notes.begun.append(BegunTurn(notes.root, ask.at, ask))
    return notes.drawn([notes], Records(0, rows, open_elections))


def nodes(of: ProblemNode) -> Iterator[ProblemNode]:
    yield of
    for child in of.children:
        yield from nodes(child)


def taken(of: ProblemNode) -> dict[str, TurnResult]:
    """Turns by their path."""
    return {f"{node.at}/{each.turn}": each for node in nodes(of) for each in node.turns}


def calls(of: ProblemNode) -> int:
    return of.calls + of.below.calls


def cost_usd(of: ProblemNode) -> float:
    found = total_usd([of.cost_usd, of.below.cost_usd])
    assert found is not None
    return found


# -- a run that is completed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3])
async def test_answers_halves_calls_and_costs_are_those_of_the_run(k: int) -> None:
    result, found = await solve(strategy=Recursive(k=k)), tree()
    assert msgspec.json.decode(found.answer or b"") == result.value["answer"]
    assert (found.at, found.problem, found.depth) == (ROOT, Multiplication(digits=5).statement(), 0)
    assert found.below.problems + 1 == result.account.steps == len(list(nodes(found)))
    assert result.cost_usd
    assert calls(found) == result.calls
    assert cost_usd(found) == pytest.approx(result.cost_usd)
    assert sum(each.flagged for each in taken(found).values()) == sum(result.account.flagged.values())
    for node in nodes(found):
        first, last = node.turns[0], node.turns[-1]
        assert last.winner is not None
        assert node.answer == last.candidates[last.winner].reply
        if node.children:
            assert ([each.turn for each in node.turns], first.winner is None) == (
                [TurnKind.DECOMPOSE, TurnKind.COMPOSE],
                False,
            )
            way = msgspec.json.decode(first.candidates[first.winner or 0].reply, type=Decomposition)
            assert [(child.problem, child.at, child.depth) for child in node.children] == [
                (half, f"{node.at}/{number}", node.depth + 1) for number, half in ((1, way.first), (2, way.second))
            ]


async def test_turns_without_a_vote_are_agreed_and_the_others_say_how_their_votes_went() -> None:
    await solve(strategy=Recursive(k=3))
    found = taken(tree())
    agreed = [each for each in found.values() if each.outcome == "agreed"]
    decided = [each for each in found.values() if each.outcome == "decided"]
    assert agreed
    assert decided
    assert len(agreed) + len(decided) == len(found)
    for each in agreed:
        (only,) = each.candidates
        assert each.winner == only.votes == 0
        assert only.copies <= each.calls - each.flagged  # a way to cut that leads back is no candidate
    for each in decided:
        assert len(each.candidates) > 1
        assert sum(one.copies for one in each.candidates) <= 5
        assert each.winner is not None
        assert each.candidates[each.winner].votes == max(one.votes for one in each.candidates) == 3


async def test_a_turn_taken_by_argmax_is_marked_and_is_one_of_those_that_the_run_names() -> None:
    result = await solve(Wavering(digits=6), strategy=Recursive(k=3, depth=1), seed=1)
    found = taken(tree())
    argmax = {f"0/{at}/vote" for at, each in found.items() if each.outcome == "argmax"}
    assert argmax
    assert argmax == set(result.value["argmax"])
    for each in found.values():
        if each.outcome == "argmax":
            assert each.winner is not None
            assert each.candidates[each.winner].votes == max(one.votes for one in each.candidates) < 3


async def test_a_way_to_cut_that_leads_back_is_no_candidate() -> None:
    result = await solve(Circling(digits=2), models="sim:perfect")
    found = tree()
    assert [(each.turn, each.outcome, each.candidates == ()) for each in found.turns] == [
        (TurnKind.DECOMPOSE, "none", True),
        (TurnKind.ANSWER, "agreed", False),
    ]
    assert calls(found) == result.calls


@pytest.mark.slow
async def test_many_inputs_have_a_tree_each() -> None:
    tasks = [Multiplication(digits=3, instance=number) for number in range(3)]
    result = await solve(tasks)
    found = [tree(number) for number in range(3)]
    assert [msgspec.json.decode(each.answer or b"") for each in found] == [value["answer"] for value in result.value]
    assert [each.problem for each in found] == [task.statement() for task in tasks]
    assert sum(calls(each) for each in found) == result.calls


# -- a run that is not -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_calls", [1, 20])
async def test_what_a_run_was_stopped_in_is_open_and_its_calls_are_there(max_calls: int) -> None:
    result, found = await solve(strategy=Recursive(k=3), max_calls=max_calls), tree()
    assert result.outcome == "stopped"
    assert result.calls == calls(found) == max_calls
    assert found.answer is None
    still = [each for each in taken(found).values() if each.outcome == "open"]
    assert still
    assert all(each.winner is None for each in still)
    assert cost_usd(found) == pytest.approx(result.cost_usd)


def test_what_is_undecided_and_asked_again_is_open_and_all_that_was_bought_for_it_counts() -> None:
    path = f"0/{ROOT}/{TurnKind.ANSWER}"
    flagged = tuple(Flagged(seq=seq, flag="empty") for seq in range(3))
    row = Recalled(question_digest=b"a", outcome="undecided", value=None, ballots=flagged, cost_usd=0.5)
    again = OpenElection(
        id=ElectionId(path=path, question_digest=b"b"),
        ballots=(Ballot(seq=0, value=b'{"product":6}', cost_usd=0.25), *flagged[1:2]),
    )
    (turn,) = direct({path: row}, again).turns
    assert (turn.outcome, turn.calls, turn.flagged, turn.cost_usd) == ("open", 5, 4, None)
    assert [each.reply for each in turn.candidates] == [msgspec.Raw(b'{"product":6}')]


@pytest.mark.slow
async def test_an_interrupted_run_that_goes_on_ends_with_the_tree_of_one_that_was_not() -> None:
    await solve(max_calls=30)
    await resume("r", max_calls=10_000)
    await solve(run_id="undisturbed")
    assert msgspec.json.encode(tree()) == msgspec.json.encode(tree(run_id="undisturbed"))


async def test_an_undecided_vote_is_marked_and_nothing_goes_on_from_it() -> None:
    result = await solve(**UNDECIDED_VOTE)
    assert result.account.undecided_at == (AT,)
    found = tree()
    turn = found.turns[0]
    assert (turn.outcome, turn.winner) == ("undecided", None)
    assert sorted(each.votes for each in turn.candidates) == [0, 1]
    assert (found.turns, found.children) == ((turn,), ())
    assert calls(found) == result.calls


async def test_an_undecided_answer_is_marked() -> None:
    result = await solve(models="sim:perfect@flag=1", strategy=Recursive(k=2, depth=0), seed=2)
    (turn,) = tree().turns
    assert (result.outcome, turn.outcome, turn.flagged, turn.calls) == ("undecided", "undecided", 3, 3)


async def test_another_model_that_decided_is_marked_and_its_calls_are_added() -> None:
    await solve(**UNDECIDED_VOTE)
    before = tree().turns[0]
    result = await resume("r", on_undecided="sim:perfect@price_in=1,price_out=2")
    found = tree()
    turn = found.turns[0]
    assert (turn.outcome, turn.other_model, turn.calls) == ("decided", True, before.calls + 2)
    assert max(each.votes for each in turn.candidates) == 2
    assert calls(found) == result.calls
    assert cost_usd(found) == pytest.approx(result.cost_usd)


async def test_a_persons_answer_is_marked() -> None:
    await solve(models="sim:perfect@flag=1", strategy=Recursive(k=2, depth=0), seed=2)
    decide(RUNS, "r", "0/solve/answer", '{"product": 7}')
    await resume("r")
    found = tree()
    assert (found.turns[0].outcome, found.answer) == ("person", msgspec.Raw(b'{"product":7}'))


async def test_a_persons_choice_by_a_candidates_label_is_marked() -> None:
    await solve(**UNDECIDED_VOTE)
    label = tree().turns[0].candidates[1].label
    decide(RUNS, "r", AT, msgspec.json.encode({"choice": label}).decode())
    await resume("r")
    found = tree()
    turn = found.turns[0]
    assert (turn.outcome, turn.winner, turn.calls) == ("person", 1, 6)
    assert found.children


# -- folded ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, 2, 5])
async def test_a_folded_tree_adds_up_what_it_leaves_out(depth: int) -> None:
    await solve()
    whole = tree()
    part = fold(whole, depth)
    deeper = [node for node in nodes(whole) if node.depth > depth]
    assert max(node.depth for node in nodes(part)) == min(depth, max(node.depth for node in nodes(whole)))
    assert len(list(nodes(part))) == len(list(nodes(whole))) - len(deeper)
    left_out = [node.folded for node in nodes(part) if node.folded is not None]
    assert sum(each.problems for each in left_out) == len(deeper)
    assert sum(each.calls for each in left_out) == sum(node.calls for node in deeper)
    assert part.below.problems == whole.below.problems
    assert part.below.calls == whole.below.calls


def test_what_a_sub_problem_cost_is_unknown_once_one_price_is() -> None:
    leaf = ProblemNode(at="", problem="", depth=1, turns=(), answer=None, calls=1, cost_usd=0.5)
    root = structs.replace(leaf, depth=0, children=(leaf, structs.replace(leaf, cost_usd=None)))
    assert root.below == SubtreeTotals(problems=2, calls=2, cost_usd=None)
    assert structs.replace(root, children=(leaf, leaf)).below.cost_usd == 1.0


# -- what has no tree --------------------------------------------------------------------------------------------------
