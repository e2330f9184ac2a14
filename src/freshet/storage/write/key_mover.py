"""Places rows of a share of the keys for other tasks to write: a stage of an engine between two shuffles.

    mover.move(keys)     for the rows of the task in input order: which are to be written, where, and as what
    mover.finish()       what the committer checks, in a message

For tables whose rows move between partitions. A share is one task's, by the hash of the full key, so that it meets all
rows of its keys. What it gives follows from the rows, their order and the snapshot: a task that is computed again gives
the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.exceptions import MissingFileError, NotFoundError, RetryableError, UnsupportedFeatureError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.row_kind import RowKind
from freshet.storage.place_index.key_rows import KeyShare
from freshet.storage.write.moving_router import MovingRouter
from freshet.storage.write.records import AcceptedRows
from freshet.storage.write.writer_factory import key_rules

_IGNORED: Final = {
    "ignore_delete": (RowKind.DELETE, RowKind.UPDATE_BEFORE),
    "ignore_update_before": (RowKind.UPDATE_BEFORE,),
}


@dataclass(frozen=True, slots=True)
class MovedRows:
    """Rows to write, in order."""

    rows: npt.NDArray[np.int64]
    """The rows given that they are made of."""
    partition_columns: pa.Table
    """Their partition columns, which may not be those of the rows given."""
    buckets: npt.NDArray[np.int64]
    kinds: npt.NDArray[np.int8]
    ignored_count: int
    """Rows given that the table ignores for their kind."""


class KeyMover:
    """One share of the keys, upon one snapshot; used by one thread. `close` it whatever happens."""

    def __init__(self, store: TableStore, base_snapshot_id: int | None, share: KeyShare) -> None:
        """Raises `RetryableError` where the snapshot has expired: tasks that are computed again must see the same."""
        store.check_writable()
        check_moves_in_tasks(store)
        self._store = store
        self._base_id = base_snapshot_id
        needed = {*store.schema.primary_keys, *store.schema.partition_keys}
        self.columns = tuple(name for name in store.schema.column_names if name in needed)
        """What is needed of the rows, besides `_ROW_KIND` where they have one."""
        self._rules = key_rules(store, self.columns)
        self._ignored = [kind for option, kinds in _IGNORED.items() if getattr(store.options, option) for kind in kinds]
        try:
            base = None if base_snapshot_id is None else store.snapshots.snapshot(base_snapshot_id)
        except NotFoundError as error:
            raise self._expired() from error
        self._router = MovingRouter(store, base, share)

    def move(self, given: pa.Table) -> MovedRows:
        """What becomes of rows of the share, with these columns; raises as a writer does that is given them."""
        accepted = self._rules.accept(given)
        kinds = np.zeros(given.num_rows, np.int8) if accepted.kinds is None else accepted.kinds
        taken = np.flatnonzero(~np.isin(kinds, self._ignored))
        rows = accepted.rows if len(taken) == len(kinds) else accepted.rows.take(pa.array(taken))
        names = list(self._store.schema.partition_keys)
        ignored_count = given.num_rows - len(taken)
        if not len(taken):
            return MovedRows(taken, rows.select(names), np.zeros(0, np.int64), kinds[:0], ignored_count)
        try:
            written, made = self._router.moved(AcceptedRows(rows, kinds[taken] if kinds.any() else None))
        except (NotFoundError, MissingFileError) as error:
            latest = self._store.snapshots.latest()
            if latest is None or latest.id == self._base_id:
                raise
            raise self._expired() from error
        made_kinds = np.zeros(len(made.rows), np.int8) if made.kinds is None else made.kinds
        return MovedRows(taken[made.rows], written.select(names), made.buckets, made_kinds, ignored_count)

    def finish(self) -> Sequence[CommitMessage]:
        """What the places were looked up at."""
        return self._router.prepare_commit()

    def close(self) -> None:
        """Leaves the index to the next batch."""
        self._router.abort()

    def _expired(self) -> RetryableError:
        """Raises `NotFoundError` where the table was dropped or renamed, which takes all snapshots from its place."""
        self._store.check_is_there()
        return RetryableError(
            f"table {self._store.location}: snapshot {self._base_id}, which the batch was begun on, has expired; "
            "nothing was committed, run the batch again. Where this happens often, keep snapshots longer "
            "(snapshot.time-retained)"
        )


def check_moves_in_tasks(store: TableStore) -> None:
    """Raises `UnsupportedFeatureError` where tasks of an engine could not write rows that move: their kinds come from a
    column, which the row that deletes in the old partition has too."""
    if store.options.rowkind_field is not None:
        raise UnsupportedFeatureError(
            f"table {store.location} has rowkind.field={store.options.rowkind_field}, and its rows move between "
            "partitions: Spark does not write it. Drop the option and name the column _ROW_KIND in the query, or write "
            "it with Table.writer",
            option="rowkind.field",
        )
