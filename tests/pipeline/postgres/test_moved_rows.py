"""Rows that get other keys while a large batch goes between workers: values that a change did not carry stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet import Catalog
from freshet.pipeline.local.workers import WorkerPool
from freshet.pipeline.running.local_pipeline import LocalPipelines
from freshet.pipeline.running.runner import Runner
from tests.kit.postgres_source import PostgresSource
from tests.pipeline.postgres.streamed import SYNC, Streamed

ROWS = (
    "INSERT INTO d SELECT i, i, (SELECT string_agg(md5(i::text || k::text), '') FROM generate_series(1, 100) AS k) "
    "FROM generate_series(1, 100) AS i"
)
OTHERS = "INSERT INTO others SELECT i FROM generate_series((SELECT count(*) FROM others) + 1, {}) AS i"
MOVED = ["UPDATE d SET n = n + 1", OTHERS.format(25_000), "UPDATE d SET id = id + 1000"]
MOVED_ON = ["UPDATE d SET id = id + 1000", OTHERS.format(25_000), "UPDATE d SET id = id + 5000"]


@pytest.mark.slow
@pytest.mark.parametrize("changes", [MOVED, MOVED_ON], ids=["changed, then moved", "moved twice"])
def test_values_that_are_not_sent_go_with_the_row(changes: list[str], tmp_path: Path, postgres: PostgresSource) -> None:
    postgres.run(
        "CREATE TABLE d (id bigint PRIMARY KEY, n int, big text)",
        "CREATE TABLE others (id bigint PRIMARY KEY)",
        "CREATE PUBLICATION p FOR TABLE d, others",
    )
    streamed = Streamed(tmp_path, postgres, options='bucket: "4"')
    with WorkerPool(2) as pool:
        for statements in ([], [ROWS], changes):
            postgres.run(*statements)
            Runner(LocalPipelines(pool), [streamed.config(SYNC)]).run()
    found = Catalog(tmp_path / "w").table("db.d").scan().to_arrow().sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in found] == postgres.rows("SELECT * FROM d ORDER BY id")
