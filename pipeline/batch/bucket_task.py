"""One task of a micro-batch, in a Python worker: routed rows in, data files written, commit messages out.

    1. gather the rows of the task and take them in input order, in portions where they are many
    2. set aside dead letters, count what was skipped, fill in unavailable values
    3. turn carriers back into the table's types; split by (table partition, bucket)
    4. write level 0 of each bucket and compact as the table's options say
    5. write the dead letters into files of their table
    6. tell the driver, which alone commits

A task may run twice, even at the same time (retry, speculation, a driver that was declared dead): file names are
random and nothing is visible before the commit, so the loser leaves files that nobody names.

Workers live for many batches: the table's store, with its cache of manifests, is kept per process and handed the base
snapshot that the driver pinned, so a bucket is restored by reading only manifests that are new.

Source: design §1.5, §1.6.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.batch.dead_letters import dead_letter_rows
from freshet.pipeline.batch.gathered_rows import GatheredRows
from freshet.pipeline.batch.routed_rows import (
    BUCKET,
    DATA_PREFIX,
    KIND,
    NOTES,
    ORDER_FIELDS,
    ORDER_PREFIX,
    REASON,
    SUB,
    TAG,
    TAG_DATA,
    TAG_DEAD,
    TAG_SKIPPED,
)
from freshet.pipeline.batch.task_result import TaskResult, encode_error, encode_result
from freshet.pipeline.batch.unavailable_values import UnavailableValues
from freshet.pipeline.decode.carriers import carrier_arrow_type, restore_array
from freshet.storage.codec.binary_row import distinct_rows
from freshet.storage.exceptions import NotFoundError, RetryableError, StorageError
from freshet.storage.io.env import local_env
from freshet.storage.merge.take import take_rows
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import EMPTY_ROW
from freshet.storage.model.row_kind import ROW_KIND_COLUMN
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.write.table_writer import TableWriter

IGNORED: Final = "ignore-delete or ignore-update-before"
"""Why rows of plain frames are skipped; `transforms` skips such records before they become rows."""

HALF_APPLIED: Final = "key change of which only the deletion was applied"
"""Note of records that are dead letters for their new row, which lies in another task than the deletion."""

_STORES_MAX: Final = 16
"""Tables that one worker keeps open."""


@dataclass(frozen=True, slots=True)
class BucketTask:
    """The work of each task of one micro-batch; a value that travels to the workers.

    `schema_id` and `base_snapshot_id` are pinned by the driver; `options` are those given beside the table's own.
    """

    location: str
    schema_id: int
    options: tuple[tuple[str, str], ...]
    base_snapshot_id: int | None
    pipeline: str
    micro_batch_id: int
    dead_letter_location: str | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Takes the rows of one Spark partition, gives one row: the result. Nothing in, nothing out."""
        clock = _Clock()
        gathered = GatheredRows(local_env())
        try:
            for batch in batches:
                gathered.add(batch)
            if not gathered.row_count:
                return
            clock.lap("receive")
            yield encode_result(self._run(gathered, clock))
        except RetryableError:
            raise
        except StorageError as error:
            yield encode_error(error)
            return
        finally:
            gathered.close()
        _forget_garbage()

    def _run(self, gathered: GatheredRows, clock: _Clock) -> TaskResult:
        store = _open_store(self.location, self.schema_id, self.options)
        snapshot = self._base_snapshot(store)
        unavailable = UnavailableValues(store, snapshot)
        rows = gathered.table()
        unavailable.watch(rows)
        counts = _Counts()
        writer = TableWriter(store, base_snapshot=snapshot, parallelism=1)
        try:
            for portion in gathered.portions(_order_columns(rows)):
                sorted_out = sort_out(portion, unavailable)
                counts.add(sorted_out)
                clock.lap("sort")
                data = restore_rows(sorted_out.data, store.schema)
                clock.lap("restore")
                for partition, bucket, part in split_rows(data, sorted_out.data, store.schema):
                    counts.add_ignored(part.num_rows - writer.write_bucket(partition, bucket, part))
                clock.lap("write")
            messages = writer.prepare_commit(self.micro_batch_id)
            clock.lap("flush and compact")
        finally:
            writer.close()
        dead_letter_messages = self._write_dead_letters(counts.dead_rows())
        clock.lap("dead letters")
        return TaskResult(
            messages=tuple(messages),
            dead_letter_messages=dead_letter_messages,
            row_count=gathered.row_count,
            applied=counts.applied,
            dead=counts.dead,
            skipped=counts.skipped,
            notes=counts.notes,
            restored=counts.restored,
            keys_merged=writer.merge_metrics.keys_merged,
            keys_looped=writer.merge_metrics.keys_looped,
            times_ms=clock.times_ms,
        )

    def _base_snapshot(self, store: TableStore) -> Snapshot | None:
        """The pinned snapshot, or the latest where that has expired: any later one will do to restore a bucket."""
        if self.base_snapshot_id is None:
            return None
        try:
            return store.snapshots.snapshot(self.base_snapshot_id)
        except NotFoundError:
            return store.snapshots.latest()

    def _write_dead_letters(self, dead: pa.Table | None) -> tuple[CommitMessage, ...]:
        if dead is None or not dead.num_rows:
            return ()
        assert self.dead_letter_location is not None, "only pipelines with a dead-letter table send dead letters"
        store = _open_store(self.dead_letter_location, 0, (("write-only", "true"),))
        writer = TableWriter(store, base_snapshot=None, parallelism=1)
        writer.write(dead_letter_rows(dead, pipeline=self.pipeline, micro_batch_id=self.micro_batch_id))
        messages = writer.prepare_commit()
        writer.close()
        return tuple(messages)


