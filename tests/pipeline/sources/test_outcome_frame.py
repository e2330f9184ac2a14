"""Outcomes through Spark: the columns that the decoder gives are the columns that a frame of it has."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from freshet.pipeline.decode.outcome_batches import outcome_schema
from freshet.pipeline.decode.outcomes import TAG, TAG_DEAD, TAG_TALLY, Tally
from freshet.pipeline.sources.outcome_frame import decoded_frame
from freshet.pipeline.sources.raw_frame import kafka_records, read_stream
from tests.pipeline.records import Record, change, decoder_of, pipeline_of, shown
from tests.pipeline.spark_records import kafka_frame

pytestmark = pytest.mark.spark

COLUMNS = {
    "id": "BIGINT", "b": "BOOLEAN", "i": "INT", "d": "DOUBLE", "n": "DECIMAL(14,4)", "s": "STRING", "x": "BYTES",
    "day": "DATE", "t": "TIME(3)", "at": "TIMESTAMP(6)", "z": "TIMESTAMP_LTZ(3)", "ns": "TIMESTAMP(9)",
    "a": "ARRAY<INT>", "m": "MAP<STRING, DECIMAL(6,2)>", "r": "ROW<p INT, q TIMESTAMP(3)>", "lsn": "BIGINT",
}  # fmt: skip
ROW = {
    "id": 1, "b": True, "i": 5, "d": 1.5, "n": "AeJA", "s": "text", "x": "q80=", "day": 19782, "t": 36000000,
    "at": 1700000000123456, "z": "2023-11-14T22:13:20.123Z", "ns": 1700000000123456789, "a": [1, None],
    "m": {"k": "1.5"}, "r": {"p": 1, "q": 1700000000123},
}  # fmt: skip


def test_every_type_crosses_into_spark_and_back(spark: SparkSession) -> None:
    select = {name: name for name in COLUMNS} | {"lsn": "_source.lsn"}
    config = pipeline_of(COLUMNS, select=select, options={"bucket": 4})
    thrice = config.model_copy(update={"sources": config.sources * 3})
    records = [Record(change("c", None, ROW), {"id": 1}, partition=3), Record(b"{broken", None), None]
    frame = decoded_frame(kafka_records(kafka_frame(spark, records)), thrice, 2)
    assert frame.columns == outcome_schema(decoder_of(config).plan).names
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    tallies = [Tally.decode(bytes(row["_raw_value"])) for row in rows if row[TAG] == TAG_TALLY]
    assert sum(each.read for each in tallies) == 3
    assert [each.skipped for each in tallies if each.skipped] == [{"tombstone": 1}]
    data, dead = sorted((row for row in rows if row[TAG] != TAG_TALLY), key=lambda row: row["_offset"])
    assert shown([data]) == (
        "+I(1, True, 5, 1.5, 12.3456, text, b'\\xab\\xcd', 2024-02-29, 36000000, 2023-11-14 22:13:20.123456,"
        " 2023-11-14 22:13:20.123000, 1700000000123456789, [1, None], {'k': Decimal('1.50')}, "
        "{'p': 1, 'q': datetime.datetime(2023, 11, 14, 22, 13, 20, 123000)}, 23480)"
    )
    assert (data["_source"], data["_topic"], data["_kafka_partition"], data["_sub"]) == (2, "shop.public.orders", 3, 0)
    assert data["_bucket"] in range(4)
    assert data["_raw_value"] is None
    assert shown([dead]) == "dead None: the value is not JSON of the form expected"
    assert bytes(dead["_raw_value"]) == b"{broken"


def test_lines_of_files_have_places_that_order_them(spark: SparkSession, tmp_path: Path) -> None:
    config = pipeline_of({"id": "BIGINT"}, files={"path": str(tmp_path)}, kafka=None)
    lines = [json.dumps(change("c", None, {"id": key})) for key in range(50)]
    (tmp_path / "a.json").write_text("".join(line + "\n" for line in [*lines, "{"]))
    frame = decoded_frame(read_stream(spark, config.sources[0]), config, 0)
    found: list[pa.Table] = []
    query = frame.writeStream.foreachBatch(lambda batch, _: found.append(batch.toArrow())).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "_c")).start().awaitTermination()
    rows = [row for table in found for row in table.to_pylist() if row[TAG] != TAG_TALLY]
    by_place = sorted(rows, key=lambda row: row["_offset"])
    assert [row["_d0"] for row in by_place] == [*range(50), None]
    assert len({row["_offset"] for row in rows}) == 51
    assert all(row["_topic"].endswith("/a.json") for row in rows)
    assert by_place[-1][TAG] == TAG_DEAD and isinstance(by_place[-1]["_timestamp"], datetime.datetime)
