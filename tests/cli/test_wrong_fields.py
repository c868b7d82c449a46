"""Votes on rows are counted by field, and a wrong row is shown by its wrong fields."""

from __future__ import annotations

from tests.cli.commands import OVER, microagents, write

TWO = """
    import json
    from microagents import Model, Prompt, Reply, RowTask, Sample


    class Two(Reply, frozen=True):
        a: int
        b: int


    class Fill(RowTask[Two]):
        format = "json"

        def prompt(self, row):
            return Prompt(user=f"Row {row['n']}")

        def oracle(self, row):
            return Two(a=0, b=0)


    class Errs(Model):
        async def complete(self, call):
            first = call.id.seq == 0
            wrong = "Row 1" in call.prompt.user
            return Sample(text=json.dumps({"a": int(first), "b": 7 if wrong else int(first)}))
"""


def test_outvoted_votes_and_first_samples_are_counted_by_field() -> None:
    write("two.py", TWO)
    write("in.csv", "n\n0\n1\n")
    ran = microagents("run", "two.py:Fill", "--inputs", "in.csv", "--model", "two.py:Errs", "--run-id", "r", "--json")
    assert ran.code in OVER, ran.err
    found = ran.json
    # Row 0: the first sample is wrong in both fields; row 1: in a only, and all samples agree on a wrong b.
    assert (found["fields"], found["outvoted_fields"], found["first_wrong_fields"]) == (4, 3, 3)
    assert "by 3 votes on fields" in microagents("show", "r").rows["voting"]
    assert "in 3 of 4 fields" in microagents("show", "r").rows["voting"]
    assert "wrong: b: 0 -> 7 (1) (right -> given)" in microagents("show", "r", "1/step/0").out
    assert "wrong: " not in microagents("show", "r", "0/step/0").out
