"""Checks of arguments against the JSON schema of a server's tool: they read nothing outside of the schema, and their length is bounded.

The bound is a number of steps: by a bound in time, a reply would pass on one machine and not on another. Patterns are matched by RE2, in
linear time; Python's `re`, and with it the package `jsonschema`, takes exponential time for some. What is not checked here is left to the
server: `format`, `contains`, `unevaluated...`, what depends on other names, and patterns that are large or that RE2 lacks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from microagents.base.errors import InvalidDefinition
from microagents.base.packages import missing_package

MAX_SCHEMA_CHARS = 20_000
"""Length of a schema, as JSON."""
MAX_DEPTH = 64
"""Schemas in each other that a schema may have, and that a check follows, references included."""
MAX_STEPS = 50_000
"""Steps of one check, a quarter of a second. A value takes one for each schema that it is checked against."""
MAX_PATTERNS = 50
MAX_PROGRAM = 1_000
"""Instructions of a compiled pattern."""
PROGRAM_CHARS_PER_STEP = 100
"""Instructions times characters that RE2 does at most in the time of a step."""
REGEX_BYTES = 1 << 18
"""Memory of a compiled pattern."""

Schema = dict[str, Any] | bool
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
_ONE = ("not", "if", "then", "else", "items", "additionalItems", "additionalProperties", "propertyNames")
_SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties")
_LENGTHS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_FORMS: Mapping[str, Any] = {
    **dict.fromkeys((*_REFERENCES, "pattern"), str),
    **dict.fromkeys(_ONE, dict | bool),
    **dict.fromkeys((*_SEVERAL, "enum", "required"), list),
    "items": dict | bool | list,
    **dict.fromkeys(_NAMED, dict),
    **dict.fromkeys((*_LENGTHS, *_BOUNDS), int | float),
    "type": str | list,
}
"""The Python types of what keywords are given."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value % 1 == 0,
    "number": _is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


class BadSchema(InvalidDefinition):
    """A schema is malformed or too large, or refers to what is outside of it."""


@lru_cache(maxsize=256)
def schema_check(text: str) -> SchemaCheck:
    """Return the check of a schema, which is given as JSON.

    Raises:
        BadSchema: see `SchemaCheck`.
    """
    return SchemaCheck(json.loads(text))


class _TooManySteps(Exception):
    """A check has taken its last step."""


class SchemaCheck:
    """Checks values against one schema.

    Raises:
        BadSchema: it is malformed or too large, or refers to what is outside of it.
        InvalidUsage: it has patterns, and RE2 is not installed.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = dict(schema)
        _refuse_large(self._schema)
        self._anchors = {
            f"#{each[word]}": each for each in _objects_in(self._schema) for word in _ANCHORS if word in each
        }
        self._read = set[int]()
        self._targets: dict[str, Schema] = {}
        """What each reference refers to."""
        self._patterns: dict[str, Any] = {}
        """The program of each pattern; None if it is not checked here."""
        self._values: dict[int, frozenset[Hashable]] = {}
        """The values that each schema allows, by the schema's id."""
        self._take(self._schema, MAX_DEPTH)

    def fits(self, value: object) -> bool:
        """Return whether a JSON-like value fits; False also for one that takes more than `MAX_STEPS`."""
        try:
            return _Check(self._targets, self._patterns, self._values).holds(self._schema, value, MAX_DEPTH)
        except (_TooManySteps, ArithmeticError, TypeError, ValueError):  # such as 10**400 beside a fraction
            return False

    def _take(self, schema: Any, depth: int) -> None:
        """Find what a schema and those in it refer to, and compile their patterns, each once."""
        if isinstance(schema, bool) or id(schema) in self._read:
            return
        if not depth:
            raise BadSchema(f"its schema is nested more than {MAX_DEPTH} deep")
        _refuse_malformed(schema)
        self._read.add(id(schema))
        for reference in [schema[word] for word in _REFERENCES if word in schema]:
            if reference not in self._targets:
                self._targets[reference] = target = self._resolved(reference)
                self._take(target, depth - 1)
        for pattern in (*([schema["pattern"]] if "pattern" in schema else ()), *schema.get("patternProperties", ())):
            if len(self._patterns) == MAX_PATTERNS:
                raise BadSchema(f"its schema has more than {MAX_PATTERNS} patterns")
            if pattern not in self._patterns:
                self._patterns[pattern] = _program(pattern)
        if "enum" in schema or "const" in schema:
            self._values[id(schema)] = _allowed(schema)
        for each in _parts(schema):
            self._take(each, depth - 1)

    def _resolved(self, reference: str) -> Schema:
        found: Any = self._anchors.get(reference)
        if reference == "#" or reference.startswith("#/"):
            found = self._schema
            for name in reference.split("/")[1:]:
                found = _member(found, name.replace("~1", "/").replace("~0", "~"))
        if isinstance(found, dict | bool):
            return found
        raise BadSchema(
            f"its schema refers to {reference!r:.100}; only its own parts can be referred to, as #/... or #anchor"
        )


