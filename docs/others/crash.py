"""One refund, a crash right after the money went, and the program started again: how often is it paid?

pip install langgraph langgraph-checkpoint-sqlite dbos
python crash.py [--trials 10]
"""

import argparse
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

SIDES = {"langgraph": "langgraph", "dbos": "dbos", "microagents": "microagents-ray"}


def main(trials: int) -> None:
    """Do every side so often, each time in a folder of its own."""
    for name, package in SIDES.items():
        program, paid, said = Path(__file__).with_name(f"with_{name}.py"), [], ""
        for _ in range(trials):
            with tempfile.TemporaryDirectory() as folder:
                for _ in range(2):
                    ran = subprocess.run(
                        [sys.executable, program], cwd=folder, capture_output=True, text=True, check=False
                    )
                paid.append(len(Path(folder, "ledger.txt").read_text().splitlines()))
                said = ran.stdout.strip().rpartition("\n")[2] if name == "microagents" else ""
        print(
            f"{name} {version(package)}: paid twice in {sum(each > 1 for each in paid)} of {trials}",
            said and f"\n  {said}",
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10)
    main(parser.parse_args().trials)
