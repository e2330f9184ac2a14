"""`$consumers`: streaming readers that have a name, and the snapshot each wants next.

Source: MERGING.md §6.6; FORMAT.md §12.
"""

from __future__ import annotations

from typing import Final

from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.system_tables.definition import MetadataRows, SystemTableDefinition, columns_of, fields_of

FIELDS: Final = fields_of(consumer_id="STRING NOT NULL", next_snapshot_id="BIGINT NOT NULL")


def _source(store: TableStore, _snapshot: Snapshot | None) -> MetadataRows:
    return MetadataRows(FIELDS, lambda: columns_of(FIELDS, sorted(store.consumers.positions().items())))


CONSUMERS: Final = SystemTableDefinition("consumers", "streaming readers that have a name", _source, FIELDS)
