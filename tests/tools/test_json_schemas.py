"""Checks against schemas of servers: they agree with the package jsonschema, read nothing outside of a schema, and end soon."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from microagents.tools.json_schemas import MAX_DEPTH, BadSchema, SchemaCheck

NAMES = st.sampled_from(["a", "b", "ab", "n1"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, 1.0, 19.75]),
    st.sampled_from(["", "a", "ab", "1"]),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])


def _keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several, named, length = (
        st.lists(inner, min_size=1, max_size=3),
        st.dictionaries(NAMES, inner, max_size=2),
        st.integers(0, 3),
    )
    pattern = st.sampled_from(["^a", "b$", "[0-9]", "^(a+)+$"])
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "const": VALUES,
            "properties": named,
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(pattern, inner, max_size=2),
            "propertyNames": st.fixed_dictionaries({"maxLength": length}),
            "items": inner,
            "prefixItems": several,
            "uniqueItems": st.booleans(),
            **dict.fromkeys(
                ["minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"], length
            ),
            **dict.fromkeys(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], st.integers(-3, 3)),
            "multipleOf": st.sampled_from([1, 2, 0.5]),
            "pattern": pattern,
            "allOf": several,
            "anyOf": several,
            "oneOf": several,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "$ref": st.sampled_from(["#/$defs/a", "#/$defs/b"]),
        },
    )


SCHEMAS = st.recursive(st.booleans() | _keywords(st.booleans()), _keywords, max_leaves=8).filter(
    lambda schema: isinstance(schema, dict)
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(SCHEMAS, st.lists(VALUES, min_size=1, max_size=5))
def test_a_check_agrees_with_the_package_jsonschema(schema: dict[str, Any], values: list[Any]) -> None:
    schema = {**schema, "$defs": {"a": {"type": ["string", "integer"]}, "b": {"maxLength": 1}}}
    check, validator = SchemaCheck(schema), Draft202012Validator(schema)
    assert [check.fits(value) for value in values] == [validator.is_valid(value) for value in values]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://169.254.169.254/latest"},
        {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"$ref": "#/$defs/missing"},
        {"$defs": {"a": {"$ref": "http://127.0.0.1/"}}, "$ref": "#/$defs/a"},
    ],
)
def test_a_schema_that_refers_to_what_is_outside_of_it_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(BadSchema, match="its schema refers to"):
        SchemaCheck(schema)


TOWER: Any = 1
TOWER_OF_OBJECTS: Any = 1
for _ in range(MAX_DEPTH):
    TOWER, TOWER_OF_OBJECTS = [TOWER], {"a": TOWER_OF_OBJECTS}
DOUBLING = {
    "$ref": "#/$defs/0",
    "$defs": {**{str(n): {"anyOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(20)}, "20": {"const": 1}},
}


def _nested(depth: int) -> dict[str, Any]:
    return {"items": _nested(depth - 1)} if depth else {}


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (_nested(MAX_DEPTH), "nested more than 64 deep"),
        ({"description": "x" * 300_000}, r"has 300,\d{3} characters"),
        ({"type": "any"}, 'malformed: type: "any" is not'),
        ({"anyOf": [5]}, "malformed: anyOf/0: 5 is not"),
        ({"$ref": "#"}, "refers to itself without end"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "refers to itself"),
        (DOUBLING, "or stands for more than 50,000 schemas"),
    ],
)
def test_a_schema_that_is_malformed_or_too_large_is_refused_with_a_sentence(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(BadSchema, match=why):
        SchemaCheck(schema)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": "^(a+)+$"}, "a" * 50 + "!"),
        ({"patternProperties": {"^(a+)+$": False}, "additionalProperties": False}, {"a" * 50 + "!": 1}),
        ({"items": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, "type": "array"}, TOWER),
        ({"additionalProperties": {"unevaluatedProperties": False, "allOf": [{"$ref": "#"}] * 2}}, TOWER_OF_OBJECTS),
        ({"uniqueItems": True}, [{}] * 50_000),
    ],
)
def test_a_hostile_schema_fits_nothing_and_holds_nobody(schema: dict[str, Any], value: object) -> None:
    began_s = time.process_time()
    assert not SchemaCheck(schema).fits(value)
    assert time.process_time() - began_s < 20


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": "^(?=a)b"}, "c"),
        ({"unevaluatedProperties": False, "format": "date"}, {"a": 1}),
        ({"patternProperties": {"^(?=a)b": False}, "additionalProperties": False}, {"a": 1}),
        ({"oneOf": [{"format": "date"}, {"format": "date-time"}]}, "2026-11-27"),
        ({"not": {"format": "date"}, "if": {"contains": {}}, "then": False}, ["a"]),
        ({"multipleOf": 0.01}, 19.99),
    ],
)
def test_what_is_not_checked_here_is_left_to_the_server(schema: dict[str, Any], value: object) -> None:
    assert SchemaCheck(schema).fits(value)


@pytest.mark.parametrize(
    ("schema", "fitting", "other"),
    [
        ({"minimum": 0, "exclusiveMinimum": True}, 0.5, 0),
        ({"maximum": 5, "exclusiveMaximum": True, "minimum": 0, "exclusiveMinimum": False}, 0, 5),
        ({"items": [{"type": "string"}], "additionalItems": False}, ["a"], ["a", "b"]),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a"], ["a", "b"]),
        ({"properties": {"a": {"type": "string", "required": True}}}, {"a": "b"}, {"a": 1}),
        ({"type": "array", "items": {"$ref": "#"}}, [[], [[]]], [[], [1]]),
        ({"$ref": "#/definitions/a~1b%20c", "definitions": {"a/b c": {"type": "null"}}}, None, 1),
    ],
)
def test_schemas_of_other_drafts_are_read(schema: dict[str, Any], fitting: object, other: object) -> None:
    check = SchemaCheck(schema)
    assert (check.fits(fitting), check.fits(other)) == (True, False)
