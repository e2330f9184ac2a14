"""Have others added rows that change the outcome of an edit, since the snapshot that it was planned upon?

A key that a merge adds may have come in between, and two merges of the same rows at once would add it twice; a row that
an overwrite replaces may have come, too. Each round of the commit reads some columns of the files that were added.
Compactions add no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from freshet.storage.commit.table_view import TableView
from freshet.storage.edits.outdated_plan import OutdatedPlanError
from freshet.storage.exceptions import MissingFileError, NotFoundError
from freshet.storage.files.data_file_reader import read_data_file
from freshet.storage.filters.predicate import Predicate
from freshet.storage.metadata.live_files import delta_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import EntryKind
from freshet.storage.model.snapshot import CommitKind, Snapshot


class Arrivals:
    """A `RoundCheck`: raises `OutdatedPlanError` where `concern` is true for rows in some columns."""

    def __init__(
        self,
        store: TableStore,
        upon: Snapshot | None,
        columns: Sequence[str],
        concern: Callable[[pa.Table], bool],
        row_filter: Predicate | None = None,
    ) -> None:
        """`row_filter` is true for every row that may concern the edit."""
        self._store = store
        self._checked_id = 0 if upon is None else upon.id
        self._columns = list(columns)
        self._concern = concern
        self._filter = row_filter

    def __call__(self, view: TableView) -> None:
        """Looks at what was committed since the last round."""
        latest = view.latest
        if latest is None:
            return
        for snapshot_id in range(self._checked_id + 1, latest.id + 1):
            try:
                self._look_at(self._store.snapshots.snapshot(snapshot_id))
            except (NotFoundError, MissingFileError) as error:
                raise OutdatedPlanError(
                    f"table {self._store.name}: snapshots have expired since this edit was begun"
                ) from error
        self._checked_id = max(self._checked_id, latest.id)

    def _look_at(self, snapshot: Snapshot) -> None:
        if snapshot.commit_kind in (CommitKind.COMPACT, CommitKind.ANALYZE) or snapshot.is_rescale:
            return
        for entry in delta_entries(self._store.manifests, snapshot):
            if entry.kind is EntryKind.DELETE:
                continue
            for batch in read_data_file(
                self._store, entry.partition, entry.bucket, entry.file, self._columns, self._filter
            ):
                if self._concern(pa.Table.from_batches([batch])):
                    raise OutdatedPlanError(
                        f"table {self._store.name}: others have added rows that this edit is about while it was made"
                    )
