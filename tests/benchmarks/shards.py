"""Runs in shards, with more of them and with deaths: python -m tests.benchmarks.shards [--part NAME] [--rows N] [--kills N] [--inputs N].

- digest: the decisions and the output of one process and of 1, 2, 4 and 8 shards, with duplicates among the rows.
- kills: shards and drivers are killed with SIGKILL amid their calls, and resumed: the same decisions, the cap, calls bought again.
- lanes: calls a second of 1 and 4 shards by turns, with 50 ms of latency and 20 calls in flight each.
- nodes: a run in Ray actors on three hosts, which are network namespaces, of which two are killed by turns and come back; it needs root.
- limiter: processor time of 4 shards by turns without a cap, under a wide one, which each takes a part of once, and under a tight one.
- throttle: a server that refuses more than so many requests at a time, asked by one process and by 4 shards, which share its limit.
- million: short inputs of a simulated model in one shard a CPU: wall time, processor time, memory of all processes.

Exit code 1 if decisions DIFFER, the cap is passed, more is bought again than twice the calls in flight, four shards are less than 3.5 times
as fast as one, sharing a cap takes more than 0.03 of a core for 1,000 calls a second, the server is not used to 0.7 of its limit or refuses
more than 0.03 of the requests, memory grows by half from the first third of the time on, or the wall time is above 1.2 times the
processor time over the CPUs.
"""

from __future__ import annotations

import csv
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median

from microagents.runs.inspection.runs import inspect_run
from tests.benchmarks.harness import options_of, until
from tests.benchmarks.hosts import GCS, HEAD, Hosts, may_make_hosts, start_node, start_nodes
from tests.benchmarks.throttle import serve
from tests.shards.towns import SPEC, asked

ROOT = Path(__file__).parents[2]
LATENCY_S = 0.05
IN_FLIGHT = 20
"""Calls in flight of a shard."""
SHARDS = 3
"""Shards of a run that is killed."""
SIMULATED = "sim:gpt-4.1-mini@error=0.1"
PARTS = ("digest", "kills", "nodes", "lanes", "limiter", "throttle", "million")
SERVER_LIMIT, SERVER_LATENCY_S, SERVED_S = 60, 1.0, 75.0
NODES_LATENCY_S = 0.5
"""A node takes some seconds to come back."""
MOST_OF_A_CORE, TURNS = 0.03, 3
LEAST_IN_USE, MOST_REFUSED = 0.7, 0.03
TREE_EVERY_S = 5.0
MOST_GROWTH, MOST_WALL = 1.5, 1.2


def table(folder: Path, rows: int, *, equal: int = 0) -> Path:
    """Write rows of which the last ones ask what the first ones ask."""
    folder.mkdir(parents=True)
    path = folder / "towns.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(["id", "town"])
        lines.writerows([number, f"town {number % (rows - equal)}"] for number in range(rows))
    return path


def command(folder: Path, run: str, shards: int, *more: str, model: str = "") -> list[str]:
    """Return the command of a run, in one process for 0 shards."""
    model = model or f"{SPEC.format(log=folder / 'log')},latency={LATENCY_S}"
    words = ["run", "tests.shards.towns:Towns", "--inputs", str(folder / "towns.csv"), "-k", "2", "--model", model]
    words += ["--run-id", run, "--runs-dir", str(folder), "--yes", *more]
    return [sys.executable, "-m", "microagents", *words, *(["--shards", str(shards)] if shards else [])]


