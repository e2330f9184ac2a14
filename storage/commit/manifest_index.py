"""The live files of a few buckets, without reading the whole table each time.

Manifests never change under their name, so each is sorted into buckets once and kept; a commit then looks at the
manifests that are new since the last one. `read` counts what had to be opened, for tests and progress.

    live(buckets) = ADD entries of base and delta whose identity is in no DELETE entry     (table format §3.4)

The bucket count in force of a partition is that of its newest ADD entry. Should that entry be dead by now (a
truncated partition), the count may be outdated; `exact` looks at live entries only.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from storage.commit.changes import Bucket
from storage.commit.manifest_merge import cancel_pairs
from storage.files.manifest_store import ManifestStore
from storage.model.manifest import EntryKind, ManifestEntry, ManifestFileMeta
from storage.model.snapshot import Snapshot

ENTRIES_MAX: Final = 100_000
"""Entries kept in memory, about 1.5 kB each."""


class _ManifestByBucket:
    """One manifest, sorted into buckets."""

    __slots__ = ("bucket_counts", "by_bucket", "entry_count")

    def __init__(self, entries: Sequence[ManifestEntry]) -> None:
        self.entry_count = len(entries)
        self.by_bucket: dict[Bucket, list[ManifestEntry]] = defaultdict(list)
        self.bucket_counts: dict[bytes, int] = {}
        for entry in entries:
            self.by_bucket[entry.partition, entry.bucket].append(entry)
            if entry.kind is EntryKind.ADD and entry.total_buckets > 0:
                self.bucket_counts[entry.partition] = entry.total_buckets


class ManifestIndex:
    """Answers for one table; used by one thread at a time."""

    def __init__(self, manifests: ManifestStore) -> None:
        self._manifests = manifests
        self._sorted: OrderedDict[str, _ManifestByBucket] = OrderedDict()
        self.read_count = 0

    def manifests_of(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        """Manifests of base and delta, oldest first."""
        base = self._manifests.read_manifest_list(snapshot.base_manifest_list, snapshot.base_manifest_list_size)
        delta = self._manifests.read_manifest_list(snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)
        return [*base, *delta]

    def live(self, manifests: Iterable[ManifestFileMeta], buckets: frozenset[Bucket]) -> list[ManifestEntry]:
        """Live ADD entries of the buckets."""
        if not buckets:
            return []
        numbers = {bucket for _, bucket in buckets}
        entries: list[ManifestEntry] = []
        for meta in manifests:
            if _may_hold(meta, numbers):
                by_bucket = self._by_bucket(meta).by_bucket
                for bucket in buckets:
                    entries += by_bucket.get(bucket, ())
        return [entry for entry in cancel_pairs(entries) if entry.kind is EntryKind.ADD]

    def bucket_counts(
        self, manifests: Sequence[ManifestFileMeta], partitions: Iterable[bytes], *, exact: bool
    ) -> dict[bytes, int]:
        """Bucket count of each partition that has files."""
        wanted = set(partitions)
        if exact:
            return self._exact_bucket_counts(manifests, wanted)
        found: dict[bytes, int] = {}
        for meta in reversed(manifests):
            if not wanted:
                break
            counts = self._by_bucket(meta).bucket_counts
            hits = wanted & counts.keys()
            found.update({partition: counts[partition] for partition in hits})
            wanted -= hits
        return found

    def _exact_bucket_counts(self, manifests: Sequence[ManifestFileMeta], wanted: set[bytes]) -> dict[bytes, int]:
        entries = [
            entry
            for meta in manifests
            for (partition, _), bucket_entries in self._by_bucket(meta).by_bucket.items()
            if partition in wanted
            for entry in bucket_entries
        ]
        return {
            entry.partition: entry.total_buckets
            for entry in cancel_pairs(entries)
            if entry.kind is EntryKind.ADD and entry.total_buckets > 0
        }

    def _by_bucket(self, meta: ManifestFileMeta) -> _ManifestByBucket:
        known = self._sorted.get(meta.file_name)
        if known is not None:
            self._sorted.move_to_end(meta.file_name)
            return known
        self.read_count += 1
        fresh = _ManifestByBucket(self._manifests.read_manifest(meta))
        self._sorted[meta.file_name] = fresh
        total = sum(item.entry_count for item in self._sorted.values())
        while total > ENTRIES_MAX and len(self._sorted) > 1:
            _, dropped = self._sorted.popitem(last=False)
            total -= dropped.entry_count
        return fresh


def _may_hold(meta: ManifestFileMeta, buckets: set[int]) -> bool:
    if meta.min_bucket is None or meta.max_bucket is None:
        return True
    return any(meta.min_bucket <= bucket <= meta.max_bucket for bucket in buckets)
