"""Index files through the life of a table: commit, conflict, compaction, expiry, orphans, splits; log offsets too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from freshet.storage.cleaning.expire import expire_snapshots
from freshet.storage.cleaning.orphan_files import remove_orphan_files
from freshet.storage.commit.change_fit import find_index_conflicts, next_index
from freshet.storage.commit.changes import append_change, compact_change
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import ConflictError
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.commit_message import CommitMessage, decode_commit_messages, encode_commit_messages
from freshet.storage.model.data_file import EMPTY_ROW, DataFileMeta
from freshet.storage.model.manifest import (
    DELETION_VECTORS_INDEX,
    HASH_INDEX,
    DeletionVectorRange,
    EntryKind,
    IndexEntry,
    IndexFileMeta,
    ManifestEntry,
)
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.model.table_log import LogIncrement
from freshet.storage.scan.planner import plan_scan
from tests.kit.hand_made import make_table, message, new_file
from tests.kit.sim_env import SimDisk

LOCATION = "/warehouse/db.db/t"
DAY_MS = 24 * 3600 * 1000


def hashes(store: TableStore, name: str) -> IndexFileMeta:
    """A hash index file on disk."""
    store.env.file_io.create_exclusive(store.paths.index_file(name), b"4fe4bbf0")
    return IndexFileMeta(HASH_INDEX, name, 8, 2)


def vectors(name: str, *marked: str) -> IndexFileMeta:
    ranges = tuple(DeletionVectorRange(file, 1, 24, 2) for file in marked)
    return IndexFileMeta(DELETION_VECTORS_INDEX, name, 33, len(ranges), ranges)


def live_index(store: TableStore) -> list[str]:
    latest = store.snapshots.latest()
    assert latest is not None
    return sorted(entry.file.file_name for entry in store.manifests.read_index_manifest(latest.index_manifest))


def on_disk(store: TableStore) -> list[str]:
    return [status.name for status in store.env.file_io.entries(store.paths.index_folder)]


def test_index_files_are_committed_replaced_and_handed_on() -> None:
    disk = SimDisk()
    store = make_table(disk.boot())
    first, second = hashes(store, "index-a"), hashes(store, "index-b")
    with_index = replace(message(store, new=[new_file(store, "a")]), new_index_files=(first,))
    [made] = Committer(store, "u").commit(0, [with_index]).snapshots
    assert made.commit_kind is CommitKind.APPEND
    assert live_index(store) == ["index-a"]
    [later] = (
        Committer(store, "u").commit(1, [message(store, bucket=1, new=[new_file(store, "b", bucket=1)])]).snapshots
    )
    assert later.index_manifest == made.index_manifest, "what stays as it is is not written again"
    replaced = CommitMessage(EMPTY_ROW, 0, 2, new_index_files=(second,), deleted_index_files=(first,))
    store = open_table_store(disk.boot(), LOCATION)
    Committer(store, "u").commit(2, [replaced])
    assert live_index(store) == ["index-b"]
    split = next(split for split in plan_scan(store, store.snapshots.latest()) if split.bucket == 0)
    assert split.index_files == (), "hashes of keys say nothing of rows"
    Committer(store, "u").commit(3, [CommitMessage(EMPTY_ROW, 0, 2, deleted_index_files=(second,))])
    latest = store.snapshots.latest()
    assert latest is not None
    assert latest.index_manifest is None, "no index file lives"


def test_compaction_carries_its_own_index_files_and_is_dropped_on_conflict() -> None:
    store = make_table(SimDisk().boot())
    old, rival, late = (hashes(store, f"index-{name}") for name in ("old", "rival", "late"))
    file = new_file(store, "a")
    Committer(store, "u").commit(0, [replace(message(store, new=[file]), new_index_files=(old,))])
    swap = CommitMessage(EMPTY_ROW, 0, 2, compact_new_index_files=(rival,), compact_deleted_index_files=(old,))
    [snapshot] = Committer(store, "v").commit(0, [swap], force_empty=False).snapshots
    assert snapshot.commit_kind is CommitKind.COMPACT
    assert live_index(store) == ["index-rival"]
    after = new_file(store, "c", level=5)
    overtaken = replace(
        message(store, before=[file], after=[after]),
        compact_new_index_files=(late,),
        compact_deleted_index_files=(old,),
    )
    result = Committer(store, "u").commit(1, [overtaken])
    assert [conflict.reason for conflict in result.aborted_compactions] == [
        "index file index-old is not live any more",
        "HASH index file index-rival is live, index-late does not replace it",
    ]
    assert "index-late" not in on_disk(store), "the output of what was dropped is removed"


def test_append_that_others_overtook_is_refused_whole() -> None:
    disk = SimDisk()
    store = make_table(disk.boot())
    for number, name in enumerate(("index-a", "index-b")):
        added = CommitMessage(EMPTY_ROW, 0, 2, new_index_files=(hashes(store, name),))
        committer = Committer(store, f"u{number}")
        if number == 0:
            committer.commit(0, [added])
            continue
        with pytest.raises(ConflictError, match="index-a is live, index-b does not replace it"):
            committer.commit(0, [added])
    assert live_index(store) == ["index-a"]


def test_overwrite_that_empties_a_bucket_takes_its_index_files_along() -> None:
    store = make_table(SimDisk().boot())
    a, b = new_file(store, "a"), new_file(store, "b", bucket=1)
    messages = [
        replace(message(store, new=[a]), new_index_files=(hashes(store, "index-0"),)),
        replace(message(store, bucket=1, new=[b]), new_index_files=(hashes(store, "index-1"),)),
    ]
    Committer(store, "u").commit(0, messages)
    [snapshot] = Committer(store, "u").commit(1, [message(store, deleted=[a])]).snapshots
    assert snapshot.commit_kind is CommitKind.OVERWRITE
    assert live_index(store) == ["index-1"]


def test_expiry_and_orphan_removal_know_index_files() -> None:
    disk = SimDisk()
    store = make_table(disk.boot(), options={"write-only": "true"})
    old, new = hashes(store, "index-old"), hashes(store, "index-new")
    hashes(store, "index-orphan")
    Committer(store, "u").commit(0, [replace(message(store, new=[new_file(store, "a")]), new_index_files=(old,))])
    Committer(store, "u").commit(1, [CommitMessage(EMPTY_ROW, 0, 2, (), (), (), (), (), (), (), (new,), (old,))])
    disk.now_ms += 2 * DAY_MS
    removed = remove_orphan_files(store)
    assert [file.path.rpartition("/")[2] for file in removed.files] == ["index-orphan"]
    result = expire_snapshots(store, retain_max=1, time_retained_ms=0)
    assert result.snapshot_ids == (1,)
    assert on_disk(store) == ["index-new"]
    assert live_index(open_table_store(disk.boot(), LOCATION)) == ["index-new"]
    manifests = [status.name for status in store.env.file_io.entries(store.paths.manifest_folder)]
    assert len([name for name in manifests if name.startswith("index-manifest-")]) == 1


def test_index_increments_survive_the_way_to_the_driver() -> None:
    sent = CommitMessage(
        EMPTY_ROW,
        1,
        2,
        new_index_files=(vectors("index-a", "data-1.parquet"),),
        deleted_index_files=(IndexFileMeta(HASH_INDEX, "index-b", 8, 2, external_path="file:/x/index-b"),),
        compact_new_index_files=(vectors("index-c"),),
        compact_deleted_index_files=(vectors("index-d", "data-2.parquet", "data-3.parquet"),),
        log=LogIncrement(3, 1, 7, 2, "ab"),
        compact_log=LogIncrement(3, 1, 9, 1, "cd"),
    )
    assert decode_commit_messages(encode_commit_messages([sent])) == [sent]


# ------------------------------------------------------------------------------------------------ deletion vectors


def data_file(name: str, level: int = 5) -> DataFileMeta:
    store = make_table(SimDisk().boot())
    return new_file(store, name, level=level)


def live(*files: DataFileMeta) -> dict[tuple[bytes, int], dict[object, ManifestEntry]]:
    entries = [ManifestEntry(EntryKind.ADD, EMPTY_ROW, 0, 2, file) for file in files]
    return {(EMPTY_ROW, 0): {entry.identity: entry for entry in entries}}


def index(*files: IndexFileMeta) -> list[IndexEntry]:
    return [IndexEntry(EntryKind.ADD, EMPTY_ROW, 0, file) for file in files]


def reasons(message: CommitMessage, known: Sequence[IndexEntry], files: Sequence[DataFileMeta]) -> list[str]:
    change = compact_change([message]) if message.has_compaction else append_change([message])
    conflicts = find_index_conflicts(change, known, live(*files), has_buckets=True)  # type: ignore[arg-type]
    return [conflict.reason for conflict in conflicts]


def test_deletion_vectors_make_an_overwrite() -> None:
    assert append_change([CommitMessage(EMPTY_ROW, 0, 2, new_index_files=(vectors("i", "a"),))]).kind is (
        CommitKind.OVERWRITE
    )


def test_file_that_is_compacted_away_takes_its_vector_along() -> None:
    a, c = data_file("a"), data_file("c")
    known = index(vectors("index-1", a.file_name))
    compaction = CommitMessage(EMPTY_ROW, 0, 2, compact_before=(a,), compact_after=(c,))
    assert reasons(compaction, known, [a]) == ["index file index-1 marks rows of a.parquet, which the change deletes"]
    cleaned = replace(
        compaction,
        compact_new_index_files=(vectors("index-2"),),
        compact_deleted_index_files=(known[0].file,),
    )
    assert reasons(cleaned, known, [a]) == []
    following = next_index(compact_change([cleaned]), known, live(a))  # type: ignore[arg-type]
    assert [entry.file.file_name for entry in following] == ["index-2"]


def test_change_of_level_keeps_the_vector() -> None:
    a = data_file("a", level=1)
    upgrade = CommitMessage(EMPTY_ROW, 0, 2, compact_before=(a,), compact_after=(replace(a, level=5),))
    assert reasons(upgrade, index(vectors("index-1", a.file_name)), [a]) == []


def test_vector_of_a_file_that_is_gone_does_not_fit() -> None:
    a = data_file("a")
    marked = CommitMessage(EMPTY_ROW, 0, 2, new_index_files=(vectors("index-1", "gone.parquet", a.file_name),))
    assert reasons(marked, [], [a]) == ["index file index-1 marks rows of gone.parquet, which is not live any more"]


def test_append_tables_without_buckets_have_several_vector_files() -> None:
    a, b = data_file("a"), data_file("b")
    known = index(vectors("index-1", a.file_name))
    change = append_change([CommitMessage(EMPTY_ROW, 0, -1, new_index_files=(vectors("index-2", b.file_name),))])
    assert find_index_conflicts(change, known, live(a, b), has_buckets=False) == []  # type: ignore[arg-type]
    assert len(find_index_conflicts(change, known, live(a, b), has_buckets=True)) == 1  # type: ignore[arg-type]
