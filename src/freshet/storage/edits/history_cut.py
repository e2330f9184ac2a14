"""Rolls a table back in the form of the format: the snapshots after one are removed, and their ids are used again.

Steps, so that a crash leaves a table that can be read, and the call can be repeated:

1. tags of later snapshots go; then the LATEST hint names the snapshot that is to be the newest;
2. snapshots after it go, the newest first; then changelogs that outlived theirs.

A snapshot that had expired, and that a tag has kept, is written again from the tag before anything but tags goes: it
lies below a gap then, and is not of the history before the snapshots above the gap are gone. A hint of it would count
at once, so there is none while they go.

Files of the snapshots that are gone stay until orphan cleaning, schemas stay; consumers that were ahead go on at the
first new snapshot. Whoever has the table open may mix two histories: processes keep snapshots by id, a writer commits
upon the one that it saw. So the call is refused while streams of ours use the table. `rollback` has none of this.

Source: FORMAT.md §12; Apache Paimon's RollbackHelper.
"""

from __future__ import annotations

from typing import Final

from freshet.storage.codec.snapshot_json import encode_snapshot
from freshet.storage.commit.iceberg_lag import refuse_reused_ids
from freshet.storage.commit.table_view import look
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import CrashPoint
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot

IN_USE_MS: Final = 3_600_000
"""A stream that wrote or read within this time may go on."""


def cut_history(store: TableStore, target: Snapshot, *, force: bool = False, dry_run: bool = False) -> tuple[int, ...]:
    """Removes the snapshots after the target, and returns their ids; nothing where there are none. In a dry run they
    stay.

    Raises `InvalidRequestError` while a stream uses the table, unless `force` says that it was stopped, and
    `UnsupportedFeatureError` for a table with Iceberg metadata.
    """
    store.check_writable()
    refuse_reused_ids(store)
    if not force:
        _refuse_in_use(store)
    file_io, paths, snapshots = store.env.file_io, store.paths, store.snapshots
    newer = [each for each in snapshots.list_ids() if each > target.id]
    changelogs = [each for each in store.changelogs.list_ids() if each > target.id]
    tags = sorted((tag.id, name) for name, tag in snapshots.tags.all().items() if tag.id > target.id)
    is_there = snapshots.exists(target.id)
    if dry_run or (is_there and not (newer or changelogs or tags)):
        return tuple(newer)
    # First, since expiry takes a tag for one of the history that its id is in.
    _remove(store, [paths.tag(name) for _, name in reversed(tags)])
    if not is_there:
        file_io.overwrite(paths.snapshot(target.id), encode_snapshot(target))
    is_below_gap = bool(newer) and newer[0] != target.id + 1
    if is_below_gap:
        store.removal.delete(paths.latest_hint)
    else:
        snapshots.write_latest_hint(target.id)
    store.env.reach(CrashPoint.CUT_HINTED)
    _remove(store, [paths.snapshot(each) for each in reversed(newer)])
    for snapshot_id in newer:
        snapshots.forget(snapshot_id)
    store.env.reach(CrashPoint.CUT_SNAPSHOTS_REMOVED)
    if is_below_gap or not is_there:
        snapshots.write_earliest_hint(target.id)
        snapshots.write_latest_hint(target.id)
    if changelogs:
        left = [each for each in store.changelogs.list_ids() if each <= target.id]
        if left:
            store.changelogs.write_latest_hint(left[-1])
        else:
            store.changelogs.remove_hints()
        _remove(store, [paths.changelog(each) for each in reversed(changelogs)])
    for consumer_id, position in store.consumers.positions().items():
        if position > target.id + 1:  # else it would pass over the snapshots that are to have these ids
            store.consumers.reset(consumer_id, target.id + 1)
    return tuple(newer)


def _remove(store: TableStore, files: list[str]) -> None:
    gone = store.removal.delete_all(files, in_turn=True)
    if gone.failed_count:
        raise InvalidRequestError(
            f"table {store.name}: {files[gone.deleted_count]} cannot be removed ({gone.cause}); the "
            "snapshots before it are as they were. See to the rights of the folder, and call again",
            path=files[gone.deleted_count],
        )


def _refuse_in_use(store: TableStore) -> None:
    since_ms = store.env.now_ms() - IN_USE_MS
    users = {
        user
        for user, trace in look(store).last_commits.users.items()
        if trace.query_id is not None and trace.time_ms >= since_ms
    }
    if users:
        who = f"pipeline {min(users)!r} has written it"
    else:
        readers = store.consumers.active_since(since_ms)
        if not readers:
            return
        who = f"the consumer {readers[0]!r} has read it"
    raise InvalidRequestError(
        f"table {store.name}: {who} within the last hour, and would go on with ids that mean other snapshots then. "
        "Roll back without delete_newer, which needs nobody to be stopped; or stop every reader and writer of the "
        "table, and force it",
        table=store.name,
    )
