"""`$manifests`: the manifests of a snapshot, of its base, its delta and its changelog, in this order.

Source: MERGING.md §6.6; FORMAT.md §4.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from freshet.storage.metadata.live_files import changelog_manifests, data_manifests_at_once
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import ManifestFileMeta
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.system_tables.definition import Columns, MetadataRows, SystemTableDefinition, fields_of
from freshet.storage.system_tables.value_texts import PartitionTexts

FIELDS: Final = fields_of(
    file_name="STRING NOT NULL",
    file_size="BIGINT NOT NULL",
    num_added_files="BIGINT NOT NULL",
    num_deleted_files="BIGINT NOT NULL",
    schema_id="BIGINT NOT NULL",
    min_partition_stats="STRING",
    max_partition_stats="STRING",
    min_row_id="BIGINT",
    max_row_id="BIGINT",
)


def _source(store: TableStore, snapshot: Snapshot | None) -> MetadataRows:
    return MetadataRows(FIELDS, lambda: _columns(store, snapshot))


def _columns(store: TableStore, snapshot: Snapshot | None) -> Columns:
    found: list[ManifestFileMeta] = []
    if snapshot is not None:
        of_changes = changelog_manifests(store.manifests, snapshot)
        found = [*data_manifests_at_once(store.manifests, snapshot), *of_changes]
    partitions = PartitionTexts(store)

    def numbers(value: Callable[[ManifestFileMeta], int | None]) -> Callable[[], pa.Array[Any]]:
        return lambda: pa.array([value(each) for each in found], pa.int64())

    return {
        "file_name": lambda: pa.array([each.file_name for each in found], pa.string()),
        "file_size": numbers(lambda each: each.file_size_bytes),
        "num_added_files": numbers(lambda each: each.num_added_files),
        "num_deleted_files": numbers(lambda each: each.num_deleted_files),
        "schema_id": numbers(lambda each: each.schema_id),
        "min_partition_stats": lambda: partitions.in_braces([each.partition_stats.min_values for each in found]),
        "max_partition_stats": lambda: partitions.in_braces([each.partition_stats.max_values for each in found]),
        "min_row_id": numbers(lambda each: each.min_row_id),
        "max_row_id": numbers(lambda each: each.max_row_id),
    }


MANIFESTS: Final = SystemTableDefinition("manifests", "the manifests of its snapshot", _source, FIELDS, travels=True)
