"""Registries: tasks, strategies, model providers and runtimes by name.

A name is a shipped one, an entry point of an installed package, ``package.module:Class``, ``path/file.py:Class``, or ``path/file.py`` for
a file with one class of the kind. A module is imported only when its class is needed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module, invalidate_caches
from importlib.metadata import entry_points
from importlib.util import find_spec
from inspect import iscoroutinefunction, isfunction
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from msgspec import Struct

from microagents.base.errors import OWN_FAILURES, InvalidDefinition, InvalidUsage
from microagents.base.messages import address_of
from microagents.base.trust import check_import
from microagents.base.user_code import described

C = TypeVar("C")
OBJECT = "object"
"""The provider in specs of models that were given as objects."""


class Registry(Struct, frozen=True, kw_only=True):
    """Named classes of one kind."""

    kind: str
    """The kind, as error messages call it."""
    group: str
    """Entry-point group in which installed packages register classes of this kind."""
    shipped: Mapping[str, str]
    """Addresses (``module:Class``) of the shipped classes, by name; the most important come first."""
    papers: tuple[str, ...] = ()
    """Names of shipped baselines of papers, which lists show behind the others."""

    @property
    def listed(self) -> str:
        """The names, first the ones that are not of papers."""
        own = [name for name in self.addresses if name not in self.papers]
        groups = [", ".join(own), *[f"papers: {', '.join(self.papers)}"] * bool(self.papers)]
        return "; ".join(groups)

    @property
    def addresses(self) -> dict[str, str]:
        """Addresses by name, of shipped classes and of installed packages. A package cannot replace a shipped class."""
        # First for their place at the beginning, last for their addresses.
        return {**self.shipped, **_every_installed().get(self.group, {}), **self.shipped}

    def find(self, name: str, base: type[C]) -> type[C]:
        """Find the class of a name. A ``file.py`` is imported by its stem, with its folder last on the path.

        Raises:
            InvalidUsage: there is none. The message lists similar and known names.
        """
        if name.endswith(".py"):
            return self._only_class(name, base)
        found, module, attribute = self._locate(name)
        if isinstance(found, type) and issubclass(found, base):
            return found
        raise _not_found(module, attribute, base)

    def find_or_function(self, name: str, base: type[C]) -> Any:
        """Find the class or the ``async def`` function of a name."""
        found, module, attribute = self._locate(name)
        if iscoroutinefunction(found) or (isinstance(found, type) and issubclass(found, base)):
            return found
        if isfunction(found):
            raise InvalidUsage(f"{attribute!r} in {module.__name__} is a plain function; make it an `async def`")
        raise _not_found(module, attribute, base)

    def find_function(self, name: str) -> Callable[..., Any]:
        """Find the function of a name, plain or async."""
        found, module, attribute = self._locate(name)
        if not isfunction(found):
            own = [each for each, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
            there = unknown(f"function in {module.__name__} called", attribute, own)
            raise InvalidUsage(f"{self.kind} {name!r} must be a function; {there}")
        return found

    def name_of(self, address: str) -> str:
        """Return the registered name of a class, by its address or `reference_to` it, or else the name of the class itself."""
        where, _, kind = address.rpartition(":")
        place = f"{where.rpartition('/')[2].removesuffix('.py')}:{kind}"
        known = [name for name, each in self.addresses.items() if each in (address, place)]
        return known[0] if known else kind.rpartition(".")[2]

    def _locate(self, name: str) -> tuple[object, ModuleType, str]:
        """Import the module of a name; returns the named object, if it is there, the module, and its name in it."""
        where, colon, attribute = self.addresses.get(name, name).rpartition(":")
        if not colon:
            known = unknown(self.kind, name, list(self.addresses), listed=self.listed)
            file = f"; did you mean the file {name}.py?" if os.path.isfile(f"{name}.py") else ""
            raise InvalidUsage(f"{known}; or name your own as path/file.py:Class or package.module:Class{file}")
        module = self._import(name, where)
        return getattr(module, attribute, None), module, attribute

    def _only_class(self, file: str, base: type[C]) -> type[C]:
        """Import the one class of a file that other code may name: without an underscore in front."""
        found = [each for each in _classes_in(self._import(file, file), base) if not each.__name__.startswith("_")]
        if len(found) == 1:
            return found[0]
        names = f"{len(found)} classes of this kind; name one: {', '.join(f'{file}:{each.__name__}' for each in found)}"
        raise InvalidUsage(f"the {self.kind}'s file {file!r} has {names if found else _none_of(base)}")

    def _import(self, name: str, where: str) -> ModuleType:
        if where.endswith(".py"):
            where = _put_on_path(self.kind, where)
        elif all(address.rpartition(":")[0] != where for address in self.addresses.values()):
            check_import(where, name)
        try:
            return import_module(where)
        except InvalidDefinition as error:
            raise InvalidUsage(f"{self.kind} {name!r}: {error}") from None
        except OWN_FAILURES as error:  # a user's file may raise anything while it is imported
            raise InvalidUsage(f"{self.kind} {name!r} cannot be imported: {described(error)}") from error


TASKS = Registry(
    kind="task",
    group="microagents.tasks",
    shipped={
        "rows": "microagents.tasks.rows:FillTable",
        "agent": "microagents.tasks.agent:Agent",
        "hanoi": "microagents.tasks.hanoi:Hanoi",
        "checkers": "microagents.tasks.checkers:Checkers",
        "desk": "microagents.tasks.desk:Desk",
        "drift": "microagents.tasks.drift:Drift",
        "multiplication": "microagents.tasks.multiplication:Multiplication",
        "plan": "microagents.tasks.goal:Goal",
        "word-problems": "microagents.tasks.word_problems:WordProblem",
        "ask": "microagents.tasks.ask:Ask",
        "gsm8k": "microagents.tasks.reasoning:Gsm8k",
        "multiple-choice": "microagents.tasks.reasoning:MultipleChoice",
        "multi-hop": "microagents.tasks.reasoning:MultiHop",
        "code": "microagents.tasks.code:Code",
        "writing": "microagents.tasks.writing:Writing",
    },
)
STRATEGIES = Registry(
    kind="strategy",
    group="microagents.strategies",
    shipped={
        "maker": "microagents.systems.chains.maker:Maker",
        "lead": "microagents.systems.chains.lead:Lead",
        "cascade": "microagents.systems.chains.cascade:Cascade",
        "recursive": "microagents.systems.questions.recursive:Recursive",
        "aot": "microagents.systems.questions.aot:Aot",
        "seqcv": "microagents.systems.documents.seqcv:SeqCV",
        "swarm": "microagents.systems.swarm.swarm:Swarm",
        "act": "microagents.systems.agents.act:Act",
        "analogical": "microagents.systems.questions.chain_of_thought:Analogical",
        "aot+tree": "microagents.systems.questions.aot:AotTree",
        "chain-of-draft": "microagents.systems.questions.chain_of_thought:ChainOfDraft",
        "cot": "microagents.systems.questions.chain_of_thought:Cot",
        "cot-sc": "microagents.systems.questions.chain_of_thought:CotSC",
        "iterative-restart": "microagents.systems.chains.iterative_restart:IterativeRestart",
        "single-shot": "microagents.systems.chains.single_shot:SingleShot",
        "self-consistency": "microagents.systems.chains.self_consistency:SelfConsistency",
        "tot": "microagents.systems.questions.tree_of_thoughts:TreeOfThoughts",
        "fot": "microagents.systems.questions.tree_of_thoughts:ForestOfThoughts",
        "self-refine": "microagents.systems.questions.chain_of_thought:SelfRefine",
        "sequential": "microagents.systems.documents.subtask_baselines:Sequential",
        "parallel": "microagents.systems.documents.subtask_baselines:Parallel",
    },
    papers=(
        *("analogical", "chain-of-draft", "self-refine", "iterative-restart", "sequential", "parallel", "tot", "fot"),
        *("cot", "cot-sc", "aot+tree"),
    ),
)
MODELS = Registry(
    kind="model provider",
    group="microagents.models",
    shipped={
        "sim": "microagents.models.simulation.simulated:SimulatedModel",
        "openai": "microagents.models.openai:OpenAIModel",
        "openai-responses": "microagents.models.responses:ResponsesModel",
        "openai-decisions": "microagents.models.openai_decisions:OpenAIDecisions",
        "anthropic": "microagents.models.anthropic:AnthropicModel",
        "gemini": "microagents.models.gemini:GeminiModel",
        "scripted": "microagents.models.simulation.scripted:ScriptedModel",
        "tiny": "microagents.models.tiny.trained:TinyModel",
    },
)
TOOLS = Registry(kind="tool", group="microagents.tools", shipped={})
RUNTIMES = Registry(
    kind="runtime",
    group="microagents.runtimes",
    shipped={
        "local": "microagents.runtimes.local:LocalRuntime",
        "linked": "microagents.runtimes.local:LinkedRuntime",
        "ray": "microagents.runtimes.ray.runtime:RayRuntime",
    },
)


def reference_to(named: Any) -> str:
    """Name a class or function so that a registry can find it again: its address, or a file that is in no package."""
    module = sys.modules[named.__module__]
    file = getattr(module, "__file__", None)
    if (
        file is not None
        and named.__module__ != "__main__"
        and "." not in module.__name__
        and not hasattr(module, "__path__")
    ):
        return f"{os.path.realpath(file)}:{named.__qualname__}"
    return address_of(named)


def has_name(source: str) -> bool:
    """Return whether another program may find a source, or the model of a spec."""
    return "<locals>" not in source and not source.startswith(("__main__:", f"{OBJECT}:"))


def can_be_found(reference: str) -> bool:
    """Return whether a registry may find a class or function: one in no function; one of the program itself only if it is there."""
    module, _, name = reference.partition(":")
    return "<locals>" not in reference and (module != "__main__" or hasattr(sys.modules["__main__"], name))


def unknown(kind: str, name: str, known: Sequence[str], *, listed: str = "") -> str:
    """Write the error about an unknown name, with similar names and the known ones, as they are ``listed``."""
    near = get_close_matches(name, known, n=2)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ";"
    return f"there is no {kind} {name!r}{hint} known: {listed or ', '.join(known) or 'none'}"


@lru_cache
def _every_installed() -> dict[str, dict[str, str]]:
    every, found = entry_points(), {}
    for group in every.groups:
        if group.startswith("microagents."):
            found[group] = {each.name: each.value for each in every.select(group=group)}
    return found


def _not_found(module: ModuleType, attribute: str, base: type[C]) -> InvalidUsage:
    own = [each.__name__ for each in _classes_in(module, base)]
    failure = f"is no {base.__name__}" if hasattr(module, attribute) else "is not there"
    return InvalidUsage(f"{attribute!r} {failure} in {module.__name__}; it has {', '.join(own) or _none_of(base)}")


def _none_of(base: type) -> str:
    name = base.__name__
    others = (
        "; a model, tool or strategy in it goes with --model, --tool or --strategy FILE:NAME" if name == "Task" else ""
    )
    return f"no {name}: define one in it, which `microagents init` begins, or name another file{others}"


def _classes_in(module: ModuleType, base: type[C]) -> list[type[C]]:
    found = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, base)]
    return [
        each for each in dict.fromkeys(found) if each.__module__ == module.__name__ and each.__qualname__.isidentifier()
    ]


def _put_on_path(kind: str, where: str) -> str:
    """Make a file importable, behind all others, lest it stands in for a package; returns the name of its module."""
    path = Path(os.path.realpath(where))
    if not os.path.isfile(path):
        moved = "to continue a run whose file has moved, give its first command again, with its --run-id, where the file is now"
        here = moved if Path(where).is_absolute() else f"the folder here is {str(Path.cwd())!r}"
        raise InvalidUsage(f"the {kind}'s file {where!r} is not there; {here}")
    stem, folder = path.stem, str(path.parent)
    if not stem.isidentifier():
        raise InvalidUsage(f"rename {where!r} to letters, digits and underscores: it cannot be imported by its name")
    loaded = sys.modules.get(stem)
    if loaded is None:
        check_import(stem, where)
        if folder not in sys.path:
            sys.path.append(folder)
        invalidate_caches()  # the file may be new
    spec = find_spec(stem) if loaded is None else None
    found = getattr(loaded, "__file__", None) or (spec and spec.origin) or "built in"
    if os.path.realpath(found) != str(path):
        raise InvalidUsage(f"rename {where!r}: it would be imported as {stem!r}, which is already another module")
    return stem
