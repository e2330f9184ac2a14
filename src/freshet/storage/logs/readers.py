"""What the reader of a log asks of its table, and what a table asks of it, as protocols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from freshet.storage.model.data_type import DataField
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.snapshot_walk import StreamLimit
from freshet.storage.model.split import ChangeSplit


class TableHistory(Protocol):
    """What a reader of the log asks of the table. Can be pickled."""

    @property
    def schema(self) -> pa.Schema:
        """Columns that come out: those asked for, then `_ROW_KIND` as text."""

    def latest(self) -> Snapshot | None:
        """The newest snapshot."""

    def find(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot, None when it is not committed yet. `StorageError` when it has expired or was rolled back."""

    def find_left(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot that may have expired; None then."""

    def has_changes(self, snapshot: Snapshot) -> bool:
        """True where the snapshot changes rows."""

    def log_schema(self, schema_id: int) -> pa.Schema:
        """The columns of the table at a schema id."""

    def projected(self, schema_id: int, rows: pa.RecordBatch, snapshot_id: int | None = None) -> pa.RecordBatch:
        """Rows of the log (`_ROW_KIND` as codes first) in the columns asked for, filtered, with well-formed kinds.

        `snapshot_id` goes into `_SNAPSHOT_ID`, where that was asked for; None is a row of a batch that is open.
        """

    def wait(self, seconds: float) -> None:
        """Waits."""

    @property
    def fields(self) -> tuple[DataField, ...]:
        """The table's columns among those that come out."""

    def start(self) -> tuple[int, Snapshot | None]:
        """The id of the snapshot whose changes come first, and the one whose rows come before them."""

    def first_rows(self, snapshot_id: int) -> Snapshot:
        """The snapshot whose rows come first; `NotFoundError` when it has expired."""

    def is_same(self, snapshot_id: int, time_ms: int | None) -> bool:
        """False where the table was rolled back, or created anew, since this snapshot was read."""

    def check_goes_on(self, before_id: int, snapshot: Snapshot, *, is_after_state: bool) -> None:
        """Raises `InvalidRequestError` where the changes of a snapshot do not go on where those up to another ended:
        the table was altered. `is_after_state`: the reader has the rows of that one, as its options say."""

    def left_text(self) -> str:
        """What is left of the history, for messages."""

    def state_splits(self, snapshot: Snapshot) -> list[ChangeSplit]:
        """The rows whose changes were emitted up to a snapshot, as +I, in pieces."""

    def change_splits(self, snapshot: Snapshot) -> list[ChangeSplit]:
        """The changes of a snapshot from its files, in pieces."""

    def read_split(self, split: ChangeSplit, *, ahead: bool = False) -> Iterator[pa.RecordBatch]:
        """The rows of a piece. `ahead`: threads of this process decode what comes next."""

    @property
    def consumer_id(self) -> str | None:
        """What keeps from expiry what was not read."""

    def handed_over(self, next_id: int, *, is_state: bool) -> None:
        """What lies before this snapshot will not be asked for again; `is_state`: its rows are still being read."""


class LoggedSplitStream(Protocol):
    """Changes from snapshots and the log in pieces: positions, and what lies between two of them."""

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
        """A bound for `advance`: everything that is there now."""

    def advance(self, start: Any, limit: StreamLimit, until: Any = None) -> Any:
        """How far a reader at `start` may go now."""

    def groups(self, start: Any, end: Any) -> Sequence[Any]:
        """What lies between, in groups for one reader each; the same rows again for the same two positions."""

    def read_group(self, group: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a group, in their order; in this or another process."""

    def handed_over(self, end: Any) -> None:
        """What lies before this position will not be asked for again."""

    # For a reader that plans and reads in one process, and waits (`Table.stream`).

    @property
    def pause_s(self) -> float:
        """How long to wait before looking again."""

    def begin(self) -> Any:
        """`first`; of a stream without a log None while there is nothing to begin with."""

    def check_begin(self, position: Any) -> None:
        """Raises what keeps a reader of the log from going on at a position: another topic, retention, no brokers."""

    def read_between(self, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """What lies between, in its order."""

    def wait(self, position: Any, seconds: float) -> None:
        """Waits so long, or until something is logged or committed."""

    def state_of(self, position: Any) -> Mapping[str, Any]:
        """What people keep of a position, as JSON (`log_state`)."""

    def resumed(self, state: Mapping[str, Any]) -> Any:
        """The inverse."""

    def headroom(self, position: Any) -> Mapping[int, int]:
        """By partition: how many offsets retention may still take before a reader there loses changes."""

    def close(self) -> None:
        """Lets go of connections."""
