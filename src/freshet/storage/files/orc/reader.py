"""ORC files read: stripes are the chunks, and a stripe is decoded whole.

pyarrow reads a stripe by columns, but gives no batches within one: an open reader holds the columns of a stripe (16 MB
of rows in files of ours, 64 MB of bytes in those of Apache Paimon). At a store where requests take their time a small
file is read whole; of a large one the footer, and then each stripe by one request, the next one ahead (`StripeFile`).

The bounds of a column in a stripe are for filters; what pyarrow cannot read of a stripe is found by them, too.

| type | bounds |
|---|---|
| integers, TIME, DATE, DECIMAL, BOOLEAN | as they are |
| text | as they are; of values that were too long for the statistics a bound below, a bound above |
| FLOAT, DOUBLE | NaN may be left out, or take the place of both |
| TIMESTAMP | the millisecond below, the one above: writers cut before 1970 upwards |
| binary, nested types, missing statistics | none |

Source: FORMAT.md §2.3, §7.1.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from decimal import Decimal
from functools import partial
from threading import Lock
from typing import Any, Final

import cramjam
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc

from freshet.storage.codec.stats import NO_STATS, ColumnStats
from freshet.storage.exceptions import CorruptDataError, UnsupportedFeatureError
from freshet.storage.files.file_columns import StoredColumns
from freshet.storage.files.file_format import READ_BATCH_ROWS, FileReader, read_errors
from freshet.storage.files.opening import Opening, PositionedFile, open_file, opened_input
from freshet.storage.files.orc import protobuf as pb
from freshet.storage.files.orc.footer import CHAR_KIND, TIMESTAMP_KINDS, OrcFooter, Stripe, footer_bytes, parse_footer
from freshet.storage.files.orc.writer import NANOS_MAX
from freshet.storage.filters.literal import canonical
from freshet.storage.io.env import Env
from freshet.storage.io.ranges import ByteRange
from freshet.storage.model.arrow_types import arrow_schema, arrow_type
from freshet.storage.model.data_type import (
    FLOAT_ROOTS,
    INTEGER_ROOTS,
    TEXT_ROOTS,
    TIMESTAMP_ROOTS,
    DataField,
    DataType,
    ScalarType,
    TypeRoot,
)
from freshet.storage.model.nested_arrays import converted

STRIPE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Columns of a larger stripe are read by a request for each of their streams."""
_HELD: Final = 4
"""Stripes at most, those under way included; as many may be read at a time."""


class StripeFile(PositionedFile):
    """What pyarrow reads of one file."""

    def __init__(self, env: Env, path: str, size_bytes: int, opening: Opening) -> None:
        super().__init__(env, path, size_bytes, opening)
        self._lock = Lock()
        self._coming: dict[int, tuple[int, Future[pa.Buffer]]] = {}
        """Stripes by their offset, with their lengths."""

    def close(self) -> None:
        super().close()
        self._coming.clear()

    def ahead(self, stripes: Sequence[Stripe], at: int) -> None:
        """Requests the stripe that is about to be read, and the one behind it."""
        with self._lock:
            for stripe in stripes[at : at + 2]:
                if stripe.offset not in self._coming and stripe.length <= STRIPE_BYTES_MAX:
                    part = partial(self._part, ByteRange(stripe.offset, stripe.length))
                    self._coming[stripe.offset] = stripe.length, self._reads.submit(part)
            while len(self._coming) > _HELD:
                self._coming.pop(min(self._coming))

    def _bytes(self, wanted: ByteRange) -> pa.Buffer:
        with self._lock:
            coming = dict(self._coming)
        for start, (length, part) in coming.items():
            if start <= wanted.offset and wanted.end <= start + length:
                return part.result().slice(wanted.offset - start, wanted.length)
        return self._part(wanted)


_INTEGERS: Final = 2
_DOUBLES: Final = 3
_STRINGS: Final = 4
_BUCKETS: Final = 5
_DECIMALS: Final = 6
_DATES: Final = 7
_TIMESTAMPS: Final = 9
_MILLIS_REACH: Final = NANOS_MAX // 1_000_000


