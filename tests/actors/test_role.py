"""The programming model: what is wrong with a class shows when it is created, what is wrong with a house before anything is asked."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar, Generic

import pytest
from msgspec import Struct
from pydantic import ValidationError

from microagents import (
    ChainTask,
    Conductor,
    Context,
    Deployment,
    MicroagentsError,
    Prompt,
    Request,
    Role,
    Strategy,
    Task,
    Work,
)
from microagents.actors.registry import RUNTIMES, STRATEGIES
from microagents.actors.role import asked_by, check_graph
from microagents.actors.sent_messages import sent_by
from microagents.base.errors import InvalidDefinition, NoHandler
from microagents.base.messages import Message, Stream, reply_type
from microagents.roles.executor import Executor
from microagents.roles.keeper import Keeper
from microagents.runs.driver.execute import runtime_of
from microagents.systems import Maker
from microagents.task import A, S, chain_types
from microagents.tasks.drift import Drift, Onward, Place

every_runtime = pytest.mark.parametrize("runtime", ["local", "linked", "ray"])


class Ping(Request[int], frozen=True):
    """A message with a reply."""

    number: int = 0


class Pong(Request[str], frozen=True):
    """Another."""


class Note(Request[None], frozen=True):
    """One that is answered with nothing."""


class Count(Stream[int], frozen=True):
    """A message with many replies."""


class Bare(Request, frozen=True):  # type: ignore[type-arg]
    """A message that names no reply."""


class Astray(Request["Nowhere"], frozen=True):  # type: ignore[name-defined]
    """A message whose reply nobody defined."""


class Later(Request["Found"], frozen=True):
    """A message whose reply is defined below it."""


class Found(Struct, frozen=True):
    """That reply."""


# -- the table of handlers ---------------------------------------------------------------------------------------------


def test_a_handler_is_found_by_the_annotation_of_its_one_argument() -> None:
    class All(Role):
        async def ping(self, request: Ping) -> int:
            return request.number

        async def note(self, _: Note) -> None: ...

        async def count(self, _: Count) -> AsyncIterator[int]:
            yield 1

        async def later(self, _: Later) -> Found:
            return Found()

    assert All.handlers == {Ping: "ping", Note: "note", Count: "count", Later: "later"}
    assert [reply_type(message) for message in (Ping, Note, Count, Later)] == [int, type(None), int, Found]


IS_NO_MESSAGE = (
    r"Wrong\.ping takes one argument that is not a message; annotate `request` with a Request or a Stream, or begin"
)


@pytest.mark.parametrize(
    ("handlers", "sentence"),
    [
        ("async def ping(self, request: int) -> int: ...", IS_NO_MESSAGE),
        ("async def ping(self, request): ...", IS_NO_MESSAGE),
        ("async def ping(self, _: Ping) -> str: ...", r"Wrong\.ping returns str, but Ping is answered with int"),
        ("async def note(self, _: Note) -> int: ...", r"Wrong\.note returns int, but Note is answered with None"),
        (
            "async def ping(self, _: Ping) -> AsyncIterator[int]: yield 1",
            r"Wrong\.ping must return, and not `yield`: Ping is answered with int",
        ),
        (
            "async def count(self, _: Count) -> int: ...",
            r"Wrong\.count must be an `async def` with `yield`: Count is answered with int, item by item",
        ),
        (
            "async def bare(self, _: Bare) -> int: ...",
            r"Bare does not name its reply; write class Bare\(Request\[ReplyType\]\)",
        ),
        (
            "async def one(self, _: Ping) -> int: ...\n    async def two(self, _: Ping) -> int: ...",
            r"Wrong handles Ping twice: in one and in two",
        ),
        (
            "async def ping(self, _: Nowhere) -> int: ...",
            r"Wrong\.ping: name 'Nowhere' is not defined; define messages and replies at module level",
        ),
        (
            "async def astray(self, _: Astray) -> int: ...",
            r"'Nowhere' is not defined; define messages and replies at module level",
        ),
        (
            "def ping(self, _: Ping) -> int: ...\nclass Wrong(Wrong):\n    def ping(self, request): ...",
            r"Wrong\.ping overrides a handler; annotate its argument with the message, as there",
        ),
    ],
)
def test_what_is_wrong_with_a_handler_is_said_when_the_class_is_created(handlers: str, sentence: str) -> None:
    with pytest.raises(InvalidDefinition, match=sentence):
        exec(f"class Wrong(Role):\n    {handlers}", dict(globals()))


def test_a_wrong_definition_is_a_type_error_and_one_of_ours() -> None:
    assert issubclass(InvalidDefinition, TypeError)
    assert issubclass(InvalidDefinition, MicroagentsError)


# -- who handles what --------------------------------------------------------------------------------------------------


class Pinged(Role):
    """Handles one message, asks nobody."""

    async def ping(self, request: Ping) -> int:
        return request.number


class AlsoPinged(Role):
    """Handles the same message."""

    async def ping(self, request: Ping) -> int:
        return request.number


class Asks(Role):
    """Asks for two messages."""

    asks: ClassVar[tuple[type[Message], ...]] = (Ping, Pong)

    async def note(self, _: Note) -> None: ...


class AsksMore(Asks):
    """Asks for one of them again and for a third."""

    asks: ClassVar[tuple[type[Message], ...]] = (Count, Ping)


class Back(Role):
    """Leads back to whoever handles a note."""

    asks: ClassVar[tuple[type[Message], ...]] = (Note,)

    async def pong(self, _: Pong) -> str:
        return ""


def deployed(*roles: type[Role]) -> list[Deployment]:
    return [Deployment(role=role) for role in roles]


@pytest.mark.slow
def test_every_message_has_the_deployment_that_handles_it() -> None:
    deployments = deployed(Asks, Pinged, Back)
    assert check_graph(deployments) == {Note: deployments[0], Ping: deployments[1], Pong: deployments[2]}


@pytest.mark.parametrize("runtime", RUNTIMES.shipped)
@pytest.mark.parametrize("asker", [Asks, AsksMore])
def test_a_message_without_a_handler_is_named_before_anything_is_started(runtime: str, asker: type[Role]) -> None:
    sentence = rf"{asker.__name__} asks for \S+:Pong, which no deployed role handles; deployed are {asker.__name__}, Pinged; add a"
    with pytest.raises(NoHandler, match=sentence):
        runtime_of(runtime, a_context(), deployed(asker, Pinged))


here = sys.modules[__name__]


class Forgetful(Asks):
    """Sends a message that it does not list."""

    async def pong(self, _: Pong) -> str:
        await self.ask(Ping())
        self.tell(here.Note())
        return ""


def test_a_message_that_the_code_of_a_role_sends_unlisted_is_named_before_anything_is_started() -> None:
    sentence = (
        r"Forgetful\.pong \(test_role\.py:\d+\) sends Note, which Forgetful does not list; add it to Forgetful\.asks"
    )
    with pytest.raises(NoHandler, match=sentence):
        check_graph(deployed(Forgetful, Pinged))


REQUIRED: dict[str, dict[str, Any]] = {"cascade": {"strong": "sim:perfect"}}
"""Options that a strategy cannot do without."""


@pytest.mark.parametrize("name", STRATEGIES.shipped)
def test_shipped_roles_list_what_they_send(name: str) -> None:
    strategy = STRATEGIES.find(name, Strategy)(**REQUIRED.get(name, {}))
    for role in (strategy.conductor, *(each.role for each in strategy.deployments()), Keeper, Executor):
        may_ask = {message for base in role.__mro__ for message in getattr(base, "may_ask", ())}
        assert {*sent_by(role)} <= {*asked_by(role), *may_ask}


def test_two_roles_with_one_message_are_refused() -> None:
    with pytest.raises(InvalidDefinition, match="Pinged and AlsoPinged both handle Ping; deploy one of them"):
        check_graph(deployed(Pinged, AlsoPinged))


def test_a_role_deployed_twice_is_refused() -> None:
    with pytest.raises(InvalidDefinition, match="both handle Ping"):
        check_graph(deployed(Pinged, Pinged))


def test_two_roles_of_one_name_are_refused() -> None:
    twin = type("Pinged", (Back,), {"asks": (Ping,)})
    with pytest.raises(InvalidDefinition, match="Pinged"):
        check_graph(deployed(Pinged, twin, Asks))


class BoundedToItself(Role):
    """Asks for what it handles."""

    asks = (Ping,)
    concurrency = 1

    async def ping(self, request: Ping) -> int:
        return request.number


class BoundedInARing(Role):
    """Asks somebody whose asks lead back to it."""

    asks = (Pong,)
    concurrency: ClassVar[int | None] = 4

    async def note(self, _: Note) -> None: ...


@pytest.mark.parametrize("roles", [(BoundedToItself,), (BoundedInARing, Back), (Back, BoundedInARing)])
def test_bounded_concurrency_that_leads_back_to_itself_is_refused(roles: Sequence[type[Role]]) -> None:
    with pytest.raises(
        InvalidDefinition, match=r"Bounded\w+ bounds its concurrency to \d, but its own asks lead back .* set conc"
    ):
        check_graph(deployed(*roles))


@pytest.mark.parametrize("replicas", [0, -1])
def test_a_role_has_at_least_one_replica(replicas: int) -> None:
    with pytest.raises(ValidationError):
        Deployment(role=Pinged, num_replicas=replicas)


# -- what reaches a role -----------------------------------------------------------------------------------------------


class Tell(Request[dict[str, Any]], frozen=True):
    """Ask a role what it was built from."""


class Telling(Role):
    """Says so."""

    async def tell_all(self, _: Tell) -> dict[str, Any]:
        context, strategy = self.context, self.context.strategy
        assert isinstance(strategy, Choosing)
        return {
            "run_id": context.run_id,
            "seed": context.seed,
            "lengths": [task.length for task in context.tasks if isinstance(task, Drift)],
            "k": strategy.k,
            "pools": [list(context.pool(role)) for role in ("Solver", "solver", "composer")],
            "concurrency": context.settings["concurrency"],
            "options": dict(context.options),
        }


class ChoosingConductor(Conductor[Drift, "Choosing"]):
    """Shows what it was given."""

    asks = (Tell,)

    async def conduct(self, work: Work[Drift, Choosing]) -> object:
        told = await self.ask(Tell())
        own = {
            "length": work.task.length,
            "k": work.strategy.k,
            "input": work.input,
            "options": dict(self.context.options),
        }
        return {"told": told["options"], "own": own}


class Choosing(Strategy):
    """A strategy with an option of its own."""

    solves = (Drift,)
    conductor = ChoosingConductor
    k: int = 3
    colour: str = "red"

    def deployments(self) -> list[Deployment]:
        return [*super().deployments(), Deployment(role=Telling, options={"colour": self.colour})]


def a_context(strategy: Strategy | None = None) -> Context:
    return Context(
        run_id="a-run",
        seed=17,
        tasks=[Drift(length=5), Drift(length=6)],
        strategy=strategy or Choosing(k=4),
        models={"": ("sim:perfect", "sim:o3-mini"), "composer": ("sim:gpt-4.1-nano",)},
        settings={"concurrency": 9},
    )


class Named(Request[str], frozen=True):
    """Ask a replica what it is called."""


class Naming(Role):
    """Says so."""

    async def named(self, _: Named) -> str:
        return self.context.name


@every_runtime
async def test_every_replica_of_a_role_has_a_name_of_its_own(runtime: str) -> None:
    async with runtime_of(runtime, a_context(), [Deployment(role=Naming, num_replicas=3)]) as roles:
        assert sorted([await roles.messenger.ask(Named()) for _ in range(3)]) == ["Naming/0", "Naming/1", "Naming/2"]


@pytest.mark.parametrize("given", [{"k": 0}, {"kk": 3}, {"rule": "plurality"}])
def test_an_option_that_a_strategy_does_not_take_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Maker(**given)


# -- tasks -------------------------------------------------------------------------------------------------------------


def test_a_field_that_hides_a_method_is_refused_when_the_class_is_created() -> None:
    with pytest.raises(InvalidDefinition, match=r"rename the field .*Wrong\.steps: it would hide the method steps\(\)"):

        class Wrong(ChainTask[Place, Onward]):
            steps: int = 3  # type: ignore[assignment]


def test_a_field_that_hides_a_method_of_a_users_own_base_is_refused() -> None:
    class Base(Task):
        def size(self) -> int:
            return 1

    with pytest.raises(InvalidDefinition, match=r"Wrong\.size: it would hide the method size\(\)"):

        class Wrong(Base):
            size: int = 3  # type: ignore[assignment]


@pytest.mark.filterwarnings("ignore:Field name .format. in:UserWarning")
def test_a_field_that_hides_a_setting_of_the_class_is_refused() -> None:
    with pytest.raises(InvalidDefinition, match=r"write format: ClassVar\[\.\.\.\] in .*Wrong"):

        class Wrong(ChainTask[Place, Onward]):
            format: str = "csv"  # type: ignore[misc,assignment]


def test_a_task_may_set_how_it_is_sampled_and_override_its_methods() -> None:
    class Own(Drift):
        kinds: ClassVar[int] = 2
        format = "json"

        def steps(self) -> int:
            return 1

    assert (Own(length=4).steps(), Own.format, Own.kinds) == (1, "json", 2)


def test_an_option_that_a_task_does_not_have_is_refused_and_a_task_does_not_change() -> None:
    with pytest.raises(ValidationError):
        Drift(lenght=3)  # type: ignore[call-arg]
    with pytest.raises(ValidationError):
        Drift(length=3).length = 4


class HalfNamed(ChainTask[Place, A], Generic[A]):
    """One that names the state only."""


class Same(ChainTask[S, A], Generic[S, A]):
    """One that names nothing."""


class Nameless(ChainTask):
    """Named nowhere."""


class StillNameless(Same):
    """Named nowhere, with a base between."""


@pytest.mark.parametrize("task", [Nameless, StillNameless, Same, HalfNamed])
def test_a_chain_that_names_no_types_is_told_how(task: type[ChainTask[Any, Any]]) -> None:
    with pytest.raises(
        InvalidDefinition, match=rf"write class {task.__name__}\(ChainTask\[.*{task.__name__} names no types"
    ):
        chain_types(task)


def test_a_chain_calls_a_reply_right_that_casts_the_oracles_vote() -> None:
    assert Drift().correct(Place(number=2), Onward(number=39)) is True
    assert Drift().correct(Place(number=2), Onward(number=40)) is False
    assert Blind().correct(Place(), Onward(number=1)) is None


class Blind(ChainTask[Place, Onward]):
    """A chain without an oracle."""

    def prompt(self, state: Place) -> Prompt:
        return Prompt(user=f"{state.number}")
