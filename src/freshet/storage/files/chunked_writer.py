"""Gathers rows until they are a chunk, for writers of all formats: what a new data file has in common with others.

A writer of a format gives the schema in which it takes rows and writes one chunk at a time; a file without rows is a
file, too. Where other threads encode chunks, `AHEAD_CHUNKS` are on their way at most, and how large the file has become
is asked only of those behind them: the same rows make the same files, however fast the threads are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from freshet.storage.exceptions import InvalidRequestError, StorageError
from freshet.storage.files.file_format import FileSummary
from freshet.storage.files.opening import open_new_file
from freshet.storage.io.env import CrashPoint, Env

AHEAD_CHUNKS: Final = 2
"""As many threads as a task has by default; each chunk takes memory, once for its rows and once for its bytes."""

Placing = Callable[[], None]
"""Waits for a chunk that is being encoded and writes its bytes."""


class ChunkedWriter:
    """Writes one new file. Nothing names the file until the caller does so after `close`."""

    def __init__(self, env: Env, path: str, schema: pa.Schema, chunk_bytes: int) -> None:
        self._env = env
        self.path = path
        self._schema = schema
        self._chunk_bytes = chunk_bytes
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._flushed_bytes = 0
        self._coming: deque[tuple[int, Placing]] = deque()
        """Chunks that are being encoded, in the order of the file, with their Arrow bytes."""
        self.row_count = 0
        self._output = open_new_file(env, path)
        env.reach(CrashPoint.DATA_FILE_OPENED)

    @property
    def written_bytes(self) -> int:
        """Estimated size of the file if it were closed now: bytes on disk and what is to come at the same ratio."""
        coming_bytes = self._pending_bytes + sum(size_bytes for size_bytes, _ in self._coming)
        return self._output.tell() + int(coming_bytes * self.compression_ratio)

    @property
    def compression_ratio(self) -> float:
        """File bytes per Arrow byte so far; 1 before the first chunk."""
        return self._output.tell() / self._flushed_bytes if self._flushed_bytes else 1.0

    def write(self, rows: pa.Table) -> None:
        """Appends rows whose columns are those of the file, by name."""
        table = self._in_file_schema(rows)
        self.row_count += table.num_rows
        start = 0
        while start < table.num_rows:
            rest = table.slice(start)
            rest_bytes = rest.nbytes
            room = self._chunk_bytes - self._pending_bytes
            # Slightly larger chunks are better than a tiny last one.
            count = rest.num_rows if rest_bytes <= room * 5 // 4 else max(1, rest.num_rows * room // rest_bytes)
            self._pending.append(rest.slice(0, count))
            self._pending_bytes += rest_bytes * count // rest.num_rows
            start += count
            if self._pending_bytes >= self._chunk_bytes * 9 // 10:
                self._end_chunk()

    def close(self) -> FileSummary:
        """Writes what is pending and what the format has at its end, and makes the file durable."""
        self.flush()
        with write_errors(self.path):
            self._finish()
        size_bytes = self._output.tell()
        self._output.close()
        self._env.reach(CrashPoint.DATA_FILE_CLOSED)
        return FileSummary(size_bytes, self.row_count)

    def abort(self) -> None:
        """Removes the unfinished file; does nothing after `close`."""
        self._pending.clear()
        self._coming.clear()
        if not self._output.closed:
            self._let_go()
        self._output.abort()

    def flush(self) -> None:
        """Writes the pending rows as a chunk."""
        self._end_chunk()
        self._place(0)

    def _end_chunk(self) -> None:
        if not self._pending:
            return
        chunk = pa.concat_tables(self._pending)
        with write_errors(self.path):
            placing = self._write_chunk(chunk)
        if placing is None:
            self._flushed_bytes += self._pending_bytes
        else:
            self._coming.append((self._pending_bytes, placing))
        self._pending.clear()
        self._pending_bytes = 0
        del chunk
        self._place(AHEAD_CHUNKS)

    def _place(self, left: int) -> None:
        """Writes the chunks that come, but for so many."""
        while len(self._coming) > left:
            size_bytes, placing = self._coming.popleft()
            with write_errors(self.path):
                placing()
            self._flushed_bytes += size_bytes

    def _write_chunk(self, rows: pa.Table) -> Placing | None:
        """Writes a chunk, or begins to; then what is returned is called in the order of the chunks."""
        raise NotImplementedError

    def _finish(self) -> None:
        """Writes the end of the file, or a file without rows."""
        raise NotImplementedError

    def _let_go(self) -> None:
        """The file is not finished: what writes it must not try to."""

    def _in_file_schema(self, rows: pa.Table) -> pa.Table:
        columns = []
        for field in self._schema:
            column = rows.column(field.name)
            columns.append(column if column.type.equals(field.type) else column.cast(field.type))
        return pa.Table.from_arrays(columns, schema=self._schema)


@contextmanager
def write_errors(path: str) -> Iterator[None]:
    """What Arrow refuses of the rows is the caller's fault."""
    try:
        yield
    except StorageError:
        raise
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidRequestError(f"these rows cannot be written to {path}: {error}") from error
