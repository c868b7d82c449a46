"""The house: packages, what is importable, what no file may do, and what the front door offers."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import microagents

ROOT = Path(__file__).parent.parent
FOLDERS = {"microagents": "microagents", "runtimes": "microagents.runtimes", "tasks": "microagents.tasks"}
"""Where the package's files are, and what each folder is imported as."""
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if "build" not in path.parts)

EVERYWHERE = {
    *("microagents", "msgspec", "pydantic", "pydantic_core", "rich", "structlog", "typing_extensions", "typer"),
    *sys.stdlib_module_names,
}
"""What every file may import. Any other module is a provider's SDK, or belongs to one place."""
SDK_PLACES: dict[str, str | tuple[str, ...]] = {
    "ray": "runtimes/ray/",
    "grpc": "runtimes/ray/",
    "aiohttp": ("microagents/models/", "microagents/web/"),
    "anyio": "microagents/tools/mcp_transports.py",
    "httpx2": ("microagents/models/", "microagents/tools/mcp_transports.py"),
    "numpy": ("microagents/elections/", "microagents/models/tiny/"),
    "dotenv": "microagents/cli/config.py",
    "pyarrow": (
        "microagents/cli/addresses.py",
        "microagents/cli/exports.py",
        "microagents/ray_data.py",
        "microagents/runs/parquet_rows.py",
    ),
    "safetensors": "microagents/models/tiny/",
    "mcp": ("microagents/tools/mcp_transports.py", "tasks/desk_server.py"),
    "mcp_types": "microagents/tools/mcp_transports.py",
    "jsonschema_rs": "microagents/tools/json_schemas.py",
    "opentelemetry": "microagents/telemetry/",
    "psutil": "microagents/base/processes.py",
    "lazy_loader": ("microagents/__init__.py", "microagents/systems/__init__.py"),
}
PROVIDERS = "microagents/models/"
"""The folder whose files may each import an SDK of their own."""
NAMED_AFTER = ("microagents/cli/commands", "microagents/cli/views", "tasks")
"""Folders whose files have the names of what they start, draw or solve."""
SAME_FILES = {
    "judge.py": {"microagents/systems/chains", "microagents/systems/swarm"},
    "messages.py": {"microagents/base", "microagents/journal"},
    "notes.py": {
        "microagents/work",
        *(f"microagents/systems/{each}" for each in ("agents", "documents", "questions", "swarm")),
    },
    "questions.py": {"microagents/systems/documents", "microagents/systems/questions"},
    "roles.py": {"microagents/systems/documents", "microagents/systems/swarm"},
    "runtime.py": {"runtimes", "runtimes/ray"},
    "server.py": {"microagents/web/endpoint", "microagents/web/viewer"},
    "turns.py": {"microagents/replies", "microagents/systems/questions"},
}
"""Files of one name whose folders make plain which is which."""
UNSAFE_CALLS = {"eval", "exec", "compile", "literal_eval", "__import__", "marshal.load", "marshal.loads"}
UNSAFE_MODULES = {"pickle", "cloudpickle", "dill", "shelve"}
UNREPEATABLE_MODULES = {"time", "secrets"}
UNREPEATABLE_CALLS = {"as_completed", "wait"}
"""Of asyncio: what hands out results in the order of their arrival."""
CHANGED_IN_PATHLIB = {"exists", "is_dir", "is_file", "glob", "rglob", "resolve"}
"""Methods of paths that raise errors of the system up to Python 3.12 or 3.13, and later none. Use `os.path`, or `base.files.is_there`."""


# -- packaging ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("link", [".src/microagents", "microagents/runtimes", "microagents/tasks"])
def test_the_package_is_made_of_links_to_folders_at_the_top(link: str) -> None:
    assert (ROOT / link).resolve() == ROOT / Path(link).name


@pytest.mark.parametrize("folder", sorted({path.parent.relative_to(ROOT).as_posix() for path in SOURCES}))
def test_every_folder_is_a_package(folder: str) -> None:
    assert (ROOT / folder / "__init__.py").is_file()


