"""Packed outcomes on their way between two tasks: in the memory of their worker, or in files that another one maps.

    a task ─ Outbox ─┬─ for a task of this worker, up to KEPT_BYTES ─▶ memory ─┬─ Waiting.values ─▶ the next task
                     └─ all else ─▶ one file for each task it goes to ────────┘

What lies in memory is of one round, the last one that a worker was asked for: a worker that was replaced has none, and
says so. A file is written and read once, most often before any of it reaches the disk: a page cache that has room is
shared memory. What was read of it is let go, so a task that reads much more than the memory holds about nothing.

    file:  for each value its table and length, 16 bytes ─ the value, filled up to ALIGNMENT
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.pipeline.local.workers import WorkerDiedError
from freshet.pipeline.query.wire.packed_rows import PACKED, TABLE, TASK, packed_batches

KEPT_BYTES: Final = 32 << 20
"""Of the values that a worker keeps in memory for a round."""
ALIGNMENT: Final = 64
_LET_GO_BYTES: Final = 32 << 20
_HEAD: Final = struct.Struct("<qq48x")


class Shelf(NamedTuple):
    """Where the values of one round of a query wait: their query, and the shuffle that they are in."""

    job: str
    shuffle: str
    round: int


@dataclass(slots=True)
class _Kept:
    """What one worker keeps of a round, by the task that it is for."""

    round: int
    values: dict[int, list[pa.RecordBatch]] = field(default_factory=dict)
    size: int = 0


_kept: dict[tuple[str, str, int], _Kept] = {}
"""Of this process: by query, shuffle and number of the worker."""


def _of_round(shelf: Shelf, worker: int) -> _Kept:
    place = (shelf.job, shelf.shuffle, worker)
    found = _kept.get(place)
    if found is None or found.round != shelf.round:
        found = _kept[place] = _Kept(shelf.round)
    return found


def forget_kept(job: str) -> None:
    """Lets go what this process keeps of a query whose round has failed: no other round may come."""
    for place in [place for place in _kept if place[0] == job]:
        del _kept[place]


class Waiting(Frozen):
    """What one call has put down for one task; a value that travels."""

    task: int
    path: str | None = None
    kept: int = 0
    """Values in the memory of the worker that the task runs in."""


class Outbox:
    """Takes the values that a task gives."""

    def __init__(self, shelf: Shelf, worker: int, path: str, is_own: Callable[[int], bool]) -> None:
        """`path` is how the names of its files begin; `is_own` says which tasks run in this worker."""
        self._kept = _of_round(shelf, worker)
        self._path = path
        self._is_own = is_own
        self._files: dict[int, Any] = {}
        self._kept_counts: dict[int, int] = {}

    def put(self, batches: Iterable[pa.RecordBatch]) -> list[Waiting]:
        """Puts down batches of `PACKED_SCHEMA`, of one row each; says where they wait."""
        try:
            for batch in batches:
                task = batch.column(TASK)[0].as_py()
                size = batch.nbytes
                if self._is_own(task) and self._kept.size + size <= KEPT_BYTES:
                    self._kept.values.setdefault(task, []).append(batch)
                    self._kept.size += size
                    self._kept_counts[task] = self._kept_counts.get(task, 0) + 1
                else:
                    self._write(task, batch)
        finally:
            for file in self._files.values():
                file.close()
        tasks = sorted({*self._files, *self._kept_counts})
        return [Waiting(task, self._path_of(task), self._kept_counts.get(task, 0)) for task in tasks]

    def _path_of(self, task: int) -> str | None:
        return f"{self._path}-{task}" if task in self._files else None

    def _write(self, task: int, batch: pa.RecordBatch) -> None:
        content = batch.column(PACKED)[0].as_buffer()
        path = f"{self._path}-{task}"
        try:
            if task not in self._files:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                self._files[task] = open(path, "wb", 0)  # noqa: SIM115 - closed by `put`
            parts = [
                _HEAD.pack(batch.column(TABLE)[0].as_py(), content.size),
                content,
                bytes(-content.size % ALIGNMENT),
            ]
            _write_all(self._files[task], parts)
        except OSError as error:
            text = f"{error.strerror} (outcomes between two tasks; choose another disk with the variable TMPDIR)"
            raise OSError(error.errno, text, path) from error


def _write_all(file: Any, parts: Iterable[Any]) -> None:
    left = [memoryview(each) for each in parts]
    while left:
        written = os.writev(file.fileno(), left)
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if left:
            left[0] = left[0][written:]


def values_of(waiting: Iterable[Waiting], shelf: Shelf, worker: int) -> Iterator[pa.RecordBatch]:
    """The values that wait for one task, as batches of `PACKED_SCHEMA`.

    Raises `WorkerDiedError` where this worker has taken the place of one that had some in its memory.
    """
    entries = list(waiting)
    kept = sum(each.kept for each in entries)
    if kept:
        values = _of_round(shelf, worker).values.pop(entries[0].task, [])[::-1]
        if len(values) != kept:
            raise WorkerDiedError("a worker process has ended with outcomes of this batch in its memory")
        while values:
            yield values.pop()
    for each in entries:
        if each.path is not None:
            yield from _of_file(each.path, each.task)


def _of_file(path: str, task: int) -> Iterator[pa.RecordBatch]:
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    whole = pa.py_buffer(mapped)
    start = let_go = 0
    while start < whole.size:
        table, size = _HEAD.unpack_from(mapped, start)
        start += _HEAD.size
        yield from packed_batches([(task, table, whole.slice(start, size))])
        start += size + -size % ALIGNMENT
        if start - let_go >= _LET_GO_BYTES:
            mapped.madvise(mmap.MADV_DONTNEED)
            let_go = start
