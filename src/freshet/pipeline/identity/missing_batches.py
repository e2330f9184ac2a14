"""Batches of a query that its table does not hold any more: the table was restored from a backup, or rolled back.

The checkpoint of the query goes on where it stopped, and Spark does not give earlier batches again: what they read
would be missing in silence. Every batch of a pipeline is committed, an empty one too: their numbers have no gaps.
Of a `foreachBatch` function of users that cannot be said: it may leave batches out.
"""

from __future__ import annotations

from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError


def refuse_missing_batches(last: int | None, micro_batch_id: int, *, table: str, pipeline: str) -> None:
    """Raises `PipelineFailedError` where batches lie between `last`, the last one that the table holds, and this one.

    `last` is None where the table holds none of this query.
    """
    first_missing = 0 if last is None else last + 1
    if micro_batch_id <= first_missing:
        return
    last_missing = micro_batch_id - 1
    missing = f"batch {last_missing}" if first_missing == last_missing else f"batches {first_missing} to {last_missing}"
    raise PipelineFailedError(
        f"table {table} does not hold {missing} of pipeline {pipeline!r}, and the checkpoint goes on with batch "
        f"{micro_batch_id}: what they read would be missing. The table was restored from a backup or rolled back; "
        "nothing was written. Restore the checkpoint of the same time; if there is none, delete the checkpoint and "
        "give the pipeline another name: it then reads everything again",
        pipeline=pipeline,
        micro_batch_id=micro_batch_id,
        kind=ErrorKind.INVALID_REQUEST,
    )
