"""Rolls a table back: a new OVERWRITE snapshot has the content of an earlier one (`restoration`).

Ids go on, so that readers and consumers meet one history; what was committed in between stays in the snapshots before
it. The table forgets with the rows that those were committed: the last commits of all users are those of the earlier
snapshot again. A pipeline whose batches are gone is refused at its next one (`pipeline.identity.missing_batches`), and
a loader that sends the same numbers again commits them again.

The schema stays the newest one: rows of before have NULL in columns that were added since.

Source: FORMAT.md §12.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable

from freshet.storage.commit.committer import CommitResult, Committer
from freshet.storage.commit.last_commits import NO_COMMITS, LastCommits, last_commits_of
from freshet.storage.edits.edit_commit import commit_edit
from freshet.storage.edits.edit_result import EditResult, preview_of, result_of
from freshet.storage.edits.restoration import Restoration
from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.metadata.present_rows import check_restorable
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.moment import TimeGiven, time_ms
from freshet.storage.model.snapshot import ROLLED_BACK_PROPERTY, Snapshot
from freshet.storage.scan.read_snapshot import nothing_by

RollbackTarget = int | str | datetime.datetime
"""A snapshot id (0 is the table before its first snapshot), the name of a tag, or a moment with a time zone."""


def roll_back(
    store: TableStore,
    target: Snapshot | None,
    *,
    dry_run: bool = False,
    find: Callable[[], Snapshot | None] | None = None,
) -> EditResult:
    """Gives the table the content of the target; no snapshot where it has that already, and in a dry run. `find` is
    what found the target, where it may find another one when others have changed the table.

    Raises `NotFoundError` where the target expires meanwhile, `ConflictError` where there is another one.
    """
    if target is not None and target.schema_id != store.schema.id:
        then = store.schemas.schema(target.schema_id)
        check_restorable(store.name, then, store.schema, store.manifests, target)
    try:
        restoration = Restoration(store, target, find)
    except NotFoundError as error:
        raise _expired(store, target) from error
    if dry_run:
        return preview_of(restoration.preview(store, store.snapshots.latest()))
    properties = {ROLLED_BACK_PROPERTY: str(0 if target is None else target.id)}
    known = _commits_at(store, target)

    def commit(committer: Committer, number: int) -> CommitResult:
        return committer.change(number, restoration, properties=properties, known_commits=known)

    try:
        return result_of(store, commit_edit(store, commit, restoration.copies.discard))
    except NotFoundError as error:
        store.check_is_there()
        raise _expired(store, target) from error


def find_target(store: TableStore, to: RollbackTarget) -> Snapshot | None:
    """The snapshot to go back to; `NotFoundError` names what there is instead."""
    store.check_is_there()
    if isinstance(to, str):
        return _tagged(store, to)
    if isinstance(to, datetime.datetime):
        return _at(store, to)
    if isinstance(to, bool) or not isinstance(to, int) or to < 0:
        raise InvalidRequestError(
            f"to= is a snapshot id, the name of a tag or a datetime with a time zone, not {to!r}", table=store.name
        )
    if to == 0:
        return None
    try:
        return store.snapshots.fresh(to)
    except NotFoundError:
        for snapshot in store.snapshots.tags.all().values():
            if snapshot.id == to:
                return snapshot
        raise


def before_commit(store: TableStore, commit_user: str, identifier: int) -> Snapshot | None:
    """The snapshot before the first one of a user's commit with this number, or a later one: what undoes it.

    Raises `NotFoundError` where no snapshot there is of it, or the one before has expired.
    """
    store.check_is_there()
    found: Snapshot | None = None
    undone: tuple[Snapshot, Snapshot] | None = None
    undone_above, undone_by = 0, None
    is_there = False
    for snapshot in store.snapshots.newest_first(store.snapshots.latest()):
        is_of_user = snapshot.commit_user == commit_user
        is_it = is_of_user and snapshot.commit_identifier == identifier
        is_meant = is_of_user and snapshot.commit_identifier >= identifier
        if undone_by is not None and snapshot.id > undone_above:
            is_first = undone is None or (is_it and undone[0].commit_identifier != identifier)
            if is_meant and is_first:
                undone = snapshot, undone_by
            continue
        if snapshot.is_rollback:
            undone_above, undone_by = int((snapshot.properties or {})[ROLLED_BACK_PROPERTY]), snapshot
        if is_meant:
            found, is_there = snapshot, is_there or is_it
    if undone is not None and undone[0].commit_identifier == identifier and not is_there:
        raise _undone_already(store, commit_user, identifier, undone, found)
    if found is None:
        raise _not_there(store, commit_user, identifier, undone)
    if found.id == 1:
        return None
    try:
        target = store.snapshots.fresh(found.id - 1)
        known = _commits_at(store, target).users.get(commit_user)
        if known is not None and known.identifier >= identifier:
            raise NotFoundError(f"the snapshot of commit {identifier} has expired, commit {known.identifier} stays")
        return target
    except NotFoundError as error:
        raise _before_expired(store, commit_user, identifier, str(error)) from error


def _not_there(
    store: TableStore, commit_user: str, identifier: int, undone: tuple[Snapshot, Snapshot] | None
) -> NotFoundError:
    """The last commits outlive their snapshots: they tell a commit that is in the table, and has expired, from one that
    is undone or never was. `undone` is a snapshot of it or of a later one, and the rollback that undid that."""
    known = _commits_at(store, store.snapshots.latest()).users.get(commit_user)
    if known is not None and known.identifier >= identifier:
        return _before_expired(
            store,
            commit_user,
            identifier,
            f"and so have the snapshots of the commits of this user up to {known.identifier}",
        )
    if undone is not None:
        return _undone_already(store, commit_user, identifier, undone)
    users = sorted({snapshot.commit_user for snapshot in store.snapshots.all()})
    there = f"; the snapshots there are were committed by {', '.join(map(repr, users)) or 'nobody'}"
    reason = there if known is None else f": its last one is {known.identifier}"
    return NotFoundError(
        f"table {store.name}: no snapshot is of commit {identifier} of {commit_user!r}, or of a later one{reason}",
        table=store.name,
    )


def _undone_already(
    store: TableStore,
    commit_user: str,
    identifier: int,
    undone: tuple[Snapshot, Snapshot],
    later: Snapshot | None = None,
) -> NotFoundError:
    """`later` is the first of the commits of this user with a larger number, where there are any that are not undone:
    an undo that is called twice leaves them alone."""
    gone, by = undone
    stays = ""
    if later is not None and later.id != by.id:
        stays = f". Commit {later.commit_identifier} of this user came later and stays: undo it by its number"
    return NotFoundError(
        f"table {store.name}: commit {identifier} of {commit_user!r} is undone already: snapshot {gone.id}, of "
        f"commit {gone.commit_identifier}, was undone by snapshot {by.id}. Nothing was changed; to={by.id - 1} "
        f"brings back what the table had before that{stays}",
        table=store.name,
    )


def _before_expired(store: TableStore, commit_user: str, identifier: int, reason: str) -> NotFoundError:
    return NotFoundError(
        f"table {store.name}: commit {identifier} of {commit_user!r} cannot be undone, for what was before it has "
        f"expired ({reason}); go back to a snapshot that is there (to=), or to a tag",
        table=store.name,
    )


def _tagged(store: TableStore, name: str) -> Snapshot:
    try:
        return store.snapshots.tags.of(name)
    except NotFoundError as error:
        try:
            datetime.datetime.fromisoformat(name)
        except ValueError:
            raise error from None
        raise NotFoundError(
            f"{error}. If {name!r} is a moment, give a datetime with a time zone: "
            f"datetime.fromisoformat({name!r}).astimezone()",
            table=store.name,
        ) from error


def _at(store: TableStore, moment: TimeGiven) -> Snapshot:
    asked = time_ms("to", moment)
    found = store.snapshots.at_or_before(asked)
    if found is None:
        raise NotFoundError(f"table {store.name}: {nothing_by(store.snapshots, asked)}", table=store.name)
    return found


def _commits_at(store: TableStore, target: Snapshot | None) -> LastCommits:
    """The last commits as the target knew them."""
    return NO_COMMITS if target is None else last_commits_of(store.snapshots.newest_first(target))


def _expired(store: TableStore, target: Snapshot | None) -> NotFoundError:
    number = 0 if target is None else target.id
    return NotFoundError(
        f"table {store.name}: snapshot {number} expired before the table was rolled back to it; nothing was committed. "
        "Choose one that is there (freshet snapshots), and a tag for those that are to stay",
        table=store.name,
    )
