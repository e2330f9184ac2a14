"""Reads the rows of one data file, in its order, as the current schema of the table.

    1. open the file; its size must be the one of its manifest entry
    2. map the columns wanted, by field id, from the schema the file was written with (`evolution`)
    3. leave out chunks (row groups, stripes) whose statistics show that no row can pass the filter
    4. read, convert, fill partition columns from the manifest: those inside the file are not trusted; also what the
       caller knows of system columns by the manifest
    5. leave out rows that a deletion vector marks: its positions count all rows of the file
    6. with `sequence.snapshot-ordering`, number rows by the snapshot that brought them

Rows of a chunk that is read are never filtered: those of an overlapping section must not be dropped by anything but
their key. `_KEY_` columns are never read: keys are the key columns. Source: FORMAT.md §2.3, §7.1, §7.3, §7.4, §13.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.casts.evolution import ReadColumn, map_columns
from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.codec.stats import ColumnStats
from freshet.storage.exceptions import CorruptDataError, InvalidRequestError
from freshet.storage.files.data_file_paths import data_file_path
from freshet.storage.files.file_columns import SYSTEM_FIELDS
from freshet.storage.files.file_format import READ_BATCH_ROWS, FileReader
from freshet.storage.files.formats import format_of_file
from freshet.storage.files.opening import openings_ahead
from freshet.storage.filters.literal import canonical
from freshet.storage.filters.predicate import Predicate
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_field, arrow_schema, arrow_type
from freshet.storage.model.data_file import DataFileMeta, FileSource
from freshet.storage.model.data_type import DataField
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, TableSchema
from freshet.storage.paths import packed_range

ROW_POSITION_COLUMN: Final = "_ROW_POSITION"
"""Behind the other columns where rows are asked to be numbered: the position of the row in its file, from 0."""

Flags = npt.NDArray[np.bool_]

_POSITION_FIELD: Final = pa.field(ROW_POSITION_COLUMN, pa.int64(), nullable=False)

_NOTHING_KNOWN: Final[Mapping[str, int]] = MappingProxyType({})

_WHOLE_CHUNK_BYTES_MAX: Final = 32 * 1024 * 1024
"""Chunks up to this size (uncompressed) are decoded whole and in parallel; larger ones are streamed."""

_CHUNKS_IN_FLIGHT: Final = 2
"""Where one column holds most of the bytes, columns in parallel keep only one core busy; chunks keep two."""

_STORE_CHUNKS_IN_FLIGHT: Final = 4
"""The same at a store, where threads wait for the bytes first."""


class _Positions:
    """Positions in the file of the rows of the chunks read, one after the other."""

    def __init__(self, counts: Sequence[int], chunks: Sequence[int]) -> None:
        starts = np.cumsum([0, *counts])
        self._count = int(starts[-1])
        self._ranges = [(int(starts[at]), int(starts[at + 1])) for at in chunks]
        self._is_whole = len(chunks) == len(counts)
        self._kept: Flags | None = None

    @cached_property
    def numbers(self) -> npt.NDArray[np.int64]:
        """The positions themselves."""
        return self._of_chunks(np.arange(self._count, dtype=np.int64))

    def kept(self, deleted: Bitmap32) -> Flags:
        """For each row whether it stays; `deleted` is the same in every call."""
        if self._kept is None:
            kept = np.ones(self._count, np.bool_)
            kept[np.asarray(deleted.to_array(), np.int64)] = False
            self._kept = self._of_chunks(kept)
        return self._kept

    def _of_chunks(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self._is_whole:
            return values
        parts = [values[start:end] for start, end in self._ranges]
        return np.concatenate([values[:0], *parts])


def data_files_ahead(
    store: TableStore, files: Iterable[tuple[bytes, int, DataFileMeta]]
) -> AbstractContextManager[None]:
    """While the block runs, these files (partition, bucket, file) are about to be read, in this order: at a store where
    requests take their time, the first of each are made ahead."""
    return openings_ahead(
        store.env,
        (
            (
                data_file_path(store, partition, bucket, file),
                file.file_size_bytes,
                format_of_file(file.file_name, store.location).footer_bytes,
            )
            for partition, bucket, file in files
            if packed_range(file.file_name) is None
        ),
    )


@dataclass(frozen=True)
class DataFileRead:
    """The read of one data file: `batches` gives its rows in file order and bounded memory, a page per column, and the
    batch."""

    store: TableStore
    partition: bytes
    bucket: int
    file: DataFileMeta
    columns: Sequence[str]
    row_filter: Predicate | None = None
    """Leaves out chunks in which no row passes; bound to the table's schema or not."""
    _: KW_ONLY
    system_columns: bool = False
    """Puts `_SEQUENCE_NUMBER` and `_VALUE_KIND` in front of the columns: files of primary-key tables have them."""
    known: Mapping[str, int] = field(default_factory=lambda: _NOTHING_KNOWN)
    """System columns that have this value in each row, whatever the file says; they are not read."""
    batch_rows: int = READ_BATCH_ROWS
    deleted_rows: Bitmap32 | None = None
    """Positions of rows that are passed over; `CorruptDataError` is raised where the file has no such position."""
    is_numbered: bool = False
    """Adds the column of positions."""
    use_threads: bool = False
    """Decodes whole chunks in parallel, where they are not too large: faster, for a file that is read alone."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows."""
        schema = self.store.schema
        unknown = [name for name in self.columns if name not in schema.by_name]
        if unknown:
            raise InvalidRequestError(
                f"table {self.store.location} has no column {unknown[0]!r}; columns are "
                f"{', '.join(schema.column_names)}"
            )
        self._check_deleted_rows()
        if self.system_columns and self.store.options.sequence_snapshot_ordering:
            return self._numbered_by_snapshot()
        return self._read()

    @cached_property
    def path(self) -> str:
        """Where the file is."""
        return data_file_path(self.store, self.partition, self.bucket, self.file)

    @cached_property
    def mapped(self) -> tuple[ReadColumn, ...]:
        """The columns wanted, with those of the file that they are made of."""
        schema = self.store.schema
        return map_columns(
            (*self._system_fields, *self._file_schema.fields),
            (*self._system_fields, *(schema.by_name[name] for name in self.columns)),
            earlier=f"schema {schema.id} of {self.store.location}" if self.file.schema_id > schema.id else None,
        )

    @cached_property
    def constants(self) -> Mapping[str, pa.Scalar[Any]]:
        """Values that are the same in each row, by column."""
        known = {
            each.name: pa.scalar(self.known[each.name], arrow_type(each.type))
            for each in self._system_fields
            if each.name in self.known
        }
        return partition_constants(self.store, self.partition) | known

    @property
    def _system_fields(self) -> Sequence[DataField]:
        return SYSTEM_FIELDS if self.system_columns else ()

    @cached_property
    def _file_schema(self) -> TableSchema:
        schema = self.store.schema
        return schema if self.file.schema_id == schema.id else self.store.schemas.schema(self.file.schema_id)

    @property
    def _is_plain(self) -> bool:
        """True when the columns of the file are the columns wanted, as they are."""
        return all(
            column.cast is None and column.wanted == column.source and column.wanted.name not in self.constants
            for column in self.mapped
        )

    def _check_deleted_rows(self) -> None:
        if self.deleted_rows and self.deleted_rows.max() >= self.file.row_count:
            raise CorruptDataError(
                f"a deletion vector marks row {self.deleted_rows.max()} of a file of {self.file.row_count} rows: one "
                "of them was overwritten; restore the files from a copy",
                path=self.path,
            )

    def _numbered_by_snapshot(self) -> Iterator[pa.RecordBatch]:
        """The rows of a file that a commit brought with the number that its entry got then; of a compaction as they
        are."""
        if self.file.file_source is None:
            raise CorruptDataError(
                "sequence.snapshot-ordering needs to know of each file whether a compaction wrote it, and the manifest "
                "entry of this one does not say: it is older than the option. Write its rows into a new table",
                path=self.path,
            )
        if self.file.file_source is not FileSource.APPEND:
            return self._read()
        return (_with_number(batch, self.file.min_sequence_number) for batch in self._read())

    def _read(self) -> Iterator[pa.RecordBatch]:
        with self._open() as reader:
            batches = self._stored_batches(reader)
            if self._is_plain:
                yield from batches
                return
            shape = _Shape(self)
            for batch in batches:
                if batch.num_rows:
                    yield shape.of(batch)

    def _open(self) -> FileReader:
        packed = packed_range(self.file.file_name)
        part = None if packed is None else (packed.offset, packed.length)
        file_format = format_of_file(self.file.file_name, self.store.location)
        reader = file_format.open(self.store.env, self.path, size_bytes=self.file.file_size_bytes, part=part)
        row_count = sum(reader.chunk_rows)
        if row_count != self.file.row_count:
            reader.close()
            raise CorruptDataError(
                f"the file has {row_count} rows, its manifest entry says {self.file.row_count}: it was overwritten or "
                "damaged; restore it from a copy",
                path=self.path,
            )
        return reader

    def _stored_batches(self, reader: FileReader) -> Iterator[pa.RecordBatch]:
        chunks = self._chunks(reader)
        fields = [
            column.source
            for column in self.mapped
            if column.source is not None and column.wanted.name not in self.constants
        ]
        batches: Iterable[pa.RecordBatch]
        if not self.use_threads:
            batches = reader.batches(fields, chunks=chunks, batch_rows=self.batch_rows)
        elif max(map(reader.chunk_bytes, chunks), default=0) > _WHOLE_CHUNK_BYTES_MAX:
            batches = reader.batches(fields, chunks=chunks, batch_rows=self.batch_rows, use_threads=True)
        else:
            in_flight = _CHUNKS_IN_FLIGHT if self.store.env.reads is None else _STORE_CHUNKS_IN_FLIGHT
            tables = _tables(reader, fields, chunks, in_flight)
            batches = (batch for table in tables for batch in table.to_batches(self.batch_rows))
        if not self.deleted_rows and not self.is_numbered:
            yield from batches
            return
        positions, start = _Positions(reader.chunk_rows, chunks), 0
        for batch in batches:
            end = start + batch.num_rows
            if self.is_numbered:
                batch = batch.append_column(_POSITION_FIELD, pa.array(positions.numbers[start:end]))
            if self.deleted_rows:
                batch = _remaining(batch, positions.kept(self.deleted_rows)[start:end])
            start = end
            if batch.num_rows:
                yield batch

    def _chunks(self, reader: FileReader) -> list[int]:
        """Chunks in which some row may pass the filter."""
        counts = reader.chunk_rows
        if self.row_filter is None:
            return list(range(len(counts)))
        schema = self.store.schema
        row_filter = self.row_filter.bind(arrow_schema(schema))
        wanted = [schema.by_name[name] for name in sorted(row_filter.columns())]
        mapped = {column.wanted.name: column for column in map_columns(self._file_schema.fields, wanted)}
        kept = []
        for chunk, count in enumerate(counts):
            stats: dict[str, ColumnStats] = {}
            for name, column in mapped.items():
                if name in self.constants:
                    plain = canonical(self.constants[name])
                    stats[name] = ColumnStats(plain, plain, count if plain is None else 0)
                elif column.source is None or column.source.name not in reader.column_names:
                    stats[name] = ColumnStats(null_count=count)
                elif column.keeps_bounds:
                    stats[name] = reader.chunk_stats(chunk, column.source, column.wanted)
            if row_filter.may_match(stats, count):
                kept.append(chunk)
        return kept


