"""Pairs of strategies: the first makes a simpler problem of a problem, and the second solves it (Atom of Thoughts, section 3.2).

The class of a pair is made when its name is used: ``aot+recursive`` is an attribute of this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple

from msgspec import Struct, structs
from pydantic import ValidationError, create_model, model_validator

from microagents.actors.registry import STRATEGIES
from microagents.actors.role import Context, Deployment, Messenger, Role, Strategy, asked_by
from microagents.base.docstrings import described_fields
from microagents.base.errors import InvalidUsage, refusal
from microagents.elections.rules import Rule
from microagents.replies.chat import Prompt, Reply
from microagents.systems.questions.notes import ProblemNotes, concluded_at
from microagents.systems.questions.problem import Problem, restated, text_of
from microagents.systems.questions.problem_conductor import ProblemMaker
from microagents.systems.questions.tree import ROOT, ProblemNode
from microagents.task import Task
from microagents.work.conductor import Conductor
from microagents.work.durable import DurableRole, Work
from microagents.work.notes import Note, Records

BEFORE = "before"
"""Place of the first strategy's work."""
MADE = "made"
"""Place of the problem that it made."""


class _PartOfWork(Work[Problem[Any], Any]):
    """Work of one strategy of a pair, with the problem that it solves. The whole reports progress."""

    def __init__(self, whole: Work[Any, Any], role: DurableRole, task: Problem[Any]) -> None:
        super().__init__(role, whole.input, recalls=False, checkpoint=whole.checkpoint)
        self._whole = whole
        self._task = task

    @property
    def task(self) -> Problem[Any]:
        """Problem."""
        return self._task

    def progress(self, done: int, total: int | None = None) -> None:
        """Report the number of done steps as the pair's own."""
        self._whole.progress(done, total)


class PairNotes(Struct, kw_only=True):
    """Work of both strategies."""

    problem: str
    made: str | None = None
    """The problem that the first strategy made; None before."""

    def drawn(self, notes: Sequence[Note], records: Records) -> ProblemNode:
        """Return the work of both, side by side below the problem."""
        noted = {each.root.at: each for each in notes if isinstance(each, ProblemNotes)}
        children = [noted[BEFORE].drawn(notes, records)] if BEFORE in noted else []
        final = concluded_at(records, ROOT)
        if ROOT in noted:
            children.append(noted[ROOT].drawn(notes, records))
        elif self.made is not None:
            children.append(ProblemNode(at=ROOT, problem=self.made, answer=final))
        below = tuple([_deeper(each) for each in children])
        return ProblemNode(at=ROOT, problem=self.problem, answer=final, children=below)


class PairConductor(Conductor[Problem[Any], Any]):
    """Makes a problem as the first strategy does, then does what the second one's conductor does. A pair's own class is both."""

    def __init__(self, context: Context, messenger: Messenger) -> None:
        pair = context.strategy
        assert isinstance(pair, Pair)
        first, second = pair.parts
        super().__init__(structs.replace(context, strategy=second), messenger)
        maker = first.conductor(structs.replace(context, strategy=first), messenger)
        assert isinstance(maker, ProblemMaker)
        self._first = maker

    async def start(self) -> None:
        """Prepare both parts."""
        await super().start()
        await self._first.start()

    async def conduct(self, work: Work[Problem[Any], Any]) -> object:
        """Make the problem, record it, and solve it."""
        notes = PairNotes(problem=text_of(work.task))
        work.note(notes)
        question = await self._first.make_problem(_PartOfWork(work, self._first, work.task), BEFORE)
        notes.made = question
        if await work.recorded(MADE) is None:
            await work.record_answer(MADE, question)
        task = restated(work.task, question)
        return await super().conduct(_PartOfWork(work, self, task))


class PairMember(NamedTuple):
    """One strategy of a pair."""

    prefix: str
    kind: type[Strategy]

    @property
    def own(self) -> list[str]:
        """Names of its options, except the ones that all strategies have: these are options of the pair."""
        return [name for name in self.kind.model_fields if name not in Strategy.model_fields]

    def full(self, name: str) -> str:
        """Return the name of an option in the pair."""
        if name in self.own:
            return f"{self.prefix}.{name}"
        return name


