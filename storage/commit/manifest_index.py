"""Looks into manifests by file name and by partition, each manifest sorted once.

Manifests never change under their name, so a commit or an expiry only opens those that are new since the last one.

    a file is live at a snapshot = it has an ADD entry in base or delta whose identity is in no DELETE entry there

The bucket count in force of a partition is that of its newest ADD entry. Should that entry be dead by now (a truncated
partition), the count may be outdated: before anything is refused because of it, ask the live files.

Source: table format §3.4.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Final
from weakref import WeakKeyDictionary, proxy

from freshet.storage.commit.manifest_merge import cancel_pairs
from freshet.storage.commit.named_files import KeptSnapshot, ReadableManifests, manifest_lists
from freshet.storage.exceptions import NotFoundError
from freshet.storage.metadata.manifest_store import ManifestStore
from freshet.storage.model.manifest import EntryKind, ManifestEntry, ManifestFileMeta
from freshet.storage.model.snapshot import Snapshot

ENTRIES_MAX: Final = 100_000
"""Entries kept sorted; the entries themselves are shared with the cache of the manifest store."""


class _SortedManifest:
    """One manifest."""

    __slots__ = ("bucket_counts", "by_file_name", "entry_count")

    def __init__(self, entries: Sequence[ManifestEntry]) -> None:
        self.entry_count = len(entries)
        self.by_file_name: dict[str, list[ManifestEntry]] = defaultdict(list)
        self.bucket_counts: dict[bytes, int] = {}
        for entry in entries:
            self.by_file_name[entry.file.file_name].append(entry)
            if entry.kind is EntryKind.ADD and entry.total_buckets > 0:
                self.bucket_counts[entry.partition] = entry.total_buckets


class ManifestIndex:
    """Answers for one table; may be shared by threads."""

    def __init__(self, manifests: ManifestStore) -> None:
        # Not a strong reference: the index lives as long as the store does, see `index_of`.
        self._manifests: ManifestStore = proxy(manifests)
        self._sorted: OrderedDict[str, _SortedManifest] = OrderedDict()
        self._entry_count = 0
        self._lock = threading.Lock()

    def live_among(self, kept: KeptSnapshot, file_names: Collection[str]) -> set[str]:
        """Those of the files that are live at the snapshot, as far as its manifests are kept."""
        if not file_names:
            return set()
        source, snapshot = kept
        entries: list[ManifestEntry] = []
        for meta in chain.from_iterable(source.read_manifest_list(*of) for of in manifest_lists(snapshot)[:2]):
            try:
                by_file_name = self._sorted_manifest(meta).by_file_name
            except NotFoundError:
                if isinstance(source, ReadableManifests):
                    continue
                raise
            for name in file_names:
                entries += by_file_name.get(name, ())
        return {entry.file.file_name for entry in cancel_pairs(entries) if entry.kind is EntryKind.ADD}

    def is_in_base(self, snapshot: Snapshot, entry: ManifestEntry) -> bool:
        """True when the base of the snapshot has an ADD entry of this file, dead or alive."""
        base = self._manifests.read_manifest_list(snapshot.base_manifest_list, snapshot.base_manifest_list_size)
        name, identity = entry.file.file_name, entry.identity
        return any(
            known.kind is EntryKind.ADD and known.identity == identity
            for meta in base
            for known in self._sorted_manifest(meta).by_file_name.get(name, ())
        )

    def newest_bucket_counts(
        self, manifests: Sequence[ManifestFileMeta], partitions: Iterable[bytes]
    ) -> dict[bytes, int]:
        """Bucket count of the newest entry of each partition that has entries."""
        wanted = set(partitions)
        found: dict[bytes, int] = {}
        for meta in reversed(manifests):
            if not wanted:
                break
            counts = self._sorted_manifest(meta).bucket_counts
            hits = wanted & counts.keys()
            found.update({partition: counts[partition] for partition in hits})
            wanted -= hits
        return found

    def _sorted_manifest(self, meta: ManifestFileMeta) -> _SortedManifest:
        with self._lock:
            known = self._sorted.get(meta.file_name)
            if known is not None:
                self._sorted.move_to_end(meta.file_name)
                return known
        fresh = _SortedManifest(self._manifests.read_manifest(meta))
        with self._lock:
            if meta.file_name not in self._sorted:
                self._entry_count += fresh.entry_count
            self._sorted[meta.file_name] = fresh
            while self._entry_count > ENTRIES_MAX and len(self._sorted) > 1:
                _, dropped = self._sorted.popitem(last=False)
                self._entry_count -= dropped.entry_count
        return fresh


_INDEXES: Final[WeakKeyDictionary[ManifestStore, ManifestIndex]] = WeakKeyDictionary()


def index_of(manifests: ManifestStore) -> ManifestIndex:
    """The index of an open table: one for all of its committers, who come and go with each batch."""
    return _INDEXES.setdefault(manifests, ManifestIndex(manifests))
