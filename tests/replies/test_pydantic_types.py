"""Models of pydantic as replies and as fields of replies, and types that contain themselves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address
from pathlib import Path
from types import new_class
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar

import pytest
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, computed_field, field_validator, model_validator
from pydantic.dataclasses import dataclass as pydantic_dataclass

from microagents import Call, Prompt, Prose, Reply, RowTask, run_sync
from microagents.base.errors import InvalidDefinition
from microagents.base.messages import address_of, resolve
from microagents.models.json_schema import strict_schema
from microagents.replies.model_replies import reply_of
from microagents.replies.parsing import Malformed, parse
from microagents.replies.reply import vote_of
from microagents.replies.reply_fields import voted_fields
from microagents.replies.reply_forms import Format, decoder_of, encode_reply, instructions, json_form, write
from microagents.runs.inspection.runs import decide
from tests.replies.classes import both_forms

T = TypeVar("T")


class Kind(Enum):
    CITY = "city"
    TOWN = "town"


class Spot(NamedTuple):
    x: int
    y: int


class Extra(TypedDict):
    note: str


@dataclass
class Size:
    width: int


class Mayor(BaseModel):
    """Who leads it."""

    name: str
    age: Annotated[int, Field(ge=18)] | None = None

    @field_validator("name")
    @classmethod
    def _tidy(cls, name: str) -> str:
        if not name.strip():
            raise ValueError("a mayor has a name")
        return " ".join(name.split()).title()


class Box(BaseModel, Generic[T]):
    held: T


class Node(BaseModel):
    label: str
    parts: list[Node] = []


class Branch(Struct, frozen=True):
    value: int
    left: Branch | None = None
    right: Branch | None = None


class Place(Reply, frozen=True, kw_only=True):
    """A place."""

    mayor: Mayor
    past: tuple[Mayor, ...] = ()
    deputies: dict[str, Mayor]
    heir: Mayor | None = None
    box: Box[int]
    tree: Node
    branch: Branch
    spot: Spot
    extra: Extra
    size: Size
    kind: Kind
    server: IPv4Address


PLACE: dict[str, Any] = {
    "mayor": {"name": "ann  lee", "age": 40},
    "past": [{"name": "Bo"}],
    "deputies": {"first": {"name": "Cy"}},
    "heir": None,
    "box": {"held": 3},
    "tree": {"label": "a", "parts": [{"label": "b"}]},
    "branch": {"value": 1, "left": {"value": 2}},
    "spot": [1, 2],
    "extra": {"note": "x"},
    "size": {"width": 2},
    "kind": "city",
    "server": "10.0.0.1",
}


class Cleaned(BaseModel):
    """A model that is a reply by itself."""

    name: str = Field(alias="theName", description="as it is written today")
    founded: date
    seen: datetime | None = None
    price: Decimal = Decimal(0)
    kind: Kind | Literal["other"]
    vote: int = 0
    part: Mayor | Box[int] | None = None
    again: Cleaned | None = None
    why: Prose = ""

    @model_validator(mode="after")
    def _ordered(self) -> Cleaned:
        if self.seen is not None and self.seen.date() < self.founded:
            raise ValueError("seen before it was founded")
        return self

    @computed_field  # type: ignore[prop-decorator]
    @property
    def century(self) -> int:
        return self.founded.year // 100 + 1


CLEANED = reply_of(Cleaned)
EXACT = "1.000000000000000001"


def written(values: dict[str, Any], form: Format) -> str:
    if form == "json":
        return json.dumps(values)
    return "\n".join(f"{name} = {json.dumps(value)}" for name, value in values.items())


def changed(values: dict[str, Any], place: Sequence[str | int], value: object) -> dict[str, Any]:
    made = json.loads(json.dumps(values))
    part = made
    for each in place[:-1]:
        part = part[each]
    part[place[-1]] = value
    return dict(made)


@both_forms
def test_a_field_may_be_a_model_whose_validators_read_it(form: Format) -> None:
    read = parse(written(PLACE, form), Place, form)
    assert (read.mayor, read.past) == (Mayor(name="Ann Lee", age=40), (Mayor(name="Bo"),))
    assert (read.deputies["first"].name, read.box.held, read.tree.parts[0].label) == ("Cy", 3, "b")
    assert (read.spot, read.size, read.branch.left) == (Spot(1, 2), Size(2), Branch(2))
    assert decoder_of(Place).decode(encode_reply(read)) == read
    assert parse(write(read, form), Place, form) == read
    assert vote_of(read) == vote_of(parse(written(changed(PLACE, ("mayor", "name"), "ANN LEE"), form), Place, form))


@both_forms
@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("mayor", "name"), " ", "a mayor has a name"),
        (("mayor", "age"), 3, "greater than or equal to 18"),
        (("mayor", "age"), "40", "age: must be a valid integer"),
        (("deputies", "first"), {}, "name: is missing"),
        (("server",), "10.0.0", "expected 4 octets"),
        (("tree", "parts", 0, "label"), 1, "parts.0.label"),
    ],
)
def test_what_a_model_refuses_is_malformed_in_one_line(
    form: Format, place: list[str], value: object, said: str
) -> None:
    with pytest.raises(Malformed) as raised:
        parse(written(changed(PLACE, place, value), form), Place, form)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("mayor", "age"), 41),
        (("past", 0, "name"), "Ed"),
        (("tree", "parts", 0, "parts"), [{"label": ""}]),
        (("branch", "left", "right"), {"value": 1}),
        (("box", "held"), 4),
        (("size", "width"), 3),
        (("extra", "note"), "y"),
        (("deputies", "second"), {"name": "Cy"}),
    ],
)
def test_replies_that_differ_deep_inside_cast_different_votes(place: list[str], value: object) -> None:
    first = parse(json.dumps(PLACE), Place, "json")
    second = parse(json.dumps(changed(PLACE, place, value)), Place, "json")
    assert vote_of(first) != vote_of(second)
    assert vote_of(first) == vote_of(parse(json.dumps(PLACE), Place, "json"))


def test_the_prompt_shows_the_form_of_a_model_and_of_what_it_contains() -> None:
    form = json_form(Place)
    mayor = '{"name": "<text>", "age": <integer of at least 18> or null}'
    assert f'"mayor": {mayor}, "past": [{mayor}, ...], "deputies": {{"<key>": {mayor}, ...}}' in form
    assert '"tree": {"label": "<text>", "parts": [<again the form around this with "label", "parts">, ...]}' in form
    assert (
        '"branch": {"value": <integer>, "left": <again the form around this with "value", "left", "right"> or null'
        in form
    )
    assert '"spot": [<integer>, <integer>], "extra": {"note": "<text>"}, "size": {"width": <integer>}' in form
    assert '"kind": "city" or "town"' in form
    assert "- theName: as it is written today" in instructions(CLEANED)


def assert_closed(schema: Any, defs: dict[str, Any]) -> None:
    if isinstance(schema, list):
        for each in schema:
            assert_closed(each, defs)
    if isinstance(schema, dict):
        if "$ref" in schema:
            assert list(schema) == ["$ref"], "providers refuse other keywords beside a reference"
            assert schema["$ref"].removeprefix("#/$defs/") in defs
        if "properties" in schema:
            assert schema["additionalProperties"] is False
            assert schema["required"] == list(schema["properties"])
        assert not {"oneOf", "allOf", "default", "title"} & (schema.keys() - {"properties"})
        for name, each in schema.items():
            assert_closed(list(each.values()) if name in ("properties", "$defs") else each, defs)


@pytest.mark.parametrize("reply", [Place, CLEANED])
def test_providers_get_one_closed_schema_whose_references_lead_somewhere(reply: type[Reply]) -> None:
    schema = strict_schema(reply)
    assert schema["type"] == "object"
    assert_closed(schema, schema["$defs"])


class Loop(Reply, frozen=True):
    """A reply that contains itself."""

    name: str
    parts: tuple[Loop, ...] = ()


def test_a_reply_may_contain_itself() -> None:
    schema = strict_schema(Loop)
    assert_closed(schema, schema["$defs"])
    read = parse('{"name": "a", "parts": [{"name": "b"}]}', Loop, "json")
    assert read.parts[0].name == "b"
    assert vote_of(read) != vote_of(parse('{"name": "a", "parts": [{"name": "c"}]}', Loop, "json"))
    assert '"parts": [<again the form around this with "name", "parts">, ...]' in json_form(Loop)
    with pytest.raises(Malformed, match="nested more than"):
        parse('{"name": "a", "parts": [' * 150 + "]}" * 150, Loop, "json")


ROW = {
    "theName": "Ulm",
    "founded": "0854-01-01",
    "price": "1.50",
    "kind": "city",
    "vote": 2,
    "part": {"name": "a b"},
    "again": {"theName": "x", "founded": "0854-01-01", "kind": "other"},
    "why": "so",
}


@both_forms
def test_a_model_is_a_reply_whose_fields_vote(form: Format) -> None:
    read = parse(written(ROW, form), CLEANED, form)
    assert read.users_value() == Cleaned.model_validate(ROW)
    assert (read.founded, read.price, read.part) == (date(854, 1, 1), Decimal("1.5"), Mayor(name="A B"))  # type: ignore[attr-defined]
    assert voted_fields(CLEANED) == ["name", "founded", "seen", "price", "kind", "vote_", "part", "again"]
    assert decoder_of(CLEANED).decode(encode_reply(read)) == read
    assert vote_of(read) == vote_of(parse(written({**ROW, "price": "1.5", "why": "not"}, form), CLEANED, form))
    with pytest.raises(Malformed, match="seen before it was founded"):
        parse(written({**ROW, "seen": "0800-01-01T00:00:00"}, form), CLEANED, form)
    assert resolve(address_of(CLEANED), Reply) is CLEANED


def test_no_digit_of_a_decimal_is_lost() -> None:
    texts = [json.dumps(ROW).replace('"1.50"', number) for number in (EXACT, f'"{EXACT}"')]
    prices = {str(getattr(parse(text, CLEANED, "json"), "price")) for text in texts}  # noqa: B009 - no type has it
    assert prices == {EXACT}


class Clean(RowTask[Cleaned]):
    format = "json"

    def prompt(self, row: dict[str, Any]) -> Prompt:
        return Prompt(user=row["text"])

    def flag(self, row: dict[str, Any], reply: Cleaned) -> str | None:
        return None if reply.century == 9 and row["text"] else "late"

    def oracle(self, row: dict[str, Any]) -> Cleaned:  # noqa: ARG002 - always the same
        return Cleaned.model_validate(ROW)

    def expert(self, prompt: Prompt, reply: type) -> Cleaned:  # noqa: ARG002 - as above
        assert reply is Cleaned
        return Cleaned.model_validate(ROW)


def test_a_task_takes_and_gives_instances_of_its_model() -> None:
    result = run_sync(Clean.rows([{"text": "a"}]), models="sim:perfect@error=0.3", k=3)
    (row,) = result.rows()
    assert (row["state"], row["theName"], row["part"], row["vote"]) == ("decided", "Ulm", Mayor(name="A B"), 2)
    assert (row["founded"], row["again"]) == (date(854, 1, 1), Cleaned.model_validate(ROW["again"]))
    assert result.account.errors == 0
    assert Clean(row={"text": "a"}).correct({"text": "a"}, Cleaned.model_validate(ROW))


def test_fields_of_a_model_are_decided_each_by_itself() -> None:
    async def differs(call: Call) -> str:
        kinds = ("city", "town", "city", "city", "town", "city", "city", "city")
        names = ("Ulm", "Ulm", "Rom", "Ulm", "Rom", "Ulm", "Ulm", "Ulm")
        return json.dumps({**ROW, "kind": kinds[call.id.seq % 8], "theName": names[call.id.seq % 8]})

    result = run_sync(Clean.rows([{"text": "a"}]), models=differs, k=3)
    assert (result.value[0]["theName"], result.value[0]["kind"]) == ("Ulm", Kind.CITY)


class Bill(BaseModel):
    number: str
    payers: list[Mayor]
    note: str | None = None


class Bills(RowTask[Bill]):
    def prompt(self, row: dict[str, Any]) -> Prompt:
        return Prompt(user=row["text"])


def test_a_person_decides_the_fields_of_a_model_by_their_types(tmp_path: Path) -> None:
    async def differs(call: Call) -> str:
        return f'number = "{call.id.seq}"\npayers = [{{"name": "A B"}}]'

    rows = Bills.rows([{"text": "a"}])
    options = {"max_draws": 2}
    result = run_sync(rows, models=differs, k=2, run_id="r", runs_dir=tmp_path, options=options)
    assert result.outcome == "undecided"
    decide(tmp_path, "r", "0/step/0", "number=7 note=null")
    result = run_sync(rows, models=differs, k=2, run_id="r", runs_dir=tmp_path, options=options)
    assert result.value == [{"number": "7", "payers": [Mayor(name="A B")], "note": None}]


class Checked(Reply, frozen=True):
    x: Annotated[int, Field(ge=0)]


@pydantic_dataclass
class Point:
    x: int


class Pointed(Reply, frozen=True):
    point: Point


class Alien:
    pass


class Strange(Reply, frozen=True):
    alien: Alien


class Either(Reply, frozen=True):
    part: Mayor | Node


class Made(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    alien: Alien


class Scanned(BaseModel):
    pages: list[bytes] = []


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (lambda: instructions(Checked), "make Checked a BaseModel: .* msgspec.Meta"),
        (lambda: instructions(Pointed), "make Point a BaseModel"),
        (lambda: instructions(Strange), "Strange.alien has the type Alien, which has no JSON schema"),
        (lambda: instructions(Either), "more than one custom type.*a model of pydantic may have them"),
        (lambda: reply_of(Made), "a field of Made has a type that JSON lacks"),
        (lambda: reply_of(Scanned), "Scanned.pages holds bytes, which JSON lacks; make it a text"),
        (
            lambda: new_class(
                "Votes", (Reply,), {"frozen": True}, lambda made: made.update(__annotations__={"vote": str})
            ),
            "vote_: str = msgspec.field",
        ),
    ],
)
def test_a_type_that_no_reply_can_have_is_refused_in_one_sentence(reply: Any, said: str) -> None:
    with pytest.raises(InvalidDefinition, match=said) as raised:
        reply()
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_a_task_whose_reply_is_a_model_runs_on_ray() -> None:
    rows = Clean.rows([{"text": "a"}, {"text": "b"}])
    alone, on_ray = [run_sync(rows, models="sim:perfect@error=0.2", k=2, runtime=name) for name in ("local", "ray")]
    assert (on_ray.outcome, list(on_ray.rows())) == ("completed", list(alone.rows()))
    assert on_ray.account.ballots_sha256 == alone.account.ballots_sha256
