"""One assigner of dynamic buckets, in a Python worker between two shuffles: the hashes of keys in, their buckets out.

    1. as rows arrive: pass on what is no row of the table, gather the rest and note its keys
    2. give new keys their buckets (`storage.write.key_assigner`)
    3. pass the rows on, `_bucket` now the bucket, then one row more: the index files, as commit messages

What the assigner reports crosses to a bucket task like any row, and reaches the driver with that task's result. So it
is there exactly once for the rows that are there, even if Spark computed some of them twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.batch.batch_pin import BatchPin, pin_of_this_task
from freshet.pipeline.batch.gathered_rows import GatheredRows
from freshet.pipeline.batch.read_count import ReadCount
from freshet.pipeline.batch.restored_rows import restore_rows
from freshet.pipeline.batch.routing import INDEX
from freshet.pipeline.batch.worker_tables import open_worker_table
from freshet.pipeline.decode.outcomes import BUCKET, RAW_VALUE, TAG, TAG_DATA, TAG_INDEX
from freshet.pipeline.errors.repeating_errors import REPEATING_ERRORS, ReportedError, error_document
from freshet.storage.exceptions import RetryableError
from freshet.storage.model.schema import TableSchema
from freshet.storage.table import TableHandle
from freshet.storage.table_engine import CommitMessage, KeyAssigner, decode_commit_messages, encode_commit_messages


@dataclass(frozen=True, slots=True)
class AssignerTask:
    """The work of each assigner; a value that travels to the workers. `assigner_count` is that of each partition,
    `columns` are the table's columns that `_d0` … hold."""

    table: TableHandle
    columns: tuple[str, ...]
    assigner_count: int
    pin: BatchPin | None = None
    table_index: int = 0

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Takes the rows of one Spark partition and gives them back with their buckets, and a report."""
        pin = self.pin or pin_of_this_task(self.table_index)
        if pin.is_committed:
            yield from batches
            return
        shape: pa.Schema | None = None
        with closing(GatheredRows(self.table.env)) as gathered:
            for batch in batches:
                shape = batch.schema
                data = data_of(batch)
                gathered.add(data)
                if data.num_rows < batch.num_rows:
                    yield batch.filter(pc.not_equal(batch.column(TAG), TAG_DATA))
            if shape is None:
                return
            try:
                yield from self._assigned(gathered, shape, pin)
            except RetryableError:
                raise
            except (ReportedError, *REPEATING_ERRORS) as error:
                document = error.document if isinstance(error, ReportedError) else error_document(error)
                yield report_row(shape, {"error": document})

    def _assigned(self, gathered: GatheredRows, shape: pa.Schema, pin: BatchPin) -> Iterator[pa.RecordBatch]:
        table = open_worker_table(self.table.at_schema(pin.schema_id, pin.schema_time_ms))
        assigner = table.engine.key_assigner(
            base_snapshot_id=pin.base_snapshot_id, count=self.assigner_count, upon_nothing=pin.upon_nothing
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


@dataclass(frozen=True, slots=True)
class StageReports:
    """What the stage before has sent along with the rows."""

    messages: tuple[CommitMessage, ...] = ()
    applied: int = 0
    """Records that rows were made of, where the stage counts them (`mover_task`)."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    read: ReadCount = field(default_factory=ReadCount)


def without_reports(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, StageReports]:
    """The batch without the reports of assigners, and what they say; raises an error that is among them."""
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


def data_of(batch: pa.RecordBatch) -> pa.RecordBatch:
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
