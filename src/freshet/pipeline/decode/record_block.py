"""Records that a decoder takes, in the columns of `raw_records`: those of an Arrow batch, or lists of Python's bytes.

A worker that reads Kafka or files itself has bytes, and structs are decoded from bytes: columns of them are made where
somebody asks, for dead letters and what is looked at with care.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, reduce
from itertools import chain
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.logstore.kafka.record_sizes import NOTHING_SEEN, RecordSizes
from freshet.pipeline.decode import raw_records
from freshet.pipeline.decode.change import RawRecord
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.outcomes import EventTimes, event_times, joined_times

MIXED_RECORDS: Final = 65_536
"""Records of many tables at once: a decoder has work for each table of a block, whatever its size. Measured, a hundred
tables sorted, decoded and packed in blocks of 8192 records: 6.8 µs a record, 6.3 in these."""


_MAY_LACK: Final = {raw_records.OLD_KEY: pa.binary(), raw_records.HEADERS: pa.null()}
"""Columns of which all are NULL where a batch does not have them."""

Lengths = npt.NDArray[np.int64]

OldKeys = Callable[[RowIndexes], list[bytes | None]]
"""Gives what a header says of the records at some indexes (`raw_records.OLD_KEY`): read only where somebody asks."""


class RecordBlock(Protocol):
    """Some records."""

    @property
    def num_rows(self) -> int:
        """How many there are."""

    def column(self, name: str) -> pa.Array:
        """A column in full."""

    def taken(self, name: str, indexes: RowIndexes) -> pa.Array:
        """A column of the records at these indexes."""

    def values(self, indexes: RowIndexes) -> list[bytes]:
        """The values of the records at these indexes, as bytes; None for NULL."""

    def value_lengths(self) -> Lengths:
        """Bytes of each value; 0 for NULL."""

    def present(self) -> RowIndexes:
        """The indexes of values that are not NULL."""

    def broken_texts(self, indexes: RowIndexes) -> RowIndexes:
        """The indexes among these (of values that are not NULL) whose value is not UTF-8."""

    def has_text(self, text: bytes) -> bool:
        """Whether a value has this text in it."""

    def sizes(self) -> RecordSizes:
        """How large the records are."""

    def times(self) -> EventTimes | None:
        """When they were made."""

    def slice(self, start: int, count: int) -> RecordBlock:
        """Records in a row."""

    def take(self, indexes: RowIndexes) -> RecordBlock:
        """The records at these indexes."""


class ArrowBlock:
    """A batch of `raw_records`."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    @property
    def num_rows(self) -> int:
        return self._batch.num_rows

    def column(self, name: str) -> pa.Array:
        return self._batch.column(name)

    def taken(self, name: str, indexes: RowIndexes) -> pa.Array:
        if name in _MAY_LACK and name not in self._batch.schema.names:
            return pa.nulls(len(indexes), _MAY_LACK[name])
        column: pa.Array = self._batch.column(name)
        return column if _are_all(indexes, len(column)) else column.take(pa.array(indexes))

    def values(self, indexes: RowIndexes) -> list[bytes]:
        found: list[bytes] = self.taken(raw_records.VALUE, indexes).to_pylist()
        return found

    def value_lengths(self) -> Lengths:
        return self._lengths(raw_records.VALUE)

    def present(self) -> RowIndexes:
        values: pa.Array = self._batch.column(raw_records.VALUE)
        if not values.null_count:
            return np.arange(self.num_rows)
        return np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))

    def broken_texts(self, indexes: RowIndexes) -> RowIndexes:
        return _broken_texts(self.taken(raw_records.VALUE, indexes), indexes)

    def has_text(self, text: bytes) -> bool:
        values = self._batch.column(raw_records.VALUE).cast(pa.large_binary())
        found: pa.Array = pc.match_substring(values, text.decode())
        return bool(pc.any(found).as_py())

    def sizes(self) -> RecordSizes:
        return _sizes(self._lengths(raw_records.KEY) + self._lengths(raw_records.VALUE))

    def times(self) -> EventTimes | None:
        return event_times(self._batch.column(raw_records.TIMESTAMP))

    def slice(self, start: int, count: int) -> ArrowBlock:
        return ArrowBlock(self._batch.slice(start, count))

    def take(self, indexes: RowIndexes) -> ArrowBlock:
        return ArrowBlock(self._batch.take(pa.array(indexes)))

    def _lengths(self, name: str) -> Lengths:
        lengths: pa.Array = pc.fill_null(pc.binary_length(self._batch.column(name)), 0)
        return lengths.to_numpy(zero_copy_only=False).astype(np.int64)


