"""Cuts a stream of rows into data files of the target size.

A file is closed as soon as its size reaches `target-file-size` or its rows `target-file-row-num`; the size is that of
the bytes written plus an estimate for the chunk in memory. Pieces have 1000 rows at least, so that is how far a
small target is overshot; the format's own writers look every 1000 rows.

Invariant: until `close` returns nothing names the files, and `abort` removes all of them. Source: FORMAT.md §1.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Final, Protocol

import pyarrow as pa

from freshet.storage.codec.file_index import INDEX_SUFFIX
from freshet.storage.files.data_file_paths import DataFileNames
from freshet.storage.files.file_format import CHUNK_BYTES, FileSettings, FileSummary, FileWriter
from freshet.storage.io.env import Env
from freshet.storage.io.file_io import create_or_ask
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.data_type import DataField
from freshet.storage.options.core import CoreOptions

PIECE_ROWS_MIN: Final = 1000
WAITING_BYTES: Final = 1024 * 1024
"""Smaller pieces than these wait for those that follow: to describe a few rows costs as much as to describe many."""


class FileContents(Protocol):
    """What is remembered of the rows of one file."""

    def add(self, rows: pa.Table) -> None:
        """Takes rows that were just written into account."""

    def meta(self, file_name: str, summary: FileSummary) -> DataFileMeta:
        """The manifest's description of the finished file."""

    def index(self) -> bytes | None:
        """The container of its indexes; None where it has none."""


class FileCompanion(Protocol):
    """Something that is made of the rows of one file as they are written, and lives and dies with it."""

    def add(self, rows: pa.Table) -> None:
        """Takes rows that were just written."""

    def finish(self) -> None:
        """The file is complete."""

    def abort(self) -> None:
        """The file will not be; does nothing behind `finish`."""


NewCompanion = Callable[[str], FileCompanion | None]
"""The companion of a file of this name, if it gets one."""


class RollingFileWriter:
    """Writes files of one bucket at one level; `names` say how they are called and encoded."""

    def __init__(
        self,
        store: TableStore,
        names: DataFileNames,
        fields: Sequence[DataField],
        new_contents: Callable[[], FileContents],
        delta_columns: Sequence[str] = (),
        *,
        row_count_max: int | None = None,
        new_companion: NewCompanion | None = None,
        executor: Executor | None = None,
    ) -> None:
        """`row_count_max` closes a file by rows as well; compaction has no such bound (MERGING.md §1.2). `executor` may
        encode."""
        self._executor = executor
        self._row_count_max = row_count_max
        self._new_companion = new_companion
        self._env: Env = store.env
        self._options: CoreOptions = store.options
        self._names = names
        self._fields = tuple(fields)
        self._new_contents = new_contents
        self._settings = FileSettings(
            names.traits.compression,
            store.options.file_compression_zstd_level,
            tuple(delta_columns),
            store.options.file_block_size_bytes,
        )
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._current: _OpenFile | None = None
        self._finished: list[tuple[str, DataFileMeta]] = []

    def write(self, rows: pa.Table) -> None:
        """Appends rows; a file that becomes full is closed and the next one begun."""
        if not rows.num_rows:
            return
        if self._waiting and self._waiting[0].schema != rows.schema:
            self._write_waiting()
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= WAITING_BYTES or sum(map(len, self._waiting)) >= PIECE_ROWS_MIN:
            self._write_waiting()

    def _write_waiting(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if waiting:
            self._write(pa.concat_tables(waiting))

    def _write(self, rows: pa.Table) -> None:
        row_bytes = max(1.0, rows.nbytes / rows.num_rows)
        start = 0
        while start < rows.num_rows:
            if self._current is None:
                self._current = self._open()
            piece = rows.slice(start, self._piece_rows(self._current.writer, row_bytes))
            self._current.add(piece)
            start += piece.num_rows
            if self._is_full(self._current.writer):
                self._finish()

    def close(self) -> list[DataFileMeta]:
        """Finishes the last file and describes all of them, in the order written."""
        self._write_waiting()
        if self._current is not None:
            self._finish()
        return [meta for _, meta in self._finished]

    def abort(self) -> None:
        """Removes every file of this writer; what cannot be removed is left to orphan cleaning."""
        self._waiting.clear()
        paths = [path for path, _ in self._finished]
        paths += [path + INDEX_SUFFIX for path, meta in self._finished if meta.extra_files]
        if self._current is not None:
            self._current.abort()
            # Closed, but not described; its index may be there.
            paths += [self._current.writer.path, self._current.writer.path + INDEX_SUFFIX]
            self._current = None
        self._env.file_io.delete_all(paths)
        self._finished.clear()

    def _open(self) -> _OpenFile:
        contents = self._new_contents()
        name, path = self._names.take()
        writer = self._names.format.create(self._env, path, self._fields, self._settings, self._executor)
        companion = None if self._new_companion is None else self._new_companion(name)
        return _OpenFile(name, writer, contents, companion)

    def _piece_rows(self, writer: FileWriter, row_bytes: float) -> int:
        room_bytes = (self._options.target_file_size_bytes - writer.written_bytes) / writer.compression_ratio
        rows = int(min(room_bytes, CHUNK_BYTES) / row_bytes) + 1
        piece = max(rows, PIECE_ROWS_MIN)
        return piece if self._row_count_max is None else min(piece, self._row_count_max - writer.row_count)

    def _is_full(self, writer: FileWriter) -> bool:
        if self._row_count_max is not None and writer.row_count >= self._row_count_max:
            return True
        target = self._options.target_file_size_bytes
        if writer.written_bytes >= target:
            # How far the pending rows compress is known only once they are written.
            writer.flush()
        return writer.written_bytes >= target

    def _finish(self) -> None:
        assert self._current is not None
        current = self._current
        meta = current.contents.meta(current.name, current.writer.close())
        index = current.contents.index()
        if index is not None and len(index) <= self._options.file_index_in_manifest_threshold_bytes:
            meta = replace(meta, embedded_index=index)
        elif index is not None:
            meta = replace(meta, extra_files=(*meta.extra_files, current.name + INDEX_SUFFIX))
            create_or_ask(self._env.file_io, current.writer.path + INDEX_SUFFIX, index)
        self._finished.append((current.writer.path, meta))
        self._current = None
        if current.companion is not None:
            current.companion.finish()


class _OpenFile:
    def __init__(
        self, name: str, writer: FileWriter, contents: FileContents, companion: FileCompanion | None = None
    ) -> None:
        self.name = name
        self.writer = writer
        self.contents = contents
        self.companion = companion

    def add(self, rows: pa.Table) -> None:
        self.writer.write(rows)
        self.contents.add(rows)
        if self.companion is not None:
            self.companion.add(rows)

    def abort(self) -> None:
        self.writer.abort()
        if self.companion is not None:
            self.companion.abort()
