"""Commits of a number that is used up: which snapshot has it, and which numbers were passed over."""

from __future__ import annotations

from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot


def snapshot_of_commit(store: TableStore, commit_user: str, identifier: int) -> Snapshot | None:
    """The first snapshot of the commit of this number; None where it has expired, or the number was passed over."""
    found: Snapshot | None = None
    for snapshot in store.snapshots.newest_first(store.snapshots.latest()):
        if snapshot.commit_user != commit_user:
            continue
        if snapshot.commit_identifier == identifier:
            found = snapshot
        elif snapshot.commit_identifier < identifier:
            break
    return found


def was_passed_over(store: TableStore, commit_user: str, identifier: int) -> bool:
    """True where the snapshots show that a later number of the user was committed and this one never was: they reach
    back to a smaller one. False also where they do not reach back so far."""
    for snapshot in store.snapshots.newest_first(store.snapshots.latest()):
        if snapshot.commit_user == commit_user and snapshot.commit_identifier <= identifier:
            return snapshot.commit_identifier < identifier
    return False


def passed_over_text(store: TableStore, commit_user: str, identifier: int, last: int, row_count: int) -> str:
    """Why rows cannot be committed under a number that was passed over."""
    return (
        f"table {store.location}: user {commit_user!r} has committed {last} and never {identifier}: the numbers of a "
        f"user must grow. Nothing was committed; commit these rows ({row_count}) under a number above {last}, without "
        "a number, or by a writer of another commit user"
    )


def replay_text(store: TableStore, commit_user: str, identifier: int, row_count: int) -> str:
    """What became of the rows of a commit whose number is used up, and of the commit that has it."""
    found = snapshot_of_commit(store, commit_user, identifier)
    where = (
        "its snapshot has expired, or a later number was committed first"
        if found is None
        else f"snapshot {found.id} has it"
    )
    return (
        f"table {store.location}: commit {identifier} of user {commit_user!r} was made before ({where}), so this is "
        f"taken for a repetition: nothing was committed, the rows written for it ({row_count}) were discarded. "
        "Rows that are not in the table yet need a number that was not used, or commit() without one"
    )
