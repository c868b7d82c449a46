"""How quickly runs are seen: ``python -m tests.benchmarks.viewing`` drives chromium-headless-shell from Playwright.

The first time it makes a run of 2^20 steps and one of 100,000 inputs in the folder of runs, which takes ten minutes.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import which
from typing import Any

from playwright.sync_api import sync_playwright

from tests.benchmarks.harness import options_of, spread

COMMAND = str(Path(sys.executable).with_name("microagents"))
MILLION = ("hanoi", "-o", "disks=20", "--model", "sim:gpt-4.1-mini", "--run-id", "million")
MANY = ("drift", "-k", "1", "--model", "sim:perfect", "--inputs", "many.jsonl", "--run-id", "many")
LIVE = ("hanoi", "-o", "disks=14", "--model", "sim:perfect", "--run-id")
CLOCK = os.sysconf("SC_CLK_TCK")
DRAWN = "Boolean(document.querySelector('canvas.lens')?.width > 300 && document.querySelector('.legend li'))"
SHOWN = "Number(document.querySelector('canvas.lens')?.getAttribute('aria-valuemax') ?? -1) + 1"
FRAMES = """async (act) => {
  const times = [], began = performance.now(), grid = document.querySelector(".grid"), lens = document.querySelector("canvas.lens");
  for (let i = 0; performance.now() - began < 3000; i++) {
    times.push(await new Promise(requestAnimationFrame));
    if (act === "scroll") grid.scrollTop += 90;
    else lens.dispatchEvent(new WheelEvent("wheel", { deltaY: i % 120 < 60 ? -40 : 40, clientX: 500, cancelable: true }));
  }
  return times.slice(1).map((each, i) => each - times[i]);
}"""


@contextmanager
def viewed(runs: Path, *words: str) -> Iterator[tuple[str, int]]:
    """The address and the process of `microagents view`."""
    given = [COMMAND, "view", *words, "--no-open", "--runs-dir", str(runs)]
    with subprocess.Popen(given, stdout=subprocess.PIPE, text=True) as view:
        assert view.stdout is not None
        try:
            yield view.stdout.readline().strip(), view.pid
        finally:
            view.terminate()


def processor_s(process: int) -> float:
    """Seconds on the processor of a process."""
    return sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13])) / CLOCK


def until(page: Any, condition: str) -> None:
    """Wait until an expression holds.

    Raises:
        TimeoutError: after a minute.
    """
    ends = time.monotonic() + 60
    while not page.evaluate(condition):
        if time.monotonic() > ends:
            raise TimeoutError(f"{page.url} did not come to {condition}")
        time.sleep(0.005)


def of_a_million(browser: Any, runs: Path) -> dict[str, float]:
    """From the command to a drawn strip; what was sent; frames while zooming."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    devtools = page.context.new_cdp_session(page)
    sent = [0]
    devtools.send("Network.enable")
    devtools.on("Network.loadingFinished", lambda one: sent.append(one["encodedDataLength"]))
    began = time.perf_counter()
    with viewed(runs, "million") as (url, view):
        started = time.perf_counter()
        page.goto(url, wait_until="commit")
        until(page, DRAWN)
        drawn, worked = time.perf_counter(), processor_s(view)
        page.wait_for_selector("#said:has-text('This run is')", state="attached")
        frames = page.evaluate(FRAMES, "zoom")
    page.close()
    return {
        "view to a drawn strip, s": drawn - began,
        "of it until the address, s": started - began,
        "processor time of view until then, s": worked,
        "sent, kB": sum(sent) / 1000,
        "frames a second while zooming": 1000 / statistics.mean(frames),
        "median frame while zooming, ms": statistics.median(frames),
        "longest frame while zooming, ms": max(frames),
    }


def of_many(browser: Any, runs: Path) -> dict[str, float]:
    """The time until 100,000 inputs and the list of runs are there, and the longest pause while they are scrolled."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    with viewed(runs, "many") as (url, _):
        page.goto(url)
        page.wait_for_selector(".grid canvas")
        page.wait_for_selector("#said:has-text('This run is')", state="attached")
        took = []
        for path, shown in (("/", "td a"), ("/run/many", "#said:has-text('This run is')")):
            began = time.perf_counter()
            page.goto(url.partition("/run")[0] + path)
            page.wait_for_selector(shown, state="attached")
            took.append(time.perf_counter() - began)
        frames = page.evaluate(FRAMES, "scroll")
    page.close()
    return {
        "list of runs, s": took[0],
        "the page of 100,000 inputs, s": took[1],
        "median frame while scrolling 100,000 inputs, ms": statistics.median(frames),
        "longest frame while scrolling 100,000 inputs, ms": max(frames),
    }


def of_a_live_run(browser: Any, runs: Path) -> dict[str, float]:
    """The longest time from the commit of a decision to its step on the page."""
    name = f"live{time.time_ns()}"
    page, committed, lags = browser.new_page(), list[tuple[float, int]](), list[float]()
    with (
        viewed(runs) as (url, view),
        subprocess.Popen([COMMAND, "run", *LIVE, name, "--runs-dir", str(runs)], stdout=subprocess.DEVNULL) as run,
    ):
        while not (runs / f"{name}.sqlite").exists():
            time.sleep(0.05)
        time.sleep(1)
        page.goto(url.replace("/#", f"/run/{name}#"))
        until(page, DRAWN)
        began, before = time.perf_counter(), processor_s(view)
        with closing(sqlite3.connect(f"file:{runs / name}.sqlite?mode=ro", uri=True)) as db:
            while run.poll() is None:
                committed.append((time.perf_counter(), db.execute("SELECT count(*) FROM decision").fetchone()[0]))
                shown = page.evaluate(SHOWN)
                waiting = [at for at, count in committed if count > shown]
                lags.append(time.perf_counter() - waiting[0] if waiting else 0.0)
                time.sleep(0.02)
        share = (processor_s(view) - before) / (time.perf_counter() - began)
    page.close()
    steps = (committed[-1][1] - committed[0][1]) / (committed[-1][0] - committed[0][0])
    return {
        "live: steps a second": steps,
        "live: longest from commit to page, s": max(lags),
        "live: processor time of view, share of a core": share,
    }


def of_a_report(runs: Path) -> dict[str, float]:
    """The time and the length of a report."""
    began, file = time.perf_counter(), runs / "million.html"
    subprocess.run(
        [COMMAND, "view", "million", "-o", str(file), "--runs-dir", str(runs)], check=True, stdout=subprocess.DEVNULL
    )
    return {"report, s": time.perf_counter() - began, "report, kB": file.stat().st_size / 1000}


def main() -> None:
    """Print a line a figure."""
    options = options_of(__doc__, runs_dir=Path("runs"), turns=3)
    runs = options.runs_dir
    Path("many.jsonl").write_text('{"length": 1}\n' * 100_000, encoding="utf-8")
    for words in (MILLION, MANY):
        if not (runs / f"{words[-1]}.sqlite").exists():
            subprocess.run([COMMAND, "run", *words, "--runs-dir", str(runs)], check=True, stdout=subprocess.DEVNULL)
    figures: dict[str, list[float]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=which("chromium-headless-shell"), args=["--no-sandbox"])
        for _ in range(options.turns):
            more = [
                of_a_million(browser, runs),
                of_many(browser, runs),
                of_a_live_run(browser, runs),
                of_a_report(runs),
            ]
            for name, value in {name: value for each in more for name, value in each.items()}.items():
                figures.setdefault(name, []).append(value)
    for name, values in figures.items():
        print(f"{name:<52} {spread(values, '.3f')}")


if __name__ == "__main__":
    main()
