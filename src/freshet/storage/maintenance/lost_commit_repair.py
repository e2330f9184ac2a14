"""Commits again what another program has replaced (`commit.lost_commits`): the same files, user and identifier.

The files are those of the manifests of the lost commit. What the table has become since decides as for any commit: rows
that others have numbered as high meanwhile are written again with larger numbers, what does not fit is refused. Because
user and identifier are those of the lost commit, a second repair, or its writer that replays it, finds it committed.

Where a third program has built upon it, the table has the rows. They are not added again; only the number is committed,
and the changelog of the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from freshet.storage.commit.committer import CommitResult, Committer
from freshet.storage.commit.lost_commits import LostCommit
from freshet.storage.exceptions import InvalidRequestError, MissingFileError, UnsupportedFeatureError
from freshet.storage.maintenance.upkeep import upkeep_later
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import EntryKind, ManifestEntry
from freshet.storage.write.reassignment import reassigned
from freshet.storage.write.renumbering import renumbered

_LOG: Final = logging.getLogger(__name__)


def repair_lost_commit(lost: LostCommit) -> CommitResult:
    """Makes the commit again; `already_committed` where the table has it, or a later one of its user.

    Raises `MissingFileError` where a file of it was removed, `ConflictError` where it does not fit on what is there.
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
