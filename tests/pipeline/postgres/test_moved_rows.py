"""Rows that get other keys while a large batch goes between workers: values that a change did not carry stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet import Catalog
from freshet.pipeline.local.workers import WorkerPool
from freshet.pipeline.running.local_pipeline import LocalPipelines
from freshet.pipeline.running.runner import Runner
from tests.kit.postgres_source import PostgresSource
from tests.pipeline.postgres.streamed import ONE, SYNC, Streamed
from tests.pipeline.postgres.test_copy_beside_changes import between_chunks, small_chunks

__all__ = ["small_chunks"]

LARGE = "(SELECT string_agg(md5(i::text || k::text), '') FROM generate_series(1, 100) AS k)"
ROWS = f"INSERT INTO d SELECT i, i, {LARGE} FROM generate_series(1, 100) AS i"
OTHERS = "INSERT INTO others SELECT i FROM generate_series((SELECT count(*) FROM others) + 1, {}) AS i"
MOVED = ["UPDATE d SET n = n + 1", OTHERS.format(25_000), "UPDATE d SET id = id + 1000"]
MOVED_ON = ["UPDATE d SET id = id + 1000", OTHERS.format(25_000), "UPDATE d SET id = id + 5000"]
COLUMNS = "{id: BIGINT, n: INT, big: STRING}"
OTHERS_WAIT = """[{from: "[^.]*.public.d", to: db.t},
    {from: "[^.]*.public.others", to: db.others, options: {bucket: "-2"}}]"""
TABLES = {
    "buckets": (SYNC, {"options": 'bucket: "4"', "rules": '[{from: "[^.]*.public.d", to: db.t}]'}),
    "beside a table whose rows wait": (SYNC, {"options": 'bucket: "4"', "rules": OTHERS_WAIT}),
    "assigners": (ONE, {"columns": COLUMNS, "tables": "[public.d]", "options": 'dynamic-bucket.target-row-num: "20"'}),
}


def _source(postgres: PostgresSource) -> None:
    postgres.run(
        "CREATE TABLE d (id bigint PRIMARY KEY, n int, big text)",
        "CREATE TABLE others (id bigint PRIMARY KEY)",
        "CREATE PUBLICATION p FOR TABLE d, others",
    )


def _is_same(folder: Path, postgres: PostgresSource) -> bool:
    found = Catalog(folder / "w").table("db.t").scan().to_arrow().sort_by("id").to_pylist()
    return [tuple(row.values()) for row in found] == postgres.rows("SELECT * FROM d ORDER BY id")


@pytest.mark.slow
@pytest.mark.parametrize("changes", [MOVED, MOVED_ON], ids=["changed, then moved", "moved twice"])
@pytest.mark.parametrize("table", TABLES)
def test_values_that_are_not_sent_go_with_the_row(
    table: str, changes: list[str], tmp_path: Path, postgres: PostgresSource
) -> None:
    _source(postgres)
    template, said = TABLES[table]
    streamed = Streamed(tmp_path, postgres, **said)
    with WorkerPool(2) as pool:
        for statements in ([], [ROWS], changes):
            postgres.run(*statements)
            Runner(LocalPipelines(pool), [streamed.config(template)]).run()
    assert _is_same(tmp_path, postgres)


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_the_same_beside_a_copy(
    table: str, tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are copied get keys of the rest, and the other way round; a row that is moved once stays."""
    _source(postgres)
    postgres.run(ROWS, OTHERS.format(300))

    def turn(count: int) -> None:
        if count in (3, 5):
            postgres.run(
                "UPDATE d SET n = n + 1 WHERE id % 2 = 0",
                f"DELETE FROM d WHERE id BETWEEN 1 AND 100 AND id % 7 = {count}",
                f"UPDATE d SET id = -id WHERE id BETWEEN 1 AND 100 AND id % 5 = {count - 3}",
                f"UPDATE d SET id = id + 1000 WHERE id BETWEEN 1 AND 100 AND id % 3 = {count - 3}",
            )

    between_chunks(monkeypatch, turn)
    template, said = TABLES[table]
    streamed = Streamed(tmp_path, postgres, snapshot="initial", **said)
    with WorkerPool(2) as pool:
        Runner(LocalPipelines(pool), [streamed.config(template)]).run()
    assert _is_same(tmp_path, postgres)
