"""Reads the rows that a reader has decided on, from the log: whole, each once, or an error.

A range is read record by record in the order of the log; records of other attempts and buckets are skipped, and so are
those that came twice. Rows to retract are read the same way and handed out last row first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.logstore.exceptions import LogLostError, LogUnavailableError
from freshet.logstore.protocol.client import Fetched, LogClient, StoredRecord, TopicPartition
from freshet.logstore.protocol.record import (
    ARROW_FORMAT,
    RecordHeader,
    decode_header,
    decode_value,
    log_schema,
    user_hash,
)
from freshet.logstore.reading.decide import RowRange
from freshet.logstore.reading.tail import RecentRecords
from freshet.storage.logs.log_systems import TableHistory
from freshet.storage.model.row_kind import RowKind

INVERTED: Final = np.array([RowKind.DELETE, RowKind.UPDATE_AFTER, RowKind.UPDATE_BEFORE, RowKind.INSERT], dtype=np.int8)
"""The kind that retracts a row of some kind, by its code."""

FETCH_WAIT_S: Final = 5.0
FETCH_TRIES: Final = 18
"""Records in a range were acknowledged, so they are there: a broker that gives nothing so often is in trouble. A minute
without brokers is waited for."""

Record = tuple[RecordHeader, bytes]
"""A header and a value."""

SchemaOf = Callable[[int], pa.Schema]
"""The columns of the table at a schema id."""


class LogRows:
    """Rows of ranges; a `RowComparison`. Belongs to one thread."""

    def __init__(self, client: LogClient, schema_of: SchemaOf, recent: RecentRecords | None = None) -> None:
        self._client = client
        self._schema_of = schema_of
        self._recent = RecentRecords() if recent is None else recent

    def remember(self, topic_partition: TopicPartition, position: int, fetched: Fetched) -> None:
        """What was fetched from a position on, so that it need not be fetched again."""
        self._recent.add(topic_partition, position, fetched)

    def close(self) -> None:
        """Lets go of connections."""
        self._client.close()

    def read(self, wanted: RowRange) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(schema id, rows): `_ROW_KIND` as int8, then the columns of that schema."""
        records = self._records(wanted)
        if not wanted.is_retracted:
            for header, value in records:
                yield header.schema_id, self._rows(wanted, header, value)
            return
        for header, value in reversed(list(records)):
            yield header.schema_id, _retracted(self._rows(wanted, header, value))

    def first_difference(self, old: RowRange, new: RowRange) -> int:
        """The first sequence at which the rows differ, or the end."""
        position = old.first_sequence
        others = self._spans(new)
        there: tuple[int, int, pa.RecordBatch] | None = None
        for schema_id, start, rows in self._spans(old):
            while position < start + rows.num_rows:
                if there is None or there[1] + there[2].num_rows <= position:
                    there = next(others)
                other_id, other_start, other = there
                count = min(start + rows.num_rows, other_start + other.num_rows) - position
                if schema_id != other_id:
                    return position
                same = equal_rows(rows.slice(position - start, count), other.slice(position - other_start, count))
                position += same
                if same < count:
                    return position
        return position

    def _spans(self, wanted: RowRange) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        start = wanted.first_sequence
        for header, value in self._records(wanted):
            rows = self._rows(wanted, header, value)
            yield header.schema_id, start, rows
            start += rows.num_rows

    def _rows(self, wanted: RowRange, header: RecordHeader, value: bytes) -> pa.RecordBatch:
        if header.value_format != ARROW_FORMAT:
            raise self._lost(wanted, "they were logged as JSON, which readers of Freshet no longer read")
        rows = decode_value(value, log_schema(self._schema_of(header.schema_id)))
        first = max(wanted.first_sequence, header.first_sequence)
        end = min(wanted.end_sequence, header.end_sequence)
        return rows.slice(first - header.first_sequence, end - first)

    def _records(self, wanted: RowRange) -> Iterator[Record]:
        """The records that hold the range; the first and the last may hold more."""
        user = user_hash(wanted.commit_user)
        position: int | None = None
        last = b""
        for record in self._stored(wanted):
            if record.header is None:
                continue
            header = decode_header(record.header)
            if (header.user_hash, header.batch, header.attempt, header.bucket_id) != (
                user, wanted.batch, wanted.attempt, wanted.bucket_id,
            ):  # fmt: skip
                continue
            known = wanted.first_sequence if position is None else position
            if header.end_sequence <= known:
                continue  # it came twice, or lies before the range
            if header.first_sequence > known:
                raise self._lost(
                    wanted, f"after row {known} comes row {header.first_sequence}, at offset {record.offset}"
                )
            position, last = header.end_sequence, header.row_hash
            yield header, record.value
            if position >= wanted.end_sequence:
                break
        found = wanted.first_sequence if position is None else position
        if found < wanted.end_sequence:
            raise self._lost(wanted, f"{wanted.end_sequence} rows are asked for, {found} were found")
        if wanted.row_hash is not None and last != wanted.row_hash:
            raise self._lost(wanted, "the rows are others than those that the snapshot names")

    def _stored(self, wanted: RowRange) -> Iterator[StoredRecord]:
        """What lies in the offsets of the range."""
        topic_partition = TopicPartition(wanted.topic, wanted.bucket_id[1])
        position, tries = wanted.start_offset, 0
        while position < wanted.stop_offset:
            fetched = self._fetched(topic_partition, position)
            if fetched is None:
                tries += 1
                if tries == FETCH_TRIES:
                    raise LogUnavailableError(
                        f"{topic_partition}: offsets {position} to {wanted.stop_offset} "
                        f"were acknowledged, but the brokers gave none in {FETCH_TRIES * FETCH_WAIT_S:.0f} s"
                    )
                continue
            for record in fetched.records:
                if position <= record.offset < wanted.stop_offset:
                    yield record
            position = fetched.next_offset

    def _fetched(self, topic_partition: TopicPartition, position: int) -> Fetched | None:
        known = self._recent.at(topic_partition, position)
        if known is not None:
            return known
        fetched = self._client.fetch({topic_partition: position}, wait_s=FETCH_WAIT_S).get(topic_partition)
        if fetched is not None:
            self._recent.add(topic_partition, position, fetched)
        return fetched

    def _lost(self, wanted: RowRange, what: str) -> LogLostError:
        return LogLostError(
            f"topic {wanted.topic} partition {wanted.bucket_id[1]}: the rows of batch {wanted.batch}, epoch "
            f"{wanted.attempt.epoch}, attempt {wanted.attempt.attempt} are not all there between offsets "
            f"{wanted.start_offset} and {wanted.stop_offset}: {what}. Start again from a snapshot "
            "(scan_mode='latest-full')"
        )


