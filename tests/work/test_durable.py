"""Durable calls: what was asked once, sampled or elected is not asked again, whoever takes the run up, wherever it broke off.

Calls are counted at the seller, who does not know the journal.
"""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal

import pytest

from microagents import (
    Conductor,
    Deployment,
    DurableRequest,
    DurableRole,
    FirstToAheadBy,
    InvalidUsage,
    Prompt,
    Reply,
    Request,
    Result,
    Role,
    Strategy,
    Task,
    Work,
    run_sync,
)
from microagents.base.errors import InvalidDefinition, JournalMismatch, MicroagentsError, RoleFailed
from microagents.journal.reading import Reader
from microagents.models.simulation.simulated import Purchases
from microagents.work import durable
from tests.journal.walks import JOURNAL, decisions, digests, go_on, problems, sentence

MODEL = "sim:perfect@error=0.3,flag=0.1"
STOPS = 4
PLACES = [f"{stop}/{call}" for stop in range(STOPS) for call in ("rate", "draft", "choice")]


class RateOf(Request[Decimal], frozen=True):
    """Ask what a unit of a currency is worth."""

    currency: str


class RateDesk(Role):
    """Tells it, and keeps count."""

    asked: ClassVar[list[str]] = []

    async def rate(self, request: RateOf) -> Decimal:
        self.asked.append(request.currency)
        return Decimal("1.07")


class Plan(Reply, frozen=True):
    """What is done at a stop."""

    number: int


class Journey(Task):
    """Goes from stop to stop."""

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Plan:  # noqa: ARG002 - it has one kind of reply
        return Plan(number=sum(map(ord, prompt.user)))

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> Plan:  # noqa: ARG002
        assert isinstance(right, Plan)
        return Plan(number=right.number + rng.randrange(1, 100))


class TravelConductor(Conductor[Journey, "Travel"]):
    """At every stop a rate, two drafts without a vote, and a choice; each depends on what was decided before."""

    asks = (RateOf,)
    breaks_at: ClassVar[str] = ""
    """Where it raises."""
    remark: ClassVar[dict[str, str]] = {}
    """What is added to the question at a place."""

    async def conduct(self, work: Work[Journey, Travel]) -> object:
        number = 1
        for stop in range(STOPS):
            rate = await work.once(
                self._come_to(f"{stop}/rate"), RateOf(currency="USD" + self.remark.get(f"{stop}/rate", ""))
            )
            drafts = await work.sample(self._come_to(f"{stop}/draft"), self._prompt(f"{stop}/draft", number), Plan, n=2)
            number += sum(draft.number for draft in drafts)
            asked = self._prompt(f"{stop}/choice", number)
            choice = await work.elect(self._come_to(f"{stop}/choice"), asked, Plan, rule=FirstToAheadBy(2))
            number += int(choice.require().number * rate)
            work.progress(stop + 1, STOPS)
        self._come_to("the end")
        return number

    def _prompt(self, at: str, number: int) -> Prompt:
        return Prompt(user=f"At {at} with {number}." + self.remark.get(at, ""))

    def _come_to(self, at: str) -> str:
        if at == self.breaks_at:
            raise RuntimeError(f"a flat tyre at {at}")
        return at


class Travel(Strategy):
    """A strategy that is no chain: it is run again from its start."""

    solves, conductor = (Journey,), TravelConductor

    def deployments(self) -> list[Deployment]:
        return [*super().deployments(), Deployment(role=RateDesk)]


class Seller:
    """What was bought since it was last asked."""

    def __init__(self, purchases: Path) -> None:
        self._purchases = purchases
        self._seen = 0

    def sold(self) -> list[str]:
        """The calls that were sent, as path, fork and seq."""
        lines = self._purchases.read_text(encoding="utf-8").splitlines() if self._purchases.exists() else []
        new, self._seen = lines[self._seen :], len(lines)
        return [line.removeprefix("sent ") for line in new if line.startswith("sent ")]


@pytest.fixture(autouse=True)
def seller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Seller:
    """The seller of all that this test's runs buy; a conductor and a messenger without a past."""
    monkeypatch.setenv(Purchases.VARIABLE, str(tmp_path / "purchases"))
    monkeypatch.setattr(TravelConductor, "breaks_at", "")
    monkeypatch.setattr(TravelConductor, "remark", {})
    monkeypatch.setattr(RateDesk, "asked", [])
    return Seller(tmp_path / "purchases")


def travel(**options: Any) -> Result:
    return run_sync(Journey(), **{"models": MODEL, "strategy": Travel(), "run_id": "r", **options})


def break_at(place: str) -> None:
    """A run that goes as far as this."""
    TravelConductor.breaks_at = place
    with pytest.raises(RoleFailed, match="a flat tyre"):
        travel()
    TravelConductor.breaks_at = ""


def paths_of(sold: list[str]) -> set[str]:
    return {line.partition(" ")[0] for line in sold}


