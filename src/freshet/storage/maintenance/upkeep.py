"""What follows a commit: compactions that show its rows, and in the background tags that are due, tags whose time is
over, then snapshots that may expire.

Tags come first: what they name does not expire. Not where the table is write-only. The tag that a batch program leaves
follows its last commit (`tags.automatic`).

Source: FORMAT.md §12.2.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

from freshet.storage.cleaning.expire import expire_later
from freshet.storage.commit.commit_result import CommitResult
from freshet.storage.commit.committer import Committer
from freshet.storage.compact.joint_changes import waiting_buckets
from freshet.storage.exceptions import StorageError
from freshet.storage.metadata.live_files import delta_entries, grouped_by_bucket
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.manifest import BucketId, EntryKind
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.choices import LookupCompact
from freshet.storage.options.core import CoreOptions

_LOG: Final = logging.getLogger(__name__)

TRIES_MAX: Final = 5
"""Compactions that may be dropped on conflict, one after the other."""


def upkeep_later(store: TableStore, latest: Snapshot) -> None:
    """Does it once the commit of the snapshot has returned. Failures are logged: the commit is there."""
    expire_later(store, latest, _look_after_tags)


def _look_after_tags(store: TableStore, latest: Snapshot) -> None:
    from freshet.storage.tags.automatic import create_due_tags

    create_due_tags(store, latest)  # where it fails, what it would have named must not expire
    try:
        from freshet.storage.tags.table_tags import expire_tags_now_and_then

        expire_tags_now_and_then(store)
    except StorageError as error:
        _LOG.warning("table %s: tags whose time is over were not removed: %s", store.location, error)


def show_hidden_rows(store: TableStore, committer: Committer, identifier: int, result: CommitResult) -> CommitResult:
    """The result of a commit once its rows show, or with the buckets in which they do not.

    Where level 0 is hidden (deletion vectors, first-row), rows show with the COMPACT snapshot of their commit. That is
    missing where another compaction was committed first, or the table was altered meanwhile. Then the committer
    compacts their buckets again before it returns, a few times; what is hidden after that shows with the next
    compaction, and the commit says so.
    """
    snapshots, waiting, cause = _compacted(store, committer, identifier, _hidden(store, result))
    snapshots = [*result.snapshots, *snapshots]
    return replace(result, snapshots=tuple(snapshots), hidden_buckets=tuple(sorted(waiting)), hidden_cause=cause)


def unseen_buckets(store: TableStore, result: CommitResult) -> Sequence[BucketId]:
    """The buckets whose new rows readers do not see yet, also where commits leave compaction to others."""
    if not store.options.hides_level_0 or _is_due(store.options):
        return result.hidden_buckets
    return sorted({each.bucket_id for each in result.messages if any(file.level == 0 for file in each.new_files)})


def show_rows_of(store: TableStore, committer: Committer, snapshot: Snapshot) -> None:
    """Shows the rows of a commit whose process died before it compacted them; the committer is one of the same user."""
    if not _is_due(store.options):
        return
    added: dict[BucketId, frozenset[str]] = {}
    for bucket, entries in grouped_by_bucket(delta_entries(store.manifests, snapshot)).items():
        names = {each.file.file_name for each in entries if each.kind is EntryKind.ADD and each.file.level == 0}
        if names:
            added[bucket] = frozenset(names)
    _compacted(store, committer, snapshot.commit_identifier, _still_hidden(store, added))


def _compacted(
    store: TableStore, committer: Committer, identifier: int, waiting: dict[BucketId, frozenset[str]]
) -> tuple[list[Snapshot], dict[BucketId, frozenset[str]], StorageError | None]:
    """The snapshots of compactions of these buckets, what is hidden still, and the error that ended them."""
    snapshots: list[Snapshot] = []
    cause: StorageError | None = None
    if waiting and not store.options.logs_changes:  # what a compaction changes is logged with the next commit
        try:
            for _ in range(TRIES_MAX):
                snapshots += _compact(store.at_latest_schema(), committer, identifier, waiting)
                waiting = _still_hidden(store, waiting)
                if not waiting:
                    break
        except StorageError as error:
            cause = error
            _LOG.warning("table %s: committed rows could not be compacted: %s", store.location, error)
    if waiting:
        _LOG.warning(
            "table %s: rows of commit %s are committed, but readers do not see those in %s buckets before the next "
            "compaction; write with fewer committers to one bucket, or leave compaction to one job (write-only=true)",
            store.location,
            identifier,
            len(waiting),
        )
    return snapshots, waiting, cause


def _hidden(store: TableStore, result: CommitResult) -> dict[BucketId, frozenset[str]]:
    """Names of files with hidden rows, where the commit should have compacted them; nothing is read where it has."""
    if not (_is_due(store.options) and result.snapshots):
        return {}
    lost = {conflict.bucket_id for conflict in result.aborted_compactions}
    suspects: dict[BucketId, frozenset[str]] = {}
    for message in result.messages:
        new = frozenset(file.file_name for file in message.new_files)
        compacted = {file.file_name for file in message.compact_before}
        if new and (message.bucket_id in lost or not new <= compacted):
            suspects[message.bucket_id] = new
    return _still_hidden(store, suspects)


def _is_due(options: CoreOptions) -> bool:
    """Whether commits compact what readers would not see."""
    return (
        options.hides_level_0
        and options.commits_empty_level_0
        and options.lookup_compact is not LookupCompact.GENTLE
        and not options.compacts_elsewhere
    )


def _still_hidden(store: TableStore, waiting: dict[BucketId, frozenset[str]]) -> dict[BucketId, frozenset[str]]:
    if not waiting:
        return {}
    live = store.at_latest(lambda latest: store.live.of_buckets(latest, waiting.keys())).by_bucket
    return {
        bucket: names
        for bucket, names in waiting.items()
        if any(entry.file.level == 0 and entry.file.file_name in names for entry in live.get(bucket, {}).values())
    }


def _compact(
    store: TableStore, committer: Committer, identifier: int, buckets: Collection[BucketId]
) -> Sequence[Snapshot]:
    from freshet.storage.write.task_writer import TaskWriter

    latest = store.snapshots.latest()
    chosen = {*buckets, *waiting_buckets(store, latest)}
    with closing(TaskWriter(store, base_snapshot=latest)) as writer:
        writer.compact_buckets(sorted(chosen), full=False)
        messages: list[CommitMessage] = writer.take_messages()
        return committer.commit(identifier, messages, force_empty=False).snapshots
