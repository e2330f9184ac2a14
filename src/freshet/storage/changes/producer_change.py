"""A change of `changelog-producer` between two commits: whether the changes after it go on where those before ended.

| rows of | none (told as they were written), input | lookup | full-compaction |
|---|---|---|---|
| level 0 | told | not yet | not yet |
| the levels between | told | told | not yet |
| the highest level | told | told | told |

Where files lie on a level that only one of the two producers takes for told, the next one tells their rows again, or
nobody ever does. After a full compaction there are none. Rows that wait for their bucket were told by no producer. A
log has rows as they are written, except with lookup.

`Table.alter` refuses such a change (`metadata.schema_alteration`), except from and to `none`; Apache Paimon makes it. A
reader of the changelog may have come out of `none` without rows of that time (`is_missing_changelog` looks), but
not go into it while rows are still to be told: a compaction with `none` tells nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from freshet.storage.changes.change_source import ChangeRules, ChangeSource
from freshet.storage.exceptions import InvalidRequestError, MissingFileError
from freshet.storage.metadata.live_files import base_manifests, entries_of, live_entries, without_deleted
from freshet.storage.metadata.schema_alteration import emitted_levels
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import ManifestEntry
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.options.choices import ChangelogProducer
from freshet.storage.options.core import CoreOptions

ToldLevels = Callable[[CoreOptions], Callable[[int], bool]]
"""By the options of a table, the levels whose rows were told."""

BEGIN_ANEW: Final = (
    "Begin anew with the rows of the table: without the consumer, checkpoint or log_state of this reader, scan.mode "
    "latest-full. Readers go on over a change of the producer where writers have ended and the table was compacted "
    "in full before it (freshet compact)"
)


def logged_levels(options: CoreOptions) -> Callable[[int], bool]:
    """The levels whose rows are in the log of a table, but for those committed without it."""
    lowest = 1 if options.changelog_producer.emits.by_lookup else 0
    return lambda level: level >= lowest


class ProducerChanges:
    """What one reader asks at each commit of another schema."""

    def __init__(self, store: TableStore, told: ToldLevels = emitted_levels, *, reads_upserts: bool = False) -> None:
        """`reads_upserts`: it may have read what came without a producer, as it was written."""
        self._store = store
        self._told = told
        self._reads_upserts = reads_upserts

    def check(self, told_by: int, snapshot: Snapshot, remedy: str = BEGIN_ANEW) -> None:
        """Raises `InvalidRequestError` where the changes of a snapshot do not go on where those before it ended, which
        were told as the options of schema `told_by` say; `remedy` is how to read on."""
        manifests = self._store.manifests
        self._check(
            told_by,
            snapshot.schema_id,
            lambda: without_deleted(entries_of(manifests, base_manifests(manifests, snapshot))),
            f"before snapshot {snapshot.id}",
            remedy,
        )

    def check_open(self, latest: Snapshot, schema_id: int) -> None:
        """The same for what comes after the latest snapshot, and is not committed yet."""
        manifests = self._store.manifests
        where = f"after snapshot {latest.id}"
        self._check(latest.schema_id, schema_id, lambda: live_entries(manifests, latest), where, BEGIN_ANEW)

    def _check(
        self, told_by: int, schema_id: int, files: Callable[[], Sequence[ManifestEntry]], where: str, remedy: str
    ) -> None:
        if told_by == schema_id or not self._store.schema.has_primary_key:
            return
        before, after = self._options(told_by), self._options(schema_id)
        producers = (before.changelog_producer, after.changelog_producer)
        if producers[0] is producers[1] or (producers[0] is ChangelogProducer.NONE and not self._reads_upserts):
            return
        was_told, is_told = self._told(before), self._told(after)
        try:
            reads_waiting = self._reads_upserts and ChangelogProducer.NONE in producers
            levels = [entry.file.level for entry in files() if entry.bucket >= 0 or reads_waiting]
        except MissingFileError:
            what = "and it is not known any more which changes had been told"
        else:
            differing = [level for level in levels if was_told(level) != is_told(level)]
            if not differing:
                return
            again = not is_told(differing[0])
            what = (
                f"while {len(differing)} of {len(levels)} data files were not compacted fully: their changes "
                f"{'were told and would be told again' if again else 'were not told and never will be'}"
            )
        raise InvalidRequestError(
            f"changelog-producer of table {self._store.name} was changed from {producers[0]} to {producers[1]} "
            f"{where}, {what}. {remedy}",
            table=self._store.name,
            option="changelog-producer",
        )

    def _options(self, schema_id: int) -> CoreOptions:
        store = self._store
        return (store if schema_id == store.schema.id else store.at_schema(schema_id)).options


def is_missing_changelog(store: TableStore, rules: ChangeRules, snapshot: Snapshot) -> bool:
    """Whether the changelog that these rules read lacks the rows that a snapshot of a keyed table appended, as nobody
    told its changes: the table had `changelog-producer=none` then, and has a producer now. A reader of the changelog
    would pass over them in silence."""
    if (
        snapshot.schema_id == store.schema.id
        or not (rules.has_primary_key and rules.has_changelog)
        or rules.source(snapshot) is not ChangeSource.NOTHING
        or not (snapshot.commit_kind is CommitKind.APPEND and snapshot.delta_record_count)
    ):
        return False
    return not ChangeRules.of(store.at_schema(snapshot.schema_id).options).has_changelog


def missing_changelog_error(store: TableStore, which: str, remedy: str) -> InvalidRequestError:
    """The error of a reader; `which` says of which snapshots, with its verb, `remedy` how to read on."""
    return InvalidRequestError(
        f"the changelog of table {store.name} has a gap: {which} committed while it had changelog-producer=none, so "
        f"not all changes can be told. {remedy}",
        table=store.name,
        option="changelog-producer",
    )
