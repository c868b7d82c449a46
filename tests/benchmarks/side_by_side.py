"""The same table filled by openaivec and by this package: python -m tests.benchmarks.side_by_side [--rows N] [--error P].

Both ask one server, `python -m tests.doubles`, whose simulated model errs in each field with a chance, in requests of one row and of many
alike. Printed are lines of user code, requests, tokens with their cost, wrong and undecided rows. openaivec (MIT) is installed from PyPI
into a fresh virtual environment, unless it is here; the table of its tokenizer, which bounds its requests and comes from another host, is
replaced by one of bytes. Exit code 1 if votes leave more cells wrong than single samples.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import shlex
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT

from msgspec import Struct

from tests.benchmarks.harness import options_of

HOUSE = Path(__file__).parents[2]
PACKAGE = "openaivec"
USD_IN, USD_OUT = 0.40e-6, 1.60e-6
"""Cost of a token, as of gpt-4.1-mini."""
COUNTRIES, TRADES = ("Norway", "Chile", "Kenya", "Japan", "Malta"), ("baker", "miner", "nurse", "pilot", "clown")
FIELDS = ("number", "country", "year", "trade")
ASK = "Give number, country, year of birth and trade of the person."
MODEL = """
import json, os, re
from collections import Counter
from random import Random

from microagents import Model, Sample
from microagents.replies.chat import Usage

PERSON = re.compile(r"Person (\\d+) of (\\w+), born in (\\d+), (\\w+)")
COUNTRIES, TRADES, ERROR = {countries!r}, {trades!r}, {error}


