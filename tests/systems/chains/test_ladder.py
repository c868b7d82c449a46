"""The ladder: which steps climb it, what each rung asks, and what is decided in the end."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pytest
from msgspec import structs

from microagents import FirstToAheadBy, InvalidUsage, Result, run
from microagents.base.errors import TaskFailed
from microagents.elections.election import ElectionId, Verdict
from microagents.models.model import Call
from microagents.replies.reply_forms import write
from microagents.replies.rollouts import Rollout
from microagents.runs.strategies import strategy_of
from microagents.systems.chains.chain import Chain, ChainStep, Rung
from microagents.systems.chains.judge import Reason, Ruling
from microagents.systems.chains.maker import Maker
from microagents.systems.chains.paraphraser import Paraphrased, keeps_all
from microagents.systems.chains.self_consistency import SelfConsistency
from microagents.tasks.drift import Drift, Onward
from microagents.tasks.multiplication import Multiplication

LENGTH, HARD, WRONG = 12, 5, 1000
RIGHT = [1]
for _ in range(LENGTH):
    RIGHT.append((RIGHT[-1] * 17 + 5) % 1009)


class Asked:
    """A model that is torn at one step, and answers the rungs as it is told."""

    spec = "asked"

    def __init__(
        self, said: Mapping[str, Callable[[Call], str]] = MappingProxyType({}), **more: Callable[[Call], str]
    ) -> None:
        self.said = {**said, **more}
        self.calls: Counter[str] = Counter()

    async def complete(self, call: Call) -> str:
        step, *rung = call.id.election.path.split("/")[2:]
        name = rung[0] if rung else "vote"
        self.calls[f"{step}/{'/'.join(rung) or 'vote'}"] += 1
        if name in self.said and int(step) == HARD:
            return self.said[name](call)
        return number(RIGHT[int(step) + 1])


def number(of: int) -> str:
    return write(Onward(number=of))


def torn(call: Call) -> str:
    return number(WRONG if call.id.seq % 2 else RIGHT[HARD + 1])


def paraphrase(call: Call) -> str:
    if call.reply is not Paraphrased:
        return number(RIGHT[HARD + 1])
    asked = json.loads(call.prompt.user)
    return write(Paraphrased(system=f"In other words: {asked['system']}", user=asked["user"]))


def judge(call: Call) -> str:
    if call.reply is Reason:
        return write(Reason(reason="I did the sum."))
    asked = json.loads(call.prompt.user)
    right = next(each["label"] for each in asked["candidates"] if each["reply"]["number"] == RIGHT[HARD + 1])
    assert all(each["reason"] == "I did the sum." for each in asked["candidates"])
    return write(Ruling(choice=right))


async def climbed(ladder: str, model: Asked, *, on_undecided: str = "stop", **options: Any) -> Result:
    strategy = Maker(**{"k": 4, "max_draws": 20, "ladder": ladder, **options})
    return await run(Drift(length=LENGTH), models=model, strategy=strategy, on_undecided=on_undecided, speculate=False)


async def test_without_calibration_a_step_climbs_at_half_its_cap() -> None:
    model = Asked(vote=torn, paraphrase=paraphrase)
    result = await climbed("paraphrase", model)
    assert (result.outcome, result.account.errors, result.account.climbed) == ("completed", 0, {"paraphrase": 1})
    assert model.calls[f"{HARD}/vote"] == 10
    assert model.calls[f"{HARD}/paraphrase/text/0"] == 1
    assert model.calls[f"{HARD}/paraphrase"] == 4


async def test_with_calibration_it_climbs_as_soon_as_its_votes_are_improbable() -> None:
    model = Asked(vote=torn, paraphrase=paraphrase)
    result = await climbed("paraphrase", model, p=0.999)
    assert result.account.climbed == {"paraphrase": 1}
    assert model.calls[f"{HARD}/vote"] < 10


async def test_a_wrong_name_of_a_model_in_the_ladder_is_refused_before_the_first_call() -> None:
    model = Asked()
    with pytest.raises(InvalidUsage, match=r"write a model as .*, not 'asked'"):
        await climbed("model=asked", model)
    assert not model.calls


async def test_a_judge_chooses_among_the_replies_with_a_reason_for_each() -> None:
    model = Asked(vote=torn, judge=judge)
    result = await climbed("judge", model)
    assert (result.outcome, result.account.errors, result.account.climbed) == ("completed", 0, {"judge": 1})
    assert [model.calls[f"{HARD}/judge/{part}"] for part in ("reason/0", "reason/1", "vote")] == [1, 1, 3]
    assert (result.account.decided, result.account.steps) == (LENGTH, LENGTH)


async def test_the_next_rung_is_climbed_where_one_does_not_decide() -> None:
    def torn_in_other_words(call: Call) -> str:
        return paraphrase(call) if call.reply is Paraphrased else torn(call)

    model = Asked(vote=torn, paraphrase=torn_in_other_words, model=torn, judge=judge)
    result = await climbed("paraphrase,model=object:asked,judge", model)
    assert result.account.climbed == {"judge": 1}
    assert result.account.votes == 4 * (LENGTH - 1) + 3 * 10


async def test_a_paraphrase_that_loses_a_number_is_not_used_and_the_next_rung_is_tried() -> None:
    model = Asked(vote=torn, paraphrase=lambda _: write(Paraphrased(system="Multiply.", user="Number: 7")), judge=judge)
    result = await climbed("paraphrase,judge", model)
    assert (result.account.climbed, model.calls[f"{HARD}/paraphrase"]) == ({"judge": 1}, 0)


async def test_a_step_that_no_rung_decides_is_undecided_or_settled_as_the_user_wants() -> None:
    said = {"vote": torn, "model": torn}
    stopped = await climbed("model=object:asked", Asked(said=said))
    assert (stopped.outcome, stopped.account.undecided_at) == ("undecided", (f"0/step/{HARD}",))
    led = await climbed("model=object:asked", Asked(said=said), on_undecided="leader")
    assert (led.outcome, led.account.settled_at, led.account.climbed) == ("completed", {f"0/step/{HARD}": "leader"}, {})
    other = await climbed("model=object:asked", Asked(said=said), on_undecided="sim:perfect")
    assert (other.outcome, other.account.errors) == ("completed", 0)


@pytest.mark.slow
async def test_all_rungs_decide_the_same_on_every_runtime_with_guesses_and_without() -> None:
    model = "sim:perfect@error=0.1,hard=0.5,hard_error=0.6"
    ladder = "paraphrase,model=sim:o3-mini@error=0.3,latency=0,lookahead,judge"
    strategy = Maker(k=5, ladder=ladder, p=0.9, false_alarms=5, max_draws=16)
    options: dict[str, Any] = {"models": model, "strategy": strategy, "seed": 3, "on_undecided": "leader"}
    usual = await run(Drift(length=100), **options)
    other = await run(Drift(length=100), **options, runtime="linked", speculate=False)
    assert len(usual.account.climbed) >= 2
    assert other.account.decisions_sha256 == usual.account.decisions_sha256
    assert other.account.climbed == usual.account.climbed


class Slowly:
    """A rung of one's own: the same question, until a larger lead."""

    name = "slowly"

    async def hold(self, chain: Chain, step: ChainStep, tried: Sequence[Verdict]) -> tuple[ElectionId, Verdict]:  # noqa: ARG002
        question = structs.replace(step.question, rule=FirstToAheadBy(2))
        election = question.id_at(f"{step.election.path}/{self.name}")
        return election, await chain.work.hold(election, question)


