"""A reader of the log, as users have it, of a table all of whose changes are in the log: no files are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from freshet.logstore.reading.split_stream import Isolation, LogSplitStream
from freshet.storage.logs.log_systems import LoggedTable
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.core import CoreOptions
from tests.kit.fake_log import FakeLog


def reader_of(log: FakeLog, history: SnapshotsAlone, *, speculative: bool) -> LogSplitStream:
    isolation = Isolation.SPECULATIVE if speculative else Isolation.COMMITTED
    table = LoggedTable("t", 0, CoreOptions.parse({"bucket": "2"}, has_primary_key=False))
    return LogSplitStream(table, history, isolation, log.client)  # type: ignore[arg-type]


class SnapshotsAlone:
    """A `TableHistory`. `snapshot` gives one by its id, and the latest for None; None where it is not there."""

    fields = ()
    consumer_id = None

    def __init__(self, columns: pa.Schema, snapshot: Callable[[int | None], Snapshot | None]) -> None:
        self._columns = columns
        self._snapshot = snapshot
        self.schema = pa.schema([pa.field("kind", pa.int8()), *columns, pa.field("_SNAPSHOT_ID", pa.int64())])

    def latest(self) -> Snapshot | None:
        return self._snapshot(None)

    def find(self, snapshot_id: int) -> Snapshot | None:
        return self._snapshot(snapshot_id)

    find_left = find

    def start(self) -> tuple[int, Snapshot | None]:
        latest = self.latest()
        return (0 if latest is None else latest.id) + 1, None

    def is_same(self, snapshot_id: int, time_ms: int | None) -> bool:
        return True

    def check_goes_on(self, before_id: int, snapshot: Snapshot, *, is_after_state: bool) -> None: ...

    def has_changes(self, snapshot: Snapshot) -> bool:
        return False

    def log_schema(self, schema_id: int) -> pa.Schema:
        return self._columns

    def projected(self, schema_id: int, rows: pa.RecordBatch, snapshot_id: int | None = None) -> pa.RecordBatch:
        ids = pa.repeat(pa.scalar(snapshot_id, pa.int64()), rows.num_rows)
        return pa.RecordBatch.from_arrays([*rows.columns, ids], schema=self.schema)

    def wait(self, seconds: float) -> None: ...

    def handed_over(self, next_id: int, *, is_state: bool) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"nothing here is read from files: {name}")
