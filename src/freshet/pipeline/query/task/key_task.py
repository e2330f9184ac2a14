"""The stage before the bucket tasks, where keys are looked at before rows go on: `assigner_task`, `mover_task`.

A task passes on what is no row of the table as it arrives, and gathers the rest. When all rows are there it gives those
that go on, then one row more, its report. A report crosses to a bucket task like any row, and reaches the driver with
that task's result. So it is there exactly once for the rows that are there, even if Spark computed some of them twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen, field
from freshet.pipeline.decode.outcomes import BUCKET, RAW_VALUE, TAG, TAG_DATA, TAG_INDEX
from freshet.pipeline.errors.repeating_errors import REPEATING_ERRORS, ReportedError, error_document
from freshet.pipeline.query.task.gathered_rows import GatheredRows
from freshet.pipeline.query.wire.batch_pin import BatchPin, TaskPlace
from freshet.pipeline.query.wire.packed_rows import PackRule, packed_batches, unpacked_batches
from freshet.pipeline.query.wire.read_count import ReadCount
from freshet.storage.exceptions import RetryableError
from freshet.storage.table import TableHandle
from freshet.storage.table_engine import CommitMessage, decode_commit_messages

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
    """Records that rows were made of, where the stage counts them (`mover_task`)."""
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
