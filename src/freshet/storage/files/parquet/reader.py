"""Parquet files read: batches in bounded memory, or whole row groups at once.

Reading goes two ways: `batches` through buffered column streams in bounded memory, and `table` with all columns of
whole row groups at once, decoded by several threads. The buffered way reads 32 KB at a time per column; without it
pyarrow loads whole column chunks (50 files of 34 MB: 2 GB).

At a store where requests take their time a small file is read whole, and of a large one the footer and then the wanted
columns of each row group (`opening`, `ranged_file`).

INT96 timestamps are read in the unit of their column. Nanoseconds reach from 1677 to 2262 in Arrow; a TIMESTAMP(7..9)
outside of that cannot be read: it is found, not cut.

The footer has bounds of row groups, for filters:

| type | bounds of a row group |
|---|---|
| integers, DATE, BOOLEAN, DECIMAL, text, binary | as they are |
| TIME, TIMESTAMP | ticks in the unit of the column's Arrow type; none for INT96 |
| FLOAT, DOUBLE | as they are: NaN is left out by writers, zeros have the wider sign |
| nested types, missing statistics | none |

Source: FORMAT.md §2.3, §7.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from freshet.storage.codec.stats import NO_STATS, ColumnStats
from freshet.storage.exceptions import CorruptDataError, UnsupportedFeatureError
from freshet.storage.files.file_columns import StoredColumns, has_nano_timestamps
from freshet.storage.files.file_format import READ_BATCH_ROWS, FileReader, read_errors
from freshet.storage.files.opening import open_file, opened_input
from freshet.storage.files.parquet.ranged_file import WINDOW_BYTES, RangedFile
from freshet.storage.filters.literal import canonical
from freshet.storage.io.env import Env
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import DataField, ScalarType

_READ_BUFFER_BYTES: Final = 32 * 1024


class ParquetReader(FileReader):
    """One file open for reading. Columns come in the Arrow types of the fields given, whatever the file stores."""

    def __init__(
        self, env: Env, path: str, *, size_bytes: int | None = None, part: tuple[int, int] | None = None
    ) -> None:
        """`size_bytes`, where the manifest has it, must be the size on disk. `part` is the offset and the length of
        the bytes to be read, of a file that is several; they are held in memory.
        """
        self.path = path
        self._ranged: RangedFile | None = None
        metadata = None
        if env.reads is not None and part is None and size_bytes is not None:
            opening = open_file(env, path, size_bytes, footer_bytes)
            self._input: Any = pa.BufferReader(opening.data)
            if not opening.is_whole:
                with read_errors(path, "Parquet"):
                    metadata = pq.read_metadata(self._input)
                self._ranged = RangedFile(env, path, size_bytes, metadata, opening)
                self._input = pa.PythonFile(self._ranged, mode="r")
        else:
            self._input = opened_input(env, path, size_bytes, part)
        try:
            self._file = self._parquet_file(metadata, 0 if self._ranged else _READ_BUFFER_BYTES)
            with read_errors(path, "Parquet"):
                self.arrow_schema: pa.Schema = self._file.schema_arrow
        except BaseException:
            self._input.close()
            raise

    def _parquet_file(self, metadata: pq.FileMetaData | None, buffer_bytes: int) -> pq.ParquetFile:
        with read_errors(self.path, "Parquet"):
            return pq.ParquetFile(
                self._input,
                metadata=metadata,
                buffer_size=buffer_bytes,
                pre_buffer=False,
                coerce_int96_timestamp_unit="us",
                page_checksum_verification=True,
                arrow_extensions_enabled=False,
            )

    def close(self) -> None:
        self._file.close()
        self._input.close()

    @property
    def metadata(self) -> pq.FileMetaData:
        """The footer."""
        return self._file.metadata

    @property
    def chunk_rows(self) -> Sequence[int]:
        return [self.metadata.row_group(group).num_rows for group in range(self.metadata.num_row_groups)]

    def chunk_bytes(self, chunk: int) -> int:
        """What the row group takes without compression."""
        size_bytes: int = self.metadata.row_group(chunk).total_byte_size
        return size_bytes

    def chunk_stats(self, chunk: int, source: DataField, wanted: DataField) -> ColumnStats:
        """Bounds by the footer."""
        return row_group_stats(self.metadata.row_group(chunk), self.arrow_schema, source, wanted)

    @property
    def column_names(self) -> frozenset[str]:
        return frozenset(self.arrow_schema.names)

    def batches(
        self,
        fields: Sequence[DataField],
        *,
        chunks: Sequence[int] | None = None,
        batch_rows: int = READ_BATCH_ROWS,
        use_threads: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in file order, in bounded memory: a page per column, and the batch."""
        groups = self._groups(chunks)
        if has_nano_timestamps(fields):
            for group in groups:
                yield from self.table(fields, chunks=[group], use_threads=use_threads).to_batches(batch_rows)
            return
        present = self._present(fields)
        columns = StoredColumns(fields, self.path)
        with read_errors(self.path, "Parquet"):
            if not present:
                for count in _batch_sizes(self.metadata, groups, batch_rows):
                    yield columns.batch(pa.RecordBatch.from_arrays([], []), count)
                return
            missing = sum(self.metadata.row_group(group).num_rows for group in groups)
            for file, some in self._parts(groups, present):
                for batch in file.iter_batches(batch_rows, some, present, use_threads=use_threads):
                    missing -= batch.num_rows
                    yield columns.batch(batch, batch.num_rows)
            if missing:  # a page that is not recognised is passed over, and reading ends early
                raise CorruptDataError(
                    f"the last {missing} rows of the file are missing in its pages: it is damaged; restore it from a "
                    "copy",
                    path=self.path,
                )

    def table(
        self,
        fields: Sequence[DataField],
        *,
        chunks: Sequence[int] | None = None,
        use_threads: bool = True,
    ) -> pa.Table:
        """All rows of the row groups at once, columns decoded in parallel."""
        groups = self._groups(chunks)
        count = sum(self.metadata.row_group(group).num_rows for group in groups)
        nanos = [field for field in fields if has_nano_timestamps([field])]
        present = self._present([field for field in fields if field not in nanos])
        held = nullcontext() if self._ranged is None else self._ranged.holding(groups, self._present(fields))
        with read_errors(self.path, "Parquet"), held:
            parts = self._file.read_row_groups(groups, present, use_threads=use_threads)
            columns = {name: parts.column(name) for name in parts.column_names}
            if nanos:
                columns.update(self._read_nanos(nanos, groups))
            return StoredColumns(fields, self.path).table(columns, count)

    def _read_nanos(self, fields: Sequence[DataField], groups: Sequence[int]) -> dict[str, pa.ChunkedArray[Any]]:
        """INT96 read as microseconds covers all years but cuts nanoseconds, so such columns are read by themselves."""
        file = pq.ParquetFile(self._input, metadata=self.metadata, coerce_int96_timestamp_unit="ns", pre_buffer=False)
        part = file.read_row_groups(list(groups), self._present(fields))
        coarse = self._file.read_row_groups(list(groups), self._present(fields))
        for name in part.column_names:
            check_instants(name, part.column(name), coarse.column(name), str(self.metadata.created_by), self.path)
        return {name: part.column(name) for name in part.column_names}

    def _parts(self, groups: list[int], present: Sequence[str]) -> Iterator[tuple[pq.ParquetFile, list[int]]]:
        """The row groups to be read, and what reads them: all at once, or one by one where their bytes are fetched."""
        if self._ranged is None:
            yield self._file, groups
            return
        for group, is_held in self._ranged.groups(groups, present):
            file = self._file if is_held else self._parquet_file(self.metadata, WINDOW_BYTES)
            yield file, [group]

    def _present(self, fields: Sequence[DataField]) -> list[str]:
        names = self.column_names
        return [field.name for field in fields if field.name in names]

    def _groups(self, chunks: Sequence[int] | None) -> list[int]:
        return list(range(self.metadata.num_row_groups)) if chunks is None else list(chunks)


