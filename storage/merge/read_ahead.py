"""Reads on in other threads while the caller works, in bounded memory and in order.

`read_ahead` keeps one portion of a stream (about `portion_rows` rows) in the making while the one before is used; of
several streams merged together, the portions are made side by side.

Work is handed to the executor one portion at a time and never waits for other work there, so any number of streams may
share one executor. A stream that is left early stops after the portion in the making.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

import pyarrow as pa

R = TypeVar("R")


def read_ahead(source: Iterator[pa.RecordBatch], executor: Executor, portion_rows: int) -> Iterator[pa.RecordBatch]:
    """The batches of `source`. Reading begins at the call."""
    return _portions(source, executor, portion_rows, executor.submit(_portion, source, portion_rows))


def _portions(
    source: Iterator[pa.RecordBatch], executor: Executor, portion_rows: int, coming: Future[list[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    try:
        while batches := coming.result():
            coming = executor.submit(_portion, source, portion_rows)
            batches.reverse()
            while batches:  # a batch handed out is no longer held here
                yield batches.pop()
    finally:
        _finish(coming)
        close = getattr(source, "close", None)
        if close is not None:
            close()


def _portion(source: Iterator[pa.RecordBatch], portion_rows: int) -> list[pa.RecordBatch]:
    """The next batches of a stream, at least `portion_rows` rows unless it ends; none at the end."""
    batches: list[pa.RecordBatch] = []
    count = 0
    while count < portion_rows:
        batch = next(source, None)
        if batch is None:
            break
        batches.append(batch)
        count += batch.num_rows
    return batches


def _finish(future: Future[R]) -> None:
    """Waits for work that nobody will use; what it raised was for the reader who left."""
    if not future.cancel():
        future.exception()
