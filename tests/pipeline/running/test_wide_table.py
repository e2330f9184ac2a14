"""From files through the runner into tables of the other merge engines: what is stored, and what a refusal says."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.running.engine_pipeline import PipelineEngine
from freshet.pipeline.running.progress import Progress
from freshet.pipeline.running.runner import Runner
from freshet.storage.catalog import Catalog
from tests.pipeline.records import TOAST, change

TWO_STREAMS = """\
name: wide
sources:
  - files: {{path: {root}/orders}}
    format: debezium-json
    select: {{id: id, status: status, doc: doc, lsn: _source.lsn}}
  - files: {{path: {root}/payments}}
    format: debezium-unwrapped
    select: {{id: id, paid: amount, paid_lsn: _source.lsn}}
table:
  warehouse: {root}/warehouse
  name: shop.wide
  columns: {{id: BIGINT, status: STRING, doc: STRING, lsn: BIGINT, paid: INT, paid_lsn: BIGINT}}
  primary_key: [id]
  options: {{bucket: 2, merge-engine: partial-update, fields.lsn.sequence-group: "status,doc",
            fields.paid_lsn.sequence-group: paid}}
trigger: {{available_now: true}}
checkpoint: {root}/checkpoint
"""

ONE_STREAM = """\
name: refusing
sources:
  - files: {{path: {root}/orders}}
    format: debezium-json
table:
  warehouse: {root}/warehouse
  name: shop.refusing
  columns: {{id: BIGINT, n: INT}}
  primary_key: [id]
  options: {{bucket: 1, {options}}}
trigger: {{available_now: true}}
checkpoint: {root}/checkpoint
"""


def _pipeline(root: Path, text: str, **parts: str) -> PipelineConfig:
    for folder in ("orders", "payments"):
        (root / folder).mkdir(exist_ok=True)
    path = root / "pipeline.yaml"
    path.write_text(text.format(root=root, **parts))
    return load_pipeline(path, {})


def _write(path: Path, *records: Any) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    os.utime(path, (1000 + len(list(path.parent.iterdir())), 1000))


def _run(engine: PipelineEngine, config: PipelineConfig) -> list[Progress]:
    progress: list[Progress] = []
    Runner(engine, [config], on_progress=progress.append).run()
    return progress


def _rows(config: PipelineConfig) -> dict[int, tuple[Any, ...]]:
    table = Catalog(config.table.warehouse).table(config.table.name).scan().to_arrow().to_pylist()
    return {row.pop("id"): tuple(row.values()) for row in table}


def test_two_streams_of_one_wide_table(engine: PipelineEngine, tmp_path: Path) -> None:
    config = _pipeline(tmp_path, TWO_STREAMS)
    long = "kept out of line " * 200
    _write(
        tmp_path / "orders" / "1.json",
        *(change("c", None, {"id": key, "status": "new", "doc": long}, lsn=key) for key in (1, 2, 3)),
        change("u", None, {"id": 1, "status": "paid", "doc": TOAST}, lsn=20),
        change("u", None, {"id": 1, "status": "late", "doc": TOAST}, lsn=10),
        change("u", None, {"id": 8, "status": "ghost", "doc": TOAST}, lsn=11),
        change("r", None, {"id": 9, "status": "when?", "doc": None}, lsn=None),
    )
    _write(
        tmp_path / "payments" / "1.json",
        {"id": 1, "amount": 5, "__source_lsn": 7},
        {"id": 4, "amount": 6, "__source_lsn": 7},
    )
    (first,) = _run(engine, config)
    assert _rows(config) == {
        1: ("paid", long, 20, 5, 7), 2: ("new", long, 2, None, None), 3: ("new", long, 3, None, None),
        4: (None, None, None, 6, 7),
    }  # fmt: skip
    result = first.report.result
    assert (result.applied, result.dead_count, result.restored) == (7, 2, 1)
    assert result.keys_merged == 1
    assert result.keys_in_python == 0

    # One stream deletes, the other goes on; the value that an update leaves out comes from the table.
    _write(
        tmp_path / "orders" / "2.json",
        change("d", {"id": 1, "status": "", "doc": None}, lsn=30),
        change("u", None, {"id": 2, "status": "sent", "doc": TOAST}, lsn=31),
        change("u", {"id": 3}, {"id": 5, "status": "moved", "doc": "short"}, lsn=32),
    )
    _write(tmp_path / "payments" / "2.json", {"id": 2, "amount": 8, "__source_lsn": 9}, {"id": 4, "__deleted": "true"})
    (second,) = _run(engine, config)
    assert _rows(config) == {
        1: (None, None, 30, 5, 7), 2: ("sent", long, 31, 8, 9), 3: (None, None, 32, None, None),
        4: (None, None, None, 6, 7), 5: ("moved", "short", 32, None, None),
    }  # fmt: skip
    assert (second.report.result.applied, second.report.result.dead_count) == (4, 1)
    dead = Catalog(config.table.warehouse).table("shop.wide_dead_letters").scan().to_arrow().to_pylist()
    assert sorted((row["column_name"], row["reason"].split(":")[0][:42]) for row in dead) == [
        ("doc", "a value that the change did not carry is n"),
        ("lsn", "NULL in the ordering of its sequence group"),
        ("paid_lsn", "NULL in the ordering of the sequence group"),
    ]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("merge-engine: partial-update", ("partial-update", "ignore-delete", "id=1")),
        ("merge-engine: aggregation, fields.n.aggregate-function: max", ("n", "max", "ignore-retract", "id=1")),
        ("merge-engine: first-row", ("first-row", "ignore-delete", "id=1")),
    ],
)
def test_a_deletion_that_the_table_cannot_take_stops_the_run_in_words(
    engine: PipelineEngine, tmp_path: Path, options: str, expected: tuple[str, ...]
) -> None:
    config = _pipeline(tmp_path, ONE_STREAM, options=options)
    _write(tmp_path / "orders" / "1.json", change("c", None, {"id": 1, "n": 5}), change("c", None, {"id": 2, "n": 5}))
    _run(engine, config)
    _write(tmp_path / "orders" / "2.json", change("c", None, {"id": 3, "n": 1}), change("d", {"id": 1, "n": 5}))
    with pytest.raises(PipelineFailedError) as caught:
        _run(engine, config)
    text = str(caught.value)
    assert text.startswith("pipeline 'refusing': ")
    for part in (*expected, "shop.db/refusing"):
        assert part in text, text
    assert len(text) < 700
    for noise in ("Traceback", "Py4J", "org.apache", "\tat "):
        assert noise not in text
    assert _rows(config) == {1: (5,), 2: (5,)}
    assert len(Catalog(config.table.warehouse).table("shop.refusing").snapshots()) in (1, 2)
    assert (caught.value.kind, caught.value.exit_code) == (ErrorKind.INVALID_REQUEST, 65)


SUMS = """\
name: sums
sources:
  - files: {{path: {root}/orders}}
    format: debezium-json
    select: {{customer: customer, total: total, orders: "1"}}
