"""A writer that puts rows into the files of a bucket as they come, neither sorted nor merged.

write        buffers rows
release      hands them to the open data file, which rolls at the target size
flush        closes it
"""

from __future__ import annotations

from abc import abstractmethod
from concurrent.futures import Executor
from typing import Generic, TypeVar

import pyarrow as pa

from freshet.storage.files.data_file_writer import AppendFileWriter, KeyValueFileWriter
from freshet.storage.io.env import CrashPoint
from freshet.storage.io.undo import undone_on_failure
from freshet.storage.write.bucket_writer import BucketTools, BucketWriter
from freshet.storage.write.write_buffer import own_copy

FileWriterT = TypeVar("FileWriterT", AppendFileWriter, KeyValueFileWriter)


class UnmergedBucketWriter(BucketWriter, Generic[FileWriterT]):
    """Writer of one bucket; a subclass says what its files are, and what compaction does with them."""

    def __init__(self, tools: BucketTools, partition: bytes, bucket: int, total_buckets: int) -> None:
        super().__init__(tools, partition, bucket, total_buckets, is_ordered=False)
        self._chunks: list[pa.Table] = []
        self._chunk_bytes = 0
        self._open_file: FileWriterT | None = None

    @property
    def memory_bytes(self) -> int:
        return self._chunk_bytes

    @property
    def has_changes(self) -> bool:
        return bool(self._chunks) or self._open_file is not None or not self._increment.is_empty

    def own_memory(self) -> None:
        if self._chunks:
            self._chunks = [own_copy(self._chunks)]

    def release_memory(self) -> None:
        if not self._chunks:
            return
        if self._open_file is None:
            self._open_file = self._new_file()
        chunks, self._chunks, self._chunk_bytes = self._chunks, [], 0
        with self._tools.timings.step("files"):
            for rows in chunks:
                self._write_to(self._open_file, rows)

    def flush(self, executor: Executor | None = None) -> None:
        self.release_memory()
        writer, self._open_file = self._open_file, None
        if writer is None:
            return
        with undone_on_failure(writer.abort), self._tools.timings.step("files"):
            self._increment.add_new_files(writer.close())
        self._store.env.reach(CrashPoint.WRITE_FLUSHED)

    def abort(self) -> None:
        self._chunks.clear()
        self._chunk_bytes = 0
        if self._open_file is not None:
            self._open_file.abort()
            self._open_file = None
        self._delete(self._increment.give_up())

    def _buffer(self, rows: pa.Table) -> None:
        self._chunks.append(rows)
        self._chunk_bytes += rows.nbytes

    @abstractmethod
    def _new_file(self) -> FileWriterT:
        """What the next rows go into."""

    @abstractmethod
    def _write_to(self, file: FileWriterT, rows: pa.Table) -> None:
        """Rows in the order they came."""
