"""Records as they arrive, and what the decoder makes of them: what the tests of the decoder share; no Spark.

The literals are captured shapes: Debezium 3.5 on PostgreSQL, the `schema` shortened to the members that a converter
writes for the fields of a row.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from freshet.pipeline.config.pipeline_file import PipelineConfig, parse_pipeline
from freshet.pipeline.decode import raw_records
from freshet.pipeline.decode.decoder import RecordDecoder
from freshet.pipeline.decode.outcomes import (
    TAG,
    TAG_DEAD,
    TAG_DROPPED,
    TAG_QUARANTINED,
    TAG_STOPPED,
    TAG_TALLY,
    Tally,
)
from freshet.pipeline.decode.planning import plan_decoding
from freshet.pipeline.decode.record_block import KafkaBlock
from freshet.pipeline.errors.repeating_errors import error_of

SOURCE = {
    "version": "3.5.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": 1700000000123, "snapshot": "false",
    "db": "shop", "sequence": '["23456","23480"]', "schema": "public", "table": "orders", "txId": 771, "lsn": 23480,
    "xmin": None, "ts_us": 1700000000123456, "ts_ns": 1700000000123456000,
}  # fmt: skip

ORDERS = {"id": "BIGINT", "status": "STRING", "total": "DECIMAL(14,4)", "at": "TIMESTAMP(6)", "doc": "STRING"}
ORDER_SCHEMA = [
    {"type": "int64", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "status"},
    {
        "type": "bytes", "optional": True, "name": "org.apache.kafka.connect.data.Decimal", "version": 1,
        "parameters": {"scale": "2", "connect.decimal.precision": "14"}, "field": "total",
    },
    {"type": "int64", "optional": True, "name": "io.debezium.time.Timestamp", "version": 1, "field": "at"},
    {"type": "string", "optional": True, "field": "doc"},
]  # fmt: skip
TOAST = "__debezium_unavailable_value"


def change(op: str, before: Any = None, after: Any = None, **source: Any) -> dict[str, Any]:
    """A change envelope without schema."""
    return {
        "before": before, "after": after, "source": {**SOURCE, **source}, "transaction": None, "op": op,
        "ts_ms": 1700000000999, "ts_us": 1700000000999123, "ts_ns": 1700000000999123456,
    }  # fmt: skip


def with_schema(payload: Any, fields: Sequence[Mapping[str, Any]] = ORDER_SCHEMA) -> dict[str, Any]:
    """The same with the schema next to it."""
    row = {"type": "struct", "fields": list(fields), "optional": True, "name": "shop.public.orders.Value"}
    members = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        {"type": "struct", "fields": [{"type": "string", "optional": False, "field": "version"}], "field": "source"},
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ]
    schema = {
        "type": "struct",
        "fields": members,
        "optional": False,
        "name": "shop.public.orders.Envelope",
        "version": 2,
    }
    return {"schema": schema, "payload": payload}


def flat_with_schema(payload: Any, fields: Sequence[Mapping[str, Any]] = ORDER_SCHEMA) -> dict[str, Any]:
    """An unwrapped row, or a key, with the schema next to it."""
    return {"schema": {"type": "struct", "fields": list(fields), "optional": False, "name": "V"}, "payload": payload}


@dataclass(frozen=True)
class Record:
    """One Kafka record; `value` and `key` are JSON values, bytes, or None for no value at all."""

    value: Any
    key: Any = None
    topic: str = "shop.public.orders"
    partition: int = 0
    old_key: Any = None
    """What the header says of a row whose key has changed."""


def pipeline_of(
    columns: Mapping[str, str] = ORDERS,
    *,
    primary_key: Sequence[str] = ("id",),
    options: Mapping[str, Any] | None = None,
    expect: Mapping[str, Any] | None = None,
    partition_by: Sequence[str] = (),
    **source: Any,
) -> PipelineConfig:
    """A checked pipeline file with one Kafka source; `source` holds further keys of it."""
    kafka = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    document = {
        "name": "orders",
        "sources": [{"kafka": kafka, "format": "debezium-json", **source}],
        "table": {
            "warehouse": "/w", "name": "shop.orders", "columns": dict(columns), "primary_key": list(primary_key),
            "partition_by": list(partition_by), "options": {"bucket": 1, **(options or {})},
            **({"expect": dict(expect)} if expect else {}),
        },
        "checkpoint": "/c",
    }  # fmt: skip
    config, problems = parse_pipeline(yaml.safe_dump(document, sort_keys=False), "test.yaml", {})
    assert config is not None, [str(problem) for problem in problems]
    return config


RAW_SCHEMA = pa.schema(
    [
        pa.field(raw_records.KEY, pa.binary()),
        pa.field(raw_records.VALUE, pa.binary()),
        pa.field(raw_records.TOPIC, pa.string()),
        pa.field(raw_records.KAFKA_PARTITION, pa.int32()),
        pa.field(raw_records.OFFSET, pa.int64()),
        pa.field(raw_records.TIMESTAMP, pa.timestamp("us", "UTC")),
        pa.field(raw_records.OLD_KEY, pa.binary()),
        pa.field(raw_records.RANK, pa.int64()),
    ]
)
STAMP = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


def raw_batch(records: Sequence[Record | Any], *, is_file: bool = False, first: int = 0) -> pa.RecordBatch:
    """Records as Spark hands them to the decoder, offsets counted from `first`."""
    rows = [each if isinstance(each, Record) else Record(each) for each in records]
    columns = [
        [octets(each.key) for each in rows],
        [octets(each.value) for each in rows],
        ["/in/a.json" if is_file else each.topic for each in rows],
        [None if is_file else each.partition for each in rows],
        [0 if is_file else first + place for place in range(len(rows))],
        [STAMP] * len(rows),
        [octets(each.old_key) for each in rows],
        [7 if is_file else 0] * len(rows),
    ]
    arrays = [pa.array(column, each.type) for column, each in zip(columns, RAW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_SCHEMA)


@dataclass
class Decoded:
    """The rows of each record in the order of `sub`, and the tally."""

    rows: list[list[dict[str, Any]]]
    tally: Tally = field(default_factory=Tally)

    @property
    def shown(self) -> list[str]:
        """Each record as text; "" for those that are skipped."""
        return [shown(rows) for rows in self.rows]


def decoder_of(config: PipelineConfig, source_index: int = 0) -> RecordDecoder:
    """The decoder of one source."""
    return RecordDecoder(plan_decoding(config, source_index))


def decoded(config: PipelineConfig, records: Sequence[Record | Any], *, is_file: bool = False) -> Decoded:
    """What the decoder makes of the records."""
    return run(decoder_of(config), records, is_file=is_file)


def _stamps(count: int) -> pa.Array:
    return pa.array([STAMP] * count, pa.timestamp("us", "UTC"))


def _old_keys(rows: Sequence[Record], indexes: Any) -> list[bytes | None]:
    return [octets(rows[index].old_key) for index in indexes.tolist()]


def kafka_block(records: Sequence[Record | Any], *, first: int = 0) -> KafkaBlock:
    """The same records as workers that read Kafka themselves hand them over: a block for each run of a partition."""
    rows = [each if isinstance(each, Record) else Record(each) for each in records]
    blocks, start = [], first
    for place, of_place in groupby(rows, key=lambda each: (each.topic, each.partition)):
        own = list(of_place)
        values = [octets(each.value) for each in own]
        blocks.append(
            KafkaBlock(
                [place],
                None,
                [octets(each.key) for each in own],
                values,
                np.array([len(value or b"") for value in values], np.int64),
                np.arange(start, start + len(own)),
                partial(_stamps, len(own)),
                partial(_old_keys, own),
            )
        )
        start += len(own)
    return KafkaBlock.joined(blocks)


def run(
    decoder: RecordDecoder, records: Sequence[Record | Any], *, is_file: bool = False, in_both_forms: bool = True
) -> Decoded:
    """What this decoder makes of the records, which is the same in both forms; raises the error of its tally."""
    found = _run(decoder, raw_batch(records, is_file=is_file))
    has_headers = any(each.name == "_headers" for each in decoder.plan.scope)
    if in_both_forms and not is_file and records and not has_headers:
        assert repr(_run(decoder, kafka_block(records))) == repr(found)  # NaN is not NaN
    return found


def _run(decoder: RecordDecoder, records: pa.RecordBatch | KafkaBlock) -> Decoded:
    batches = list(decoder(iter([records])))  # type: ignore[arg-type]
    by_offset: list[list[dict[str, Any]]] = [[] for _ in range(records.num_rows)]
    tally = Tally()
    for batch in batches:
        assert batch.schema == batches[0].schema
        for row in batch.to_pylist():
            if row[TAG] == TAG_TALLY:
                tally = Tally.decode(row["_raw_value"])
                if tally.error is not None:
                    raise error_of(tally.error)
            else:
                by_offset[row["_offset"]].append(row)
    for rows in by_offset:
        rows.sort(key=lambda row: row["_sub"])
    return Decoded(by_offset, tally)


REFUSED = {TAG_DEAD: "dead", TAG_QUARANTINED: "quarantine", TAG_DROPPED: "drop", TAG_STOPPED: "stop"}
KINDS = ("+I", "-U", "+U", "-D")


def shown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Outcome of one record as text: `+I(1, x)`, `dead column: reason`."""
    return "; ".join(_shown(row) for row in rows)


def _shown(row: Mapping[str, Any]) -> str:
    if row[TAG] in REFUSED:
        return f"{REFUSED[row[TAG]]} {row['_column']}: {row['_reason']}"
    values = ", ".join(_text(value) for name, value in row.items() if name.startswith("_d"))
    kept = f" keep {row['_unavailable']}" if row["_unavailable"] else ""
    return f"{KINDS[row['_kind']]}({values}){kept}"


def _text(value: Any) -> str:
    return str(value.replace(tzinfo=None)) if isinstance(value, datetime.datetime) else str(value)


def octets(value: Any) -> bytes | None:
    """The bytes of a key or value."""
    if value is None:
        return None
    return value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()