def test_an_install_takes_neither_tasks_nor_runtimes_from_people_who_have_their_own(tmp_path: Path) -> None:
    names = ["tasks", "runtimes", "microagents.tasks", "microagents.runtimes"]
    look = f"from importlib.util import find_spec; print(*[find_spec(name) is not None for name in {names}])"
    seen = subprocess.run(
        [sys.executable, "-I", "-c", look], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert seen.stdout.split() == ["False", "False", "True", "True"]


def test_an_install_has_every_file_of_the_package() -> None:
    package = ROOT / "microagents"
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    installed = {path for pattern in settings["package-data"]["microagents"] for path in package.glob(pattern)}
    files_there = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert package / "py.typed" in installed
    assert [path for path in files_there if path.suffix != ".py" and path not in installed] == []


def test_the_design_lists_the_floors_of_the_contract() -> None:
    design = (ROOT / "docs/design.md").read_text(encoding="utf-8")
    table = design.partition("A file imports only from floors below its own.")[2]
    floors = [set(re.findall(r"`(\w+)`", row)) for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)]
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ][0]
    assert floors[: len(contract["layers"])] == [set(re.findall(r"\w+", layer)) for layer in contract["layers"]]


@cache
def parsed(source: str) -> ast.Module:
    """The tree of a source, which is made once for all tests of this process."""
    return ast.parse(source)