@pytest.mark.slow
@pytest.mark.parametrize("place", [*PLACES[1:], "the end"])
def test_a_run_that_is_taken_up_buys_and_asks_nothing_that_it_has(place: str, seller: Seller) -> None:
    undisturbed = travel(runs_dir=None)
    wanted = seller.sold()
    RateDesk.asked.clear()
    break_at(place)
    first, asked_before = seller.sold(), len(RateDesk.asked)
    assert problems() == []
    result = go_on()
    second = seller.sold()
    before = PLACES[: PLACES.index(place)] if place in PLACES else PLACES
    assert paths_of(first) == {f"0/{at}" for at in before if not at.endswith("rate")}
    assert asked_before == sum(at.endswith("rate") for at in before)
    assert paths_of(first).isdisjoint(paths_of(second))
    assert sorted(first + second) == sorted(wanted)
    assert RateDesk.asked == ["USD"] * STOPS
    assert (result.value, digests(result.account)) == (undisturbed.value, digests(undisturbed.account))
    assert (result.calls, result.account.steps, problems()) == (len(wanted), STOPS, [])


@pytest.mark.slow
def test_a_run_that_breaks_at_every_place_in_turn_is_the_same_run(seller: Seller) -> None:
    undisturbed = travel(runs_dir=None)
    wanted = seller.sold()
    RateDesk.asked.clear()
    for place in PLACES:
        break_at(place)
        assert JOURNAL.exists() == (place != PLACES[0]), "before the first place there is nothing to keep"
    result = travel()
    assert sorted(seller.sold()) == sorted(wanted)
    assert (len(RateDesk.asked), result.value) == (STOPS, undisturbed.value)
    assert (digests(result.account), problems()) == (digests(undisturbed.account), [])


@pytest.mark.slow
def test_samples_of_an_election_that_was_broken_off_are_not_bought_again(seller: Seller) -> None:
    undisturbed = travel(runs_dir=None)
    wanted = seller.sold()
    sold: list[str] = []
    for most in range(3, len(wanted), 3):
        result = go_on(max_calls=most) if JOURNAL.exists() else travel(max_calls=most)
        sold += seller.sold()
        assert (result.outcome, problems()) == ("stopped", [])
    result = go_on(max_calls=None)
    sold += seller.sold()
    assert len(sold) == len(set(sold)) == result.calls
    assert set(sold) >= set(wanted)
    assert (result.value, digests(result.account), problems()) == (undisturbed.value, digests(undisturbed.account), [])


def test_paths_are_in_order_and_answers_are_among_the_decisions() -> None:
    result = travel()
    found = {each.path: each.value for each in result.decisions()}
    assert sorted(found) == list(found) == sorted(f"0/{at}" for at in PLACES)
    assert found["0/0/rate"] == "1.07"
    outcomes = {path.rpartition("/")[2]: row.outcome for path, row in decisions().items()}
    assert outcomes == {"rate": "once", "draft": "sampled", "choice": "decided"}


@pytest.mark.slow
@pytest.mark.parametrize("place", ["0/rate", "1/draft", "2/choice"])
def test_another_question_at_a_decided_place_is_refused(place: str, seller: Seller) -> None:
    break_at("3/rate")
    seller.sold()
    RateDesk.asked.clear()
    decided = decisions()
    TravelConductor.remark = {place: " Please."}
    for going_on in (travel, go_on):
        with pytest.raises(JournalMismatch) as raised:
            going_on()
        assert raised.value.args[0] == "question"
        assert f"0/{place}" in sentence(raised.value)
        assert "--accept-change question" in sentence(raised.value)
    assert (seller.sold(), RateDesk.asked) == ([], [])
    assert (decisions(), problems()) == (decided, [])


@pytest.mark.parametrize("place", ["0/rate", "1/draft", "2/choice"])
def test_another_question_at_a_decided_place_may_be_accepted_and_is_answered_as_before(
    place: str, seller: Seller
) -> None:
    undisturbed = travel(runs_dir=None)
    break_at("3/rate")
    seller.sold()
    RateDesk.asked.clear()
    TravelConductor.remark = {place: " Please."}
    result = go_on(accept_changes=["question"])
    assert (result.value, digests(result.account)) == (undisturbed.value, digests(undisturbed.account))
    assert paths_of(seller.sold()) == {"0/3/draft", "0/3/choice"}
    assert len(RateDesk.asked) == 1
    with Reader(JOURNAL) as reader:
        assert [change[1] for change in reader.changes()] == ["question"]
        assert reader.verify() == []


class Stops(Task):
    """Asks at places with numbers."""

    places: tuple[tuple[str, int], ...]
    call: Literal["elect", "sample", "once", "propose"] = "elect"

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Plan:  # noqa: ARG002
        return Plan(number=int(prompt.user))


