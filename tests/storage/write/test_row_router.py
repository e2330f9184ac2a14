"""A router that assigns keys to buckets as they come, and remembers them: the interface carries its state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path

import numpy as np
import pytest

from freshet import Catalog
from freshet.storage.commit.committer import Committer
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import EMPTY_ROW
from freshet.storage.model.manifest import HASH_INDEX, IndexFileMeta
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.write.bucketing import RoutedRows, RowRouter
from freshet.storage.write.records import AcceptedRows
from freshet.storage.write.task_writer import TaskWriter
from tests.storage.write.tables import WrittenTable
from tests.storage.write.test_task_writer import rows

KEYS_PER_BUCKET = 3


class DynamicAssigner(RowRouter):
    """A router: a bucket takes three keys, then the next one begins. `committed` is its index on disk."""

    def __init__(self) -> None:
        self.committed: dict[int, int] = {}
        self._assigned: dict[int, int] = {}
        self._prepared: dict[int, int] = {}
        self.commits = 0

    def route(self, accepted: AcceptedRows, executor: Executor | None = None) -> Iterator[RoutedRows]:
        keys = accepted.rows.column("k").to_pylist()
        known = {**self.committed, **self._prepared, **self._assigned}
        for key in keys:
            if key not in known:
                known[key] = self._assigned[key] = len(known) // KEYS_PER_BUCKET
        buckets = np.array([known[key] for key in keys])
        for bucket in np.unique(buckets).tolist():
            positions = np.flatnonzero(buckets == bucket)
            kinds = None if accepted.kinds is None else accepted.kinds[positions]
            yield RoutedRows(EMPTY_ROW, bucket, -1, accepted.rows.take(positions), kinds)

    def total_buckets(self, partition: bytes) -> int:
        return -1

    def note(self, partition: bytes, total_buckets: int) -> None:
        raise AssertionError("buckets of no fixed number have no other number")

    def prepare_commit(self) -> Sequence[CommitMessage]:
        self.commits += 1
        self._prepared, self._assigned = {**self._prepared, **self._assigned}, {}
        return ()

    def rebase(self, snapshot: Snapshot | None) -> None:
        self.committed.update(self._prepared)
        self._prepared = {}

    def abort(self) -> None:
        self._assigned, self._prepared = {}, {}


def test_keys_stay_where_they_were_assigned(tmp_path: Path) -> None:
    table, router = WrittenTable(tmp_path), DynamicAssigner()
    writer = table.writer(router=router)
    for start in (0, 4, 2, 0):
        writer.write(rows(*[(key, f"from {start}") for key in range(start, start + 6)]))
        writer.rebase(table.commit(writer.prepare_commit()))
    assert router.commits == 4
    assert router.committed == {key: key // KEYS_PER_BUCKET for key in range(10)}
    assert {entry.total_buckets for entry in table.committed.at(table.snapshot).entries()} == {-1}
    found = {row["k"]: row["v"] for row in table.rows()}
    writers = {**dict.fromkeys(range(6), "from 0"), 6: "from 2", 7: "from 2", 8: "from 4", 9: "from 4"}
    assert found == writers
    assert len(table.rows()) == 10, "no key is in two buckets"


@pytest.mark.parametrize("ends", ["abort", "close"])
def test_what_was_not_committed_is_assigned_again(tmp_path: Path, ends: str) -> None:
    table, router = WrittenTable(tmp_path), DynamicAssigner()
    writer = table.writer(router=router)
    writer.write(rows((1, "a"), (2, "a")))
    writer.rebase(table.commit(writer.prepare_commit()))
    writer.write(rows(*[(key, "lost") for key in range(10, 14)]))
    getattr(writer, ends)()
    again = writer if ends == "abort" else table.writer(router=router)
    again.write(rows((7, "b")))
    again.rebase(table.commit(again.prepare_commit()))
    assert router.committed == {1: 0, 2: 0, 7: 0}


class IndexedAssigner(DynamicAssigner):
    """The same, with an index file of each bucket that got keys: its number of keys is what the test looks at."""

    def __init__(self, store: TableStore) -> None:
        super().__init__()
        self._store = store
        self._files: dict[int, IndexFileMeta] = {}

    def prepare_commit(self) -> Sequence[CommitMessage]:
        changed = sorted(set(self._assigned.values()))
        super().prepare_commit()
        return [self._index_of(bucket) for bucket in changed]

    def _index_of(self, bucket: int) -> CommitMessage:
        keys = [key for key, of in {**self.committed, **self._prepared}.items() if of == bucket]
        name = f"index-{self._store.env.new_uuid()}-0"
        self._store.env.file_io.create_exclusive(self._store.paths.index_file(name), bytes(4 * len(keys)))
        old = self._files.get(bucket)
        new = self._files[bucket] = IndexFileMeta(HASH_INDEX, name, 4 * len(keys), len(keys))
        gone = () if old is None else (old,)
        return CommitMessage(EMPTY_ROW, bucket, -1, new_index_files=(new,), deleted_index_files=gone)


def test_an_assigner_commits_its_index_with_the_rows(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", schema={"k": "BIGINT NOT NULL", "v": "STRING"}, primary_keys=["k"], options={"bucket": "1"}
    )
    store = table.store
    writer = TaskWriter(store, base_snapshot=store.snapshots.latest(), router=IndexedAssigner(store))
    for identifier, keys in enumerate([range(4), range(2, 8)]):
        writer.write(rows(*[(key, "v") for key in keys]))
        result = Committer(store, "w").commit(identifier, writer.prepare_commit(identifier))
        writer.rebase(result.snapshots[-1])
    entries = store.manifests.read_index_manifest(result.snapshots[-1].index_manifest)
    assert sorted((entry.bucket, entry.file.row_count) for entry in entries) == [(0, 3), (1, 3), (2, 2)]
    assert {(entry.bucket, entry.total_buckets) for entry in table.files()} == {(0, -1), (1, -1), (2, -1)}
