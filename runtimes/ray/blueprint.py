"""The blueprint from which every actor builds its roles: import path, context and deployments, as they are sent to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray

from microagents.actors.role import Context, Deployment
from microagents.base.errors import InvalidDefinition
from microagents.runtimes.ray.cluster import aside

MOST_SENT_BYTES = 1 << 20
"""A longer context goes into Ray's object store. A driver with objects there is ended by Ray itself, without a sentence, once Ray has ended
on its machine."""


class Blueprint:
    """Parts of a run that its actors build roles from, pickled.

    Raises:
        InvalidDefinition: a class is defined in the main program, or a part cannot be pickled.
    """

    def __init__(self, context: Context, deployments: Sequence[Deployment]) -> None:
        _refuse_main(context, deployments)
        self.context: Any = _pickled(context)
        """Of a long one Ray's reference: each node then gets one copy of the options of all inputs, not one a lane."""
        self.set_deployments(deployments)

    def set_deployments(self, deployments: Sequence[Deployment]) -> None:
        """Take other deployments, without the options of roles in the driver, which need not be picklable."""
        sent = [each.model_copy(update={"options": {}}) if each.in_driver else each for each in deployments]
        self.deployments = _pickled(sent)

    async def store(self) -> None:
        """Put a long context into Ray's object store."""
        if len(self.context) > MOST_SENT_BYTES:
            self.context = await aside(ray.put, self.context)


def _pickled(part: object) -> bytes:
    try:
        pickled: bytes = ray.cloudpickle.dumps(part)
    except (TypeError, AttributeError, ValueError, RecursionError) as error:
        raise InvalidDefinition(
            f"the task, the strategy or an option of a deployment cannot be sent to other processes: {error}"
        ) from None
    return pickled


def _refuse_main(context: Context, deployments: Sequence[Deployment]) -> None:
    """Refuse a task, a strategy, a role or a message of the main program, which other processes cannot import."""
    classes = [type(context.strategy), *map(type, context.tasks[:1])]
    for deployment in deployments:
        classes += [deployment.role, *deployment.role.handlers]
    for each in classes:
        if each.__module__ == "__main__":
            raise InvalidDefinition(
                f"{each.__qualname__} is defined in the program that was started, which other processes cannot import; put it into a "
                "module of its own, and import it from there"
            )
