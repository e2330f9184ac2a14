"""Tasks of a micro-batch, without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from freshet.pipeline.batch.bucket_task import BucketTask
from freshet.storage.catalog import Catalog


def test_a_base_snapshot_that_expired_before_the_task_began_is_replaced_by_the_latest(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", schema={"k": "BIGINT"}, primary_keys=["k"], options={"bucket": "1"}
    )
    with table.writer("other") as writer:
        for number in range(3):
            writer.write(pa.table({"k": [number]}))
            writer.commit(number)
    pinned = table.snapshots()[0].id
    task = BucketTask(table.location, table.schema.id, (), pinned, pipeline="p", micro_batch_id=0)
    before = task._base_snapshot(table.store)
    assert before is not None
    assert before.id == pinned
    assert table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0).snapshot_ids
    fresh = Catalog(str(tmp_path)).table("db.t")
    after = task._base_snapshot(fresh.store)
    assert after is not None
    assert after.id == table.snapshots()[-1].id > pinned
