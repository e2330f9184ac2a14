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
from dataclasses import dataclass
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
from freshet.storage.files.file_fields import SYSTEM_FIELDS
from freshet.storage.files.file_format import READ_BATCH_ROWS, FileReader
from freshet.storage.files.formats import format_of_file
from freshet.storage.files.opening import openings_ahead
from freshet.storage.filters.literal import canonical
from freshet.storage.filters.predicate import Predicate
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_field, arrow_schema, arrow_type
from freshet.storage.model.data_file import DataFileMeta, FileSource
from freshet.storage.model.data_type import DataField
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN
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


@dataclass(frozen=True, slots=True)
class _ReadPlan:
    """How to read one file: what to take from it and what to make of it."""

    store: TableStore
    path: str
    file: DataFileMeta
    columns: tuple[ReadColumn, ...]
    constants: Mapping[str, pa.Scalar[Any]]
    filter: Predicate | None
    deleted_rows: Bitmap32 | None
    is_numbered: bool

    @property
    def is_plain(self) -> bool:
        """True when the columns of the file are the columns wanted, as they are."""
        return all(
            column.cast is None and column.wanted == column.source and column.wanted.name not in self.constants
            for column in self.columns
        )

    @property
    def file_fields(self) -> list[DataField]:
        """Columns to be read from the file, as the file's schema has them."""
        return [
            column.source
            for column in self.columns
            if column.source is not None and column.wanted.name not in self.constants
        ]


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


