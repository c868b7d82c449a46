"""The shard of each input: rows that ask the same question share one, since the first of them answers for all."""

from __future__ import annotations

from array import array

from microagents.journal.sharded import MOST_SHARDS
from microagents.runs.driver.shared_questions import SharedQuestions, may_share
from microagents.runs.plan import RunPlan


def dealt(plan: RunPlan) -> array[int]:
    """Return the shard of each input: by the digest of its question if rows share replies, else by its number."""
    shards = min(plan.shards, MOST_SHARDS)
    numbers = range(len(plan.tasks))
    if not may_share(plan):
        return array("H", (number % shards for number in numbers))
    questions, found = SharedQuestions(plan.tasks), array("H")
    for number in numbers:
        digest = questions.digest(number)
        if digest is None:
            found.append(number % shards)
        else:
            found.append(int.from_bytes(digest) % shards)
    return found
