"""Roles that only ask: a system text for each kind of question. The answer is valid replies, or the one that wins a vote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Generic, TypeVar, get_args

from msgspec import Raw, Struct

from microagents.base.messages import reply_type
from microagents.replies.chat import Sampling
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import encode_reply
from microagents.task import Task, prompt_about
from microagents.work.durable import DurableRequest, DurableRole, Work

Q = TypeVar("Q", bound=Struct)
A = TypeVar("A")


class Consult(DurableRequest[tuple[A, ...]], Generic[Q, A], frozen=True, kw_only=True):
    """Put a question to models; the answer is the valid replies in launch order.

    A subclass names the question's data and the class of replies, or `Raw` for answers to the problem as JSON.
    """

    as_json = True
    asked: Q
    """The data of the question."""
    needed: bool = False
    """Whether the place is undecided without a valid reply, so that ``--on-undecided`` is applied to it."""
    samples: int = 1
    """Number of valid replies that is aimed at."""
    at_least: int | None = None
    """Draw all samples at once, and more only if fewer than this are valid; None: draw until ``samples`` are valid."""
    max_draws: int
    """Cap of all samples."""
    sampling: Sampling
    model: str | None = None
    """Spec of the model that is asked; None for the pool of the role."""
    manners: tuple[str, ...] = ("",)
    """What the system text says to each of several authors, such as their personas: one prompt each."""

    def kept(self, replies: Sequence[Any]) -> Sequence[Any]:
        """Return the replies that lead anywhere; by default all."""
        return replies

    def reply_class(self, task: Task) -> type[Reply]:
        """Return the class of its replies."""
        named = named_reply(type(self))
        reply: type[Reply] | None = task.reply_type() if named is Raw else named
        assert reply is not None
        return reply


@lru_cache(maxsize=256)
def named_reply(message: type[Consult[Any, Any]]) -> Any:
    """Return the class of replies that a subclass of `Consult` names."""
    return get_args(reply_type(message))[0]


async def consulted(work: Work, request: Consult[Any, A], system: str, choices: Sequence[str] = ()) -> tuple[A, ...]:
    """Put a question to models.

    Raises:
        Undecided: a needed valid reply is missing.
    """
    reply = request.reply_class(work.task)
    systems = [system.replace("{manner}", manner) for manner in request.manners]
    prompts = [prompt_about(work.task, said, request.asked) for said in systems]
    given: dict[str, Any] = {"n": request.samples, "max_draws": request.max_draws}
    given |= {"sampling": request.sampling, "needed": request.needed}
    if request.at_least is None:
        replies = await work.sample(request.at, prompts, reply, model=request.model, choices=choices, **given)
    else:
        given |= {"keep": request.kept, "at_least": request.at_least}
        replies = await work.propose(request.at, prompts[0], reply, **given)
    kept = request.kept(replies)
    if named_reply(type(request)) is Raw:
        kept = [Raw(encode_reply(each)) for each in kept]
    return tuple(kept)


class AskingRole(DurableRole):
    """A role that only asks. A subclass may handle one of its messages in a method of its own."""

    handles_no_message = ("put",)
    systems: ClassVar[Mapping[type[Consult[Any, Any]], str]] = {}
    """The messages that it handles, each with the system text of its prompts, in which ``{manner}`` is filled in."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.handlers = {**dict.fromkeys(cls.systems, "put"), **cls.handlers}

    def system(self, request: Consult[Any, Any], task: Task) -> str:  # noqa: ARG002 - for subclasses to override
        """Return the system text for a question."""
        return self.systems[type(request)]

    def choices(self, request: Consult[Any, Any]) -> Sequence[str]:  # noqa: ARG002 - as above
        """Return the votes that a reply may cast; none, the default, for any."""
        return ()

    async def put(self, request: Consult[Any, A]) -> tuple[A, ...]:
        """Put a question to models: `consulted` with its system text."""
        work = self.work_on(request)
        return await consulted(work, request, self.system(request, work.task), self.choices(request))
