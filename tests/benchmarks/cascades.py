"""Cascades of LOTUS and of this package on the same tables: python -m tests.benchmarks.cascades [--tables 4] [--rows 1200].

Both ask one server of two models, each of which answers whether a number is a multiple of three, with a chance for each number, and tells
the probabilities of its words. LOTUS (MIT) promises a precision and a recall of .95 by its strong model's answers, with a failure
probability of .1; this package at most .05 of the rows wrong (90 %), by labels, with `certain=on`, so that scores are probabilities where
one reply decides. A table is new numbers. Printed are the tables whose promise was kept, requests, and rows that are wrong by the truth.
lotus-ai is installed from PyPI into a fresh virtual environment, or is in the one that --environment names; sentence-transformers and
torch, which its cascades do not use, are left out. Exit code 1 if this package broke its promise in more than a third of the tables.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random

from tests.benchmarks.harness import options_of, served_by

PACKAGES = (
    "lotus-ai",
    "numpy<2",
    "pandas<3",
    "litellm>=1.80",
    "tiktoken",
    "faiss-cpu",
    "backoff",
    "tqdm",
    "pydantic",
    "pillow",
)
END = "<|im_end|>"
"""Token at the end of a reply, which the server lists as others of its kind do."""
SURE = -1e-6
"""Log-probability of the tokens that only give a reply its form."""
USD = {"small": 0.0001, "large": 0.002}
"""Cost of a request."""
MOST, TARGET = 0.05, 0.95
WAIT_S = 600
THEIRS = """
import sys, types
for name in ("sentence_transformers", "torch"):
    stub = sys.modules[name] = types.ModuleType(name)
    stub.SentenceTransformer = stub.CrossEncoder = stub.Tensor = object
import lotus, pandas as pd
from lotus.models import LM
from lotus.types import CascadeArgs
models = [LM(model=f"openai/{{each}}", api_base="{url}", api_key="none", temperature=0) for each in ("large", "small")]
lotus.settings.configure(lm=models[0], helper_lm=models[1])
wanted = CascadeArgs(
    recall_target={target}, precision_target={target}, sampling_percentage=0.25, failure_probability=0.1, cascade_IS_random_seed={seed}
)
table = pd.read_csv("in.csv")
found, _ = table.sem_filter("{{text}} is a multiple of three", cascade_args=wanted, return_stats=True)
table["said"] = table["x"].isin(found["x"])
table.to_csv("theirs.csv", index=False)
"""


def chance(model: str, number: int) -> float:
    """The probability of the right word: most numbers are easy for both models; of the hard ones some are wrong with much confidence."""
    draw = Random(f"{model} {number}")
    hard = {"small": 0.15, "large": 0.02}[model]
    return draw.uniform(0.02, 0.9) if draw.random() < hard else draw.betavariate(30, 1)


class Server(ThreadingHTTPServer):
    """Both models behind the wire of OpenAI, and the number of requests of each."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked, self.drawn = Counter[str](), Counter[tuple[str, int]]()

    def handle_error(self, *_: object) -> None:
        """Print nothing about clients that leave."""


