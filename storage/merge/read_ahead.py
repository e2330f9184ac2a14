"""Reads on in other threads while the caller works, in bounded memory and in order.

`read_ahead` keeps one chunk of a stream (about `chunk_rows` rows) in the making while the one before is used; of
several streams merged together, the chunks are made side by side.

Work is handed to the executor one chunk at a time and never waits for other work there, so any number of streams may
share one executor. A stream that is left early stops after the chunk in the making.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

import pyarrow as pa

R = TypeVar("R")


def read_ahead(source: Iterator[pa.RecordBatch], executor: Executor, chunk_rows: int) -> Iterator[pa.RecordBatch]:
    """The batches of `source`. Reading begins at the call."""
    return _chunks(source, executor, chunk_rows, executor.submit(_chunk, source, chunk_rows))


def _chunks(
    source: Iterator[pa.RecordBatch], executor: Executor, chunk_rows: int, coming: Future[list[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    try:
        while batches := coming.result():
            coming = executor.submit(_chunk, source, chunk_rows)
            batches.reverse()
            while batches:  # a batch handed out is no longer held here
                yield batches.pop()
    finally:
        _finish(coming)
        close = getattr(source, "close", None)
        if close is not None:
            close()


def _chunk(source: Iterator[pa.RecordBatch], chunk_rows: int) -> list[pa.RecordBatch]:
    """The next batches of a stream, at least `chunk_rows` rows unless it ends; none at the end."""
    batches: list[pa.RecordBatch] = []
    count = 0
    while count < chunk_rows:
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
