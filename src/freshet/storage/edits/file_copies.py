"""Copies of data and index files, under names of their own, for a commit that brings back what earlier snapshots held.

A file that was deleted cannot be added again under its name: readers cancel an ADD and a DELETE of one identity without
regard to their order, and the expiry of Apache Paimon 2.0.0 removes what a delta deletes, also where a later one has
added it again. On a disk a copy is a second name of the same bytes and takes no room; a store copies by itself.

The vectors of an index file belong to data files by name, which stands in its manifest entry alone.

Source: FORMAT.md §12.1, §14 (17).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from freshet.storage.files.data_file_paths import data_file_path, delete_data_file
from freshet.storage.io.shown_work import counted
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import FileIdentity, IndexEntry, IndexFileMeta, ManifestEntry
from freshet.storage.paths import INDEX_FILE_PREFIX

COPIED_TOGETHER: Final = 64
"""Files of one call: their folders are synced once, and other calls are made at the same time."""

Pair = tuple[str, str]
"""A file, and what its copy is called."""


class FileCopies:
    """Of files of one table; each is copied once, however often it is asked for."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._files: dict[FileIdentity, ManifestEntry] = {}
        self._begun: list[ManifestEntry] = []
        """Copies that are there, or may be."""
        self._index_files: dict[str, IndexFileMeta] = {}
        """By the name of the file that was copied; their vectors have the names of data files that they had."""

    def of(self, entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
        """The entries with copies of their files; `NotFoundError` where one is not there any more."""
        wanted = list(entries)
        missing = [entry for entry in wanted if entry.identity not in self._files]
        made = [replace(entry, file=self._renamed(entry.file)) for entry in missing]
        self._begun += made
        self._copy([pair for entry, copy in zip(missing, made, strict=True) for pair in self._pairs(entry, copy)])
        self._files |= {entry.identity: copy for entry, copy in zip(missing, made, strict=True)}
        return [self._files[entry.identity] for entry in wanted]

    def of_index(self, entries: Iterable[IndexEntry], names: Mapping[str, str]) -> list[IndexEntry]:
        """The same of index files; `names` are the new names of data files that have one."""
        wanted = list(entries)
        missing = [entry.file for entry in wanted if entry.file.file_name not in self._index_files]
        made = [self._renamed_index(file) for file in missing]
        self._copy([(self._index_path(file), self._index_path(copy)) for file, copy in zip(missing, made, strict=True)])
        self._index_files |= {file.file_name: copy for file, copy in zip(missing, made, strict=True)}
        return [replace(entry, file=_with_names(self._index_files[entry.file.file_name], names)) for entry in wanted]

    def discard(self) -> None:
        """Removes the copies, which no snapshot names; best effort."""
        for entry in self._begun:
            delete_data_file(self._store, entry.partition, entry.bucket, entry.file)
        self._store.env.file_io.delete_all([self._index_path(file) for file in self._index_files.values()])

    def _copy(self, pairs: list[Pair]) -> None:
        env = self._store.env
        parts = [pairs[start : start + COPIED_TOGETHER] for start in range(0, len(pairs), COPIED_TOGETHER)]
        env.together(counted([partial(env.file_io.copy_all, part) for part in parts]))

    def _pairs(self, entry: ManifestEntry, copy: ManifestEntry) -> list[Pair]:
        store, folder = self._store, self._store.partition_path(entry.partition)
        pairs = [
            (
                data_file_path(store, entry.partition, entry.bucket, entry.file),
                data_file_path(store, copy.partition, copy.bucket, copy.file),
            )
        ]
        for given, new in zip(entry.file.extra_files, copy.file.extra_files, strict=True):
            pairs.append(
                (
                    store.paths.extra_file(folder, entry.bucket, given, entry.file.external_path),
                    store.paths.extra_file(folder, copy.bucket, new, copy.file.external_path),
                )
            )
        return pairs

    def _renamed(self, file: DataFileMeta) -> DataFileMeta:
        """The file under a name with an id of its own; its side-cars are called after it."""
        stem = file.file_name.partition(".")[0]
        name = f"{self._store.options.data_file_prefix}{self._store.env.new_uuid()}-0"
        extra = tuple(
            name + given.removeprefix(stem) if given.startswith(stem) else f"{name}.{given}"
            for given in file.extra_files
        )
        outside = file.external_path
        return replace(
            file,
            file_name=name + file.file_name.removeprefix(stem),
            extra_files=extra,
            external_path=None
            if outside is None
            else f"{outside.rpartition('/')[0]}/{name}{file.file_name.removeprefix(stem)}",
        )

    def _renamed_index(self, file: IndexFileMeta) -> IndexFileMeta:
        name, outside = f"{INDEX_FILE_PREFIX}{self._store.env.new_uuid()}-0", file.external_path
        return replace(
            file,
            file_name=name,
            external_path=None if outside is None else f"{outside.rpartition('/')[0]}/{name}",
        )

    def _index_path(self, file: IndexFileMeta) -> str:
        return self._store.paths.index_file(file.file_name, file.external_path)


def _with_names(file: IndexFileMeta, names: Mapping[str, str]) -> IndexFileMeta:
    if file.deletion_vectors is None:
        return file
    vectors = (
        replace(each, data_file_name=names.get(each.data_file_name, each.data_file_name))
        for each in file.deletion_vectors
    )
    return replace(file, deletion_vectors=tuple(vectors))
