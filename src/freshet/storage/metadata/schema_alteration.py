"""Changes of a table's schema: the next schema file, upon what others change meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from freshet.storage.exceptions import ConflictError, NotFoundError
from freshet.storage.metadata.emitted_rows import check_emitted
from freshet.storage.metadata.present_rows import check_present
from freshet.storage.metadata.table_store import TableStore, open_table_store, own_core_options
from freshet.storage.schema.change import SchemaChange
from freshet.storage.schema.changed_schema import apply_changes
from freshet.storage.schema.validation import validate_changed_schema

ALTER_ATTEMPTS: Final = 10


def alter_table(store: TableStore, changes: Sequence[SchemaChange], *, allow_lossy: bool) -> TableStore:
    """The table at its schema with these changes, upon what others change meanwhile; raises as `Table.alter` says."""
    store.claims.check_writable()
    store.check_is_there()  # the next table of the name would get the columns of this one
    for _ in range(ALTER_ATTEMPTS):
        current = store.schemas.latest()
        if current is None:
            raise NotFoundError(
                f"table {store.name} was dropped or renamed while it was open; there is nothing to alter",
                table=store.name,
            )
        latest = store.snapshots.latest()
        changed = apply_changes(
            current,
            changes,
            has_snapshot=latest is not None,
            time_ms=store.env.now_ms(),
            allow_lossy=allow_lossy,
        )
        validate_changed_schema(current, changed)
        old, new = (own_core_options(schema, store.paths.branch_name) for schema in (current, changed))
        check_emitted(store.name, old, new, store.manifests, latest)
        check_present(store.name, current, changed, store.manifests, latest, allow_lossy=allow_lossy)
        if store.claims.claim_schema(changed):
            return open_table_store(
                store.env,
                store.paths.location,
                name=store.name,
                claims=store.claims,
                branch=store.paths.branch_name,
            )
    raise ConflictError(
        f"table {store.name}: the schema was changed by others {ALTER_ATTEMPTS} times; try again", table=store.name
    )
