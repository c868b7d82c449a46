"""Journals whose values were forged, checksums and all; ``python -m tests.benchmarks.forgery`` takes any others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.benchmarks.forgery import journals, tried


@pytest.fixture(scope="module")
def there() -> Iterator[Mapping[str, bytes]]:
    with journals() as found:
        yield found


@pytest.mark.slow
def test_no_forged_value_ends_in_a_traceback(there: Mapping[str, bytes]) -> None:
    found = [tried(there, number) for number in range(6)]
    assert [each for each in found if each is not None] == []
