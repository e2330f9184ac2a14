"""What a format of data files offers; `formats` says which there are.

A file is a sequence of *chunks*, which can be read one by one: the row groups of Parquet, the stripes of ORC, the
blocks of Avro. The rows of the file are numbered from 0 through all chunks: the numbers that deletion vectors name.
A reader gives columns in the Arrow types of the fields asked for, whatever the file stores, by their names in the
schema that the file was written with; a writer takes them so. Everything else about data files (evolution of the
schema, deletion vectors, names, sizes, manifest entries) is the same for all formats and no matter of theirs.

A writer gathers rows until they are a chunk. That of a format gives the schema in which it takes rows and writes one
chunk at a time; a file without rows is a file, too. With an executor a chunk is encoded and written there while the
next one is gathered. How large the file has become is asked only once that is done: the same rows make the same files,
however fast the threads are. Measured, W1 into one bucket: the thread that commits has 0.2 s of processor time, and
1.1 s where it encodes; all threads together have as much.

Errors of the libraries that read data files become errors of the package, which name the file:

| what failed | error |
|---|---|
| the disk or the store | as `io.local_errors` says |
| memory ran out | `OutOfMemoryError`: it proves nothing about the bytes |
| anything that a format's library says of bytes | `CorruptDataError` |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Protocol

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.codec.stats import ColumnStats, StatsRules
from freshet.storage.exceptions import CorruptDataError, InvalidRequestError, StorageError, UnsupportedFeatureError
from freshet.storage.files.opening import open_new_file
from freshet.storage.io.env import CrashPoint, Env
from freshet.storage.io.local_errors import is_out_of_memory, out_of_memory, storage_error
from freshet.storage.model.data_type import DataField

READ_BATCH_ROWS: Final = 8192
"""Rows of a batch where the caller does not say."""

CHUNK_BYTES: Final = 16 * 1024 * 1024
"""Arrow bytes of a chunk that is written, unless `file.block-size` says how many."""


class FileSettings(Frozen):
    """How a file is written."""

    compression: str = "zstd"
    zstd_level: int = 1
    delta_columns: tuple[str, ...] = ()
    """Integer columns whose neighbours are close (sorted keys)."""
    chunk_bytes: int | None = None


class FileSummary(Frozen):
    """A finished file."""

    size_bytes: int
    row_count: int


class FileReader(AbstractContextManager["FileReader"], ABC):
    """One file open for reading."""

    @property
    @abstractmethod
    def chunk_rows(self) -> Sequence[int]:
        """Rows of each chunk, in the order of the file."""

    @property
    @abstractmethod
    def column_names(self) -> frozenset[str]:
        """Top-level columns that the file has."""

    @abstractmethod
    def chunk_bytes(self, chunk: int) -> int:
        """About what the columns of the chunk take when they are decoded."""

    @abstractmethod
    def chunk_stats(self, chunk: int, source: DataField, wanted: DataField) -> ColumnStats:
        """Bounds of a column that the file has, as values of the type wanted, which must keep those of the file."""

    @abstractmethod
    def batches(
        self,
        fields: Sequence[DataField],
        *,
        chunks: Sequence[int] | None = None,
        batch_rows: int = READ_BATCH_ROWS,
        use_threads: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Rows of the chunks (of all) in file order and bounded memory."""

    @abstractmethod
    def table(
        self, fields: Sequence[DataField], *, chunks: Sequence[int] | None = None, use_threads: bool = True
    ) -> pa.Table:
        """All rows of the chunks at once; several threads may ask at the same time."""

    @abstractmethod
    def close(self) -> None:
        """Closes the file."""

    def __exit__(self, *_: object) -> None:
        self.close()