class _Check:
    """One check of a value. References refer to ``targets``."""

    def __init__(
        self, targets: Mapping[str, Schema], patterns: Mapping[str, Any], values: Mapping[int, frozenset[Hashable]]
    ) -> None:
        self._targets = targets
        self._patterns = patterns
        self._values = values
        self._left = MAX_STEPS

    def _step(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise _TooManySteps

    def holds(self, schema: Schema, value: Any, depth: int) -> bool:
        self._step()
        if isinstance(schema, bool):
            return schema
        if not depth:
            raise _TooManySteps
        if "type" in schema and not any(_TYPES[each](value) for each in _types_in(schema)):
            return False
        if id(schema) in self._values and self._key(value) not in self._values[id(schema)]:
            return False
        if isinstance(value, str):
            fits = self._fits_text(schema, value)
        elif isinstance(value, dict):
            fits = self._fits_object(schema, value, depth - 1)
        elif isinstance(value, list):
            fits = self._fits_array(schema, value, depth - 1)
        else:
            fits = not _is_number(value) or _fits_number(schema, value)
        return fits and self._fits_others(schema, value, depth - 1)

    def _fits_others(self, schema: dict[str, Any], value: Any, depth: int) -> bool:
        """Check a value against the schemas in its own that apply to all of it."""

        def holds(each: Schema) -> bool:
            return self.holds(each, value, depth)

        targets = [self._targets[schema[word]] for word in _REFERENCES if word in schema]
        if not all(holds(each) for each in (*targets, *schema.get("allOf", ()))):
            return False
        if "anyOf" in schema and not any(holds(each) for each in schema["anyOf"]):
            return False
        if "oneOf" in schema and sum(holds(each) for each in schema["oneOf"]) != 1:
            return False
        if "not" in schema and holds(schema["not"]):
            return False
        return "if" not in schema or holds(schema.get("then" if holds(schema["if"]) else "else", True))

    def _fits_object(self, schema: dict[str, Any], value: dict[str, Any], depth: int) -> bool:
        named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        names, others = schema.get("propertyNames", True), schema.get("additionalProperties", True)
        self._step(len(schema.get("required", ())))
        if not all(name in value for name in schema.get("required", ())):
            return False
        if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
            return False
        for name, each in value.items():
            parts = [part for pattern, part in patterns.items() if self._matches(pattern, name)]
            parts += [named[name]] if name in named else []
            if not all(self.holds(part, each, depth) for part in parts or [others]):
                return False
            if not self.holds(names, name, depth):
                return False
        return True

    def _fits_array(self, schema: dict[str, Any], value: list[Any], depth: int) -> bool:
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            return False
        if schema.get("uniqueItems") and len({self._key(each) for each in value}) < len(value):
            return False
        first, rest = schema.get("prefixItems", []), schema.get("items", True)
        if isinstance(rest, list):  # before draft 2020-12
            first, rest = rest, schema.get("additionalItems", True)
        return all(self.holds(first[at] if at < len(first) else rest, each, depth) for at, each in enumerate(value))

    def _fits_text(self, schema: dict[str, Any], value: str) -> bool:
        is_long = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
        return is_long and ("pattern" not in schema or self._matches(schema["pattern"], value))

    def _matches(self, pattern: str, text: str) -> bool:
        program = self._patterns[pattern]
        if program is None:
            return True
        self._step(1 + program.programsize * len(text) // PROGRAM_CHARS_PER_STEP)
        return program.search(text) is not None

    def _key(self, value: Any) -> Hashable:
        return _key(value, self._step)


def _key(value: Any, step: Callable[[], None] = lambda: None) -> Hashable:
    """Return what equal values of JSON have in common: 1 equals 1.0, and neither equals true."""
    step()
    if isinstance(value, dict):
        return frozenset((name, _key(each, step)) for name, each in value.items())
    if isinstance(value, list):
        return tuple([_key(each, step) for each in value])
    return value if _is_number(value) else (type(value), value)


def _refuse_large(schema: dict[str, Any]) -> None:
    try:
        length = len(json.dumps(schema))
    except (RecursionError, TypeError, ValueError):
        raise BadSchema("its schema is nested too deep") from None
    if length > MAX_SCHEMA_CHARS:
        raise BadSchema(f"its schema has {length:,} characters; at most {MAX_SCHEMA_CHARS:,} are taken")


def _refuse_malformed(schema: Any) -> None:
    """Refuse what is not a schema, apart from the schemas in it."""
    if not isinstance(schema, dict):
        raise BadSchema(f"its schema is malformed: it has {schema!r:.60} in the place of a schema")
    wrong = [word for word, given in schema.items() if word in _FORMS and not isinstance(given, _FORMS[word])]
    wrong += [word for word in (*_LENGTHS, *_BOUNDS) if isinstance(schema.get(word), bool)]
    if not wrong and any(not isinstance(each, str) or each not in _TYPES for each in _types_in(schema)):
        wrong = ["type"]
    if wrong:
        raise BadSchema(f"its schema is malformed: {wrong[0]} = {schema[wrong[0]]!r:.60}")


def _allowed(schema: dict[str, Any]) -> frozenset[Hashable]:
    lists = [schema["enum"]] if "enum" in schema else []
    lists += [[schema["const"]]] if "const" in schema else []
    return frozenset.intersection(*[frozenset(map(_key, each)) for each in lists])


def _types_in(schema: dict[str, Any]) -> list[Any]:
    given = schema.get("type", [])
    return given if isinstance(given, list) else [given]


def _objects_in(value: Any) -> Iterator[dict[str, Any]]:
    """List the objects in a value, itself included."""
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield value
            left += value.values()
        elif isinstance(value, list):
            left += value


def _parts(schema: dict[str, Any]) -> Iterator[Any]:
    """List the schemas right in a schema."""
    yield from (schema[word] for word in _ONE if not isinstance(schema.get(word, []), list))
    for word in _SEVERAL:
        yield from schema[word] if isinstance(schema.get(word), list) else ()
    for word in _NAMED:
        yield from schema.get(word, {}).values()


def _member(value: Any, name: str) -> Any:
    """Take the step of a JSON pointer; None if it leads nowhere."""
    if isinstance(value, list):
        value = {str(at): each for at, each in enumerate(value)}
    return value.get(name) if isinstance(value, dict) else None


def _fits_number(schema: dict[str, Any], value: float) -> bool:
    if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return False
    if not schema.get("exclusiveMinimum", value - 1) < value < schema.get("exclusiveMaximum", value + 1):
        return False
    unit = schema.get("multipleOf")
    if unit is None:
        return True
    if isinstance(value, int) and isinstance(unit, int):
        return not value % unit
    quotient: float = value / unit
    return abs(quotient - round(quotient)) < 1e-9 * max(1.0, abs(quotient))  # 19.99 is a multiple of 0.01


def _program(pattern: str) -> Any:
    """Compile a pattern for RE2; None for one that is large, or that RE2 lacks, such as one that looks ahead."""
    try:
        import re2  # noqa: PLC0415 - an optional package
    except ImportError:
        raise missing_package("a pattern in the schema of a tool", "re2") from None
    options = re2.Options()
    options.max_mem, options.never_capture, options.log_errors = REGEX_BYTES, True, False
    try:
        program = re2.compile(pattern, options)
    except re2.error:
        return None
    return program if program.programsize <= MAX_PROGRAM else None
