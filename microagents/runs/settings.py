"""What a run is made of, validated before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from microagents.actors import Strategy
from microagents.errors import InvalidUsage
from microagents.models.model import ModelSpec
from microagents.problems.problem import Problem
from microagents.registry import STRATEGIES, find, unknown
from microagents.task import ChainTask, Task

M = TypeVar("M", bound=BaseModel)
Models = str | Sequence[str] | Mapping[str, Sequence[str]]
RuntimeName = Literal["local", "linked", "ray"]
Durability = Literal["full", "normal"]


class Settings(BaseModel):
    """The settings of a run beside its task and its strategy."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: dict[str, tuple[str, ...]]
    """Pools of model specs by role; ``""`` for every other role."""
    seed: int = 0
    """Seeds the simulated model."""
    runtime: RuntimeName = "local"
    """`ray`: each replica of a role is a Ray actor. `linked` splits the roles over two dispatchers that share no memory."""
    address: str | None = None
    """The Ray cluster's; None: $RAY_ADDRESS, else a Ray of the run's own."""
    insecure: bool = False
    """Use a cluster on other machines although whoever reaches it may run programs there."""
    deploy: dict[str, dict[str, Any]] = {}
    """How roles are deployed, where that is other than their strategy says: `Deployment` options by role."""
    run_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    """The name of the run."""
    known_inputs: bool = False
    """Every step's input is the oracle's; steps run side by side."""
    speculate: bool = True
    """A chain opens its next steps on guesses, before the ones before them are decided."""
    concurrency: Annotated[int, Field(ge=1)] | None = None
    """Calls open at a time over the whole run; None for no bound but the provider's own."""
    max_outage_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 7200.0
    """How long a provider may be out before the run stops."""
    durability: Durability = "full"
    """`full`: what is recorded survives a power cut; `normal`: it survives the process."""
    on_undecided: str = "stop"
    """What is done where an election ends undecided: `stop`, `leader` (its leader is taken, and marked), or another model's spec."""
    max_calls: Annotated[int, Field(ge=1)] | None = None
    """Stop after so many calls; those in flight by then are waited for."""
    max_cost_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Stop once they cost so much; those in flight by then are waited for."""
    max_time_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Stop after so many seconds of this sitting."""

    @field_validator("on_undecided")
    @classmethod
    def _is_known(cls, value: str) -> str:
        if value not in ("stop", "leader"):
            try:
                ModelSpec.parse(value)
            except InvalidUsage as error:
                raise ValueError(f"on_undecided is `stop`, `leader` or a model; {error}") from None
        return value

    @property
    def pools(self) -> dict[str, tuple[str, ...]]:
        """All models that may be asked: the pools by role, and the one for what stays undecided."""
        second = {} if self.on_undecided in ("stop", "leader") else {"undecided": (self.on_undecided,)}
        return {**self.models, **second}


def validated(model: type[M], what: str, given: Mapping[str, Any], *, flag: str = "") -> M:
    """An instance of a pydantic model, or one sentence about the first thing that is wrong.

    Raises:
        InvalidUsage: with the near misses of an unknown name.
    """
    try:
        return model(**given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise InvalidUsage(unknown(f"option of {what} named", name, sorted(model.model_fields))) from None
        if first["type"] == "missing":
            raise InvalidUsage(f"{what} needs {name}; give it with {flag} {name}=VALUE".replace("  ", " ")) from None
        if first["type"] == "value_error":
            raise InvalidUsage(f"{what}: {first['msg'].removeprefix('Value error, ')}") from None
        raise InvalidUsage(f"{what}: {name}={first['input']!r:.100} will not do: {first['msg'][:1].lower()}{first['msg'][1:]}") from None


def model_pools(models: Models, strategies: Sequence[Strategy]) -> dict[str, tuple[str, ...]]:
    """Pools by role from any of the forms that `run` takes.

    Raises:
        InvalidUsage: for a pool without a model, or a role of one of the strategies without a pool.
    """
    pools = _pools(models)
    if not (pools and all(pools.values())):
        raise InvalidUsage(f"{models!r} names no model, or a pool without one")
    if "" not in pools:
        drawing = [name for strategy in strategies for name in strategy.drawing()]
        if missing := [name for name in dict.fromkeys(drawing) if name not in pools]:
            raise InvalidUsage(
                f"there is a model for {', '.join(pools)}, but none for {', '.join(missing)}; name one for all other roles, too: "
                "--model SPEC, or the role '' in a dict"
            )
    return {"": next(iter(pools.values())), **pools}


def _pools(models: Models) -> dict[str, tuple[str, ...]]:
    if isinstance(models, str):
        return {"": (models,)}
    if isinstance(models, Mapping):
        return {role.lower(): tuple([pool] if isinstance(pool, str) else pool) for role, pool in models.items()}
    return {"": tuple(models)}


def strategy_of(strategy: str | Strategy | None, task: Task, given: Mapping[str, Any]) -> Strategy:
    """The strategy, checked against the task; the task's own where none is named.

    Raises:
        InvalidUsage: unknown, wrong options, or not for this kind of task.
    """
    if strategy is None:
        strategy = task.default_strategy
    if isinstance(strategy, str):
        strategy = validated(find("strategy", strategy, STRATEGIES, Strategy), f"strategy {strategy!r}", given, flag="-s")
    elif given:
        strategy = validated(type(strategy), type(strategy).__name__, {**strategy.model_dump(), **given})
    if not isinstance(task, strategy.solves):
        kinds = ", ".join(kind.__name__ for kind in strategy.solves) or "nothing"
        raise InvalidUsage(
            f"{type(strategy).__name__} solves {kinds}; {type(task).__name__} is none of these; its own strategy is {task.default_strategy}"
        )
    _check_whole(task, ChainTask, ("start", "done", "prompt", "advance"), "chain")
    _check_whole(task, Problem, ("statement",), "problem")
    return strategy


def _check_whole(task: Task, base: type[Task], needed: Sequence[str], what: str) -> None:
    if isinstance(task, base) and (missing := [name for name in needed if getattr(type(task), name) is getattr(base, name)]):
        raise InvalidUsage(f"{type(task).__name__} lacks {', '.join(f'{name}()' for name in missing)}, which every {what} needs")


def check_address(address: str | None, runtime: RuntimeName) -> None:
    """Whoever names a cluster wants to use it.

    Raises:
        InvalidUsage: the run would not.
    """
    if address is not None and runtime != "ray":
        raise InvalidUsage(f"the address {address!r} is a Ray cluster's, but the runtime is {runtime!r}; add --runtime ray")


def read_value(text: str) -> str:
    """The value of an option: as it stands, or, behind an @, the text of a file.

    Raises:
        InvalidUsage: when the file cannot be read.
    """
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidUsage(f"{text[1:]!r} cannot be read: {error}") from None
