"""Files that users name: read as text, up to a bound, since a name may be that of a device or of a wrong file."""

from __future__ import annotations

from pathlib import Path

MAX_BYTES = 16 << 20


def read_text(path: str | Path) -> str:
    """Return the text of a file, without a byte order mark.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no UTF-8, or has more than `MAX_BYTES`.
    """
    with Path(path).open("rb") as stream:
        text = stream.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES >> 20} MiB")
    return text.decode("utf-8-sig")