def read_data_file(
    store: TableStore,
    partition: bytes,
    bucket: int,
    file: DataFileMeta,
    columns: Sequence[str],
    row_filter: Predicate | None = None,
    *,
    system_columns: bool = False,
    known: Mapping[str, int] = _NOTHING_KNOWN,
    batch_rows: int = READ_BATCH_ROWS,
    deleted_rows: Bitmap32 | None = None,
    is_numbered: bool = False,
    use_threads: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Rows in file order and bounded memory: a page per column, and the batch.

    `system_columns` puts `_SEQUENCE_NUMBER` and `_VALUE_KIND` in front of the columns: files of primary-key tables have
    them. Those that are `known` have the value given in each row, whatever the file says, and are not read.
    `row_filter`, bound to the table's schema or not, leaves out chunks in which no row passes. Rows at the positions
    `deleted_rows` are passed over; `CorruptDataError` is raised where the file has no such position. `is_numbered` adds
    the column of positions. `use_threads` decodes whole chunks in parallel, where they are not too large: faster, for a
    file that is read alone.
    """
    schema = store.schema
    unknown = [name for name in columns if name not in schema.by_name]
    if unknown:
        raise InvalidRequestError(
            f"table {store.location} has no column {unknown[0]!r}; columns are {', '.join(schema.column_names)}"
        )
    system_fields = SYSTEM_FIELDS if system_columns else ()
    file_schema = schema if file.schema_id == schema.id else store.schemas.schema(file.schema_id)
    path = data_file_path(store, partition, bucket, file)
    plan = _ReadPlan(
        store=store,
        path=path,
        file=file,
        columns=map_columns(
            (*system_fields, *file_schema.fields),
            (*system_fields, *(schema.by_name[name] for name in columns)),
            earlier=f"schema {schema.id} of {store.location}" if file.schema_id > schema.id else None,
        ),
        constants=partition_constants(store, partition) | _known_constants(system_fields, known),
        filter=None if row_filter is None else row_filter.bind(arrow_schema(schema)),
        deleted_rows=_checked_rows(deleted_rows, file, path) if deleted_rows else None,
        is_numbered=is_numbered,
    )
    batches = _read(plan, batch_rows, use_threads)
    if system_columns and store.options.sequence_snapshot_ordering:
        return _numbered_by_snapshot(batches, file, path)
    return batches


def _read(plan: _ReadPlan, batch_rows: int, use_threads: bool) -> Iterator[pa.RecordBatch]:
    with _open(plan) as reader:
        batches = _stored_batches(plan, reader, batch_rows, use_threads)
        if plan.is_plain:
            yield from batches
            return
        shape = _Shape(plan)
        for batch in batches:
            if batch.num_rows:
                yield shape.of(batch)


def _numbered_by_snapshot(batches: Iterator[pa.RecordBatch], file: DataFileMeta, path: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file that a commit brought with the number that its entry got then; of a compaction as they are."""
    if file.file_source is None:
        raise CorruptDataError(
            "sequence.snapshot-ordering needs to know of each file whether a compaction wrote it, and the manifest "
            "entry of this one does not say: it is older than the option. Write its rows into a new table",
            path=path,
        )
    if file.file_source is not FileSource.APPEND:
        return batches
    return (_with_number(batch, file.min_sequence_number) for batch in batches)


def _with_number(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    position = batch.schema.get_field_index(SEQUENCE_NUMBER_COLUMN)
    numbers = pa.array(np.full(batch.num_rows, number, np.int64))
    return batch.set_column(position, batch.schema.field(position), numbers)


def _stored_batches(
    plan: _ReadPlan, reader: FileReader, batch_rows: int, use_threads: bool
) -> Iterator[pa.RecordBatch]:
    fields, chunks = plan.file_fields, _chunks(plan, reader)
    batches: Iterable[pa.RecordBatch]
    if not use_threads:
        batches = reader.batches(fields, chunks=chunks, batch_rows=batch_rows)
    elif max(map(reader.chunk_bytes, chunks), default=0) > _WHOLE_CHUNK_BYTES_MAX:
        batches = reader.batches(fields, chunks=chunks, batch_rows=batch_rows, use_threads=True)
    else:
        in_flight = _CHUNKS_IN_FLIGHT if plan.store.env.reads is None else _STORE_CHUNKS_IN_FLIGHT
        tables = _tables(reader, fields, chunks, in_flight)
        batches = (batch for table in tables for batch in table.to_batches(batch_rows))
    if plan.deleted_rows is None and not plan.is_numbered:
        yield from batches
        return
    positions, start = _Positions(reader.chunk_rows, chunks), 0
    for batch in batches:
        end = start + batch.num_rows
        if plan.is_numbered:
            batch = batch.append_column(_POSITION_FIELD, pa.array(positions.numbers[start:end]))
        if plan.deleted_rows is not None:
            batch = _remaining(batch, positions.kept(plan.deleted_rows)[start:end])
        start = end
        if batch.num_rows:
            yield batch


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


def _open(plan: _ReadPlan) -> FileReader:
    packed = packed_range(plan.file.file_name)
    part = None if packed is None else (packed.offset, packed.length)
    file_format = format_of_file(plan.file.file_name, plan.store.location)
    reader = file_format.open(plan.store.env, plan.path, size_bytes=plan.file.file_size_bytes, part=part)
    row_count = sum(reader.chunk_rows)
    if row_count != plan.file.row_count:
        reader.close()
        raise CorruptDataError(
            f"the file has {row_count} rows, its manifest entry says {plan.file.row_count}: it was overwritten or "
            "damaged; restore it from a copy",
            path=plan.path,
        )
    return reader


class _Shape:
    """Columns of the table out of those of the file, batch after batch."""

    def __init__(self, plan: _ReadPlan) -> None:
        fields = [arrow_field(column.wanted) for column in plan.columns]
        self._plan = plan
        self._schema = pa.schema([*fields, _POSITION_FIELD] if plan.is_numbered else fields)
        self._repeated: dict[str, pa.Array[Any]] = {}

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of these rows."""
        if not self._plan.columns:
            return rows
        arrays = [self._column(column, rows) for column in self._plan.columns]
        if self._plan.is_numbered:
            arrays.append(rows.column(ROW_POSITION_COLUMN))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, column: ReadColumn, rows: pa.RecordBatch) -> pa.Array[Any]:
        count, name = rows.num_rows, column.wanted.name
        if name not in self._plan.constants:
            return column.convert(None if column.source is None else rows.column(column.source.name), count)
        repeated = self._repeated.get(name)
        if repeated is None or len(repeated) < count:  # made once: 16 K of a number take 24 µs, a slice takes 1
            repeated = self._repeated[name] = pa.repeat(self._plan.constants[name], count)
        return repeated.slice(0, count)


def _remaining(rows: pa.RecordBatch, kept: Flags) -> pa.RecordBatch:
    """The rows for which `kept` is true."""
    if kept.all():
        return rows
    if not rows.num_columns:  # only counted
        return rows.slice(0, int(np.count_nonzero(kept)))
    return rows.filter(pa.array(kept))


def _checked_rows(deleted: Bitmap32, file: DataFileMeta, path: str) -> Bitmap32:
    if deleted.max() >= file.row_count:
        raise CorruptDataError(
            f"a deletion vector marks row {deleted.max()} of a file of {file.row_count} rows: one of them was "
            "overwritten; restore the files from a copy",
            path=path,
        )
    return deleted


def _chunks(plan: _ReadPlan, reader: FileReader) -> list[int]:
    """Chunks in which some row may pass the filter."""
    counts = reader.chunk_rows
    if plan.filter is None:
        return list(range(len(counts)))
    mapped = _filter_columns(plan)
    kept = []
    for chunk, count in enumerate(counts):
        stats: dict[str, ColumnStats] = {}
        for name, column in mapped.items():
            if name in plan.constants:
                plain = canonical(plan.constants[name])
                stats[name] = ColumnStats(plain, plain, count if plain is None else 0)
            elif column.source is None or column.source.name not in reader.column_names:
                stats[name] = ColumnStats(null_count=count)
            elif column.keeps_bounds:
                stats[name] = reader.chunk_stats(chunk, column.source, column.wanted)
        if plan.filter.may_match(stats, count):
            kept.append(chunk)
    return kept


def _filter_columns(plan: _ReadPlan) -> dict[str, ReadColumn]:
    assert plan.filter is not None
    schema = plan.store.schema
    file_schema = schema if plan.file.schema_id == schema.id else plan.store.schemas.schema(plan.file.schema_id)
    wanted = [schema.by_name[name] for name in sorted(plan.filter.columns())]
    return {column.wanted.name: column for column in map_columns(file_schema.fields, wanted)}


def _known_constants(fields: Iterable[DataField], known: Mapping[str, int]) -> dict[str, pa.Scalar[Any]]:
    return {field.name: pa.scalar(known[field.name], arrow_type(field.type)) for field in fields if field.name in known}


def partition_constants(store: TableStore, partition: bytes) -> dict[str, pa.Scalar[Any]]:
    """The values of a partition, by the names of its keys."""
    keys, types = store.schema.partition_keys, store.partition_types
    return {
        name: pa.scalar(value, arrow_type(data_type))
        for name, value, data_type in zip(keys, store.partition_values(partition), types, strict=True)
    }