class Broken(Slowly):
    """One that gives something else."""

    async def hold(self, chain: Chain, step: ChainStep, tried: Sequence[Verdict]) -> Any:  # noqa: ARG002
        return "no idea"


class Own(Maker):
    """A strategy with a rung of one's own."""

    broken: bool = False

    @property
    def rungs(self) -> tuple[Rung, ...]:
        return (Broken(),) if self.broken else (Slowly(),)


async def test_a_rung_of_ones_own_is_climbed_by_calibration_and_its_mistakes_are_named() -> None:
    model = Asked(vote=torn, slowly=lambda _: number(RIGHT[HARD + 1]))
    result = await run(Drift(length=LENGTH), models=model, strategy=Own(k=4, p=0.99))
    assert (result.account.errors, result.account.climbed) == (0, {"slowly": 1})
    with pytest.raises(
        TaskFailed, match=r"Broken\.hold must give the id of its election and the verdict, or None, not 'no idea'"
    ):
        await run(Drift(length=LENGTH), models=model, strategy=Own(k=4, p=0.99, broken=True))


@pytest.mark.parametrize(
    ("strategy", "options", "said"),
    [
        ("maker", {"p": "0.9"}, "p is for a ladder, which this run has not"),
        ("maker", {"ladder": "judge", "margin": "30", "max_draws": "20"}, "a lead of margin = 30 cannot come from max_draws = 20 draws"),
        ("maker", {"ladder": "judge,judge"}, "the rung judge stands twice in the ladder"),
        ("lead", {"samples": "1"}, "an integer from 2 to"),
    ],
)  # fmt: skip
def test_options_that_do_nothing_are_refused(strategy: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidUsage, match=said):
        strategy_of(strategy, Drift(), options)


async def test_a_problem_has_no_steps_to_climb() -> None:
    with pytest.raises(InvalidUsage, match="Multiplication has no steps, so there is nothing to climb"):
        await run(Multiplication(), models="sim:perfect", strategy=Maker(ladder="judge", p=0.9))


