"""The pictures of docs/viewing.md: ``python -m tests.pictures_of_pages [FOLDER]`` makes the runs, and takes the pictures."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from shutil import copy, which
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import sync_playwright

from tests.cli.commands import PAPERS

COMMAND = str(Path(sys.executable).with_name("microagents"))
PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
NOISY, UNSURE = "sim:perfect@error=0.05,flag=0.02", "sim:perfect@error=0.3"
TOWNS = {"münchen": "de", "rome": "it", "porto": "pt", "lyon": "fr", "ghent": "be", "graz": "at", "turku": "fi"}
BRIEF = "\n".join(f"Part {number}: a paragraph about bridge number {number}." for number in range(24))
PLACES = [f"{town} {part}, {land}" for part in ("north", "south", "old town") for town, land in TOWNS.items()]
RUNS = {
    "tower": ("hanoi", "-o", "disks=16", "--model", NOISY),
    "voted": ("hanoi", "-o", "disks=16", "-k", "4", "--no-speculate", "--model", NOISY),
    "tower-k2": ("hanoi", "-o", "disks=12", "-k", "2", "--model", "sim:perfect@error=0.1"),
    "tower-k4": ("hanoi", "-o", "disks=12", "-k", "4", "--model", "sim:perfect@error=0.1"),
    "product": ("multiplication", "--model", "sim:perfect@error=0.2"),
    "apples": ("word-problems", "--strategy", "aot+tree"),
    "relay": (f"{PAPERS}/relay.py:Relay", "--strategy", "swarm", "--model", "sim:perfect@error=0.3"),
    "ticket": ("desk", "--model", "sim:perfect@error=0.2"),
    "essay": (
        *("writing", "-o", "brief=@brief.md", "-s", "same_model=true"),
        *("--model", UNSURE),
    ),
    "undecided": ("drift", "-k", "9", "-s", "max_draws=13", "--model", "sim:perfect@error=0.4,alternatives=1"),
    "table": (
        *("places.py", "--inputs", "places.csv", "-k", "2", "-s", "max_draws=5"),
        *("--model", "sim:perfect@error=0.35,flag=0.05"),
    ),
    "many": ("drift", "-k", "2", "-s", "max_draws=7", "--inputs", "many.jsonl", "--model", "sim:perfect@error=0.2"),
}
PAGES = {
    "runs": "/",
    "run": "/run/tower",
    "decision": "/run/tower/at/0/step/62053",
    "tree": "/run/product",
    "states": "/run/apples",
    "swarm": "/run/relay",
    "agent": "/run/ticket",
    "document": "/run/essay",
    "undecided": "/run/undecided/at/0/step/0",
    "inputs": "/run/many",
    "rows": "/run/table",
    "compare": "/compare?a=tower-k2&b=tower-k4",
}
STRIP = "/run/voted"
"""The page whose strip of steps the README shows."""
NARROW = ("run", "decision")
MAX_HEIGHT = 1000


def look(browser: Any, address: str, file: Path, width: int, scheme: str) -> None:
    """Write the picture of a page."""
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.goto(address)
    page.wait_for_selector("#said:not(:empty)", state="attached")
    page.wait_for_timeout(500)
    height = min(MAX_HEIGHT, page.evaluate("document.documentElement.scrollHeight"))
    page.screenshot(path=file, full_page=True, clip={"x": 0, "y": 0, "width": width, "height": height})
    page.close()


def look_at_strip(browser: Any, address: str, file: Path) -> None:
    """Write the picture of a run's strip of steps."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(address)
    page.wait_for_timeout(2000)
    page.locator("section", has=page.get_by_role("heading", name="Steps", exact=True)).first.screenshot(path=file)
    page.close()


def looks(name: str, number: int, *, everything: bool) -> list[tuple[int, str, str]]:
    """The widths, themes and endings of names of the pictures of a page."""
    one, other = ("light", "dark") if number % 2 else ("dark", "light")
    if everything:
        return [(width, scheme, f"-{width}-{scheme}") for width in (360, 1280, 2560) for scheme in (one, other)]
    return [(1280, one, ""), *[(360, other, "-narrow")] * (name in NARROW)]


def main() -> None:
    """Write the pictures of docs, or with a folder those of all pages at three widths in both themes into it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, help="where pictures of all pages go (default: those of docs)")
    folder_given = parser.parse_args().folder
    target = folder_given or PICTURES
    target.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        Path(folder, "many.jsonl").write_text("".join(f'{{"length": {1 + each % 3}}}\n' for each in range(3000)))
        Path(folder, "brief.md").write_text(BRIEF)
        Path(folder, "places.csv").write_text(
            "id,place\n" + "".join(f'{i},"{each}"\n' for i, each in enumerate(PLACES))
        )
        copy(PICTURES.parent / "examples" / "places.py", folder)
        for name, words in RUNS.items():
            subprocess.run([COMMAND, "run", *words, "--run-id", name], cwd=folder, check=False, capture_output=True)
        browser = playwright.chromium.launch(executable_path=which("chromium-headless-shell"), args=["--no-sandbox"])
        with subprocess.Popen([COMMAND, "view", "--no-open"], cwd=folder, stdout=subprocess.PIPE, text=True) as view:
            assert view.stdout is not None
            url = view.stdout.readline().partition("/#")[0]
            for number, (name, path) in enumerate(PAGES.items()):
                for width, scheme, ending in looks(name, number, everything=folder_given is not None):
                    look(browser, url + path, target / f"view-{name}{ending}.png", width, scheme)
            if folder_given is None:
                look_at_strip(browser, url + STRIP, target / "view-strip.png")
            view.terminate()


if __name__ == "__main__":
    main()
