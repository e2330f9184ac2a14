"""A table: what people hold to write, read, look at, change and look after it.

The object is a view of one schema, taken when it was opened; `alter` gives a new one. It keeps no files open and may be
shared by threads; writers and scans may not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from os import PathLike, fspath
from typing import Any, Final, overload

import pyarrow as pa

from freshet.storage.changes.between import EndGiven, changes_between
from freshet.storage.changes.change_range import TimeGiven, change_range
from freshet.storage.changes.change_source import ChangeRules, check_has_changelog
from freshet.storage.changes.changelog import Changelog
from freshet.storage.changes.history import ChangeHistory
from freshet.storage.changes.split_stream import SplitStream
from freshet.storage.changes.stream import ChangeStream, LogStream
from freshet.storage.changes.stream_position import StreamPosition
from freshet.storage.changes.stream_start import StartRequest
from freshet.storage.cleaning.expire import ExpireResult, expire_later, expire_snapshots
from freshet.storage.cleaning.orphan_files import DEFAULT_AGE_MS, OrphanResult, remove_orphan_files
from freshet.storage.commit.committer import CommitCheck, CommitResult, Committer, Renumber
from freshet.storage.commit.table_check import TableCheck, check_table
from freshet.storage.describe import CommitRows, commit_rows, describe_table, marked_row_counts, table_facts
from freshet.storage.distributed_write import TaskWriter, discard_messages
from freshet.storage.filters.filter_text import FilterGiven, to_predicate
from freshet.storage.io.env import Env, absolute_path, open_env
from freshet.storage.logs.readers import LogSplitStream
from freshet.storage.logs.writers import LogPublisher, TableLog, TaskLog
from freshet.storage.lookup.file_lookup import FoundRows
from freshet.storage.lookup.lookup_metrics import LookupMetrics
from freshet.storage.lookup.stored_rows import find_stored_rows
from freshet.storage.maintenance.compaction_beside import BesideUnit, CompactionBeside, carry_out_beside
from freshet.storage.maintenance.hidden_rows import show_hidden_rows
from freshet.storage.maintenance.sort_compaction import SortStrategy, sort_compact
from freshet.storage.maintenance.table_compaction import (
    BucketCompaction,
    CompactionBudget,
    CompactionResult,
    Elsewhere,
    PartitionChoice,
    ProgressCallback,
    carry_out,
    complete_full_compaction,
    plan_compaction,
    repair_levels,
    run_compaction,
)
from freshet.storage.metadata.table_handle import TableHandle
from freshet.storage.metadata.table_store import TableStore, alter_table, open_store, open_table_store
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.manifest import ManifestEntry
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.model.split import ChangeSplit, Split
from freshet.storage.model.stream_step import StreamLimit
from freshet.storage.model.table_log import LogIdentity
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.traps import silent_traps, unheeded_options
from freshet.storage.options.values import option_texts
from freshet.storage.scan.read_snapshot import explained, find_snapshot
from freshet.storage.scan.table_scan import TableScan
from freshet.storage.schema.change import (
    AddColumn,
    ChangeType,
    DropColumn,
    MoveColumn,
    RenameColumn,
    ResetOption,
    SchemaChange,
    SetColumnComment,
    SetComment,
    SetNullable,
    SetOption,
)
from freshet.storage.table_logs import TableLogs
from freshet.storage.table_session import TableSession
from freshet.storage.write.bucketing import BucketCounts
from freshet.storage.write.compaction_limit import CompactionLimit
from freshet.storage.write.renumbering import renumbered

__all__ = [
    "AddColumn",
    "BesideUnit",
    "BucketCompaction",
    "ChangeSplit",
    "ChangeStream",
    "ChangeType",
    "Changelog",
    "CompactionBeside",
    "CompactionBudget",
    "CompactionResult",
    "DropColumn",
    "Elsewhere",
    "LogSplitStream",
    "MoveColumn",
    "RenameColumn",
    "ResetOption",
    "SchemaChange",
    "SetColumnComment",
    "SetComment",
    "SetNullable",
    "SetOption",
    "Split",
    "SplitStream",
    "StreamLimit",
    "StreamPosition",
    "Table",
    "TableHandle",
    "TableScan",
    "TaskLog",
]
"""The table, and what its methods take and give."""

COMMITS_LOOKED_AT: Final = 100
"""Who has not compacted for so many commits does not."""

_LOG: Final = logging.getLogger(__name__)


class Table:
    """One table of a warehouse; `Catalog.table` and `Catalog.create_table` give it."""

    def __init__(self, store: TableStore) -> None:
        self.store = store

    @property
    def name(self) -> str:
        """What messages call the table: `database.table`, or its folder."""
        return self.store.name

    @classmethod
    def open(
        cls,
        location: str | PathLike[str],
        *,
        options: Mapping[str, object] | None = None,
        schema_id: int | None = None,
        name: str | None = None,
        env: Env | None = None,
    ) -> Table:
        """Opens the table in a folder, for callers that know the folder and not the warehouse, such as a Spark worker.

        `options` override the table's own for this object only, `schema_id` chooses a schema that is not the latest,
        and `name` is what messages call the table, its folder if not given. A relative location is taken against the
        current folder. Files are reached as the location asks.
        Raises `NotFoundError` when there is no table, `UnsupportedFeatureError` when it cannot be read rightly.
        """
        texts = option_texts(options)
        folder = absolute_path(fspath(location))
        return cls(
            open_table_store(env or open_env(folder), folder, options=texts or None, schema_id=schema_id, name=name)
        )

    @classmethod
    def of(cls, handle: TableHandle) -> Table:
        """The table of a handle, in any process; raises where it was dropped or created again meanwhile."""
        return cls(open_store(handle))

    @property
    def handle(self) -> TableHandle:
        """The table as a value for other processes; `InvalidRequestError` where they cannot reach it."""
        return self.store.handle

    @property
    def _logs(self) -> TableLogs:
        return TableLogs(self.store)

    @property
    def location(self) -> str:
        """Folder of the table."""
        return self.store.paths.location

    @property
    def schema(self) -> TableSchema:
        """The schema this object was opened with."""
        return self.store.schema

    @property
    def options(self) -> CoreOptions:
        """The options this object works with: the table's own, and those given when it was opened."""
        return self.store.options

    @property
    def arrow_schema(self) -> pa.Schema:
        """Columns as Arrow types, as scans give them and writers want them."""
        return arrow_schema(self.store.schema)

    def __repr__(self) -> str:
        return f"Table({self.name!r} at {self.location}, schema {self.schema.id})"

    def writer(self, commit_user: str, *, parallelism: int = 2) -> TableSession:
        """Writes and commits rows under a name of the caller's; `parallelism` is the number of threads."""
        for trap in self.warnings():
            _LOG.warning("table %s: %s", self.name, trap)
        publisher = self.open_publisher() if self.publishes else None
        for warning in publisher.warnings if publisher is not None else ():
            _LOG.warning("table %s: %s", self.name, warning)
        return TableSession(
            self.store,
            commit_user,
            parallelism=parallelism,
            open_log=self._logs.open_log if self.has_log else None,
            publisher=publisher,
        )

    def task_writer(
        self, *, base_snapshot_id: int | None, parallelism: int = 1, log: TaskLog | None = None
    ) -> TaskWriter:
        """Writes files for a commit that another process makes (`distributed_write`).

        Buckets are restored from the snapshot named, or the latest where that has expired; None is a table without any.
        `log` is what the driver says of the log of the table, where it has one (`open_log`).
        """
        self._logs.check_logs(log is not None)
        sink = None if log is None else self._logs.task_sink(log)
        return TaskWriter(self.store, base_snapshot_id=base_snapshot_id, parallelism=parallelism, sink=sink)

    def committer(
        self,
        commit_user: str,
        query_id: str | None = None,
        *,
        log: LogIdentity | None = None,
        renumber: Renumber | None = None,
    ) -> Committer:
        """Commits what task writers have made; `query_id` tells streaming queries of one name apart. `log` is that of
        the table, where it has one (`open_log`). `renumber` writes files again whose rows others have overtaken, by
        default in this process; a table with a log has no default."""
        self._logs.check_logs(log is not None)
        renumber = renumber or (None if log else self._renumbered_here)
        return Committer(self.store, commit_user, query_id, log, renumber, expire_later)

    def _renumbered_here(
        self, identifier: int, messages: Sequence[CommitMessage], base_id: int, headroom: int
    ) -> Sequence[CommitMessage]:
        return self.renumbered(identifier, messages, base_snapshot_id=base_id, headroom=headroom)

    def renumbered(
        self,
        identifier: int,
        messages: Sequence[CommitMessage],
        *,
        base_snapshot_id: int,
        headroom: int,
        log: TaskLog | None = None,
        limit: CompactionLimit | None = None,
    ) -> list[CommitMessage]:
        """The rows of messages that task writers have made, numbered anew upon a snapshot and `headroom` above what is
        live there: what a committer asks its `renumber` for, in this or another process. `log` is as for `task_writer`.
        """
        self._logs.check_logs(log is not None)
        sink = None if log is None else self._logs.task_sink(log)
        base = self.store.snapshots.or_latest(base_snapshot_id)
        return renumbered(
            self.store,
            messages,
            base,
            identifier=identifier,
            headroom=headroom,
            parallelism=1,
            sink=sink,
            limit=limit,
        )

    def show_hidden_rows(self, committer: Committer, identifier: int, result: CommitResult) -> CommitResult:
        """What a driver calls after its commit: compacts rows of it that readers do not see yet, where level 0 is
        hidden and the compaction of the commit was lost to another one. The result says what is hidden still."""
        return show_hidden_rows(self.store, committer, identifier, result)

    def has_committed(self, commit_user: str, query_id: str | None, identifier: int) -> CommitCheck:
        """Whether a commit is there, as `Committer.has_committed` finds it and raises, for those who commit nothing."""
        return Committer(self.store, commit_user, query_id).has_committed(identifier)

    @property
    def has_log(self) -> bool:
        """True where changes are logged before their commit (`log.system`, with `log.consistency=eventual`)."""
        return self.options.logs_changes

    @property
    def publishes(self) -> bool:
        """True where committed changes are published (`log.system`, with `log.consistency=transactional`): by
        `Table.writer` after each of its commits, else by who holds `open_publisher`."""
        return self.options.publishes_changes

    def open_publisher(self) -> LogPublisher:
        """Publishes the committed changes of the table, whoever commits them; for drivers of task writers.

        What is committed and was not published is published at once. Raises `InvalidRequestError` for a topic that
        does not fit, `RetryableError` where the brokers do not answer.
        """
        return self._logs.open_publisher()

    @property
    def dynamic_options(self) -> Mapping[str, str]:
        """What was given with `with_options`, beside the options of the table."""
        return self.store.dynamic_options

    def without_log(self) -> Table:
        """The same table, for commits of others than the one user who logs: they are not logged, and readers of the
        log do with them what `log.on-lake-only` says.

        Of a table that publishes, they are published with the next commit of who publishes.

        Raises `InvalidRequestError` where that is `fail`: readers would stop at such a commit.
        """
        if not self.has_log and not self.publishes:
            return self
        return self.with_options(self._logs.options_without())

    def log_user(self) -> str | None:
        """The commit user who writes the log of the table, as its snapshots tell; None where nothing was logged yet
        into the topic of its options."""
        return self._logs.user()

    def check_log(self) -> None:
        """Looks whether the log of the table can go where its options say; makes and writes nothing.

        Raises `InvalidRequestError` where it cannot, such as into a topic with records of others, and for a table
        without a log; `RetryableError` where nobody answers.
        """
        self._logs.check()

    def open_log(self, commit_user: str) -> TableLog:
        """The log of the table for the one user who writes it, checked; for drivers of task writers.

        Raises `InvalidRequestError` for a table without a log, a topic that does not fit and a second user.
        """
        return self._logs.open_log(commit_user)

    def discard(self, messages: Sequence[CommitMessage]) -> None:
        """Removes the files of messages that will not be committed."""
        discard_messages(self.store, messages)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: FilterGiven = None,  # noqa: A002  # the word every reader library uses
        *,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp_ms: int | None = None,
        limit: int | None = None,
    ) -> TableScan:
        """Rows of one snapshot (the latest, or at most one of snapshot id, tag and timestamp), merged.

        `filter` is SQL text such as `"total > 10"` (`filter_text` says what it may hold), built with `col`, or a list
        as pyarrow takes them. Nothing is read yet. Raises `InvalidRequestError` for unknown columns and
        `NotFoundError` for a snapshot or tag that is not there.
        """
        return TableScan(
            self.store,
            columns=columns,
            filter=to_predicate(filter),
            snapshot_id=snapshot_id,
            tag=tag,
            timestamp_ms=timestamp_ms,
            limit=limit,
        )

    def changelog(
        self,
        columns: Sequence[str] | None = None,
        filter: FilterGiven = None,  # noqa: A002  # the word every reader library uses
        *,
        from_snapshot: int | None = None,
        to_snapshot: int | None = None,
        from_timestamp: TimeGiven | None = None,
        limit: int | None = None,
    ) -> Changelog:
        """Changes of the snapshots asked for: the columns, `_ROW_KIND` ('+I' '-U' '+U' '-D') and `_SNAPSHOT_ID`.

        Both ends belong to the range; without them it is all that is there. `from_timestamp` is in epoch milliseconds,
        or a datetime with a time zone. `filter` is as in `scan`, applied to each change by itself. An append table has
        a +I for each row; a keyed table has what its `changelog-producer` wrote. Nothing is read yet.

        Raises `InvalidRequestError` for unknown columns and for a keyed table without a changelog producer, and
        `NotFoundError` naming what is left when changes have expired or are not committed yet.
        """
        self._check_has_changelog("read the rows as they were written with changes_between(…, mode='delta')")
        ids = change_range(
            ChangeHistory(self.store),
            from_snapshot=from_snapshot,
            to_snapshot=to_snapshot,
            from_timestamp=from_timestamp,
        )
        return Changelog(self.store, ids, columns=columns, filter=to_predicate(filter), limit=limit)

    def changes_between(
        self,
        start: EndGiven,
        end: EndGiven,
        columns: Sequence[str] | None = None,
        filter: FilterGiven = None,  # noqa: A002  # the word every reader library uses
        *,
        mode: str = "auto",
        limit: int | None = None,
    ) -> Changelog:
        """What happened after one point of the table's history up to another, as `changelog` gives it.

        A point is a snapshot id (0 is the table before its first), the name of a tag, or a datetime with a time zone.
        `mode` is `delta` (the rows that were written, with the kinds they were written with), `changelog`, `diff`
        (what differs between the two states, whatever happened between) or `auto`: diff between two tags, else
        changelog where the table has one, delta elsewhere. `changes/between.py` says more.

        Raises `InvalidRequestError` for points or a mode that make no sense, for `changelog` of a keyed table without
        a changelog producer and for `diff` without a key; `NotFoundError` for what is not there.
        """
        return changes_between(
            self.store, self.name, start, end, mode, columns=columns, filter=to_predicate(filter), limit=limit
        )

    @overload
    def stream(
        self,
        columns: Sequence[str] | None = None,
        filter: FilterGiven = None,  # the word every reader library uses
        *,
        scan_mode: str | None = None,
        from_snapshot: int | None = None,
        from_timestamp: TimeGiven | None = None,
        consumer_id: str | None = None,
        max_wait_s: float | None = None,
        with_snapshot_id: bool = False,
        upserts: bool = False,
        isolation: None = None,
    ) -> ChangeStream: ...

    @overload
    def stream(
        self,
        columns: Sequence[str] | None = None,
        filter: FilterGiven = None,  # the word every reader library uses
        *,
        isolation: str,
        scan_mode: str | None = None,
        from_snapshot: int | None = None,
        from_timestamp: TimeGiven | None = None,
        consumer_id: str | None = None,
        max_wait_s: float | None = None,
        with_snapshot_id: bool = False,
        upserts: bool = False,
        log_state: Mapping[str, object] | None = None,
    ) -> LogStream: ...

    def stream(
        self,
        columns: Sequence[str] | None = None,
        filter: FilterGiven = None,  # noqa: A002  # the word every reader library uses
        *,
        scan_mode: str | None = None,
        from_snapshot: int | None = None,
        from_timestamp: TimeGiven | None = None,
        consumer_id: str | None = None,
        max_wait_s: float | None = None,
        with_snapshot_id: bool = False,
        upserts: bool = False,
        isolation: str | None = None,
        log_state: Mapping[str, object] | None = None,
    ) -> ChangeStream | LogStream:
        """Changes as they are committed: an iterator of Arrow batches that waits for the next snapshot.

        `scan_mode` says what it begins with: `latest-full` (the default: the rows of the latest snapshot, as +I),
        `latest`, `compacted-full`, `from-snapshot`, `from-snapshot-full` or `from-timestamp`. With a `consumer_id` it
        goes on where the stream of that name stopped, and what it has not read yet does not expire. `max_wait_s` ends
        it after so many seconds without a new snapshot. Batches have the columns and `_ROW_KIND`, on request
        `_SNAPSHOT_ID`. `upserts` reads a keyed table without a changelog producer: rows as they were written, without
        those they replaced.

        With an `isolation` the changes come from the log of the table (`log.system`): `committed` when their snapshot
        is there, `speculative` as soon as they are logged. What a speculative stream has shown and a crash undid is
        taken back by rows of the inverse kind. Scan modes, `consumer_id` and `with_snapshot_id` are the same (NULL in
        rows whose snapshot is still to come); `log_state` goes on where another stream stopped (its `state`).

        Raises `InvalidRequestError` as `changelog` does and for a scan mode that does not go with the rest,
        `NotFoundError` naming what is left when the changes to begin with have expired; while it is read
        `RetryableError` when expiry or a rollback has overtaken it.
        """
        is_logged = isolation is not None and self._logs.is_read(isolation, log_state)
        stream = self.split_stream(
            columns,
            filter,
            scan_mode=scan_mode,
            from_snapshot=from_snapshot,
            from_timestamp=from_timestamp,
            consumer_id=consumer_id,
            with_snapshot_id=with_snapshot_id,
            upserts=upserts or is_logged,
            isolation=isolation or "none",
        )
        if isinstance(stream, SplitStream):
            return ChangeStream(stream, max_wait_s=max_wait_s)
        return LogStream(stream, max_wait_s=max_wait_s, state=log_state)

    def split_stream(
        self,
        columns: Sequence[str] | None = None,
        filter: FilterGiven = None,  # noqa: A002  # the word every reader library uses
        *,
        scan_mode: str | None = None,
        from_snapshot: int | None = None,
        from_timestamp: TimeGiven | None = None,
        consumer_id: str | None = None,
        with_snapshot_id: bool = False,
        upserts: bool = False,
        isolation: str | None = None,
    ) -> SplitStream | LogSplitStream:
        """The changes that `stream` gives, in pieces: positions and splits for an engine with a checkpoint of its own.

        `isolation` is `none` (snapshots alone), `committed` or `speculative` (snapshots, then the log); if it is not
        given, `committed` for a table with a log and `none` for others. Raises as `stream` does.
        """
        if not upserts:
            self._check_has_changelog("stream the rows as they are written, without those they replace: upserts=True")
        wanted = isolation or ("committed" if self.has_log else "none")
        request = StartRequest.of(scan_mode, from_snapshot, from_timestamp)
        if wanted.lower() != "none" and self._logs.is_read(wanted):
            return self._logs.split_stream(
                request,
                wanted,
                columns=columns,
                predicate=to_predicate(filter),
                consumer_id=consumer_id,
                with_snapshot_id=with_snapshot_id,
            )
        return SplitStream(
            self.store,
            request,
            columns=columns,
            filter=to_predicate(filter),
            consumer_id=consumer_id,
            with_snapshot_id=with_snapshot_id,
        )

    def _check_has_changelog(self, otherwise: str) -> None:
        check_has_changelog(ChangeRules.of(self.store.options), self.name, otherwise)

    def consumers(self) -> dict[str, int]:
        """Streaming readers that have a name, and the snapshot each wants next."""
        return self.store.consumers.positions()

    def reset_consumer(self, consumer_id: str, next_snapshot_id: int) -> None:
        """Lets a consumer go on at another snapshot, or makes it; from there on nothing expires before it was read.

        Raises `InvalidRequestError` for an id that is no file name and for what is no snapshot id, `NotFoundError`
        when the table was dropped.
        """
        self.store.check_is_there()
        self.store.consumers.reset(consumer_id, next_snapshot_id)

    def delete_consumer(self, consumer_id: str) -> bool:
        """Forgets a consumer, so that it holds back no expiry any more; False when there was none.

        Raises as `reset_consumer` does.
        """
        self.store.check_is_there()
        return self.store.consumers.delete(consumer_id)

    def lookup(
        self,
        keys: pa.Table,
        columns: Sequence[str] | None = None,
        *,
        snapshot_id: int | None = None,
        metrics: LookupMetrics | None = None,
    ) -> FoundRows:
        """The rows that stand for some keys at a snapshot (the latest if none is named), without a scan of the table.

        `keys` has every column of the primary key, one row for each key asked; `columns` are those wanted, all if None.
        The answer has the rows found and, for each key asked, the position of its row or -1. Columns are those of this
        object's schema; `metrics` counts how files were asked. Raises `InvalidRequestError` for a table without a
        primary key, a key column that is missing, NULL or of another type, and unknown columns; `NotFoundError` for a
        snapshot that is not there.
        """
        self.store.check_is_there()
        snapshot = find_snapshot(self.store.snapshots, snapshot_id=snapshot_id)
        with explained(self.store, snapshot):
            return find_stored_rows(self.store, snapshot, keys, columns, metrics)

    def compact(
        self,
        *,
        full: bool = True,
        partition: PartitionChoice | None = None,
        budget: CompactionBudget | None = None,
        progress: ProgressCallback | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> CompactionResult:
        """Compacts bucket by bucket, the one with most to do first: fully, or only where the picking rule asks for it.

        It commits as it goes, under a user of its own, and stops where the budget is used up. A bucket that somebody
        else compacts meanwhile is left to them. `partition` is a serialized partition row, or partition keys with their
        values as the folders write them (`{"dt": "2026-11-22"}`); None is all of them. `elsewhere` hands the work on.

        It works at the newest schema, whatever this object was opened at. Raises `ConflictError` when rows of a later
        one come while it runs.
        """
        store = self.store.at_latest_schema()
        store.check_writable()
        with store.told_if_dropped():
            works = plan_compaction(store, full=full, partition=partition)
            result = run_compaction(store, works, budget=budget, progress=progress, elsewhere=elsewhere)
        store.env.finish_later()
        return result

    def sort_compact(
        self,
        order_by: Sequence[str],
        strategy: str = SortStrategy.ORDER,
        *,
        partition: PartitionChoice | None = None,
        progress: ProgressCallback | None = None,
    ) -> CompactionResult:
        """Sorts the rows of an append table without buckets, partition by partition, so that filters read few files.

        `strategy` is `order` (by the columns, one after the other), `zorder` or `hilbert` (by all of them alike);
        `partition` and the rest are as in `compact`. A partition of which somebody else has rewritten a file meanwhile
        is left as it is. Raises `InvalidRequestError` for other tables, and columns without an order.
        """
        with self.store.told_if_dropped():
            return sort_compact(self.store, order_by, strategy, partition=partition, progress=progress)

    def repair(
        self, *, partition: PartitionChoice | None = None, progress: ProgressCallback | None = None
    ) -> CompactionResult:
        """Merges levels whose files overlap, which commits and compactions refuse to touch, with each file as a sorted
        run of its own; `partition` is as in `compact`. No changes are emitted.

        Of two rows of a key the merge engine makes one, in the order of their numbers. Where both were whole rows
        already (tables that look keys up), sums may have counted twice: compare those with their source.
        """
        store = self.store.at_latest_schema()
        store.check_writable()
        with store.told_if_dropped():
            result = repair_levels(store, partition=partition, progress=progress)
        store.env.finish_later()
        return result

    def carry_out_compaction(self, work: BucketCompaction) -> list[CommitMessage]:
        """Compacts one bucket here, for the process whose `compact` has sent it elsewhere."""
        return carry_out(self.store, work)

    def check(self) -> TableCheck:
        """Looks for damage in the newest snapshot: lost files, and metadata that breaks an invariant of the format.

        The rows of the data files are not read. `freshet check-table` prints what it finds.
        """
        return check_table(self.store)

    def compaction_beside(self, commit_user: str) -> CompactionBeside:
        """Compaction beside the streams of this process, under a commit user of its own.

        Raises `InvalidRequestError` where the compactions of this table must stay in its batches.
        """
        return CompactionBeside(self.store, commit_user)

    def carry_out_beside(self, unit: BesideUnit) -> list[CommitMessage]:
        """Does the work of a unit that `CompactionBeside` has chosen, in this process or another one."""
        return carry_out_beside(self.store, unit)

    def complete_full_compaction(self, identifier: int, messages: Sequence[CommitMessage]) -> list[CommitMessage]:
        """Messages to commit with those of task writers, where `full-compaction.delta-commits` has this commit compact
        the whole table: the buckets that none of them wrote are compacted here and now. None where nothing is due.
        """
        return complete_full_compaction(self.store, identifier, messages)

    def warnings(self) -> list[str]:
        """What the options of this table lead to without anybody saying so, and which of them do nothing; for logs, and
        for those who check."""
        return [*silent_traps(self.options), *unheeded_options(self.options)]

    def is_compacted(self, *, commits: int = COMMITS_LOOKED_AT) -> bool:
        """Whether somebody has compacted the table among the last commits, as far as they are still there."""
        recent = islice(self.store.snapshots.newest_first(self.store.snapshots.latest()), commits)
        return any(snapshot.commit_kind is CommitKind.COMPACT for snapshot in recent)

    def is_rescaled(self) -> bool:
        """Whether a partition has another number of buckets than the option `bucket` says: Apache Paimon rescales one
        partition after the other. Rows for such a partition go to buckets by the number that its files have."""
        return BucketCounts(self.store, self.latest_snapshot()).differ()

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot; None for a table that nothing was committed to."""
        return self.store.snapshots.latest()

    def snapshots(self) -> list[Snapshot]:
        """All snapshots that are still there, oldest first."""
        return self.store.snapshots.all()

    def files(self, *, snapshot_id: int | None = None) -> list[ManifestEntry]:
        """Live data files of a snapshot, the latest if none is named."""
        snapshot = find_snapshot(self.store.snapshots, snapshot_id=snapshot_id)
        return list(self.store.live.at(snapshot).entries())

    def partition_path(self, partition: bytes) -> str:
        """Folder of a serialized partition below the table, such as `dt=2024-01-01`; empty where there is none."""
        return self.store.partition_path(partition)

    def level0_counts(self, snapshot: Snapshot, buckets: Iterable[tuple[bytes, int]]) -> list[int]:
        """Number of level-0 files of each bucket named; other buckets are not looked at, however many there are."""
        wanted = list(buckets)
        live = self.store.live.of_buckets(snapshot, wanted)
        return [sum(file.level == 0 for file in live.files_of(*bucket)) for bucket in wanted]

    def commit_rows(self, snapshot: Snapshot) -> CommitRows:
        """How many rows the commit of a snapshot wrote and deleted, as far as its files say."""
        return commit_rows(self.store, snapshot)

    def facts(self) -> dict[str, Any]:
        """What `describe` says, as values that JSON can hold."""
        return table_facts(self.store, self.name)

    def marked_rows(self, *, snapshot_id: int | None = None) -> dict[str, int]:
        """How many rows deletion vectors mark as deleted, by name of the data file; others have none."""
        snapshot = find_snapshot(self.store.snapshots, snapshot_id=snapshot_id)
        return marked_row_counts(self.store, snapshot)

    def describe(self) -> str:
        """The table in words and the levels of each bucket as a drawing."""
        return describe_table(self.store, self.name)

    def expire_snapshots(
        self,
        *,
        retain_max: int | None = None,
        retain_min: int | None = None,
        older_than_ms: int | None = None,
    ) -> ExpireResult:
        """Removes old snapshots and the files only they name; what is not given comes from the table's options.

        `older_than_ms` is an age: snapshots replaced within that time stay.
        """
        return expire_snapshots(
            self.store, retain_max=retain_max, retain_min=retain_min, time_retained_ms=older_than_ms
        )

    def remove_orphan_files(self, *, older_than_ms: int = DEFAULT_AGE_MS, dry_run: bool = False) -> OrphanResult:
        """Removes files that nothing names and that are older than the age given (a crash leaves such files).

        Spill folders that dead processes have left on this machine go as well.
        """
        if not dry_run:
            self.store.env.sweep_scratch()
        return remove_orphan_files(self.store, older_than_ms=older_than_ms, dry_run=dry_run)

    def created_ms(self) -> int:
        """When the table was created, in milliseconds since 1970: this tells it from an earlier one of its name, and
        stays with it when it is renamed.
        """
        return self.store.schemas.created_ms()

    def latest_schema_id(self) -> int | None:
        """Id of the newest schema, which may be newer than this object's; None where the table was dropped."""
        latest = self.store.schemas.latest()
        return None if latest is None else latest.id

    def alter(self, *changes: SchemaChange, allow_lossy: bool = False) -> Table:
        """Changes the schema, all changes or none, and returns the table opened with the new one.

        A change of type that could lose or break stored values is refused, naming what could happen, unless
        `allow_lossy` says that it may.

        Raises `InvalidRequestError` naming the change that is refused, `ConflictError` when others change the schema
        all the time.
        """
        return Table(alter_table(self.store, changes, allow_lossy=allow_lossy))

    def with_options(self, options: Mapping[str, object]) -> Table:
        """The same table with options overridden for this object only."""
        texts = option_texts(options)
        store = self.store
        return Table(open_table_store(store.env, store.location, options=texts, name=store.name, claims=store.claims))