def stripe_stats(footer: OrcFooter, stripe: int, column: str, source: DataType, wanted: DataType) -> ColumnStats:
    """Bounds of a column, as values of the type wanted."""
    found, node = footer.stripes[stripe], footer.columns[column]
    if node >= len(found.statistics):
        return NO_STATS
    message = found.statistics[node]
    values = pb.number(message, 1)
    null_count = None if values is None else found.row_count - values
    if not values or not isinstance(source, ScalarType) or footer.types[node].kind == CHAR_KIND:
        return ColumnStats(null_count=null_count)  # a CHAR has its bounds with blanks, which order otherwise
    low, high = _bounds(message, source, wanted)
    return ColumnStats(low, high, null_count)


def check_readable(footer: OrcFooter, stripe: int, column: str, path: str) -> None:
    """Refuses timestamps that do not fit into 64 bits of nanoseconds, which pyarrow would wrap around."""
    statistics = footer.stripes[stripe].statistics
    for node in footer.leaves(footer.columns[column]):
        if footer.types[node].kind in TIMESTAMP_KINDS and node < len(statistics):
            low, high = _millis(statistics[node])
            if low is not None and high is not None and (low < -_MILLIS_REACH or high > _MILLIS_REACH):
                raise UnsupportedFeatureError(
                    f"column {column!r} of {path} holds timestamps outside 1677..2262, which are not read from ORC "
                    "files; read without that column, or rewrite the table with Apache Paimon and file.format=parquet"
                )


def _bounds(message: pb.Message, source: ScalarType, wanted: DataType) -> tuple[Any, Any]:
    root = source.root
    if root in INTEGER_ROOTS or root is TypeRoot.TIME:
        return _signed_pair(message, _INTEGERS)
    if root in FLOAT_ROOTS:
        part = _part(message, _DOUBLES)
        return pb.double(part, 1), pb.double(part, 2)
    if root in TEXT_ROOTS:
        part = _part(message, _STRINGS)
        return _text(part, 1, 4), _text(part, 2, 5)
    if root is TypeRoot.BOOLEAN:
        (trues,) = pb.numbers(_part(message, _BUCKETS), 1) or (None,)
        if trues is None:
            return None, None
        return trues == pb.number(message, 1), trues > 0
    if root is TypeRoot.DECIMAL:
        part = _part(message, _DECIMALS)
        low, high = _text(part, 1, 1), _text(part, 2, 2)
        return (None, None) if low is None or high is None else (Decimal(low), Decimal(high))
    if root is TypeRoot.DATE:
        days = _signed_pair(message, _DATES)
        return tuple(None if day is None else _date(day) for day in days)  # type: ignore[return-value]
    if root in TIMESTAMP_ROOTS:
        low_ms, high_ms = _millis(message)
        if low_ms is None or high_ms is None:
            return None, None
        return _ticks(low_ms - 1, wanted), _ticks(high_ms + 1, wanted)
    return None, None


def _part(message: pb.Message, field: int) -> pb.Message:
    return pb.parse(pb.content(message, field) or b"")


def _signed_pair(message: pb.Message, field: int) -> tuple[int | None, int | None]:
    part = _part(message, field)
    return pb.signed(part, 1), pb.signed(part, 2)


def _millis(message: pb.Message) -> tuple[int | None, int | None]:
    """In UTC."""
    part = _part(message, _TIMESTAMPS)
    return pb.signed(part, 3), pb.signed(part, 4)


def _text(part: pb.Message, exact: int, bound: int) -> str | None:
    found = pb.content(part, exact)
    found = pb.content(part, bound) if found is None else found
    return None if found is None else found.decode(errors="strict")


def _date(day: int) -> Any:
    try:
        return canonical(pa.scalar(day, pa.int32()).cast(pa.date32()))
    except (ValueError, OverflowError):
        return None  # a date outside Python's calendar is no bound


def _ticks(millis: int, wanted: DataType) -> int:
    unit = arrow_type(wanted).unit
    return millis // 1000 if unit == "s" else millis * {"ms": 1, "us": 1000, "ns": 1_000_000}[unit]


_TAIL_BYTES = 16 * 1024
_DECODED_PER_BYTE = 4
"""Rows in memory take about this much more than in their compressed stripe."""


