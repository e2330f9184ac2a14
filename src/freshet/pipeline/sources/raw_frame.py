"""Sources: streaming frames of raw records, with the same columns for Kafka and for files.

| column | Kafka | files |
|---|---|---|
| key, value | BINARY | NULL, the line |
| topic | the topic | the path |
| partition | Kafka partition | NULL |
| offset | offset | position in the file, see below |
| timestamp | the record's | modification time of the file |
| headers | ARRAY<STRUCT<key, value>>; NULL where `select` does not read `_headers` | NULL |
| old_key | a header of Debezium's records (`decode.raw_records`) | NULL |
| rank | 0 | modification time, microseconds: files are read in the order (modification time, path, row) |

The position of a line orders the lines of one file and is no line number: the block of the file (in units of 64 KiB) in
the upper bits, below it the position within the Spark partition that reads it. Spark counts no positions on a streaming
frame, so the lower bits are zero here and the decoder counts the lines in them. A file is split into blocks of
`spark.sql.files.maxPartitionBytes`, which must not be below 64 KiB.

Options are passed on as they are; the column names are those of `decode.raw_records`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, SparkSession

from freshet.pipeline.checks.unread_records import NOTHING_KNOWN, UnreadRecords
from freshet.pipeline.config.folder_rules import ARCHIVE_OPTION
from freshet.pipeline.config.model import ISOLATION, FilesConfig, SourceConfig, revealed
from freshet.pipeline.decode.raw_records import (
    HEADERS,
    KAFKA_PARTITION,
    KEY,
    OFFSET,
    OLD_KEY,
    OLD_KEY_HEADER,
    RANK,
    TIMESTAMP,
    TOPIC,
    VALUE,
)
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.identity.checkpoint_folder import spark_path
from freshet.pipeline.spark.fetch_sizes import fetch_options

if TYPE_CHECKING:  # the client of Kafka, which files do not need
    from freshet.logstore.kafka.offset_range import OffsetRange

_HEADERS_TYPE: Final = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
_NO_OLD_KEY: Final = "CAST(NULL AS BINARY)"
_BLOCK_BITS: Final = 16
"""Blocks are distinguished by their start in units of 64 KiB."""

_EARLIEST: Final = -2
"""Spark's word for the first offset that Kafka has."""

POSITION_BITS: Final = 33
"""Width of the row position in Spark's monotonically_increasing_id."""


def read_stream(spark: SparkSession, source: SourceConfig, unread: UnreadRecords = NOTHING_KNOWN) -> DataFrame:
    """The records of one source as a streaming frame; `unread` says what it has to read."""
    if source.kafka is not None:
        # Headers cost time for every record, even if nothing reads them.
        wants_headers = source.is_debezium or any("_headers" in text for text in source.select.values())
        options = {
            **fetch_options(unread.kafka_partitions, unread.sizes),
            **revealed(source.kafka),
            ISOLATION: source.isolation,
            "includeHeaders": str(wants_headers).lower(),
        }
        return kafka_records(spark.readStream.format("kafka").options(**options).load())
    if source.files is None:
        raise ConfigurationError("a source has exactly one of kafka and files")
    return file_records(_lines(spark, source.files))


def read_offsets(
    spark: SparkSession, source: SourceConfig, ranges: Sequence[OffsetRange], *, takes_losses: bool
) -> DataFrame:
    """The records of some ranges of a Kafka source, a range for each partition, as a frame that is no stream."""
    places: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for each in ranges:
        places.setdefault(each.topic, []).append(each.partition)
        starts.setdefault(each.topic, {})[str(each.partition)] = each.start or _EARLIEST
        ends.setdefault(each.topic, {})[str(each.partition)] = each.end
    own = {key: text for key, text in revealed(source.kafka or {}).items() if key.lower().startswith("kafka.")}
    own[ISOLATION] = source.isolation
    given = {"assign": places, "startingOffsets": starts, "endingOffsets": ends}
    options = own | {key: json.dumps(value) for key, value in given.items()}
    if takes_losses:
        options["failOnDataLoss"] = "false"
    options["includeHeaders"] = str(source.is_debezium).lower()
    return kafka_records(spark.read.format("kafka").options(**options).load())


def sets_poll_records(source: SourceConfig) -> bool:
    """True where the file says how many records a poll takes."""
    return any(key.lower() == "kafka.max.poll.records" for key in source.kafka or {})


def kafka_records(frame: DataFrame) -> DataFrame:
    """A frame of Spark's Kafka source, with or without headers, in the columns of the module."""
    has_headers = "headers" in frame.columns
    old_key = f"try_element_at(filter(headers, each -> each.key = '{OLD_KEY_HEADER}'), -1).value"
    return frame.selectExpr(
        f"key AS {KEY}",
        f"value AS {VALUE}",
        f"topic AS {TOPIC}",
        f"partition AS {KAFKA_PARTITION}",
        f"offset AS {OFFSET}",
        f"timestamp AS {TIMESTAMP}",
        f"headers AS {HEADERS}" if has_headers else f"CAST(NULL AS {_HEADERS_TYPE}) AS {HEADERS}",
        f"{old_key if has_headers else _NO_OLD_KEY} AS {OLD_KEY}",
        f"0L AS {RANK}",
    )


def file_records(frame: DataFrame) -> DataFrame:
    """A frame of lines read from files, in the columns of the module."""
    block = f"shiftleft(shiftright(_metadata.file_block_start, {_BLOCK_BITS}), {POSITION_BITS})"
    return frame.selectExpr(
        f"CAST(NULL AS BINARY) AS {KEY}",
        f"CAST(value AS BINARY) AS {VALUE}",
        f"_metadata.file_path AS {TOPIC}",
        f"CAST(NULL AS INT) AS {KAFKA_PARTITION}",
        f"{block} AS {OFFSET}",
        f"_metadata.file_modification_time AS {TIMESTAMP}",
        f"CAST(NULL AS {_HEADERS_TYPE}) AS {HEADERS}",
        f"{_NO_OLD_KEY} AS {OLD_KEY}",
        f"unix_micros(_metadata.file_modification_time) AS {RANK}",
    )


def _lines(spark: SparkSession, files: FilesConfig) -> DataFrame:
    options = {key: spark_path(text) if key == ARCHIVE_OPTION else text for key, text in files.options.items()}
    return spark.readStream.format("text").options(**options).load(spark_path(files.path))
