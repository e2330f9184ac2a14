"""Rows that were written for other options than the table has when they are committed.

Whoever writes rows tells their changes as the schema says that it has: `input` with the rows, the others later. The
snapshot has the newest schema, and by that one readers look for them.

| written for | committed at | their changes would be |
|---|---|---|
| none, lookup, full-compaction | input | never told |
| input | lookup, full-compaction | told again by a compaction |

Such a commit is refused; the same rows, written again, are told once. `Table.alter` refuses the change where rows are
committed already (`metadata.emitted_rows`). What was written with deletion vectors is refused by a table without, and
the reverse (`maintenance.vector_switch`): rows would show twice, or not.
"""

from __future__ import annotations

from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.exceptions import ConflictError
from freshet.storage.metadata.present_rows import VECTORS, reinterpreted
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import EntryKind
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.options.choices import ChangelogProducer


def refuse_other_meaning(store: TableStore, change: SnapshotChange, newest_schema_id: int) -> None:
    """Raises `ConflictError` for files of a writer that opened the table before an option that says what rows are there
    was changed: it merged them, and compacted others, as the table does not."""
    added = [entry.file.schema_id for entry in change.entries if entry.kind is EntryKind.ADD]
    written_by = max([store.schema.id, *added]) if change.kind is not CommitKind.APPEND else min(added, default=None)
    if written_by is None or written_by >= newest_schema_id:
        return
    old, new = store.schemas.schema(written_by), store.schemas.schema(newest_schema_id)
    for key in sorted(reinterpreted(old, new)):
        if key == VECTORS or store.schema.has_primary_key:
            raise ConflictError(
                f"table {store.name}: {key} was changed while the files of this commit were written; nothing "
                "was committed. Open the table again and write them again; a pipeline does so when it is started again",
                table=store.name,
                option=key,
            )


def refuse_other_producer(store: TableStore, change: SnapshotChange, newest_schema_id: int) -> None:
    """Raises `ConflictError` where the table above applies. Reads schemas only where one is newer than the rows."""
    if change.kind is not CommitKind.APPEND or not store.schema.has_primary_key:
        return
    written = {entry.file.schema_id for entry in change.entries if entry.kind is EntryKind.ADD and entry.bucket >= 0}
    older = written - {newest_schema_id}
    if not older:
        return
    new = store.at_schema(newest_schema_id).options.changelog_producer
    for schema_id in sorted(older):
        old = store.at_schema(schema_id).options.changelog_producer
        if new is not ChangelogProducer.NONE and old.emits.at_flush != new.emits.at_flush:
            raise ConflictError(
                f"table {store.name}: its changelog-producer was changed from {old} to {new} while the rows of this "
                "commit were written, and their changes would be told twice or never; nothing was committed. Open the "
                "table again and write them again; a pipeline does so when it is started again",
                table=store.name,
            )
