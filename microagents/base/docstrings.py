"""Docstrings of fields, read when they are shown: pydantic would look for them at every import, a third of its time."""

from __future__ import annotations

import ast
from functools import lru_cache
from inspect import cleandoc, getsource
from itertools import pairwise
from textwrap import dedent

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from microagents.base.sources import PARSING


def described_fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a model by name, each with its docstring as its description."""
    for base in model.__mro__:
        if base is not BaseModel and issubclass(base, BaseModel):
            for name, text in docstrings_of(base).items():
                if name in model.model_fields and model.model_fields[name].description is None:
                    model.model_fields[name].description = text
    return model.model_fields


@lru_cache(maxsize=256)
def docstrings_of(model: type) -> dict[str, str]:
    """Return the docstrings of the fields that a class declares, by name."""
    try:
        with PARSING:
            [defined] = ast.parse(dedent(getsource(model))).body
    except (OSError, TypeError, SyntaxError):  # made by no source, such as Task[str]
        return {}
    found = {}
    for pair in pairwise(getattr(defined, "body", ())):
        match pair:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = cleandoc(text)
            case _:
                pass
    return found
