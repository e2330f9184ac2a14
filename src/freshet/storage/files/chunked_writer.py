"""Gathers rows until they are a chunk, for writers of all formats: what a new data file has in common with others.

A writer of a format gives the schema in which it takes rows and writes one chunk at a time; a file without rows is a
file, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from freshet.storage.exceptions import InvalidRequestError, StorageError
from freshet.storage.files.file_format import FileSummary
from freshet.storage.files.opening import open_new_file
from freshet.storage.io.env import CrashPoint, Env


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
        self.row_count = 0
        self._output = open_new_file(env, path)
        env.reach(CrashPoint.DATA_FILE_OPENED)

    @property
    def written_bytes(self) -> int:
        """Estimated size of the file if it were closed now: bytes on disk and what is pending at the same ratio."""
        return self._output.tell() + int(self._pending_bytes * self.compression_ratio)

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
                self.flush()

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
        if not self._output.closed:
            self._let_go()
        self._output.abort()

    def flush(self) -> None:
        """Writes the pending rows as a chunk."""
        if not self._pending:
            return
        chunk = pa.concat_tables(self._pending)
        with write_errors(self.path):
            self._write_chunk(chunk)
        self._flushed_bytes += self._pending_bytes
        self._pending.clear()
        self._pending_bytes = 0

    def _write_chunk(self, rows: pa.Table) -> None:
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
