"""Looks into manifests by file name and by partition, without reading those that cannot have what is asked for.

Manifests never change under their name, so what was found in one is remembered by its name.

    a file is live at a snapshot = it has an ADD entry in base or delta whose identity is in no DELETE entry there

The bucket count in force of a partition is that of its newest ADD entry. Should that entry be dead by now (a truncated
partition), the count may be outdated: before anything is refused because of it, ask the live files.

Source: FORMAT.md §3.4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final
from weakref import WeakKeyDictionary, proxy

from freshet.storage.io.sized_cache import SharedBound, SizedCache
from freshet.storage.metadata.live_files import base_manifests
from freshet.storage.metadata.manifest_store import VALUES_MAX, ManifestStore
from freshet.storage.model.manifest import EntryKind, ManifestEntry, ManifestFileMeta
from freshet.storage.model.snapshot import Snapshot

KNOWN_COUNTS: Final = SharedBound(200_000, 5_000)
"""Bucket counts remembered, one for each manifest and partition asked for, some 100 bytes each."""


class ManifestIndex:
    """Answers for one table; may be shared by threads."""

    def __init__(self, manifests: ManifestStore) -> None:
        # Not a strong reference: the index lives as long as the store does, see `index_of`.
        self._manifests: ManifestStore = proxy(manifests)
        self._counts: SizedCache[str, dict[bytes, int | None]] = SizedCache(KNOWN_COUNTS)
        """By manifest, the bucket count of each partition asked for; None where the manifest has no entry of it."""

    def is_in_base(self, snapshot: Snapshot, entry: ManifestEntry) -> bool:
        """True when the base of the snapshot has an ADD entry of this file, dead or alive."""
        name, identity = {entry.file.file_name}, entry.identity
        return any(
            other.kind is EntryKind.ADD and other.identity == identity
            for meta in base_manifests(self._manifests, snapshot)
            for other in entries_of_files(self._manifests, meta, name, {entry.partition})
        )

    def newest_bucket_counts(
        self, manifests: Sequence[ManifestFileMeta], partitions: Iterable[bytes]
    ) -> dict[bytes, int]:
        """Bucket count of the newest entry of each partition that has entries. `manifests` are all of the latest
        snapshot: what is known of others is forgotten, since each commit writes some, which a later one merges."""
        self._counts.keep(len(manifests), (meta.file_name for meta in manifests))
        wanted = set(partitions)
        found: dict[bytes, int] = {}
        for meta in reversed(manifests):
            if not wanted:
                break
            counts = self._bucket_counts(meta, wanted)
            found.update(counts)
            wanted -= counts.keys()
        return found

    def _bucket_counts(self, meta: ManifestFileMeta, partitions: Collection[bytes]) -> dict[bytes, int]:
        cached = self._counts.get(meta.file_name) or {}
        missing = [partition for partition in partitions if partition not in cached]
        if missing:
            if self._manifests.may_hold(meta, missing):
                entries = self._manifests.read_manifest_with(meta, missing)
            else:
                entries = ()
            fresh: dict[bytes, int | None] = dict.fromkeys(missing)
            fresh |= {
                entry.partition: entry.total_buckets
                for entry in entries
                if entry.kind is EntryKind.ADD and entry.total_buckets > 0
            }
            cached = cached | fresh
            self._counts.put(meta.file_name, cached)
        return {partition: count for partition in partitions if (count := cached.get(partition)) is not None}


_INDEXES: Final[WeakKeyDictionary[ManifestStore, ManifestIndex]] = WeakKeyDictionary()


def index_of(manifests: ManifestStore) -> ManifestIndex:
    """The index of an open table: one for all of its committers, who come and go with each batch."""
    return _INDEXES.setdefault(manifests, ManifestIndex(manifests))


def entries_of_files(
    manifests: ManifestStore, meta: ManifestFileMeta, file_names: Collection[str], partitions: Collection[bytes]
) -> list[ManifestEntry]:
    """Entries of these files of these partitions in one manifest."""
    if not manifests.may_hold(meta, partitions):
        return []
    by_name = len(file_names) <= VALUES_MAX
    values = [name.encode() for name in file_names] if by_name else list(partitions)
    return [entry for entry in manifests.read_manifest_with(meta, values) if entry.file.file_name in file_names]
