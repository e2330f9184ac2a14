"""Which rows of a keyed table its changelog has emitted, and that a changed schema does not say otherwise.

| `changelog-producer` | has emitted the rows of |
|---|---|
| none, input | all levels: as they are written |
| lookup | levels from 1 on: a compaction of level 0 emits them |
| full-compaction | the highest level |

Where another producer, or another number of levels, says otherwise of rows that are there, their changes would be
emitted twice, or never: the readers' sums would be wrong. Apache Paimon changes the option all the same.
"""

from __future__ import annotations

from collections.abc import Callable

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.manifest_store import ManifestStore
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.choices import ChangelogProducer
from freshet.storage.options.core import CoreOptions


def emitted_levels(options: CoreOptions) -> Callable[[int], bool]:
    """The levels whose rows the changelog has emitted. Level 0 counts where changes are emitted as they are written,
    also of tables whose scans do not show it."""
    emits = options.changelog_producer.emits
    if emits.only_at_highest_level:
        highest = options.num_levels - 1
        return lambda level: level == highest
    lowest = 1 if emits.in_compactions else 0
    return lambda level: level >= lowest


def check_emitted(
    table: str, old: CoreOptions, new: CoreOptions, manifests: ManifestStore, snapshot: Snapshot | None
) -> None:
    """Raises `InvalidRequestError` where the changelog that a table is to have differs in what it has emitted.

    Files are read only where it may. From and to `none` there is a gap anyway, at which readers stop.
    """
    producers = old.changelog_producer, new.changelog_producer
    if ChangelogProducer.NONE in producers or not (old.has_primary_key and new.has_primary_key):
        return
    was_emitted, is_emitted = emitted_levels(old), emitted_levels(new)
    levels = range(max(old.num_levels, new.num_levels))
    if all(was_emitted(level) == is_emitted(level) for level in levels):
        return
    files = [entry.file for entry in live_entries(manifests, snapshot) if entry.bucket >= 0]
    count = sum(was_emitted(file.level) != is_emitted(file.level) for file in files)
    if not count:
        return
    found = f"{count} {'file' if count == 1 else 'files'}"
    if old.changelog_producer is new.changelog_producer:
        raise InvalidRequestError(
            f"table {table} has changelog-producer=full-compaction, and with {new.num_levels} levels instead of "
            f"{old.num_levels} the rows of {found} would be told again: set num-levels to {old.num_levels} as well",
            table=table,
            option="num-levels",
        )
    is_told = any(was_emitted(file.level) and not is_emitted(file.level) for file in files)
    has, would = ("has told", "would tell again") if is_told else ("has not told yet", "would never tell")
    raise InvalidRequestError(
        f"table {table} has {found} whose changes changelog-producer={old.changelog_producer} {has} and "
        f"{new.changelog_producer} {would}. Stop the writers, compact it in full (freshet compact, Table.compact), "
        "and change the option then",
        table=table,
        option="changelog-producer",
    )