class KafkaBlock:
    """Records of Kafka partitions, as a client gives them, or lines of files."""

    def __init__(
        self,
        places: Sequence[tuple[str, int | None]],
        codes: RowIndexes | None,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        lengths: Lengths,
        offsets: RowIndexes,
        timestamps: Callable[[], pa.Array],
        old_keys: OldKeys,
        ranks: Sequence[int] = (),
        times: Callable[[], EventTimes | None] | None = None,
    ) -> None:
        """`places` are topics and Kafka partitions, `codes` (of NumPy) the place of each record, None where there is
        one; `lengths` of the values (0 for NULL) and `offsets` are arrays of NumPy, `timestamps` gives one of Arrow.
        `ranks` are those of the places where these are files; `times` says when the records were made, where looking at
        all timestamps costs too much."""
        self._times = times
        self._old_keys, self._ranks = old_keys, ranks
        self._places, self._codes = places, codes
        self._keys, self._values, self._value_lengths = keys, values, lengths
        self._offsets, self._timestamps = offsets, timestamps
        self._columns: dict[str, pa.Array] = {}

    @property
    def num_rows(self) -> int:
        return len(self._values)

    def column(self, name: str) -> pa.Array:
        if name not in self._columns:
            self._columns[name] = self.taken(name, np.arange(self.num_rows))
        return self._columns[name]

    def taken(self, name: str, indexes: RowIndexes) -> pa.Array:
        match name:
            case raw_records.TOPIC:
                return self._placed([topic for topic, _ in self._places], pa.string(), indexes)
            case raw_records.KAFKA_PARTITION:
                return self._placed([partition for _, partition in self._places], pa.int32(), indexes)
            case raw_records.RANK:
                return self._placed(list(self._ranks) or [0] * len(self._places), pa.int64(), indexes)
            case raw_records.HEADERS if self._ranks:
                return pa.nulls(len(indexes), _MAY_LACK[name])
            case raw_records.OFFSET:
                return pa.array(self._offsets[indexes])
            case raw_records.KEY:
                return pa.array(_chosen(self._keys, indexes), pa.binary())
            case raw_records.VALUE:
                return pa.array(_chosen(self._values, indexes), pa.binary())
            case raw_records.OLD_KEY:
                return pa.array(self._old_keys(indexes), pa.binary())
            case raw_records.TIMESTAMP:
                times = self._timestamps()
                return times if _are_all(indexes, len(times)) else times.take(pa.array(indexes))
        raise KeyError(name)

    def values(self, indexes: RowIndexes) -> list[bytes]:
        return list(_chosen(self._values, indexes))

    def value_lengths(self) -> Lengths:
        return self._value_lengths

    def present(self) -> RowIndexes:
        if self._value_lengths.all():
            return np.arange(self.num_rows)
        return np.flatnonzero(np.fromiter((value is not None for value in self._values), bool, self.num_rows))

    def broken_texts(self, indexes: RowIndexes) -> RowIndexes:
        values = _chosen(self._values, indexes)
        if all(map(bytes.isascii, values)) or _are_texts(values):
            return indexes[:0]
        return _broken_texts(pa.array(values, pa.binary()), indexes)

    def has_text(self, text: bytes) -> bool:
        return any(text in value for value in self._values if value is not None)

    def sizes(self) -> RecordSizes:
        return _sizes(_lengths(self._keys) + self._value_lengths)

    def times(self) -> EventTimes | None:
        return event_times(self._timestamps()) if self._times is None else self._times()

    def slice(self, start: int, count: int) -> KafkaBlock:
        if not start and count == self.num_rows:
            return self
        rows, timestamps, old_keys = slice(start, start + count), self._timestamps, self._old_keys
        return KafkaBlock(
            self._places, None if self._codes is None else self._codes[rows], self._keys[rows], self._values[rows],
            self._value_lengths[rows], self._offsets[rows], lambda: timestamps()[rows],
            lambda at: old_keys(at + start), self._ranks,
        )  # fmt: skip

    def take(self, indexes: RowIndexes) -> KafkaBlock:
        timestamps, old_keys = self._timestamps, self._old_keys
        return KafkaBlock(
            self._places, None if self._codes is None else self._codes[indexes], _chosen(self._keys, indexes),
            _chosen(self._values, indexes), self._value_lengths[indexes], self._offsets[indexes],
            lambda: timestamps().take(pa.array(indexes)), lambda at: old_keys(indexes[at]), self._ranks,
        )  # fmt: skip

    @staticmethod
    def joined(blocks: Sequence[KafkaBlock]) -> KafkaBlock:
        """The records of blocks of one place each, as one block."""
        if len(blocks) == 1:
            return blocks[0]
        ends = np.cumsum([each.num_rows for each in blocks])

        def old_keys(indexes: RowIndexes) -> list[bytes | None]:
            parts = np.searchsorted(ends, indexes, side="right")
            pairs = zip(parts.tolist(), indexes, strict=True)
            return [
                blocks[part]._old_keys(index[None] - ends[part] + blocks[part].num_rows)[0] for part, index in pairs
            ]

        places = {place: code for code, place in enumerate(dict.fromkeys(each._places[0] for each in blocks))}
        codes = np.repeat([places[each._places[0]] for each in blocks], [each.num_rows for each in blocks])
        return KafkaBlock(
            list(places),
            codes if len(places) > 1 else None,
            list(chain.from_iterable(each._keys for each in blocks)),
            list(chain.from_iterable(each._values for each in blocks)),
            np.concatenate([each._value_lengths for each in blocks]),
            np.concatenate([each._offsets for each in blocks]),
            cache(lambda: pa.concat_arrays([each._timestamps() for each in blocks])),  # of each of many parts
            old_keys,
            times=lambda: reduce(joined_times, (each.times() for each in blocks)),
        )

    def _placed(self, of_places: Sequence[str | int | None], data_type: pa.DataType, indexes: RowIndexes) -> pa.Array:
        if self._codes is None:
            return pa.repeat(pa.scalar(of_places[0], data_type), len(indexes))
        return pa.array(of_places, data_type).take(pa.array(self._codes[indexes]))


