"""One assigner of dynamic buckets, in a Python worker between two shuffles: the hashes of keys in, their buckets out.

1. gather the rows (`key_task`) and note their keys
2. give new keys their buckets (`storage.write.dynamic_router`)
3. pass the rows on, `_bucket` now the bucket; its report is the index files, as commit messages
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from freshet.pipeline.decode.outcomes import BUCKET
from freshet.pipeline.query.task.gathered_rows import GatheredRows
from freshet.pipeline.query.task.key_task import KeyTask, report_row
from freshet.pipeline.query.task.restored_rows import restore_rows
from freshet.pipeline.query.task.worker_table_cache import open_worker_table
from freshet.pipeline.query.wire.batch_pin import BatchPin
from freshet.storage.model.schema import TableSchema
from freshet.storage.table_engine import encode_commit_messages

if TYPE_CHECKING:
    from freshet.storage.write.dynamic_router import KeyAssigner


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
