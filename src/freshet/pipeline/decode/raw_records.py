"""What a decoder takes: raw records in flat columns, as `freshet.pipeline.sources.raw_frame` gives them.

| column | type | Kafka | files |
|---|---|---|---|
| key, value | binary | of the record | NULL, the line |
| topic | string | the topic | the path |
| partition | int32 | Kafka partition | NULL |
| offset | int64 | offset | the block of the line in the upper bits; the decoder counts the lines in the lower ones |
| timestamp | timestamp | of the record | modification time of the file |
| rank | int64 | 0; where names of key columns changed, how often before | modification time, microseconds |
| headers | list of (key, value) | only where `select` reads `_headers` | the same |

Names begin with `PREFIX`, which no payload field may.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.logstore.kafka.record_sizes import NOTHING_SEEN, RecordSizes
from freshet.pipeline.decode.change import RawRecord

PREFIX: Final = "__f_"
KEY, VALUE, TOPIC, KAFKA_PARTITION, OFFSET, TIMESTAMP, HEADERS, RANK = (
    f"{PREFIX}{part}" for part in ("key", "value", "topic", "partition", "offset", "timestamp", "headers", "rank")
)
FLAT_COLUMNS: Final = (KEY, VALUE, TOPIC, KAFKA_PARTITION, OFFSET, TIMESTAMP, RANK)
"""What every decoder takes, in this order; `HEADERS` follows where it is used."""


def sizes_of(batch: Any) -> RecordSizes:
    """How large the records of a batch are."""
    if not batch.num_rows:
        return NOTHING_SEEN
    parts: list[Any] = [pc.fill_null(pc.binary_length(batch.column(name)), 0) for name in (KEY, VALUE)]
    lengths = sum(part.to_numpy(zero_copy_only=False).astype(np.int64) for part in parts)
    return RecordSizes(int(lengths.sum()) // batch.num_rows, int(lengths.max()))


def each_of(block: Any, indexes: Any) -> Iterator[RawRecord]:
    """The records at these indexes of a block."""
    columns = [block.column(name).take(pa.array(indexes)) for name in (KEY, VALUE)]
    is_line = block.column(KAFKA_PARTITION).take(pa.array(indexes)).is_null()
    topics = block.column(TOPIC).take(pa.array(indexes))
    for key, value, line, topic in zip(*(column.to_pylist() for column in (*columns, is_line, topics)), strict=True):
        yield RawRecord(key, value, line, topic or "")


def with_rank(block: Any, rank: int) -> Any:
    """The same records, of another rank."""
    ranks = pa.array(np.full(block.num_rows, rank, np.int64))
    columns = [ranks if name == RANK else block.column(name) for name in block.schema.names]
    return type(block).from_arrays(columns, schema=block.schema)


def place(block: Any, index: int) -> tuple[str, int, int]:
    """Topic, partition and offset of a record of Kafka."""
    columns = (block.column(name) for name in (TOPIC, KAFKA_PARTITION, OFFSET))
    topic, partition, offset = (column[index].as_py() for column in columns)
    return topic, partition, offset


def where(block: Any, index: int) -> str:
    """The place of a record of a block, for messages."""
    topic = block.column(TOPIC)[index].as_py()
    partition = block.column(KAFKA_PARTITION)[index].as_py()
    offset = block.column(OFFSET)[index].as_py()
    return f"{topic or '?'} partition {-1 if partition is None else partition} offset {offset}"
