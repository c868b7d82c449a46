"""Calls of a user's code: a failure is named by class, method, place in the work and line, and a result of another type is refused."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType, NoneType
from typing import Any

from microagents.base.aio import is_cancellation
from microagents.base.errors import OWN_FAILURES, Aborted, MicroagentsError, RoleFailed, TaskFailed
from microagents.base.plain_values import in_python

TRACEBACK = "Traceback (most recent call last):\n"
MAX_TRACEBACK_CHARS = 8_000
"""Of a longer traceback the first and the last half of this number are kept: it travels, and the journal keeps it."""


def _for_user(value: Any) -> Any:
    """Return the value of a class of the user's for one that stands for it, and that class for the class of such values."""
    kind = getattr(value, "__stands_for__", None)
    if kind is None:
        return value
    if isinstance(value, type):
        return kind
    return value.users_value()


def standing_in(value: object, gives: Any) -> object:
    """Return the value that stands for a user's, if it is one that an instance of ``gives``, a class or a tuple of some, stands for."""
    for kind in gives if isinstance(gives, tuple) else (gives,):
        if isinstance(value, getattr(kind, "__stands_for__", ())):
            return kind.standing_for(value)
    return value


def called(method: Callable[..., Any], *given: object, gives: Any = object, at: int | str = "") -> Any:
    """Call a method of a task; `TaskFailed` if it raises, or its result has another type. ``at`` says where in the work.

    A result of a library, such as a number of numpy, is one of Python's own.
    """
    try:
        result = standing_in(in_python(method(*map(_for_user, given))), gives)
    except MicroagentsError:
        raise
    except OWN_FAILURES as error:
        raise _raised(method, error, at) from error
    if isinstance(result, gives):
        return result
    raise mistyped(method, result, _type_text(gives), at)


async def called_aside(method: Callable[..., Any], *given: object) -> Any:
    """Call a method that may take long: an ``async def``, or a plain one that is called in a thread.

    Raises:
        TaskFailed: it raised.
    """
    if not inspect.iscoroutinefunction(method):
        return await asyncio.to_thread(called, method, *given)
    try:
        return await method(*map(_for_user, given))
    except MicroagentsError:
        raise
    except OWN_FAILURES as error:
        if is_cancellation(error):
            raise
        raise _raised(method, error, "") from error


def _raised(method: Callable[..., Any], error: BaseException, at: int | str) -> TaskFailed:
    return TaskFailed(_name(method), f"raised {shown(error)}{_at(at)} ({_line(error, method)})", traceback_of(error))


def mistyped(method: Callable[..., Any], result: object, wanted: str, at: int | str = "") -> TaskFailed:
    """Build the error of a method that gave something else than ``wanted``."""
    if inspect.iscoroutine(result):
        result.close()  # else Python warns that it was never awaited
    return TaskFailed(_name(method), f"must give {wanted}, not {shown(result)}{_at(at)} ({_first_line(method)})")


def unkept(method: Callable[..., Any], lost: str, at: int | str = "") -> TaskFailed:
    """Build the error of a method that gave a value which the journal cannot keep: ``lost`` names the part."""
    failure = f"gave what the journal cannot give back{_at(at)}: {lost} ({_first_line(method)})"
    return TaskFailed(_name(method), f"{failure}; all decisions so far are kept; give values that JSON has")


def role_failed(role: str, message: str, error: BaseException) -> RoleFailed:
    """Build the error of a role whose handler raised: it names the innermost line of the user's code."""
    if isinstance(error, OWN_FAILURES):
        kind = RoleFailed
    else:
        kind = Aborted
    failed = kind(role, message, described(error), traceback_of(error))
    failed.__cause__ = error
    return failed


def described(error: BaseException) -> str:
    """Describe an error and the innermost line of the user's code: ``KeyError: 'x' in Dates.rate (dates.py:41)``; of a group its first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    try:
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception as broken:  # noqa: BLE001 - a user's __str__ may raise anything
        text = f"{type(error).__name__} (whose text raises {type(broken).__name__})"
    lines = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_of_user(frame)]
    if not lines:
        return text
    frame, line = lines[-1]
    return f"{text} in {frame.f_code.co_qualname} ({_location(frame.f_code, line)})"


def shown(value: object) -> str:
    """Return the start of a value's representation."""
    try:
        return f"{value!r:.200}"
    except Exception as broken:  # noqa: BLE001 - a user's __repr__ may raise anything
        return f"a {type(value).__name__} (whose representation raises {type(broken).__name__})"


