"""Tasks that write files and a driver that commits them, in one process."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.codec.bucket_function import bucket_ids
from freshet.storage.table import Table
from freshet.storage.table_engine import CommitMessage, decode_commit_messages, encode_commit_messages

COLUMNS = {"day": "INT", "k": "BIGINT", "v": "STRING"}
ROWS = [(1, 1, "a"), (2, 2, "b"), (1, 3, "c"), (1, 1, "d")]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Catalog(str(tmp_path)).create_table(
        "db.t", schema=COLUMNS, primary_keys=["day", "k"], partition_keys=["day"], options={"bucket": "2"}
    )


def _written(table: Table, base_snapshot_id: int | None = None) -> list[CommitMessage]:
    rows = pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in ROWS], schema=table.arrow_schema)
    buckets = bucket_ids([rows["k"]], table.schema.types_of(("k",)), 2)
    writer = table.engine.task_writer(base_snapshot_id=base_snapshot_id)
    try:
        assert writer.write_routed(rows, buckets, bucket_count=2) == len(ROWS)
        writer.rebase(table.latest_snapshot())
        return writer.prepare_commit(7)
    finally:
        writer.close()


def _data_files(table: Table) -> set[str]:
    return {path.name for path in Path(table.location).rglob("data-*")}


def _commit(table: Table, *rows: tuple[int, int, str]) -> None:
    with table.writer("other") as writer:
        writer.write([dict(zip(COLUMNS, row, strict=True)) for row in rows])
        writer.commit()


def test_what_a_task_writes_the_driver_commits_once(table: Table) -> None:
    sent = encode_commit_messages(_written(table))
    assert table.latest_snapshot() is None
    committer = table.engine.committer("tasks", "query")
    assert not committer.commit(7, decode_commit_messages(sent)).already_committed
    assert committer.commit(7, decode_commit_messages(sent)).already_committed
    found = table.scan().to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [(1, 1, "d"), (1, 3, "c"), (2, 2, "b")]


def test_rows_are_later_than_what_was_committed_while_the_task_ran(table: Table) -> None:
    _commit(table, (1, 1, "before"))
    base = table.snapshots()[-1].id
    writer = table.engine.task_writer(base_snapshot_id=base)
    writer.write(pa.table({"day": pa.array([1], pa.int32()), "k": [1], "v": ["ours"]}))
    _commit(table, (1, 1, "theirs"))
    writer.rebase(table.latest_snapshot())
    table.engine.committer("tasks").commit(1, writer.prepare_commit(1))
    writer.close()
    assert table.scan().to_arrow()["v"].to_pylist() == ["ours"]


def test_discarded_messages_leave_no_files(table: Table) -> None:
    _commit(table, (1, 1, "kept"))
    kept = _data_files(table)
    messages = _written(table, table.snapshots()[-1].id)
    assert _data_files(table) > kept
    table.engine.discard(messages)
    assert _data_files(table) == kept


def test_a_base_snapshot_that_expired_before_the_task_began_is_replaced_by_the_latest(table: Table) -> None:
    for value in "abc":
        _commit(table, (1, 1, value))
    pinned = table.snapshots()[0].id
    assert table.engine.task_writer(base_snapshot_id=None).base_snapshot_id is None
    assert table.engine.task_writer(base_snapshot_id=pinned).base_snapshot_id == pinned
    assert table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0).snapshot_ids
    fresh = Table.open(table.location)
    assert fresh.engine.task_writer(base_snapshot_id=pinned).base_snapshot_id == table.snapshots()[-1].id > pinned
