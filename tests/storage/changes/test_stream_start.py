"""Where a stream begins, for each scan mode: on hand-made snapshots, without rows."""

from __future__ import annotations

from typing import Any

import pytest

from freshet.storage.changes.history import ChangeHistory
from freshet.storage.changes.stream_request import StartRequest, StreamStart, newest_compacted
from freshet.storage.codec.metadata_json import encode_snapshot
from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from tests.kit.hand_made import make_table
from tests.kit.sim_env import SimDisk

APPEND, COMPACT = CommitKind.APPEND, CommitKind.COMPACT


def snapshot(snapshot_id: int, kind: CommitKind = APPEND, identifier: int = 0) -> Snapshot:
    return Snapshot(snapshot_id, 0, "base", "delta", "u", identifier, kind, snapshot_id * 100, 0, 0)


def store_with(*snapshots: Snapshot, kept: tuple[int, ...] = (), **options: str) -> TableStore:
    store = make_table(SimDisk().boot(), options={key.replace("_", "-"): text for key, text in options.items()})
    for each in snapshots:
        store.env.file_io.create_exclusive(store.paths.snapshot(each.id), encode_snapshot(each))
    for snapshot_id in kept:
        store.changelogs.keep(snapshot(snapshot_id))
    return store


def start(store: TableStore, mode: str | None = None, **asked: Any) -> StreamStart | None:
    request = StartRequest.of(mode, asked.get("from_snapshot"), asked.get("from_timestamp"))
    return request.start(store, ChangeHistory(store))


def test_each_mode() -> None:
    store = store_with(snapshot(3), snapshot(4, COMPACT), snapshot(5))
    state = store.snapshots.snapshot
    assert start(store) == start(store, "latest-full") == start(store, "full") == StreamStart(6, state(5))
    assert start(store, "latest") == StreamStart(6)
    assert start(store, "compacted-full") == StreamStart(5, state(4))
    assert start(store, "from-snapshot", from_snapshot=4) == start(store, from_snapshot=4) == StreamStart(4)
    assert start(store, from_snapshot=6) == StreamStart(6)
    assert start(store, "from-snapshot-full", from_snapshot=4) == StreamStart(5, state(4))
    assert start(store, "from-snapshot-full", from_snapshot=1) == StreamStart(4, state(3)), "rows of the oldest"
    assert start(store, "from-timestamp", from_timestamp=400) == start(store, from_timestamp=301) == StreamStart(4)
    assert start(store, from_timestamp=300) == StreamStart(3)
    assert start(store, from_timestamp=9999) == StreamStart(6)


def test_a_table_without_snapshots() -> None:
    store = store_with()
    assert start(store) is None
    assert start(store, "compacted-full") is None
    assert start(store, "from-snapshot-full", from_snapshot=3) is None
    assert start(store, "latest") == StreamStart(1)
    assert start(store, from_snapshot=1) == StreamStart(1)
    assert start(store, from_timestamp=7) == StreamStart(1)


def test_changes_that_are_kept_longer_are_part_of_the_history() -> None:
    store = store_with(snapshot(5), snapshot(6), kept=(1, 3, 4))
    history = ChangeHistory(store)
    assert history.earliest_id() == 3, "1 does not join on"
    assert history.left_text() == "changes of snapshots 3 to 6 are there (up to 4 as changelogs only)"
    assert start(store, from_snapshot=3) == StreamStart(3)
    assert start(store, from_timestamp=350) == StreamStart(4)
    with pytest.raises(NotFoundError, match="snapshot 2 have expired"):
        start(store, from_snapshot=2)
    state = start(store, "from-snapshot-full", from_snapshot=3)
    assert state is not None
    assert state.next_id == 6, "a changelog has no rows"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 6),
        ({"full-compaction.delta-commits": "5"}, 4),
        ({"full-compaction.delta-commits": "7"}, 2),
        ({"changelog-producer": "full-compaction"}, 6),
        ({"full-compaction.delta-commits": "50"}, 2),
    ],
)
def test_the_newest_compaction(options: dict[str, str], expected: int) -> None:
    store = store_with(
        snapshot(1),
        snapshot(2, COMPACT, BATCH_COMMIT_IDENTIFIER),
        snapshot(3, APPEND, 10),
        snapshot(4, COMPACT, 10),
        snapshot(5, APPEND, 11),
        snapshot(6, COMPACT, 11),
        snapshot(7, APPEND, 10),
        **options,
    )
    found = newest_compacted(store.snapshots, store.options)
    assert found is not None
    assert found.id == expected


def test_without_any_compaction_the_latest() -> None:
    store = store_with(snapshot(1), snapshot(2))
    assert newest_compacted(store.snapshots, store.options) == store.snapshots.snapshot(2)
    assert newest_compacted(store_with().snapshots, store.options) is None


@pytest.mark.parametrize(
    ("mode", "asked", "message"),
    [
        ("newest", {}, "scan_mode is one of latest-full, latest, compacted-full"),
        ("from-snapshot", {}, "needs from_snapshot"),
        ("from-snapshot-full", {}, "needs from_snapshot"),
        ("from-timestamp", {}, "needs from_timestamp"),
        ("latest", {"from_snapshot": 1}, "does not take from_snapshot"),
        ("latest-full", {"from_timestamp": 1}, "does not take from_timestamp"),
        (None, {"from_snapshot": 1, "from_timestamp": 1}, "does not take from_snapshot"),
        (None, {"from_snapshot": 0}, "from_snapshot is the id"),
    ],
)
def test_calls_that_make_no_sense(mode: str | None, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        StartRequest.of(mode, asked.get("from_snapshot"), asked.get("from_timestamp"))


def test_what_is_not_there_yet() -> None:
    store = store_with(snapshot(1))
    for mode in ("from-snapshot", "from-snapshot-full"):
        with pytest.raises(NotFoundError, match="snapshot 3 was not committed yet: changes of snapshots 1 to 1"):
            start(store, mode, from_snapshot=3)
