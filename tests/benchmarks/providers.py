"""What the framework does with real providers' wires, against local servers in other processes: ``python -m tests.benchmarks.providers``.

Each part is a file of `tests.benchmarks.provider_parts`, whose ``measure`` prints its figures; ``--part NAME`` measures that part alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from tests.benchmarks.harness import parser_of
from tests.benchmarks.provider_parts import chain, rate

PARTS: Mapping[str, Callable[[], Awaitable[None]]] = {
    "rate": rate.measure,
    "chain": chain.measure,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the parts."""
    for part in parser_of(__doc__, part=PARTS).parse_args(arguments).part:
        print(f"-- {part}")
        asyncio.run(_measured(PARTS[part]))


async def _measured(part: Callable[[], Awaitable[None]]) -> None:
    await part()


if __name__ == "__main__":
    main()
