"""`Table.changelog`: ranges, kinds, projections, filters, expired and replaced history."""

from __future__ import annotations

import datetime
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.exceptions import InvalidRequestError, NotFoundError, RetryableError
from freshet.storage.filters.column import col
from freshet.storage.io.env import local_env
from freshet.storage.schema.change import AddColumn, RenameColumn
from freshet.storage.table import Table
from tests.storage.changes.change_tables import LoggedTable, read_changes, row

WRITE_ONLY = {"write-only": "true"}


@pytest.fixture
def logged(tmp_path: Path) -> LoggedTable:
    """Snapshot 1: keys 1 and 2; 2: key 1 changes; 3: nothing logged; 4: key 2 goes."""
    made = LoggedTable(tmp_path, options=WRITE_ONLY, env=local_env())
    made.log([row(1, "a"), row(2, "b")])
    made.log([row(1, "a", "-U"), row(1, "A", "+U")])
    made.place([row(9, "not logged")])
    made.log([row(2, "b", "-D")])
    return made


def test_all_changes_with_kinds_and_snapshots(logged: LoggedTable) -> None:
    log = logged.table.changelog()
    assert log.schema == pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("v", pa.string()),
            pa.field("_ROW_KIND", pa.string(), nullable=False),
            pa.field("_SNAPSHOT_ID", pa.int64(), nullable=False),
        ]
    )
    expected = [
        ("+I", 1, "a", 1), ("+I", 2, "b", 1), ("-U", 1, "a", 2), ("+U", 1, "A", 2), ("-D", 2, "b", 4),
    ]  # fmt: skip
    assert read_changes(log.to_arrow()) == expected
    assert read_changes(log.to_batches()) == expected
    assert read_changes(log.to_reader()) == expected
    assert log.to_arrow().schema == log.schema
    assert log.snapshot_ids == range(1, 5)


@pytest.mark.parametrize(
    ("asked", "snapshots"),
    [
        ({"from_snapshot": 2}, [2, 2, 4]),
        ({"to_snapshot": 2}, [1, 1, 2, 2]),
        ({"from_snapshot": 2, "to_snapshot": 3}, [2, 2]),
        ({"from_snapshot": 3, "to_snapshot": 3}, []),
        ({"from_snapshot": 5}, []),
        ({"limit": 3}, [1, 1, 2]),
        ({"limit": 0}, []),
    ],
)
def test_ranges(logged: LoggedTable, asked: dict[str, Any], snapshots: list[int]) -> None:
    assert [change[-1] for change in read_changes(logged.table.changelog(**asked).to_arrow())] == snapshots


