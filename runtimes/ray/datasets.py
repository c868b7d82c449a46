"""Datasets of Ray Data whose batches go through a pool of actors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import ray.data

from microagents.base.user_code import import_folders


def map_in_actors(
    dataset: Any, kind: type, arguments: Mapping[str, Any], *, batch_size: int, actors: int, num_cpus: float
) -> Any:
    """Return a dataset whose Arrow batches instances of a class have mapped, each in an actor, one batch at a time.

    Ray Data tries a batch again without end if its actor or its node dies. Blocks keep their order, so that another execution cuts the same
    batches.

    Args:
        dataset: the dataset.
        kind: the class. Its instances take and return tables, and change no number of rows.
        arguments: keywords of its constructor.
        batch_size: rows of a batch, at most.
        actors: most actors of the pool, which grows as far as other steps of the dataset leave processors.
        num_cpus: processors that each reserves, more than 0.
    """
    free = (
        ray.cluster_resources().get("CPU", 1.0) - 1.0
    )  # for the other steps of the dataset, which would wait for ever
    at_once = max(1, min(actors, int(free / num_cpus)))
    dataset.context.execution_options.preserve_order = True
    return dataset.map_batches(
        kind,
        batch_size=batch_size,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(min_size=at_once, max_size=actors),
        fn_constructor_kwargs=dict(arguments),
        num_cpus=num_cpus,
        udf_modifying_row_count=False,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(import_folders())}},
    )
