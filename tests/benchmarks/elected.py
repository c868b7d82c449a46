"""Elected columns of Ray Data, with more actors and with deaths: python -m tests.benchmarks.elected [--part NAME] [--rows N] [--kills N].

- digests: the replies of one process and of 1, 2 and 4 actors, with duplicates among the rows.
- kills: actors are killed with SIGKILL amid their calls, under a cap: the same replies, what was bought again, the cap.
- speed: rows a second of 1 and 4 actors by turns, with 50 ms of latency and 20 calls in flight each.
- beside: a plain ``map_batches`` with one sample a row, against the same server on this machine: time, requests, wrong rows.

Exit code 1 if replies DIFFER, the cap is passed, more is bought again than twice the calls in flight (replies that the journal did not have
yet), four actors are less than twice as fast as one, or votes leave as many rows wrong as single samples.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any
from urllib.request import Request, urlopen

import msgspec
import pyarrow as pa
import ray
import ray.data

from microagents.ray_data import Elected, elect
from tests.benchmarks.harness import options_of, served_by, until
from tests.benchmarks.shards import calls_a_second
from tests.shards.towns import SPEC, Towns, asked

LATENCY_S = 0.05
IN_FLIGHT = 20
"""Calls in flight of an actor."""
ERROR = 0.1
"""Share of wrong replies of the server."""
PARTS = ("digests", "kills", "speed", "beside")


def towns(rows: int, *, equal: int = 0) -> pa.Table:
    """Make rows of which the last ones ask what the first ones ask."""
    return pa.table({"id": range(rows), "town": [f"town {number % (rows - equal)}" for number in range(rows)]})


def digest(rows: list[dict[str, Any]]) -> str:
    """Return a digest of rows and their decisions, in the order of rows."""
    ordered = sorted(rows, key=lambda row: int(row["id"]))
    return sha256(msgspec.json.encode(ordered, order="deterministic")).hexdigest()[:16]


def elected(table: pa.Table, folder: Path, actors: int, **given: Any) -> tuple[list[dict[str, Any]], float]:
    """Elect the columns of a table; returns its rows, and the seconds that this took."""
    dataset = ray.data.from_arrow(table).repartition(2 * actors)
    given = {"models": f"{SPEC.format(log=folder / 'log')},latency={LATENCY_S}", "columns": ["town"], **given}
    found = elect(
        dataset, Towns, output=folder, k=2, actors=actors, num_cpus=0.25, batch_size=128, concurrency=IN_FLIGHT, **given
    )
    began_s = time.monotonic()
    return found.take_all(), time.monotonic() - began_s


def alone(table: pa.Table, folder: Path) -> str:
    """Return the digest of the replies of one process."""
    one = Elected(Towns, models=SPEC.format(log=folder / "log"), output=str(folder), columns=["town"], k=2)
    return digest(one(table).to_pylist())


def digests(rows: int, folder: Path) -> bool:
    """Compare the replies of one process and of several actors."""
    table = towns(rows, equal=rows // 10)
    expected, found = alone(table, made(folder / "one")), {}
    for actors in (1, 2, 4):
        found[actors] = digest(elected(table, made(folder / str(actors)), actors)[0])
    is_equal = {*found.values()} == {expected}
    print(f"digests: one process {expected}; actors {found}: {'equal' if is_equal else 'DIFFER'}")
    return is_equal


def kills(rows: int, folder: Path, number: int) -> bool:
    """Kill actors amid their calls, under a cap."""
    table = towns(rows)
    expected = alone(table, made(folder / "undisturbed"))
    undisturbed = len(asked(folder / "undisturbed" / "log"))
    cap, log = undisturbed + (number + 1) * 2 * IN_FLIGHT, made(folder / "killed") / "log"

    def kill() -> None:
        for each in range(number):
            until(partial(has_asked, log, undisturbed * (each + 1) // (number + 2)), "calls")
            pid = int(log.read_text(encoding="utf-8").splitlines()[-1].split()[0])
            os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    found, _ = elected(table, folder / "killed", 2, max_calls=cap)
    killer.join()
    calls = len(asked(log))
    again = calls - undisturbed
    is_equal = digest(found) == expected
    print(
        f"kills: {number} actors; replies {'equal' if is_equal else 'DIFFER'}; {calls} calls where one process makes {undisturbed}: "
        f"{again} more, where {number * IN_FLIGHT} were in flight; cap {cap}: {'kept' if calls <= cap else 'PASSED'}"
    )
    return is_equal and calls <= cap and again <= 2 * number * IN_FLIGHT


def has_asked(log: Path, calls: int) -> bool:
    """Whether the model was asked so often."""
    return len(asked(log)) > calls


def speed(rows: int, folder: Path) -> bool:
    """Take the calls a second of one actor and of four by turns, from the time that all of them work."""
    rates: dict[int, list[float]] = {1: [], 4: []}
    for turn in range(2):
        for actors, found in rates.items():
            place = made(folder / f"{actors}-{turn}")
            with ThreadPoolExecutor(1) as watcher:
                rate = watcher.submit(calls_a_second, place / "log", actors, 2 * rows)
                elected(towns(rows), place, actors)
                found.append(rate.result())
    ratio = sum(rates[4]) / sum(rates[1])
    one, four = (sum(each) / len(each) for each in rates.values())
    print(f"speed: calls a second: 1 actor {one:.0f}, 4 actors {four:.0f}: {ratio:.2f} times")
    return ratio >= 3.5


class Plain:
    """One sample a row, as pipelines of Ray Data ask for it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, table: pa.Table) -> pa.Table:
        """Ask once about each row."""
        with ThreadPoolExecutor(IN_FLIGHT) as pool:
            names = list(pool.map(self._ask, table.column("town").to_pylist()))
        return table.append_column("name", pa.array(names))

    def _ask(self, town: str) -> str:
        body = json.dumps({"messages": [{"role": "user", "content": f"Which town is {town}?"}]}).encode()
        request = Request(f"{self._url}/chat/completions", body, {"Content-Type": "application/json"})
        with urlopen(request, timeout=60) as reply:
            text: str = json.load(reply)["choices"][0]["message"]["content"]
        return text.partition('"')[2].partition('"')[0]


