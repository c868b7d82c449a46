"""Idempotency keys of requests: they name the sample that a request draws, so that a gateway bills a request only once.

A key is ``RUN/PATH/DIGEST/SEQ/REJECTED/ATTEMPT/PARAMETERS``. Each attempt has its own, since the reply to the one before may be of no use,
and so have requests of one attempt with other parameters: one that is streamed, or one without the refused parameters. A key has no part
of a prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from microagents.base.text_digests import digest_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from microagents.models.model import Call

HEADER = "Idempotency-Key"


def key_of(run_id: str, call: Call, parameters: Mapping[str, object]) -> str:
    """Write the key of a request: one with these parameters, for a call."""
    election = call.id.election
    place = quote(f"{run_id}/{election.path}", errors="surrogatepass")
    sent = digest_of(repr(parameters), 4).hex()
    return f"{place}/{election.question_digest.hex()}/{call.id.seq}/{call.rejected}/{call.attempt}/{sent}"
