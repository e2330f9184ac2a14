"""What a snapshot names: the files that must stay as long as it, a tag or a branch does.

| part of the snapshot | names |
|---|---|
| base, delta and changelog manifest list | the list, and each manifest in it |
| index manifest | itself, and each index file in it |
| statistics | itself |

Names are unique within a table (each holds a random id), so a set of names is enough, whatever the folder.
Source: table format §3.1, §12.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from storage.codec.snapshot_json import decode_snapshot
from storage.model.manifest import ManifestFileMeta
from storage.model.snapshot import Snapshot
from storage.paths import CHANGELOG_PREFIX, numbered
from storage.table_store import TableStore


@dataclass(frozen=True, slots=True)
class MetadataNames:
    """Names by the folder they lie in."""

    manifests: frozenset[str]
    """Manifests, manifest lists and index manifests: folder manifest/."""
    index_files: frozenset[str]
    statistics: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        """Every name."""
        return self.manifests | self.index_files | self.statistics


def metadata_names(store: TableStore, snapshot: Snapshot) -> MetadataNames:
    """Everything that the snapshot names except data and changelog files."""
    manifests = {name for name, _ in manifest_lists(snapshot)}
    manifests |= {meta.file_name for meta in manifests_of(store, snapshot)}
    index_files: set[str] = set()
    if snapshot.index_manifest is not None:
        manifests.add(snapshot.index_manifest)
        index_files |= {entry.file_name for entry in store.manifests.read_index_manifest(snapshot.index_manifest)}
    statistics = frozenset() if snapshot.statistics is None else frozenset({snapshot.statistics})
    return MetadataNames(frozenset(manifests), frozenset(index_files), statistics)


def manifest_lists(snapshot: Snapshot) -> list[tuple[str, int | None]]:
    """Name and size of the lists of a snapshot."""
    lists = [
        (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
        (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
    ]
    if snapshot.changelog_manifest_list is not None:
        lists.append((snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size))
    return lists


def manifests_of(store: TableStore, snapshot: Snapshot) -> Iterator[ManifestFileMeta]:
    """Manifests of all lists of a snapshot."""
    for name, size in manifest_lists(snapshot):
        yield from store.manifests.read_manifest_list(name, size)


def snapshots_outside_main(store: TableStore) -> list[Snapshot]:
    """Snapshots of all tags, and all snapshots and tags of all branches."""
    found = list(store.snapshots.tags().values())
    for branch in map(store.snapshots.branch, store.snapshots.branches()):
        found += branch.tags().values()
        found += [branch.snapshot(snapshot_id) for snapshot_id in branch.list_ids()]
    return found


def kept_changelogs(store: TableStore) -> dict[int, Snapshot]:
    """Snapshot files that were kept for their changelog after the snapshot expired, by id."""
    found: dict[int, Snapshot] = {}
    for status in store.env.file_io.list(store.paths.changelog_folder):
        snapshot_id = numbered(status.name, CHANGELOG_PREFIX)
        if snapshot_id is not None:
            found[snapshot_id] = decode_snapshot(store.env.file_io.read_bytes(status.path), status.path)
    return found
