"""Manifests and manifest lists of a table: written once, read by name, kept in memory by name.

Invariants: a manifest's size in its list and a list's size in its snapshot are exact bytes (other readers see no rows
otherwise); bucket and level bounds in a list are right; a list without manifests is still a file.

Files never change, so what was read or written is cached by name, in order of last use, up to a number of entries.

Source: table format §4, §3.5.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from freshet.storage.codec.binary_row_values import decode_row
from freshet.storage.codec.manifest_avro import (
    DELETION_VECTORS_INDEX,
    IndexEntry,
    read_index_manifest,
    read_manifest,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from freshet.storage.codec.stats import ColumnStats, encode_stats, merge_stats
from freshet.storage.exceptions import CorruptDataError, NotFoundError, UnsupportedFeatureError
from freshet.storage.io.env import Env
from freshet.storage.model.data_type import DataType
from freshet.storage.model.manifest import EntryKind, ManifestEntry, ManifestFileMeta
from freshet.storage.options.core import CoreOptions
from freshet.storage.paths import MANIFEST_LIST_PREFIX, MANIFEST_PREFIX, TablePaths

CACHE_ENTRIES: Final = 200_000
"""Entries kept in memory over all manifests; one takes about 1.5 kB."""

CACHE_LISTS: Final = 512
"""Manifest lists kept in memory, some 15 kB each: expiry asks for those of every tag and branch in each round."""

_BYTES_PER_ENTRY: Final = 64
"""First guess of the compressed size of an entry, corrected by the files written."""

_CODECS: Final = {"zstd": "zstandard", "none": "null", "null": "null", "snappy": "snappy", "deflate": "deflate"}


class ManifestStore:
    """Manifests of one table. May be shared by threads."""

    def __init__(
        self, env: Env, paths: TablePaths, options: CoreOptions, partition_types: Sequence[DataType] = ()
    ) -> None:
        self._env = env
        self._paths = paths
        self._codec = _CODECS.get(options.manifest_compression, "zstandard")
        self._target_size_bytes = options.manifest_target_file_size_bytes
        self._partition_types = tuple(partition_types)
        self._bytes_per_entry = float(_BYTES_PER_ENTRY)
        self._lock = threading.Lock()
        self._manifests: OrderedDict[str, tuple[ManifestEntry, ...]] = OrderedDict()
        self._lists: OrderedDict[str, tuple[ManifestFileMeta, ...]] = OrderedDict()
        self._cached_entries = 0
        self._without_deletion_vectors: set[str] = set()

    def write_manifests(self, entries: Iterable[ManifestEntry]) -> list[ManifestFileMeta]:
        """Writes entries into new manifests of about the target size; none for no entries."""
        pending = list(entries)
        uuid = self._env.new_uuid()
        metas: list[ManifestFileMeta] = []
        start = 0
        while start < len(pending):
            count = max(1, int(self._target_size_bytes / self._bytes_per_entry))
            batch = pending[start : start + count]
            metas.append(self._write_manifest(f"{MANIFEST_PREFIX}{uuid}-{len(metas)}", batch))
            start += count
        return metas

    def write_manifest_list(self, manifests: Sequence[ManifestFileMeta], *, is_last: bool = True) -> tuple[str, int]:
        """Writes a manifest list and returns its name and exact size.

        The last one before the snapshot syncs the names of all manifests and lists written before it: with three or
        four files per snapshot, a sync of the folder for each took a third of a commit.
        """
        name = f"{MANIFEST_LIST_PREFIX}{self._env.new_uuid()}-0"
        data = write_manifest_list(manifests, self._codec)
        self._create(name, data, sync_folder=is_last)
        self._remember_list(name, tuple(manifests))
        return name, len(data)

    def read_manifest(self, manifest: ManifestFileMeta | str) -> tuple[ManifestEntry, ...]:
        """Entries of a manifest, in file order; the size is checked where it is known."""
        name = manifest if isinstance(manifest, str) else manifest.file_name
        with self._lock:
            cached = self._manifests.get(name)
            if cached is not None:
                self._manifests.move_to_end(name)
                return cached
        data = self._read(name, None if isinstance(manifest, str) else manifest.file_size_bytes)
        entries = tuple(read_manifest(data, self._paths.manifest(name)))
        if not isinstance(manifest, str) and len(entries) != manifest.num_added_files + manifest.num_deleted_files:
            raise CorruptDataError(
                f"the manifest has {len(entries)} entries where its list records "
                f"{manifest.num_added_files + manifest.num_deleted_files}; it was overwritten",
                path=self._paths.manifest(name),
            )
        self._remember_manifest(name, entries)
        return entries

    def read_manifest_list(self, name: str, size_bytes: int | None = None) -> tuple[ManifestFileMeta, ...]:
        """Manifests named by a list, in file order; the size is checked where the snapshot has it."""
        with self._lock:
            cached = self._lists.get(name)
            if cached is not None:
                self._lists.move_to_end(name)
                return cached
        metas = tuple(read_manifest_list(self._read(name, size_bytes), self._paths.manifest(name)))
        self._remember_list(name, metas)
        return metas

    def read_index_manifest(self, name: str) -> list[IndexEntry]:
        """Live index files."""
        return read_index_manifest(self._read(name, None), self._paths.manifest(name))

    def refuse_deletion_vectors(self, index_manifest: str | None) -> None:
        """Raises `UnsupportedFeatureError` when files of a snapshot have rows marked as deleted.

        A file that names none, as a full compaction leaves it, is fine.
        """
        if index_manifest is None or index_manifest in self._without_deletion_vectors:
            return
        for entry in self.read_index_manifest(index_manifest):
            if entry.index_type == DELETION_VECTORS_INDEX and entry.range_count:
                raise UnsupportedFeatureError(
                    f"the table at {self._paths.location} has deletion vectors ({entry.file_name}), which are not "
                    "supported: the deleted rows would reappear; compact it fully with Apache Paimon after setting "
                    "deletion-vectors.enabled=false, or read it there"
                )
        self._without_deletion_vectors.add(index_manifest)

    def delete(self, name: str) -> bool:
        """Removes a manifest, list or index manifest and forgets it; False when it was not there."""
        with self._lock:
            self._lists.pop(name, None)
            self._cached_entries -= len(self._manifests.pop(name, ()))
        return self._env.file_io.delete(self._paths.manifest(name))

    def _write_manifest(self, name: str, entries: list[ManifestEntry]) -> ManifestFileMeta:
        data = write_manifest(entries, self._codec)
        self._create(name, data, sync_folder=False)
        self._bytes_per_entry = max(1.0, len(data) / len(entries))
        self._remember_manifest(name, tuple(entries))
        added = sum(entry.kind is EntryKind.ADD for entry in entries)
        buckets = [entry.bucket for entry in entries]
        levels = [entry.file.level for entry in entries]
        row_ids = [entry.file.first_row_id for entry in entries]
        has_row_ids = all(row_id is not None for row_id in row_ids)
        return ManifestFileMeta(
            file_name=name,
            file_size_bytes=len(data),
            num_added_files=added,
            num_deleted_files=len(entries) - added,
            partition_stats=encode_stats(self._partition_stats(entries), self._partition_types),
            schema_id=max(entry.file.schema_id for entry in entries),
            min_bucket=min(buckets),
            max_bucket=max(buckets),
            min_level=min(levels),
            max_level=max(levels),
            min_row_id=min(row_id for row_id in row_ids if row_id is not None) if has_row_ids else None,
            max_row_id=max((entry.file.first_row_id or 0) + entry.file.row_count - 1 for entry in entries)
            if has_row_ids
            else None,
        )

    def _partition_stats(self, entries: list[ManifestEntry]) -> list[ColumnStats]:
        stats = [ColumnStats(null_count=0) for _ in self._partition_types]
        counts: dict[bytes, int] = {}
        for entry in entries:
            counts[entry.partition] = counts.get(entry.partition, 0) + 1
        for partition, count in counts.items():
            for index, value in enumerate(decode_row(partition, self._partition_types)):
                one = ColumnStats(value, value, count if value is None else 0)
                stats[index] = merge_stats(stats[index], one)
        return stats

    def _create(self, name: str, data: bytes, *, sync_folder: bool) -> None:
        path = self._paths.manifest(name)
        if not self._env.file_io.create_exclusive(path, data, sync_folder=sync_folder):
            raise CorruptDataError("a file of this random name exists already", path=path)

    def _read(self, name: str, size_bytes: int | None) -> bytes:
        path = self._paths.manifest(name)
        try:
            data = self._env.file_io.read_bytes(path)
        except NotFoundError as error:
            raise NotFoundError(
                f"{path} does not exist although a snapshot names it; "
                "the snapshot has expired meanwhile, read a newer one, or the file was removed by hand"
            ) from error
        if size_bytes is not None and len(data) != size_bytes:
            raise CorruptDataError(
                f"the file has {len(data)} bytes where {size_bytes} are recorded; it is truncated or was overwritten",
                path=path,
                byte_offset=min(len(data), size_bytes),
            )
        return data

    def _remember_manifest(self, name: str, entries: tuple[ManifestEntry, ...]) -> None:
        with self._lock:
            if name not in self._manifests:
                self._cached_entries += len(entries)
            self._manifests[name] = entries
            while self._cached_entries > CACHE_ENTRIES and len(self._manifests) > 1:
                self._cached_entries -= len(self._manifests.popitem(last=False)[1])

    def _remember_list(self, name: str, metas: tuple[ManifestFileMeta, ...]) -> None:
        with self._lock:
            self._lists[name] = metas
            while len(self._lists) > CACHE_LISTS:
                self._lists.popitem(last=False)