def test_from_a_timestamp(logged: LoggedTable) -> None:
    for snapshot_id in (1, 2, 4):  # 3 and 4 may have come within one millisecond
        at = logged.store.snapshots.snapshot(snapshot_id).time_ms
        first = logged.table.changelog(from_timestamp=at).snapshot_ids.start
        assert logged.store.snapshots.snapshot(first).time_ms == at
        assert first == 1 or logged.store.snapshots.snapshot(first - 1).time_ms < at
        zoned = datetime.datetime.fromtimestamp(at / 1000, datetime.UTC)
        assert logged.table.changelog(from_timestamp=zoned).snapshot_ids.start == first
    assert logged.table.changelog(from_timestamp=0).snapshot_ids == range(1, 5)
    later = logged.store.snapshots.snapshot(4).time_ms + 1
    assert logged.table.changelog(from_timestamp=later).to_arrow().num_rows == 0


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"from_snapshot": 0}, InvalidRequestError, "from_snapshot is the id"),
        ({"from_snapshot": "1"}, InvalidRequestError, "from_snapshot is the id"),
        ({"to_snapshot": -1}, InvalidRequestError, "to_snapshot is the id"),
        ({"to_snapshot": True}, InvalidRequestError, "to_snapshot is the id"),
        ({"from_snapshot": 3, "to_snapshot": 2}, InvalidRequestError, "is after to_snapshot 2"),
        ({"from_snapshot": 1, "from_timestamp": 1}, InvalidRequestError, "exclude each other"),
        ({"from_timestamp": "now"}, InvalidRequestError, "epoch milliseconds"),
        ({"from_timestamp": datetime.datetime(2026, 1, 1)}, InvalidRequestError, "with a time zone"),
        ({"to_snapshot": 5}, NotFoundError, r"not committed yet: changes of snapshots 1 to 4 are there"),
        ({"from_snapshot": 6}, NotFoundError, r"not committed yet: changes of snapshots 1 to 4 are there"),
        ({"limit": -1}, InvalidRequestError, "limit"),
        ({"columns": ["x"]}, InvalidRequestError, "no column 'x'"),
        ({"columns": ["_ROW_KIND"]}, InvalidRequestError, "no column '_ROW_KIND'"),
        ({"filter": "x = 1"}, InvalidRequestError, "x"),
    ],
)
def test_bad_calls(logged: LoggedTable, asked: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        logged.table.changelog(**asked)


def test_columns_and_filters(logged: LoggedTable) -> None:
    table = logged.table
    assert read_changes(table.changelog(["v"], col("id") == 1).to_arrow()) == [
        ("+I", "a", 1),
        ("-U", "a", 2),
        ("+U", "A", 2),
    ]
    assert read_changes(table.changelog(["id"], "v = 'A'").to_arrow()) == [("+U", 1, 2)], "each row by itself"
    assert read_changes(table.changelog(["v", "id"], [("v", "==", "b")]).to_arrow()) == [
        ("+I", "b", 2, 1),
        ("-D", "b", 2, 4),
    ]


def test_partitions_buckets_and_files_are_pruned(tmp_path: Path) -> None:
    columns = pa.schema(
        [pa.field("p", pa.int32(), nullable=False), pa.field("id", pa.int64(), nullable=False), ("v", pa.string())]
    )
    logged = LoggedTable(tmp_path, columns, keys=["p", "id"], partitions=["p"], options={"bucket": "4", **WRITE_ONLY})
    logged.log([row(key, f"v{key}", p=key % 2) for key in range(40)])
    table = logged.table

    def planned(condition: str) -> int:
        return sum(len(split.files) for split in table.changelog(filter=condition).plan())

    assert planned("id >= 0") == 8
    assert planned("p = 1") == 4
    assert planned("p = 1 and id = 7") == 1
    assert planned("v = 'x'") == 0
    assert planned("v = 'v7'") <= 8
    found = read_changes(table.changelog(["id"], "p = 1 and v = 'v7'").to_arrow())
    assert found == [("+I", 7, 1)]


def test_appended_rows(tmp_path: Path) -> None:
    logged = LoggedTable(tmp_path, keys=(), options=WRITE_ONLY)
    logged.place([row(1, "a"), row(2, "b")])
    logged.place([row(1, "a")])
    expected = [("+I", 1, "a", 1), ("+I", 2, "b", 1), ("+I", 1, "a", 2)]
    assert read_changes(logged.table.changelog().to_arrow()) == expected
    assert read_changes(logged.table.changelog(filter="v = 'b'").to_arrow()) == expected[1:2]


def test_a_table_without_snapshots(tmp_path: Path) -> None:
    table = LoggedTable(tmp_path).table
    assert table.changelog().to_arrow().num_rows == 0
    assert table.changelog(from_snapshot=1).to_arrow().num_rows == 0
    with pytest.raises(NotFoundError, match="the table has no snapshots"):
        table.changelog(from_snapshot=2)


def test_upserts_are_no_changelog(tmp_path: Path) -> None:
    logged = LoggedTable(tmp_path, producer="none")
    with pytest.raises(InvalidRequestError, match=r"db.t .*changelog-producer=none.*changes_between"):
        logged.table.changelog()


def test_splits_and_the_changelog_itself_can_be_pickled(logged: LoggedTable) -> None:
    log = logged.table.changelog(["id"], "id < 9", from_snapshot=1, to_snapshot=2)
    logged.log([row(3, "c")])
    splits, other = pickle.loads(pickle.dumps((log.plan(), log)))
    assert [split.snapshot_id for split in splits] == [1, 2]
    assert [split.row_count_max for split in splits] == [2, 2]
    assert read_changes(batch for split in splits for batch in other.read_split(split)) == read_changes(log.to_arrow())
    assert read_changes(other.to_arrow()) == read_changes(log.to_arrow())


def test_changes_that_expired(logged: LoggedTable) -> None:
    early, late = logged.table.changelog(), logged.table.changelog(from_snapshot=4)
    logged.table.expire_snapshots(retain_max=2, retain_min=2, older_than_ms=0)
    left = "changes of snapshots 3 to 4 are there"
    with pytest.raises(NotFoundError, match=rf"snapshot 2 have expired: {left}.* Give from_snapshot=3"):
        logged.table.changelog(from_snapshot=2)
    with pytest.raises(NotFoundError, match=rf"may have expired: {left}.*Give from_snapshot=3"):
        logged.table.changelog(from_timestamp=0)
    with pytest.raises(RetryableError, match=rf"snapshot 1 of .* expired before .*{left}"):
        early.to_arrow()
    assert [change[-1] for change in read_changes(logged.table.changelog().to_arrow())] == [4]
    assert read_changes(late.to_arrow()) == [("-D", 2, "b", 4)]


def test_files_that_expire_while_they_are_read(logged: LoggedTable) -> None:
    log = logged.table.changelog()
    splits = log.plan()
    Table(logged.store).expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    with pytest.raises(RetryableError, match="expired before its changes were read"):
        list(log.read_split(splits[0]))


def test_a_rollback_below_a_reader(logged: LoggedTable) -> None:
    batches = logged.table.changelog().to_batches()
    assert [next(batches).num_rows, next(batches).num_rows] == [2, 2]
    for snapshot_id in (2, 3, 4):
        Path(logged.store.paths.snapshot(snapshot_id)).unlink()
    Path(logged.store.paths.latest_hint).write_text("1")
    with pytest.raises(RetryableError, match="was rolled back to a snapshot before 2"):
        next(batches)


def test_a_dropped_table(logged: LoggedTable) -> None:
    log = logged.table.changelog()
    logged.env.file_io.delete_prefix(logged.location)
    with pytest.raises(NotFoundError, match="was dropped"):
        log.to_arrow()


def test_old_files_are_read_in_the_columns_of_now(logged: LoggedTable) -> None:
    changed = logged.table.alter(RenameColumn("v", "name"), AddColumn("n", "INT"))
    assert read_changes(changed.changelog(to_snapshot=1).to_arrow()) == [
        ("+I", 1, "a", None, 1),
        ("+I", 2, "b", None, 1),
    ]
