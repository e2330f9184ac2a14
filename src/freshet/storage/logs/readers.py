"""What the readers of a log ask of its table, and what a table asks of them, as protocols.

| whole table, one process | in pieces, for an engine that plans on one machine and reads on many |
|---|---|
| `TableHistory`, `LogStream` | `SplitHistory`, `LogSplitStream` |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from freshet.storage.model.data_type import DataField
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.split import ChangeSplit
from freshet.storage.model.stream_step import StreamLimit


class TableHistory(Protocol):
    """What a reader of the log asks of the table."""

    @property
    def schema(self) -> pa.Schema:
        """Columns that come out: those asked for, then `_ROW_KIND` as text."""

    def latest(self) -> Snapshot | None:
        """The newest snapshot."""

    def find(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot, None when it is not committed yet. `StorageError` when it has expired or was rolled back."""

    def find_left(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot that may have expired; None then."""

    def state(self, snapshot: Snapshot) -> Iterator[pa.RecordBatch]:
        """The rows that the changelog has told up to a snapshot, as +I."""

    def has_changes(self, snapshot: Snapshot) -> bool:
        """True where the snapshot changes rows as its files tell."""

    def changes(self, snapshot: Snapshot) -> Iterator[pa.RecordBatch]:
        """These changes, from the files."""

    def first_at_or_after(self, time_ms: int) -> int:
        """Id of the oldest snapshot committed at or after a time; the next id to come when all are older."""

    def log_schema(self, schema_id: int) -> pa.Schema:
        """The columns of the table at a schema id."""

    def shaped(self, schema_id: int, rows: pa.RecordBatch, snapshot_id: int | None = None) -> pa.RecordBatch:
        """Rows of the log (`_ROW_KIND` as codes first) in the columns asked for, filtered, with well-formed kinds.

        `snapshot_id` goes into `_SNAPSHOT_ID`, where that was asked for; None is a row of a batch that is open.
        """

    def wait(self, seconds: float) -> None:
        """Waits."""


class SplitHistory(TableHistory, Protocol):
    """What an engine that plans apart from reading asks besides. Can be pickled."""

    @property
    def fields(self) -> tuple[DataField, ...]:
        """The table's columns among those that come out."""

    def start(self) -> tuple[int, Snapshot | None]:
        """The id of the snapshot whose changes come first, and the one whose rows come before them."""

    def first_rows(self, snapshot_id: int) -> Snapshot:
        """The snapshot whose rows come first; `NotFoundError` when it has expired."""

    def check_same(self, snapshot_id: int, time_ms: int | None) -> None:
        """`RetryableError` where the table was rolled back, or created anew, since this snapshot was read."""

    def state_splits(self, snapshot: Snapshot) -> list[ChangeSplit]:
        """What `state` reads, in pieces."""

    def change_splits(self, snapshot: Snapshot) -> list[ChangeSplit]:
        """What `changes` reads, in pieces."""

    def read_split(self, split: ChangeSplit) -> Iterator[pa.RecordBatch]:
        """The rows of a piece."""

    @property
    def consumer_id(self) -> str | None:
        """What keeps from expiry what was not read."""

    def handed_over(self, next_id: int, *, is_state: bool) -> None:
        """What lies before this snapshot will not be asked for again; `is_state`: its rows are still being read."""


@dataclass(frozen=True, slots=True)
class LogStreamRequest:
    """Where and how to read. `isolation` is committed or speculative; `state` goes on where another stream stopped."""

    isolation: str
    scan_mode: str | None = None
    from_snapshot: int | None = None
    from_timestamp_ms: int | None = None
    max_wait_s: float | None = None
    poll_s: float = 0.2
    state: Mapping[str, object] | None = None


class LogStream(Protocol):
    """Changes from the log: an iterator of Arrow batches."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the batches."""

    @property
    def state(self) -> Mapping[str, object] | None:
        """Where another stream may go on, as JSON holds it; everything before it was handed out; None is the start."""

    def headroom(self) -> Mapping[int, int]:
        """By partition: how many offsets retention may still take before this reader loses changes."""

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    def __next__(self) -> pa.RecordBatch: ...

    def close(self) -> None:
        """Ends the stream."""


class LogSplitStream(Protocol):
    """Changes from snapshots and the log, for an engine that plans on one machine and reads on many."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the batches."""

    @property
    def fields(self) -> tuple[DataField, ...]:
        """The table's columns among them."""

    def position(self, document: Mapping[str, Any]) -> Any:
        """A position out of a checkpoint; positions have `to_document`."""

    def first(self) -> Any:
        """Where a new reader begins."""

    def latest(self) -> Any:
        """After everything that has been committed."""

    def bound(self) -> Any:
        """What `advance` may be told not to pass: everything that is there now."""

    def advance(self, start: Any, limit: StreamLimit, until: Any = None) -> Any:
        """How far a reader at `start` may go now."""

    def groups(self, start: Any, end: Any) -> Sequence[Any]:
        """What lies between, by who reads it; the same rows again for the same two positions."""

    def read_group(self, group: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a group, in their order; in this or another process."""

    def handed_over(self, end: Any) -> None:
        """What lies before this position will not be asked for again."""
