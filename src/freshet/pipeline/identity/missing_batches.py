"""Batches of a query that its table does not hold any more: the table was restored from a backup, or rolled back.

The checkpoint of the query goes on where it stopped, and Spark does not give earlier batches again: what they read
would be missing in silence. Every batch of a pipeline is committed, an empty one too: their numbers have no gaps.
Of a `foreachBatch` function of users that cannot be said: it may leave batches out.

Where rows were rolled back on purpose, `freshet run --accept-loss-of 17..19` goes on without these batches.
"""

from __future__ import annotations

import logging
from typing import Final

from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError

_LOG: Final = logging.getLogger(__name__)


AcceptedLoss = tuple[int, int]
"""The first and the last batch that may be missing."""


def batches_text(first: int, last: int) -> str:
    """Batches as messages name them."""
    return f"batch {first}" if first == last else f"batches {first} to {last}"


def refuse_missing_batches(
    last: int | None,
    micro_batch_id: int,
    *,
    table: str,
    pipeline: str,
    accepted: AcceptedLoss | None = None,
    is_ledger: bool = False,
) -> None:
    """Raises `PipelineFailedError` where batches lie between `last`, the last one that the table holds, and this one,
    unless all of them are `accepted`.

    `last` is None where the table holds none of this query. A ledger says what became of the batches of many tables,
    which may hold them all the same.
    """
    first_missing = 0 if last is None else last + 1
    if micro_batch_id <= first_missing:
        return
    last_missing = micro_batch_id - 1
    if accepted is not None and accepted[0] <= first_missing and last_missing <= accepted[1]:
        _LOG.warning(
            "pipeline %r: batches %s to %s are not in table %s; it goes on without them, as it was told",
            pipeline, first_missing, last_missing, table,
        )  # fmt: skip
        return
    missing = batches_text(first_missing, last_missing)
    if is_ledger:
        raise PipelineFailedError(
            f"ledger {table} does not hold {missing} of pipeline {pipeline!r}, and the checkpoint goes on with batch "
            f"{micro_batch_id}: which tables were written or set apart in between is not known. The ledger was "
            "restored from a backup or rolled back; nothing was written. Put the newest ledger back; if there is none, "
            "freshet resync FILE where a database is read (sources postgres), else delete the checkpoint and give the "
            "pipeline another name: it then reads everything again. Before that, drop its tables where a row that "
            "comes twice counts twice (aggregation, tables without a key)",
            pipeline=pipeline,
            micro_batch_id=micro_batch_id,
            kind=ErrorKind.INVALID_REQUEST,
        )
    raise PipelineFailedError(
        f"table {table} does not hold {missing} of pipeline {pipeline!r}, and the checkpoint goes on with batch "
        f"{micro_batch_id}: what they read would be missing. The table was restored from a backup or rolled back; "
        "nothing was written. Restore the checkpoint of the same time; if there is none, freshet resync FILE where a "
        "database is read (sources postgres), else delete the checkpoint and give the pipeline another name: it then "
        "reads everything again. If the rows of these batches are to be left out, run it once with "
        f"--accept-loss-of {first_missing}..{last_missing}",
        pipeline=pipeline,
        micro_batch_id=micro_batch_id,
        kind=ErrorKind.INVALID_REQUEST,
    )