class Pair(Strategy):
    """Two strategies: the first makes a simpler problem, and the second solves it. Options have the name of their strategy before them."""

    solves = (Problem,)
    draws_solution = True
    of: ClassVar[tuple[PairMember, ...]] = ()

    @classmethod
    def takes(cls, name: str) -> bool:
        """Whether an option has this name, with the name of its strategy or without it."""
        return name in cls.model_fields or any(name in part.own for part in cls.of)

    @model_validator(mode="before")
    @classmethod
    def _of_parts(cls, given: object) -> object:
        """Return the options by their full names, checked by their strategies."""
        if not isinstance(given, Mapping):
            return given
        options: dict[str, Any] = {}
        for name, value in given.items():
            options[cls._full_name(str(name))] = value
        for part in cls.of:
            own = {name: options[full] for name in part.kind.model_fields if (full := part.full(name)) in options}
            built = _built(part, own).model_dump()
            options.update({part.full(name): value for name, value in built.items()})
        return options

    @classmethod
    def _full_name(cls, name: str) -> str:
        having = [part.full(name) for part in cls.of if name in part.own]
        if len(having) > 1:
            raise ValueError(f"{name} is an option of both strategies; write {' or '.join(having)}")
        if having:
            return having[0]
        return name

    @cached_property
    def parts(self) -> tuple[Strategy, Strategy]:
        """Both strategies, with their options."""
        first, second = (
            part.kind(**{name: getattr(self, part.full(name)) for name in part.kind.model_fields}) for part in self.of
        )
        return first, second

    @property
    def passes_undecided(self) -> bool:
        """As in the second strategy."""
        return self.parts[1].passes_undecided

    @property
    def caution(self) -> str | None:
        """A warning about the options of either."""
        return self.parts[0].caution or self.parts[1].caution

    @property
    def named_models(self) -> tuple[str, ...]:
        """Models that the options of either name."""
        return tuple(dict.fromkeys([*self.parts[0].named_models, *self.parts[1].named_models]))

    @cached_property
    def default_rule(self) -> Rule:
        """Rule of the second strategy."""
        return self.parts[1].default_rule

    def check_models(self, pool: Sequence[str]) -> None:
        """Refuse a pool that either cannot work with."""
        for part in self.parts:
            part.check_models(pool)

    def trial_questions(self, task: Task) -> list[tuple[Prompt, type[Reply]]]:
        """Trial questions of both."""
        return [question for part in self.parts for question in part.trial_questions(task)]

    def deployments(self) -> list[Deployment]:
        """Return the roles of both."""
        by_role: dict[type[Role], Deployment] = {}
        for part in self.parts:
            for each in part.deployments():
                by_role.setdefault(each.role, each)
        return [*by_role.values()]


def pair_of(name: str) -> type[Pair]:
    """Return the class of a pair, by the names of its strategies with a plus between them."""
    first, _, second = name.partition("+")
    if not (first and second):
        raise InvalidUsage(f"{name!r} needs the name of a strategy on both sides of the plus, such as aot+recursive")
    return _pair(
        name, *(PairMember(each.rpartition(":")[2], STRATEGIES.find(each, Strategy)) for each in (first, second))
    )


@lru_cache(maxsize=256)
def _pair(name: str, first: PairMember, second: PairMember) -> type[Pair]:
    if not issubclass(first.kind.conductor, ProblemMaker):
        raise InvalidUsage(f"{first.prefix} makes no problem that {second.prefix} could solve; aot is one that does")
    if Problem not in second.kind.solves:
        raise InvalidUsage(f"{second.prefix} solves no problems, so it cannot solve what {first.prefix} makes")
    if first.prefix == second.prefix:
        raise InvalidUsage(f"{name!r} names one strategy twice; name another one behind the plus")
    fields: dict[str, Any] = {
        part.full(option): (info.annotation, info)
        for part in (first, second)
        for option, info in described_fields(part.kind).items()
        if option in part.own
    }
    made: type[Pair] = create_model(name, __base__=Pair, __module__=__name__, **fields)
    made.__qualname__ = name
    made.__doc__ = f"{first.prefix} makes a simpler problem, which {second.prefix} solves."
    made.of = (first, second)
    made.conductor = _conductor(name, first.kind.conductor, second.kind.conductor)
    made.changes_no_decision = tuple(
        part.full(option) for part in (first, second) for option in part.kind.changes_no_decision
    )
    return made


def _conductor(name: str, first: type[Role], second: type[Role]) -> type[Role]:
    """Return the conductor of a pair. It has the name of the second strategy's, so that ``--deploy`` finds it."""
    namespace = {
        "__module__": __name__,
        "__qualname__": f"{name}.conductor",
        "__doc__": PairConductor.__doc__,
        "asks": asked_by(first),
    }
    return type(second.__name__, (PairConductor, second), namespace)


def _built(part: PairMember, options: Mapping[str, Any]) -> Strategy:
    try:
        return part.kind(**options)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        said = first["msg"].removeprefix("Value error, ")
        if not first["loc"] or first["type"] == "value_error":
            raise ValueError(f"{part.prefix}: {said}") from None
        raise ValueError(refusal(f"{part.prefix}.{first['loc'][0]}", said, first["input"])) from None


def _deeper(node: ProblemNode) -> ProblemNode:
    children = tuple(_deeper(child) for child in node.children)
    return structs.replace(node, depth=node.depth + 1, children=children)


def __getattr__(name: str) -> type[Pair]:
    if "+" not in name:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return pair_of(name)
