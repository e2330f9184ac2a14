"""Paths of files that expiry takes away."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from freshet.storage.commit.named_files import MetadataNames
from freshet.storage.io.file_io import Deleted
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import ManifestEntry


def data_paths(store: TableStore, entries: Iterable[ManifestEntry]) -> tuple[tuple[str, ...], ...]:
    """Data and changelog files with their side-cars, those of one folder together."""
    paths = dict.fromkeys(path for entry in entries for path in _paths(store, entry))
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(path.rpartition("/")[0], []).append(path)
    return tuple(tuple(folders[folder]) for folder in sorted(folders))


def metadata_paths(store: TableStore, names: MetadataNames) -> tuple[str, ...]:
    """Index files, statistics, manifests and their lists."""
    return (
        *(store.paths.index_file(name) for name in sorted(names.index_files)),
        *(store.paths.statistics(name) for name in sorted(names.statistics)),
        *(store.paths.manifest(name) for name in sorted(names.manifests)),
    )


def delete_data(store: TableStore, by_bucket: Iterable[tuple[str, ...]]) -> list[Deleted]:
    """Deletes data files bucket by bucket, and the folders that became empty where the table wants that."""
    below = store.paths.data_root if store.options.snapshot_clean_empty_directories else None
    return [store.env.file_io.delete_all(paths, prune_below=below) for paths in by_bucket]


def delete_metadata(store: TableStore, paths: Iterable[str]) -> list[Deleted]:
    """Deletes metadata files folder by folder."""
    by_folder = groupby(paths, key=lambda path: path.rpartition("/")[0])
    return [store.env.file_io.delete_all(list(group)) for _, group in by_folder]


def _paths(store: TableStore, entry: ManifestEntry) -> list[str]:
    """The file and its side-cars."""
    folder, file = store.partition_path(entry.partition), entry.file
    return [
        store.paths.data_file(folder, entry.bucket, file.file_name, file.external_path),
        *(store.paths.extra_file(folder, entry.bucket, name, file.external_path) for name in file.extra_files),
    ]
