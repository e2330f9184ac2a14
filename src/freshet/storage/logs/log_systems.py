"""Logs by the value of `log.system`: who provides them, and the protocols between a log and its table.

    register_log_system("kafka", provider)      the front door does this (`registry`)
    log_system(options, table)                  the system of a table

| protocol | says what is asked |
|---|---|
| `TableHistory`; `LoggedSplitStream` | by the reader of a log of its table; by a table of that reader |
| `TableLog`, `LogPublisher` | by who writes a table of its log, which is opened for one commit user |
| `ChangeSink` | by tasks in other processes, which get one by what the driver sends them (`TaskLog`, plain values) |

`storage` knows no log itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.logs.registry import PROVIDERS
from freshet.storage.model.data_type import DataField
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.snapshot_walk import StreamLimit
from freshet.storage.model.split import ChangeSplit
from freshet.storage.model.table_log import LogIdentity, LogIncrement, LogProgress
from freshet.storage.options.core import CoreOptions


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


PUBLISHER_CONSUMER: Final = "freshet-publisher"
"""The consumer that keeps from expiry what was not published."""

WITHOUT_LOG: Final[Mapping[str, str]] = {
    "log.system": "none",
    "log.changelog-mode": "auto",
    "log.consistency": "transactional",
}
"""Options for commits to a table with a log that are not logged: its readers follow `log.on-lake-only`. The last two
are the defaults of Paimon, which tables without a log may have."""


class TaskLog(Frozen):
    """What a task needs to log for a driver. `attempt` is never given twice for a batch of one epoch."""

    identity: LogIdentity
    epoch: int
    attempt: int


class ChangeSink(Protocol):
    """Takes the changes of one commit after the other. Used by one thread at a time."""

    def begin(self, identifier: int, time_ms: int) -> None:
        """Another attempt at a commit; what was taken and not finished counts for nothing."""

    def log(self, partition: bytes, bucket: int, rows: pa.Table) -> None:
        """Takes rows of a bucket, in order: `_ROW_KIND` as int8 codes, then the columns of the table."""

    def finish(self) -> Mapping[BucketId, LogIncrement]:
        """Returns when everything taken is safe: what there is, by bucket. Raises `RetryableError` otherwise."""

    def abort(self) -> None:
        """Gives up what was taken."""


class TableLog(Protocol):
    """The log of a table, opened by the one user who writes it."""

    @property
    def identity(self) -> LogIdentity:
        """For the committer."""

    @property
    def epoch(self) -> int:
        """Which start of the writer this is; for tasks."""

    @property
    def warnings(self) -> list[str]:
        """What may go wrong later with the topic as it is."""

    def sink(self, schema_id: int) -> ChangeSink:
        """Takes changes in the columns of a schema."""

    def committed(self, batch: int, snapshot_id: int) -> None:
        """Notifies readers of a snapshot; they would find it anyway, later."""

    def close(self) -> None:
        """Lets go of connections."""


class LogPublisher(Protocol):
    """Publishes what is committed (`log.consistency=transactional`); belongs to one writer or driver."""

    @property
    def warnings(self) -> list[str]:
        """What may go wrong later, and where it has begun."""

    @property
    def lag(self) -> int:
        """How many snapshots are committed and not published."""

    def publish(self) -> None:
        """Publishes what was not yet; what keeps it from that is logged, and it is tried again the next time."""

    def close(self) -> None:
        """Tries once more where something is left, and lets go of connections."""


class LoggedTable(Frozen):
    """What a log system must know of a table."""

    name: str
    schema_id: int
    options: CoreOptions
    primary_keys: tuple[str, ...] = ()
    table_id: str = ""
    """Distinguishes tables, whatever they are called."""


class LogProvider(Protocol):
    """A log system."""

    def check_options(self, given: Mapping[str, str]) -> None:
        """Raises `InvalidRequestError`, naming the option, for options of its own that are missing or wrong; asks no
        other process."""

    def open_log(self, table: LoggedTable, commit_user: str, progress: LogProgress | None, now_ms: int) -> TableLog:
        """Opens the log for its user, making what is not there; `progress` is how far the log is, by the table."""

    def check(self, table: LoggedTable, progress: LogProgress | None, *, publishes: bool) -> None:
        """Raises `InvalidRequestError` for what keeps the log from where it is to go; makes and writes nothing.
        `publishes`: changes are published after their commit."""

    def task_sink(self, table: LoggedTable, log: TaskLog) -> ChangeSink:
        """The sink of a task."""

    def open_publisher(self, table: LoggedTable, histories: Callable[[int], TableHistory]) -> LogPublisher:
        """A publisher of the table, which takes the place of the one before; `histories` gives the changes in the
        columns of a schema."""

    def split_stream(self, table: LoggedTable, history: TableHistory, isolation: str) -> LoggedSplitStream:
        """Reads snapshots, then the log."""


def log_system(options: CoreOptions, table: str) -> LogProvider:
    """The system that the options name; `InvalidRequestError` where they name none, or one that is not registered."""
    if not options.logs_changes and not options.publishes_changes:
        raise InvalidRequestError(
            f"table {table} has no log; set log.system=kafka, kafka.bootstrap.servers and kafka.topic",
            table=table,
            option="log.system",
        )
    refuse_uncommitted_json(options, table)
    return provider_of(options, table)


def provider_of(options: CoreOptions, table: str | None = None) -> LogProvider:
    """The system of a table that has a log; `InvalidRequestError` where it is not registered."""
    if options.log_system not in PROVIDERS:
        raise InvalidRequestError(
            f"{f'table {table}: ' if table else ''}log.system={options.log_system} is not provided here; import "
            "freshet, which does",
            table=table,
            option="log.system",
        )
    provider: LogProvider = PROVIDERS[options.log_system]()
    return provider


def refuse_uncommitted_json(options: CoreOptions, table: str | None = None) -> None:
    """Raises `InvalidRequestError` for a format of other consumers in a log of which only readers of ours know what
    counts; tables that earlier versions made have such logs."""
    if options.logs_changes and options.log_format != "arrow":
        raise InvalidRequestError(
            f"{f'table {table}: ' if table else ''}log.format={options.log_format} is for consumers that know nothing "
            "of Freshet, and with log.consistency=eventual they would read records of attempts that were never "
            "committed; set log.consistency=transactional and kafka.topic to a new name, or log.format=arrow, which "
            "is for readers of Freshet, and remove log.key.format",
            table=table,
            option="log.format",
        )
