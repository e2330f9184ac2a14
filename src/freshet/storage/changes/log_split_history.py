"""What a reader of the log in pieces asks of the table: where it begins, the splits of states and of changes, and the
consumer that keeps from expiry what it has not read.

Can be pickled: another process opens the table again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from freshet.storage.changes.consumer_progress import ConsumerProgress
from freshet.storage.changes.log_history import LogHistory, as_inserts
from freshet.storage.changes.stream_start import StartRequest, stream_start
from freshet.storage.exceptions import OvertakenError
from freshet.storage.filters.predicate import Predicate
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_type import DataField
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.split import SNAPSHOT_ID_COLUMN, ChangeSplit


class LogSplitHistory(LogHistory):
    """Of one table, for one reader. `shows_open_rows`: its rows may belong to no snapshot yet."""

    def __init__(
        self,
        store: TableStore,
        request: StartRequest,
        *,
        columns: Sequence[str] | None = None,
        filter: Predicate | None = None,  # noqa: A002  # the word every reader library uses
        consumer_id: str | None = None,
        with_snapshot_id: bool = False,
        shows_open_rows: bool = False,
    ) -> None:
        store.check_is_there()
        super().__init__(store, columns=columns, filter=filter, with_snapshot_id=with_snapshot_id)
        self._request = request
        self._consumer_id = consumer_id
        self._shows_open_rows = shows_open_rows
        self._progress = ConsumerProgress(store, consumer_id)

    @property
    def schema(self) -> pa.Schema:
        """Columns that come out; `_SNAPSHOT_ID` is NULL in rows that belong to no snapshot yet."""
        schema = self._reader.schema
        index = schema.get_field_index(SNAPSHOT_ID_COLUMN) if self._reader.with_snapshot_id else -1
        if index < 0 or not self._shows_open_rows:
            return schema
        return schema.set(index, schema.field(index).with_nullable(True))

    @property
    def consumer_id(self) -> str | None:
        """What keeps from expiry what was not read."""
        return self._consumer_id

    @property
    def fields(self) -> tuple[DataField, ...]:
        """The table's columns among them."""
        return tuple(self._store.schema.by_name[name] for name in self._reader.columns)

    def start(self) -> tuple[int, Snapshot | None]:
        """Where the consumer stopped, else where the scan mode begins; of a table without snapshots, its first."""
        found = stream_start(self._store, self._history, self._request, self._consumer_id)
        return (self._history.latest_id() + 1, None) if found is None else (found.next_id, found.state)

    def first_rows(self, snapshot_id: int) -> Snapshot:
        """The snapshot whose rows come first; `NotFoundError` when it has expired."""
        return self._history.first_rows(snapshot_id)

    def check_same(self, snapshot_id: int, time_ms: int | None) -> None:
        """`OvertakenError` where the table was rolled back, or created anew, since this snapshot was read."""
        found = self._history.find(snapshot_id) if snapshot_id > 0 else None
        if found is None:
            self._store.check_is_there()
        is_other = time_ms is not None and found is not None and found.time_ms != time_ms
        if is_other or (found is None and self._history.latest_id() < snapshot_id):
            raise OvertakenError(
                f"snapshot {snapshot_id} of {self._store.location} is not the one that this stream has read: the table "
                f"was rolled back or created anew; {self._history.left_text()}. Read the table again in full, with a "
                "new checkpoint",
                table=self._store.location,
            )

    def state_splits(self, snapshot: Snapshot) -> list[ChangeSplit]:
        """The rows that the changelog has told up to a snapshot, as +I, in pieces."""
        with self._history.explained(snapshot):
            return self._planner.state(snapshot)

    def change_splits(self, snapshot: Snapshot) -> list[ChangeSplit]:
        """The changes of a snapshot from its files, in pieces."""
        with self._history.explained(snapshot):
            return self._planner.plan(snapshot, self._source(snapshot))

    def read_split(self, split: ChangeSplit) -> Iterator[pa.RecordBatch]:
        """The rows of a piece, such as the log would tell them (`log.ignore-delete`)."""
        schema = self.schema
        with self._history.explained(self._history.still_there(split.snapshot_id)):
            for rows in self._reader.read(split):
                batch = as_inserts(rows) if self._store.options.log_ignore_delete else rows
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    def handed_over(self, next_id: int, *, is_state: bool) -> None:
        """What lies before this snapshot will not be asked for again; `is_state`: its rows are still being read."""
        self._progress.moved(next_id, is_state=is_state)

    def __reduce__(self) -> tuple[Any, ...]:
        reopened = partial(
            LogSplitHistory,
            self._store,
            self._request,
            columns=self._reader.columns,
            filter=None if self._filter is None else self._filter.predicate,
            consumer_id=self._consumer_id,
            with_snapshot_id=self._reader.with_snapshot_id,
            shows_open_rows=self._shows_open_rows,
        )
        return reopened, ()
