"""Where the changes of a snapshot are found: a pure decision over the snapshot and the table's options.

| table | snapshot | changes are |
|---|---|---|
| any | OVERWRITE of a rescale | nothing: no row changes |
| any whose overwrites are read | OVERWRITE | all rows it took away, then all it added (append tables: what it added) |
| producer input, lookup, full-compaction | has a changelog | its changelog files |
| producer none | APPEND | the files that it added |
| any | other | nothing: a compaction changes no row; an overwrite is passed over unless it is asked for |

Overwrites are read with `streaming-read-overwrite` (keyed tables) and `streaming-read-append-overwrite` (append
tables). A keyed table without a changelog producer has no changelog: the files that a commit added hold upserts and
deletes, and the rows they replaced are not recorded. They are read where upserts will do, and only when asked for.

Source: MERGING.md §7.2.
"""

from __future__ import annotations

from enum import Enum

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.options.choices import ChangelogProducer
from freshet.storage.options.core import CoreOptions


class ChangeSource(Enum):
    """What is read of a snapshot."""

    NOTHING = "nothing"
    DELTA = "delta"
    """The files that the commit added."""
    CHANGELOG = "changelog"
    """The changelog files of the commit."""
    REPLACED = "replaced"
    """The rows of the files that the commit took away, and of those that it added."""


class ChangeRules(Frozen):
    """What decides. `reads_overwrites` is the option of the table's kind."""

    has_primary_key: bool
    producer: ChangelogProducer
    reads_overwrites: bool = False

    @staticmethod
    def of(options: CoreOptions) -> ChangeRules:
        """The rules of a table."""
        keyed = options.has_primary_key
        return ChangeRules(
            keyed,
            options.changelog_producer,
            options.streaming_read_overwrite if keyed else options.streaming_read_append_overwrite,
        )

    @property
    def has_changelog(self) -> bool:
        """Whether what is read has every change in full: the row before and the row after."""
        return not self.has_primary_key or self.producer is not ChangelogProducer.NONE

    def source(self, snapshot: Snapshot) -> ChangeSource:
        """What to read of a snapshot for the table's changelog."""
        if snapshot.is_rescale:
            return ChangeSource.NOTHING
        if self.reads_overwrites and snapshot.commit_kind is CommitKind.OVERWRITE:
            return ChangeSource.REPLACED if self.has_primary_key else ChangeSource.DELTA
        if self.producer is ChangelogProducer.NONE:
            return delta_source(snapshot)
        return ChangeSource.NOTHING if snapshot.changelog_manifest_list is None else ChangeSource.CHANGELOG


def delta_source(snapshot: Snapshot) -> ChangeSource:
    """What to read of a snapshot where the rows written are asked for, changelog or not."""
    return ChangeSource.DELTA if snapshot.commit_kind is CommitKind.APPEND else ChangeSource.NOTHING


def changelog_source(snapshot: Snapshot) -> ChangeSource:
    """What to read of a snapshot where its changelog files are asked for, without overwrites."""
    if snapshot.commit_kind is CommitKind.OVERWRITE or snapshot.changelog_manifest_list is None:
        return ChangeSource.NOTHING
    return ChangeSource.CHANGELOG


def check_has_changelog(rules: ChangeRules, table: str, otherwise: str) -> None:
    """Raises `InvalidRequestError` for a keyed table without a changelog; `otherwise` says what to call instead."""
    if not rules.has_changelog:
        raise InvalidRequestError(
            f"table {table} has a primary key and changelog-producer=none: its files hold the rows written and not "
            "the rows they replaced, so a changelog read from them would count every update as another insert. Set "
            "changelog-producer to lookup, full-compaction or input (changes from then on have a changelog), or "
            f"{otherwise}",
            table=table,
            option="changelog-producer",
        )
