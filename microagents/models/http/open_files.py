"""The connections that a process may open, by its limit of open files."""

from __future__ import annotations

from microagents.base.errors import InvalidUsage

MOST = 16_384
"""Connections to one model from one process, if the limit of open files allows them."""
RESERVED = 256
"""Open files for everything else: the journal, Ray, libraries."""
LEAST = 64
"""With fewer connections a run is refused."""


def connections_allowed() -> int:
    """Number of connections that this process may have; its limit of open files is raised as far as it may be.

    Raises:
        InvalidUsage: the limit is too low.
    """
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return MOST
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + RESERVED if hard == resource.RLIM_INFINITY else min(hard, MOST + RESERVED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):  # a container may forbid it
            pass
    allowed = MOST if soft == resource.RLIM_INFINITY else min(MOST, soft - RESERVED)
    if allowed < LEAST:
        raise InvalidUsage(
            f"this process may open {soft} files, which leaves too few for connections to a model; raise the limit: ulimit -n 4096"
        )
    return allowed
