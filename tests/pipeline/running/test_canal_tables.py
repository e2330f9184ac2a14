"""Messages of Canal with several rows, whose keys and partitions move, into tables of every kind of bucket.

The rows of a message go to several tasks; the record counts once, and a message with a bad row changes nothing.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.running.engine_pipeline import PipelineEngine
from freshet.pipeline.running.restarts import RestartRule
from freshet.pipeline.running.runner import Runner
from freshet.storage.catalog import Catalog
from tests.pipeline.binlog_records import canal

PIPELINE = """
name: canal
sources:
  - files: {path: "FOLDER/in", maxFilesPerTrigger: 1}
    format: canal-json
table:
  warehouse: "FOLDER/w"
  name: s.t
  columns: {id: BIGINT, p: INT, n: INT}
  primary_key: [id]
  TABLE
trigger: {available_now: true}
checkpoint: "FOLDER/c"
"""
TABLES = {
    "fixed": "options: {bucket: 3, changelog-producer: input}",
    "dynamic": "options: {dynamic-bucket.target-row-num: 20}",
    "moving": 'partition_by: [p]\n  options: {cross-partition-upsert.index-dir: "FOLDER/index"}',
    "sums": "options: {bucket: 3, merge-engine: aggregation, fields.n.aggregate-function: sum}",
}
Row = dict[str, int]


def _texts(row: Row) -> dict[str, str]:
    return {name: str(value) for name, value in row.items()}


def _history(rows: dict[int, Row], chance: random.Random) -> list[Any]:
    """Messages of up to five rows; what they leave is in `rows`."""
    messages = []
    for _ in range(150):
        kind = chance.choice(["INSERT", "UPDATE", "UPDATE", "DELETE"])
        data, olds = [], []
        for key in chance.sample(range(120), chance.randint(1, 5)):
            if (key in rows) == (kind == "INSERT"):
                continue
            old = rows.pop(key, {})
            new = old
            if kind != "DELETE":
                new = {"id": key, "p": chance.randint(0, 3), "n": chance.randint(0, 99)}
                to = chance.randrange(120)
                if kind == "UPDATE" and to not in rows:
                    new["id"] = to
                rows[new["id"]] = new
            data.append(_texts(new))
            olds.append(_texts({name: value for name, value in old.items() if new[name] != value}))
        if data:
            messages.append(canal(kind, data, olds if kind == "UPDATE" else None))
    return messages


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", TABLES)
def test_the_rows_of_messages_go_to_several_tasks(engine: PipelineEngine, tmp_path: Path, kind: str) -> None:
    chance = random.Random(20261125)
    rows: dict[int, Row] = {}
    (tmp_path / "in").mkdir()
    for number in range(2):
        messages = _history(rows, chance)
        messages.insert(7, canal("INSERT", [{"id": str(900 + key), "p": "1", "n": "1x"[key % 2]} for key in range(4)]))
        (tmp_path / "in" / f"{number}.json").write_text("".join(json.dumps(each) + "\n" for each in messages))
    path = tmp_path / "p.yaml"
    text = PIPELINE.replace("TABLE", TABLES[kind]).replace("FOLDER", str(tmp_path))
    path.write_text(text.replace("p: INT", "p: INT NOT NULL") if kind == "moving" else text)
    runner = Runner(
        engine, load_pipelines([path], {}), say=lambda text: None, on_state=lambda state: None, restarts=RestartRule(1)
    )
    runner.run()
    catalog = Catalog(str(tmp_path / "w"))
    found = {row["id"]: row for row in catalog.table("s.t").scan().to_arrow().to_pylist()}
    if kind == "sums":  # a deleted key stays with the sum of nothing
        assert {key: row["n"] for key, row in found.items() if key in rows} == {
            key: row["n"] for key, row in rows.items()
        }
        assert not any(row["n"] for key, row in found.items() if key not in rows)
    else:
        assert found == rows
    assert not any(key >= 900 for key in found)
    letters = catalog.table("s.t_dead_letters").scan().to_arrow()
    assert letters.num_rows == 2 and letters["column_name"].to_pylist() == ["n", "n"]
    assert not catalog.table("s.t").check().damage
