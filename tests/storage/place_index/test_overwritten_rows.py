"""Partitions that are dropped, and filled again: the index knows nothing of the keys that were there."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import OutdatedAssignmentError
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.table import Table
from tests.storage.place_index.test_broken_indexes import count_builds
from tests.storage.write.test_moving_rows import ENGINES, Oracle, Row, create, found, given_rows, opened, write


def drop(table: Table, partition: str, identifier: int) -> None:
    """Removes all rows of a partition, as an overwrite with nothing does."""
    gone: dict[BucketId, list[DataFileMeta]] = {}
    for entry in table.files():
        if table.store.partition_path(entry.partition) == f"p={partition}":
            gone.setdefault(entry.bucket_id, []).append(entry.file)
    messages = [CommitMessage(*bucket, -1, deleted_files=tuple(files)) for bucket, files in gone.items()]
    result = Committer(table.store, "dropper").commit(identifier, messages)
    assert result.snapshots[-1].commit_kind is CommitKind.OVERWRITE


@pytest.mark.few(1)
@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "aggregation"])
def test_a_partition_is_dropped_and_filled_again(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, oracle = create(tmp_path, **ENGINES[engine]), Oracle(engine)
    builds = count_builds(monkeypatch)

    def put(writer: object, *rows: Row) -> None:
        writer.write(given_rows(list(rows)))  # type: ignore[attr-defined]
        writer.commit()  # type: ignore[attr-defined]
        oracle.take(list(rows))
        assert found(table) == oracle.rows

    with table.writer("w") as writer:
        put(writer, *((key, "ab"[key % 2], key, "+I") for key in range(20)))
        for turn in range(3):
            drop(opened(tmp_path), "ab"[turn % 2], turn)
            oracle.rows = {key: row for key, row in oracle.rows.items() if row[0] != "ab"[turn % 2]}
            assert found(table) == oracle.rows
            builds.clear()
            put(writer, *((key, "bcd"[turn], 100 + key, "+I") for key in range(0, 20, 3)))
            assert len(builds) == 1, "what an overwrite has removed is not in its files"
            put(writer, *((key, "ab"[turn % 2], turn, "+I") for key in range(turn, 30, 2)))
            assert len(builds) == 1
    assert not table.check().damage


def test_rows_that_were_placed_before_a_partition_was_dropped_are_placed_again(tmp_path: Path) -> None:
    """The delete in the dropped partition, or a sum that stays there, would be wrong."""
    table = create(tmp_path, **ENGINES["aggregation"])
    write(table, (1, "a", 1, "+I"), (2, "b", 2, "+I"))
    with table.writer("mine") as writer:
        writer.write(given_rows([(1, "c", 10, "+I"), (2, "c", 20, "+I")]))
        drop(opened(tmp_path), "a", 0)
        with pytest.raises(OutdatedAssignmentError):
            writer.commit()
        writer.commit()
    assert found(table) == {1: ("c", 10), 2: ("b", 22)}
