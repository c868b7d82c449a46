"""A document by three authors over HTTP, one of them a real model: ``python -m tests.benchmarks.seqcv_http --llama URL``.

Two authors know the page that the brief asks for, each in its own words, and are served by the tests' own server, one on either wire. The
third is a model behind a server with OpenAI's wire, such as llama.cpp. A weak one is enough: what counts is how its drafts, its judgements
and its replies that are cut off are handled. With ``--constrained`` the tests' own server stands before it too, and adds the JSON schema of
the wanted reply to each request, so that a model that never finds the form drafts and judges.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import ClassVar
from urllib.request import Request, urlopen

from microagents import Result, Sampling, run
from microagents.journal.reading import reader_of
from microagents.replies.chat import schema
from microagents.runs.inspection.runs import solution_of
from microagents.systems.documents import (
    Ranking,
    Segment,
    SegmentSummary,
    ToRank,
    ToSplit,
    ToSummarize,
    ToValidate,
    ToWrite,
    Validation,
)
from microagents.systems.documents.notes import DocumentRecord
from microagents.systems.documents.questions import REPLIES, Asked
from microagents.systems.documents.seqcv import SeqCV
from microagents.tasks.writing import Writing
from tests.models.server import Connection, reply
from tests.systems.served import Given, Served, author

BRIEF = """Write a web page, as one HTML file, that turns minutes into hours and minutes. It has a title, one field for a whole number of
minutes, and a line that shows the result at every change, or says that the field holds no whole number.

