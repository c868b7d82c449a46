"""How the roles of a run are put into lanes."""

from __future__ import annotations

import pytest

from microagents.actors.role import Deployment
from microagents.base.errors import InvalidUsage
from microagents.roles import RedFlagger, Solver, Voter
from microagents.roles.keeper import Keeper
from microagents.runs.settings import Settings, validated
from microagents.runtimes.ray import cluster
from microagents.runtimes.ray.lanes import AUTO, cpus_for_lanes, number_of_lanes, with_lanes

ROLES = [
    Deployment(role=Keeper, in_driver=True),
    Deployment(role=Solver),
    Deployment(role=Voter),
    Deployment(role=RedFlagger),
]


def test_each_lane_has_all_roles_in_one_actor_and_the_driver_stays_one() -> None:
    keeper, *others = with_lanes(ROLES, 4)
    assert keeper == ROLES[0]
    assert {(each.num_replicas, each.colocate) for each in others} == {(4, "lane")}


def test_what_is_deployed_on_purpose_stays_as_it_is() -> None:
    one = Deployment(role=Solver, num_replicas=1, resources={"GPU": 1})
    own = Deployment(role=Voter, colocate="core")
    solver, voter, flagger = with_lanes([one, own, ROLES[3]], 3)
    assert solver == one
    assert (voter.num_replicas, voter.colocate) == (3, "core")
    assert (flagger.num_replicas, flagger.colocate) == (3, "lane")


def test_a_number_of_lanes_is_taken_as_it_is_given_and_one_input_has_one() -> None:
    assert [number_of_lanes("7", 2, cpus=4), number_of_lanes(None, 1, cpus=4)] == [7, 1]


@pytest.mark.parametrize(
    ("reserved", "avoided", "is_shared", "expected"),
    [
        (0.0, (), True, 2),
        (2.0, (), True, 4),
        (6.0, (), True, 6),
        (0.0, (), False, 6),
        (0.0, ("b",), True, 1),
        (6.0, ("b",), True, 4),
        (0.0, ("b",), False, 4),
    ],
)
def test_a_run_has_a_lane_for_each_cpu_that_no_other_run_has_reserved_and_none_for_a_silent_node(
    reserved: float, avoided: tuple[str, ...], *, is_shared: bool, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = [
        {"NodeID": name, "Alive": name != "gone", "Resources": {"CPU": cpus}}
        for name, cpus in (("a", 4.0), ("b", 2.0), ("gone", 8.0))
    ]
    monkeypatch.setattr("ray.nodes", lambda: there)
    monkeypatch.setattr(cluster, "available_resources_per_node", lambda: {"a": {"CPU": 1.0}, "b": {"CPU": 1.0}})
    cpus = cpus_for_lanes(reserved, avoided, is_shared=is_shared)
    assert (cpus, number_of_lanes(None, 100, cpus)) == (expected, expected)


def test_a_cluster_without_cpus_has_one_lane() -> None:
    assert number_of_lanes(AUTO, 100, cpus=0) == 1


def test_lanes_are_a_number_or_auto() -> None:
    run = {"models": {"": ("sim:perfect",)}, "run_id": "r"}
    for given, kept in ((3, "3"), ("12", "12"), ("auto", "auto"), (None, None)):
        assert validated(Settings, "the run", {**run, "lanes": given})["lanes"] == kept
    for wrong in (0, -1, "many", 1.5, True):
        with pytest.raises(InvalidUsage, match=r"lanes is a number from 1 on or `auto`"):
            validated(Settings, "the run", {**run, "lanes": wrong})
