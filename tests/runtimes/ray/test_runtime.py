"""Runs on Ray: they decide what any other runtime decides, whatever dies meanwhile, and leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from urllib.request import urlopen

import pytest
import ray
from ray.exceptions import ActorUnavailableError
from structlog.testing import capture_logs

from microagents import (
    Action,
    AgentTask,
    ChainTask,
    Context,
    Deployment,
    InvalidUsage,
    Prompt,
    Reply,
    Result,
    Role,
    Task,
    ToolCall,
    resume,
    run,
    tool,
)
from microagents.base.errors import InvalidDefinition, PeerLost
from microagents.runs.driver.execute import runtime_of
from microagents.runs.inspection.runs import inspect_run
from microagents.runtimes.dispatcher import RoleMessenger
from microagents.runtimes.ray import actor_group, links, liveness, runtime, starting
from microagents.runtimes.ray.cluster import Cluster, aside, connect, disconnect, free_cpus, living_nodes
from microagents.runtimes.ray.host import Host
from microagents.runtimes.ray.lanes import cpus_for_lanes
from microagents.runtimes.ray.placement import ActorSlot
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from microagents.tasks.drift import Drift, Place
from microagents.tasks.multiplication import Multiplication
from tests.benchmarks.actor_kills import disturbed
from tests.benchmarks.hosts import may_make_hosts
from tests.cli.commands import WRONG, Ran, microagents, write
from tests.runtimes.crowd import (
    Block,
    Blocker,
    Built,
    Die,
    Hasty,
    Mortal,
    Say,
    Speaker,
    Stumbler,
    Sum,
    Summer,
)
from tests.runtimes.ray.joining_node import INPUTS
from tests.runtimes.ray.ray_processes import Program, actors_of, kill, title_of, until

pytestmark = [pytest.mark.usefixtures("ray_here"), pytest.mark.timeout(300)]

MODEL = "sim:perfect@error=0.4,flag=0.1"
"""It errs so often that one wrong count would lead a walk elsewhere."""
SLOW = f"{MODEL},latency=0.03"
TASKS: dict[str, ChainTask[Any, Any]] = {"drift": Drift(length=40), "short": Drift(length=10)}
TWICE = {role: {"num_replicas": 2} for role in ("solver", "voter", "redflagger")}
WAIT_S = 100.0
ROOT = Path(__file__).parents[3]


def apart(given: Deployment | type[Role]) -> Deployment:
    """Give a role actors of its own: one with a number of replicas shares none."""
    deployment = given if isinstance(given, Deployment) else Deployment(role=given)
    return deployment.model_copy(update={"num_replicas": deployment.num_replicas})


def digests(result: Result) -> tuple[str, str, str]:
    return result.outcome, result.account.decisions_sha256, result.account.ballots_sha256


async def done(task: Task | Sequence[Task], **options: Any) -> Result:
    async with asyncio.timeout(WAIT_S):
        return await run(task, **{"models": MODEL, "k": 2, "runs_dir": None, **options})


@cache
def undisturbed(task: str, model: str = MODEL) -> tuple[str, str, str]:
    return digests(asyncio.run(run(TASKS[task], models=model, k=2, runs_dir=None)))


@asynccontextmanager
async def opened(*deployments: Deployment | type[Role], **settings: Any) -> AsyncIterator[RoleMessenger]:
    given = [apart(each) for each in deployments]
    async with (
        asyncio.timeout(WAIT_S),
        runtime_of(
            "ray", Context(run_id="crowd", seed=0, tasks=[], strategy=Maker(), settings=settings), given
        ) as roles,
    ):
        yield roles.messenger


# -- the same decisions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="one actor"),
        pytest.param({"deploy": TWICE, "speculate": False}, id="two actors a role, step by step"),
    ],
)
def test_decisions_and_ballots_are_those_of_every_other_runtime(options: dict[str, Any]) -> None:
    assert digests(asyncio.run(done(TASKS["drift"], runtime="linked"))) == undisturbed("drift")
    assert digests(asyncio.run(done(TASKS["drift"], runtime="ray", **options))) == undisturbed("drift")


def test_lanes_take_inputs_as_they_have_room_and_decide_the_same() -> None:
    inputs = [Drift(length=length) for length in (25, 1, 12, 5, 3, 8)]
    alone = asyncio.run(done(inputs))
    for lanes in (1, 2):
        together = asyncio.run(done(inputs, runtime="ray", lanes=lanes, concurrency=3))
        assert digests(together) == digests(alone)
        assert together.value == alone.value


@pytest.mark.slow
def test_calls_that_ran_though_ray_cannot_say_so_change_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(0)

    async def unsure(reference: Any) -> Any:
        answer = await asyncio.wrap_future(reference.future())
        if random.random() < 0.2:
            raise ActorUnavailableError("the connection broke", None)
        return answer

    for module in (links, liveness):
        monkeypatch.setattr(module, "future_of", unsure)
    result = asyncio.run(done(TASKS["short"], runtime="ray", deploy=TWICE))
    assert digests(result) == undisturbed("short")


# -- what dies --------------------------------------------------------------------------------------------------------------------


def test_killed_conductors_and_roles_change_nothing_of_how_a_problem_is_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_group, "MAX_DEATHS", 100)
    problem = Multiplication(digits=5)
    slower = f"{MODEL},latency=0.15"  # it has few turns one after another
    right = asyncio.run(run(problem, models=slower, k=2, runs_dir=None))
    actors = {"votes": ("solver", "voter", "redflagger"), "problems": ("decomposer", "composer", "discriminator")}
    together = {role: {"colocate": actor} for actor, roles in actors.items() for role in roles}
    deploy = {"recursiveconductor": {"num_replicas": 2}, **together}
    result, kills = asyncio.run(disturbed(problem, Random(0), deploy=deploy, models=slower, k=2, runs_dir=None))
    assert kills
    assert digests(result) == digests(right)
    assert (result.value, result.account.steps, result.account.in_flight) == (right.value, right.account.steps, 0)


async def test_a_role_that_dies_of_every_message_is_given_up_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_group, "MAX_DEATHS", 1)
    async with opened(Mortal, Summer) as messenger:
        with (
            capture_logs() as logs,
            pytest.raises(PeerLost, match=r"^Mortal/0 is lost: it died 2 times within 10 minutes"),
        ):
            await messenger.ask(Die())
        with pytest.raises(PeerLost, match="Mortal/0"):
            await messenger.ask(Die())
        assert await messenger.ask(Sum(key=1, depth=3)) == 8, "others go on"
    assert [log["replica"] for log in logs] == ["Mortal/0"] * 2


class Deadly(Drift):
    def prompt(self, state: Place) -> Prompt:
        if self.length == 3:
            os._exit(9)
        return super().prompt(state)


async def test_an_input_whose_code_ends_its_process_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(actor_group, "MAX_DEATHS", 1)
    tasks = [Deadly(length=length) for length in (1, 3, 2)]
    with (
        capture_logs(),
        pytest.raises(PeerLost, match=r"/0 is lost: it died 2 times .*; it was at work on inputs? .*\b1\b"),
    ):
        await done(tasks, runtime="ray", lanes=1, runs_dir=tmp_path)


async def test_one_that_dies_while_it_takes_the_place_of_another_is_followed_as_well(tmp_path: Path) -> None:
    async with opened(Deployment(role=Stumbler, options={"counts": str(tmp_path / "counts")})) as messenger:
        assert await messenger.ask(Built()) == 1
        kill(*actors_of(os.getpid()))
        assert await messenger.ask(Built()) == 4


async def test_actors_that_die_together_find_each_other_however_slowly_one_is_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create, build = starting.ActorStarter.create, starting.ActorStarter.build
    is_built = asyncio.Event()

    async def create_the_other_late(self: starting.ActorStarter, slot: ActorSlot) -> None:
        if slot.name == "Summer/1" and slot.incarnation:
            await is_built.wait()
        await create(self, slot)

    async def build_one(self: starting.ActorStarter, slot: ActorSlot, slots: Mapping[str, ActorSlot]) -> None:
        await build(self, slot, slots)
        if slot.name == "Summer/0" and slot.incarnation:
            is_built.set()

    monkeypatch.setattr(starting.ActorStarter, "create", create_the_other_late)
    monkeypatch.setattr(starting.ActorStarter, "build", build_one)
    async with opened(Deployment(role=Summer, num_replicas=2)) as messenger:
        assert await messenger.ask(Sum(key=1, depth=3)) == 8
        for each in actors_of(os.getpid()):
            kill(each)
        async with asyncio.timeout(30.0):
            assert await messenger.ask(Sum(key=1, depth=3)) == 8


async def test_a_role_that_asks_a_mortal_while_it_starts_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_group, "MAX_DEATHS", 1)
    with pytest.raises(PeerLost, match=r"Mortal/0 .* it died while it was started, 2 times"):
        async with opened(Hasty, Mortal):
            pytest.fail("it must not open")


async def test_a_role_that_blocks_its_event_loop_is_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_group, "MAX_DEATHS", 0)
    for name, value in {"PING_EVERY_S": 0.1, "QUIET_S": 0.5, "SILENT_S": 1.0}.items():
        monkeypatch.setattr(liveness, name, value)
    async with opened(Blocker) as messenger:
        with pytest.raises(
            PeerLost, match=r"Blocker/0 .* it was not heard of for 1 s, but its node was: it is stopped, or code"
        ):
            await messenger.ask(Block())


# -- one program, from its start to its end ----------------------------------------------------------------------------------------


def command(*words: str) -> tuple[str, ...]:
    return ("-m", "microagents", *words)


def walk(length: int, model: str) -> tuple[str, ...]:
    words = (
        "-o", f"length={length}", "--model", model, "-k", "2", "--runtime", "ray", "--run-id", "r", "--json",
        "--no-speculate",
    )  # fmt: skip
    return ("run", "drift", *words)


WALK = command(*walk(40, SLOW))


def test_nothing_is_left_of_a_run_that_completed_and_its_json_stands_alone() -> None:
    with Program(*command(*walk(10, MODEL))) as program:
        code, out, err = program.end()
        assert code == WRONG
        assert re.fullmatch(
            r".*: starting on Ray\n.*: started on Ray in [\d.]+ s: Ray [\d.]+ s, actors [\d.]+ s\n", err
        )
        shown = json.loads(out)
        assert (shown["outcome"], shown["decisions_sha256"], shown["ballots_sha256"]) == undisturbed("short")
        until(lambda: not program.left())


def test_no_actor_is_left_of_a_run_that_failed() -> None:
    Path("broken.py").write_text(
        "from microagents.tasks.drift import Drift, Place\n\n\nclass Broken(Drift):\n"
        "    def advance(self, state, reply):\n        raise KeyError('colour')\n"
    )
    ran = microagents("run", "broken.py:Broken", "-o", "length=9", "--runtime", "ray", "--model", MODEL)
    assert ran.code == 1
    assert "Broken.advance raised KeyError('colour') at step 0 (broken.py:6)" in ran.err
    assert "Traceback" not in ran.err
    until(lambda: not actors_of(os.getpid()))


def test_a_run_that_is_interrupted_saves_and_leaves_nothing_and_is_resumed_to_the_same_end() -> None:
    with Program(*WALK) as program:
        until(lambda: decided_steps() > 3)
        program.press_ctrl_c()
        code, out, _ = program.end()
        assert code == 130
        assert json.loads(out)["outcome"] == "interrupted"
        until(lambda: not program.left())
    assert_resumed_here()


def test_a_run_that_is_terminated_while_it_starts_ends_without_waiting_for_its_place() -> None:
    with Program(*command(*walk(40, SLOW), "--deploy", "voter.resources.unobtainium=1")) as program:
        until(lambda: bool(program.actors()))
        program.process.send_signal(signal.SIGTERM)
        code, out, err = program.end()
        assert (code, out) == (130, "")
        assert err.splitlines()[-1].startswith("microagents: interrupted before its first record; nothing was started")
        until(lambda: not program.left())


def test_a_driver_that_is_killed_leaves_nothing_and_the_run_is_resumed_to_the_same_end() -> None:
    with Program(*WALK) as program:
        until(lambda: decided_steps() > 3)
        program.process.send_signal(signal.SIGKILL)
        until(lambda: not program.left(agents=False))
    shutil.copytree("runs", "kept")
    assert_resumed_here()
    ran = microagents("resume", "r", "--json", "--runs-dir", "kept", "--trust-journal")
    assert ran.code == WRONG
    assert ran.json["runtime"] == "ray", "as last time"
    assert (ran.json["outcome"], ran.json["decisions_sha256"], ran.json["ballots_sha256"]) == undisturbed("drift", SLOW)


WATCHFUL = "from microagents.runtimes.ray import liveness; liveness.PING_EVERY_S = 1.0; from microagents.cli import main; main()"


def test_a_run_whose_ray_answers_no_more_ends_with_a_sentence_while_a_lane_needs_another_process() -> None:
    with Program("-c", WATCHFUL, *walk(200, SLOW)) as program:
        until(lambda: decided_steps() > 3)
        (lane,) = program.actors()
        (state,) = [each for each in program.rays_own() if b"gcs_server" in title_of(each)]
        os.kill(state, signal.SIGSTOP)
        kill(lane)
        code, out, err = program.end()
        assert (code, out) == (1, "")
        assert re.search(r"(Ray|the head of Ray) has not answered for 20 s|it has not answered for 20 s", err)
        assert "all decisions so far are kept" in err.splitlines()[-1]
    assert run_virtual(resume("r", runtime="local")).account.steps == 200


def test_a_host_that_is_cut_off_is_told_of_within_40_s_and_its_input_goes_on() -> None:
    """The command also stops a host, and kills the Ray beside the driver."""
    if not may_make_hosts():
        pytest.skip("no network namespaces can be made here: they take root and `ip`")
    # In a process of its own, since it sets the token of its Ray.
    words = ["-m", "tests.benchmarks.hosts", "--fault", "link"]
    ran = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "event loop" not in ran.stdout


def decided_steps() -> int:
    with suppress(InvalidUsage):  # it has not begun
        return inspect_run(Path("runs"), "r").account.decided
    return 0


def assert_resumed_here() -> None:
    """In this process, where waiting for the model takes no time."""
    assert digests(run_virtual(resume("r", runtime="local"))) == undisturbed("drift", SLOW)


def written_by(module: str, end: Path) -> Any:
    with Program("-m", f"tests.runtimes.ray.{module}", str(end), PYTHONPATH=str(ROOT)) as program:
        code, _, err = program.end()
        assert code == 0, err
    return json.loads(end.read_text())


def test_a_node_that_joins_gets_a_lane_and_changes_no_decision(tmp_path: Path) -> None:
    assert tuple(written_by("joining_node", tmp_path / "end.json")) == digests(
        asyncio.run(run(INPUTS, models=SLOW, k=2, runs_dir=None))
    )


def test_lanes_without_a_cpu_ask_for_nodes_and_begin_when_these_come(tmp_path: Path) -> None:
    found = written_by("growing_cluster", tmp_path / "end.json")
    assert found == {"lanes": [1, 2], "outcome": "interrupted", "still_asked": 0}


def test_actors_nodes_and_drivers_that_are_killed_at_random_change_no_decision() -> None:
    with Program("-m", "tests.benchmarks.lane_kills", "--kills", "2", PYTHONPATH=str(ROOT)) as program:
        code, out, err = program.end()
        assert code == 0, err
    assert "2 kills" in out


# -- logs -------------------------------------------------------------------------------------------------------------------------


async def test_what_a_role_logs_or_prints_comes_back_once_with_its_name(capfd: pytest.CaptureFixture[str]) -> None:
    with capture_logs() as logs:
        async with opened(Deployment(role=Speaker, colocate="lane")) as messenger:
            await messenger.ask(Say(text="hello", input=7))
            await messenger.ask(Say(text="again"))
    by = {"run_id": "crowd", "replica": "Speaker/0", "input": 7, "log_level": "warning"}
    said = [{"event": "hello", "level": "high", "number": 7, **by}, {"event": "printed hello", "printed": True, **by}]
    assert [log for log in logs if "hello" in log["event"]] == said
    assert "hello" not in "".join(capfd.readouterr())


def test_totals_of_a_run_on_a_cluster_are_metrics_of_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "may_grow", lambda: True)
    (node,) = ray.nodes()  # type: ignore[no-untyped-call]
    address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    ended = asyncio.Event()

    async def watched() -> Result:
        running = asyncio.create_task(
            done(Drift(length=400), models=SLOW, runtime="ray", run_id="seen", interrupt=ended)
        )
        decided = re.compile(r"^ray_microagents_decisions_total\{.*\} [1-9]", re.MULTILINE)
        await asyncio.to_thread(until, lambda: decided.search(read_from(address)) is not None)
        ended.set()
        return await running

    assert asyncio.run(watched()).account.decided > 0
    (line,) = [each for each in read_from(address).splitlines() if each.startswith("ray_microagents_calls_total{")]
    assert 'microagents_run_id="seen"' in line


def test_a_forked_child_leaves_the_connection_of_its_parent_alone() -> None:
    forgotten: list[Any] = [ray.remote(num_cpus=0)(type("Idle", (), {})).remote()]
    forgotten.append(forgotten)  # so that only the garbage collector frees it
    del forgotten
    child = os.fork()
    if not child:
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    assert asyncio.run(aside(ray.nodes))


def read_from(address: str) -> str:
    with suppress(OSError), urlopen(address, timeout=10) as answer:
        return str(answer.read().decode())
    return ""


# -- bad input ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deploy", [{"resources": {"CPU": 1}}, {"num_cpus": 1e-7}])
async def test_what_ray_does_not_take_is_one_sentence(deploy: dict[str, Any]) -> None:
    with pytest.raises(InvalidDefinition, match="Solver/0 cannot be deployed like this"):
        await done(TASKS["drift"], runtime="ray", deploy={"solver": deploy})


async def test_a_lane_reserves_a_cpu_that_the_next_run_does_not_take() -> None:
    await asyncio.to_thread(until, lambda: free_cpus() == living_nodes()[0][1])
    whole, ended = free_cpus(), asyncio.Event()
    running = asyncio.create_task(done(Drift(length=4000), models=SLOW, runtime="ray", interrupt=ended))
    await asyncio.to_thread(until, lambda: free_cpus() == whole - 1)
    assert cpus_for_lanes(0, is_shared=True) == whole - 1
    ended.set()
    await running
    await asyncio.to_thread(until, lambda: free_cpus() == whole)


@pytest.mark.slow
async def test_ray_s_timeline_shows_a_share_of_the_handled_requests() -> None:
    await done(Drift(length=100), models=SLOW, runtime="ray", speculate=False)

    def shown() -> bool:
        spans = [(each["cat"], each["dur"]) for each in ray.timeline() if each["ph"] == "X"]
        draws = [duration_us for name, duration_us in spans if name == "task::Solver/0: Draw"]
        return max(draws, default=0) > 20_000 and any(name == "task::Voter/0: Elect" for name, _ in spans)

    await asyncio.to_thread(until, shown)


@tool("read_only")
def process() -> str:
    """The process that a tool runs in."""
    assert Path("here").exists()
    return f"pid-{os.getpid()}"


class Where(AgentTask):
    tools = (process,)

    def statement(self) -> str:
        return "Tell where tools run."

    def expert(self, prompt: Prompt, _: type[Reply]) -> Reply:
        if "\nAction " not in prompt.user:
            return Action(calls=[ToolCall("process", {})])
        return Action(calls=[ToolCall("end", {"answer": re.findall(r"pid-(\d+)", prompt.user)[-1]})])


async def test_tools_run_where_the_command_was_given_unless_they_are_sent_elsewhere_but_in_its_folder() -> None:
    write("here", "")
    for deploy, is_here in (({}, True), ({"executor": {"colocate": "lane"}}, False)):
        result = await done(Where(), models="sim:perfect", k=None, runtime="ray", deploy=deploy)
        assert isinstance(result.value, dict)
        assert (int(result.value["result"]["answer"]) == os.getpid()) == is_here


async def test_what_no_node_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "LOOK_S", 0.5)
    waits: list[tuple[str, str, bool]] = []
    monkeypatch.setattr(starting, "set_waiting", lambda *of, is_waiting: waits.append((*of, is_waiting)))
    lacking = "it needs 3 unobtainium on one node, and the largest has 0"
    with (
        capture_logs() as logs,
        pytest.raises(PeerLost, match=rf"Summer/0 .* no room for it within 1 s \(max_outage_s\): {lacking}"),
    ):
        async with opened(Deployment(role=Summer, resources={"unobtainium": 3}), max_outage_s=1):
            pytest.fail("it must not open")
    assert waits == [("crowd", "Summer/0", True), ("crowd", "Summer/0", False)]
    said = {"event": "waiting for a node", "replica": "Summer/0", "lacking": lacking, "max_outage_s": 1}
    assert [said] == [{name: log.get(name) for name in said} for log in logs if log["event"] == said["event"]]


@pytest.mark.parametrize(
    ("deploy", "said"),
    [
        ({"solvr": {}}, "did you mean 'solver'"),
        ({"keeper": {"num_replicas": 2}}, "there is no role to deploy called 'keeper'"),
        ({"solver": {"replicas": 2}}, "did you mean 'num_replicas'"),
        ({"solver": {"num_replicas": 0}}, "num_replicas must be .*, not 0"),
    ],
)
def test_a_deployment_that_cannot_be_is_refused_in_a_sentence(deploy: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidUsage, match=said) as raised:
        asyncio.run(done(TASKS["drift"], runtime="ray", deploy=deploy))
    assert "\n" not in str(raised.value)


REFUSED = """
import json
from tests.cli.commands import microagents