def block_of(records: pa.RecordBatch | RecordBlock) -> RecordBlock:
    """Batches of `raw_records` as blocks."""
    return ArrowBlock(records) if isinstance(records, pa.RecordBatch) else records


def blocks_within(block: RecordBlock, records_max: int, bytes_max: int) -> Iterator[RecordBlock]:
    """The records in blocks of limited size, about equally many in each; one larger than `bytes_max` is alone."""
    ends = block.value_lengths().cumsum()
    records_max = -(-block.num_rows // max(1, -(-block.num_rows // records_max)))
    start = 0
    while start < block.num_rows:
        used = ends[start - 1] if start else 0
        end = int(np.searchsorted(ends, used + bytes_max, side="right"))
        end = min(max(end, start + 1), start + records_max)
        yield block.slice(start, end - start)
        start = end


def _are_all(indexes: RowIndexes, count: int) -> bool:
    return len(indexes) == count and bool(count) and indexes[0] == 0 and bool((np.diff(indexes) == 1).all())


def _chosen(given: Sequence[Any], indexes: RowIndexes) -> Sequence[Any]:
    return given if _are_all(indexes, len(given)) else [given[index] for index in indexes.tolist()]


def _lengths(values: Sequence[bytes | None]) -> Lengths:
    try:
        return np.fromiter(map(len, values), np.int64, len(values))  # type: ignore[arg-type]
    except TypeError:  # of None
        return np.fromiter((0 if value is None else len(value) for value in values), np.int64, len(values))


def _sizes(lengths: Lengths) -> RecordSizes:
    if not len(lengths):
        return NOTHING_SEEN
    return RecordSizes(int(lengths.sum()) // len(lengths), int(lengths.max()))


def _are_texts(values: Sequence[bytes]) -> bool:
    """Whether all are UTF-8, which they are joined by line breaks where each is."""
    content = pa.py_buffer(b"\n".join(values))
    offsets = pa.py_buffer(np.array([0, content.size], np.int64))
    try:
        pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, content]).cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


