"""Memory of the driver for many inputs: ``python -m tests.benchmarks.memory [--inputs 100000] [--runtime ray]``.

The command `microagents run` reads a file of so many short walks, and then one of ten. Printed are the most memory that each driver had
resident at a time, and the difference.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from msgspec import Struct

from tests.benchmarks.harness import most_mb, options_of

LOOK_EVERY_S = 0.05
FEW = 10


class Peak(Struct, frozen=True, kw_only=True):
    """One run."""

    most_mb: float
    wall_s: float


def peak_of(inputs: int, runtime: str) -> Peak:
    """Run so many walks of one or two steps."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "walks.jsonl")
        with file.open("w") as lines:
            lines.writelines(f'{{"length": {1 + number % 2}}}\n' for number in range(inputs))
        words = [
            *("run", "drift", "--inputs", str(file), "--model", "sim:perfect", "-k", "1", "--runs-dir"),
            folder,
            "--runtime",
            runtime,
        ]
        began_s, found = time.monotonic(), 0.0
        with Path(folder, "results.jsonl").open("wb") as results:
            driver = subprocess.Popen(
                [sys.executable, "-m", "microagents", *words], stdout=results, stderr=subprocess.DEVNULL
            )
            while driver.poll() is None:
                found = max(found, most_mb(driver.pid))
                time.sleep(LOOK_EVERY_S)
        assert driver.returncode == 0, driver.returncode
        with Path(folder, "results.jsonl").open() as written:
            assert sum(1 for _ in written) == inputs
        return Peak(most_mb=found, wall_s=time.monotonic() - began_s)


def main() -> None:
    """Print the memory of both runs."""
    options = options_of(__doc__, inputs=100_000, runtime="local")
    few, many = peak_of(FEW, options.runtime), peak_of(options.inputs, options.runtime)
    more_mb = many.most_mb - few.most_mb
    print(
        f"{FEW} inputs: {few.most_mb:.0f} MB; {options.inputs:,} inputs: {many.most_mb:.0f} MB in {many.wall_s:.0f} s"
    )
    print(f"  {more_mb:.0f} MB more, {more_mb * 1024**2 / options.inputs:.0f} bytes an input")


if __name__ == "__main__":
    main()
