"""What a format of data files offers; `formats` says which there are.

A file is a sequence of *chunks*, which can be read one by one: the row groups of Parquet, the stripes of ORC, the
blocks of Avro. The rows of the file are numbered from 0 through all chunks: the numbers that deletion vectors name.
A reader gives columns in the Arrow types of the fields asked for, whatever the file stores, by their names in the
schema that the file was written with; a writer takes them so. Everything else about data files (evolution of the
schema, deletion vectors, names, sizes, manifest entries) is the same for all formats and no matter of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from freshet.storage.codec.stats import ColumnStats, StatsRules
from freshet.storage.io.env import Env
from freshet.storage.model.data_type import DataField

READ_BATCH_ROWS: Final = 8192
"""Rows of a batch where the caller does not say."""

CHUNK_BYTES: Final = 16 * 1024 * 1024
"""Arrow bytes of a chunk that is written, unless `file.block-size` says how many."""


@dataclass(frozen=True, slots=True)
class FileSettings:
    """How a file is written."""

    compression: str = "zstd"
    zstd_level: int = 1
    delta_columns: tuple[str, ...] = ()
    """Integer columns whose neighbours are close (sorted keys)."""
    chunk_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class FileSummary:
    """A finished file."""

    size_bytes: int
    row_count: int


class FileReader(AbstractContextManager["FileReader"], Protocol):
    """One file open for reading."""

    @property
    def chunk_rows(self) -> Sequence[int]:
        """Rows of each chunk, in the order of the file."""

    @property
    def column_names(self) -> frozenset[str]:
        """Top-level columns that the file has."""

    def chunk_bytes(self, chunk: int) -> int:
        """About what the columns of the chunk take when they are decoded."""

    def chunk_stats(self, chunk: int, source: DataField, wanted: DataField) -> ColumnStats:
        """Bounds of a column that the file has, as values of the type wanted, which must keep those of the file."""

    def batches(
        self,
        fields: Sequence[DataField],
        *,
        chunks: Sequence[int] | None = None,
        batch_rows: int = READ_BATCH_ROWS,
        use_threads: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Rows of the chunks (of all) in file order and bounded memory."""

    def table(
        self, fields: Sequence[DataField], *, chunks: Sequence[int] | None = None, use_threads: bool = True
    ) -> pa.Table:
        """All rows of the chunks at once; several threads may ask at the same time."""

    def close(self) -> None:
        """Closes the file."""


class FileWriter(Protocol):
    """Writes one new file. Nothing names the file until the caller does so after `close`."""

    path: str
    row_count: int

    @property
    def written_bytes(self) -> int:
        """Estimated size of the file if it were closed now."""

    @property
    def compression_ratio(self) -> float:
        """File bytes per Arrow byte so far; 1 before the first chunk."""

    def write(self, rows: pa.Table) -> None:
        """Appends rows whose columns are those of the file, by name."""

    def flush(self) -> None:
        """Writes the pending rows as a chunk."""

    def close(self) -> FileSummary:
        """Writes what is pending and what the format has at its end, and makes the file durable."""

    def abort(self) -> None:
        """Removes the unfinished file; does nothing after `close`."""


class FileFormat(Protocol):
    """A format of data files."""

    @property
    def stats_rules(self) -> StatsRules:
        """What manifest entries hold of the columns of such files."""

    @property
    def footer_bytes(self) -> Callable[[pa.Buffer], int | None] | None:
        """How many bytes at the end of a file make its footer, given the last ones; None where they are no end of such
        a file. No function where files are read from their start."""

    def open(
        self, env: Env, path: str, *, size_bytes: int | None = None, part: tuple[int, int] | None = None
    ) -> FileReader:
        """Opens a file. `size_bytes`, where the manifest has it, must be the size on disk; `part` is the offset and the
        length of the bytes to be read, of a file that is several."""

    def create(
        self,
        env: Env,
        path: str,
        fields: Sequence[DataField],
        settings: FileSettings,
        executor: Executor | None = None,
    ) -> FileWriter:
        """Begins a file; `UnsupportedFeatureError` names a column or a codec that the format cannot hold. Chunks may be
        encoded by the `executor`, in tasks that wait for nothing."""
