"""What a committer looks for in a table that only programs with conditional puts may write (`exclusive-put`).

A program without them copies its snapshot to the next id, maybe over one that was created in between. So two things
are looked for, each time that the table is looked at before a commit:

| found | then |
|---|---|
| under the id of the own last snapshot another one, and the own commit not in the table | `LostCommitError` |
| the same, and the own commit is there: it was repaired, or later commits were built on it | a warning |
| a commit without `freshet.commits` among the newest `RECENT_MAX` that are kept | refused |
| the same, and the user adopts the table | the next own commit says so (`freshet.adopted`) |

Commits before one that says so are not looked at again. All snapshots of Freshet carry `freshet.commits`, those of
compactions too; the newest `RECENT_MAX` are looked at when a committer is opened, and later those that are new.

It costs nothing where no other program has committed since: the own last snapshot is what is read anyway. Else it is
read besides, at the same time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from freshet.storage.catalogs.coordination import ADOPT, COORDINATION
from freshet.storage.commit.last_commits import COMMITS_PROPERTY
from freshet.storage.commit.lost_commits import find_lost_commits, lost_error, never_made_error
from freshet.storage.commit.table_view import TableView, look
from freshet.storage.exceptions import InvalidRequestError, LostCommitError, StorageError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot

ADOPTED_PROPERTY: Final = "freshet.adopted"
"""Key in the properties of the first commit after a table was adopted: the snapshot it was built on. Part of what we
write, do not change."""

RECENT_MAX: Final = 10
"""Snapshots that are looked at when a committer is opened."""

_LOG: Final = logging.getLogger(__name__)


class ForeignWriters:
    """Other programs that write a table, as one committer sees them; without `exclusive-put` it looks for nothing."""

    def __init__(self, store: TableStore, *, checks: bool = True) -> None:
        self._store = store
        self._rules = store.claims.rules
        self._checks = checks and self._rules.looks_for_others
        self._last: Snapshot | None = None
        """The last snapshot of this committer."""
        self._last_rows: Snapshot | None = None
        """The last one that is no compaction."""
        self._has_looked = False
        self._is_adopting = False

    def look(self) -> TableView:
        """The table as it is; raises `LostCommitError` and `InvalidRequestError` as the module says."""
        if not self._checks:
            return look(self._store)
        view, instead = self._look_at_last()
        if instead is not None:
            self._check_replaced(instead, view)
        self.check_others(view)
        return view

    def check_last(self) -> None:
        """Only looks whether the own last snapshot is there, with one request; a warning where that says nothing."""
        if not self._checks or self._last is None:
            return
        try:
            instead = self._store.snapshots.find(self._last.id)
            if instead is not None and instead.uuid != self._last.uuid:
                self._check_replaced(instead, look(self._store))
        except LostCommitError:
            raise
        except StorageError as error:
            _LOG.warning(
                "table %s: whether snapshot %d is still there was not found out: %s",
                self._store.location,
                self._last.id,
                error,
            )

    def properties(self, latest: Snapshot | None) -> Mapping[str, str]:
        """What the next snapshot says besides, upon the latest one."""
        return {ADOPTED_PROPERTY: str(latest.id)} if self._is_adopting and latest is not None else {}

    def committed(self, snapshot: Snapshot, *, has_rows: bool) -> None:
        """This snapshot was won."""
        self._last, self._is_adopting = snapshot, False
        if has_rows:
            self._last_rows = snapshot

    def _look_at_last(self) -> tuple[TableView, Snapshot | None]:
        """The table, and what has taken the place of the own last snapshot."""
        store, last = self._store, self._last
        if last is None:
            return look(store), None
        views: list[TableView] = []
        found: list[Snapshot | None] = []
        if store.snapshots.newest_seen_id == last.id:  # looking reads it again
            views.append(look(store))
            found.append(store.snapshots.known_or_find(last.id))
        else:
            store.env.together([lambda: views.append(look(store)), lambda: found.append(store.snapshots.find(last.id))])
        instead = found[0]  # None: expired, or rolled back on purpose
        return views[0], None if instead is None or instead.uuid == last.uuid else instead

    def _check_replaced(self, instead: Snapshot, view: TableView) -> None:
        rows = self._last_rows
        trace = None if rows is None else view.last_commits.users.get(rows.commit_user)
        if rows is not None and (trace is None or trace.identifier < rows.commit_identifier):
            raise lost_error(self._store, rows, instead)
        _LOG.warning(
            "table %s: snapshot %d was replaced by another program's (user %r, %s %d); no row of ours is missing. What "
            "that program writes may be lost, and what we write: stop it, or use a JDBC catalog with its lock",
            self._store.location,
            instead.id,
            instead.commit_user,
            instead.commit_kind,
            instead.commit_identifier,
        )
        self._last, self._has_looked = None, False

    def check_others(self, view: TableView) -> None:
        """Raises `InvalidRequestError` where another program has committed, as the module says."""
        if not self._checks:
            return
        others = view.unmarked if self._has_looked else recent_unmarked(self._store, view.latest)
        if others and not (self._is_adopting and self._has_looked):
            ids = {other.id: other for other in others}
            for lost in find_lost_commits(self._store):
                if lost.record.snapshot_id in ids:
                    raise never_made_error(lost, ids[lost.record.snapshot_id])
            if not self._rules.adopts:
                raise _refusal(self._store, others[0])
            self._is_adopting = True
        self._has_looked = True


def recent_unmarked(store: TableStore, latest: Snapshot | None) -> Sequence[Snapshot]:
    """The snapshots without our mark among the newest that are kept, back to the one that adopted the table."""
    if latest is None:
        return ()
    earlier = range(latest.id - 1, max(0, latest.id - RECENT_MAX), -1)
    found = store.env.together([partial(store.snapshots.known_or_find, number) for number in earlier])
    unmarked = []
    for snapshot in (latest, *found):
        properties = {} if snapshot is None else snapshot.properties or {}
        if snapshot is None or ADOPTED_PROPERTY in properties:
            break
        if COMMITS_PROPERTY not in properties:
            unmarked.append(snapshot)
    return unmarked


def _refusal(store: TableStore, other: Snapshot) -> InvalidRequestError:
    return InvalidRequestError(
        f"table {store.name}: snapshot {other.id} is of another program than Freshet ({other.commit_kind} "
        f"{other.commit_identifier} of user {other.commit_user!r}), and {COORDINATION}=exclusive-put is for programs "
        "that create snapshots with conditional puts: others can replace a commit of ours. Stop that program. When it "
        f"writes no more, take the table over, once: {ADOPT}=true among the options of the catalog (adopt=True, "
        "--adopt). If it is to go on, use a JDBC catalog with its lock for both",
        table=store.name,
        option=COORDINATION,
    )
