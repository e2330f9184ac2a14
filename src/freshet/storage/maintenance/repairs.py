"""Repairs: hash indexes of dynamic buckets built again from the keys of the data files, lost commits made again.

A bucket is repaired where its index file is missing, damaged or one of several, where it has none, and where it lacks
keys that the bucket has. All keys of its files count, those of deleted rows too: an index only grows.

Two writers that did not see each other may have put a key into two buckets before. That is found here and reported; to
mend it the rows of the partition must be written again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from freshet._frozen import Frozen
from freshet.storage.codec.binary_row_arrays import row_hashes
from freshet.storage.commit.commit_result import CommitResult
from freshet.storage.commit.committer import Committer
from freshet.storage.commit.lost_commits import LostCommit
from freshet.storage.exceptions import CorruptDataError, InvalidRequestError, MissingFileError, UnsupportedFeatureError
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.maintenance.table_compaction import compaction_user
from freshet.storage.maintenance.upkeep import upkeep_later
from freshet.storage.metadata.hash_index_store import Int32Array, decode_hashes, distinct, encode_hashes
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import HASH_INDEX, BucketId, EntryKind, IndexFileMeta, ManifestEntry
from freshet.storage.model.shown import Facts, Shown
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.choices import DYNAMIC_BUCKET
from freshet.storage.write.renumbering import reassigned, renumbered

_LOG: Final = logging.getLogger(__name__)


class RepairedIndex(Frozen):
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
            for rows in DataFileRead(store, *bucket_id, file, keys).batches()
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


def repair_lost_commit(lost: LostCommit) -> CommitResult:
    """The result of committing again what another program has replaced (`commit.lost_commits`), with the same files,
    user and identifier; `already_committed` where the table has it, or a later one of its user.

    Raises `MissingFileError` where a file of it was removed, `ConflictError` where it does not fit on what is there.

    The files are those of the manifests of the lost commit. What the table has become since decides as for any commit:
    rows that others have numbered as high meanwhile are written again with larger numbers, what does not fit is
    refused. Because user and identifier are those of the lost commit, a second repair, or its writer that replays it,
    finds it committed.

    Where a third program has built upon it, the table has the rows. They are not added again; only the number is
    committed, and the changelog of the commit.
    """
    store, record = lost.store, lost.record
    _check_repairable(lost)

    def renumber(
        identifier: int, messages: Sequence[CommitMessage], base_id: int, headroom: int
    ) -> Sequence[CommitMessage]:
        base = store.snapshots.or_latest(base_id)
        return renumbered(store, messages, base, identifier=identifier, headroom=headroom, parallelism=2, sink=None)

    committer = Committer(
        store, record.user, record.query_id, renumber=renumber, after_commit=upkeep_later, checks_others=False
    )
    if committer.has_committed(record.identifier, digest=record.digest).is_committed:
        return CommitResult((), already_committed=True)
    messages = _messages(lost)
    upon = lost.built_upon
    if upon is None:
        _check_files(store, lost.files)
        if store.options.has_dynamic_buckets:
            messages = _assigned_anew(store, messages, record.identifier)
    else:
        messages = [_without_rows(message) for message in messages]
        _LOG.warning(
            "table %s: the rows of %s are in the table since snapshot %d (%s %d of user %r), which was built upon it "
            "before it was replaced; they are not added again",
            store.location,
            lost.text,
            upon.id,
            upon.commit_kind,
            upon.commit_identifier,
            upon.commit_user,
        )
    result = committer.commit(
        record.identifier,
        messages,
        digest=record.digest,
        properties=record.properties,
        watermark=record.watermark,
        carried=record.carried,
        base_id=max(0, record.snapshot_id - 1),
    )
    store.env.finish_later()
    return result


def _check_repairable(lost: LostCommit) -> None:
    store, record = lost.store, lost.record
    if record.is_logged:
        raise UnsupportedFeatureError(
            f"table {store.name}: commit {record.identifier} of user {record.user!r} was logged as well (log.system), "
            "and its place in the log is lost with its snapshot: it cannot be made again. Read its rows from the files "
            f"{', '.join(lost.files[:3])} … and write them with another commit",
            table=store.name,
            option="log.system",
        )
    if store.moves_rows:
        raise UnsupportedFeatureError(
            f"table {store.name}: the rows of the lost commit were written for the partitions in which their keys were "
            "then, and may have moved since: it cannot be made again. Read its rows from the files "
            f"{', '.join(lost.files[:3])} … and write them with another commit",
            table=store.name,
            option="bucket",
        )
    if any(entry.file.schema_id > store.schema.id for entry in lost.entries):
        raise InvalidRequestError(
            f"table {store.name}: the lost commit has rows of a later schema than this object; open the table again",
            table=store.name,
        )


def _check_files(store: TableStore, paths: Sequence[str]) -> None:
    there = store.env.together([partial(store.env.file_io.exists, path) for path in paths])
    gone = [path for path, is_there in zip(paths, there, strict=True) if not is_there]
    if gone:
        raise MissingFileError(
            f"table {store.name}: {len(gone)} of {len(paths)} files of the lost commit were removed, as orphans or by "
            "hand; nothing was committed. Restore them from a backup, or write the rows again from their source",
            path=gone[0],
        )


def _assigned_anew(store: TableStore, messages: Sequence[CommitMessage], identifier: int) -> list[CommitMessage]:
    """The rows in the dynamic buckets of today: the index of the lost commit is that of another history."""
    rows = [replace(each, new_index_files=(), deleted_index_files=()) for each in messages]
    return reassigned(store, rows, store.snapshots.latest(), identifier=identifier)


def _without_rows(message: CommitMessage) -> CommitMessage:
    """Its changelog alone."""
    return replace(
        message,
        new_files=(),
        deleted_files=(),
        new_index_files=(),
        deleted_index_files=(),
        numbered_at=None,
    )


def _messages(lost: LostCommit) -> list[CommitMessage]:
    """The messages that the commit was made from, without its compaction."""
    record = lost.record
    # What it adds last: an overwrite may have deleted files of another number of buckets.
    entries = sorted((*lost.entries, *lost.changelog_entries), key=lambda entry: entry.kind is EntryKind.ADD)
    places = {entry.bucket_id: entry.total_buckets for entry in entries}
    index = {entry.bucket_id for entry in record.index_entries}
    messages = []
    for bucket_id in sorted({*places, *index}):
        entries = [entry for entry in lost.entries if entry.bucket_id == bucket_id]
        changelog = [entry for entry in lost.changelog_entries if entry.bucket_id == bucket_id]
        indexed = [entry for entry in record.index_entries if entry.bucket_id == bucket_id]
        new = _files(entries, EntryKind.ADD)
        messages.append(
            CommitMessage(
                *bucket_id,
                places.get(bucket_id, lost.store.options.bucket),
                new_files=new,
                deleted_files=_files(entries, EntryKind.DELETE),
                changelog_files=_files(changelog, EntryKind.ADD),
                new_index_files=tuple(each.file for each in indexed if each.kind is EntryKind.ADD),
                deleted_index_files=tuple(each.file for each in indexed if each.kind is EntryKind.DELETE),
                numbered_at=record.snapshot_id - 1 if record.is_numbered and new else None,
            )
        )
    return messages


def _files(entries: Iterable[ManifestEntry], kind: EntryKind) -> tuple[DataFileMeta, ...]:
    return tuple(entry.file for entry in entries if entry.kind is kind)
