"""Connection to a Ray cluster: one started for the run on this machine, or one at an address."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import os
import socket
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any, ParamSpec, TypeVar

import grpc
import ray
from msgspec import Struct
from ray._private import services
from ray._private.authentication.authentication_utils import is_token_auth_enabled
from ray._private.grpc_utils import init_grpc_channel
from ray._private.runtime_env.constants import RAY_JOB_CONFIG_JSON_ENV_VAR
from ray._private.state import actors, available_resources_per_node
from ray.autoscaler.sdk import request_resources
from ray.job_config import JobConfig

from microagents.base.errors import InvalidUsage, PeerLost

P = ParamSpec("P")
T = TypeVar("T")

ANSWER_S = 20.0
"""Seconds without an answer after which Ray has ended. Ray ends a program that has asked it in vain for 60, without a sentence."""
PROBE_S = 10.0
"""Seconds in which a cluster must answer before Ray is asked to connect, since Ray itself waits for minutes."""
NODE_ANSWER_S = 5.0
"""Seconds in which a node must answer while one of its actors does not."""
SILENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
"""Statuses of a question that no server has answered."""
HOW_TO_AUTHENTICATE = (
    "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the output of `ray get-auth-token` on its head, or write that into "
    "~/.ray/auth_token"
)

# A forked child that frees an actor's handle tells Ray so on its parent's own connection, on which the parent is then never answered.
os.register_at_fork(after_in_child=gc.freeze)


class Cluster(Struct, frozen=True, kw_only=True):
    """Cluster that a run uses."""

    address: str | None = None
    """``HOST:PORT`` or ``auto``; None: $RAY_ADDRESS, else a new Ray on this machine, which ends with the run."""
    insecure: bool = False
    """Whether a cluster without authentication on other machines may be used; every client that reaches it can run programs there."""


_connecting = threading.Lock()
"""Held while the connection of this process begins or ends: two runs in threads may do so at the same time."""
_connected: list[Cluster] = []
"""The uses of the connection that `connect` made; empty if the program itself connected to Ray."""
_joined = False
"""Whether the cluster is not one that `connect` started."""


def connect(cluster: Cluster) -> None:
    """Connect this process to a cluster, or share its connection if it has one; each call is paired with one of `disconnect`.

    Raises:
        InvalidUsage: no cluster answers at the address, it runs other versions of Ray or Python, or it has no authentication.
    """
    global _joined  # noqa: PLW0603 - as the connection itself
    with _connecting:
        if not ray.is_initialized():
            _connected.clear()
            address = _address(cluster)
            _init(address)
            _joined = address != "local"
        elif not _connected:  # the program connected to Ray itself, so it also disconnects
            _joined = True
            return
        _connected.append(cluster)


def disconnect() -> None:
    """Leave the connection; the last user ends it, and with it a Ray that was started for it."""
    with _connecting:
        if _connected:
            _connected.pop()
            if not _connected:
                folder = None if _joined else Path(vars(ray._private.worker)["_global_node"].get_session_dir_path())  # noqa: SLF001 - no other way
                ray.shutdown()
                if folder is not None:
                    _remove_session(folder)


def _remove_session(folder: Path) -> None:
    """Remove the folder of logs and sockets of a Ray that was started for a run."""
    latest = folder.with_name("session_latest")
    with suppress(OSError):
        if latest.readlink() == folder:
            latest.unlink()
    rmtree(folder, ignore_errors=True)


async def aside(question: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Ask Ray something that may block, in a thread of its own.

    A question to a Ray that has ended blocks for a minute. The threads of `asyncio.to_thread` would hold up the end of the program so long.

    Raises:
        PeerLost: Ray does not answer.
    """
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[T] = loop.create_future()

    def tell(set_answer: Callable[[Any], None], answer: object) -> None:
        if not answered.done():  # who asked may wait no more
            set_answer(answer)

    def ask() -> None:
        try:
            told: tuple[Callable[[Any], None], object] = answered.set_result, question(*given, **named)
        except Exception as error:  # noqa: BLE001 - for who asked
            told = answered.set_exception, error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, *told)

    threading.Thread(target=ask, daemon=True).start()
    limit = asyncio.timeout(ANSWER_S)
    try:
        async with limit:
            return await answered
    except TimeoutError:
        if limit.expired():
            raise PeerLost("Ray", f"it has not answered for {ANSWER_S:g} s") from None
        raise


def may_grow() -> bool:
    """Return whether nodes may join: not to a Ray of this machine that was started for the run."""
    return _joined


def _address(cluster: Cluster) -> str:
    address = cluster.address or os.environ.get("RAY_ADDRESS") or "local"
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or _local_address() or address
    if "://" in address:
        raise InvalidUsage(
            f"the address of a cluster must be HOST:PORT (6379 on the head node), not {address!r}; or submit the run as a job: ray job "
            f"submit --address {address} --working-dir . -- microagents run ... --runtime ray"
        )
    if address not in ("local", "auto"):
        probe(address, insecure=cluster.insecure)
    return address


