"""A database into one table: with `select`, and several streams into one wide row."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet import Catalog
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.local.workers import WorkerPool
from freshet.pipeline.running.local_pipeline import LocalPipelines
from freshet.pipeline.running.runner import Runner
from tests.kit.postgres_source import PostgresSource

TEXT = """\
name: wide
run_on: local
sources:
  - postgres: {{dsn: "{dsn}", password: "env:{variable}", tables: [public.orders], slot: {slot}_o, publication: p}}
    select: {{id: id, status: upper(status), big: big, op: _op, lsn: _source.lsn}}
  - postgres: {{dsn: "{dsn}", password: "env:{variable}", tables: [public.notes], slot: {slot}_n, publication: p}}
    select: {{id: order_id, note: note}}
table:
  warehouse: "{folder}/w"
  name: db.wide
  columns: {{id: BIGINT, status: STRING, big: STRING, op: STRING, lsn: BIGINT, note: STRING}}
  primary_key: [id]
  options: {{bucket: "1", merge-engine: partial-update, partial-update.remove-record-on-delete: "true"}}
trigger: {{available_now: true}}
checkpoint: "{folder}/c"
"""


@pytest.mark.slow
def test_two_tables_are_one_wide_row(tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", postgres.password)
    postgres.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, status text, big text)",
        "CREATE TABLE notes (order_id bigint PRIMARY KEY, note text)",
        "INSERT INTO orders VALUES (1, 'new', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 500) i))",
        "INSERT INTO notes VALUES (1, 'a'), (2, 'b')",
        "CREATE PUBLICATION p FOR TABLE orders, notes",
    )
    path = tmp_path / "p.yaml"
    text = TEXT.format(dsn=postgres.dsn, variable="SHOP_PASSWORD", slot=postgres.database, folder=tmp_path)
    path.write_text(text)

    def run() -> None:
        Runner(LocalPipelines(WorkerPool(0)), [load_pipeline(path, {})]).run()

    run()
    postgres.run("UPDATE orders SET status = 'paid'", "UPDATE notes SET note = 'c' WHERE order_id = 1")
    run()
    rows = {row["id"]: row for row in Catalog(tmp_path / "w").table("db.wide").scan().to_arrow().to_pylist()}
    big = postgres.rows("SELECT big FROM orders")[0][0]
    assert {id_: (row["status"], row["big"], row["op"], row["note"]) for id_, row in rows.items()} == {
        1: ("PAID", big, "u", "c"),
        2: (None, None, None, "b"),
    }
    assert rows[1]["lsn"] > 0
