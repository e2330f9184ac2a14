"""`$buckets`: the buckets that have files at a snapshot, by partition and number; -2 has rows that wait for theirs.

Source: MERGING.md §6.6; FORMAT.md §8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.system_tables.definition import Columns, MetadataRows, SystemTableDefinition, fields_of
from freshet.storage.system_tables.partition_sums import file_sums
from freshet.storage.system_tables.value_texts import PartitionTexts

FIELDS: Final = fields_of(
    partition="STRING",
    bucket="INT NOT NULL",
    record_count="BIGINT NOT NULL",
    file_size_in_bytes="BIGINT NOT NULL",
    file_count="BIGINT NOT NULL",
    last_update_time="TIMESTAMP(3)",
)


def _source(store: TableStore, snapshot: Snapshot | None) -> MetadataRows:
    return MetadataRows(FIELDS, lambda: _columns(store, snapshot))


def _columns(store: TableStore, snapshot: Snapshot | None) -> Columns:
    sums = file_sums(store, snapshot, ["partition", "bucket"], only_real_buckets=False)
    texts = PartitionTexts(store).in_braces(sums["partition"].to_pylist())
    named = sums.set_column(sums.schema.get_field_index("partition"), "partition", texts)
    named = named.set_column(
        named.schema.get_field_index("last_update_time"),
        "last_update_time",
        named["last_update_time"].cast(pa.timestamp("ms")),
    )
    ordered = named.sort_by([("partition", "ascending"), ("bucket", "ascending")]).combine_chunks()

    def column(name: str) -> Callable[[], pa.Array[Any]]:
        return lambda: ordered[name].combine_chunks()

    return {field.name: column(field.name) for field in FIELDS}


BUCKETS: Final = SystemTableDefinition("buckets", "its buckets, with rows and bytes", _source, FIELDS, travels=True)
