"""Builds hash indexes of dynamic buckets again, from the keys of the data files.

A bucket is repaired where its index file is missing, damaged or one of several, where it has none, and where it lacks
keys that the bucket has. All keys of its files count, those of deleted rows too: an index only grows.

Two writers that did not see each other may have put a key into two buckets before. That is found here and reported; to
mend it the rows of the partition must be written again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from freshet.storage.codec.binary_row_arrays import row_hashes
from freshet.storage.codec.hash_index import Int32Array, decode_hashes, distinct, encode_hashes
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import CorruptDataError, InvalidRequestError
from freshet.storage.files.data_file_reader import read_data_file
from freshet.storage.maintenance.table_compaction import compaction_user
from freshet.storage.maintenance.upkeep import upkeep_later
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import HASH_INDEX, BucketId, IndexFileMeta
from freshet.storage.model.shown import Facts, Shown
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.choices import DYNAMIC_BUCKET


@dataclass(frozen=True, slots=True)
class RepairedIndex:
    """The index of one bucket that was built again; `snapshot_id` is that of the commit."""

    partition: str
    bucket: int
    why: str
    key_count: int
    snapshot_id: int


@dataclass(frozen=True, slots=True, repr=False)
class HashIndexRepair(Shown):
    """What was done, and what cannot be mended so: how many keys of a partition are in more than one bucket."""

    repaired: tuple[RepairedIndex, ...]
    bucket_count: int
    keys_in_two_buckets: tuple[tuple[str, int], ...]

    def _shown(self) -> Facts:
        yield from (("buckets", self.bucket_count), ("built again", str(len(self.repaired))))
        yield ("keys in more than one bucket", sum(count for _, count in self.keys_in_two_buckets))


def repair_hash_indexes(store: TableStore, on_bucket: Callable[[int, int], None] | None) -> HashIndexRepair:
    """Looks at each bucket of the latest snapshot; `on_bucket` is called with how many of how many are done.

    Raises `ConflictError` where another writer has changed one of the indexes meanwhile; nothing was committed then.
    """
    if not store.options.has_dynamic_buckets:
        raise InvalidRequestError(
            f"table {store.name} has no dynamic buckets (bucket=-1), so it has no hash index", table=store.name
        )
    if store.moves_rows:
        raise InvalidRequestError(
            f"table {store.name} has no hash index: its rows move between partitions, and each writer builds the index "
            "of its keys by itself where it is missing or damaged (cross-partition-upsert.index-dir)",
            table=store.name,
        )
    store.check_writable()
    snapshot = store.snapshots.latest()
    indexes = _index_files(store, snapshot)
    live = {} if snapshot is None else store.live.at(snapshot).by_bucket
    messages: list[tuple[CommitMessage, str]] = []
    seen: dict[bytes, list[Int32Array]] = {}
    buckets = sorted(live.keys() | indexes.keys())
    for number, bucket_id in enumerate(buckets):
        files = [entry.file for entry in live.get(bucket_id, {}).values()]
        stored, known, why = _looked_at(store, bucket_id, files, indexes.get(bucket_id, ()))
        seen.setdefault(bucket_id[0], []).append(stored)
        if why is not None:
            new = store.hash_indexes.write(encode_hashes(np.union1d(stored, known)))
            gone = tuple(indexes.get(bucket_id, ()))
            message = CommitMessage(*bucket_id, DYNAMIC_BUCKET, new_index_files=(new,), deleted_index_files=gone)
            messages.append((message, why))
        if on_bucket is not None:
            on_bucket(number + 1, len(buckets))
    return HashIndexRepair(_committed(store, messages), len(buckets), _doubles(store, seen))


def _index_files(store: TableStore, snapshot: Snapshot | None) -> dict[BucketId, list[IndexFileMeta]]:
    found: dict[BucketId, list[IndexFileMeta]] = {}
    for entry in store.manifests.read_index_manifest(None if snapshot is None else snapshot.index_manifest):
        if entry.file.index_type == HASH_INDEX:
            found.setdefault(entry.bucket_id, []).append(entry.file)
    return found


def _looked_at(
    store: TableStore, bucket_id: BucketId, files: Sequence[DataFileMeta], index: Sequence[IndexFileMeta]
) -> tuple[Int32Array, Int32Array, str | None]:
    """Hashes of the bucket's rows and of its index, and what is wrong with that; None where nothing is."""
    stored, known = _stored_hashes(store, bucket_id, files), np.zeros(0, np.int32)
    damaged = []
    for file in index:
        try:
            known = np.union1d(known, decode_hashes(store.hash_indexes.read(file)))
        except CorruptDataError:
            damaged.append(file.file_name)
    if damaged:
        return stored, known, f"{', '.join(damaged)} is missing or damaged"
    if len(index) > 1:
        return stored, known, f"it has {len(index)} index files"
    if not index:
        return stored, known, "it has no index file" if len(stored) else None
    lacking = len(np.setdiff1d(stored, known, assume_unique=True))
    return stored, known, f"it lacks {lacking} of the keys" if lacking else None


def _stored_hashes(store: TableStore, bucket_id: BucketId, files: Sequence[DataFileMeta]) -> Int32Array:
    keys = store.schema.trimmed_primary_keys
    hashes = [np.zeros(0, np.int32)]
    for file in files:
        of_file = [
            row_hashes([rows.column(name) for name in keys], store.key_types)
            for rows in read_data_file(store, *bucket_id, file, keys)
        ]
        hashes.append(distinct(np.concatenate(of_file)) if of_file else hashes[0])
    return distinct(np.concatenate(hashes))


def _doubles(store: TableStore, seen: dict[bytes, list[Int32Array]]) -> tuple[tuple[str, int], ...]:
    found = []
    for partition, of_buckets in sorted(seen.items()):
        everything = np.concatenate(of_buckets)
        count = len(everything) - len(distinct(everything))
        if count:
            found.append((store.partition_path(partition), count))
    return tuple(found)


def _committed(store: TableStore, messages: Sequence[tuple[CommitMessage, str]]) -> tuple[RepairedIndex, ...]:
    if not messages:
        return ()
    committer = Committer(store, compaction_user(store), after_commit=upkeep_later)
    result = committer.commit(0, [message for message, _ in messages])
    committer.finish()
    return tuple(
        RepairedIndex(
            store.partition_path(message.partition),
            message.bucket,
            why,
            message.new_index_files[0].row_count,
            result.snapshots[-1].id,
        )
        for message, why in messages
    )