@pytest.mark.slow
@pytest.mark.parametrize("on_undecided", ["stop", "object:asked"])
async def test_a_step_that_nothing_decided_stays_undecided_however_often_it_is_resumed(on_undecided: str) -> None:
    def unsure(call: Call) -> str:
        return judge(call) if call.reply is Reason else write(Ruling(choice="AAAA"))  # names no candidate

    def both(start: int, right: int) -> int:
        return WRONG if start % 2 else right

    class Torn(Asked):
        async def complete(self, call: Call) -> str:
            if not issubclass(call.reply, Rollout):
                return await super().complete(call)
            *_, start, _ = call.id.election.path.split("/")
            at = HARD - int(start)
            steps = [
                Onward(number=both(int(start), right) if place == at else right)
                for place, right in enumerate(RIGHT[int(start) + 1 :])
            ]
            return write(call.reply(steps=tuple(steps[: call.reply.horizon])))

    said = {"vote": torn, "judge": unsure, "undecided": torn}
    for ladder in ("lookahead,judge", "judge"):
        strategy = Maker(k=4, max_draws=12, ladder=ladder, p=0.9, history=2)
        name = ladder.replace(",", "-")
        options: dict[str, Any] = {"strategy": strategy, "on_undecided": on_undecided, "run_id": name}
        found = [await run(Drift(length=LENGTH), models=Torn(said), **options) for _ in range(3)]
        assert {each.outcome for each in found} == {"undecided"}
        assert {each.account.steps for each in found} == {HARD}
        assert len({each.account.undecided_at for each in found}) == 1


async def test_a_flagged_reply_takes_no_decision_from_the_rung_of_a_plurality() -> None:
    def nearly_all(call: Call) -> str:
        return "?" if call.id.seq == 3 else number(RIGHT[HARD + 1])

    strategy = SelfConsistency(samples=9, ladder="model=object:asked", p=0.99)
    result = await run(Drift(length=LENGTH), models=Asked(vote=torn, model=nearly_all), strategy=strategy)
    assert (result.outcome, result.account.errors, result.account.climbed) == ("completed", 0, {"model": 1})


async def test_a_plurality_climbs_as_well() -> None:
    model = Asked(vote=torn, paraphrase=paraphrase)
    strategy = SelfConsistency(samples=9, ladder="paraphrase", p=0.99)
    result = await run(Drift(length=LENGTH), models=model, strategy=strategy)
    assert (result.account.errors, result.account.climbed) == (0, {"paraphrase": 1})
    with pytest.raises(InvalidUsage, match="a plurality is always decided; give p, the share of right votes"):
        strategy_of("self-consistency", Drift(), {"ladder": "judge"})


@pytest.mark.parametrize(
    ("given", "said", "keeps"),
    [
        ("Add 3 to 14.", "To 14, add 3.", True),
        ("Add 3 to 14.", "To 14, add three.", False),
        ("Add 3 to 14.", "Add 3 and 3 to 14.", False),
        ("Add 1.5 to x", "Add 15 to x", False),
        ("State: [[3, 2], [1]]", "The pegs are [[3, 2], [1]] now.", True),
        ("State: [[3, 2], [1]]", "The pegs are [[2, 3], [1]] now.", False),
        ('Print "Yes" twice.', 'Twice, print "Yes".', True),
        ('Print "Yes" twice.', 'Twice, print "No".', False),
        ("Move the block for Ada, then for Bob.", "First Ada's block is moved, then the one of Bob.", True),
        ("Move the block for Ada, then for Bob.", "First Eve's block is moved, then the one of Bob.", False),
        ("Call read_all once.", "Call it once.", False),
        ("", "Something.", False),
        ("Add -3 to 14.", "To 14, add 3.", False),
        ("Say 'yes' once.", "Say 'no' once.", False),
        ("Don't say it isn't Bob's.", "It isn't Bob's, but don't say it.", True),
        ("Rows: (3, 2), (1)", "Rows: (2, 3), (1)", False),
        ("Rows: [3,\n 2]", "Rows: [2,\n 3]", False),
        ("From 10-20 take 1e5", "Take 1e-5 from 10-20", False),
        ("Count the days from 10-20.", "How many days are in 10-20?", True),
        ("Ask Ann first.", "First ask Annabel.", False),
        ("Move the block.", "Move the block for Ada.", False),
        ("Add the numbers.", 'Add the numbers, but not "zero".', False),
        ("Take it from Bob now.", "Bob has it now; take it.", True),
        *[("Add 1 and [2].", said, False) for said in ("[" * 100_000, "(" + "1" * 100_000, "[insert" * 20_000)],
    ],
)
def test_a_paraphrase_keeps_every_number_name_list_and_quotation(given: str, said: str, *, keeps: bool) -> None:
    began_s = time.process_time()
    assert keeps_all(given, said) is keeps
    assert time.process_time() - began_s < 20, "whatever its form"
