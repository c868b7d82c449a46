"""`.env`: what every reader of such files takes alike is read, all else is refused by its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from microagents import InvalidUsage
from microagents.cli.dotenv import read_dotenv


@pytest.mark.parametrize(
    ("line", "variables"),
    [
        ("A=b", {"A": "b"}),
        ("export A=b", {"A": "b"}),
        ("A = b c ", {"A": "b c"}),
        ("A=", {"A": ""}),
        ("A='b # $C \\n'", {"A": "b # $C \\n"}),
        ('A="b # c" # d', {"A": "b # c"}),
        ("A=b#c # d", {"A": "b#c"}),
        ("A= # b", {"A": ""}),
        ("A=b=c", {"A": "b=c"}),
        ("A=$1$2", {"A": "$1$2"}),
        ("# A=b\n\n  \nB=c", {"B": "c"}),
        ("\ufeffA=b\r\nB=c", {"A": "b", "B": "c"}),
        ("A=b\nA=c", {"A": "c"}),
    ],
)
def test_a_line_gives_a_variable(line: str, variables: dict[str, str]) -> None:
    Path(".env").write_text(line, encoding="utf-8", newline="")
    assert read_dotenv(Path(".env")) == variables


@pytest.mark.parametrize(
    "line",
    [
        "secret",
        "=secret",
        "1A=secret",
        'A="secret',
        "A='secret' b",
        "A=se'cret",
        "A=${secret}",
        'A="$secret"',
        'A="secret\\n"',
        "A=s\0e",
    ],
)
def test_a_line_of_another_form_is_refused_by_its_number_and_never_shown(line: str) -> None:
    Path(".env").write_text(f"\n{line}\n", encoding="utf-8")
    with pytest.raises(
        InvalidUsage, match=r"^line 2 of '\.env' is not of the form NAME=value .* --no-config leaves the file out$"
    ) as refused:
        read_dotenv(Path(".env"))
    assert "secret" not in str(refused.value)


def test_a_file_that_is_no_text_is_refused() -> None:
    Path(".env").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidUsage, match=r"^'\.env' cannot be read"):
        read_dotenv(Path(".env"))
