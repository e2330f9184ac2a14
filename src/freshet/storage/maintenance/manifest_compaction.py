"""Merges the manifests of a table at once: a COMPACT snapshot without a change, whose manifests are few, without
deletes.

Commits merge manifests as they go (`commit.manifest_merge`), once enough of them have gathered. Before that a table of
many small commits makes each reader read as many small manifests.

Under a made-up user that leaves no trace: what a crash interrupts is done by the next call. Source: FORMAT.md §3.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.commit.committer import Committer
from freshet.storage.commit.manifest_merge import ManifestMergeRule, is_full_merge_useful
from freshet.storage.commit.table_view import TableView
from freshet.storage.maintenance.table_compaction import compaction_user
from freshet.storage.maintenance.upkeep import upkeep_later
from freshet.storage.metadata.live_files import data_manifests_at_once
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.display import size_text
from freshet.storage.model.manifest import ManifestFileMeta
from freshet.storage.model.shown import Facts, Shown
from freshet.storage.model.snapshot import CommitKind, Snapshot

_AT_ONCE: Final = {"manifest.full-compaction-threshold-size": "1 b"}


class ManifestFacts(Frozen):
    """The manifests that a snapshot names."""

    count: int = 0
    size_bytes: int = 0
    deleted_count: int = 0
    """Entries that only say that a file of another manifest is gone."""
    small_count: int = 0
    """Manifests below `manifest.target-file-size`."""


@dataclass(frozen=True, slots=True, repr=False)
class ManifestCompaction(Shown):
    """The manifests of the table before and after; `snapshot_id` has the new ones, None where nothing was to be done,
    and in a dry run."""

    before: ManifestFacts
    after: ManifestFacts
    snapshot_id: int | None = None
    is_dry_run: bool = False
    is_due: bool = False
    """Whether merging changes, or would change, anything."""

    def _shown(self) -> Facts:
        yield from (("not committed", self.is_dry_run), ("snapshot", str(self.snapshot_id or "none")))
        yield from (("manifests before", _text(self.before)), ("manifests after", _text(self.after)))


class _Merging(Frozen):
    """Nothing but merged manifests, where there is something to merge."""

    def upon(self, store: TableStore, view: TableView) -> SnapshotChange:
        """The change."""
        return SnapshotChange(CommitKind.COMPACT, merges_manifests=_is_due(store, view.latest))


def compact_manifests(store: TableStore, *, dry_run: bool = False) -> ManifestCompaction:
    """Merges them; no snapshot where that would change nothing."""
    latest = store.snapshots.latest()
    before = _facts(store, latest)
    if dry_run:
        return ManifestCompaction(before, before, is_dry_run=True, is_due=_is_due(store, latest))
    merging = store.with_options(_AT_ONCE)
    committer = Committer(merging, compaction_user(store), after_commit=upkeep_later)
    made = committer.change(0, _Merging(), is_traced=False).snapshots
    committer.finish()
    if not made:
        return ManifestCompaction(before, before)
    return ManifestCompaction(before, _facts(store, made[-1]), made[-1].id, is_due=True)


def _is_due(store: TableStore, latest: Snapshot | None) -> bool:
    return latest is not None and is_full_merge_useful(store.manifests, _manifests(store, latest), _rule(store))


def _rule(store: TableStore) -> ManifestMergeRule:
    return ManifestMergeRule(store.options.manifest_target_file_size_bytes, 1, store.options.manifest_merge_min_count)


def _manifests(store: TableStore, snapshot: Snapshot | None) -> Sequence[ManifestFileMeta]:
    return () if snapshot is None else data_manifests_at_once(store.manifests, snapshot)


def _facts(store: TableStore, snapshot: Snapshot | None) -> ManifestFacts:
    manifests, target = _manifests(store, snapshot), store.options.manifest_target_file_size_bytes
    return ManifestFacts(
        len(manifests),
        sum(each.file_size_bytes for each in manifests),
        sum(each.num_deleted_files for each in manifests),
        sum(each.file_size_bytes < target for each in manifests),
    )


def _text(facts: ManifestFacts) -> str:
    return f"{facts.count}, {size_text(facts.size_bytes)}, {facts.deleted_count} deletes"
