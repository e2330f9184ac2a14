"""Which manifests of the previous snapshot are rewritten when the next base list is made, and how they are merged.

The base list of a new snapshot is the previous base list followed by the previous delta list. Left alone it grows by
one manifest per commit; so, in this order:

* **full**: manifests that hold deletes or are smaller than the target size reach the full threshold together. All of
  them are rewritten, deletes and what they hit vanish; a large manifest without deletes is only looked into where its
  partitions are hit by a delete.
* **minor**: gather in order; a group that reaches the target size is rewritten as one (a group of one stays). The
  tail is rewritten when it holds `min_count` manifests or more. An unmatched delete is kept.

One addition to the rule of the format: a manifest at the head of the tail that is larger than all that follows it is
left where it is, so that the cost of a commit does not grow with the table while that is below the target size.
Merging is optional for correctness; only rewritten groups cost time.

A result can be used again when the claim is lost: as long as its inputs are still the head of the manifests of the
newer snapshot, the outputs stand for them. Source: FORMAT.md §3.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from freshet._frozen import Frozen
from freshet.storage.metadata.manifest_store import FileQueue, ManifestStore
from freshet.storage.model.manifest import EntryKind, FileIdentity, ManifestEntry, ManifestFileMeta


class ManifestMergeRule(Frozen):
    """`manifest.target-file-size`, `manifest.full-compaction-threshold-size`, `manifest.merge-min-count`."""

    target_size_bytes: int
    full_threshold_bytes: int
    min_count: int


class ManifestGroup(Frozen):
    """Neighbouring manifests that stay as they are, or become new ones."""

    manifests: tuple[ManifestFileMeta, ...]
    is_rewritten: bool


def must_change(manifest: ManifestFileMeta, rule: ManifestMergeRule) -> bool:
    """True for a manifest that a full rewrite always touches."""
    return manifest.num_deleted_files > 0 or manifest.file_size_bytes < rule.target_size_bytes


def is_full_merge_due(manifests: Sequence[ManifestFileMeta], rule: ManifestMergeRule) -> bool:
    """True when what a full rewrite would touch has reached the threshold."""
    changing = [manifest.file_size_bytes for manifest in manifests if must_change(manifest, rule)]
    return len(manifests) > 1 and sum(changing) >= rule.full_threshold_bytes


def plan_minor_merge(manifests: Sequence[ManifestFileMeta], rule: ManifestMergeRule) -> list[ManifestGroup]:
    """Groups in order; together they are exactly the input."""
    groups: list[ManifestGroup] = []
    gathered: list[ManifestFileMeta] = []
    size_bytes = 0
    for manifest in manifests:
        gathered.append(manifest)
        size_bytes += manifest.file_size_bytes
        if size_bytes >= rule.target_size_bytes:
            groups.append(ManifestGroup(tuple(gathered), is_rewritten=len(gathered) > 1))
            gathered, size_bytes = [], 0
    if gathered:
        groups += _plan_tail(gathered, rule)
    return groups


def _plan_tail(tail: list[ManifestFileMeta], rule: ManifestMergeRule) -> list[ManifestGroup]:
    if len(tail) < rule.min_count:
        return [ManifestGroup(tuple(tail), is_rewritten=False)]
    following = sum(manifest.file_size_bytes for manifest in tail)
    kept = 0
    for manifest in tail:
        following -= manifest.file_size_bytes
        if manifest.file_size_bytes <= following:
            break
        kept += 1
    groups = [ManifestGroup(tuple(tail[:kept]), is_rewritten=False)] if kept else []
    if tail[kept:]:
        groups.append(ManifestGroup(tuple(tail[kept:]), is_rewritten=len(tail) - kept > 1))
    return groups


def cancel_pairs(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """ADD and DELETE of one identity vanish, in whatever order they come; an unmatched DELETE is kept."""
    added: dict[FileIdentity, ManifestEntry] = {}
    deleted: dict[FileIdentity, ManifestEntry] = {}
    for entry in entries:
        (added if entry.kind is EntryKind.ADD else deleted)[entry.identity] = entry
    matched = added.keys() & deleted.keys()
    return [entry for identity, entry in (*added.items(), *deleted.items()) if identity not in matched]


class MergedManifests(Frozen):
    """`outputs` stand for `inputs`; `written` are those of the outputs that are new files."""

    inputs: tuple[ManifestFileMeta, ...]
    outputs: tuple[ManifestFileMeta, ...]
    written: tuple[ManifestFileMeta, ...]

    def applied_to(self, manifests: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta] | None:
        """The manifests with the merge applied, None when the inputs are no longer their head."""
        count = len(self.inputs)
        if tuple(manifests[:count]) != self.inputs:
            return None
        return [*self.outputs, *manifests[count:]]


def merge_manifests(
    store: ManifestStore, manifests: Sequence[ManifestFileMeta], rule: ManifestMergeRule, queue: FileQueue | None = None
) -> MergedManifests:
    """Merges what the rule says; the outputs are the inputs when nothing is due. With a `queue` they are put there."""
    if is_full_merge_due(manifests, rule):
        merged = _full_merge(store, manifests, rule, queue)
        if merged is not None:
            return merged
    outputs: list[ManifestFileMeta] = []
    written: list[ManifestFileMeta] = []
    for group in plan_minor_merge(manifests, rule):
        if group.is_rewritten:
            entries = cancel_pairs(entry for meta in group.manifests for entry in store.read_manifest(meta))
            fresh = store.write_manifests(_by_bucket(entries), queue) if entries else []
            written += fresh
            outputs += fresh
        else:
            outputs += group.manifests
    return MergedManifests(tuple(manifests), tuple(outputs), tuple(written))


def _by_bucket(entries: list[ManifestEntry]) -> list[ManifestEntry]:
    """Entries of one bucket together, in their order: a writer that restores one then skips most of a manifest."""
    return sorted(entries, key=lambda entry: entry.bucket_id)


class _FullMerge(Frozen):
    """What a full rewrite leaves alone, what it rewrites, and the entries that are left of that."""

    kept: tuple[ManifestFileMeta, ...]
    rewritten: tuple[ManifestFileMeta, ...]
    entries: list[ManifestEntry]


def is_full_merge_useful(store: ManifestStore, manifests: Sequence[ManifestFileMeta], rule: ManifestMergeRule) -> bool:
    """True when a full rewrite would change the manifests, whatever their size."""
    return len(manifests) > 1 and _plan_full_merge(store, manifests, rule) is not None


def _full_merge(
    store: ManifestStore, manifests: Sequence[ManifestFileMeta], rule: ManifestMergeRule, queue: FileQueue | None
) -> MergedManifests | None:
    plan = _plan_full_merge(store, manifests, rule)
    if plan is None:
        return None
    written = store.write_manifests(_by_bucket(plan.entries), queue) if plan.entries else []
    return MergedManifests(tuple(manifests), (*plan.kept, *written), tuple(written))


def _plan_full_merge(
    store: ManifestStore, manifests: Sequence[ManifestFileMeta], rule: ManifestMergeRule
) -> _FullMerge | None:
    """None where fewer than two manifests would be rewritten."""
    deleted: set[FileIdentity] = {
        entry.identity
        for meta in manifests
        if meta.num_deleted_files > 0
        for entry in store.read_manifest(meta)
        if entry.kind is EntryKind.DELETE
    }
    kept: list[ManifestFileMeta] = []
    rewritten: list[ManifestFileMeta] = []
    entries: list[ManifestEntry] = []
    for meta in manifests:
        if not must_change(meta, rule) and not deleted:
            kept.append(meta)
            continue
        held = store.read_manifest(meta)
        remaining = [entry for entry in held if entry.kind is EntryKind.ADD and entry.identity not in deleted]
        if must_change(meta, rule) or len(remaining) < len(held):
            rewritten.append(meta)
            entries += remaining
        else:
            kept.append(meta)
    return None if len(rewritten) <= 1 else _FullMerge(tuple(kept), tuple(rewritten), entries)