def done(words: list[str]) -> float:
    """Do a command; returns the seconds that it took."""
    began_s = time.monotonic()
    subprocess.run(words, check=True, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - began_s


def begun(words: list[str]) -> subprocess.Popen[bytes]:
    """Begin a command."""
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def decisions(folder: Path, run: str) -> str:
    """Return the digest of a run's decisions."""
    return inspect_run(folder, run).account.decisions_sha256[:16]


def digest(rows: int, folder: Path) -> bool:
    """Compare the decisions and the output of one process and of several shards."""
    table(folder, rows, equal=rows // 10)
    found, outputs = dict[int, str](), dict[int, bytes]()
    for shards in (0, 1, 2, 4, 8):
        out = folder / f"{shards}.csv"
        done(command(folder, f"of-{shards}", shards, "-o", str(out), model=SIMULATED))
        found[shards], outputs[shards] = decisions(folder, f"of-{shards}"), out.read_bytes()
    is_equal = len({*found.values()}) == len({*outputs.values()}) == 1
    print(f"digest: by shards (0: one process) {found}: {'equal, outputs too' if is_equal else 'DIFFER'}")
    return is_equal


def kills(rows: int, folder: Path, number: int) -> bool:
    """Kill shards and drivers by turns amid their calls, and resume: under a cap with room for lost calls, and under half of the calls."""
    table(folder, rows)
    log = folder / "log"
    done(command(folder, "undisturbed", 0, "--concurrency", str(SHARDS * IN_FLIGHT)))
    undisturbed, lost = len(asked(log)), number * SHARDS * IN_FLIGHT
    code, calls, is_kept = killed(folder, "killed", undisturbed + 2 * lost, number, undisturbed)
    again, is_equal = calls - undisturbed, decisions(folder, "killed") == decisions(folder, "undisturbed")
    account = inspect_run(folder, "killed").account
    print(
        f"kills: {number}, exit code {code}: decisions {'equal' if is_equal else 'DIFFER'}; {calls} calls where one process makes "
        f"{undisturbed}: {again} more, where at most {lost} were in flight, and the journals count up to {account.lost_in_flight} lost; "
        f"cap {undisturbed + 2 * lost}: {'kept' if is_kept else 'PASSED'}"
    )
    half = undisturbed // 2
    code, calls, is_half_kept = killed(folder, "half", half, number, half)
    stopped = inspect_run(folder, "half").outcome
    print(f"kills: {number}, cap {half}: {calls} calls, {stopped}, {'kept' if is_half_kept else 'PASSED'}")
    return is_equal and is_kept and again <= 2 * lost and is_half_kept and stopped == "stopped"


def killed(folder: Path, run: str, cap: int, number: int, expected: int) -> tuple[int, int, bool]:
    """Do a run under a cap and kill it; returns its exit code, its calls, and whether the cap was kept and no call was uncounted."""
    log = folder / "log"
    log.unlink()
    words = command(folder, run, SHARDS, "--max-calls", str(cap), "--concurrency", str(SHARDS * IN_FLIGHT))
    driver = begun(words)
    for each in range(number):
        until(partial(has_asked, log, expected * (each + 1) // (number + 2), driver), "calls")
        if each % 2:
            driver.kill()
            driver.wait()
            resume = ["resume", run, "--runs-dir", str(folder), "--yes"]
            driver = begun([sys.executable, "-m", "microagents", *resume])
        else:
            with suppress(ProcessLookupError):
                os.kill(int(log.read_text(encoding="utf-8").splitlines()[-1].split()[0]), signal.SIGKILL)
    code, calls, account = driver.wait(), len(asked(log)), inspect_run(folder, run).account
    return code, calls, calls <= cap and calls <= account.calls + account.lost_in_flight


def has_asked(log: Path, calls: int, driver: subprocess.Popen[bytes]) -> bool:
    """Whether the model was asked so often, or the driver has ended."""
    return len(asked(log)) > calls or driver.poll() is not None


def lanes(rows: int, folder: Path) -> bool:
    """Take the calls a second of one shard and of four by turns, from the time that all of them work."""
    rates: dict[int, list[float]] = {1: [], 4: []}
    for turn in range(2):
        for shards, found in rates.items():
            place = folder / f"{shards}-{turn}"
            table(place, rows * shards)
            with ThreadPoolExecutor(1) as watcher:
                rate = watcher.submit(calls_a_second, place / "log", shards, rows * shards * 2)
                done(command(place, "lanes", shards, "--concurrency", str(shards * IN_FLIGHT)))
                found.append(rate.result())
    one, four = (sum(each) / len(each) for each in rates.values())
    print(f"lanes: calls a second: 1 shard {one:.0f}, 4 shards {four:.0f}: {four / one:.2f} times")
    return four >= 3.5 * one


def calls_a_second(log: Path, processes: int, last: int) -> float:
    """Count the calls from the time that so many processes make them until the last one that is watched."""
    until(partial(is_shared, log, processes), f"{processes} processes at work", every_s=0.2)
    first, began_s = len(asked(log)), time.monotonic()
    until(lambda: len(asked(log)) >= last, f"{last} calls", every_s=0.2)
    return (len(asked(log)) - first) / (time.monotonic() - began_s)


def is_shared(log: Path, processes: int) -> bool:
    """Whether so many processes have made calls."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return len({line.partition(" ")[0] for line in lines}) >= processes


def nodes(rows: int, folder: Path, number: int) -> bool:
    """Kill the nodes beside the driver's by turns, amid the calls of all shards."""
    if not may_make_hosts():
        print("nodes: skipped, since network namespaces need root and `ip`")
        return True
    table(folder, rows)
    log = folder / "log"
    done(command(folder, "undisturbed", 0, "--concurrency", str(SHARDS * IN_FLIGHT)))
    undisturbed = len(asked(log))
    log.unlink()
    slow = f"{SPEC.format(log=log)},latency={NODES_LATENCY_S}"
    words = command(folder, "nodes", SHARDS, "--concurrency", str(SHARDS * IN_FLIGHT), model=slow)
    words += ["--runtime", "ray", "--address", GCS]
    killed_nodes = 0
    with tempfile.TemporaryDirectory(prefix="h-", dir="/tmp") as short, Hosts() as hosts:  # a socket's path is short
        start_nodes(hosts, Path(short))
        driver = hosts.start(HEAD, *words[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for each in range(number):
            until(partial(are_at_work, log, SHARDS, driver), "calls of all shards")
            killed_nodes += driver.poll() is None
            host = 1 + each % 2
            hosts.kill(host)
            start_node(hosts, Path(short), host)
        code = driver.wait()
    account, calls = inspect_run(folder, "nodes").account, len(asked(log))
    is_equal = decisions(folder, "nodes") == decisions(folder, "undisturbed")
    again, in_flight = calls - undisturbed, killed_nodes * IN_FLIGHT
    print(
        f"nodes: {killed_nodes} killed, exit code {code}: decisions {'equal' if is_equal else 'DIFFER'}; {calls} calls where one process "
        f"makes {undisturbed}: {again} more, where at most {in_flight} were in flight, and the journals count up to "
        f"{account.lost_in_flight} lost"
    )
    return code == 0 and is_equal and calls <= account.calls + account.lost_in_flight and again <= 2 * in_flight


def are_at_work(log: Path, processes: int, driver: subprocess.Popen[str]) -> bool:
    """Whether the last calls are of so many processes, or the driver has ended."""
    lines = log.read_text(encoding="utf-8").splitlines()[-4 * processes * IN_FLIGHT :] if log.exists() else []
    return len({line.partition(" ")[0] for line in lines}) >= processes or driver.poll() is not None


def limiter(rows: int, folder: Path) -> bool:
    """Compare the processor time of shards without a cap and under two caps, by turns."""
    caps = {"no": [], "wide": ["--max-calls", str(1000 * rows)], "tight": ["--max-calls", str(4 * rows)]}
    used_s: dict[str, list[float]] = {name: [] for name in caps}
    calls = 0
    for turn in range(TURNS):
        for name, words in caps.items():
            place = folder / f"{name}-{turn}"
            table(place, rows)
            before_s = children_s()
            done(command(place, "limited", 4, *words, "--concurrency", str(4 * IN_FLIGHT)))
            used_s[name].append(children_s() - before_s)
            calls = inspect_run(place, "limited").calls
    no, wide, tight = (median(each) for each in used_s.values())
    bounds, parts = ((more - less) * 1000 / calls for more, less in ((wide, no), (tight, wide)))
    turns = "; ".join(f"{name}: {', '.join(f'{each:.1f}' for each in found)}" for name, found in used_s.items())
    print(
        f"limiter: {calls:,} calls of 4 shards; seconds of processor by cap: {turns}; for 1,000 calls a second each shard's own bounds "
        f"take {bounds:.1%} of a core, and sharing the cap {parts:.1%}"
    )
    return parts <= MOST_OF_A_CORE


def children_s() -> float:
    """Return the processor time of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def throttle(folder: Path) -> bool:
    """Let one process, then four shards follow the limit of a server."""
    holds = []
    for shards in (0, 4):
        place = folder / str(shards)
        place.mkdir(parents=True)
        (place / "walks.jsonl").write_text('{"length": 100000}\n' * 200, encoding="utf-8")
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        served = (theirs, [SERVER_LIMIT], SERVED_S, SERVER_LATENCY_S)
        server = multiprocessing.get_context("spawn").Process(target=serve, args=served, daemon=True)
        server.start()
        words = ["run", "drift", "--inputs", str(place / "walks.jsonl"), "--runs-dir", str(place), "--yes", "-k", "2"]
        words += ["--model", f"openai:m@base_url=http://127.0.0.1:{ours.recv()}/v1"]
        run = begun([sys.executable, "-m", "microagents", *words, *(["--shards", str(shards)] if shards else [])])
        limit, mean, _, refusals, _ = ours.recv()
        share = ours.recv()
        run.send_signal(signal.SIGINT)
        run.wait()
        ours.send(None)
        server.join()
        print(
            f"throttle: {shards or 'no'} shards: {mean:.1f} of {limit} requests in flight after {SERVED_S - 45:.0f} s; {refusals} refused, "
            f"{share:.2%} of all"
        )
        holds.append(mean >= LEAST_IN_USE * limit and share <= MOST_REFUSED)
    return all(holds)


def million(inputs: int, folder: Path) -> bool:
    """Do many short inputs, one shard a CPU."""
    table(folder, inputs)
    cpus, before_s = os.cpu_count() or 1, children_s()
    words = command(folder, "many", cpus, "-o", str(folder / "out.csv"), model="sim:perfect")
    words[words.index("-k") + 1] = "1"
    began_s, sizes = time.monotonic(), list[int]()
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            time.sleep(TREE_EVERY_S)
            sizes.append(resident_mb(str(folder)))  # and no look at the journals, which takes a fifth of a CPU
    wall_s, cpu_s = time.monotonic() - began_s, children_s() - before_s
    early, most = max(sizes[: len(sizes) // 3 + 1]), max(sizes)
    result = inspect_run(folder, "many")
    print(
        f"million: {inputs:,} inputs, {result.outcome}, in {wall_s:.0f} s; {cpu_s:.0f} s of processor on {cpus} CPUs: wall "
        f"{wall_s * cpus / cpu_s:.2f} times the processor time over the CPUs; memory of all processes {early} MB in "
        f"the first third of the time, {most} MB at most"
    )
    return result.outcome == "completed" and wall_s <= MOST_WALL * cpu_s / cpus and most <= MOST_GROWTH * early


def resident_mb(name: str) -> int:
    """Sum the resident memory of all processes that name a folder."""
    found = 0
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if name in (each / "cmdline").read_text(encoding="utf-8", errors="replace"):
                found += int((each / "statm").read_text(encoding="utf-8").split()[1])
        except OSError:  # it has ended
            continue
    return found * resource.getpagesize() >> 20


def main() -> None:
    """Run the parts."""
    options = options_of(__doc__, part=PARTS, rows=600, kills=6, inputs=1_000_000)
    holds = list[bool]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts: dict[str, Callable[[], bool]] = {
            "digest": lambda: digest(options.rows, folder / "digest"),
            "kills": lambda: kills(options.rows, folder / "kills", options.kills),
            "lanes": lambda: lanes(options.rows, folder / "lanes"),
            "nodes": lambda: nodes(options.rows, folder / "nodes", options.kills),
            "limiter": lambda: limiter(options.rows, folder / "limiter"),
            "throttle": lambda: throttle(folder / "throttle"),
            "million": lambda: million(options.inputs, folder / "million"),
        }
        for part in options.part:
            holds.append(parts[part]())
    sys.exit(not all(holds))


if __name__ == "__main__":
    main()
