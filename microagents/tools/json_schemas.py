"""Checks of arguments against the JSON schema of a server's tool, by the package jsonschema-rs.

It is given a copy that has only the keywords that are checked here, and whose references lead to parts of the copy. So it fetches nothing,
its patterns take linear time, and the number of its checks is counted before. The server checks the rest: `format`, `contains`,
`unevaluated...`, conditions on other names, and patterns that are large or look around.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from microagents.base.errors import InvalidDefinition
from microagents.base.packages import missing_package

Schema = dict[str, Any]
MAX_SCHEMA_CHARS = 20_000
"""Length of a schema, as JSON."""
MAX_DEPTH = 64
"""Schemas in each other that a schema may have."""
MAX_CHECKS = 50_000
"""Checks of a value and its parts, each against one schema: some .2 s. By a bound in time, a reply would pass on one machine and not on
another."""
CHARS_PER_CHECK = 4
"""Characters that are matched with a pattern at most in the time of a check."""
MAX_PATTERN_BYTES = 1 << 16
"""Memory of a compiled pattern."""

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_OF_WHOLE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
"""Keywords with schemas of the value itself."""
_OF_PARTS = ("items", "prefixItems", "additionalProperties", "propertyNames")
_BY_NAME = ("properties", "patternProperties")
_LEADS_ON = frozenset(("$ref", *_OF_WHOLE, *_OF_PARTS, *_BY_NAME))
_PLAIN = (
    *("type", "enum", "const", "pattern", "required", "uniqueItems", "multipleOf", "minimum", "maximum"),
    *("exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems"),
    *("minProperties", "maxProperties"),
)
_LEFT_OUT = re.compile(r'"(contains|depend|format|unevaluated)|\(\?[=!<]')
"""Keywords that may be left out. Beside them, keywords are left out, too, that more values fit the fewer fit the schemas in them."""
_DRAFT_4 = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
"""The bound that each keyword makes exclusive in draft 4, if it is true."""


class BadSchema(InvalidDefinition):
    """A schema is malformed or too large, or refers to something outside of it."""


@lru_cache(maxsize=256)
def schema_check(text: str) -> SchemaCheck:
    """Return the check of a schema, which is given as JSON.

    Raises:
        BadSchema: see `SchemaCheck`.
    """
    return SchemaCheck(json.loads(text))


class SchemaCheck:
    """Checks values against one schema.

    Raises:
        BadSchema: it is malformed or too large, or refers to something outside of it.
        InvalidUsage: the package jsonschema-rs is not installed.
    """

    def __init__(self, schema: Schema) -> None:
        self._given = schema
        self._is_exact = _LEFT_OUT.search(_text_of(schema)) is None
        self._names: dict[int, str] = {}
        """The name of each schema that is referred to, by its id."""
        self._referred: list[Any] = []
        self._targets: Schema = {}
        """Copies of the schemas that are referred to, by name."""
        whole = self._reference("#")
        for each in self._referred:  # which grows meanwhile
            self._targets[self._names[id(each)]] = self._copy(each)
        self._copied = {**whole, "$defs": self._targets}
        self._validator = _validator(self._copied)
        if not self._is_short(*((each, None) for each in self._targets.values() if isinstance(each, dict))):
            raise BadSchema(f"its schema refers to itself without end, or stands for more than {MAX_CHECKS:,} schemas")

    def fits(self, value: object) -> bool:
        """Return whether a JSON-like value fits; False also for one that takes more than `MAX_CHECKS`."""
        try:
            return self._is_short((self._copied, value)) and bool(self._validator.is_valid(value))
        except ValueError:  # one with half of a surrogate pair, which cannot be sent
            return False

    def _reference(self, given: object) -> Schema:
        """Write a reference to a part of the schema as one to its copy."""
        reference = unquote(str(given))
        found: Any = self._given
        for name in reference.split("/")[1:]:
            found = _member(found, name.replace("~1", "/").replace("~0", "~"))
        if reference.partition("/")[0] != "#" or not isinstance(found, dict | bool):
            raise BadSchema(f"its schema refers to {given!r:.100}; only its own parts can be referred to, as #/...")
        if id(found) not in self._names:
            self._names[id(found)] = str(len(self._names))
            self._referred.append(found)
        return {"$ref": f"#/$defs/{self._names[id(found)]}"}

    def _copy(self, given: Any, depth: int = 0) -> Any:
        """Copy a schema, or each in a list, with the keywords that are checked here."""
        if isinstance(given, list):
            return [self._copy(each, depth) for each in given]
        if not isinstance(given, dict):
            return given
        if depth == MAX_DEPTH:
            raise BadSchema(f"its schema is nested more than {MAX_DEPTH} deep")
        schema = _as_today(given)
        if not self._is_exact:  # of two texts in different formats, both would fit
            schema.setdefault("anyOf", schema.pop("oneOf", [True]))
            schema = {word: each for word, each in schema.items() if word not in ("not", "if")}
        copy: Schema = {}
        for word, each in schema.items():
            if word in _PLAIN:
                copy[word] = each
            elif word in _BY_NAME:
                copy[word] = self._copy_by_name(each, depth + 1)
            elif word in _REFERENCES:
                copy.update(self._reference(each))
            elif word in _LEADS_ON:
                copy[word] = self._copy(each, depth + 1)
        return copy

    def _copy_by_name(self, given: Any, depth: int) -> Any:
        if not isinstance(given, dict):
            return given  # malformed, as its compilation says
        return {name: self._copy(each, depth) for name, each in given.items()}

    def _is_short(self, *steps: tuple[Any, Any]) -> bool:
        """Whether schemas and those in them have few checks of their values, even if none is spared since an earlier one decides."""
        left, count = list(steps), 0
        while left:
            schema, value = left.pop()
            if "pattern" in schema and isinstance(value, str):
                count += len(value) // CHARS_PER_CHECK
            for part, each in self._steps(schema, value):
                count += 1
                if count > MAX_CHECKS:
                    return False
                if isinstance(part, dict):
                    left.append((part, each))
        return count <= MAX_CHECKS

    def _steps(self, schema: Schema, value: Any) -> Iterator[tuple[Any, Any]]:
        """List the schemas in a schema, each with the value or the part of it that it applies to."""
        if _LEADS_ON.isdisjoint(schema):
            return
        if "$ref" in schema:
            yield self._targets[schema["$ref"].rpartition("/")[2]], value
        for word in _OF_WHOLE:
            given = schema.get(word, [])
            several = given if isinstance(given, list) else [given]
            yield from ((each, value) for each in several)
        if isinstance(value, list):
            yield from zip(schema.get("prefixItems", ()), value, strict=False)
            yield from ((schema.get("items", True), each) for each in value)
        if isinstance(value, dict):
            named = schema.get("properties", {})
            yield from ((named[name], each) for name, each in value.items() if name in named)
            others = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties", True)]
            yield from ((other, each) for other in others for each in value.values())
            yield from ((schema.get("propertyNames", True), name) for name in value)


def _text_of(schema: Schema) -> str:
    try:
        text = json.dumps(schema)
    except (RecursionError, TypeError, ValueError):
        raise BadSchema("its schema is nested too deep") from None
    if len(text) > MAX_SCHEMA_CHARS:
        raise BadSchema(f"its schema has {len(text):,} characters; at most {MAX_SCHEMA_CHARS:,} are taken")
    return text


def _as_today(given: Schema) -> Schema:
    """Write keywords of earlier drafts in today's form, and leave out the patterns that are not checked here."""
    schema = dict(given)
    if isinstance(given.get("items"), list):
        schema["prefixItems"], schema["items"] = given["items"], given.get("additionalItems", True)
    for word, bound in _DRAFT_4.items():
        if isinstance(given.get(word), bool):
            del schema[word]
            if given[word] and bound in given:
                schema[word] = schema.pop(bound)
    if isinstance(given.get("required"), bool):  # draft 3
        del schema["required"]
    if not _is_linear(str(given.get("pattern", ""))):
        del schema["pattern"]
    patterns = map(str, given.get("patternProperties", ()))
    if not all(map(_is_linear, patterns)):
        del schema["patternProperties"]
        schema.pop("additionalProperties", None)  # it may fit a name that such a pattern fits
    return schema


def _member(value: Any, name: str) -> Any:
    """Take the step of a JSON pointer; None if it leads nowhere."""
    if isinstance(value, list):
        value = {str(at): each for at, each in enumerate(value)}
    if not isinstance(value, dict):
        return None
    return value.get(name)


@lru_cache(maxsize=1024)
def _is_linear(pattern: str) -> bool:
    """Whether a pattern can be matched in linear time: it is small, and does not look around."""
    try:
        _validator({"pattern": pattern})
    except BadSchema:
        return False
    return True


def _validator(schema: Schema) -> Any:
    """Compile a schema."""
    try:
        import jsonschema_rs  # noqa: PLC0415 - an optional package
    except ImportError:
        raise missing_package("a tool of an MCP server", "jsonschema_rs") from None
    options = jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES, dfa_size_limit=MAX_PATTERN_BYTES)
    try:
        return jsonschema_rs.Draft202012Validator(schema, pattern_options=options, offline=True)
    except jsonschema_rs.ValidationError as error:
        place = "/".join(map(str, error.instance_path[2:]))  # after $defs and a name
        raise BadSchema(f"its schema is malformed: {place:.100}: {error.message:.100}") from None
