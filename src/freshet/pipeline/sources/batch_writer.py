"""`df.write.format("freshet")` and INSERT: what Spark lets a Python data source write, which is rows without a shuffle.

Spark asks for no distribution of the rows: any task may have rows of every bucket and key.

| table | tasks | the process that commits |
|---|---|---|
| without keys | write files | commits them |
| keyed, `bucket` = n, no lookups | write level 0 | refuses a key that two tasks hold and nothing orders; commits |
| other keyed ones: `bucket` = -1, … | hand their rows over | writes and commits them, as `Table.append` does |

What is handed over is bounded (`STAGED_ROWS_MAX`, `STAGED_BYTES_MAX`). Of the rows of a key the last counts then, by
the number of its task and the position in it.

Names, types and options are checked when the write is planned, before any task runs. An error that the same rows would
meet again is a message of the task, so that Spark does not repeat it; the commit raises it.

Spark makes the writer in one process and pickles it for the tasks and for the process that commits. `abort` removes
files only where a task has failed: then nothing was committed. Otherwise the commit itself has failed, whose snapshot
may be there, and the files are left to `freshet orphans`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from freshet.pipeline.errors.repeating_errors import REPEATING_ERRORS, ErrorDocument, error_document, error_of
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.query.driver.schema_follow import check_names
from freshet.pipeline.query.task.restored_rows import restored_array
from freshet.pipeline.query.task.worker_table_cache import open_worker_table
from freshet.pipeline.spark.column_fit import fit_of, resolved_names
from freshet.storage.exceptions import InvalidRequestError as RefusedError
from freshet.storage.exceptions import RetryableError
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.row_kind import ROW_KIND_COLUMN
from freshet.storage.table import Table, TableHandle
from freshet.storage.table_engine import decode_commit_messages, encode_commit_messages

STAGED_ROWS_MAX: Final = 2_000_000
STAGED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Arrow bytes of all tasks together, uncompressed: they go through the memory of the driver, compressed."""

_LEVEL_0: Final = {"write-only": "true"}
_COMPRESSION: Final = "lz4"


@dataclass(frozen=True)
class TaskWrote(WriterCommitMessage):
    """What one task hands to the commit: messages of files, or its rows, or the error that it would meet again."""

    task: int
    messages: bytes | None = None
    staged: bytes = b""
    rows: int = 0
    size_bytes: int = 0
    error: ErrorDocument | None = None


