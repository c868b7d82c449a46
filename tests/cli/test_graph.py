"""`microagents show TASK --graph`: the roles of a strategy and the messages between them, before anything is started."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from msgspec import structs

from microagents.journal.messages import Account, Load
from microagents.runs.driver.graph import GraphRole, RoleGraph
from microagents.runs.driver.role_pictures import svg_of
from tests.cli.commands import microagents


def test_it_lists_roles_and_messages_draws_them_and_gives_them_as_json() -> None:
    shown = microagents("show", "--graph", "multiplication", "--deploy", "voter.num_replicas=3")
    assert (shown.code, shown.err) == (0, "")
    assert "  -> Decomposer: Decompose\n" in shown.out
    assert "Voter x 3: Holds elections." in shown.out
    assert microagents("show", "--graph", "multiplication", "--output", "graph.svg").code == 0
    printed = Path(__file__).parents[2] / "docs/pictures/graph-recursive.svg"
    assert Path("graph.svg").read_text("utf-8") == printed.read_text("utf-8"), "draw the picture of the guide anew"
    texts = {each.text for each in ET.parse("graph.svg").iter("{http://www.w3.org/2000/svg}text")}
    assert {"RecursiveConductor", "Discriminator", "Solver", "Elect", "Solve", "Screen"} <= texts
    graph = json.loads(microagents("show", "--graph", "hanoi", "--strategy", "lead", "--json").out)
    assert graph["roles"][0]["name"] == "LeadConductor"
    draw = next(each for each in graph["messages"] if each["name"] == "Draw")
    assert (draw["sender"], draw["receiver"], draw["is_stream"]) == ("Voter", "Solver", False)
    assert "Sample" in draw["reply"]


def test_a_picture_of_a_live_run_lists_the_replicas_of_each_process() -> None:
    roles = [
        GraphRole(name=name, replicas=1, in_driver=False, asks_models=False, distance=0, subject="")
        for name in ("Voter", "Solver")
    ]
    graph = RoleGraph(strategy="Maker", task="Hanoi", roles=roles, messages=[])
    for processes in (["lane/0 on a, pid 7"] * 2, ["Voter/0 on a, pid 7", "Solver/0 on b, pid 8"]):
        loads = {f"{role.name}/0": Load(process=each) for role, each in zip(roles, processes, strict=True)}
        account = Account(loads=loads)
        drawn = svg_of(structs.replace(graph, placement=account.placement))
        assert drawn.count('class="process"') == len(account.placement) == len(set(processes))
        assert all(f">{process}<" in drawn for process in processes)
        assert all(f">{', '.join(names)}<" in drawn for names in account.placement.values())


def test_it_shows_the_process_of_each_replica_as_the_runtime_would_place_it() -> None:
    assert "\nin driver: Keeper/0, MakerConductor/0, " in microagents("show", "--graph", "hanoi").out
    lanes = microagents("show", "--graph", "hanoi", "--runtime", "ray", "--lanes", "2").out.splitlines()
    assert lanes[-3] == "in driver: Keeper/0"
    assert lanes[-1] == "in lane/1: MakerConductor/1, Voter/1, Solver/1, RedFlagger/1"
    refused = microagents("show", "--graph", "hanoi", "--lanes", "2")
    assert (refused.code, "add --runtime ray" in refused.err) == (2, True)


def test_a_picture_is_as_wide_as_its_lines() -> None:
    assert (
        microagents("show", "--graph", "hanoi", "--deploy", "solver.num_replicas=60", "--output", "graph.svg").code == 0
    )
    root = ET.parse("graph.svg").getroot()
    texts = [*root.iter("{http://www.w3.org/2000/svg}text")]
    ends = [float(each.get("x", "")) + 3 * len(each.text or "") for each in texts]
    assert 0 < max(ends) < float(root.get("width", ""))
    assert float(texts[-1].get("y", "")) < float(root.get("height", ""))
    assert "Solver/59" in (texts[-1].text or "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["hanoi", "--output", "graph.png"],
            "a graph is drawn as SVG; name a file that ends with .svg, not 'graph.png'",
        ),
        (["hanoi", "--output", "no/graph.svg"], "'no/graph.svg' cannot be written: no such file or directory"),
        (["nowhere.py:Task"], "nowhere.py"),
        (["--strategy", "recursive"], "Missing argument 'RUN'"),
    ],
)
def test_wrong_usage_is_one_sentence(words: list[str], said: str) -> None:
    ran = microagents("show", "--graph", *words)
    assert ran.code == 2
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert not Path("graph.png").exists()
