"""Tables as sources of the local engine: each change once and in its order, however the target's buckets are given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from freshet.pipeline.exceptions import PipelineError, PipelineFailedError
from tests.logstore.logged_tables import SCHEMA, fake_kafka, write
from tests.pipeline.local.followed import Followed

TARGETS = {
    "buckets": {"options": "bucket: 3"},
    "partitions": {"key": "primary_key: [p, k]\n  partition_by: [p]", "options": "bucket: 2"},
    "dynamic": {"options": "bucket: -1, dynamic-bucket.initial-buckets: 2"},
    "one assigner": {"options": "bucket: -1, dynamic-bucket.initial-buckets: 1"},
    "moving": {"key": "primary_key: [k]\n  partition_by: [p]", "options": "bucket: -1"},
    "waiting": {"options": "bucket: -2"},
}


@pytest.mark.few(2)
@pytest.mark.parametrize("target", TARGETS)
def test_each_change_arrives_once_and_in_its_order(tmp_path: Path, target: str) -> None:
    there = Followed(tmp_path, **TARGETS[target])
    there.put(*(("+I", k % 3, k, "a") for k in range(30)))
    there.run()
    there.put(*(("+U", k % 3, k, "b") for k in range(10)), ("-D", 1, 1, "a"))
    there.put(("+I", 1, 1, "c"), ("-D", 2, 2, "b"), ("+I", 0, 60, "d"))
    (progress,) = there.run()
    assert progress.report.result.applied > 0
    if target == "waiting":
        assert not there.rows()
        there.target.compact()
    assert there.rows() == there.rows("db.source")
    assert there.run() == [], "nothing is new"


def test_an_append_table_gets_each_row_once(tmp_path: Path) -> None:
    there = Followed(tmp_path, key="", options='bucket: "-1"', stream=", scan.mode: latest-full, upserts: true")
    there.catalog.drop_table("db.source")
    there.catalog.create_table("db.source", schema={"k": "BIGINT", "v": "STRING"}, options={"bucket": "-1"})
    there.said["stream"], there.said["columns"] = "", "{k: BIGINT, v: STRING}"
    for batch in range(2):
        with there.catalog.table("db.source").writer("w") as writer:
            writer.write({"k": [batch, batch], "v": ["x", "y"]})
            writer.commit()
        there.run()
    assert [row["k"] for row in there.rows()] == [0, 0, 1, 1]


def test_limits_cut_batches_and_a_consumer_moves_on(tmp_path: Path) -> None:
    there = Followed(tmp_path, stream=", maxRowsPerTrigger: 1, consumer-id: copy", options="bucket: 1")
    there.put(("+I", 0, 1, "a"))
    assert len(there.run()) == 1
    for k in range(2, 5):
        there.put(("+I", 0, k, "a"))
    assert [each.report.micro_batch_id for each in there.run()] == [1, 2, 3], "a snapshot each"
    assert there.rows() == there.rows("db.source")
    assert there.catalog.table("db.source").consumers() == {"copy": there.source.latest_snapshot().id + 1}
    offsets = there.offsets()
    assert [json.dumps(json.loads(text)) for text in offsets.values()] == list(offsets.values())
    assert [number for number, text in offsets.items() if "begin" in json.loads(text)] == [0]


def test_select_gives_names_and_computes_what_is_translated(tmp_path: Path) -> None:
    there = Followed(
        tmp_path,
        select='select: {id: K, text: "concat(v, \'-\', cast(p as string))", n: "k * 2", kind: _ROW_KIND}',
        columns="{id: BIGINT, text: STRING, n: BIGINT, kind: STRING, other: INT}",
        key="primary_key: [id]",
    )
    there.put(("+I", 1, 5, "a"), ("+I", 2, 6, "b"))
    there.run()
    assert [(row["id"], row["text"], row["n"], row["kind"], row["other"]) for row in there.rows()] == [
        (5, "a-1", 10, "+I", None), (6, "b-2", 12, "+I", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("select", "error"),
    [
        ("{id: kk}", "select.id: the table read has no column kk"),
        ('{id: "sha2(v, 224)"}', "select.id: only Spark computes"),
        ("{id: v}", "column 'id' of the rows that are read is string, the table's is BIGINT"),
    ],
)
def test_a_wrong_select_is_refused_by_its_entry(tmp_path: Path, select: str, error: str) -> None:
    there = Followed(tmp_path, select=f"select: {select}", columns="{id: BIGINT}", key="primary_key: [id]")
    with pytest.raises(PipelineError, match=error):
        there.run()


def test_a_value_that_cannot_be_computed_ends_the_batch_with_its_column(tmp_path: Path) -> None:
    there = Followed(
        tmp_path, select='select: {id: "cast(v as bigint)"}', columns="{id: BIGINT}", key="primary_key: [id]"
    )
    there.put(("+I", 1, 5, "7"))
    there.run()
    there.put(("+I", 1, 6, "x"))
    with pytest.raises(PipelineFailedError, match="select.id: 'cast.v as bigint.' cannot be computed for a row"):
        there.run()
    assert [row["id"] for row in there.rows()] == [7]


def test_two_tables_fill_one(tmp_path: Path) -> None:
    there = Followed(tmp_path)
    other: Any = there.catalog.create_table("db.other", schema={"k": "INT"}, options={"bucket": "-1"})
    with other.writer("w") as writer:
        writer.write({"k": [100, 101]})
        writer.commit()
    there.said["select"] = f'\n  - table: {{warehouse: "{tmp_path}/w", name: db.other}}\n    select: {{p: "9", k: k}}'
    there.put(("+I", 1, 5, "a"))
    there.run()
    assert [tuple(row.values()) for row in there.rows()] == [(1, 5, "a"), (9, 100, None), (9, 101, None)]


@pytest.mark.parametrize("isolation", ["committed", "speculative", "none"])
def test_a_table_with_a_log_is_followed_from_it(tmp_path: Path, isolation: str) -> None:
    columns, key = "{k: BIGINT, v: STRING}", "primary_key: [k]"
    stream = f", isolation: {isolation}, maxOffsetsPerTrigger: 2"
    with fake_kafka():
        there = Followed(tmp_path, stream=stream, columns=columns, key=key)
        there.catalog.drop_table("db.source")
        options = {"bucket": "1", "changelog-producer": "lookup", "log.system": "kafka", "kafka.topic": "t"}
        options["kafka.bootstrap.servers"] = "nowhere:9"
        source = there.catalog.create_table("db.source", schema=SCHEMA, primary_keys=["k"], options=options)
        write(source, "+I 1 a | +I 2 b | +I 3 c")
        there.run()
        write(source, "+I 1 d | -D 2 b | +I 4 e", "+I 1 f")
        there.run()
        assert there.rows() == there.rows("db.source") == [{"k": 1, "v": "f"}, {"k": 3, "v": "c"}, {"k": 4, "v": "e"}]
        texts = list(there.offsets().values())
        assert [json.dumps(json.loads(text)) for text in texts] == texts and len(texts) > 1
