"""How the roles of a run are put into lanes."""

from __future__ import annotations

import pytest

from microagents.actors.role import Deployment
from microagents.base.errors import InvalidUsage
from microagents.roles import RedFlagger, Solver, Voter
from microagents.roles.recorder import Recorder
from microagents.runs.settings import Settings, validated
from microagents.runtimes.ray import lanes
from microagents.runtimes.ray.lanes import AUTO, cpus_for_lanes, number_of_lanes, with_lanes

ROLES = [
    Deployment(role=Recorder, in_driver=True),
    Deployment(role=Solver),
    Deployment(role=Voter),
    Deployment(role=RedFlagger),
]


def test_each_lane_has_all_roles_in_one_actor_and_the_driver_stays_one() -> None:
    recorder, *others = with_lanes(ROLES, 4, shared=True)
    assert recorder == ROLES[0]
    assert {(each.num_replicas, each.colocate) for each in others} == {(4, "lane")}
    assert {(each.num_replicas, each.colocate) for each in with_lanes(ROLES, 4, shared=False)[1:]} == {(4, "")}


def test_what_is_deployed_on_purpose_stays_as_it_is() -> None:
    one = Deployment(role=Solver, num_replicas=1, resources={"GPU": 1})
    own = Deployment(role=Voter, colocate="core")
    solver, voter, flagger = with_lanes([one, own, ROLES[3]], 3, shared=True)
    assert solver == one
    assert (voter.num_replicas, voter.colocate) == (3, "core")
    assert (flagger.num_replicas, flagger.colocate) == (3, "lane")


def test_a_number_of_lanes_is_taken_as_it_is_given_and_one_input_has_one() -> None:
    assert [number_of_lanes("7", 2, cpus=4), number_of_lanes(None, 1, cpus=4)] == [7, 1]


def test_a_run_has_a_lane_for_each_cpu_that_no_other_run_has_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "living_nodes", lambda: [("a", 4), ("b", 2)])
    monkeypatch.setattr(lanes, "free_cpus", lambda: 1)
    for reserved, is_shared, expected in ((0.0, True, 1), (2.0, True, 3), (6.0, True, 6), (0.0, False, 6)):
        cpus = cpus_for_lanes(reserved, is_shared=is_shared)
        assert (cpus, number_of_lanes(None, 100, cpus)) == (expected, expected)
    assert number_of_lanes(AUTO, 100, cpus=0) == 1


def test_lanes_are_a_number_or_auto() -> None:
    run = {"models": {"": ("sim:perfect",)}, "run_id": "r"}
    for given, kept in ((3, "3"), ("12", "12"), ("auto", "auto"), (None, None)):
        assert validated(Settings, "the run", {**run, "lanes": given}).lanes == kept
    for wrong in (0, -1, "many", 1.5, True):
        with pytest.raises(InvalidUsage, match=r"lanes is a number from 1 on or `auto`"):
            validated(Settings, "the run", {**run, "lanes": wrong})
