"""Turns deletion vectors of a table that has rows on or off: a full compaction, then the schema, while nobody commits.

With vectors level 0 is hidden and levels are read without merging, without them vectors count for nothing. So the table
is first brought to where both read the same rows (`metadata.schema_alteration`). Rows that others commit between that
and the change of the schema are compacted after it; what was written for the old schema is refused from then on
(`commit.change_fit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from freshet.storage.exceptions import RetryableError
from freshet.storage.maintenance.table_compaction import compact_table
from freshet.storage.metadata.schema_alteration import VectorsUnsettledError, alter_table, are_vectors_settled
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.schema.change import SchemaChange

ATTEMPTS_MAX: Final = 10


def altered(store: TableStore, changes: Sequence[SchemaChange], *, allow_lossy: bool) -> TableStore:
    """The table with these changes; raises as `Table.alter` says, `RetryableError` where others commit all the time."""
    for _ in range(ATTEMPTS_MAX):
        try:
            result = alter_table(store, changes, allow_lossy=allow_lossy)
        except VectorsUnsettledError:
            compact_table(store.at_latest_schema(), full=True)
            continue
        if result.options.deletion_vectors_modifiable:
            _settle(result)
        return result
    raise RetryableError(
        f"table {store.name}: rows were committed all the while that it was compacted to change "
        "deletion-vectors.enabled; nothing was changed. Stop its writers for so long",
        table=store.name,
    )


def _settle(store: TableStore) -> None:
    """Compacts what was committed between the look at the table and the change."""
    before = store.at_schema(store.schema.id - 1).options if store.schema.id else store.options
    if before.deletion_vectors_enabled == store.options.deletion_vectors_enabled:
        return
    for _ in range(ATTEMPTS_MAX):
        latest = store.snapshots.latest()
        if latest is None or latest.schema_id == store.schema.id:
            return
        if are_vectors_settled(store.manifests, latest, has_key=store.schema.has_primary_key):
            return
        compact_table(store, full=True)
