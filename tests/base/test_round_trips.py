"""Round trips: what a journal gives back is equal in value and type, or the part that is not is named."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from microagents.base.round_trips import NotGivenBack, RoundTrip

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(st.characters()) | st.binary()
)
VALUES = st.recursive(
    SCALARS | st.decimals() | st.dates() | st.frozensets(st.integers()),
    lambda part: (
        st.lists(part)
        | st.tuples(part)
        | st.dictionaries(st.text(), part)
        | st.dictionaries(st.integers() | st.booleans(), part)
    ),
    max_leaves=8,
)


class Pair(Struct, frozen=True):
    left: Any
    right: float = 0.0


class Longer(Pair, frozen=True):
    more: int = 1


def exact(value: Any) -> Any:
    """Describe a value with the types of all its parts."""
    if isinstance(value, dict):
        return [(exact(key), exact(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [exact(item) for item in value]
    return type(value), repr(value)


@pytest.mark.slow
@given(VALUES)
def test_a_value_of_any_type_comes_back_equal_in_all_types_or_is_refused(value: Any) -> None:
    try:
        _, read = RoundTrip[Any](Any, "state")(value)
    except NotGivenBack as error:
        assert str(error).startswith("state")  # noqa: PT017 - values of both kinds are drawn
    else:
        assert exact(read) == exact(value)


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (Any, {"a": [1, (2, 3)]}, "state['a'][1] is (2, 3), and would come back as [2, 3]"),
        (list, [0, -math.inf], "state[1] is -inf, and would come back as None"),
        (list[float], [0.0, math.nan], "state[1] is nan, which JSON lacks"),
        (Any, [object], "state[0] is <class 'object'>, which JSON lacks"),
        (dict, {"1": {1: 2}}, "state['1'] is {1: 2}, and would come back as {'1': 2}"),
        (Any, [{1}], "state[0] is {1}, and would come back as [1]"),
        (Any, [date(2030, 1, 2)], "state[0] is datetime.date(2030, 1, 2), and would come back as '2030-01-02'"),
        (Pair, Pair((1,)), "state.left is (1,), and would come back as [1]"),
        (Pair, Longer(1), "state is Longer(left=1, right=0.0, more=1), and would come back as Pair(left=1, right=0.0)"),
        (list[int], [1, "x"], "state cannot be read back: Expected `int`, got `str` - at `state[1]`"),
    ],
)
def test_a_part_that_would_not_come_back_is_named_with_its_place(kind: Any, value: Any, said: str) -> None:
    with pytest.raises(NotGivenBack) as refused:
        RoundTrip[Any](kind, "state")(value)
    assert str(refused.value).startswith(said)


def test_a_whole_number_where_a_float_is_declared_goes_on_as_one() -> None:
    written, read = RoundTrip[list[float]](list[float], "state")([1, 0.5])
    assert (written, repr(read)) == (b"[1.0,0.5]", "[1.0, 0.5]")