def _init(address: str) -> None:
    log = logging.getLogger("ray")
    level = log.level
    try:
        dashboard = False if address == "local" else None
        configured: dict[str, Any] = {}
        if RAY_JOB_CONFIG_JSON_ENV_VAR not in os.environ:  # a submitted job has a configuration already
            configured["job_config"] = _without_working_folder()
        ray.init(
            address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=dashboard,
            **configured,
        )
    except Exception as error:  # noqa: BLE001 - Ray also raises plain exceptions
        text = " ".join(str(error).split())
        if address != "local" and is_token_auth_enabled():
            token = f"; if its token is a different one, {HOW_TO_AUTHENTICATE}"
        else:
            token = ""
        where = "on this machine" if address == "local" else f"on the Ray cluster at {address!r}"
        raise InvalidUsage(f"no run can be started {where}: {text[:300]}{token}") from None
    finally:
        log.setLevel(level)  # ray.init sets the level of the program's own logger
    # Ray prints a paragraph about every process that dies to stdout, which belongs to the result; the runtime logs deaths itself.
    vars(ray._private.worker)["print_to_stdstream"] = lambda *_, **__: None  # noqa: SLF001 - Ray has no setting for it


def _without_working_folder() -> JobConfig:
    """Return a job whose workers do not search the working folder before the packages: a `msgspec.py` there would run in each of them.

    Ray leaves the folder out only for jobs of its own client; without a runtime environment they differ in nothing else.
    """
    return JobConfig(_client_job=True)


def living_nodes(avoided: Collection[str] = ()) -> list[tuple[str, int]]:
    """List the ids of the living nodes and the numbers of their CPUs, most first, without some nodes, by id."""
    nodes = [(str(node["NodeID"]), int(node["Resources"].get("CPU", 0))) for node in _living(avoided)]
    return sorted(nodes, key=lambda node: (-node[1], node[0]))


def _living(avoided: Collection[str]) -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in avoided]


def free_cpus(avoided: Collection[str] = ()) -> int:
    """Count the CPUs that nothing has reserved, without those of some nodes, by id."""
    return int(_free("CPU", avoided))


def _free(resource: str, avoided: Collection[str]) -> float:
    nodes: dict[str, dict[str, float]] = available_resources_per_node()
    return sum(free.get(resource, 0) for node, free in nodes.items() if node not in avoided)


def request_cpus(number: int) -> None:
    """Ask the cluster's autoscaler for a number of CPUs in all; 0 withdraws it. Without an autoscaler it has no effect."""
    request_resources(num_cpus=number)


def missing_resource(actor: Any, num_cpus: float, resources: dict[str, float], avoided: Collection[str]) -> str | None:
    """Describe the resource that an actor waits for; None if a node has taken it, or the cluster has enough of all.

    Args:
        actor: Ray's handle of the actor.
        num_cpus: CPUs that the actor needs.
        resources: amounts of other resources that it needs.
        avoided: ids of nodes that it may not have.
    """
    if actors(actor._actor_id.hex()).get("Address", {}).get("Port"):  # noqa: SLF001 - it has a process, which takes long to start
        return None
    needed = {**({"CPU": num_cpus} if num_cpus else {}), **resources}
    nodes = _living(avoided)
    for name, amount in needed.items():
        most = max((node["Resources"].get(name, 0) for node in nodes), default=0)
        if most < amount:
            return f"it needs {amount:g} {name} on one node, and the largest has {most:g}"
        free = _free(name, avoided)
        if free < amount:
            return f"it needs {amount:g} {name}, of which the cluster has {free:g} free"
    return None


def _local_address() -> str | None:
    """Find the address of a cluster on this machine, if Ray has noted one."""
    try:
        return services.canonicalize_bootstrap_address("auto")
    except (ConnectionError, ValueError, OSError):
        return None


def probe(address: str, *, insecure: bool) -> None:
    """Check that a cluster answers, and that it asks for authentication unless it is on this machine.

    The probe carries no token: a cluster that answers it lets every client run programs.
    """
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        raise InvalidUsage(
            f"the address of a Ray cluster must be HOST:PORT (6379 on the head node), or auto, not {address!r}"
        )
    status = _status_of(grpc.insecure_channel(address), "/ray.rpc.NodeInfoGcsService/CheckAlive", PROBE_S)
    if status in SILENT:
        raise InvalidUsage(
            f"no Ray cluster answers at {address}: check that its head runs and that its port can be reached"
        )
    if status != grpc.StatusCode.OK:
        if not is_token_auth_enabled():
            raise InvalidUsage(f"the Ray cluster at {address} wants its token: {HOW_TO_AUTHENTICATE}")
        return
    if not (insecure or _is_this_machine(host)):
        raise InvalidUsage(
            f"the Ray cluster at {address} lets every client that reaches it run programs; start it with RAY_AUTH_MODE=token, or pass "
            "--insecure if no other client can reach it"
        )


def node_answers(node: str) -> bool:
    """Return whether the raylet of a node answers: it does not if its machine is frozen, or cannot be reached."""
    for each in ray.nodes():
        if each["NodeID"] == node and each["Alive"]:
            host = each["NodeManagerAddress"]
            if ":" in host:
                address = f"[{host}]:{each['NodeManagerPort']}"
            else:
                address = f"{host}:{each['NodeManagerPort']}"
            return _status_of(init_grpc_channel(address), "/grpc.health.v1.Health/Check", NODE_ANSWER_S) not in SILENT
    return False


def _status_of(channel: grpc.Channel, question: str, within_s: float) -> grpc.StatusCode:
    """Ask a server of Ray a question without arguments; returns the status of its answer."""
    with channel:
        try:
            channel.unary_unary(question)(b"", timeout=within_s)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def _is_this_machine(host: str) -> bool:
    try:
        found = {each[4][0] for each in socket.getaddrinfo(host, None)}
        own = {each[4][0] for each in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(str(each)).is_loopback or each in own for each in found)