words = ("run", "drift", "--runtime", "ray")
told = [microagents(*words, "--address", address) for address in ("127.0.0.1:1", "somewhere")]
print(json.dumps([*told, microagents(*words, env={"RAY_ADDRESS": "http://127.0.0.1:8265"})]))
"""
"""In a process of its own: this one is connected to a Ray."""


def test_an_address_where_no_cluster_answers_is_one_sentence_and_that_of_a_dashboard_is_told_apart() -> None:
    with Program("-c", REFUSED, PYTHONPATH=str(ROOT)) as program:
        code, out, err = program.end()
    assert (code, err) == (0, "")
    refused = [Ran(*each) for each in json.loads(out)]
    assert [ran.code for ran in refused] == [2] * 3
    ((nobody,), (no_address,), (dashboard,)) = [
        [line for line in ran.err.splitlines() if not line.endswith("starting on Ray")] for ran in refused
    ]
    assert "no Ray cluster answers at 127.0.0.1:1" in nobody
    assert "or auto, not 'somewhere'" in no_address
    assert "ray job submit" in dashboard


def test_another_version_of_ray_is_one_sentence() -> None:
    address = ray.get_runtime_context().gcs_address
    with Program("-c", OTHER_VERSION, "run", "drift", "--runtime", "ray", "--address", address) as program:
        code, _, err = program.end()
    assert code == 2
    assert "Version mismatch" in err
    assert "Traceback" not in err


OTHER_VERSION = "import ray; ray.__version__ = '2.0.0'; from microagents.cli import main; main()"


def test_a_task_of_the_main_program_is_told_where_to_go() -> None:
    Path("main.py").write_text(
        "from microagents import run_sync\nfrom microagents.tasks.drift import Drift, Place\n\n\nclass Mine(Drift):\n    pass\n\n\n"
        "run_sync(Mine(length=3), models='sim:perfect', runtime='ray')\n"
    )
    with Program("main.py") as program:
        _, _, err = program.end()
    assert "Mine is defined in the program that was started" in err
    assert "put it into a module of its own" in err


def test_a_process_that_is_connected_to_a_ray_keeps_it() -> None:
    connect(Cluster(address="127.0.0.1:1"))
    disconnect()
    assert ray.is_initialized()


async def test_two_runs_of_one_program_share_a_ray() -> None:
    first, second = await asyncio.gather(*(done(TASKS["drift"], runtime="ray") for _ in range(2)))
    assert digests(first) == digests(second) == digests(await done(TASKS["drift"]))


async def test_an_actor_that_cannot_be_created_ends_the_run_at_once_with_the_whole_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = "a module with a long name " * 20

    class Unable(Host):
        def __init__(self, *_: object) -> None:
            raise ImportError(missing)

    monkeypatch.setattr(starting, "Host", Unable)
    with capture_logs() as logs, pytest.raises(PeerLost) as lost:
        await run(Drift(length=1), models="sim:perfect", runtime="ray", runs_dir=None)
    assert f"it cannot be created: ImportError: {missing.strip()}" in str(lost.value)
    assert "\x1b" not in str(lost.value)
    assert not [log for log in logs if "start anew" in log["event"]]
