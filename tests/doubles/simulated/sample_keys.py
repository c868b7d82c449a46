"""Keys of samples as a simulated provider reads them, to draw the sample that the simulated model would draw in the process of the run."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

from microagents.elections.election import ElectionId, SampleId


class Named(NamedTuple):
    """Names in a key."""

    id: SampleId
    rejected: int
    attempt: int


def read_key(key: str) -> Named | None:
    """Parse a key; None if it is none of these."""
    try:
        place, digest, *counts, _ = key.rsplit("/", 5)
        seq, rejected, attempt = map(int, counts)
        path = unquote(place, errors="surrogatepass").partition("/")[2]
        int(path.partition("/")[0])  # the number of the input
        election = ElectionId(path=path, question_digest=bytes.fromhex(digest))
    except ValueError:
        return None
    return Named(SampleId(election=election, seq=seq), rejected, attempt)