def traceback_of(error: BaseException) -> str:
    """Write the traceback of an error as Python prints it. The middle of a long one is left out."""
    try:
        text = "".join(traceback.format_exception(error))
    except Exception as broken:  # noqa: BLE001 - a user's __str__ may raise anything
        text = f"{TRACEBACK}{''.join(traceback.format_tb(error.__traceback__))}{type(error).__name__} ({type(broken).__name__})\n"
    if not text.startswith(TRACEBACK):  # its cause was never raised
        text = f"{TRACEBACK}{text}"
    half = MAX_TRACEBACK_CHARS // 2
    if len(text) <= MAX_TRACEBACK_CHARS:
        return text
    return f"{text[:half]}\n  [...]\n{text[-half:]}"


def _at(at: int | str) -> str:
    if at == "":
        return ""
    if isinstance(at, int):
        return f" at step {at}"
    return f" at {at}"


def _name(method: Callable[..., Any]) -> str:
    owner = getattr(method, "__self__", None)
    kind = owner if isinstance(owner, type) else type(owner)
    name = getattr(method, "__name__", "call")
    if owner is None:
        return name
    return f"{kind.__name__}.{name}"


def _type_text(gives: Any) -> str:
    """Write types in words, such as ``a Prompt or None``."""
    named = {bool: "True, False", NoneType: "None", int: "a whole number", str: "a text", float: "a number"}
    kinds = gives if isinstance(gives, tuple) else (gives,)
    texts = []
    for each in kinds:
        article = "an" if each.__name__[:1] in "AEIOU" else "a"
        texts.append(named.get(each) or f"{article} {each.__name__}")
    text = ", ".join(texts)
    return " or ".join(text.rsplit(", ", 1))


def _line(error: BaseException, method: Callable[..., Any]) -> str:
    """Find the innermost line of the user's file behind a method that raised; of a shipped method, of its own file."""
    lines = list(traceback.walk_tb(error.__traceback__))[1:]  # the first is the call of the method
    if not lines:  # the method could not be called
        return _first_line(method)
    first = next((frame for frame, _ in lines if _is_of_user(frame)), lines[0][0])
    return _location(
        *[(frame.f_code, line) for frame, line in lines if frame.f_code.co_filename == first.f_code.co_filename][-1]
    )


def _first_line(method: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(method), "__code__", None)
    if not isinstance(code, CodeType):
        return "its definition"
    return _location(code, code.co_firstlineno)


def _location(code: CodeType, line: int) -> str:
    return f"{Path(code.co_filename).name}:{line}"


def _is_of_user(frame: FrameType) -> bool:
    """Return whether a frame belongs neither to this framework nor to Python and its libraries."""
    module, file = str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename
    is_ours = module.startswith("microagents.") and not module.startswith("microagents.tasks.")
    return not (is_ours or file.startswith((sys.prefix, sys.base_prefix, "<")) or "site-packages" in file)


def import_folders() -> list[str]:
    """Return the folders of the import path that hold the user's modules."""
    installed = (sys.prefix, sys.base_prefix)
    return [each for each in map(os.path.abspath, sys.path) if os.path.isdir(each) and not each.startswith(installed)]


def work_in(folder: str) -> None:
    """Work in the driver's working folder if it is here, so that relative names of files mean the same as in the driver."""
    if os.path.isdir(folder):
        os.chdir(folder)


def extend_import_path(folders: Sequence[str]) -> None:
    """Make the user's modules importable, behind all packages.

    Args:
        folders: of the driver's import path. For one that is not here, the copy in the working folder is taken, as Ray makes it of a job's.
    """
    for folder in folders:
        here = folder if os.path.isdir(folder) else os.path.join(os.getcwd(), os.path.basename(folder))  # noqa: PTH109, PTH118, PTH119
        if here not in sys.path:
            sys.path.append(here)