def subject(path: Path) -> str:
    """The first line of a module's docstring."""
    return (ast.get_docstring(parsed(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def test_every_module_says_its_subject_in_one_line() -> None:
    silent = [path.relative_to(ROOT).as_posix() for path in SOURCES if not subject(path).endswith((".", "`"))]
    assert silent == []
    subjects = [subject(path) for path in SOURCES]
    assert len(set(subjects)) == len(subjects)


# -- what no file may do -----------------------------------------------------------------------------------------------


@cache
def imported(tree: ast.AST) -> set[str]:
    """The top-level names of the modules that a file imports."""
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            names.add(node.module.partition(".")[0])
    return names


@cache
def called(tree: ast.AST) -> set[str]:
    """What a file calls by a plain or a dotted name, as written."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {ast.unparse(each) for each in calls if isinstance(each, ast.Name | ast.Attribute)}


def bound(tree: ast.AST, module: str) -> Iterator[str]:
    """What a file takes out of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == module:
            yield from (alias.name for alias in node.names)


CONFINED = "tasks/confined.py"
"""The file that runs programs of models, in a process that can do nothing else."""


def sdks_out_of_place(source: str, file: str) -> set[str]:
    others = imported(parsed(source)) - EVERYWHERE
    return {name for name in others if not file.startswith(SDK_PLACES.get(name, PROVIDERS))}


def unsafe(source: str, file: str) -> set[str]:
    if file == CONFINED:
        return set()
    tree = parsed(source)
    calls = {name for name in called(tree) if name in UNSAFE_CALLS or name.rpartition(".")[2] == "literal_eval"}
    calls |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in {"eval", "exec"}}
    return calls | UNSAFE_MODULES.intersection(imported(tree)) | UNSAFE_CALLS.intersection(bound(tree, "ast"))


def unrepeatable(source: str, file: str) -> set[str]:
    if not file.startswith("microagents/systems/"):
        return set()
    tree = parsed(source)
    calls = {
        name
        for name in called(tree)
        if name.removeprefix("asyncio.") in UNREPEATABLE_CALLS and name.startswith("asyncio.")
    }
    unseeded = {
        "Random()"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Random" and not node.args
    }
    return (
        UNREPEATABLE_MODULES.intersection(imported(tree))
        | (set(bound(tree, "random")) - {"Random"})
        | unseeded
        | calls
        | UNREPEATABLE_CALLS.intersection(bound(tree, "asyncio"))
    )


def differs_by_python(source: str, file: str) -> set[str]:  # noqa: ARG001 - nowhere
    methods = {name for name in called(parsed(source)) if "." in name.removeprefix("os.path.")}
    return {name for name in methods if name.rpartition(".")[2] in CHANGED_IN_PATHLIB}


CHECKS: dict[str, Callable[[str, str], set[str]]] = {
    "sdks": sdks_out_of_place,
    "unsafe": unsafe,
    "unrepeatable": unrepeatable,
    "differs by Python": differs_by_python,
}


def test_no_file_imports_an_sdk_evaluates_or_unpickles_and_no_strategy_is_unrepeatable() -> None:
    assert len(SOURCES) > 30, "the folders are where this test looks for them"
    found = {}
    for path in SOURCES:
        file, source = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        if wrong := {name for check in CHECKS.values() for name in check(source, file)}:
            found[file] = wrong
    assert found == {}


@pytest.mark.parametrize(
    ("check", "source", "file"),
    [
        ("sdks", "import ray", "runtimes/local.py"),
        ("sdks", "def f():\n    from openai.types import x", "microagents/runs/driver/begin.py"),
        ("unsafe", "eval('1')", "tasks/hanoi.py"),
        ("unsafe", "f = exec", "tasks/hanoi.py"),
        ("unsafe", "from ast import literal_eval", "microagents/replies/reply.py"),
        ("unsafe", "import pickle", "runtimes/wire.py"),
        ("unsafe", "from ray import cloudpickle\nimport cloudpickle", "runtimes/wire.py"),
        ("unrepeatable", "from random import random", "microagents/systems/chains/maker.py"),
        ("unrepeatable", "from random import Random\nRandom()", "microagents/systems/chains/maker.py"),
        ("unrepeatable", "import asyncio\nasyncio.wait([])", "microagents/systems/chains/lead.py"),
        ("differs by Python", "Path('a').exists()", "microagents/journal/opening.py"),
    ],
)
def test_the_checks_see_what_they_look_for(check: str, source: str, file: str) -> None:
    assert CHECKS[check](source, file)


def test_an_sdk_is_imported_by_the_file_of_one_provider() -> None:
    found: dict[str, set[str]] = {}
    for path in (ROOT / PROVIDERS).rglob("*.py"):
        for name in imported(parsed(path.read_text(encoding="utf-8"))) - EVERYWHERE - SDK_PLACES.keys():
            found.setdefault(name, set()).add(path.name)
    assert {"openai", "anthropic"} <= found.keys()
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def test_the_checks_let_the_right_places_be() -> None:
    assert not sdks_out_of_place("import ray", "runtimes/ray/runtime.py")
    assert not sdks_out_of_place("from microagents.models.openai import OpenAIModel", "microagents/models/registry.py")
    assert not unsafe("exec('1')", CONFINED)
    assert not unsafe("import re\nre.compile('x')", "microagents/replies/reply.py")
    assert not unrepeatable("import asyncio\nasyncio.wait_for(1, 2)", "microagents/systems/chains/maker.py")
    assert not unrepeatable("import time", "microagents/runs/driver/begin.py")


# -- the front door ----------------------------------------------------------------------------------------------------


def test_the_list_of_what_is_public_is_sorted_and_whole() -> None:
    assert microagents.__all__ == sorted(set(microagents.__all__))
    assert len(microagents.__all__) <= 56
    assert all(getattr(microagents, name) is not None for name in microagents.__all__)


def test_the_name_of_a_class_stands_in_one_module() -> None:
    places: dict[str, set[str]] = {}
    for path in SOURCES:
        for node in parsed(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, set()).add(path.relative_to(ROOT).as_posix())
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


def test_a_file_has_the_name_of_another_only_where_the_folder_says_which() -> None:
    folders: dict[str, set[str]] = {}
    for path in SOURCES:
        folder = path.parent.relative_to(ROOT).as_posix()
        if path.name != "__init__.py" and folder not in NAMED_AFTER:
            folders.setdefault(path.name, set()).add(folder)
    same = {name: places for name, places in folders.items() if len(places) > 1}
    assert {name: places for name, places in same.items() if not places <= SAME_FILES.get(name, set())} == {}


@pytest.mark.parametrize("name", [name for name in microagents.__all__ if callable(getattr(microagents, name))])
def test_what_is_public_says_what_it_is(name: str) -> None:
    public = getattr(microagents, name)
    assert (public.__doc__ or "").strip(), f"{name} has no docstring of its own"
    if inspect.isclass(public):
        methods = {
            each: value
            for each, value in vars(public).items()
            if inspect.isfunction(value) and not each.startswith("_")
        }
        silent = [each for each in methods if not inspect.getdoc(getattr(public, each))]
        assert silent == [], f"methods of {name} without a docstring"


def documents() -> list[Path]:
    docs = ROOT / "docs"
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(docs.rglob("*.md")), *sorted(docs.rglob("*.py"))]


def test_the_guide_to_own_parts_names_classes_that_can_be_imported() -> None:
    guide = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    modules = ["", ".systems", ".runtimes", ".base.errors", ".elections.rules"]
    places = [import_module(f"microagents{each}") for each in modules]
    assert all(each.__name__ in guide for each in places)
    named = re.findall(r"`([A-Z]\w+)[`(]", guide)
    hidden = {name for name in named if not any(hasattr(each, name) for each in places)}
    assert hidden <= {"Chain", "Compose", "Document"}, "each of these has a link"


def test_documents_and_examples_import_public_names_only() -> None:
    """Names in `microagents`, or in a package of it that lists them; tasks have a module each, and errors have one."""
    used: dict[tuple[str, str], str] = {}
    for page in documents():
        text = page.read_text(encoding="utf-8")
        for statement in re.findall(r"^ *(from microagents[.\w]* import (?:\([^)]*\)|[^\n(]+))$", text, re.MULTILINE):
            (found,) = parsed(statement).body
            assert isinstance(found, ast.ImportFrom)
            used |= dict.fromkeys([(str(found.module), alias.name) for alias in found.names], page.name)
    assert ("microagents", "ChainTask") in used, "the examples are where this test looks for them"
    hidden = {
        place: page
        for place, page in used.items()
        if not place[0].startswith(("microagents.tasks.", "microagents.base.errors"))
        and place[1] not in getattr(import_module(place[0]), "__all__", ())
    }
    assert hidden == {}


def test_every_link_of_the_documents_leads_to_a_file_and_to_a_heading() -> None:
    broken = []
    for page in [*documents(), ROOT / "cluster/README.md"]:
        for target in (
            re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8")) if page.suffix == ".md" else ()
        ):
            file, _, heading = target.partition("#")
            to = page.parent / file if file else page
            if not to.exists() or (heading and heading not in anchors(to)):
                broken.append((page.name, target))
    assert broken == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# -- weight ------------------------------------------------------------------------------------------------------------

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
IDEAS = (ast.IfExp, ast.NamedExpr, ast.Lambda, *COMPREHENSIONS)
LEVELS = (ast.Call, ast.IfExp, ast.Lambda, ast.BoolOp, ast.Await, *COMPREHENSIONS)
"""Expressions that count as a level each when they stand in each other."""
CONTEXTS = (ast.Load, ast.Store, ast.Del)
MOST_NODES = 332_827
MOST_OF_1000 = {"two ideas": 6.5, "nested four deep": 11.0, "conditional expressions": 36.5}
"""The greatest weight of the package, in nodes of its syntax trees, and of 1,000 statements; a statement holds one idea."""


def own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement, without those of the statements in its body."""
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        yield node
        todo += [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.stmt)]


def levels(node: ast.AST) -> int:
    inner = [levels(each) for each in ast.iter_child_nodes(node) if not isinstance(each, ast.stmt)]
    return max(inner, default=0) + isinstance(node, LEVELS)


def is_counted(node: ast.AST) -> bool:
    is_definition = isinstance(
        node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    )
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return isinstance(node, ast.stmt) and not is_definition and not is_text


def test_the_package_is_no_heavier_and_a_statement_holds_one_idea() -> None:
    statements = nodes = 0
    found = dict.fromkeys(MOST_OF_1000, 0)
    for path in SOURCES:
        for node in ast.walk(parsed(path.read_text(encoding="utf-8"))):
            nodes += not isinstance(node, CONTEXTS)
            if not isinstance(node, ast.stmt) or not is_counted(node):
                continue
            parts = list(own_nodes(node))
            statements += 1
            found["two ideas"] += sum(isinstance(each, IDEAS) for each in parts) > 1
            found["nested four deep"] += levels(node) > 3
            found["conditional expressions"] += sum(isinstance(each, ast.IfExp) for each in parts)
    assert nodes <= MOST_NODES
    of_1000 = {name: round(1_000 * number / statements, 1) for name, number in found.items()}
    assert {name: rate for name, rate in of_1000.items() if rate > MOST_OF_1000[name]} == {}