class Handler(BaseHTTPRequestHandler):
    """Answers a request."""

    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        """Give the likelier word at temperature 0, else a drawn one."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model, text = body["model"].rpartition("/")[2], json.dumps(body["messages"])
        number = int(re.findall(r"Number (\d+)", text)[-1])
        self.server.asked[model] += 1
        self.server.drawn[model, number] += 1
        right = chance(model, number)
        is_right = right >= 0.5
        if body.get("temperature") != 0:
            is_right = Random(f"{model} {number} {self.server.drawn[model, number]}").random() < right
        said = (number % 3 == 0) == is_right
        is_object = "multiple =" in text or '\\"multiple\\"' in text
        before, word, after = ('{"multiple": ', str(said).lower(), "}") if is_object else ("", str(said), "")
        logprob = {str(word): math.log(right if word == (number % 3 == 0) else 1 - right) for word in (True, False)}
        tops = [
            {"token": each if not is_object else each.lower(), "logprob": log, "bytes": None}
            for each, log in logprob.items()
        ]
        sure = {"logprob": SURE, "bytes": None}
        tokens = [{"token": each, **sure, "top_logprobs": [{"token": each, **sure}]} for each in (before, after, END)]
        tokens.insert(1, {"token": word, "logprob": logprob[str(said)], "bytes": None, "top_logprobs": tops})
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": f"{before}{word}{after}"},
            "logprobs": {"content": [each for each in tokens if each["token"]]},
        }
        details = {"reasoning_tokens": 0}
        usage = {"prompt_tokens": 50, "completion_tokens": 2, "total_tokens": 52, "completion_tokens_details": details}
        reply = {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [choice],
            "usage": usage,
        }
        sent = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)


@contextmanager
def served() -> Iterator[tuple[Server, str]]:
    """Serve both models; yields the server and its address."""
    server = Server()
    with served_by(server) as address:
        yield server, f"{address}/v1"


def installed(folder: Path) -> Path:
    """Install LOTUS; returns its Python."""
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q"]
    subprocess.run([*pip, "--no-deps", PACKAGES[0]], check=True)
    subprocess.run([*pip, *PACKAGES[1:]], check=True)
    return folder / "bin" / "python"


def read(path: Path) -> list[dict[str, str]]:
    """Read a table."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def theirs(python: Path, folder: Path, url: str, seed: int) -> tuple[bool, float]:
    """Fill a table by LOTUS; returns whether its promise was kept, and the share of rows that are wrong."""
    program = THEIRS.format(url=url, target=TARGET, seed=seed)
    ran = subprocess.run(
        [python, "-c", program], cwd=folder, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert not ran.returncode, ran.stderr
    counts = Counter[tuple[bool, bool]]()
    wrong, rows = 0, read(folder / "theirs.csv")
    for each in rows:
        number, said = int(each["x"]), each["said"] == "True"
        truth = number % 3 == 0
        counts[said, truth == (chance("large", number) >= 0.5)] += 1
        wrong += said != truth
    both = counts[True, True]
    precision, recall = both / max(1, both + counts[True, False]), both / max(1, both + counts[False, True])
    return min(precision, recall) >= TARGET, wrong / len(rows)


def ours(folder: Path, url: str) -> tuple[bool, float]:
    """Fill a table by this package; returns whether its promise was kept, and the share of rows that are wrong."""
    models = [
        f"{name}=openai:{spec}@base_url={url},api_key_env=NO_KEY"
        for name, spec in (("cheap", "small"), ("strong", "large"))
    ]
    asked = ["ask=Is it a multiple of three? {text}", "columns=multiple: bool"]
    words = [
        "rows",
        "--inputs",
        "in.csv",
        "--output",
        "ours.csv",
        "-o",
        asked[0],
        "-o",
        asked[1],
        "--format",
        "json",
        "--gold",
        "truth=multiple",
    ]
    command = [
        sys.executable,
        "-m",
        "microagents",
        "run",
        *words,
        "--wrong-at-most",
        str(MOST),
        "--model",
        models[0],
        "--model",
        models[1],
    ]
    environ = {**os.environ, "NO_KEY": "none"}
    ended = subprocess.run(
        [*command, "-s", "certain=on", "--yes"],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    if not (folder / "ours.csv").exists():
        print(ended.stderr)
        return True, 0.0
    rows = read(folder / "ours.csv")
    wrong = sum(
        each["state"] == "decided" and (each["multiple"] == "true") != (int(each["x"]) % 3 == 0) for each in rows
    )
    return wrong <= MOST * len(rows), wrong / len(rows)


def main() -> int:
    """Print a line for each package."""
    options = options_of(__doc__, tables=4, rows=1200, environment="")
    found: dict[str, list[tuple[bool, float]]] = {"LOTUS": [], "microagents": []}
    asked = {name: Counter[str]() for name in found}
    with tempfile.TemporaryDirectory() as place, served() as (server, url):
        python = Path(options.environment, "bin", "python") if options.environment else installed(Path(place, "lotus"))
        for table in range(options.tables):
            folder = Path(place, str(table))
            folder.mkdir()
            numbers = range(table * options.rows, (table + 1) * options.rows)
            lines = "".join(f"{x},Number {x},{str(x % 3 == 0).lower()}\n" for x in numbers)
            (folder / "in.csv").write_text(f"x,text,truth\n{lines}")
            for name, tables in found.items():
                before = Counter(server.asked)
                tables.append(theirs(python, folder, url, table) if name == "LOTUS" else ours(folder, url))
                asked[name] += server.asked - before
    for name, each in found.items():
        kept, wrong = sum(ok for ok, _ in each), sum(share for _, share in each) / len(each)
        usd = sum(USD[model] * count for model, count in asked[name].items())
        print(
            f"{name:<12} kept in {kept} of {len(each)}  requests {dict(asked[name])}  ${usd:.2f}  wrong rows {wrong:.3f}"
        )
    return int(sum(not ok for ok, _ in found["microagents"]) > options.tables / 3)


if __name__ == "__main__":
    sys.exit(main())