class Clerk(Model):
    def __init__(self):
        self._drawn = Counter()
        self._log = os.open("asked", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def complete(self, call):
        found = PERSON.findall(call.prompt.user)
        bodies = [self._reply(*each) for each in found]
        if '"user_messages"' in call.prompt.user:
            ids = [each["id"] for each in json.loads(call.prompt.user)["user_messages"]]
            reply = dict(assistant_messages=[dict(id=at, body=body) for at, body in zip(ids, bodies, strict=True)])
        else:
            (reply,) = bodies
        text = json.dumps(reply)
        used = Usage(input_tokens=(len(call.prompt.system) + len(call.prompt.user)) // 4, output_tokens=len(text) // 4)
        os.write(self._log, b"%d %d %d\\n" % (len(found), used.input_tokens, used.output_tokens))
        return Sample(text=text, finish="stop", usage=used)

    def _reply(self, number, country, year, trade):
        seen = (int(number), country, int(year), trade)
        self._drawn[number] += 1
        rng = Random(f"{{number}}/{{self._drawn[number]}}")
        others = (lambda: seen[0] + 1, lambda: rng.choice(COUNTRIES), lambda: seen[2] + rng.choice((-1, 1, 10)), lambda: rng.choice(TRADES))
        given = [other() if rng.random() < ERROR else value for value, other in zip(seen, others)]
        return dict(zip(("number", "country", "year", "trade"), given))
"""
TOKENIZER = """
import tiktoken
tiktoken.registry.ENCODINGS["o200k_base"] = tiktoken.Encoding(
    "o200k_base", pat_str=".", mergeable_ranks={bytes([each]): each for each in range(256)}, special_tokens={}
)
"""
THEIRS = """
import openaivec
import pandas as pd
from openai import OpenAI
from openaivec import pandas_ext
from pydantic import BaseModel


class Person(BaseModel):
    number: int
    country: str
    year: int
    trade: str


openaivec.set_client(OpenAI(base_url={url!r}, api_key="none"))
openaivec.set_responses_model("clerk")
table = pd.read_csv("in.csv")
found = table["text"].ai.responses({ask!r}, response_format=Person, show_progress=False{more})
table.join(pd.DataFrame([each.model_dump() for each in found])).to_csv("{name}.csv", index=False)
"""
OURS = (
    "microagents run rows --inputs in.csv -o '{name}.csv' -o 'ask={ask}' -o 'columns=number: int, country, year: int, trade' "
    "--model openai:clerk@base_url={url},api_key_env=CLERK_KEY -k {k} --yes"
)


class Filled(Struct, frozen=True, kw_only=True):
    """A filled table."""

    name: str
    lines: int
    """Lines of user code, without blank ones."""
    requests: int
    asked: int
    """Rows in all requests."""
    tokens: tuple[int, int]
    """Tokens of prompts and of replies."""
    wrong: int
    """Wrong cells in rows that have a reply."""
    wrong_rows: int
    undecided: int
    """Rows without a reply."""

    @property
    def usd(self) -> float:
        """Cost of the tokens."""
        return self.tokens[0] * USD_IN + self.tokens[1] * USD_OUT


def people(rows: int) -> list[tuple[str, ...]]:
    """Make the right cells of the rows."""
    return [
        (str(number), COUNTRIES[number % len(COUNTRIES)], str(1950 + number % 50), TRADES[number * 7 % len(TRADES)])
        for number in range(rows)
    ]


@contextmanager
def served(folder: Path, error: float) -> Iterator[str]:
    """Serve the model anew; yields the address of its wire of OpenAI."""
    (folder / "asked").write_text("")
    (folder / "clerk.py").write_text(MODEL.format(countries=COUNTRIES, trades=TRADES, error=error))
    words = [sys.executable, "-m", "tests.doubles", "--model", "clerk.py:Clerk", "--port", "0", "--json"]
    environ = {**os.environ, "PYTHONPATH": str(HOUSE)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder, env=environ) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["openai"]
        finally:
            process.send_signal(SIGINT)


def filled(folder: Path, name: str, code: str, run: Sequence[str], right: Sequence[tuple[str, ...]]) -> Filled:
    """Run user code, and judge its table and what the server was asked."""
    output = folder / f"{name}.csv"
    ran = subprocess.run(run, cwd=folder, check=False, env={**os.environ, "CLERK_KEY": "none"}, capture_output=True)
    assert output.exists(), ran.stderr.decode()
    with output.open(newline="", encoding="utf-8-sig") as file:
        table = [tuple(row.get(field, "") for field in FIELDS) for row in csv.DictReader(file)]
    asked = [tuple(map(int, line.split())) for line in (folder / "asked").read_text().splitlines()]
    known = [(row, own) for row, own in zip(table, right, strict=True) if any(row)]
    wrong = [sum(given != cell for given, cell in zip(row, own, strict=True)) for row, own in known]
    return Filled(
        name=name,
        lines=sum(bool(line.strip()) for line in code.splitlines()),
        requests=len(asked),
        asked=sum(rows for rows, _, _ in asked),
        tokens=(sum(read for _, read, _ in asked), sum(written for _, _, written in asked)),
        wrong=sum(wrong),
        wrong_rows=sum(map(bool, wrong)),
        undecided=len(table) - len(known),
    )


def python_with_package(folder: Path) -> str:
    """Return the path of a Python that has the other package."""
    if importlib.util.find_spec(PACKAGE) is not None:
        return sys.executable
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", PACKAGE], check=True, stderr=subprocess.DEVNULL)
    return python


def compared(folder: Path, python: str, rows: int, error: float) -> list[Filled]:
    """Fill the same table by each way, each with a server of its own."""
    right, found = people(rows), list[Filled]()
    with (folder / "in.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["text"])
        lines.writerows(
            [f"Person {number} of {country}, born in {year}, {trade}"] for number, country, year, trade in right
        )
    for name, more in (("openaivec", ""), ("openaivec, a row a request", ", batch_size=1")):
        with served(folder, error) as url:
            code = THEIRS.format(url=url, ask=ASK, more=more, name=name)
            (folder / "theirs.py").write_text(TOKENIZER + code)
            found.append(filled(folder, name, code, [python, "theirs.py"], right))
    for k in (1, 3):
        with served(folder, error) as url:
            name = f"microagents -k {k}"
            code = OURS.format(url=url, ask=ASK, k=k, name=name)
            run = [sys.executable, "-m", *shlex.split(code)]
            found.append(filled(folder, name, code, run, right))
    return found


def main() -> None:
    of = options_of(__doc__, rows=200, error=0.05)
    with tempfile.TemporaryDirectory() as given:
        found = compared(Path(given), python_with_package(Path(given)), of.rows, of.error)
    print(f"{of.rows} rows of {len(FIELDS)} fields, each wrong in {of.error:g} of replies")
    for each in found:
        print(
            f"{each.name}: {each.lines} lines, {each.requests:,} requests of {each.asked:,} rows, {each.tokens[0]:,} + {each.tokens[1]:,} "
            f"tokens, ${each.usd:.4f}; {each.wrong} cells wrong in {each.wrong_rows} rows, {each.undecided} rows undecided"
        )
    sys.exit(found[-1].wrong > min(each.wrong for each in found[:-1]))


if __name__ == "__main__":
    main()