def _with_number(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    position = batch.schema.get_field_index(SEQUENCE_NUMBER_COLUMN)
    numbers = pa.array(np.full(batch.num_rows, number, np.int64))
    return batch.set_column(position, batch.schema.field(position), numbers)


def _tables(
    reader: FileReader, fields: Sequence[DataField], chunks: Sequence[int], in_flight: int
) -> Iterator[pa.Table]:
    """Chunks in order, several of them in the making."""
    if len(chunks) < 2:
        yield from (reader.table(fields, chunks=[chunk]) for chunk in chunks)
        return
    with ThreadPoolExecutor(in_flight) as executor:
        rest = iter(chunks)
        coming = deque(executor.submit(reader.table, fields, chunks=[at]) for at in islice(rest, in_flight))
        while coming:
            table = coming.popleft().result()
            coming.extend(executor.submit(reader.table, fields, chunks=[at]) for at in islice(rest, 1))
            yield table
            del table


class _Shape:
    """Columns of the table out of those of the file, batch after batch."""

    def __init__(self, read: DataFileRead) -> None:
        fields = [arrow_field(column.wanted) for column in read.mapped]
        self._read = read
        self._schema = pa.schema([*fields, _POSITION_FIELD] if read.is_numbered else fields)
        self._repeated: dict[str, pa.Array[Any]] = {}

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of these rows."""
        if not self._read.mapped:
            return rows
        arrays = [self._column(column, rows) for column in self._read.mapped]
        if self._read.is_numbered:
            arrays.append(rows.column(ROW_POSITION_COLUMN))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, column: ReadColumn, rows: pa.RecordBatch) -> pa.Array[Any]:
        count, name = rows.num_rows, column.wanted.name
        if name not in self._read.constants:
            return column.convert(None if column.source is None else rows.column(column.source.name), count)
        repeated = self._repeated.get(name)
        if repeated is None or len(repeated) < count:  # made once: 16 K of a number take 24 µs, a slice takes 1
            repeated = self._repeated[name] = pa.repeat(self._read.constants[name], count)
        return repeated.slice(0, count)


def _remaining(rows: pa.RecordBatch, kept: Flags) -> pa.RecordBatch:
    """The rows for which `kept` is true."""
    if kept.all():
        return rows
    if not rows.num_columns:  # only counted
        return rows.slice(0, int(np.count_nonzero(kept)))
    return rows.filter(pa.array(kept))


def partition_constants(store: TableStore, partition: bytes) -> dict[str, pa.Scalar[Any]]:
    """The values of a partition, by the names of its keys."""
    keys, types = store.schema.partition_keys, store.partition_types
    return {
        name: pa.scalar(value, arrow_type(data_type))
        for name, value, data_type in zip(keys, store.partition_values(partition), types, strict=True)
    }