@dataclass(frozen=True, slots=True)
class SortedOut:
    """Rows by what becomes of them; `dead` and `skipped` are None for plain frames, which have neither."""

    data: pa.Table
    dead: pa.Table | None = None
    skipped: pa.Table | None = None
    restored: int = 0


def sort_out(rows: pa.Table, unavailable: UnavailableValues) -> SortedOut:
    """Splits ordered rows by tag and fills in unavailable values; what cannot be filled in is a dead letter."""
    if TAG not in rows.column_names:
        return SortedOut(rows)
    tags = rows.column(TAG).to_numpy()
    data = rows if not tags.any() else _where(rows, tags == TAG_DATA)
    filled = unavailable.fill(data)
    dead = pa.concat_tables([_where(rows, tags == TAG_DEAD), filled.dead])
    return SortedOut(filled.rows, dead, _where(rows, tags == TAG_SKIPPED), filled.count)


def restore_rows(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """The table's columns in its own types, with `_ROW_KIND` where the rows have one."""
    columns = []
    for place, field in enumerate(schema.fields):
        column: Any = rows.column(f"{DATA_PREFIX}{place}")
        if column.type != carrier_arrow_type(field.type) or column.type != arrow_schema([field])[0].type:
            chunks = [restore_array(chunk, field.type) for chunk in column.chunks]
            column = pa.chunked_array(chunks, arrow_schema([field])[0].type)
        columns.append(column)
    names = list(schema.column_names)
    if KIND in rows.column_names:
        columns.append(rows.column(KIND))
        names.append(ROW_KIND_COLUMN)
    return pa.Table.from_arrays(columns, names=names)


def split_rows(data: pa.Table, routed: pa.Table, schema: TableSchema) -> Iterator[tuple[bytes, int, pa.Table]]:
    """The rows of each (table partition, bucket), in input order; `routed` has the bucket of each row of `data`."""
    if not data.num_rows:
        return
    partitions, codes = [EMPTY_ROW], np.zeros(data.num_rows, dtype=np.int64)
    if schema.partition_keys:
        arrays = [data.column(name) for name in schema.partition_keys]
        partitions, codes = distinct_rows(arrays, schema.types_of(schema.partition_keys))
    buckets = routed.column(BUCKET).to_numpy().astype(np.int64)
    width = int(buckets.max()) + 1
    groups = codes * width + buckets
    if (groups == groups[0]).all():
        yield partitions[int(groups[0]) // width], int(groups[0]) % width, data
        return
    order = np.argsort(groups, kind="stable")
    ordered = take_rows(data, order)
    present, starts = np.unique(groups[order], return_index=True)
    ends = [*starts[1:].tolist(), data.num_rows]
    for group, start, end in zip(present.tolist(), starts.tolist(), ends, strict=True):
        yield partitions[group // width], group % width, ordered.slice(start, end - start)


class _Counts:
    """What became of the records, over all portions of a task."""

    def __init__(self) -> None:
        self.applied = 0
        self.restored = 0
        self.dead: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self._dead_rows: list[pa.Table] = []

    def add(self, sorted_out: SortedOut) -> None:
        """Adds one portion."""
        self.applied += _record_count(sorted_out.data)
        self.restored += sorted_out.restored
        self.dead.update(_reason_counts(sorted_out.dead))
        self.skipped.update(_reason_counts(sorted_out.skipped))
        self._add_half_applied(sorted_out.dead)
        self.notes.update(_note_counts(sorted_out.data))
        if sorted_out.dead is not None and sorted_out.dead.num_rows:
            self._dead_rows.append(sorted_out.dead)

    def add_ignored(self, count: int) -> None:
        """Rows that the writer did not take, because the table ignores their kind."""
        if count:
            self.applied -= count
            self.skipped[IGNORED] += count

    def _add_half_applied(self, dead: pa.Table | None) -> None:
        """Records whose second row is dead here, while the task of their first row counts them as applied.

        They are dead letters, although the deletion of their old key is written: the sums of all tasks put that right,
        and a note says how many they are.
        """
        if dead is None or not dead.num_rows:
            return
        seconds = dead.filter(pc.not_equal(dead.column(SUB), 0))
        if seconds.num_rows:
            self.applied -= seconds.num_rows
            self.dead.update(_counted(seconds.column(REASON)))
            self.notes[HALF_APPLIED] += seconds.num_rows

    def dead_rows(self) -> pa.Table | None:
        """The rows of all dead letters."""
        return pa.concat_tables(self._dead_rows) if self._dead_rows else None


def _order_columns(rows: pa.Table) -> list[str]:
    names = [f"{ORDER_PREFIX}{place}" for place in range(len(ORDER_FIELDS))]
    return [name for name in names if name in rows.column_names]


def _where(rows: pa.Table, mask: Any) -> pa.Table:
    return rows.filter(pa.array(mask))


def _record_count(rows: pa.Table) -> int:
    """Records, not rows: a key change is two rows of one record, the second with another place in it."""
    if SUB not in rows.column_names:
        return rows.num_rows
    return int(np.count_nonzero(rows.column(SUB).to_numpy() == 0))


def _reason_counts(rows: pa.Table | None) -> Mapping[str, int]:
    if rows is None or not rows.num_rows:
        return {}
    return _counted(rows.filter(pc.equal(rows.column(SUB), 0)).column(REASON))


def _counted(reasons: Any) -> Mapping[str, int]:
    counted: Any = pc.value_counts(pc.fill_null(reasons, "unknown"))
    return {entry["values"]: entry["counts"] for entry in counted.to_pylist()}


def _note_counts(data: pa.Table) -> Mapping[str, int]:
    if NOTES not in data.column_names:
        return {}
    counted: Any = pc.value_counts(pc.list_flatten(data.column(NOTES)))
    return {entry["values"]: entry["counts"] for entry in counted.to_pylist()}


@lru_cache(_STORES_MAX)
def _open_store(location: str, schema_id: int, options: tuple[tuple[str, str], ...]) -> TableStore:
    return open_table_store(local_env(), location, options=dict(options) or None, schema_id=schema_id)


class _Clock:
    """Milliseconds between laps."""

    def __init__(self) -> None:
        self.times_ms: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.times_ms[name] = self.times_ms.get(name, 0.0) + (now - self._last) * 1000
        self._last = now


_is_frozen = False


def _forget_garbage() -> None:
    """Spark's daemon collects garbage after every task; what the first task loaded need not be looked at each time."""
    global _is_frozen
    if not _is_frozen:
        gc.collect()
        gc.freeze()
        _is_frozen = True
