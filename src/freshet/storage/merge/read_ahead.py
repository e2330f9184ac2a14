"""Makes what comes next in another thread while the caller works, in order and in bounded memory.

Work is handed to the executor one item at a time and never waits for other work there, so any number of streams may
share one executor. A stream that is left early stops after the item that is being made.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import Executor, Future
from typing import Any, Final, TypeVar

import pyarrow as pa

T = TypeVar("T")

_END: Final[Any] = object()


def made_ahead(items: Iterator[T], executor: Executor | None) -> Iterator[T]:
    """The items, one of them ahead, the first from the call on; without an executor nothing is made ahead."""
    return items if executor is None else _ahead(items, executor, executor.submit(next, items, _END))


def read_ahead(source: Iterator[pa.RecordBatch], executor: Executor, chunk_rows: int) -> Iterator[pa.RecordBatch]:
    """The batches of `source`, about `chunk_rows` rows of them ahead, from the call on."""
    return _batches(made_ahead(_chunks(source, chunk_rows), executor), source)


def _ahead(items: Iterator[T], executor: Executor, coming: Future[T]) -> Iterator[T]:
    try:
        while (item := coming.result()) is not _END:
            coming = executor.submit(next, items, _END)
            yield item
    finally:
        if not coming.cancel():
            coming.exception()  # waits; what it raised was for the reader who left
        _close(items)


def _batches(chunks: Iterator[list[pa.RecordBatch]], source: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        for batches in chunks:
            batches.reverse()
            while batches:  # a batch handed out is no longer held here
                yield batches.pop()
    finally:
        _close(chunks)
        _close(source)


def _chunks(source: Iterator[pa.RecordBatch], chunk_rows: int) -> Iterator[list[pa.RecordBatch]]:
    """The batches of a stream, at least `chunk_rows` rows at a time unless it ends."""
    batches: list[pa.RecordBatch] = []
    count = 0
    for batch in source:
        batches.append(batch)
        count += batch.num_rows
        if count >= chunk_rows:
            yield batches
            batches, count = [], 0
    if batches:
        yield batches


def _close(items: Iterator[Any]) -> None:
    if isinstance(items, Generator):
        items.close()
