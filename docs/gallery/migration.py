"""Migrate 200 small files from `%` to f-strings, a file a step. Python's own parser is the judge: what it refuses is a red flag."""

import ast
import re
from random import Random

from msgspec import Struct

from microagents import ChainTask, Prompt, Reply

RULES = "Rewrite the Python file with f-strings in place of `%`. Change nothing else. Give the whole file as one text."
NAMES = ("name", "city", "count", "cents", "day")


class Migrated(Reply, frozen=True):
    source: str

    def vote(self) -> str:
        """Files that differ in blanks and quotes are one vote."""
        return ast.dump(ast.parse(self.source))


class At(Struct, frozen=True):
    file: int = 0


def file_text(number: int) -> str:
    """An old file. In a migration of your own, read it from the folder."""
    rng = Random(number)
    given = rng.sample(NAMES, rng.randint(1, 3))
    text = " and ".join(f"{each} is %s" for each in given)
    return f"def line_{number}({', '.join(given)}):\n    return {text!r} % ({', '.join(given)},)\n"


def migrated(source: str) -> str:
    """The file as it should be."""
    _, text, names = re.search(r"return (['\"])(.*)\1 % \((.*),\)", source).groups()
    for name in names.split(", "):
        text = text.replace("%s", f"{{{name}}}", 1)
    return re.sub(r"return .*", lambda _: f"return f{text!r}", source)


class Migration(ChainTask[At, Migrated]):
    """microagents run migration.py"""

    files: int = 200

    def start(self) -> At:
        return At()

    def done(self, state: At) -> bool:
        return state.file == self.files

    def prompt(self, state: At) -> Prompt:
        return Prompt(system=RULES, user=file_text(state.file))

    def flag(self, state: At, reply: Migrated) -> str | None:
        try:
            tree = ast.parse(reply.source)
        except SyntaxError:
            return "syntax"
        return "still_old" if any(isinstance(node, ast.Mod) for node in ast.walk(tree)) else None

    def advance(self, state: At, reply: Migrated) -> At:
        return At(state.file + 1)

    def oracle(
        self, state: At
    ) -> Migrated:  # yours has none: then leave this out, and run the project's tests at the end
        return Migrated(source=migrated(file_text(state.file)))

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Migrated:
        return Migrated(source=migrated(prompt.user))

    def mistake(self, prompt: Prompt, right: Migrated, rng: Random) -> Migrated:
        """Leave it as it was, forget a brace, or take another name."""
        name = re.search(r"{(\w+)}", right.source)[1]
        other = right.source.replace(f"{{{name}}}", f"{{{name}s}}")
        return Migrated(source=rng.choice([prompt.user, right.source.replace("}", "", 1), other]))
