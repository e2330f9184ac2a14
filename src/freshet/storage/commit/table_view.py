"""What one round of a commit sees of the table, read once: the latest snapshot, the commits it knows of, the schema.

A round decides by this view alone. The claim of the next snapshot shows whether the view is still true: if another
writer has taken the id, the round is lost and the next one reads the table again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.commit.last_commits import COMMITS_PROPERTY, FIRST_SNAPSHOT_ID, LastCommits, last_commits_of
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.table_log import LogProgress, log_of

VIEW_MS: Final = 10_000
"""After so long a view is taken to be outdated: others may have committed, and let expire what it shows."""


class TableView(Frozen):
    """The table at one moment; `latest` is None before the first snapshot, `schema_id` is that of the newest schema."""

    latest: Snapshot | None
    last_commits: LastCommits
    log: LogProgress | None
    schema_id: int
    seen_ms: int
    """When it was begun to be read."""
    unmarked: tuple[Snapshot, ...] = ()
    """Snapshots of other programs since our last one, newest first."""

    @property
    def latest_id(self) -> int:
        """Id of the latest snapshot, 0 for none."""
        return FIRST_SNAPSHOT_ID - 1 if self.latest is None else self.latest.id

    def after(self, snapshot: Snapshot, now_ms: int) -> TableView:
        """The table once this snapshot of ours has followed."""
        log = log_of(snapshot.properties, snapshot.id)
        return TableView(snapshot, last_commits_of([snapshot]), log, self.schema_id, now_ms)


def look(store: TableStore) -> TableView:
    """Reads the view; in a process that has looked before, with three calls, which a store gets at the same time.

    Raises `NotFoundError` or `ConflictError` when the table was dropped, and maybe created again, since it was opened.
    """
    seen_ms = store.env.now_ms()
    latest, schema_id = store.snapshots.latest_with(lambda: store.schemas.check_current(store.schema))
    return _view(store, latest, schema_id, seen_ms)


def look_again(store: TableStore, view: TableView, *, steps_once: bool = False) -> TableView:
    """The same view, or a newer one; the newest schema is that of the view. `steps_once`: newer by one snapshot, with
    one call to a store."""
    seen_ms = store.env.now_ms()
    latest = store.snapshots.latest_or_next() if steps_once else store.snapshots.latest()
    return view if latest == view.latest else _view(store, latest, view.schema_id, seen_ms)


def _view(store: TableStore, latest: Snapshot | None, schema_id: int, seen_ms: int) -> TableView:
    seen: list[Snapshot] = []
    known = last_commits_of(_kept(store.snapshots.newest_first(latest), seen))
    # The walk for the last commits ends at the newest snapshot of ours, which has the position of the log too.
    log = log_of(seen[-1].properties, seen[-1].id) if seen else None
    unmarked = tuple(snapshot for snapshot in seen if COMMITS_PROPERTY not in (snapshot.properties or {}))
    return TableView(latest, known, log, schema_id, seen_ms, unmarked)


def _kept(snapshots: Iterator[Snapshot], seen: list[Snapshot]) -> Iterator[Snapshot]:
    for snapshot in snapshots:
        seen.append(snapshot)
        yield snapshot
