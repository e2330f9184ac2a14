"""What a decoder takes: raw records in flat columns, as `freshet.pipeline.spark.sources` gives them.

| column | type | Kafka | files |
|---|---|---|---|
| key, value | binary | of the record | NULL, the line |
| topic | string | the topic | the path |
| partition | int32 | Kafka partition | NULL |
| offset | int64 | offset | the block of the line in the upper bits; the decoder counts the lines in the lower ones |
| timestamp | timestamp | of the record | modification time of the file |
| rank | int64 | 0 | modification time, microseconds |
| headers | list of (key, value) | only where `select` reads `_headers` | the same |

Names begin with `PREFIX`, which no payload field may.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "__f_"
KEY, VALUE, TOPIC, KAFKA_PARTITION, OFFSET, TIMESTAMP, HEADERS, RANK = (
    f"{PREFIX}{part}" for part in ("key", "value", "topic", "partition", "offset", "timestamp", "headers", "rank")
)
FLAT_COLUMNS: Final = (KEY, VALUE, TOPIC, KAFKA_PARTITION, OFFSET, TIMESTAMP, RANK)
"""What every decoder takes, in this order; `HEADERS` follows where it is used."""
