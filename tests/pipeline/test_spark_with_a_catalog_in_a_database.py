"""A Spark stream into a table of a catalog in PostgreSQL whose lock is on, while the database is away and back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from freshet.pipeline.spark.table_sink import table_sink
from freshet.storage.catalog import Catalog
from freshet.storage.table import Table
from tests.kit.jdbc_catalogs import LOCKED, rows
from tests.kit.postgres_server import PASSWORD, USER, PostgresServer, postgres_server

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with postgres_server() as found:
        yield found


def _await_snapshots(table: Table, query: StreamingQuery, count: int) -> None:
    end = time.monotonic() + 240
    while len(list(table.snapshots())) < count:
        assert query.exception() is None, query.exception()
        assert time.monotonic() < end, query.lastProgress
        time.sleep(0.1)


def test_a_stream_goes_on_when_the_database_is_back(
    spark: SparkSession, server: PostgresServer, tmp_path: Path
) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text(f"*:*:*:{USER}:{PASSWORD}\n")
    passwords.chmod(0o600)
    access = {"jdbc.user": USER, "jdbc.passfile": str(passwords)}
    options = {**LOCKED, **access, "uri": server.new_database(), "lock-check-max-sleep": "500 ms"}
    warehouse = str(tmp_path / "w")
    kept = {"bucket": "2", "write-only": "true"}
    catalog = Catalog(warehouse, options=options)
    table = catalog.create_table("db.t", schema={"value": "BIGINT"}, primary_keys=["value"], options=kept)
    sink = table_sink(warehouse, "db.t", commit_user="stream", catalog_options=options)
    source = spark.readStream.format("rate").option("rowsPerSecond", 50).load().select("value")
    stream = source.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "c"))
    query = stream.trigger(processingTime="200 milliseconds").start()
    try:
        _await_snapshots(table, query, 2)
        server.stop()
        time.sleep(3)  # batches come meanwhile, and wait
        made = len(list(table.snapshots()))
        server.start()
        _await_snapshots(table, query, made + 3)
        assert query.exception() is None
    finally:
        query.stop()
        sink.close()
    found = sorted(table.scan().to_arrow()["value"].to_pylist())
    assert found == list(range(len(found)))
    assert len(found) > 50
    assert rows(options, "paimon_distributed_locks") == []
