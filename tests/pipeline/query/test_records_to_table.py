"""From files of Debezium records through the runner into a table: every outcome, counted and in input order."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.running.engine_pipeline import PipelineEngine
from freshet.pipeline.running.local_pipeline import LocalPipelines
from freshet.pipeline.running.progress import Progress
from freshet.pipeline.running.runner import Runner
from freshet.storage.catalog import Catalog
from tests.pipeline.records import TOAST, change

PIPELINE = """\
name: orders
sources:
  - files: {{path: {root}/in}}
    format: debezium-json
table:
  warehouse: {root}/warehouse
  name: shop.orders
  columns: {{id: BIGINT, status: STRING, total: "DECIMAL(14,4)", at: TIMESTAMP(6), opened: TIME(3), seen: TIMESTAMP(9),
             doc: STRING}}
  primary_key: [id]
  options: {{bucket: 2}}
trigger: {{available_now: true}}
checkpoint: {root}/checkpoint
"""

LATER = [
    change("u", None, {"id": 1, "status": "paid", "total": "AeJA", "at": 1700000000123456, "opened": 36000000,
                       "seen": 1700000000123456789, "doc": TOAST}),
    change("u", None, {"id": 99, "status": "ghost", "doc": TOAST}),
    change("d", {"id": 2}),
    change("u", {"id": 3, "status": "new"}, {"id": 4, "status": "moved", "extra": 1}),
]  # fmt: skip
EARLIER = [change("c", None, {"id": key, "status": "new", "doc": "kept text"}) for key in (1, 2, 3)]


@pytest.mark.always("crossing: files")
def test_files_become_a_table(engine: PipelineEngine, tmp_path: Path) -> None:
    config = _pipeline(tmp_path)
    # The second file comes first by name: the modification time decides.
    _write(tmp_path / "in" / "b.json", [json.dumps(each) for each in EARLIER], 1000)
    _write(
        tmp_path / "in" / "a.json", [*(json.dumps(each) for each in LATER), "{broken", json.dumps({"ts_ms": 1})], 2000
    )
    progress: list[Progress] = []
    Runner(engine, [config], on_progress=progress.append).run()
    catalog = Catalog(config.table.warehouse)
    table = catalog.table("shop.orders").scan().to_arrow().sort_by("id")
    rows = table.drop_columns(["seen"]).to_pylist()
    assert [(row["id"], row["status"], row["doc"]) for row in rows] == [(1, "paid", "kept text"), (4, "moved", None)]
    assert str(rows[0]["total"]) == "12.3456"
    assert rows[0]["opened"].isoformat() == "10:00:00"
    assert table.column("seen")[0].value == 1700000000123456789
    dead = sorted(
        (row["log_offset"], row["column_name"], row["reason"])
        for row in catalog.table("shop.orders_dead_letters").scan().to_arrow().to_pylist()
    )
    assert [column for _, column, _ in dead] == ["doc", None]
    assert dead[1][2] == "the value is not JSON of the form expected"
    result = progress[0].report.result
    assert (result.record_count, result.applied, result.dead_count, dict(result.skipped)) == (
        9 + 2, 6, 2, {"heartbeat": 1, "blank line": 2}
    )  # fmt: skip
    assert result.notes == {"unknown field extra": 1}


def test_a_truncate_record_fails_the_run_with_advice(engine: PipelineEngine, tmp_path: Path) -> None:
    config = _pipeline(tmp_path)
    _write(tmp_path / "in" / "a.json", [json.dumps(change("t"))], 1000)
    with pytest.raises(PipelineFailedError) as caught:
        Runner(engine, [config]).run()
    assert str(caught.value).startswith("pipeline 'orders': truncate record at ")
    assert "on_truncate: skip" in str(caught.value)
    assert caught.value.exit_code == 65


@pytest.mark.slow
def test_a_second_table_stops_the_run_in_whichever_batch_it_comes(engine: PipelineEngine, tmp_path: Path) -> None:
    config = _pipeline(tmp_path)
    _write(tmp_path / "in" / "a.json", [json.dumps(each) for each in EARLIER], 1000)
    Runner(engine, [config]).run()
    catalog = Catalog(config.table.warehouse)
    table = catalog.table("shop.orders")
    before = table.latest_snapshot()
    users = [change("c", None, {"id": key, "status": "a user"}, table="users") for key in (1, 2, 9)]
    _write(tmp_path / "in" / "b.json", [json.dumps(each) for each in users], 2000)
    with pytest.raises(PipelineFailedError) as caught:
        Runner(engine, [config]).run()
    text = str(caught.value)
    assert "two tables: shop.public.orders (until now) and shop.public.users (at " in text and "b.json" in text
    assert "only: {db: shop, schema: public, table: orders}" in text and "only: any" in text
    assert table.latest_snapshot() == before
    assert catalog.table("shop.orders_dead_letters").latest_snapshot() is None

    progress: list[Progress] = []
    Runner(engine, [_pipeline(tmp_path, "only: {table: orders}")], on_progress=progress.append).run()
    assert table.scan().to_arrow()["status"].to_pylist() == ["new"] * 3
    assert progress[0].report.result.skipped == {"another table: shop.public.users": 3, "blank line": 1}

    _write(tmp_path / "in" / "c.json", [json.dumps(each) for each in users], 3000)
    Runner(engine, [_pipeline(tmp_path, "only: any")]).run()
    assert sorted(table.scan().to_arrow()["status"].to_pylist()) == ["a user"] * 3 + ["new"]


def test_a_pipeline_whose_table_is_rescaled_goes_on(engine: PipelineEngine, tmp_path: Path) -> None:
    """On Spark it stops first: its plan routes to two buckets, as the file still says after the rescale."""
    config = _pipeline(tmp_path, files="options: {maxFilesPerTrigger: 1}")
    for number in range(3):
        records = [change("c", None, {"id": key, "status": f"{number}"}) for key in range(20)]
        _write(tmp_path / "in" / f"{number}.json", [json.dumps(each) for each in records], 1000 + number)

    def rescaled(_: Progress) -> None:
        Catalog(config.table.warehouse).table("shop.orders").rescale(5)

    runner = Runner(engine, [config], on_progress=rescaled)
    if isinstance(engine, LocalPipelines):  # plans each batch anew
        runner.run()
    else:
        with pytest.raises(PipelineFailedError, match="has 5 buckets, .* to 2.*Start the stream again") as caught:
            runner.run()
        assert caught.value.exit_code == 75
        Runner(engine, [config]).run()
    table = Catalog(config.table.warehouse).table("shop.orders")
    assert [tuple(row.values())[:2] for row in table.scan().to_arrow().sort_by("id").to_pylist()] == [
        (key, "2") for key in range(20)
    ]
    assert {entry.total_buckets for entry in table.files()} == {5} and not table.check().damage


def _pipeline(root: Path, more: str = "", *, files: str = ""):
    (root / "in").mkdir(exist_ok=True)
    path = root / "orders.yaml"
    text = PIPELINE.format(root=root).replace("/in}", f"/in, {files}}}" if files else "/in}")
    path.write_text(text.replace("debezium-json\n", f"debezium-json\n    {more}\n"))
    return load_pipeline(path, {})


def _write(path: Path, lines: list[str], modified_s: int) -> None:
    path.write_text("".join(line + "\n" for line in lines) + "\n")
    os.utime(path, (modified_s, modified_s))
