"""The Ray cluster that a run lives on: one of its own, started for it, or one at an address."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import threading

import grpc
import ray
from msgspec import Struct
from ray._private import services
from ray._private.authentication.authentication_utils import is_token_auth_enabled

from microagents.errors import InvalidUsage

PROBE_S = 10.0
HOW_TO_ENTER = (
    "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to what `ray get-auth-token` prints on its head, or put that into ~/.ray/auth_token"
)


class Cluster(Struct, frozen=True, kw_only=True):
    """Which one."""

    address: str | None = None
    """``HOST:PORT`` or ``auto``; None: $RAY_ADDRESS, else a Ray of this run's own on this machine."""
    insecure: bool = False
    """Whether another machine's may be used although whoever reaches it may run programs there."""


_connecting = threading.Lock()
_connected: list[Cluster] = []
"""Who uses the connection that was made here."""


def connect(cluster: Cluster) -> None:
    """Connect this process, or use its connection if it has one; `disconnect` when it is not needed any more.

    Raises:
        InvalidUsage: there is no cluster at the address, it runs other versions, or it lets everybody in.
    """
    with _connecting:
        if not ray.is_initialized():
            _connected.clear()
            _init(_address(cluster))
        elif not _connected:  # the program that we are part of has connected itself
            return
        _connected.append(cluster)


def disconnect() -> None:
    """Leave a connection that was made here; the last one ends it, and a Ray that was started with it."""
    with _connecting:
        if _connected:
            _connected.pop()
            if not _connected:
                ray.shutdown()


def _address(cluster: Cluster) -> str:
    address = cluster.address or os.environ.get("RAY_ADDRESS") or "local"
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or _here() or address
    if "://" in address:
        raise InvalidUsage(
            f"{address!r} is not the address of a cluster: give HOST:PORT (6379 on the head node), or submit the run as a job: ray job "
            f"submit --address {address} --working-dir . -- microagents run ... --runtime ray"
        )
    if address not in ("local", "auto"):
        _look_at(address, insecure=cluster.insecure)
    return address


def _init(address: str) -> None:
    log = logging.getLogger("ray")
    level = log.level
    try:
        dashboard = False if address == "local" else None
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=dashboard)
    except Exception as error:  # noqa: BLE001 - Ray raises plain ones too
        said = " ".join(str(error).split())
        token = f"; if its token is another one, {HOW_TO_ENTER}" if address != "local" and is_token_auth_enabled() else ""
        where = "on this machine" if address == "local" else f"on the Ray cluster at {address!r}"
        raise InvalidUsage(f"no run can be started {where}: {said[:300]}{token}") from None
    finally:
        log.setLevel(level)
    # Ray prints a paragraph about every process that dies, to stdout, where the result goes; the runtime says it in a line of the log.
    vars(ray._private.worker)["print_to_stdstream"] = lambda *_, **__: None  # noqa: SLF001 - there is no setting for it


def missing(num_cpus: float, resources: dict[str, float]) -> str | None:
    """What an actor needs that no node has free, in words; None where one has."""
    needed = {**({"CPU": num_cpus} if num_cpus else {}), **resources}
    for name, amount in needed.items():
        most = max((node["Resources"].get(name, 0) for node in ray.nodes() if node["Alive"]), default=0)
        if most < amount:
            return f"it needs {amount:g} {name} on one node, and the largest has {most:g}"
        free = ray.available_resources().get(name, 0)
        if free < amount:
            return f"it needs {amount:g} {name}, of which the cluster has {free:g} free"
    return None


def _here() -> str | None:
    """Where the cluster of this machine is, if Ray has noted one."""
    try:
        return services.canonicalize_bootstrap_address("auto")
    except (ConnectionError, ValueError, OSError):
        return None


def _look_at(address: str, *, insecure: bool) -> None:
    """Ask a cluster, without saying who we are, whether it is there; Ray itself would wait for minutes.

    Whoever reaches one without authentication can run programs on it: that is refused for machines other than this one.
    """
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        raise InvalidUsage(f"{address!r} is no address of a Ray cluster: give HOST:PORT (6379 on the head node), or auto")
    with grpc.insecure_channel(address) as channel:
        try:
            channel.unary_unary("/ray.rpc.NodeInfoGcsService/CheckAlive")(b"", timeout=PROBE_S)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise InvalidUsage(
                    f"no Ray cluster answers at {address}: see that its head runs, and that its port can be reached"
                ) from None
            if not is_token_auth_enabled():
                raise InvalidUsage(f"the Ray cluster at {address} wants its token: {HOW_TO_ENTER}") from None
            return
    if not (insecure or _is_here(host)):
        raise InvalidUsage(
            f"the Ray cluster at {address} lets everybody who reaches it run programs on it; start it with RAY_AUTH_MODE=token, or pass "
            "--insecure if nobody else can reach it"
        )


def _is_here(host: str) -> bool:
    try:
        found = {each[4][0] for each in socket.getaddrinfo(host, None)}
        own = {each[4][0] for each in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(str(each)).is_loopback or each in own for each in found)
