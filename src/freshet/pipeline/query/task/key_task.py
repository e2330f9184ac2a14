"""The stage before the bucket tasks, where keys are looked at before rows go on: `AssignerTask`, `MoverTask`.

A task passes on what is no row of the table as it arrives, and gathers the rest. When all rows are there it gives those
that go on, then one row more, its report. A report crosses to a bucket task like any row, and reaches the driver with
that task's result. So it is there exactly once for the rows that are there, even if Spark computed some of them twice.

A mover has one share of the keys of a table whose rows move between partitions:

    1. gather the rows
    2. take the gathered rows in input order, in slices, and place them (`storage.write.moving_router`)
    3. pass on the rows that are to be written, with their bucket, kind and partition columns; the report: what the
       places were looked up at, and how many rows came

Rows are counted here: a key that moves is one row that comes, and two that are written.

An assigner of dynamic buckets takes the hashes of keys and gives their buckets:

    1. gather the rows and note their keys
    2. give new keys their buckets (`storage.write.dynamic_router`)
    3. pass the rows on, `_bucket` now the bucket; its report is the index files, as commit messages
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from freshet._frozen import Frozen, field
from freshet.pipeline.decode.carriers import carry_array
from freshet.pipeline.decode.outcomes import (
    BUCKET,
    DATA_PREFIX,
    KIND,
    ORDER_COLUMNS,
    RAW_VALUE,
    TAG,
    TAG_DATA,
    TAG_INDEX,
    UNAVAILABLE,
)
from freshet.pipeline.errors.repeating_errors import REPEATING_ERRORS, ReportedError, error_document
from freshet.pipeline.query.task.gathered_rows import GatheredRows
from freshet.pipeline.query.task.outcome_counts import OutcomeCounts
from freshet.pipeline.query.task.restored_rows import restore_rows
from freshet.pipeline.query.task.worker_table_cache import open_worker_table
from freshet.pipeline.query.wire.batch_pin import BatchPin, TaskPlace
from freshet.pipeline.query.wire.packed_rows import PackRule, packed_batches, unpacked_batches
from freshet.pipeline.query.wire.read_count import POSITION, ReadCount
from freshet.storage.exceptions import RetryableError, UnsupportedFeatureError
from freshet.storage.merge.gather import take_rows
from freshet.storage.model.row_kind import KIND_TEXTS, ROW_KIND_COLUMN
from freshet.storage.model.schema import TableSchema
from freshet.storage.table import TableHandle
from freshet.storage.table_engine import CommitMessage, decode_commit_messages, encode_commit_messages

if TYPE_CHECKING:
    from freshet.storage.place_index.index_database import KeyShare
    from freshet.storage.write.dynamic_router import KeyAssigner
    from freshet.storage.write.moving_router import KeyMover, MovedRows


INDEX: Final = "_index"
"""What an assigner reports, in rows that no decoder has made; NULL in all other rows."""


@dataclass(frozen=True, slots=True)
class KeyTask(ABC):
    """The work of each task of the stage; a value that travels to the workers.

    `columns` are the table's columns that `_d0` … hold, `share_count` into how many shares keys are divided: of each
    partition for assigners, of the table for movers.
    """

    table: TableHandle
    columns: tuple[str, ...]
    share_count: int
    schema: pa.Schema | None = None
    """Of the outcomes that come packed; None where rows come as they are."""
    rule: PackRule | None = None
    """How those that go on are packed."""

    def run(self, batches: Iterator[pa.RecordBatch], place: TaskPlace) -> Iterator[pa.RecordBatch]:
        """Takes the rows of one task and gives those that go on, and a report, packed where they came so."""
        if self.schema is None or self.rule is None:
            yield from self._rows(batches, place.pin(0))
            return
        for outcomes in self._rows(unpacked_batches(batches, self.schema), place.pin(0)):
            yield from packed_batches((task, 0, content) for task, content in self.rule.packed(outcomes))

    def _rows(self, batches: Iterator[pa.RecordBatch], pin: BatchPin) -> Iterator[pa.RecordBatch]:
        if pin.is_committed:
            yield from batches
            return
        shape: pa.Schema | None = None
        with closing(GatheredRows(self.table.env)) as gathered:
            for batch in batches:
                shape = batch.schema
                data = _data_of(batch)
                gathered.add(data)
                if data.num_rows < batch.num_rows:
                    yield batch.filter(pc.not_equal(batch.column(TAG), TAG_DATA))
            if shape is None or not gathered.row_count:
                return
            try:
                yield from self._placed(gathered, shape, pin)
            except RetryableError:
                raise
            except (ReportedError, *REPEATING_ERRORS) as error:
                document = error.document if isinstance(error, ReportedError) else error_document(error)
                yield report_row(shape, {"error": document})

    @abstractmethod
    def _placed(self, gathered: GatheredRows, shape: pa.Schema, pin: BatchPin) -> Iterator[pa.RecordBatch]:
        """The rows that go on, and the report (`report_row`)."""


class StageReports(Frozen):
    """What the stage has sent along with the rows."""

    messages: tuple[CommitMessage, ...] = ()
    applied: int = 0
    """Records that rows were made of, where the stage counts them (`MoverTask`)."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    read: ReadCount = field(default_factory=ReadCount)