class StopsConductor(Conductor[Stops, "AtStops"]):
    asks = (RateOf,)

    async def conduct(self, work: Work[Stops, AtStops]) -> object:
        for at, number in work.task.places:
            asked = Prompt(user=str(number))
            match work.task.call:
                case "elect":
                    await work.elect(at, asked, Plan)
                case "sample":
                    await work.sample(at, asked, Plan)
                case "once":
                    await work.once(at, RateOf(currency=str(number)))
                case "propose":
                    await work.propose(at, asked, Plan, n=2, at_least=2, max_draws=4, sampling=work.task.sampling)
        return len(work.role.questions)


class AtStops(Strategy):
    solves, conductor = (Stops,), StopsConductor

    def deployments(self) -> list[Deployment]:
        return [*super().deployments(), Deployment(role=RateDesk)]


@pytest.mark.parametrize("call", ["elect", "sample", "once", "propose"])
def test_a_path_has_one_question(call: Literal["elect", "sample", "once", "propose"]) -> None:
    options: dict[str, Any] = {"models": "sim:perfect", "strategy": AtStops(), "runs_dir": None}
    with pytest.raises(
        InvalidDefinition, match=r"^the path 'stop' names two questions; make it unique, such as stop/3$"
    ):
        run_sync(Stops(places=(("stop", 1), ("other", 1), ("stop", 2)), call=call), **options)
    assert run_sync(Stops(places=(("stop", 1), ("stop", 1)), call=call), **options).outcome == "completed"


class Choose(DurableRequest[int], frozen=True, kw_only=True):
    number: int


class Deputy(DurableRole):
    """Holds an election, which it forgets to name after its request."""

    async def choose(self, request: Choose) -> int:
        decision = await self.work_on(request).elect("chosen", Prompt(user=str(request.number)), Plan)
        return int(decision.require().number)


class DeputyConductor(Conductor[Stops, "ByDeputy"]):
    asks = (Choose,)

    async def conduct(self, work: Work[Stops, ByDeputy]) -> object:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(work.ask(Choose(at=at, number=number))) for at, number in work.task.places]
        return [each.result() for each in asked]


class ByDeputy(Strategy):
    solves, conductor = (Stops,), DeputyConductor

    def deployments(self) -> list[Deployment]:
        return [*super().deployments(), Deployment(role=Deputy)]


@pytest.mark.parametrize("runtime", ["local", "linked"])
def test_a_durable_role_has_no_place_beside_that_of_its_request(runtime: Literal["local", "linked"]) -> None:
    options: dict[str, Any] = {"models": "sim:perfect", "strategy": ByDeputy(), "runs_dir": None, "runtime": runtime}
    with pytest.raises(
        RoleFailed, match="the path 'chosen' does not lie below that of its request, 'a'; name it a/chosen"
    ):
        run_sync(Stops(places=(("a", 1), ("b", 2))), **options)


class BackwardsConductor(Conductor[Stops, "Backwards"]):
    async def conduct(self, work: Work[Stops, Backwards]) -> object:
        work.progress(0, work.task.places[0][1])
        return 0


class Backwards(Strategy):
    solves, conductor = (Stops,), BackwardsConductor


def test_progress_that_no_journal_could_hold_is_refused_where_it_is_reported() -> None:
    with pytest.raises(InvalidUsage, match=r"progress\(\) takes whole numbers of steps from 0 on, not -1"):
        run_sync(Stops(places=(("stop", -1),)), models="sim:perfect", strategy=Backwards(), runs_dir=None)


def test_the_memory_of_paths_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "PLACES_CHECKED", 3)
    places = tuple((f"stop/{number}", number) for number in range(9))
    assert run_sync(Stops(places=places), models="sim:perfect", strategy=AtStops(), runs_dir=None).value == 3


@pytest.mark.slow
def test_another_question_at_a_place_that_is_not_decided_is_no_change() -> None:
    break_at("2/choice")
    TravelConductor.remark = {"2/choice": " Please."}
    result = go_on()
    assert (result.outcome, problems()) == ("completed", [])


class Given(Request[Any], frozen=True):
    """Ask for what the desk holds."""


class Shelf(Role):
    """Answers with a set, which JSON lacks."""

    async def given(self, request: Given) -> Any:  # noqa: ARG002 - it has one answer
        return {"held": {1}}


class Fetching(Conductor[Journey, "Fetch"]):
    """Asks for it."""

    asks = (Given,)

    async def conduct(self, work: Work[Journey, Fetch]) -> object:
        return str(await work.once("held", Given()))


class Fetch(Strategy):
    """One question to a shelf."""

    solves, conductor = (Journey,), Fetching

    def deployments(self) -> list[Deployment]:
        return [*super().deployments(), Deployment(role=Shelf)]


def test_an_answer_that_the_journal_cannot_give_back_is_refused_by_name_and_place(tmp_path: Path) -> None:
    said = r"the answer to Given at 0/held back: answer\['held'\] is \{1\}, and would come back as \[1\]"
    with pytest.raises(MicroagentsError, match=said):
        run_sync(Journey(), models=MODEL, strategy=Fetch(), runs_dir=tmp_path)
