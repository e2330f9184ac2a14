"""Threads of a task at work: several buckets at once, and beside them what is made for the same commit.

Measured on a busy machine, 40 commits of 1000 new keys into 1 M: with the index file beside the data file the fastest
takes 14 ms and the median 54 ms, one after the other 20 and 68 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import TypeVar

from freshet.storage.io.undo import undone_on_failure
from freshet.storage.write.bucket_writer import BucketWriter

T = TypeVar("T")

BucketWork = Callable[[BucketWriter, Executor | None], None]


def work_on(writers: Sequence[BucketWriter], work: BucketWork, executor: Executor | None) -> None:
    """Several buckets go side by side; a single one may use the threads within."""
    if executor is None or len(writers) == 1:
        for writer in writers:
            work(writer, executor)
        return
    futures = [executor.submit(work, writer, None) for writer in writers]
    failures = [error for future in futures if (error := future.exception()) is not None]
    if failures:
        raise failures[0]


@contextmanager
def made_beside(
    executor: Executor | None, make: Callable[[], T], undo: Callable[[T], None]
) -> Iterator[Callable[[], T]]:
    """Has a value made by another thread while the block runs, which takes it at its end; where the block fails, what
    was made is undone. Without an executor it is made when it is taken."""
    if executor is None:
        yield make
        return
    coming = executor.submit(make)
    with undone_on_failure(lambda: _undo(coming, undo)):
        yield coming.result


def _undo(coming: Future[T], undo: Callable[[T], None]) -> None:
    if not coming.cancel() and coming.exception() is None:
        undo(coming.result())
