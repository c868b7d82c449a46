"""The graph of subtasks: its order, splits, and proposals that cannot take a subtask's place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microagents.base.errors import InvalidUsage
from microagents.systems.documents import Part
from microagents.systems.documents.subtasks import Graph, fault_of


def part(number: int, *depends_on: int, objective: str | None = None) -> Part:
    return Part(id=number, objective=objective or f"part {number}", depends_on=depends_on)


def order(graph: Graph) -> list[str]:
    return [node.objective for node in graph.order()]


def test_the_order_is_topological_and_of_equals_the_first_listed_comes_first() -> None:
    graph = Graph.of("whole", [part(3), part(1, 2), part(2), part(4, 3)])
    assert order(graph) == ["part 3", "part 2", "part 1", "part 4"]


def test_parents_of_a_split_subtask_point_to_each_part_and_each_part_to_each_child() -> None:
    graph = Graph.of("whole", [part(1), part(2, 1), part(3, 2), part(4, 1)])
    new = graph.split("write/part/2", [part(7, objective="x"), part(8, 7, objective="y")])
    assert [(each.at, each.parents, each.depth) for each in new] == [
        ("write/part/2/part/1", ("write/part/1",), 1),
        ("write/part/2/part/2", ("write/part/1", "write/part/2/part/1"), 1),
    ]
    assert order(graph) == ["part 1", "x", "y", "part 3", "part 4"]
    child = next(node for node in graph.order() if node.objective == "part 3")
    assert child.parents == ("write/part/2/part/1", "write/part/2/part/2")


@given(st.data())
def test_a_split_changes_neither_what_is_done_before_it_nor_the_order_of_the_others(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 7))
    nodes = [
        part(number, *sorted(data.draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else ()))
        for number in range(count)
    ]
    nodes = data.draw(st.permutations(nodes))
    graph = Graph.of("whole", nodes)
    before = order(graph)
    cut = data.draw(st.integers(0, count - 1))
    parts = [part(90, objective="x"), part(91, *data.draw(st.sampled_from([(), (90,)])), objective="y")]
    graph.split(graph.order()[cut].at, parts)
    after = order(graph)
    assert after[:cut] == before[:cut]
    assert [each for each in after if each not in "xy"] == [each for each in before if each != before[cut]]
    assert after.index("x") < after.index("y")


@pytest.mark.parametrize(
    ("proposed", "fault"),
    [
        ([], "are 0, which is no split"),
        ([part(1)], "are 1, which is no split"),
        ([part(number) for number in range(100)], "are 100, more than 8"),
        ([part(1, 2), part(2, 1)], "depend on each other in a cycle: 1, 2, 1"),
        ([part(1, 1), part(2)], "depend on each other in a cycle: 1, 1"),
        ([part(1), part(2, 5)], "depend on an id that does not exist: 5"),
        ([part(1), part(1)], "have an id twice"),
        ([part(1), part(2, objective=" ")], "have no objective at id 2"),
        ([part(1), part(2, objective="The   whole")], "repeat a subtask that is being split: 'The   whole'"),
        ([part(1), part(2, objective="the part above")], "repeat a subtask that is being split: 'the part above'"),
        (
            [part(1, objective="Plan the structure of the lecture"), part(2)],
            "plan instead of writing: 'Plan the structure of the lecture'",
        ),
        ([part(1, objective="Outline all sections"), part(2)], "plan instead of writing: 'Outline all sections'"),
    ],
)
def test_a_proposal_that_cannot_take_the_place_of_its_subtask_has_a_fault(proposed: list[Part], fault: str) -> None:
    assert fault_of(proposed, ["The whole", "the part above"], 8) == fault


def test_a_given_graph_with_a_fault_is_refused() -> None:
    with pytest.raises(InvalidUsage, match=r"^the subtasks of the document depend on each other in a cycle: 1, 2, 1$"):
        Graph.of("whole", [part(1, 2), part(2, 1)])