def _batch_sizes(metadata: pq.FileMetaData, groups: Sequence[int], batch_rows: int) -> Iterator[int]:
    rest = sum(metadata.row_group(group).num_rows for group in groups)
    while rest > 0:
        yield min(rest, batch_rows)
        rest -= batch_rows


_FRAME_BYTES: Final = 8
"""Behind the footer: its length and the magic."""
_MAGIC: Final = b"PAR1"


def footer_bytes(tail: pa.Buffer) -> int | None:
    """Length of the footer of the file that ends so, with the frame; None where it is no end of a Parquet file."""
    frame = tail.slice(max(0, tail.size - _FRAME_BYTES)).to_pybytes()
    if len(frame) < _FRAME_BYTES or frame[4:] != _MAGIC:
        return None
    return int.from_bytes(frame[:4], "little") + _FRAME_BYTES


def row_group_stats(footer: Any, stored: pa.Schema, source: DataField, wanted: DataField) -> ColumnStats:
    """Bounds of one column in one row group, as values of the type wanted, which must keep those of the file.

    `footer` is the row group's metadata and `stored` the file's Arrow schema, both as pyarrow gives them.
    """
    # A dot in a name is the same as a nested path in the footer: better no bounds than those of another column.
    if not isinstance(source.type, ScalarType) or "." in source.name:
        return NO_STATS
    for index in range(footer.num_columns):
        column = footer.column(index)
        if column.path_in_schema == source.name:
            return _bounds(column, stored.field(source.name).type, arrow_type(wanted.type))
    return NO_STATS