def equal_rows(left: pa.RecordBatch, right: pa.RecordBatch) -> int:
    """How many rows at the beginning are equal; both have as many, and the same columns."""
    low: int = 0
    high: int = left.num_rows
    if _are_equal(left, right):
        return high
    while low + 1 < high:  # rows before `low` are equal, those before `high` are not all
        middle = (low + high) // 2
        if _are_equal(left.slice(low, middle - low), right.slice(low, middle - low)):
            low = middle
        else:
            high = middle
    return low


def _are_equal(left: pa.RecordBatch, right: pa.RecordBatch) -> bool:
    return all(
        _comparable(one).equals(_comparable(other)) for one, other in zip(left.columns, right.columns, strict=True)
    )


def _comparable(column: pa.Array) -> pa.Array:
    """Floats by their bits: a NaN is the same value again, 0.0 and -0.0 are not."""
    widths: Mapping[pa.DataType, pa.DataType] = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    wanted = widths.get(column.type)
    return column if wanted is None else column.view(wanted)


def _backwards(count: int) -> npt.NDArray[np.int64]:
    return np.arange(count - 1, -1, -1, dtype=np.int64)


def _retracted(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows last one first, each with the kind that retracts it."""
    backwards = rows.take(pa.array(_backwards(rows.num_rows)))
    kinds = INVERTED[backwards.column(0).to_numpy(zero_copy_only=False)]
    return backwards.set_column(0, rows.schema.field(0), pa.array(kinds))


def projected_rows(
    rows: LogRows, history: TableHistory, ranges: Iterable[RowRange], snapshot_id: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of the ranges as readers get them, one range after the other: in the columns asked for, with pairs kept
    together. A -U at the end of one range may have its +U at the beginning of the next: a filter looks at both
    together.
    """
    for schema_id, piece in _whole_pairs(rows, ranges):
        if piece.num_rows:
            projected = history.projected(schema_id, piece, snapshot_id)
            if projected.num_rows:
                yield projected


def _whole_pairs(rows: LogRows, ranges: Iterable[RowRange]) -> Iterator[tuple[int, pa.RecordBatch]]:
    held: tuple[int, pa.RecordBatch] | None = None
    for schema_id, piece in (piece for wanted in ranges for piece in rows.read(wanted)):
        if held is not None and held[0] == schema_id:
            [piece] = pa.Table.from_batches([held[1], piece]).combine_chunks().to_batches()
        elif held is not None:
            yield held
        held = None
        if piece.num_rows and piece.column(0)[-1].as_py() == RowKind.UPDATE_BEFORE:
            held = (schema_id, piece.slice(piece.num_rows - 1))
            piece = piece.slice(0, piece.num_rows - 1)
        yield schema_id, piece
    if held is not None:
        yield held
