"""A log in debezium-json, read as any Debezium topic is: a pipeline that chains on it has the rows of the table."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from freshet.logstore.protocol.record import DEBEZIUM_FORMAT, KIND_FIELD
from freshet.logstore.writing.json_records import json_records
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.row_kind import KIND_TEXTS
from tests.pipeline.records import Record, decoded, pipeline_of

COLUMNS = {
    "id": "BIGINT NOT NULL",
    "flag": "BOOLEAN",
    "small": "TINYINT",
    "exact": "DECIMAL(38, 10)",
    "real": "FLOAT",
    "wide": "DOUBLE",
    "text": "STRING",
    "octets": "BYTES",
    "day": "DATE",
    "clock": "TIME(3)",
    "at": "TIMESTAMP(6)",
    "moment": "TIMESTAMP(3) WITH LOCAL TIME ZONE",
}
TIME = dt.datetime(2024, 2, 29, 23, 59, 59, 123456)
FULL: dict[str, Any] = {
    "id": 2**63 - 1,
    "flag": True,
    "small": -128,
    "exact": Decimal("1234567890123456789012345678.0123456789"),
    "real": 0.10000000149011612,
    "wide": -1.7976931348623157e308,
    "text": 'a "quoted"\n\\ ü \x01 😀',
    "octets": b"\x00\xff\xfe",
    "day": dt.date(1, 1, 1),
    "clock": dt.time(23, 59, 59, 123000),
    "at": TIME,
    "moment": dt.datetime(2024, 2, 29, 12, 0, 0, 5000, tzinfo=dt.UTC),
}
EMPTY = {**dict.fromkeys(COLUMNS), "id": 1}
OTHER = {**FULL, "text": None, "wide": 1.0, "exact": Decimal("-0.0000000001"), "at": TIME.replace(microsecond=0)}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("+I", FULL), ("+I", EMPTY)], [("+I", FULL), ("+I", EMPTY)]),
        ([("-U", FULL), ("+U", OTHER)], [("-U", FULL), ("+U", OTHER)]),
        ([("-D", FULL)], [("-D", FULL)]),
    ],
    ids=["inserts", "update", "delete"],
)
def test_a_pipeline_reads_the_rows_of_the_table(changes: list[Any], expected: list[Any]) -> None:
    config = pipeline_of(COLUMNS, options={"changelog-producer": "input"})
    schema = arrow_schema(config.table.table_schema)
    rows = pa.Table.from_pylist(
        [{"_ROW_KIND": KIND_TEXTS.index(kind), **row} for kind, row in changes], pa.schema([KIND_FIELD, *schema])
    )
    records = [
        Record(each.value, each.key) for each in json_records(rows, DEBEZIUM_FORMAT, ["id"], size_bytes_max=1_000_000)
    ]
    found = [row for outcomes in decoded(config, records).rows for row in outcomes]
    assert [row.get("_reason") for row in found] == [None] * len(expected), found
    rows_read = []
    for row in found:
        values = dict(zip(COLUMNS, (value for name, value in row.items() if name.startswith("_d")), strict=True))
        if values["clock"] is not None:  # travels as milliseconds: Spark has no such type
            values["clock"] = (dt.datetime.min + dt.timedelta(milliseconds=values["clock"])).time()
        rows_read.append((KIND_TEXTS[row["_kind"]], values))
    assert rows_read == expected