def _bounds(column: Any, stored: pa.DataType, target: pa.DataType) -> ColumnStats:
    statistics = column.statistics
    if statistics is None:
        return NO_STATS
    null_count = statistics.null_count if statistics.has_null_count else None
    if not statistics.has_min_max or column.physical_type == "INT96":
        return ColumnStats(null_count=null_count)
    if pa.types.is_temporal(target):
        if stored != target:
            return ColumnStats(null_count=null_count)
        return ColumnStats(_temporal(statistics.min_raw, target), _temporal(statistics.max_raw, target), null_count)
    if not isinstance(statistics.min, _plain_class(target)):
        return ColumnStats(null_count=null_count)  # stored in another way than the type says
    return ColumnStats(statistics.min, statistics.max, null_count)


def _plain_class(target: pa.DataType) -> type:
    if pa.types.is_string(target):
        return str
    if pa.types.is_binary(target):
        return bytes
    if pa.types.is_decimal(target):
        return Decimal
    if pa.types.is_boolean(target):
        return bool
    return int if pa.types.is_integer(target) else float


def _temporal(ticks: int, target: pa.DataType) -> Any:
    storage = pa.int32() if target.bit_width == 32 else pa.int64()
    try:
        return canonical(pa.scalar(ticks, storage).cast(target))
    except (ValueError, OverflowError):
        return None  # a date outside Python's calendar is no bound


_ARROW_CREATED_BY: Final = "parquet-cpp-arrow"
_WRAP_MICROS: Final = 2**64 // 1000
"""Microseconds after which 64-bit nanoseconds wrap around."""


def check_instants(
    name: str, nanos: pa.ChunkedArray[Any], micros: pa.ChunkedArray[Any], created_by: str, path: str
) -> None:
    """Refuses a column of INT96 values that 64-bit nanoseconds cannot carry; `micros` is the same column, cut.

    Only top-level columns are looked at. A column stored as 64-bit integers reads the same both ways and is fine.
    """
    if not pa.types.is_timestamp(nanos.type) or micros.type == nanos.type:
        return
    if not _same_instants(nanos, micros, has_negative_nanos=not created_by.startswith(_ARROW_CREATED_BY)):
        raise UnsupportedFeatureError(
            f"column {name!r} of {path} holds nanosecond timestamps outside 1677..2262, which Arrow cannot carry; read "
            "without that column"
        )


def _same_instants(nanos: pa.ChunkedArray[Any], micros: pa.ChunkedArray[Any], *, has_negative_nanos: bool) -> bool:
    """False when nanoseconds have wrapped around.

    Before 1970 the two may round to neighbouring microseconds. Paimon's writer gives an INT96 before 1970 a negative
    nanosecond of the day, which Arrow takes as unsigned when it reads microseconds: one wrap too much there. (Its years
    2262 to 2554 look the same and are read 584 years too early; nothing in the file distinguishes the two.)
    """
    cut = nanos.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    apart = pc.subtract(micros.cast(pa.timestamp("us")).cast(pa.int64()), cut)
    fits = pc.less_equal(pc.abs(apart), 1)
    if has_negative_nanos:
        one_wrap = pc.less_equal(pc.abs(pc.subtract(apart, _WRAP_MICROS)), 1)
        fits = pc.or_(fits, pc.and_(one_wrap, pc.less(nanos.cast(pa.int64()), 0)))
    return pc.all(fits, min_count=0).as_py() is not False
