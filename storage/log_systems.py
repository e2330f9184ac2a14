"""Logs by the value of `log.system`: what a table asks of one, and who provides it.

    register_log_system("kafka", provider)      the front door does this (`log_registry`)
    log_system(options, table)                  the system of a table, None for `none`

`storage` knows no log itself. A driver opens the log for its commit user; tasks in other processes get a sink by what
the driver tells them (`TaskLog`, plain values).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.log_registry import PROVIDERS
from freshet.storage.model.data_type import DataField
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.split import ChangeSplit
from freshet.storage.model.stream_limit import StreamLimit
from freshet.storage.model.table_log import LogIdentity, LogProgress
from freshet.storage.options.core import CoreOptions, LogSystem
from freshet.storage.write.change_sink import ChangeSink


@dataclass(frozen=True, slots=True)
class LoggedTable:
    """What a log system must know of a table. `options` are all of its options as texts."""

    name: str
    bucket_count: int
    schema_id: int
    options: Mapping[str, str] = field(repr=False)
    """They may hold secrets."""
    snapshot_time_retained_ms: int
    logs_before_images: bool = True
    primary_keys: tuple[str, ...] = ()
    table_id: str = ""
    """Tells tables apart, whatever they are called."""


@dataclass(frozen=True, slots=True)
class TaskLog:
    """What a task needs to log for a driver. `attempt` is never given twice for a batch of one epoch."""

    identity: LogIdentity
    epoch: int
    attempt: int


PUBLISHER_CONSUMER: Final = "freshet-publisher"
"""The consumer that keeps from expiry what was not published."""

WITHOUT_LOG: Final[Mapping[str, str]] = {
    "log.system": "none",
    "log.changelog-mode": "auto",
    "log.consistency": "transactional",
}
"""Options for commits to a table with a log that are not logged: its readers follow `log.on-lake-only`. The last two
are the defaults of Paimon, which tables without a log may have."""


class TableLog(Protocol):
    """The log of a table, opened by the one user who writes it."""

    @property
    def identity(self) -> LogIdentity:
        """For the committer."""
        ...

    @property
    def epoch(self) -> int:
        """Which start of the writer this is; for tasks."""
        ...

    @property
    def warnings(self) -> list[str]:
        """What may go wrong later with the topic as it is."""
        ...

    def sink(self, schema_id: int) -> ChangeSink:
        """Takes changes in the columns of a schema."""
        ...

    def committed(self, batch: int, snapshot_id: int) -> None:
        """Tells readers that a snapshot is there; they find it anyway, later."""
        ...

    def close(self) -> None:
        """Lets go of connections."""
        ...


class LogPublisher(Protocol):
    """Publishes what is committed (`log.consistency=transactional`); belongs to one writer or driver."""

    @property
    def warnings(self) -> list[str]:
        """What may go wrong later, and where it has begun."""
        ...

    @property
    def lag(self) -> int:
        """How many snapshots are committed and not published."""
        ...

    def publish(self) -> None:
        """Publishes what was not yet; what keeps it from that is logged, and it is tried again the next time."""
        ...

    def close(self) -> None:
        """Tries once more where something is left, and lets go of connections."""
        ...


class TableHistory(Protocol):
    """What a reader of the log asks of the table."""

    @property
    def schema(self) -> pa.Schema:
        """Columns that come out: those asked for, then `_ROW_KIND` as text."""
        ...

    def latest(self) -> Snapshot | None:
        """The newest snapshot."""
        ...

    def find(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot, None when it is not committed yet. `StorageError` when it has expired or was rolled back."""
        ...

    def find_left(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot that may have expired; None then."""
        ...

    def state(self, snapshot: Snapshot) -> Iterator[pa.RecordBatch]:
        """The rows that the changelog has told up to a snapshot, as +I."""
        ...

    def has_changes(self, snapshot: Snapshot) -> bool:
        """True where the snapshot changes rows as its files tell."""
        ...

    def changes(self, snapshot: Snapshot) -> Iterator[pa.RecordBatch]:
        """These changes, from the files."""
        ...

    def first_at_or_after(self, time_ms: int) -> int:
        """Id of the oldest snapshot committed at or after a time; the next id to come when all are older."""
        ...

    def log_schema(self, schema_id: int) -> pa.Schema:
        """The columns of the table at a schema id."""
        ...

    def shaped(self, schema_id: int, rows: pa.RecordBatch, snapshot_id: int | None = None) -> pa.RecordBatch:
        """Rows of the log (`_ROW_KIND` as codes first) in the columns asked for, filtered, with well-formed kinds.

        `snapshot_id` goes into `_SNAPSHOT_ID`, where that was asked for; None is a row of a batch that is open.
        """
        ...

    def wait(self, seconds: float) -> None:
        """Waits."""
        ...


class SplitHistory(TableHistory, Protocol):
    """What an engine that plans apart from reading asks besides. Can be pickled."""

    @property
    def fields(self) -> tuple[DataField, ...]:
        """The table's columns among those that come out."""
        ...

    def start(self) -> tuple[int, Snapshot | None]:
        """The id of the snapshot whose changes come first, and the one whose rows come before them."""
        ...

    def check_same(self, snapshot_id: int, time_ms: int | None) -> None:
        """`RetryableError` where the table was rolled back, or created anew, since this snapshot was read."""
        ...

    def state_splits(self, snapshot: Snapshot) -> list[ChangeSplit]:
        """What `state` reads, in pieces."""
        ...

    def change_splits(self, snapshot: Snapshot) -> list[ChangeSplit]:
        """What `changes` reads, in pieces."""
        ...

    def read_split(self, split: ChangeSplit) -> Iterator[pa.RecordBatch]:
        """The rows of a piece."""
        ...

    @property
    def consumer_id(self) -> str | None:
        """What keeps from expiry what was not read."""
        ...

    def handed_over(self, next_id: int, *, is_state: bool) -> None:
        """What lies before this snapshot will not be asked for again; `is_state`: its rows are still being read."""
        ...


class LogSplitStream(Protocol):
    """Changes from snapshots and the log, for an engine that plans on one machine and reads on many."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the batches."""
        ...

    @property
    def fields(self) -> tuple[DataField, ...]:
        """The table's columns among them."""
        ...

    def position(self, document: Mapping[str, Any]) -> Any:
        """A position out of a checkpoint; positions have `to_document`."""
        ...

    def first(self) -> Any:
        """Where a new reader begins."""
        ...

    def latest(self) -> Any:
        """After everything that has been committed."""
        ...

    def bound(self) -> Any:
        """What `advance` may be told not to pass: everything that is there now."""
        ...

    def advance(self, start: Any, limit: StreamLimit, until: Any = None) -> Any:
        """How far a reader at `start` may go now."""
        ...

    def groups(self, start: Any, end: Any) -> Sequence[Any]:
        """What lies between, by who reads it; the same rows again for the same two positions."""
        ...

    def read_group(self, group: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a group, in their order; in this or another process."""
        ...

    def handed_over(self, end: Any) -> None:
        """What lies before this position will not be asked for again."""
        ...


class LogStream(Protocol):
    """Changes from the log: an iterator of Arrow batches."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the batches."""
        ...

    @property
    def state(self) -> Mapping[str, object] | None:
        """Where another stream may go on, as JSON holds it; everything before it was handed out; None is the start."""
        ...

    def headroom(self) -> Mapping[int, int]:
        """By partition: how many offsets retention may still take before this reader loses changes."""
        ...

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    def __next__(self) -> pa.RecordBatch: ...

    def close(self) -> None:
        """Ends the stream."""
        ...


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


class LogProvider(Protocol):
    """A log system."""

    def open_log(self, table: LoggedTable, commit_user: str, progress: LogProgress | None, now_ms: int) -> TableLog:
        """Opens the log for its user, making what is not there; `progress` is where the table says that it stands."""
        ...

    def task_sink(self, table: LoggedTable, log: TaskLog) -> ChangeSink:
        """The sink of a task."""
        ...

    def open_publisher(self, table: LoggedTable, histories: Callable[[int], SplitHistory]) -> LogPublisher:
        """A publisher of the table, which takes the place of the one before; `histories` gives the changes in the
        columns of a schema."""
        ...

    def stream(self, table: LoggedTable, history: TableHistory, request: LogStreamRequest) -> LogStream:
        """Reads the log."""
        ...

    def split_stream(self, table: LoggedTable, history: SplitHistory, isolation: str) -> LogSplitStream:
        """Reads the log in pieces."""
        ...


def provider_named(name: str) -> LogProvider:
    """The system of that name, as a table spells it, which is known to be provided."""
    provider: LogProvider = PROVIDERS[name.lower()]()
    return provider


def log_system(options: CoreOptions, table: str) -> LogProvider | None:
    """The system that the options name; `InvalidRequestError` where nobody provides it."""
    if options.log_system is LogSystem.NONE:
        return None
    provider: Callable[[], LogProvider] | None = PROVIDERS.get(options.log_system)
    if provider is None:
        raise InvalidRequestError(
            f"table {table}: log.system={options.log_system} is not provided here; import freshet, which does",
            table=table,
            option="log.system",
        )
    return provider()


def needed_log_system(options: CoreOptions, table: str) -> LogProvider:
    """The same for callers who cannot do without."""
    found = log_system(options, table)
    if found is None:
        raise InvalidRequestError(
            f"table {table} has no log; set log.system=kafka, kafka.bootstrap.servers and kafka.topic",
            table=table,
            option="log.system",
        )
    return found