table:
  warehouse: {root}/warehouse
  name: shop.sums
  columns: {{customer: STRING, total: INT, orders: BIGINT}}
  primary_key: [customer]
  options: {{bucket: 2, merge-engine: aggregation, fields.total.aggregate-function: sum,
            fields.orders.aggregate-function: sum}}
trigger: {{available_now: true}}
checkpoint: {root}/checkpoint
"""


def test_sums_follow_updates_moves_and_deletions(engine: PipelineEngine, tmp_path: Path) -> None:
    config = _pipeline(tmp_path, SUMS)

    def order(number: int, customer: str, total: int) -> dict[str, Any]:
        return {"id": number, "customer": customer, "total": total}

    first = [order(1, "ada", 10), order(2, "ada", 5), order(3, "bob", 7)]
    _write(tmp_path / "orders" / "1.json", *(change("c", None, each) for each in first))
    _run(engine, config)
    _write(
        tmp_path / "orders" / "2.json",
        change("u", order(1, "ada", 10), order(1, "ada", 12)),
        change("u", order(2, "ada", 5), order(2, "bob", 6)),
        change("d", order(3, "bob", 7)),
        change("u", None, order(1, "ada", 99)),
    )
    (progress,) = _run(engine, config)
    table = Catalog(config.table.warehouse).table("shop.sums").scan().to_arrow().to_pylist()
    assert {row["customer"]: (row["total"], row["orders"]) for row in table} == {"ada": (12, 1), "bob": (6, 1)}
    assert (progress.report.result.applied, progress.report.result.dead_count) == (3, 1)
