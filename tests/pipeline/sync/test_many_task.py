"""A task that writes many tables: what its batch gives it is for all of them."""

from __future__ import annotations

from pathlib import Path

from freshet import Catalog
from freshet.pipeline.batch.batch_pin import BatchPin
from freshet.pipeline.batch.bucket_task import BucketTask
from freshet.pipeline.sync.many_task import _within
from freshet.storage.table_engine import CompactionLimit


def test_the_time_for_compactions_is_that_of_all_tables(tmp_path: Path) -> None:
    table = Catalog(tmp_path).create_table("db.t", schema={"id": "INT"}, options={"bucket": "-1"})
    busy = frozenset([(b"", 1)])
    pin = BatchPin(1, 0, None, None, CompactionLimit(200, busy))
    task = BucketTask(table.handle, "shop", ("id",), None, pin=pin)
    limits = [_within(task, spent_ms).pinned().limit for spent_ms in (0.0, 149.6, 500.0)]
    assert limits == [CompactionLimit(200, busy), CompactionLimit(50, busy), CompactionLimit(0, busy)]
    alone = BucketTask(table.handle, "shop", ("id",), None, pin=BatchPin(1, 0, None, None))
    assert _within(alone, 10.0) is alone
