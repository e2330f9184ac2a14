"""What a decoder takes: raw records in flat columns, as `freshet.pipeline.sources.raw_frame` gives them.

| column | type | Kafka | files |
|---|---|---|---|
| key, value | binary | of the record | NULL, the line |
| topic | string | the topic | the path |
| partition | int32 | Kafka partition | NULL |
| offset | int64 | offset | the block of the line in the upper bits; the decoder counts the lines in the lower ones |
| timestamp | timestamp | of the record | modification time of the file |
| old_key | binary | of a row whose key Debezium has seen change: the key before (`OLD_KEY_HEADER`) | NULL |
| rank | int64 | 0; where names of key columns changed, how often before | modification time, microseconds |
| headers | list of (key, value) | only where `select` reads `_headers` | the same |

Names begin with `PREFIX`, which no payload field may.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode.change import RawRecord

PREFIX: Final = "__f_"
KEY, VALUE, TOPIC, KAFKA_PARTITION, OFFSET, TIMESTAMP, HEADERS, OLD_KEY, RANK = (
    f"{PREFIX}{part}"
    for part in ("key", "value", "topic", "partition", "offset", "timestamp", "headers", "old_key", "rank")
)
OLD_KEY_HEADER: Final = "__debezium.oldkey"
"""Of the insert that, with a deletion before it, stands for an update of the key."""

FLAT_COLUMNS: Final = (KEY, VALUE, TOPIC, KAFKA_PARTITION, OFFSET, TIMESTAMP, OLD_KEY, RANK)
"""What every decoder takes, in this order; `HEADERS` follows where it is used."""


def each_of(block: Any, indexes: Any) -> Iterator[RawRecord]:
    """The records at these indexes of a block (`record_block`)."""
    keys, values, topics, old_keys = (block.taken(name, indexes) for name in (KEY, VALUE, TOPIC, OLD_KEY))
    is_line = block.taken(KAFKA_PARTITION, indexes).is_null()
    columns = (column.to_pylist() for column in (keys, values, is_line, topics, old_keys))
    for key, value, line, topic, old_key in zip(*columns, strict=True):
        yield RawRecord(key, value, line, topic or "", old_key)


@dataclass(frozen=True, slots=True)
class RecordsAround:
    """Those around one of a block; `begins` says that the block has all records of its Kafka partitions from the start
    of the batch on."""

    block: Any
    index: int
    begins: bool

    def before(self) -> list[RawRecord]:
        """The two in front of it, the nearest first, as far as they are of its Kafka partition."""
        at = np.arange(max(0, self.index - 2), self.index + 1)[::-1]
        places = list(zip(*(self.block.taken(name, at).to_pylist() for name in (TOPIC, KAFKA_PARTITION)), strict=True))
        return [each for each, own in zip(each_of(self.block, at), places, strict=True) if own == places[0]][1:]

    def is_first(self, key: bytes | None) -> bool:
        """Whether only one record in front of it, but for tombstones, has this message key in the batch; false where it
        is not known."""
        if key is None or not self.begins:
            return False
        keys = self.block.column(KEY).slice(0, self.index)
        same = np.flatnonzero(pc.equal(keys, pa.scalar(key, keys.type)).fill_null(False).to_numpy(zero_copy_only=False))
        return self.block.taken(VALUE, same).null_count == len(same) - 1


def place(block: Any, index: int) -> tuple[str, int, int]:
    """Topic, partition and offset of a record of Kafka."""
    at = np.array([index])
    topic, partition, offset = (block.taken(name, at)[0].as_py() for name in (TOPIC, KAFKA_PARTITION, OFFSET))
    return topic, partition, offset


def where(block: Any, index: int) -> str:
    """The place of a record of a block, for messages."""
    return wheres(block, np.array([index]))[0]


def wheres(block: Any, indexes: Any) -> list[str]:
    """The places of records of a block, for messages. One by one they are 20 times as slow."""
    places = (block.taken(name, indexes).to_pylist() for name in (TOPIC, KAFKA_PARTITION, OFFSET))
    return [
        f"{topic or '?'} partition {-1 if partition is None else partition} offset {offset}"
        for topic, partition, offset in zip(*places, strict=True)
    ]
