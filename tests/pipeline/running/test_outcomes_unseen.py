"""The rows of the outcome table about what records do not show, and about records that come again.

Nobody behind Kafka can see these; the tests hold on to what happens then, so that the documentation stays true, and to
the setting of the connector that avoids it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.running.engine_pipeline import PipelineEngine
from freshet.pipeline.running.runner import Runner
from freshet.storage.catalog import Catalog
from tests.pipeline.records import ORDER_SCHEMA, Record, change, decoded, pipeline_of, with_schema

ROW = {"id": 1, "status": "new", "total": "AeJA", "at": 1700000000123456, "doc": None}
DEFAULTED = [{**field, "default": "new"} if field["field"] == "status" else field for field in ORDER_SCHEMA]
SCALED = [
    {**field, "parameters": {"scale": "4", "connect.decimal.precision": "14"}} if field["field"] == "total" else field
    for field in ORDER_SCHEMA
]


def _one(record: Any, **arguments: Any) -> str:
    (found,) = decoded(pipeline_of(**arguments), [record]).shown
    return found


def test_a_null_that_arrives_as_the_default_is_stored_so_and_a_real_null_stays_null() -> None:
    columns = {"id": "BIGINT", "status": "STRING"}
    for status, expected in (("new", "+I(1, new)"), (None, "+I(1, None)")):
        record = with_schema(change("c", None, {"id": 1, "status": status}), DEFAULTED)
        assert _one(record, columns=columns) == expected


def test_the_largest_unsigned_bigint_is_minus_one_unless_it_is_precise() -> None:
    columns = {"id": "BIGINT", "n": "DECIMAL(20,0)"}
    assert _one(change("c", None, {"id": 1, "n": -1}), columns=columns) == "+I(1, -1)"
    precise = change("c", None, {"id": 1, "n": "AP//////////"})
    assert _one(precise, columns=columns) == "+I(1, 18446744073709551615)"


def test_bytes_of_a_decimal_mean_what_the_schema_says_or_else_the_table() -> None:
    columns = {"id": "BIGINT", "total": "DECIMAL(14,4)"}
    payload = change("c", None, {"id": 1, "total": "AeJA"})
    assert _one(payload, columns=columns) == "+I(1, 12.3456)"
    assert _one(with_schema(payload), columns=columns) == "+I(1, 1234.5600)"
    assert _one(with_schema(payload, SCALED), columns=columns) == "+I(1, 12.3456)"


def test_made_up_values_before_a_change_look_like_real_ones() -> None:
    columns = {"id": "BIGINT", "status": "STRING"}
    made_up = {"id": 1, "status": ""}
    assert _one(change("d", made_up), columns=columns) == "-D(1, )"
    assert _one(change("u", {"id": 0, "status": ""}, {"id": 1, "status": "new"}), columns=columns) == (
        "-D(0, None); +I(1, new)"  # a key of 0 is no better than a real one
    )


def test_a_record_from_before_an_alter_has_no_value_for_the_new_column() -> None:
    assert _one(change("c", None, {"id": 1}), columns={"id": "BIGINT", "added": "INT"}) == "+I(1, None)"


PIPELINE = """
name: {name}
sources:
  - files: {{path: "{folder}/input"}}
    format: debezium-json
    select: {{id: id, status: status, lsn: _source.lsn}}
table:
  warehouse: "{folder}/warehouse"
  name: shop.{name}
  columns: {{id: BIGINT, status: STRING, lsn: BIGINT}}
  primary_key: {key}
  options: {options}
trigger: {{available_now: true}}
checkpoint: "{folder}/checkpoints/{name}"
"""


def test_records_that_come_again_and_deletions_that_never_came(engine: PipelineEngine, tmp_path: Path) -> None:
    """A connector that lost its offsets sends its last changes again, without keys, then all rows that are left."""
    tables = {"keyed": ("[id]", "{bucket: 2, sequence.field: lsn}"), "appended": ("[]", "{}")}
    for name, (key, options) in tables.items():
        text = PIPELINE.format(name=name, folder=tmp_path, key=key, options=options)
        (tmp_path / f"{name}.yaml").write_text(text)
    (tmp_path / "input").mkdir()
    changes = [
        change("c", None, {"id": 1, "status": "new"}, lsn=1),
        change("c", None, {"id": 2, "status": "new"}, lsn=2),
        change("u", None, {"id": 1, "status": "paid"}, lsn=3),
    ]
    again = [*changes[1:], change("r", None, {"id": 1, "status": "paid"}, lsn=9)]  # row 2 was deleted unheard
    for number, records in enumerate((changes, again)):
        path = tmp_path / "input" / f"{number}.json"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        os.utime(path, (1000 + number, 1000 + number))
    Runner(engine, load_pipelines([tmp_path / f"{name}.yaml" for name in tables], {})).run()
    catalog = Catalog(str(tmp_path / "warehouse"))
    keyed = {(row["id"], row["status"]) for row in catalog.table("shop.keyed").scan().to_arrow().to_pylist()}
    assert keyed == {(1, "paid"), (2, "new")}
    appended = catalog.table("shop.appended").scan().to_arrow()
    assert sorted(zip(appended["id"].to_pylist(), appended["lsn"].to_pylist(), strict=True)) == [
        (1, 1), (1, 3), (1, 3), (1, 9), (2, 2), (2, 2),
    ]  # fmt: skip


def test_the_same_change_from_two_kafka_partitions_is_two_records() -> None:
    config = pipeline_of({"id": "BIGINT", "status": "STRING"})
    record = change("c", None, {"id": 1, "status": "new"})
    found = decoded(config, [Record(record, {"id": 1}, partition=0), Record(record, None, partition=1)])
    assert found.shown == ["+I(1, new)", "+I(1, new)"]
    assert [rows[0]["_kafka_partition"] for rows in found.rows] == [0, 1]