class FileWriter(ABC):
    """Writes one new file. Nothing names the file until the caller does so after `close`."""

    def __init__(
        self, env: Env, path: str, schema: pa.Schema, chunk_bytes: int, executor: Executor | None = None
    ) -> None:
        self._env = env
        self.path = path
        self._schema = schema
        self._chunk_bytes = chunk_bytes
        self._executor = executor
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._coming: Future[None] | None = None
        """The chunk that is being written by another thread."""
        self._coming_bytes = 0
        self._flushed_bytes = 0
        self._file_bytes = 0
        """The size of the file after the last chunk that is known to be written."""
        self.row_count = 0
        self._output = open_new_file(env, path)
        env.reach(CrashPoint.DATA_FILE_OPENED)

    @property
    def written_bytes(self) -> int:
        """Estimated size of the file if it were closed now: bytes on disk and what is to come at the same ratio."""
        return self._file_bytes + int((self._pending_bytes + self._coming_bytes) * self.compression_ratio)

    @property
    def compression_ratio(self) -> float:
        """File bytes per Arrow byte so far; 1 before the first chunk."""
        return self._file_bytes / self._flushed_bytes if self._flushed_bytes else 1.0

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
                self._end_chunk(self._executor)

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
        if self._coming is not None:
            wait([self._coming])
        if not self._output.closed:
            self._let_go()
        self._output.abort()

    def flush(self) -> None:
        """Writes the pending rows as a chunk."""
        self._end_chunk(None)
        self._end_coming()

    def _end_chunk(self, executor: Executor | None) -> None:
        self._end_coming()
        if not self._pending:
            return
        chunk = pa.concat_tables(self._pending)
        self._coming_bytes, self._pending_bytes = self._pending_bytes, 0
        self._pending.clear()
        if executor is not None:
            self._coming = executor.submit(self._write_chunk, chunk)
            return
        with write_errors(self.path):
            self._write_chunk(chunk)
        self._chunk_is_written()

    def _end_coming(self) -> None:
        """Waits for the chunk that another thread writes."""
        if self._coming is not None:
            with write_errors(self.path):
                self._coming.result()
            self._coming = None
            self._chunk_is_written()

    def _chunk_is_written(self) -> None:
        self._flushed_bytes += self._coming_bytes
        self._coming_bytes, self._file_bytes = 0, self._output.tell()

    @abstractmethod
    def _write_chunk(self, rows: pa.Table) -> None:
        """Writes a chunk."""

    @abstractmethod
    def _finish(self) -> None:
        """Writes the end of the file, or a file without rows."""

    def _let_go(self) -> None:  # noqa: B027
        """The file is not finished: what writes it must not try to."""

    def _in_file_schema(self, rows: pa.Table) -> pa.Table:
        columns = []
        for field in self._schema:
            column = rows.column(field.name)
            columns.append(column if column.type.equals(field.type) else column.cast(field.type))
        return pa.Table.from_arrays(columns, schema=self._schema)


class OpenFile(Protocol):
    """How a format opens a file."""

    def __call__(
        self, env: Env, path: str, *, size_bytes: int | None = None, part: tuple[int, int] | None = None
    ) -> FileReader:
        """`size_bytes`, where the manifest has it, must be the size on disk; `part` is the offset and the length of the
        bytes to be read, of a file that is several."""


class CreateFile(Protocol):
    """How a format begins a file."""

    def __call__(
        self,
        env: Env,
        path: str,
        fields: Sequence[DataField],
        settings: FileSettings,
        executor: Executor | None = None,
    ) -> FileWriter:
        """`UnsupportedFeatureError` names a column or a codec that the format cannot hold. The `executor` may write
        chunks, one at a time, in tasks that wait for nothing."""


class FileFormat(Frozen):
    """A format of data files; `stats_rules` say what manifest entries hold of the columns of such files."""

    open: OpenFile
    create: CreateFile
    stats_rules: StatsRules
    footer_bytes: Callable[[pa.Buffer], int | None] | None = None
    """How many bytes at the end of a file make its footer, given the last ones; None where they are no end of such a
    file. No function where files are read from their start."""


_OF_ALL: Final = (pa.ArrowException, OSError, ValueError, LookupError, ArithmeticError, RecursionError, MemoryError)


@contextmanager
def read_errors(path: str, kind: str, *others: type[Exception]) -> Iterator[None]:
    """While the block reads a file of the format `kind`; `others` are other errors of its libraries."""
    try:
        yield
    except UnsupportedFeatureError as error:
        raise error if path in str(error) else error.reworded(f"{path}: {error}", path=path) from error
    except (StorageError, pa.ArrowCancelled):
        raise
    except (*_OF_ALL, *others) as error:
        if is_out_of_memory(error):
            raise out_of_memory("read", path) from error
        if isinstance(error, OSError) and error.errno:  # the disk failed, not the format
            raise storage_error(error, "read", path) from error
        said = str(error) if isinstance(error, pa.ArrowException) else f"{type(error).__name__}: {error}"
        raise CorruptDataError(
            f"the {kind} file cannot be read ({said[:300]}); restore it from a copy, or drop it with the data it holds",
            path=path,
        ) from error


@contextmanager
def write_errors(path: str) -> Iterator[None]:
    """What Arrow refuses of the rows is the caller's fault."""
    try:
        yield
    except StorageError:
        raise
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidRequestError(f"these rows cannot be written to {path}: {error}") from error