@contextmanager
def served(asked_for: Counter[str]) -> Iterator[str]:
    """Serve a model that is wrong in `ERROR` of its replies; yields its address. It counts the requests for each town."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            town = re.findall(r"Which town is (town \d+)\?", body)[-1]
            with lock:
                asked_for[town] += 1
                is_wrong = Random(f"{town}/{asked_for[town]}").random() < ERROR
            time.sleep(LATENCY_S)
            text = f'name = "{"Elsewhere" if is_wrong else town.title()}"\ninhabitants = 1000'
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            usage = {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}
            reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "town", "choices": [choice]}
            sent = json.dumps({**reply, "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with served_by(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield f"{address}/v1"


def beside(rows: int, folder: Path) -> bool:
    """Ask one server once a row, and by votes."""
    table, wrong = towns(rows), dict[str, int]()
    for name in ("one sample", "elected"):
        requests = Counter[str]()
        with served(requests) as url:
            began_s = time.monotonic()
            if name == "elected":
                models = f"openai:town@base_url={url},api_key_env=TOWN_KEY"
                found, took_s = elected(table, made(folder), 2, models=models)
            else:
                dataset = ray.data.from_arrow(table).repartition(4)
                found = dataset.map_batches(
                    Plain,
                    batch_format="pyarrow",
                    batch_size=128,
                    compute=ray.data.ActorPoolStrategy(size=2),
                    fn_constructor_kwargs={"url": url},
                    num_cpus=0.25,
                ).take_all()
                took_s = time.monotonic() - began_s
        wrong[name] = sum(row["name"] != row["town"].title() for row in found)
        print(f"beside: {name}: {took_s:.1f} s, {requests.total()} requests, {wrong[name]} of {rows} rows wrong")
    return wrong["elected"] < wrong["one sample"]


def made(folder: Path) -> Path:
    """Make a folder; returns it."""
    folder.mkdir(parents=True)
    return folder


def main() -> None:
    """Run the parts."""
    options = options_of(__doc__, part=PARTS, rows=600, kills=3)
    os.environ["TOWN_KEY"] = "none"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    holds = []
    with tempfile.TemporaryDirectory() as folder:
        for part in options.part:
            arguments = [options.kills] if part == "kills" else []
            holds.append(globals()[part](options.rows, Path(folder, part), *arguments))
    ray.shutdown()
    sys.exit(not all(holds))


if __name__ == "__main__":
    main()
