"""What a decoder takes: raw records in flat columns, as `freshet.pipeline.sources.raw_frame` gives them.

| column | type | Kafka | files |
|---|---|---|---|
| key, value | binary | of the record | NULL, the line |
| topic | string | the topic | the path |
| partition | int32 | Kafka partition | NULL |
| offset | int64 | offset | the block of the line in the upper bits; the decoder counts the lines in the lower ones |
| timestamp | timestamp | of the record | modification time of the file |
| old_key | binary | of a row whose key Debezium has seen change: the key before (`OLD_KEY_HEADER`) | NULL |
| rank | int64 | 0 | modification time, microseconds |
| headers | list of (key, value) | only where `select` reads `_headers` | the same |

Names begin with `PREFIX`, which no payload field may.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

PREFIX: Final = "__f_"
KEY, VALUE, TOPIC, KAFKA_PARTITION, OFFSET, TIMESTAMP, HEADERS, OLD_KEY, RANK = (
    f"{PREFIX}{part}"
    for part in ("key", "value", "topic", "partition", "offset", "timestamp", "headers", "old_key", "rank")
)
OLD_KEY_HEADER: Final = "__debezium.oldkey"
"""A header of the insert that, with a deletion before it, stands for an update of the key."""

FLAT_COLUMNS: Final = (KEY, VALUE, TOPIC, KAFKA_PARTITION, OFFSET, TIMESTAMP, OLD_KEY, RANK)
"""What every decoder takes, in this order; `HEADERS` follows where it is used."""

RAW_SCHEMA: Final = pa.schema(
    [
        pa.field(KEY, pa.binary()),
        pa.field(VALUE, pa.binary()),
        pa.field(TOPIC, pa.string()),
        pa.field(KAFKA_PARTITION, pa.int32()),
        pa.field(OFFSET, pa.int64()),
        pa.field(TIMESTAMP, pa.timestamp("us", "UTC")),
        pa.field(OLD_KEY, pa.binary()),
        pa.field(RANK, pa.int64()),
    ]
)
"""These columns."""
