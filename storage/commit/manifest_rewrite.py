"""Carries out the merging of manifests that `manifest_merge` decides on.

A result can be used again when the claim is lost: as long as its inputs are still the head of the manifests of the
newer snapshot, the outputs stand for them. Source: FORMAT.md §3.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from freshet.storage.commit.manifest_merge import (
    MergeRule,
    cancel_pairs,
    is_full_merge_due,
    must_change,
    plan_minor_merge,
)
from freshet.storage.metadata.manifest_store import ManifestStore
from freshet.storage.model.manifest import EntryKind, FileIdentity, ManifestEntry, ManifestFileMeta


@dataclass(frozen=True, slots=True)
class MergedManifests:
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


def merge_manifests(store: ManifestStore, manifests: Sequence[ManifestFileMeta], rule: MergeRule) -> MergedManifests:
    """Merges what the rule says; the outputs are the inputs when nothing is due."""
    if is_full_merge_due(manifests, rule):
        merged = _full_merge(store, manifests, rule)
        if merged is not None:
            return merged
    outputs: list[ManifestFileMeta] = []
    written: list[ManifestFileMeta] = []
    for group in plan_minor_merge(manifests, rule):
        if group.is_rewritten:
            entries = cancel_pairs(entry for meta in group.manifests for entry in store.read_manifest(meta))
            fresh = store.write_manifests(_by_bucket(entries)) if entries else []
            written += fresh
            outputs += fresh
        else:
            outputs += group.manifests
    return MergedManifests(tuple(manifests), tuple(outputs), tuple(written))


def _by_bucket(entries: list[ManifestEntry]) -> list[ManifestEntry]:
    """Entries of one bucket together, in their order: who restores a bucket then skips most of a large manifest."""
    return sorted(entries, key=lambda entry: (entry.partition, entry.bucket))


def _full_merge(store: ManifestStore, manifests: Sequence[ManifestFileMeta], rule: MergeRule) -> MergedManifests | None:
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
    if len(rewritten) <= 1:
        return None
    written = store.write_manifests(_by_bucket(entries)) if entries else []
    return MergedManifests(tuple(manifests), (*kept, *written), tuple(written))
