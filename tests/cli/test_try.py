"""`microagents try`: what it advises of a model, and the settings that it writes."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from microagents.base.errors import InvalidUsage
from microagents.cli.config import PROJECT, with_defaults, write_defaults
from microagents.studies.measured import VERDICTS
from microagents.studies.trying import SENTENCES, USELESS, try_model
from tests.cli.commands import COMPLETED, FAILED, WRONG_USAGE, microagents
from tests.models.test_foreign_server import Products, address, spec_on  # noqa: F401 - a fixture

TRY = ("try", "drift", "-o", "length=100", "--model")


@pytest.mark.slow
def test_few_samples_say_how_many_more_are_needed() -> None:
    ran = microagents(*TRY, "sim:gpt-4.1-mini@error=0,flag=0")
    assert ran.code == COMPLETED
    assert (
        "too few samples for a promise: 112 more are needed, by `measure` with --steps or --repeat; --from try-drift-"
        in ran.out
    )
    shown = [line.split("  ")[0] for line in ran.out.splitlines()]
    assert shown[:4] == ["form", "lines", "lines, no reasoning", "JSON, no reasoning"]


@pytest.mark.slow
def test_a_try_is_a_measurement_that_plan_reads_and_its_settings_are_written_for_the_next_run() -> None:
    Path("microagents.toml").write_text('k = 2\nseed = 3\n\n[o]\nlength = "100"\n', encoding="utf-8")
    found = microagents(*TRY, "sim:gpt-4.1-mini@error=0,flag=0", "--steps", "100", "--write")
    assert "votes help: `microagents plan` says how many; --from try-drift-" in found.out
    assert "wrote model, max-output-tokens into microagents.toml" in found.err
    text = Path("microagents.toml").read_text(encoding="utf-8")
    assert text.endswith('k = 2\nseed = 3\n\n[o]\nlength = "100"\n')
    run_id = found.out.split("--from ")[1].split()[0]
    planned = microagents("plan", "drift", "-o", "length=100", "--from", run_id)
    assert "is enough for 0.95: microagents run drift -o length=100 --model sim:" in planned.out
    with pytest.raises(InvalidUsage, match="in another way"):
        with_defaults("[o]\nk = 3\n[k]\nx = 1", {"k": 4})
    with pytest.raises(InvalidUsage, match="cannot be read"):
        with_defaults("k = [", {"k": 4})


def test_settings_that_cannot_be_written_leave_the_file_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    write_defaults({"k": 3})
    PROJECT.chmod(0o600)
    write_defaults({"k": 4})
    assert (PROJECT.read_text(encoding="utf-8"), PROJECT.stat().st_mode & 0o777) == ("k = 4\n", 0o600)
    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(InvalidUsage, match=r"microagents\.toml cannot be written: no space left"):
        write_defaults({"k": 5})
    assert ([each.name for each in Path().iterdir()], PROJECT.read_text(encoding="utf-8")) == (
        [PROJECT.name],
        "k = 4\n",
    )


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "advice", "code"),
    [
        ("error=0.9,flag=0", "voting-hurts", FAILED),
        ("error=0,flag=1", "all-flagged", FAILED),
    ],
)
def test_each_weakness_of_a_model_has_its_sentence(options: str, advice: str, code: int) -> None:
    ran = microagents(*TRY, f"sim:gpt-4.1-mini@{options}", "--steps", "20", "--json")
    assert (ran.json["advice"], ran.code) == (advice, code)
    assert advice in USELESS
    assert ran.json["said"].startswith(("not with this model", "voting hurts"))
    said = microagents(*TRY, f"sim:gpt-4.1-mini@{options}", "--steps", "20").out
    assert "the task takes about" not in said


@pytest.mark.slow
def test_a_form_that_the_model_keeps_is_found_and_asked_for_by_the_settings() -> None:
    source = 'async def model(call):\n    known = "JSON object" in call.prompt.system\n    return \'{"number": 22}\' if known else "So."\n'
    Path("mine.py").write_text(source, encoding="utf-8")
    ran = microagents("try", "drift", "-o", "length=1", "--model", "mine.py:model", "--json")
    assert ran.json["best"] == "JSON, no reasoning"
    assert (
        ran.json["settings"] | {"model": "mine.py:model", "format": "json", "reasoning": False} == ran.json["settings"]
    )
    assert [each["flags"] for each in ran.json["forms"][:2]] == [{"malformed": 2}] * 2


def test_a_chain_without_an_oracle_is_tried_unjudged_and_an_agent_is_not() -> None:
    shutil.copy(Path(__file__).parents[2] / "docs" / "examples" / "adding.py", "adding.py")
    text = Path("adding.py").read_text(encoding="utf-8").replace("def oracle", "def own_oracle")
    Path("adding.py").write_text(text, encoding="utf-8")
    ran = microagents("try", "adding.py", "--json")
    assert (ran.json["advice"], ran.json["forms"][0]["samples"], ran.json["calls"]) == ("unjudged", 6, None)
    refused = microagents("try", "desk")
    assert (refused.code, refused.out) == (WRONG_USAGE, "")
    assert "microagents measure desk" in refused.err


def test_a_model_that_cannot_be_asked_is_named_before_anything_is_sent() -> None:
    ran = microagents(*TRY, "openai:m@base_url=http://127.0.0.1:9/v1")
    assert ran.code == FAILED
    assert ran.out.startswith("not with this model: endpoint http://127.0.0.1:9/v1 cannot be reached")


def test_the_guide_lists_every_advice() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    assert [name for name in (*SENTENCES, *VERDICTS) if f"`{name}`" not in guide] == []


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_small_model_on_this_machine_is_asked_by_a_schema(address: str, tmp_path: Path) -> None:  # noqa: F811
    found = await try_model(Products(), spec_on("openai", address, price_in="0", price_out="0"), runs_dir=tmp_path)
    assert found.advice == "voting-hurts", [each.as_json() for each in found.forms]
    assert found.best is not None
    schema = found.forms[-1]
    assert (schema.name, schema.valid) == ("JSON schema", 6)
    assert found.best.valid == max(each.valid for each in found.forms)