class OrcReader(FileReader):
    """One file open for reading."""

    def __init__(
        self, env: Env, path: str, *, size_bytes: int | None = None, part: tuple[int, int] | None = None
    ) -> None:
        self.path = path
        self._stripes: StripeFile | None = None
        if env.reads is not None and part is None and size_bytes is not None:
            opening = open_file(env, path, size_bytes, footer_bytes)
            self._input: Any = pa.BufferReader(opening.data)
            tail = opening.data
            if not opening.is_whole:
                self._stripes = StripeFile(env, path, size_bytes, opening)
                self._input = pa.PythonFile(self._stripes, mode="r")
        else:
            self._input = opened_input(env, path, size_bytes, part)
            tail = self._end(_TAIL_BYTES)
        try:
            with _read_errors(path):
                length = footer_bytes(tail)
                if length is None:
                    raise ValueError("it does not end as an ORC file does")
                if length > tail.size:
                    tail = self._end(length)
                self._footer = parse_footer(tail.slice(tail.size - length))
                self._file = pyarrow.orc.ORCFile(self._input)
                self._names = list(self._footer.columns)
        except BaseException:
            self._input.close()
            raise

    def _end(self, length: int) -> pa.Buffer:
        with _read_errors(self.path):
            start = max(0, self._input.size() - length)
            self._input.seek(start)
            return self._input.read_buffer(self._input.size() - start)

    def close(self) -> None:
        self._input.close()

    @property
    def chunk_rows(self) -> Sequence[int]:
        return [stripe.row_count for stripe in self._footer.stripes]

    @property
    def column_names(self) -> frozenset[str]:
        return frozenset(self._names)

    def chunk_bytes(self, chunk: int) -> int:
        """An estimate of what the columns of the stripe take."""
        return self._footer.stripes[chunk].length * _DECODED_PER_BYTE

    def chunk_stats(self, chunk: int, source: DataField, wanted: DataField) -> ColumnStats:
        """Bounds by the statistics of the stripe."""
        with _read_errors(self.path):
            return stripe_stats(self._footer, chunk, source.name, source.type, wanted.type)

    def batches(
        self,
        fields: Sequence[DataField],
        *,
        chunks: Sequence[int] | None = None,
        batch_rows: int = READ_BATCH_ROWS,
        use_threads: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in file order; a stripe is held."""
        wanted = self._all() if chunks is None else list(chunks)
        for chunk in wanted:
            yield from self.table(fields, chunks=[chunk]).to_batches(batch_rows)

    def table(
        self, fields: Sequence[DataField], *, chunks: Sequence[int] | None = None, use_threads: bool = True
    ) -> pa.Table:
        """All rows of the stripes at once."""
        wanted = self._all() if chunks is None else list(chunks)
        present = [field.name for field in fields if field.name in self.column_names]
        columns = StoredColumns(fields, self.path)
        if not present:
            return columns.table({}, sum(self._footer.stripes[chunk].row_count for chunk in wanted))
        tables = []
        for chunk in wanted:
            with _read_errors(self.path):
                stored = self._stripe(chunk, present)
                tables.append(columns.table(stored, self._footer.stripes[chunk].row_count))
        return pa.concat_tables(tables) if tables else arrow_schema(fields).empty_table()

    def _stripe(self, chunk: int, names: Sequence[str]) -> dict[str, pa.ChunkedArray[Any]]:
        for name in names:
            check_readable(self._footer, chunk, name, self.path)
        # A dot in a name would be taken for a path into a struct.
        some = None if any("." in name for name in names) else list(names)
        if self._stripes is not None:
            self._stripes.ahead(self._footer.stripes, chunk)
        batch = self._file.read_stripe(chunk, columns=some)
        count = self._footer.stripes[chunk].row_count
        if batch.num_rows != count:
            raise CorruptDataError(
                f"stripe {chunk} has {batch.num_rows} rows, the footer says {count}: the file is damaged; restore it "
                "from a copy",
                path=self.path,
            )
        batch.validate(full=True)  # streams have no checksums: of damaged ones, texts would be no UTF-8
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        return {name: pa.chunked_array([self._unpadded(found[name], self._footer.columns[name])]) for name in names}

    def _unpadded(self, array: pa.Array[Any], node: int) -> pa.Array[Any]:
        """CHAR is stored with blanks up to its length; they are no part of the value."""
        one = self._footer.types[node]
        if one.kind == CHAR_KIND:
            return pc.utf8_rtrim(array, characters=" ")
        if not any(self._footer.types[leaf].kind == CHAR_KIND for leaf in self._footer.leaves(node)):
            return array
        children = iter(one.children)
        return converted(array, array.type, lambda child, _: self._unpadded(child, next(children)))

    def _all(self) -> list[int]:
        return list(range(len(self._footer.stripes)))


def _read_errors(path: str) -> AbstractContextManager[None]:
    return read_errors(path, "ORC", cramjam.DecompressionError, zlib.error)