- check: contains "<!DOCTYPE html>"
- check: contains "addEventListener"
- check: no placeholder
- check: opens in a browser without errors
"""
PAGE = (
    '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title></head>',
    '<body>\n<h1>{title}</h1>\n<label for="minutes">Minutes</label> <input id="minutes" inputmode="numeric">\n<p id="result"></p>',
    '<script>\nconst field = document.getElementById("minutes"), result = document.getElementById("result");',
    'field.addEventListener("input", () => {{\n  const whole = /^[0-9]{{1,9}}$/.test(field.value), minutes = Number(field.value);',
    '  result.textContent = whole ? `${{Math.floor(minutes / 60)}} h ${{minutes % 60}} min` : "{refusal}";\n}});',
    "</script>\n</body>\n</html>",
)
"""The segments of the page."""
WORDS = (
    {"title": "Minutes into hours", "refusal": "This is no whole number."},
    {"title": "Hours and minutes", "refusal": "Type a whole number of minutes."},
)
"""The words of the two authors who know it."""

MAX_TEXT_CHARS = 200
"""Greatest length of a text in a reply that is asked for by its schema."""


class Page(Writing):
    """A task whose replies are short, so that a talkative model is cut off soon."""

    sampling: ClassVar[Sampling] = Sampling(max_output_tokens=300, flag_above_tokens=None)


class Knowing:
    """An author that knows the page, in these words, and passes segments of both versions."""

    def __init__(self, words: dict[str, str]) -> None:
        self.segments = [each.format(**words) for each in PAGE]

    def __call__(self, asked: Asked) -> Given:
        match asked:
            case ToWrite():
                place = len(asked.written) and next(
                    n for n in range(len(PAGE) + 1) if "\n".join(self.segments[:n]) == asked.written
                )
                is_last = place == len(PAGE) - 1
                return Segment(
                    justify=f"part {place + 1}",
                    text=self.segments[place],
                    status="complete" if is_last else "ongoing",
                    mode="continue",
                )
            case ToValidate():
                known = any(asked.segment == each.format(**words) for words in WORDS for each in PAGE)
                return Validation(reason="" if known else "no part of the page", passes=known)
            case ToRank():
                best, second, *_ = sorted(asked.versions, key=lambda each: each.label)
                return Ranking(reason="by label", best=best.label, second=second.label)
            case ToSplit():
                return "I would not split this."
            case ToSummarize():
                return SegmentSummary(summary=asked.text)


class Constrained:
    """An author that hands its requests on to a model, with the JSON schema of the reply."""

    def __init__(self, llama: str) -> None:
        self.llama = llama
        self.served: Served | None = None

    def __call__(self, asked: Asked) -> Given:
        assert self.served is not None
        kind = REPLIES[type(asked)]
        texts = {name: {"type": "string", "maxLength": MAX_TEXT_CHARS} for name in kind.__struct_fields__}
        form = schema(kind)["$defs"][kind.__name__]
        form["properties"] |= {
            name: text for name, text in texts.items() if form["properties"][name].get("type") == "string"
        }
        wanted = {"type": "json_schema", "json_schema": {"name": kind.__name__, "schema": form}}
        request = Request(
            f"{self.llama}/chat/completions",
            json.dumps({**self.served.server.received[-1].json, "response_format": wanted}).encode(),
            {"content-type": "application/json"},
        )

        async def answer(connection: Connection) -> None:
            await reply(await asyncio.to_thread(lambda: urlopen(request, timeout=300).read()))(connection)

        return answer


async def write_page(llama: str, rounds: int, folder: Path, *, constrained: bool) -> Result:
    """Write the page with the model at an address as the third author."""
    third = f"openai:local@base_url={llama}"
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(author("openai", "first", Knowing(WORDS[0])))
        second = await stack.enter_async_context(author("anthropic", "second", Knowing(WORDS[1])))
        if constrained:
            behavior = Constrained(llama)
            behavior.served = await stack.enter_async_context(author("openai", "local", behavior))
            third = behavior.served.spec
        task = Page(brief=BRIEF, output=str(folder / "page.html"))
        return await run(
            task,
            models=[first.spec, second.spec, third],
            strategy=SeqCV(rounds=rounds, max_draws=2),
            run_id="page",
            runs_dir=folder,
        )


def report(result: Result, record: DocumentRecord) -> None:
    """Print what came of each author's replies."""
    print(
        f"{result.outcome} {result.reason or ''}; {result.calls} calls in {result.wall_s:.0f} s; flagged {result.account.flagged}"
    )
    drafts = [draft for subtask in record.subtasks for round_ in subtask.rounds for draft in round_]
    for agent, name in enumerate(record.agents):
        outcomes = Counter(draft.outcome for draft in drafts if draft.agent == agent)
        judged = [each for draft in drafts for each in draft.validations if each.agent == agent]
        judgements = Counter({True: "approves", False: "objects", None: each.missing}[each.passes] for each in judged)
        print(f"{name.partition('@')[0]:<18} segments {dict(outcomes)}; judgements {dict(judgements)}")
    for subtask in record.subtasks:
        heard = [(each.agent, each.reason) for draft in drafts for each in draft.validations if each.passes is False]
        print("objections:", Counter(heard).most_common(4))
        for ranking in subtask.rankings:
            print(f"ranked by {ranking.agent}: best {ranking.best}, second {ranking.second}")
    if result.value is not None:
        print({name: result.value[name] for name in ("segments", "subtasks", "not_agreed", "incomplete", "checks")})
        print(result.value["answer"]["text"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llama", required=True, metavar="URL", help="address of the model's server, with /v1")
    parser.add_argument("--rounds", type=int, default=len(PAGE), help="rounds of segments (default: %(default)s)")
    parser.add_argument("--constrained", action="store_true", help="ask the model for the JSON schema of each reply")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(write_page(options.llama, options.rounds, Path(folder), constrained=options.constrained))
        with reader_of(Path(folder), "page") as reader:
            record = solution_of(reader, 0)
        assert isinstance(record, DocumentRecord)
        report(result, record)


if __name__ == "__main__":
    from tests.benchmarks import seqcv_http  # noqa: PLW0406 - the journal names the class of the task, and can import it from there only

    seqcv_http.main()
