"""Commits of a keyed table whose changes nobody told: it had `changelog-producer=none` then, and has a producer now.

Their rows are in the table but not in its changelog, so a reader of the changelog would pass over them in silence.
"""

from __future__ import annotations

from freshet.storage.changes.change_source import ChangeRules, ChangeSource
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import CommitKind, Snapshot


def is_untold(store: TableStore, rules: ChangeRules, snapshot: Snapshot) -> bool:
    """Whether the changelog that these rules read lacks the rows that a snapshot appended."""
    if (
        snapshot.schema_id == store.schema.id
        or not (rules.has_primary_key and rules.has_changelog)
        or rules.source(snapshot) is not ChangeSource.NOTHING
        or not (snapshot.commit_kind is CommitKind.APPEND and snapshot.delta_record_count)
    ):
        return False
    return not ChangeRules.of(store.at_schema(snapshot.schema_id).options).has_changelog


def untold_error(store: TableStore, which: str, remedy: str) -> InvalidRequestError:
    """The error of a reader; `which` says of which snapshots, with its verb, `remedy` how to read on."""
    return InvalidRequestError(
        f"the changelog of table {store.name} has a gap: {which} committed while it had changelog-producer=none, so "
        f"not all changes can be told. {remedy}",
        table=store.name,
        option="changelog-producer",
    )
