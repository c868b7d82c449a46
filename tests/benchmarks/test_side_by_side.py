"""The comparison with another package of the field, in a small form."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.benchmarks.side_by_side import PACKAGE, compared


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec(PACKAGE) is None, reason=f"{PACKAGE} is not here: pip install {PACKAGE}")
def test_votes_leave_no_more_cells_wrong_than_the_other_package_on_the_same_server(tmp_path: Path) -> None:
    theirs, one_by_one, single, voted = compared(tmp_path, sys.executable, rows=20, error=0.1)
    assert theirs.requests < one_by_one.requests == single.requests == 20
    assert {each.asked for each in (theirs, one_by_one, single)} == {20}
    assert single.wrong == one_by_one.wrong == theirs.wrong > voted.wrong
    assert not any(each.undecided for each in (theirs, one_by_one, single))
