"""One share of the keys of a table whose rows move between partitions, in a Python worker between two shuffles.

    1. gather the rows (`key_task`)
    2. take the gathered rows in input order, in slices, and place them (`storage.write.moving_router`)
    3. pass on the rows that are to be written, with their bucket, kind and partition columns; the report: what the
       places were looked up at, and how many rows came

Rows are counted here: a key that moves is one row that comes, and two that are written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from freshet.pipeline.decode.carriers import carry_array
from freshet.pipeline.decode.outcomes import BUCKET, DATA_PREFIX, KIND, ORDER_COLUMNS, TAG, UNAVAILABLE
from freshet.pipeline.query.task.gathered_rows import GatheredRows
from freshet.pipeline.query.task.key_task import KeyTask, report_row
from freshet.pipeline.query.task.outcome_counts import OutcomeCounts
from freshet.pipeline.query.task.restored_rows import restore_rows
from freshet.pipeline.query.task.worker_table_cache import open_worker_table
from freshet.pipeline.query.wire.batch_pin import BatchPin
from freshet.pipeline.query.wire.read_count import POSITION, ReadCount
from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.merge.gather import take_rows
from freshet.storage.model.row_kind import KIND_TEXTS, ROW_KIND_COLUMN
from freshet.storage.model.schema import TableSchema
from freshet.storage.table_engine import encode_commit_messages

if TYPE_CHECKING:
    from freshet.storage.place_index.key_rows import KeyShare
    from freshet.storage.write.moving_router import KeyMover, MovedRows


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
        from freshet.storage.place_index.key_rows import KeyShare

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
