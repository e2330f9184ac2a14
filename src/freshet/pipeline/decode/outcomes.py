"""What a decoder gives: one row per outcome of a record, in flat columns, and one tally per Arrow stream.

| column | type | data (tag 0) | dead letter (tag 1) | tally (tag 3) |
|---|---|---|---|---|
| `_bucket` | int32 | number by `BucketRule`; NULL where Spark computes it from a `select` expression | NULL | NULL |
| `_tag` | int8 | 0 | 1 | 3 |
| `_kind` | int8 | row kind of the row | NULL | NULL |
| `_source` | int32 | index of the source in the pipeline file | the same | the same |
| `_rank` | int64 | files: modification time, microseconds; Kafka: NULL | the same | NULL |
| `_topic` | string | topic, or path of the file | the same | NULL |
| `_kafka_partition` | int32 | partition; NULL for files | the same | NULL |
| `_offset` | int64 | offset; files: position of the line | the same | NULL |
| `_sub` | int32 | number of the row in its record, from 0 | 0 | NULL |
| `_timestamp` | timestamp[us, UTC] | of records that may yet be dead letters, or with `select` | of the record | NULL |
| `_reason` | string | NULL | why, counted by this text | NULL |
| `_column` | string | NULL | the table column that the reason is about, if there is one | NULL |
| `_raw_key`, `_raw_value` | binary | of rows that may yet become dead letters | of the record | value: the tally |
| `_unavailable` | string | columns whose stored value is kept, as "3,7", and the old key (`OldKey`) | NULL | NULL |
| `_d0` … | carriers | the table's columns by index; see `carriers` | NULL | NULL |

Tags 5 to 7 are records that break a rule of `expect`, and look like dead letters; only 5 has the raw bytes.

A row of tag 2 is the second one of a record whose first became a dead letter under `select`: tasks leave it out.

(source, rank, topic, Kafka partition, offset, sub) is the input order, the most significant first.

A tally is the JSON of a `Tally`: the records that a decoder read, those it skipped by reason, and what else it counted.
It crosses the shuffle as a row, so it is there exactly once for the rows that are there, even if Spark computed some of
them twice.
Skipped records are no rows: they are in the tally alone. A decoder that cannot go on says why in its tally, so that
Spark does not try the same records again.

The key that a row had before a change gave it another one travels with the list of unavailable columns, as one more
part of that text: a stream of Arrow of one row, whose columns are the carriers of the primary key's, in base64.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen, field
from freshet.logstore.kafka.record_sizes import NOTHING_SEEN, RecordSizes
from freshet.pipeline.decode.carriers import carrier_arrow_type
from freshet.pipeline.decode.json_value import JsonValue
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.errors.repeating_errors import ErrorDocument
from freshet.storage.model.data_type import DataField

BUCKET: Final = "_bucket"
TAG: Final = "_tag"
KIND: Final = "_kind"
SOURCE: Final = "_source"
RANK: Final = "_rank"
TOPIC: Final = "_topic"
KAFKA_PARTITION: Final = "_kafka_partition"
OFFSET: Final = "_offset"
SUB: Final = "_sub"
TIMESTAMP: Final = "_timestamp"
REASON: Final = "_reason"
COLUMN: Final = "_column"
RAW_KEY: Final = "_raw_key"
RAW_VALUE: Final = "_raw_value"
UNAVAILABLE: Final = "_unavailable"
DATA_PREFIX: Final = "_d"

TAG_DATA: Final = 0
TAG_DEAD: Final = 1
TAG_GONE: Final = 2
"""The second row of a record of which the first one is the dead letter; the task leaves it out."""

TAG_TALLY: Final = 3

TAG_INDEX: Final = 4
"""What an assigner of dynamic buckets reports (`AssignerTask`), in `_raw_value`."""

TAG_QUARANTINED: Final = 5
TAG_DROPPED: Final = 6
TAG_STOPPED: Final = 7
"""Records that break a rule of `expect`, whose name is the reason: dead letters, those that are counted alone, and
those that stop the run."""

ORDER_COLUMNS: Final = (SOURCE, RANK, TOPIC, KAFKA_PARTITION, OFFSET, SUB)
"""The input order, the most significant first."""

HEAD_SCHEMA: Final = pa.schema(
    [
        pa.field(BUCKET, pa.int32()),
        pa.field(TAG, pa.int8(), nullable=False),
        pa.field(KIND, pa.int8()),
        pa.field(SOURCE, pa.int32()),
        pa.field(RANK, pa.int64()),
        pa.field(TOPIC, pa.string()),
        pa.field(KAFKA_PARTITION, pa.int32()),
        pa.field(OFFSET, pa.int64()),
        pa.field(SUB, pa.int32()),
        pa.field(TIMESTAMP, pa.timestamp("us", "UTC")),
        pa.field(REASON, pa.string()),
        pa.field(COLUMN, pa.string()),
        pa.field(RAW_KEY, pa.binary()),
        pa.field(RAW_VALUE, pa.binary()),
        pa.field(UNAVAILABLE, pa.string()),
    ]
)
"""Every outcome has these columns first, then `_d0` … of the table."""


class EventTimes(NamedTuple):
    """The earliest and the latest time of some records, in milliseconds since the epoch."""

    first_ms: int
    last_ms: int


def joined_times(one: EventTimes | None, other: EventTimes | None) -> EventTimes | None:
    """The times of both together; None where neither knows any."""
    if one is None or other is None:
        return one or other
    return EventTimes(min(one.first_ms, other.first_ms), max(one.last_ms, other.last_ms))


def event_times(times: pa.Array[Any]) -> EventTimes | None:
    """The times of a column of microseconds; None where all are NULL, or none lies after the epoch (Kafka's -1)."""
    bounds = pc.min_max(times.cast(pa.int64()))
    first, last = bounds["min"].as_py(), bounds["max"].as_py()
    if last is None or last <= 0:
        return None
    return EventTimes(max(0, first) // 1000, last // 1000)


class SeenTable(NamedTuple):
    """A table that the records of a source name, and the place of the first of them."""

    source_index: int
    table: SourceTable
    where: str

    @classmethod
    def of(cls, document: Sequence[JsonValue]) -> SeenTable:
        """From its form in JSON."""
        source_index, table, where = document
        return cls(source_index, SourceTable(*table), where)


class TruncatedAt(NamedTuple):
    """Where a source table was truncated: the index of its target in the query, and the place of the record.

    What comes before it in its Kafka partition is gone.
    """

    table_index: int
    topic: str
    partition: int
    offset: int


class SeenSchema(NamedTuple):
    """A source table that a decoder does not know, or what of it is new (`described_table`, as a document)."""

    table: SourceTable
    described: list[JsonValue]

    @classmethod
    def of(cls, document: Sequence[JsonValue]) -> SeenSchema:
        """From its form in JSON."""
        table, described = document
        return cls(SourceTable(*table), described)

    def to_document(self) -> list[JsonValue]:
        """The form that JSON takes."""
        return [list(self.table), self.described]


class Tally(Frozen):
    """What one decoder counted. Counts are of records."""

    read: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, int] = field(default_factory=dict)
    """Counts that are reported besides: unknown fields, TOAST values found in `before` or left NULL."""
    error: ErrorDocument | None = None
    """Why the decoder stopped, if another attempt would stop there again; then nothing is committed."""
    tables: tuple[SeenTable, ...] = ()
    """The tables of the records, if the source may have only one."""
    sizes: RecordSizes = NOTHING_SEEN
    """Sizes of the records that it read."""
    reached: Mapping[str, int] = field(default_factory=dict)
    """Offsets to which ranges were read, where a worker reads them itself (`query.task.kafka_ranges`)."""
    truncated: tuple[TruncatedAt, ...] = ()
    """The truncates of sources where they are applied; the driver sees to it that nothing before them is written."""
    seen: tuple[SeenSchema, ...] = ()
    """What is new, where a source has many tables; then nothing of the batch is committed before that is followed."""
    times: EventTimes | None = None
    """When the records were made."""

    def encode(self) -> bytes:
        """The value of a tally row."""
        document: dict[str, JsonValue] = {"read": self.read, "skipped": dict(self.skipped), "notes": dict(self.notes)}
        if self.sizes.largest:
            document["sizes"] = [self.sizes.mean, self.sizes.largest]
        if self.reached:
            document["reached"] = dict(self.reached)
        if self.tables:
            document["tables"] = [[each.source_index, list(each.table), each.where] for each in self.tables]
        if self.seen:
            document["seen"] = [each.to_document() for each in self.seen]
        if self.truncated:
            document["truncated"] = [list(each) for each in self.truncated]
        if self.times is not None:
            document["times"] = list(self.times)
        if self.error is not None:
            document["error"] = dict(self.error)
        return orjson.dumps(document, default=str)

    @classmethod
    def decode(cls, value: bytes) -> Tally:
        """The inverse of `encode`."""
        document = orjson.loads(value)
        tables = tuple(SeenTable.of(each) for each in document.get("tables", ()))
        sizes = RecordSizes(*document.get("sizes", ()))
        truncated = tuple(TruncatedAt(*each) for each in document.get("truncated", ()))
        counts = document["read"], document["skipped"], document["notes"]
        seen = tuple(SeenSchema.of(each) for each in document.get("seen", ()))
        times = EventTimes(*document["times"]) if "times" in document else None
        return cls(*counts, document.get("error"), tables, sizes, document.get("reached", {}), truncated, seen, times)


_MARK: Final = "@"
_FIRST: Final = "!"
"""Behind the mark of a key that no record of the batch has in front of its deletion."""


class OldKey(NamedTuple):
    """The values of the key's columns by their names, and whether its deletion is its first record in the batch."""

    values: Mapping[str, object]
    is_first: bool


def old_key_text(fields: Sequence[DataField], values: Mapping[str, object], *, is_first: bool = False) -> str:
    """The text of a key, whose columns have these values."""
    arrays = [pa.array([values[each.name]], carrier_arrow_type(each.type)) for each in fields]
    batch = pa.RecordBatch.from_arrays(arrays, names=[each.name for each in fields])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return _MARK + (_FIRST if is_first else "") + base64.b64encode(sink.getvalue()).decode()


def old_key_in(parts: Sequence[str]) -> OldKey | None:
    """The key, if one of the parts of an unavailable text is one."""
    for part in parts:
        if is_old_key(part):
            text = part.removeprefix(_MARK)
            (row,) = pa.ipc.open_stream(base64.b64decode(text.removeprefix(_FIRST))).read_all().to_pylist()
            return OldKey(row, text.startswith(_FIRST))
    return None


def is_old_key(part: str) -> bool:
    """Whether a part of an unavailable text is a key; the others are indexes of columns."""
    return part.startswith(_MARK)
