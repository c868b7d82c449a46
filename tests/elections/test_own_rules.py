"""Stop rules of a user's own: shares of approval, votes without dissent and panels, in one process and behind a link that encodes them."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from microagents import Conductor, MicroagentsError, Prompt, Reply, Rule, Strategy, Tally, Task, Work, run, run_sync
from microagents.base.errors import InvalidDefinition
from microagents.elections.rules import FirstTo, FirstToAheadBy, portable


class Opinion(Reply, frozen=True):
    approved: bool


class Approval(Rule, frozen=True):
    """Approved by a share of a panel, else rejected: the verdict is never undecided, and need not be the plurality."""

    size: int = 3
    share: float = 2 / 3

    def votes_needed(self, tally: Tally) -> int:
        yes, left = tally.counts.get(True, 0), self.size - tally.counted
        if yes >= self.share * self.size or yes + left < self.share * self.size:
            return 0
        return left

    def winner(self, tally: Tally) -> Hashable:
        return tally.counts.get(True, 0) >= self.share * self.size


class Unopposed(Rule, frozen=True):
    """Decided by the first dissent, or by n equal votes."""

    n: int = 3

    def votes_needed(self, tally: Tally) -> int:
        return 0 if len(tally.counts) > 1 else self.n - tally.counted


class Negative(Rule, frozen=True):
    def votes_needed(self, tally: Tally) -> int:
        return 1 - 2 * tally.counted


class NobodysVote(Rule, frozen=True):
    def votes_needed(self, tally: Tally) -> int:
        return 1 - tally.counted

    def winner(self, tally: Tally) -> Hashable:
        return f"nobody's among {len(tally.counts)}"


class NoVote(Rule, frozen=True):
    def votes_needed(self, tally: Tally) -> int:
        return tally.counted


class Broken(Rule, frozen=True):
    def votes_needed(self, tally: Tally) -> int:
        raise KeyError(tally.counted)


class Odd(Rule, frozen=True):
    def votes_needed(self, tally: Tally) -> int:
        return 1 - tally.counted

    def outcome(self, tally: Tally) -> Any:
        return f"leader of {len(tally.counts)}"


class Unwritable(Rule, frozen=True):
    unit: complex = 1j

    def votes_needed(self, tally: Tally) -> int:
        return 1 - tally.counted


class Review(Task):
    """A candidate that a panel judges: each member's vote stands in its prompt."""

    default_strategy: ClassVar[str] = f"{__name__}:AskPanel"
    votes: tuple[bool, ...]

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Opinion:  # noqa: ARG002 - it has one kind of reply
        return Opinion(approved=prompt.user == "True")


class AskPanelConductor(Conductor[Review, "AskPanel"]):
    async def conduct(self, work: Work[Review, AskPanel]) -> list[Any]:
        prompts = [Prompt(user=str(vote)) for vote in work.task.votes]
        decision = await work.elect("panel", prompts, Opinion, rule=RULES[work.strategy.rule])
        return [decision.require().approved, sum(votes for _, votes in decision.tally)]


class AskPanel(Strategy):
    solves, conductor = (Review,), AskPanelConductor
    rule: str = "approval"


RULES: dict[str, Rule] = {
    "approval": Approval(),
    "unopposed": Unopposed(),
    "negative": Negative(),
    "nobody's": NobodysVote(),
    "unwritable": Unwritable(),
    "no vote": NoVote(),
    "odd": Odd(),
    "broken": Broken(),
}


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("runtime", ["local", "linked"])
@pytest.mark.parametrize(
    "votes", [(True, True, False), (True, False, True), (False, False, True), (False, True, False)]
)
async def test_a_panel_approves_by_its_share_and_asks_no_more_members(votes: tuple[bool, ...], runtime: str) -> None:
    result = await run(Review(votes=votes), models="sim:perfect", runtime=runtime)
    approved, asked = result.value
    assert approved == (sum(votes) >= 2)
    # It launches all that are left, so the panel is whole unless its size is reached early in launch order.
    assert asked == (2 if votes[0] == votes[1] else 3)


@pytest.mark.parametrize(("votes", "asked"), [((True,) * 3, 3), ((True, False, True), 2), ((False, True, True), 2)])
async def test_a_vote_without_dissent_ends_at_the_first_one(votes: tuple[bool, ...], asked: int) -> None:
    result = await run(Review(votes=votes), models="sim:perfect", strategy=AskPanel(rule="unopposed"))
    assert result.value[1] == asked


async def test_a_rule_of_ones_own_is_part_of_the_question_and_recalled_with_it() -> None:
    first = await run(Review(votes=(True, False, True)), models="sim:perfect", run_id="r")
    assert (await run(Review(votes=(True, False, True)), models="sim:perfect", run_id="r")).calls == first.calls == 3
    digests = {portable(rule) for rule in (Approval(), Approval(share=0.5), Unopposed(), FirstTo(2), FirstToAheadBy(2))}
    assert len(digests) == 5


@pytest.mark.parametrize("rule", ["no vote", "unwritable", "broken"])
def test_a_rule_that_fails_before_anything_is_asked_leaves_no_journal(rule: str, tmp_path: Path) -> None:
    with pytest.raises(MicroagentsError):
        run_sync(Review(votes=(True,)), models="sim:perfect", strategy=AskPanel(rule=rule), runs_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("rule", "error", "said"),
    [
        ("negative", MicroagentsError, r"votes_needed\(\) of \S+:Negative must give a number of votes"),
        ("nobody's", MicroagentsError, r"winner\(\) of \S+:NobodysVote must give a vote that was cast"),
        ("no vote", InvalidDefinition, "needs no vote at all"),
        ("odd", MicroagentsError, r"outcome\(\) of \S+:Odd must give 'decided' or 'argmax'"),
        ("unwritable", InvalidDefinition, "cannot be written as JSON and read back"),
    ],
)
async def test_a_broken_rule_ends_the_run_with_one_sentence(rule: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        await run(Review(votes=(True,)), models="sim:perfect", strategy=AskPanel(rule=rule))
