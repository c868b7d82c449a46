"""A provider's cache of prefixes, as Anthropic bills it: what a request reads, writes and pays in full, by marks on its blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

CHARS_PER_TOKEN = 4
READ, WRITE = 0.1, 1.25
"""Prices of a token that is read from the cache, or written into it, in prices of another one."""


class PrefixCache:
    """Entries of the prefixes that requests marked. One is there once the reply to its request begins."""

    def __init__(self) -> None:
        self._entries: set[str] = set()
        self.units = 0.0
        """All input so far, in prices of a token that no cache had."""
        self.uncached_units = 0

    def usage(self, body: Mapping[str, Any]) -> dict[str, int]:
        """Count a request."""
        sizes, read, marked, prefix = 0, 0, 0, ""
        for block, is_marked in _blocks(body):
            prefix = f"{prefix}\0{block}"
            sizes = len(prefix) // CHARS_PER_TOKEN
            if is_marked:
                marked = sizes
            if prefix in self._entries:
                read = sizes
        written = max(0, marked - read)
        self.units += READ * read + WRITE * written + sizes - read - written
        self.uncached_units += sizes
        return {
            "input_tokens": sizes - read - written,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
        }

    def take(self, body: Mapping[str, Any]) -> None:
        """Take the prefixes of a request whose reply begins."""
        prefix = ""
        for block, is_marked in _blocks(body):
            prefix = f"{prefix}\0{block}"
            if is_marked:
                self._entries.add(prefix)


def _blocks(body: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    contents = [("tools", body.get("tools", [])), ("system", body.get("system", ""))]
    contents += [(each["role"], each["content"]) for each in body["messages"]]
    for speaker, content in contents:
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            rest = {name: value for name, value in block.items() if name != "cache_control"}
            yield f"{speaker} {json.dumps(rest, sort_keys=True)}", "cache_control" in block