def _broken_texts(values: pa.Array, indexes: RowIndexes) -> RowIndexes:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return indexes[np.fromiter((not _is_utf8(value) for value in values.to_pylist()), bool, len(values))]
    return indexes[:0]


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def each_of(block: RecordBlock, indexes: RowIndexes) -> Iterator[RawRecord]:
    """The records at these indexes of a block."""
    keys, values, topics, old_keys = (
        block.taken(name, indexes)
        for name in (raw_records.KEY, raw_records.VALUE, raw_records.TOPIC, raw_records.OLD_KEY)
    )
    is_line = block.taken(raw_records.KAFKA_PARTITION, indexes).is_null()
    columns = (column.to_pylist() for column in (keys, values, is_line, topics, old_keys))
    for key, value, line, topic, old_key in zip(*columns, strict=True):
        yield RawRecord(key, value, line, topic or "", old_key)


class RecordsAround(Frozen):
    """The records around one of a block; `begins` says that the block has all records of its Kafka partitions from the
    start of the batch on."""

    block: RecordBlock
    index: int
    begins: bool

    def before(self) -> list[RawRecord]:
        """The two in front of it, the nearest first, as far as they are of its Kafka partition."""
        at = np.arange(max(0, self.index - 2), self.index + 1)[::-1]
        places = list(
            zip(
                *(self.block.taken(name, at).to_pylist() for name in (raw_records.TOPIC, raw_records.KAFKA_PARTITION)),
                strict=True,
            )
        )
        return [each for each, own in zip(each_of(self.block, at), places, strict=True) if own == places[0]][1:]

    def is_first(self, key: bytes | None) -> bool:
        """Whether only one record in front of it, but for tombstones, has this message key in the batch; false where it
        is not known."""
        if key is None or not self.begins:
            return False
        keys = self.block.column(raw_records.KEY).slice(0, self.index)
        same = np.flatnonzero(pc.equal(keys, pa.scalar(key, keys.type)).fill_null(False).to_numpy(zero_copy_only=False))
        return self.block.taken(raw_records.VALUE, same).null_count == len(same) - 1


def place(block: RecordBlock, index: int) -> tuple[str, int, int]:
    """Topic, partition and offset of a record of Kafka."""
    at = np.array([index])
    topic, partition, offset = (
        block.taken(name, at)[0].as_py()
        for name in (raw_records.TOPIC, raw_records.KAFKA_PARTITION, raw_records.OFFSET)
    )
    return topic, partition, offset


def where(block: RecordBlock, index: int) -> str:
    """The place of a record of a block, for messages."""
    return wheres(block, np.array([index]))[0]


def wheres(block: RecordBlock, indexes: RowIndexes) -> list[str]:
    """The places of records of a block, for messages. One by one they are 20 times as slow."""
    places = (
        block.taken(name, indexes).to_pylist()
        for name in (raw_records.TOPIC, raw_records.KAFKA_PARTITION, raw_records.OFFSET)
    )
    return [
        f"{topic or '?'} partition {-1 if partition is None else partition} offset {offset}"
        for topic, partition, offset in zip(*places, strict=True)
    ]
