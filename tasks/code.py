"""Functions to write, with assertions that they must pass, in the format of MBPP (arXiv 2108.07732)."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Self

from pydantic import AliasChoices, ConfigDict, Field, model_validator

from microagents.base.logs import log
from microagents.replies.chat import Sampling
from microagents.replies.reply import Reply
from microagents.systems.questions.problem import Problem
from microagents.tasks.confinement import LEAST_MEMORY_BYTES, MEMORY_BYTES, Ending, run_confined

MAX_CODE_CHARS = 20_000
SHOWN_TESTS = 1
NOT_SCORED = (
    "programs cannot be confined here, so they are not run and not scored; that needs Linux on x86-64 or 64-bit ARM, a system that lets a "
    "process filter its own calls (seccomp), and room for one more process"
)


class Program(Reply, frozen=True):
    """A Python program, whole, without a fence around it."""

    code: str

    def vote(self) -> str:
        """Return the program without comments and layout. The same in other words is a different vote."""
        return _bare(self.code) or self.code


class Code(Problem[Program]):
    """Write a function. It is right if it passes every assertion, in a confined process. The simulated model cannot write one."""

    model_config = ConfigDict(extra="ignore")
    sampling = Sampling(first_temperature=0.5, temperature=0.5, max_output_tokens=4096, flag_above_tokens=None)
    default_strategy = "single-shot"

    text: Annotated[
        str, Field(min_length=1, max_length=100_000, pattern=r"\S", validation_alias=AliasChoices("text", "prompt"))
    ]
    """The function that is wanted."""
    test_list: Annotated[tuple[str, ...], Field(max_length=1000)] = ()
    """Assertions that it must pass; without any, nothing is scored."""
    test_setup_code: str = ""
    """Code in front of the assertions."""
    shown: Annotated[int, Field(ge=0)] = SHOWN_TESTS
    """Number of assertions that the model sees, so that it knows the function's name and arguments."""
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 5.0
    """Bound on the time of a program with its assertions."""
    memory_bytes: Annotated[int, Field(ge=LEAST_MEMORY_BYTES)] = MEMORY_BYTES
    """Bound on its memory."""

    @model_validator(mode="before")
    @classmethod
    def _from_file(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and "test_imports" in given:
            return {**given, "test_setup_code": "\n".join(given["test_imports"])}
        return given

    @model_validator(mode="after")
    def _has_readable_tests(self) -> Self:
        for number, test in enumerate((self.test_setup_code, *self.test_list)):
            if _bare(test) is None:
                where = f"assertion {number}" if number else "test_setup_code"
                raise ValueError(f"{where} is not Python: {test!r:.80}")
        return self

    def statement(self) -> str:
        return self.text

    def background(self) -> str:
        tests = "\n".join(self.test_list[: self.shown])
        if not tests:
            return ""
        return f"The program is a Python module, and it must pass this:\n{tests}"

    def flag(self, reply: Reply) -> str | None:
        """Flag ``no_python`` for a text that Python cannot read, ``long_code`` for more than 20,000 characters."""
        if not isinstance(reply, Program):
            return None
        if len(reply.code) > MAX_CODE_CHARS:
            return "long_code"
        if _bare(reply.code) is not None:
            return None
        return "no_python"

    def correct(self, reply: Program) -> bool | None:
        if not self.test_list:
            return None
        program = "\n".join((reply.code, self.test_setup_code, *self.test_list))
        ending = run_confined(program, timeout_s=self.timeout_s, memory_bytes=self.memory_bytes)
        if ending is None:
            _tell_that_nothing_is_scored()
            return None
        return ending is Ending.PASSED


@cache
def _tell_that_nothing_is_scored() -> None:
    log().warning(NOT_SCORED)


def _bare(code: str) -> str | None:
    """Strip a program of comments and layout; None if Python cannot read it."""
    if len(code) > MAX_CODE_CHARS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of strange escapes
            return ast.unparse(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
