"""What snapshots that stay name, remembered: in each round expiry asks the same of all tags.

Manifests never change under their name, so the metadata files of a snapshot are remembered, and manifests that cannot
have what is asked for are not read (`commit.manifest_index`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final
from weakref import WeakKeyDictionary, proxy

from freshet.storage.cleaning.named_files import (
    KeptSnapshot,
    ManifestSource,
    MetadataNames,
    ReadableManifests,
    metadata_names,
)
from freshet.storage.commit.manifest_index import entries_of_files
from freshet.storage.commit.manifest_merge import cancel_pairs
from freshet.storage.exceptions import NotFoundError
from freshet.storage.io.sized_cache import SizedCache
from freshet.storage.metadata.live_files import data_manifests
from freshet.storage.metadata.manifest_store import ManifestStore
from freshet.storage.model.manifest import EntryKind, ManifestEntry, ManifestFileMeta
from freshet.storage.model.snapshot import Snapshot

SNAPSHOTS_MAX: Final = 5_000
"""Snapshots and tags whose metadata files are remembered by name; some 30 names each."""


class NamedIndex:
    """Answers for one table; may be shared by threads."""

    def __init__(self, manifests: ManifestStore) -> None:
        # Not a strong reference: the index lives as long as the store does, see `named_index_of`.
        self._manifests: ManifestStore = proxy(manifests)
        self._names: SizedCache[tuple[int, str, bool], MetadataNames] = SizedCache(SNAPSHOTS_MAX, lambda _: 1)

    def names(self, source: ManifestSource, snapshot: Snapshot) -> MetadataNames:
        """`metadata_names`, remembered."""
        identity = (snapshot.id, snapshot.delta_manifest_list, isinstance(source, ReadableManifests))
        cached = self._names.get(identity)
        if cached is None:
            cached = metadata_names(source, snapshot)
            self._names.put(identity, cached)
        return cached

    def live_among(self, snapshots: Iterable[KeptSnapshot], entries: Sequence[ManifestEntry]) -> set[str]:
        """Names of those files that are live at one of the snapshots, as far as their manifests are kept.

        A manifest that many of the snapshots share is looked into once.
        """
        wanted = {entry.file.file_name for entry in entries}
        partitions = {entry.partition for entry in entries}
        found: dict[str, list[ManifestEntry]] = {}
        live: set[str] = set()
        for source, snapshot in snapshots:
            if not wanted:
                break
            hits: list[ManifestEntry] = []
            for meta in data_manifests(source, snapshot):
                if meta.file_name not in found:
                    found[meta.file_name] = self._entries_of(source, meta, wanted, partitions)
                hits += found[meta.file_name]
            live |= {entry.file.file_name for entry in cancel_pairs(hits) if entry.kind is EntryKind.ADD}
        return live & wanted

    def _entries_of(
        self, source: ManifestSource, meta: ManifestFileMeta, names: Collection[str], partitions: Collection[bytes]
    ) -> list[ManifestEntry]:
        try:
            return entries_of_files(self._manifests, meta, names, partitions)
        except NotFoundError:
            if isinstance(source, ReadableManifests):
                return []
            raise


_INDEXES: Final[WeakKeyDictionary[ManifestStore, NamedIndex]] = WeakKeyDictionary()


def named_index_of(manifests: ManifestStore) -> NamedIndex:
    """The index of an open table: one for all rounds."""
    return _INDEXES.setdefault(manifests, NamedIndex(manifests))
