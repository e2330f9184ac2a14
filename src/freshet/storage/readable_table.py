"""A table as readers see it: its rows, its changes, its history; nothing here writes but the positions of consumers.

`Table` adds what changes it. The object is a view of one schema, taken when it was opened. It keeps no files open and
may be shared by threads; scans and streams may not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from freshet.storage.commit.lost_commits import LostCommit, find_lost_commits, lost_commit_named
from freshet.storage.metadata.table_handle import TableHandle
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arguments import TimeGiven, answering_callers
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.manifest import ManifestEntry
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.shown import HtmlShown
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.tag import Snapshots
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.secrets import shown_text
from freshet.storage.scan.read_snapshot import explained, find_in, find_snapshot
from freshet.storage.table_engine import TableEngine

if TYPE_CHECKING:
    from freshet.storage.changes.changelog import Changelog, EndGiven
    from freshet.storage.changes.stream import ChangeStream, LogStream
    from freshet.storage.commit.table_check import TableCheck
    from freshet.storage.filters.filter_text import FilterGiven
    from freshet.storage.lookup.file_lookup import FoundRows
    from freshet.storage.lookup.lookup_metrics import LookupMetrics
    from freshet.storage.scan.table_scan import TableScan
    from freshet.storage.status.finding import Finding
    from freshet.storage.status.table_status import TableStatus
    from freshet.storage.system_tables.system_table import SystemTable


@answering_callers
class ReadableTable(HtmlShown):
    """What reads a table, and describes it."""

    def __init__(self, store: TableStore) -> None:
        self.store = store

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r} at {shown_text(self.location)}, schema {self.schema.id})"

    def _html(self) -> str:
        from freshet.storage.describe import table_html

        return table_html(self.store)

    @property
    def name(self) -> str:
        """What messages call the table: `database.table`, or its folder."""
        return self.store.name

    @property
    def handle(self) -> TableHandle:
        """The table as a value for other processes; `InvalidRequestError` where they cannot reach it."""
        return self.store.handle

    @property
    def location(self) -> str:
        """Folder of the table; of a branch that of its schemas and snapshots."""
        return self.store.location

    @property
    def schema(self) -> TableSchema:
        """The schema this object was opened with."""
        return self.store.schema

    @property
    def options(self) -> CoreOptions:
        """The options this object works with: the table's own, and those given when it was opened."""
        return self.store.options

    @property
    def engine(self) -> TableEngine:
        """What drives the table over many processes: planning, tasks, commits, its log (`table_engine`)."""
        return TableEngine(self.store)

    @property
    def arrow_schema(self) -> pa.Schema:
        """Columns as Arrow types, as scans give them and writers want them."""
        return arrow_schema(self.store.schema)

    def status(self, *, detail: bool = True) -> TableStatus:
        """How the table is now, from its files alone: freshness against `freshet.freshness-target`, levels against what
        triggers compaction, what keeps old files, the commits of the last hour. Without `detail` it is what the newest
        snapshot says, with five requests to a store.
        """
        from freshet.storage.status.observe import observed

        with self.store.naming_dropped_table():
            return observed(self.store, detail=detail)

    def doctor(self, *, warehouse: str = "WAREHOUSE") -> list[Finding]:
        """What is wrong with the table, the worst first, from its files alone: each finding with evidence, cause,
        remedy, and the command that mends it, in which `warehouse` is the place of the table's catalog.
        """
        from freshet.storage.status.examination import examined
        from freshet.storage.status.findings import findings

        with self.store.naming_dropped_table():
            return findings(examined(self.store), warehouse)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: FilterGiven = None,  # noqa: A002  # the word every reader library uses
        *,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp_ms: TimeGiven | None = None,
        limit: int | None = None,
    ) -> TableScan:
        """Rows of one snapshot (the latest, or at most one of snapshot id, tag and timestamp), merged.

        `timestamp_ms` chooses the last snapshot committed at or before a time: epoch milliseconds, or a datetime with a
        time zone.
        `filter` is SQL text such as `"total > 10"` (`filter_text` says what it may hold), built with `col`, or a list
        as pyarrow takes them. Nothing is read yet. Raises `InvalidRequestError` for unknown columns and
        `NotFoundError` for a snapshot or tag that is not there.
        """
        from freshet.storage.filters.filter_text import to_predicate
        from freshet.storage.scan.table_scan import TableScan

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
        from freshet.storage.changes.change_source import ChangeRules, check_has_changelog
        from freshet.storage.changes.changelog import Changelog
        from freshet.storage.changes.history import ChangeHistory, change_range
        from freshet.storage.filters.filter_text import to_predicate

        otherwise = "read the rows as they were written with changes_between(…, mode='delta')"
        check_has_changelog(ChangeRules.of(self.options), self.name, otherwise)
        ids = change_range(
            ChangeHistory(self.store),
            from_snapshot=from_snapshot,
            to_snapshot=to_snapshot,
            from_timestamp=from_timestamp,
        )
        return Changelog(self.store, ids, columns=columns, filter=to_predicate(filter), limit=limit)

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
        from freshet.storage.changes.stream import ChangeStream, LogStream, SplitStream
        from freshet.storage.changes.stream_request import StreamRequest

        engine = self.engine
        is_logged = isolation is not None and engine.log.is_read(isolation, log_state)
        stream = engine.split_stream(
            StreamRequest(
                columns=columns,
                filter=filter,
                scan_mode=scan_mode,
                from_snapshot=from_snapshot,
                from_timestamp=from_timestamp,
                consumer_id=consumer_id,
                with_snapshot_id=with_snapshot_id,
                upserts=upserts or is_logged,
                isolation=isolation or "none",
            )
        )
        if isinstance(stream, SplitStream):
            return ChangeStream(stream, max_wait_s=max_wait_s)
        return LogStream(stream, max_wait_s=max_wait_s, state=log_state)

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
        changelog where the table has one, delta elsewhere. `changes/changelog.py` says more.

        Raises `InvalidRequestError` for points or a mode that make no sense, for `changelog` of a keyed table without
        a changelog producer and for `diff` without a key; `NotFoundError` for what is not there.
        """
        from freshet.storage.changes.changelog import changes_between
        from freshet.storage.filters.filter_text import to_predicate

        return changes_between(
            self.store,
            self.name,
            start,
            end,
            mode,
            columns=columns,
            filter=to_predicate(filter),
            limit=limit,
        )

    def lookup(
        self,
        keys: object,
        columns: Sequence[str] | None = None,
        *,
        snapshot_id: int | None = None,
        metrics: LookupMetrics | None = None,
    ) -> FoundRows:
        """The rows of some keys at a snapshot (the latest if none is named), without a scan of the table.

        `keys` is anything that is taken as rows, with every column of the primary key and one row for each key asked:
        an Arrow table, a frame, a list of dicts; `columns` are those wanted, all if None.
        The answer has the rows found and, for each key asked, the position of its row or -1. Columns are those of this
        object's schema; `metrics` counts how files were asked. Raises `InvalidRequestError` for a table without a
        primary key, a key column that is missing, NULL or of another type, and unknown columns; `NotFoundError` for a
        snapshot that is not there.
        """
        snapshot = find_in(self.store, snapshot_id=snapshot_id)
        with explained(self.store, snapshot):
            from freshet.storage.lookup.stored_rows import find_stored_rows
            from freshet.storage.write.input_rows import input_tables

            given = pa.concat_tables(input_tables(keys, self.schema.fields, table=self.name))
            return find_stored_rows(self.store, snapshot, given, columns, metrics)

    def system(self, name: str) -> SystemTable:
        """What the table says of itself, as a table: `snapshots`, `schemas`, `options`, `files`, `partitions`,
        `buckets`, `tags`, `branches`, `consumers`, `manifests`, `audit_log` or `ro`, with the columns, types and values
        that Apache Paimon gives. `Catalog.table("database.table$name")` gives the same.

        Raises `NotFoundError` for another name.
        """
        from freshet.storage.system_tables.system_table import SystemTable

        return SystemTable(self.store, name.removeprefix("$"))

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

    def snapshots(self) -> list[Snapshot]:
        """All snapshots that are still there, oldest first."""
        return Snapshots(self.store.snapshots.all())

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot; None for a table that nothing was committed to."""
        return self.store.snapshots.latest()

    def files(self, *, snapshot_id: int | None = None) -> list[ManifestEntry]:
        """Live data files of a snapshot, the latest if none is named."""
        snapshot = find_snapshot(self.store.snapshots, snapshot_id=snapshot_id)
        return list(self.store.live.at(snapshot).entries())

    def describe(self) -> str:
        """The table in words and the levels of each bucket as a drawing."""
        from freshet.storage.describe import describe_table

        return describe_table(self.store, self.name)

    def facts(self) -> dict[str, Any]:
        """What `describe` says, as values that JSON can hold."""
        from freshet.storage.describe import table_facts

        return table_facts(self.store, self.name)

    def lost_commits(self) -> list[LostCommit]:
        """Commits of Freshet that are not in the table: another program copied its snapshot over theirs
        (`commit.coordination`), or their writer was killed before they were made. The oldest first.

        One that is being made at this moment is among them.
        """
        return find_lost_commits(self.store)

    def lost_commit(self, manifest_list: str) -> LostCommit:
        """The commit of a delta manifest list, lost or not; `NotFoundError` where there is none."""
        return lost_commit_named(self.store, manifest_list)

    def check(self, *, all_snapshots: bool = False) -> TableCheck:
        """Looks for damage in the newest snapshot, or in all: lost files, and metadata that breaks an invariant of the
        format. Earlier snapshots may name files that the newest one does not need. In an object store, commits that
        another program has replaced are damage too.

        The rows of the data files are not read, but for deletes that remove rows: of these, those that still hold
        values of the row are counted (`deleted_values`). `freshet check-table` prints what it finds.
        """
        from freshet.storage.commit.table_check import check_table

        return check_table(self.store, all_snapshots=all_snapshots)
