"""History that goes for good, where a rollback keeps it.

`cut_history` rolls a table back in the form of the format: the snapshots after one are removed, and their ids are used
again.

Steps, so that a crash leaves a table that can be read, and the call can be repeated:

1. tags of later snapshots go; then the LATEST hint names the snapshot that is to be the newest;
2. snapshots after it go, the newest first; then changelogs that outlived theirs.

A snapshot that had expired, and that a tag has kept, is written again from the tag before anything but tags goes: it
lies below a gap then, and is not of the history before the snapshots above the gap are gone. A hint of it would count
at once, so there is none while they go.

Files of the snapshots that are gone stay until orphan cleaning, schemas stay; consumers that were ahead go on at the
first new snapshot. Whoever has the table open may mix two histories: processes keep snapshots by id, a writer commits
upon the one that it saw. So the call is refused while streams of ours use the table. `rollback` has none of this.

`purge` empties a table: rows, history, and what keeps history.

Branches, tags and consumers go, all rows in an OVERWRITE snapshot, all snapshots before that one, changelogs that have
outlived theirs, and what is left as orphans. Each step is one that people call by itself, and is whole after a crash;
the next call does the rest. The table, its columns and options stay, and so does what commit users have committed:
their batches are not committed again.

Orphans younger than an age stay, since the files of a commit under way look like them. Those of branches that were
dropped are among them.

Source: FORMAT.md §12; Apache Paimon 2.0.0, RollbackHelper, and purge_files, which takes orphans of any age.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from freshet.storage.cleaning.expire import expire_snapshots
from freshet.storage.cleaning.orphan_files import remove_orphan_files
from freshet.storage.codec.metadata_json import encode_snapshot
from freshet.storage.commit.iceberg_lag import refuse_reused_ids
from freshet.storage.commit.table_view import look
from freshet.storage.edits.edit_commit import EditResult
from freshet.storage.edits.overwrite import replaced
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import CrashPoint
from freshet.storage.metadata.branch_store import Branches
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.shown import Facts, Shown
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.tags.changes import remove_tag

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


_WITHOUT_CHANGELOGS: Final = {
    "changelog.num-retained.min": "1",
    "changelog.num-retained.max": "1",
    "changelog.time-retained": "1 ms",
    "snapshot.time-retained": "1 h",  # not what expires: the age is given
}


@dataclass(frozen=True, slots=True, repr=False)
class Purge(Shown):
    """What went, or would (`is_dry_run`)."""

    branches: tuple[str, ...]
    tags: tuple[str, ...]
    consumers: tuple[str, ...]
    edit: EditResult
    """How the rows went; without a snapshot where there were none."""
    snapshot_ids: tuple[int, ...]
    orphan_count: int
    is_dry_run: bool = False

    def _shown(self) -> Facts:
        yield from (("only tried", self.is_dry_run), ("branches", ", ".join(self.branches)))
        yield from (("tags", ", ".join(self.tags)), ("consumers", ", ".join(self.consumers)))
        yield from (("snapshots", len(self.snapshot_ids)), ("orphan files", self.orphan_count))


def purge(store: TableStore, *, orphans_older_than_ms: int, dry_run: bool = False) -> Purge:
    """Takes everything away, or says what would go."""
    if store.paths.branch_name is not None:
        raise InvalidRequestError(
            f"branch {store.name} is not purged: its files are those of the table. Drop the branch, or purge the table",
            table=store.name,
        )
    branches = Branches(store)
    names, tags = sorted(store.snapshots.branches()), store.snapshots.tags.tags()
    consumers = sorted(store.consumers.positions())
    for name in names:
        branches.check_droppable(name)
    if dry_run:
        edit = replaced(store, lambda _: True, dry_run=True)
        ids = tuple(store.snapshots.list_ids())
        return Purge(tuple(names), tuple(tags), tuple(consumers), edit, ids, 0, is_dry_run=True)
    for name in names:
        branches.drop(name)
    for tag in tags.values():
        remove_tag(store, tag)
    for consumer in consumers:
        store.consumers.delete(consumer)
    edit = replaced(store, lambda _: True, dry_run=False)
    store.env.finish_later()
    bare = store.with_options(_WITHOUT_CHANGELOGS)
    expired = expire_snapshots(bare, retain_max=1, retain_min=1, time_retained_ms=0)
    orphans = remove_orphan_files(store, older_than_ms=orphans_older_than_ms)
    return Purge(tuple(names), tuple(tags), tuple(consumers), edit, expired.snapshot_ids, len(orphans.files))