def without_reports(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, StageReports]:
    """The batch without the reports of this stage, and what they say; raises an error that is among them."""
    is_outcomes = TAG in batch.schema.names
    if not is_outcomes and INDEX not in batch.schema.names:
        return batch, StageReports()
    if is_outcomes:
        is_report: Any = pc.equal(batch.column(TAG), TAG_INDEX)
        values = batch.column(RAW_VALUE)
    else:
        values = batch.column(INDEX)
        is_report = pc.is_valid(values)
        batch = batch.drop_columns([INDEX])
    if not pc.any(is_report).as_py():
        return batch, StageReports()
    reports = [orjson.loads(value) for value in values.filter(is_report).to_pylist()]
    read, skipped = ReadCount(), Counter[str]()
    for report in reports:
        if "error" in report:
            raise ReportedError(report["error"])
        skipped.update(report.get("skipped", {}))
        if "read" in report:
            read.add(ReadCount.from_document(report["read"]))
    messages = (message for report in reports for message in decode_commit_messages(report["messages"]))
    applied = sum(report.get("applied", 0) for report in reports)
    return batch.filter(pc.invert(is_report)), StageReports(tuple(messages), applied, skipped, read)


def _data_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of the table in a batch."""
    if TAG not in batch.schema.names:
        return batch
    is_data: Any = pc.equal(batch.column(TAG), TAG_DATA)
    return batch if pc.all(is_data).as_py() else batch.filter(is_data)


def report_row(shape: pa.Schema, document: dict[str, Any]) -> pa.RecordBatch:
    """A row of the frame that holds a report."""
    value = orjson.dumps(document, default=str)
    given: dict[str, Any] = {TAG: TAG_INDEX, RAW_VALUE: value} if TAG in shape.names else {INDEX: value, BUCKET: 0}
    arrays = [
        pa.array([given[field.name]], field.type) if field.name in given else pa.nulls(1, field.type) for field in shape
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=shape)


@dataclass(frozen=True, slots=True)
class MoverTask(KeyTask):
    """The work of each share."""

    def _placed(self, gathered: GatheredRows, shape: pa.Schema, pin: BatchPin) -> Iterator[pa.RecordBatch]:
        table = open_worker_table(self.table.at_schema(pin.schema_id, pin.schema_time_ms))
        is_outcomes = TAG in shape.names
        counts, read = OutcomeCounts(), ReadCount()
        share = self._share(gathered.batches()[0])
        with closing(table.engine.key_mover(base_snapshot_id=pin.base_snapshot_id, share=share)) as mover:
            for rows in gathered.slices(ORDER_COLUMNS if is_outcomes else (POSITION,)):
                _check_whole(rows, table.name)
                counts.add_data(rows, restored=0)
                if not is_outcomes:
                    read.add_positions(rows.column(POSITION))
                moved = mover.move(self._keys(rows, table.schema, mover))
                counts.add_ignored(moved.ignored_count)
                yield from self._written(rows, moved, table.schema).to_batches()
            messages = list(mover.finish())
        skipped, sums = dict(counts.skipped), read.to_document()
        yield report_row(
            shape,
            {
                "messages": encode_commit_messages(messages).decode(),
                "applied": counts.applied,
                "skipped": skipped,
                "read": sums,
            },
        )

    def _share(self, batch: pa.RecordBatch) -> KeyShare:
        """All rows of a task are of one share."""
        from freshet.storage.place_index.index_database import KeyShare

        return KeyShare(abs(batch.column(BUCKET)[0].as_py()) % self.share_count, self.share_count)

    def _keys(self, rows: pa.Table, schema: TableSchema, mover: KeyMover) -> pa.Table:
        keys = restore_rows(rows, schema, self.columns, only=mover.columns)
        return keys.append_column(ROW_KIND_COLUMN, rows.column(KIND))

    def _written(self, rows: pa.Table, moved: MovedRows, schema: TableSchema) -> pa.Table:
        """The rows as they cross."""
        taken = take_rows(rows, moved.rows)
        kind = taken.schema.field(KIND)
        kinds: Any = pa.array(moved.kinds)
        if pt.is_string(kind.type) or pt.is_large_string(kind.type):
            kinds = pa.array(np.array(KIND_TEXTS, object)[moved.kinds])
        replaced: dict[str, Any] = {BUCKET: pa.array(moved.buckets, pa.int32()), KIND: kinds.cast(kind.type)}
        for name in schema.partition_keys:
            column = moved.partition_columns.column(name).combine_chunks()
            replaced[f"{DATA_PREFIX}{self.columns.index(name)}"] = carry_array(column, schema.by_name[name].type)
        for name, column in replaced.items():
            position = taken.schema.get_field_index(name)
            taken = taken.set_column(position, taken.schema.field(position), column)
        return taken


def _check_whole(rows: pa.Table, table: str) -> None:
    """Raises where a change does not carry all values: they would be looked up where the key was."""
    if UNAVAILABLE in rows.column_names and rows.column(UNAVAILABLE).null_count < rows.num_rows:
        raise UnsupportedFeatureError(
            f"table {table}: a change does not carry the values of columns that it has not changed (TOAST), and rows "
            "of this table move between partitions, where the stored values are not looked up: set REPLICA IDENTITY "
            "FULL for the source table, or add the partition columns to the primary key",
            table=table,
        )


@dataclass(frozen=True, slots=True)
class AssignerTask(KeyTask):
    """The work of each assigner."""

    def _placed(self, gathered: GatheredRows, shape: pa.Schema, pin: BatchPin) -> Iterator[pa.RecordBatch]:
        table = open_worker_table(self.table.at_schema(pin.schema_id, pin.schema_time_ms))
        assigner = table.engine.key_assigner(
            base_snapshot_id=pin.base_snapshot_id, count=self.share_count, upon_nothing=pin.upon_nothing
        )
        with closing(assigner):
            for batch in gathered.batches():
                assigner.learn(*self._keys(batch, table.schema))
            assigner.settle()
            for batch in gathered.batches():
                yield self._with_buckets(batch, assigner, table.schema)
            messages = assigner.finish()
        if messages:
            yield report_row(shape, {"messages": encode_commit_messages(messages).decode()})

    def _with_buckets(self, batch: pa.RecordBatch, assigner: KeyAssigner, schema: TableSchema) -> pa.RecordBatch:
        position = batch.schema.get_field_index(BUCKET)
        buckets = pa.array(assigner.buckets(*self._keys(batch, schema)), pa.int32())
        return batch.set_column(position, batch.schema.field(position), buckets)

    def _keys(self, batch: pa.RecordBatch, schema: TableSchema) -> tuple[pa.Table, Any]:
        """The columns of the partition, and the hashes of the keys."""
        rows = restore_rows(pa.Table.from_batches([batch]), schema, self.columns, only=schema.partition_keys)
        return rows, batch.column(BUCKET).fill_null(0).to_numpy(zero_copy_only=False)
