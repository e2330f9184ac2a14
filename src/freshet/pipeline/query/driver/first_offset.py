"""The first offset of a query that reads a table. Spark keeps the end of each batch, not the beginning of the first.

It asks a source for its first offset each time that it plans the first batch: for the end, for the partitions, and
again after a restart, when the table has newer snapshots. What is computed then is another position. So the first
offset has no position, the end of the first batch carries where the batch began, and the start that Spark gives is
ignored:

| start of a batch | its end in the checkpoint | it begins |
|---|---|---|
| `FIRST` | has `begin` | there |
| `FIRST` | has none: an earlier version planned it | at a position that is not known; refused |
| the end of the batch before, with or without `begin` | has none | at that end |

Only the first batch of a query starts at `FIRST`: it is never in a checkpoint. Source: Spark's `MicroBatchExecution`
(`initialOffset` in `getStartOffset` and in `runBatch`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from freshet.pipeline.exceptions import InvalidRequestError

FIRST: Final[Mapping[str, Any]] = {"first": True}
"""The first offset, as Spark gets it."""

BEGIN: Final = "begin"
"""Key in the end of a batch that began with the query: the position where it began."""


def end_offset(start: Mapping[str, Any], begin: Mapping[str, Any], end: Mapping[str, Any]) -> dict[str, Any]:
    """The offset of a batch that goes from one position to another, the first of which Spark calls `start`.

    Where nothing is new it is the start, unchanged: Spark takes any other offset for a batch.
    """
    if start == FIRST:
        return {**end, BEGIN: dict(begin)}
    return dict(start if end == position_of(start) else end)


def position_of(offset: Mapping[str, Any]) -> dict[str, Any]:
    """The position in the changes of a table that an offset has."""
    return {key: value for key, value in offset.items() if key != BEGIN}


def begin_of(start: Mapping[str, Any], end: Mapping[str, Any]) -> dict[str, Any]:
    """The position at which the batch between two offsets of Spark begins.

    Raises `InvalidRequestError` where a batch that began with the query does not say it.
    """
    if BEGIN in end:
        return dict(end[BEGIN])
    if start == FIRST:
        raise InvalidRequestError(
            "the first batch of this query was planned by an earlier version of Freshet and did not finish. Its "
            "checkpoint says where the batch ends and not where it begins, and the table may have moved on since: rows "
            "would be missing. Start the query with a new checkpoint, and into an empty target if some of the batch "
            "may have been written there"
        )
    return position_of(start)
