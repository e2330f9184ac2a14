"""Which partitions expire: a pure decision over their values and times.

| strategy | a partition expires when this is before now - `partition.expiration-time` |
|---|---|
| values-time | the time that its values say |
| update-time | the creation time of the newest of its live files |

The text of values-time is the first value, or `partition.timestamp-pattern` with each `$<key>` replaced, key by key in
their order: `$d` is replaced in `$dt` too. It is read by `codec.time_format`. The first value of type DATE or TIMESTAMP
is a time by itself where no pattern is set: Apache Paimon 2.0.0 takes the number of the day for a text, and never
expires such partitions. What is no time stays, and so does a partition with a NULL that is asked for: the first value
or, with a pattern, any.

All times are of the wall clock where the program runs, in nanoseconds since 1970. At most `max_num` partitions expire,
the first in the order of their texts.

Source: FORMAT.md §12; the strategies and the texts are those of Apache Paimon 2.0.0.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from freshet.storage.codec.binary_row import EPOCH_DAY_ORDINAL, ticks_per_second
from freshet.storage.codec.partition_path import partition_text
from freshet.storage.codec.time_format import DAY_NS, lenient_time, time_format
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.data_type import DataType, ScalarType, TypeRoot
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.declared.partitions import STRATEGIES

MS_NS: Final = 10**6
UPDATE_TIME: Final = "update-time"
DELIMITER: Final = ","


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition that has live files: its serialized row, its values, and when the newest file was made (ms of the
    wall clock, None where a file does not say)."""

    row: bytes
    values: tuple[Any, ...]
    newest_file_ms: int | None


@dataclass(frozen=True, slots=True)
class Choice:
    """The partitions that expire, in their order, and those whose time is not known."""

    expired: tuple[Partition, ...]
    unclear: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """When partitions of one table expire."""

    keys: tuple[str, ...]
    types: tuple[DataType, ...]
    strategy: str
    pattern: str | None
    formatter: str | None

    def choose(self, partitions: Iterable[Partition], before_ms: int, max_num: int | None) -> Choice:
        """Those that are older than a moment of the wall clock, at most so many."""
        expired: list[Partition] = []
        unclear: list[Partition] = []
        for partition in partitions:
            time_ns = self.time_ns(partition)
            if time_ns is None:
                unclear.append(partition)
            elif time_ns < before_ms * MS_NS:
                expired.append(partition)
        return Choice(tuple(sorted(expired, key=self.text_of)[:max_num]), tuple(sorted(unclear, key=self.text_of)))

    def time_ns(self, partition: Partition) -> int | None:
        """The time by which a partition is judged; None where its values say none."""
        if self.strategy == UPDATE_TIME:
            return None if partition.newest_file_ms is None else partition.newest_file_ms * MS_NS
        if self.pattern is None:
            return self._first_time(partition.values[0])
        if any(value is None for value in partition.values):
            return None
        text = self.pattern
        for key, value, data_type in zip(self.keys, partition.values, self.types, strict=True):
            text = text.replace(f"${key}", _text(value, data_type))
        return self._parsed(text)

    def text_of(self, partition: Partition) -> str:
        """The values as one text."""
        return DELIMITER.join(self.texts_of(partition).values())

    def texts_of(self, partition: Partition) -> dict[str, str]:
        """The values as people write them, by key; NULL as its folder is called."""
        pairs = zip(partition.values, self.types, strict=True)
        texts = (partition_text(None, kind) if value is None else _text(value, kind) for value, kind in pairs)
        return dict(zip(self.keys, texts, strict=True))

    def _first_time(self, value: Any) -> int | None:
        data_type = self.types[0]
        if value is None:
            return None
        if isinstance(data_type, ScalarType) and data_type.root is TypeRoot.DATE:
            return _epoch_day(value) * DAY_NS
        if isinstance(data_type, ScalarType) and data_type.root is TypeRoot.TIMESTAMP:
            return int(value) * (10**9 // ticks_per_second(data_type.precision or 0))
        return self._parsed(_text(value, data_type))

    def _parsed(self, text: str) -> int | None:
        return lenient_time(text) if self.formatter is None else time_format(self.formatter).parse(text)


def partition_rule(keys: Sequence[str], types: Sequence[DataType], options: CoreOptions) -> PartitionRule:
    """The rule of a table; `InvalidRequestError` for a strategy or a format that is not known here."""
    strategy, formatter = options.partition_expiration_strategy, options.partition_timestamp_formatter
    if strategy not in STRATEGIES:
        raise InvalidRequestError(
            f"option partition.expiration-strategy={strategy} is not known here; give values-time or update-time",
            option="partition.expiration-strategy",
        )
    if formatter is not None:
        try:
            time_format(formatter)
        except ValueError as error:
            raise InvalidRequestError(
                f"option partition.timestamp-formatter cannot be used: {error}", option="partition.timestamp-formatter"
            ) from error
    return PartitionRule(tuple(keys), tuple(types), strategy, options.partition_timestamp_pattern, formatter)


def batches(partitions: Sequence[Partition], size: int | None) -> list[Sequence[Partition]]:
    """The partitions of one commit each."""
    step = size or max(1, len(partitions))
    return [partitions[start : start + step] for start in range(0, len(partitions), step)]


def newest_files(files: Iterable[tuple[bytes, int | None]]) -> Mapping[bytes, int | None]:
    """Of each partition the largest time among its files; None where one of them does not say."""
    found: dict[bytes, int | None] = {}
    for row, time_ms in files:
        known = found.setdefault(row, time_ms)
        found[row] = None if known is None or time_ms is None else max(known, time_ms)
    return found


def _text(value: Any, data_type: DataType) -> str:
    """A value in a pattern: dates as people write them, the rest as folders show it."""
    if isinstance(data_type, ScalarType) and data_type.root is TypeRoot.DATE:
        return partition_text(value, data_type, legacy=False)
    if isinstance(data_type, ScalarType) and data_type.root in (TypeRoot.CHAR, TypeRoot.VARCHAR):
        return str(value)  # a blank one too, which has the folder of NULL
    return partition_text(value, data_type)


def _epoch_day(value: Any) -> int:
    return value.toordinal() - EPOCH_DAY_ORDINAL if isinstance(value, datetime.date) else int(value)
