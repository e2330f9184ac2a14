"""What a reader of the log asks of the table: where it begins, its snapshots, their splits, the consumer that
keeps from expiry what was not read, and rows of the log in today's columns.

Rows of the log come in the columns of the schema they were logged with, and are brought into those asked for by field
id, as old files are. Their kinds are well-formed after the filter too (`repaired_kinds`): a pair is in one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.casts.evolution import ReadColumn, map_columns
from freshet.storage.changes.change_source import ChangeRules, ChangeSource
from freshet.storage.changes.follower import LaterSchemas
from freshet.storage.changes.history import ChangeHistory
from freshet.storage.changes.planner import ChangePlanner
from freshet.storage.changes.producer_change import BEGIN_ANEW, ProducerChanges, logged_levels, missing_changelog_error
from freshet.storage.changes.stream_request import ConsumerProgress, StreamRequest, stream_start
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_field, arrow_schema
from freshet.storage.model.data_type import DataField
from freshet.storage.model.row_kind import KIND_TEXTS, ROW_KIND_COLUMN, SNAPSHOT_ID_COLUMN, RowKind
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.model.split import ChangeSplit
from freshet.storage.scan.table_scan import decoders

_SCHEMA_IDS_MAX: Final = 1000


class LogHistory:
    """The history of one table, for one reader."""

    def __init__(self, store: TableStore, request: StreamRequest) -> None:
        self._store = store
        self._request = request
        self._start = request.start
        self._reader = request.reader(store)
        self._filter = self._reader.scan_filter
        self._schemas = LaterSchemas(store, self._reader.columns)
        self._planner = ChangePlanner(store, self._filter)
        self._history = ChangeHistory(store)
        self._rules = ChangeRules.of(store.options)
        self._mapping = lru_cache(maxsize=16)(self._read_columns)
        self._producers = ProducerChanges(store, logged_levels, reads_upserts=True)
        self._schema_ids: dict[int, int] = {}
        """By snapshot, of those looked at last: each is the one before the next."""
        self._open_schema_id: int | None = None
        """The schema of the rows of an open batch that were read last."""
        self._progress = ConsumerProgress(store, request.consumer_id)

    @property
    def schema(self) -> pa.Schema:
        """Columns that come out; `_SNAPSHOT_ID` is NULL in rows that belong to no snapshot yet."""
        schema = self._reader.schema
        index = schema.get_field_index(SNAPSHOT_ID_COLUMN) if self._reader.with_snapshot_id else -1
        if index < 0 or not self._request.is_speculative:
            return schema
        return schema.set(index, schema.field(index).with_nullable(True))

    @property
    def consumer_id(self) -> str | None:
        """What keeps from expiry what was not read."""
        return self._progress.consumer_id

    @property
    def fields(self) -> tuple[DataField, ...]:
        """The table's columns among them."""
        return tuple(self._store.schema.by_name[name] for name in self._reader.columns)

    def start(self) -> tuple[int, Snapshot | None]:
        """Where the consumer stopped, else where the scan mode begins; of a table without snapshots, its first."""
        found = stream_start(self._store, self._history, self._start, self._progress.consumer_id)
        return (self._history.latest_id() + 1, None) if found is None else (found.next_id, found.state)

    def first_rows(self, snapshot_id: int) -> Snapshot:
        """The snapshot whose rows come first; `NotFoundError` when it has expired."""
        return self._history.first_rows(snapshot_id)

    def is_same(self, snapshot_id: int, time_ms: int | None) -> bool:
        """False where the table was rolled back, or created anew, since this snapshot was read."""
        found = self._history.find(snapshot_id) if snapshot_id > 0 else None
        if found is not None:
            return time_ms in (None, found.time_ms)
        self._store.check_is_there()
        return self._history.latest_id() >= snapshot_id

    def check_goes_on(self, before_id: int, snapshot: Snapshot, *, is_after_state: bool) -> None:
        """Raises `InvalidRequestError` where the changes of a snapshot do not go on where those up to another ended.

        `is_after_state`: this reader has the rows of that one, as its options say.
        """
        told_by: int | None = self._store.schema.id if is_after_state else self._schema_ids.get(before_id)
        if told_by is None and before_id > 0:
            before = self._history.find(before_id)
            told_by = None if before is None else before.schema_id
        if told_by is not None:
            self._producers.check(told_by, snapshot)
        if len(self._schema_ids) >= _SCHEMA_IDS_MAX:
            self._schema_ids.clear()
        self._schema_ids[snapshot.id] = snapshot.schema_id

    def left_text(self) -> str:
        """What is left of the history, for messages; `NotFoundError` where the table was dropped."""
        self._store.check_is_there()
        return self._history.left_text()

    def state_splits(self, snapshot: Snapshot) -> list[ChangeSplit]:
        """The rows whose changes were emitted up to a snapshot, as +I, in pieces."""
        with self._history.explained(snapshot):
            return self._planner.state(snapshot)

    def change_splits(self, snapshot: Snapshot) -> list[ChangeSplit]:
        """The changes of a snapshot from its files, in pieces."""
        with self._history.explained(snapshot):
            return self._planner.plan(snapshot, self._source(snapshot))

    def latest(self) -> Snapshot | None:
        """The newest snapshot."""
        return self._store.snapshots.latest()

    def find(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot, None when it is not committed yet; `OvertakenError` when it has expired or was rolled back."""
        found = self._history.find(snapshot_id)
        if found is None and self._history.latest_id() >= snapshot_id:
            return self._history.still_there(snapshot_id)
        return found

    def find_left(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot that may have expired; None then."""
        return self._history.find(snapshot_id)

    def has_changes(self, snapshot: Snapshot) -> bool:
        """True where the snapshot changes rows, also by an overwrite that the changelog leaves out."""
        return self._source(snapshot) is not ChangeSource.NOTHING

    def read_split(self, split: ChangeSplit, *, ahead: bool = False) -> Iterator[pa.RecordBatch]:
        """The rows of a piece, as the log would have them (`log.ignore-delete`)."""
        schema = self.schema
        with self._history.explained(self._history.still_there(split.snapshot_id)):
            for rows in self._reader.read(split, decoders() if ahead else None):
                batch = _as_inserts(rows) if self._store.options.log_ignore_delete else rows
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    def handed_over(self, next_id: int, *, is_state: bool) -> None:
        """What lies before this snapshot will not be asked for again; `is_state`: its rows are still being read."""
        self._progress.moved(next_id, is_state=is_state)

    def log_schema(self, schema_id: int) -> pa.Schema:
        """The columns of the table at a schema id."""
        store = self._store
        return arrow_schema(store.schema if schema_id == store.schema.id else store.schemas.schema(schema_id))

    def projected(self, schema_id: int, rows: pa.RecordBatch, snapshot_id: int | None = None) -> pa.RecordBatch:
        """Rows of the log (`_ROW_KIND` as codes first) in the columns asked for, filtered, with well-formed kinds.

        `snapshot_id` goes into `_SNAPSHOT_ID`, where that was asked for; None is a row of a batch that is open.
        """
        if snapshot_id is None:
            self._check_open(schema_id)
        count = rows.num_rows
        codes = rows.column(0).to_numpy(zero_copy_only=False)
        arrays = {
            each.wanted.name: each.convert(None if each.source is None else rows.column(each.source.name), count)
            for each in self._mapping(schema_id)
        }
        wanted = [arrays[name] for name in self._reader.columns]
        if self._filter is None and len(wanted) == len(self._store.schema.fields):
            return self._finished(wanted, codes, snapshot_id)
        kept = np.ones(count, np.bool_)
        if self._filter is not None:
            fields = [arrow_field(self._store.schema.by_name[name]) for name in arrays]
            table = pa.table(list(arrays.values()), schema=pa.schema(fields))
            numbered = table.append_column("", pa.array(np.arange(count)))
            kept = np.zeros(count, np.bool_)
            kept[numbered.filter(self._filter.predicate.to_arrow()).column("").to_numpy()] = True
        visible = pa.RecordBatch.from_arrays(wanted, names=list(self._reader.columns))
        kinds = repaired_kinds(codes, kept, unchanged_pairs(codes, visible))
        stays = np.flatnonzero(kinds >= 0)
        taken = visible.take(pa.array(stays))
        return self._finished(taken.columns, kinds[stays], snapshot_id)

    def wait(self, seconds: float) -> None:
        """Waits."""
        self._store.env.sleep_s(seconds)

    def _finished(self, arrays: Sequence[Any], codes: Any, snapshot_id: int | None) -> pa.RecordBatch:
        system = [pc.take(pa.array(KIND_TEXTS, pa.string()), pa.array(codes))]
        if self._reader.with_snapshot_id:
            system.append(pa.repeat(pa.scalar(snapshot_id, pa.int64()), len(codes)))
        return pa.RecordBatch.from_arrays([*arrays, *system], schema=self.schema)

    def _read_columns(self, schema_id: int) -> tuple[ReadColumn, ...]:
        """How the columns asked for, and those that the filter looks at, come out of rows of a schema."""
        store = self._store
        stored = store.schema if schema_id == store.schema.id else store.schemas.schema(schema_id)
        self._check_images(schema_id)
        names = set(self._reader.columns) | (self._filter.predicate.columns() if self._filter else frozenset())
        wanted = [field for field in store.schema.fields if field.name in names]
        self._schemas.notice(schema_id)
        earlier = f"schema {store.schema.id} of {store.location}" if stored.id > store.schema.id else None
        return map_columns(stored.fields, wanted, earlier=earlier)

    def _check_open(self, schema_id: int) -> None:
        """Rows that are shown before their commit: whether they go on where the latest snapshot ends.

        Those of the reader's own schema may follow the state of an earlier snapshot: their commit is checked.
        """
        if schema_id in (self._open_schema_id, self._store.schema.id):
            return
        latest = self.latest()
        if latest is not None:
            self._producers.check_open(latest, schema_id)
        self._open_schema_id = schema_id

    def _check_images(self, schema_id: int) -> None:
        """Raises where rows were logged without those they replace, and this reader tells both."""
        store = self._store
        if schema_id == store.schema.id or not store.options.logs_before_images:
            return
        if not store.at_schema(schema_id).options.logs_before_images:
            raise InvalidRequestError(
                f"the log of table {store.name} has changes of schema {schema_id}, whose options (changelog-producer, "
                "log.changelog-mode, log.ignore-delete) leave out the rows before updates, and this reader tells them. "
                f"{BEGIN_ANEW}",
                table=store.name,
                option="log.changelog-mode",
            )

    def _rules_of(self, snapshot: Snapshot) -> ChangeRules:
        """The rules of the producer that a snapshot was committed with."""
        if snapshot.schema_id == self._store.schema.id:
            return self._rules
        producer = self._store.at_schema(snapshot.schema_id).options.changelog_producer
        return replace(self._rules, producer=producer)

    def _source(self, snapshot: Snapshot) -> ChangeSource:
        rules = self._rules_of(snapshot)
        source = rules.source(snapshot)
        if (
            source is ChangeSource.DELTA
            and snapshot.delta_record_count
            and self._rules.has_changelog
            and not rules.has_changelog
        ):
            raise missing_changelog_error(self._store, f"snapshot {snapshot.id} was", BEGIN_ANEW)
        is_overwrite = snapshot.commit_kind is CommitKind.OVERWRITE and not snapshot.is_rescale
        is_silent = source is ChangeSource.NOTHING and is_overwrite
        return ChangeSource.REPLACED if is_silent else source

    def __reduce__(self) -> tuple[Any, ...]:
        return LogHistory, (self._store, self._request)


def _as_inserts(rows: pa.RecordBatch) -> pa.RecordBatch:
    """What `log.ignore-delete` leaves of changes: rows that are there now, as +I."""
    index = rows.schema.get_field_index(ROW_KIND_COLUMN)
    kept = rows.filter(pc.is_in(rows.column(index), pa.array(["+I", "+U"])))
    return kept.set_column(index, rows.schema.field(index), pa.array(["+I"] * kept.num_rows, pa.string()))


_DROPPED: Final = -1


def repaired_kinds(
    kinds: npt.NDArray[np.int8], kept: npt.NDArray[np.bool_], unchanged: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int8]:
    """The kind that each row comes out with after a filter or a projection, -1 for a row that does not: what comes out
    is a well-formed stream of changes.

    | of a pair -U, +U | comes out |
    |---|---|
    | both kept, different | -U, +U |
    | both kept, equal in the columns asked for | nothing |
    | only the -U kept | -D |
    | only the +U kept | +I |

    A pair is two adjacent rows, as changelog files and the log have them. A -U or +U whose other half is not there (the
    producer `input` logs what it is given) is left as it is.

    `unchanged[i]` says that row i equals row i + 1 in the columns asked for; it is asked of pairs only.
    """
    found = np.where(kept, kinds, np.int8(_DROPPED)).astype(np.int8)
    before = np.flatnonzero((kinds[:-1] == RowKind.UPDATE_BEFORE) & (kinds[1:] == RowKind.UPDATE_AFTER))
    old_kept, new_kept = kept[before], kept[before + 1]
    found[before[old_kept & ~new_kept]] = RowKind.DELETE
    found[before[~old_kept & new_kept] + 1] = RowKind.INSERT
    silent = before[old_kept & new_kept & unchanged[before]]
    found[silent] = _DROPPED
    found[silent + 1] = _DROPPED
    return found


def unchanged_pairs(kinds: npt.NDArray[np.int8], columns: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """True at each -U whose +U follows and is equal to it in these columns."""
    count = len(kinds)
    found = np.zeros(count, np.bool_)
    if count < 2:
        return found
    before = np.flatnonzero((kinds[:-1] == RowKind.UPDATE_BEFORE) & (kinds[1:] == RowKind.UPDATE_AFTER))
    if not len(before):
        return found
    same = np.ones(len(before), np.bool_)
    for column in columns.columns:
        same &= _equal(column.take(pa.array(before)), column.take(pa.array(before + 1)))
    found[before] = same
    return found


def _equal(left: pa.Array, right: pa.Array) -> npt.NDArray[np.bool_]:
    """Null equals null. Nested values count as different: a pair too many says nothing wrong."""
    codes = pa.concat_arrays([left, right])
    if pa.types.is_nested(codes.type):
        return np.zeros(len(left), np.bool_)
    encoded = codes.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
    return encoded[: len(left)] == encoded[len(left) :]  # type: ignore[no-any-return]