class FreshetWriter(DataSourceArrowWriter):
    """Writes one frame into one table; `schema` is that of the frame, `dynamic` as in `Table.overwrite`."""

    def __init__(self, table: Table, schema: spark.StructType, *, overwrite: bool, dynamic: bool | None) -> None:
        """Raises `InvalidRequestError` where the frame does not fit the table."""
        logs = table.options.logs_changes or table.options.publishes_changes
        opened = table.with_options(table.engine.log.options_without()) if logs else table
        self._names = _checked_names(opened, schema)
        self._overwrite = overwrite
        self._dynamic = dynamic
        edits = opened.engine.edits
        if overwrite:
            edits.partitions(None, dynamic)
        edits.begin()  # refused where the table cannot be written
        self._is_direct = edits.need_no_shuffle
        self._handle: TableHandle = opened.handle
        latest = opened.latest_snapshot()
        self._base_id = None if latest is None else latest.id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """The rows of one task."""
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        try:
            table = open_worker_table(self._handle)
            batches = (self._restored(table, batch) for batch in iterator if batch.num_rows)
            return self._written(table, batches, task) if self._is_direct else self._staged(table, batches, task)
        except RetryableError:
            raise
        except REPEATING_ERRORS as error:
            return TaskWrote(task, error=error_document(error))

    def _restored(self, table: Table, batch: pa.RecordBatch) -> pa.Table:
        fields = table.schema.by_name
        columns = [
            column if name == ROW_KIND_COLUMN else restored_array(column, fields[name])
            for name, column in zip(self._names, batch.columns, strict=True)
        ]
        return pa.Table.from_arrays(columns, names=self._names)

    def _written(self, table: Table, batches: Iterator[pa.Table], task: int) -> TaskWrote:
        engine = table.with_options({**table.engine.dynamic_options, **_LEVEL_0}).engine
        writer = engine.task_writer(base_snapshot_id=self._base_id, number=task, upon_nothing=self._overwrite)
        try:
            rows = sum(writer.write(batch) for batch in batches)
            if not self._overwrite:
                writer.rebase(table.latest_snapshot())
            messages = writer.prepare_commit()
        finally:
            writer.close()
        return TaskWrote(task, encode_commit_messages(messages), rows=rows)

    def _staged(self, table: Table, batches: Iterator[pa.Table], task: int) -> TaskWrote:
        rows = size_bytes = 0
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression=_COMPRESSION)
        with pa.ipc.new_stream(sink, self._staged_schema(table), options=options) as stream:
            for batch in batches:
                rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
                _check_staged(table.name, rows, size_bytes)
                stream.write_table(batch.cast(self._staged_schema(table)))
        return TaskWrote(task, staged=sink.getvalue().to_pybytes() if rows else b"", rows=rows, size_bytes=size_bytes)

    def _staged_schema(self, table: Table) -> pa.Schema:
        known = arrow_schema(table.schema)
        kind = pa.field(ROW_KIND_COLUMN, pa.string())
        return pa.schema([kind if n == ROW_KIND_COLUMN else known.field(n).with_nullable(True) for n in self._names])

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """One commit of what all tasks have written; none where there are no rows and nothing is replaced."""
        tasks = sorted((each for each in messages if isinstance(each, TaskWrote)), key=lambda each: each.task)
        table = Table.of(self._handle)
        failed = next((each.error for each in tasks if each.error is not None), None)
        if failed is not None:
            self._discard(table, tasks)
            raise error_of(failed)
        if self._is_direct:
            self._commit_files(table, tasks)
        else:
            self._commit_rows(table, tasks)

    def _commit_files(self, table: Table, tasks: Sequence[TaskWrote]) -> None:
        edits = table.engine.edits
        partitions = edits.partitions(None, self._dynamic) if self._overwrite else None
        joined = edits.joined_rows([decode_commit_messages(each.messages) for each in tasks if each.messages])
        edit = edits.begin(partitions=partitions, compacts=False)
        edit.earlier()
        edit.commit(joined)

    def _commit_rows(self, table: Table, tasks: Sequence[TaskWrote]) -> None:
        _check_staged(table.name, sum(each.rows for each in tasks), sum(each.size_bytes for each in tasks))
        batches = (batch for each in tasks if each.staged for batch in pa.ipc.open_stream(each.staged))
        rows = pa.RecordBatchReader.from_batches(self._staged_schema(table), batches)
        if self._overwrite:
            table.overwrite(rows, dynamic=self._dynamic)
        elif any(each.rows for each in tasks):
            table.append(rows)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Removes the files of the tasks that have succeeded, where another has failed."""
        if any(each is None for each in messages):
            self._discard(Table.of(self._handle), [each for each in messages if isinstance(each, TaskWrote)])

    def _discard(self, table: Table, tasks: Sequence[TaskWrote]) -> None:
        for each in tasks:
            if each.messages is not None:
                table.engine.discard(decode_commit_messages(each.messages))


def _checked_names(table: Table, schema: spark.StructType) -> list[str]:
    """The table's names of the frame's columns; Spark tells a data source nothing of case, so that none counts."""
    try:
        names = resolved_names(schema.fieldNames(), table.schema, by_case=False)
        check_names(names, table.schema)
        for name, field in zip(names, schema, strict=True):
            if name != ROW_KIND_COLUMN:
                fit_of(field.dataType, table.schema.by_name[name])
            elif not isinstance(field.dataType, spark.StringType):
                raise InvalidRequestError(
                    f"column {ROW_KIND_COLUMN} has texts such as '+I', not {field.dataType.simpleString()}"
                )
    except InvalidRequestError as error:
        raise InvalidRequestError(f"table {table.name}: {error}") from error
    return names


def _check_staged(table: str, rows: int, size_bytes: int) -> None:
    if rows > STAGED_ROWS_MAX or size_bytes > STAGED_BYTES_MAX:
        raise RefusedError(
            f"table {table}: df.write and INSERT hand the rows of a table with dynamic buckets (bucket=-1), bucket=-2 "
            f"or lookups to one process, at most {STAGED_ROWS_MAX:,} rows and {STAGED_BYTES_MAX >> 20} MB; these are "
            "more. Nothing was written. Call freshet.write(df, table, …), which writes any number of rows in parallel",
            table=table,
        )
