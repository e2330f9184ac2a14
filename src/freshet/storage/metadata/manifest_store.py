"""Manifests and manifest lists of a table: written once, read by name, kept in memory by name.

Invariants: a manifest's size in its list and a list's size in its snapshot are exact bytes (other readers see no rows
otherwise); bucket and level bounds in a list are right; a list without manifests is still a file.

Files never change, so what was read or written is cached by name, in order of last use, up to a number of entries.

Source: FORMAT.md §4, §3.5.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from freshet.storage.codec.avro_file import file_property
from freshet.storage.codec.binary_row import decode_row
from freshet.storage.codec.manifest_avro import (
    read_index_manifest,
    read_manifest,
    read_manifest_list,
    read_manifest_with,
    write_index_manifest,
    write_manifest,
    write_manifest_list,
)
from freshet.storage.codec.stats import ColumnStats, encode_stats, is_within, merge_stats
from freshet.storage.exceptions import (
    CorruptDataError,
    InvalidRequestError,
    MissingManifestError,
    NotFoundError,
    UnsupportedFeatureError,
)
from freshet.storage.io.env import Env
from freshet.storage.io.file_io import write_all
from freshet.storage.io.sized_cache import SharedBound, SizedCache
from freshet.storage.metadata.external_files import ExternalFiles
from freshet.storage.model.data_file import EMPTY_STATS
from freshet.storage.model.data_type import DataType
from freshet.storage.model.manifest import (
    DELETION_VECTORS_INDEX,
    EntryKind,
    IndexEntry,
    IndexFileMeta,
    ManifestEntry,
    ManifestFileMeta,
)
from freshet.storage.options.core import CoreOptions
from freshet.storage.paths import INDEX_MANIFEST_PREFIX, MANIFEST_LIST_PREFIX, MANIFEST_PREFIX, TablePaths

CACHED_ENTRIES: Final = SharedBound(100_000, 1_000)
"""Entries kept in memory over all manifests; one takes about 2.3 kB."""

SMALL_ENTRIES: Final = 100
CACHED_SMALL_ENTRIES: Final = SharedBound(10_000, 500)
"""Those of manifests that have few are bounded by themselves: each commit of a stream writes some, which each process
that follows it reads once. 260 batches let a process grow by 1,800 entries, and an hour would by all that may be."""

CACHED_METAS: Final = SharedBound(20_000, 600)
"""Manifests named by the manifest lists that are kept in memory; one takes about 0.5 kB."""

READ_WHOLE_MAX: Final = 2_000
"""Entries of a manifest that is read as a whole, and kept, even where only some of them are asked for."""

VALUES_MAX: Final = 64
"""Partitions or file names that manifests are searched for; beyond that they are read as a whole."""

ROWS_MAX: Final = 10_000
"""Partition rows whose values are kept decoded."""

_BYTES_PER_ENTRY: Final = 64
"""First guess of the compressed size of an entry, corrected by the files written."""

_CODECS: Final = {"zstd": "zstandard", "none": "null", "null": "null", "snappy": "snappy", "deflate": "deflate"}


Entries = TypeVar("Entries", bound=Sequence[ManifestEntry] | Sequence[IndexEntry])

FileQueue = list[tuple[str, bytes]]
"""Names and bytes of files that are still to be created."""


class _KeptManifests:
    """The entries of manifests in memory, by name; small manifests do not take the place of large ones."""

    def __init__(self, size_max: int | None) -> None:
        large, small = (CACHED_ENTRIES, CACHED_SMALL_ENTRIES) if size_max is None else (size_max, size_max)
        self._large: SizedCache[str, tuple[ManifestEntry, ...]] = SizedCache(large)
        self._small: SizedCache[str, tuple[ManifestEntry, ...]] = SizedCache(small)

    def __contains__(self, name: object) -> bool:
        return name in self._large or name in self._small

    def get(self, name: str) -> tuple[ManifestEntry, ...] | None:
        found = self._small.get(name)
        return self._large.get(name) if found is None else found

    def put(self, name: str, entries: tuple[ManifestEntry, ...]) -> None:
        (self._small if len(entries) <= SMALL_ENTRIES else self._large).put(name, entries)

    def drop(self, names: Iterable[str]) -> None:
        gone = list(names)
        self._small.drop(gone)
        self._large.drop(gone)


class ManifestStore:
    """Manifests of one table. May be shared by threads."""

    def __init__(
        self,
        env: Env,
        paths: TablePaths,
        options: CoreOptions,
        partition_types: Sequence[DataType] = (),
        *,
        outside: ExternalFiles | None = None,
        cache_entries: int | None = None,
    ) -> None:
        """`outside` looks at the paths that entries give; without it those of a caller's own making are read."""
        self._env = env
        self._paths = paths
        self.outside = outside
        self._codec = _CODECS.get(options.manifest_compression, "zstandard")
        self._target_size_bytes = options.manifest_target_file_size_bytes
        self._drops_stats = options.manifest_delete_file_drop_stats
        self._partition_types = tuple(partition_types)
        self._bytes_per_entry = float(_BYTES_PER_ENTRY)
        self._manifests = _KeptManifests(cache_entries)
        self._lists: SizedCache[str, tuple[ManifestFileMeta, ...]] = SizedCache(CACHED_METAS)
        self._rows: dict[bytes, tuple[Any, ...]] = {}
        self._without_deletion_vectors: str | None = None
        """The index manifest that was looked through last."""
        self._index: tuple[str, tuple[IndexEntry, ...]] | None = None
        """The index manifest that was read or written last."""

    def write_manifests(
        self, entries: Iterable[ManifestEntry], queue: FileQueue | None = None
    ) -> list[ManifestFileMeta]:
        """Writes entries into new manifests of about the target size; none for no entries.

        With a `queue` they are put there, for `create`.
        """
        pending = list(entries)
        uuid = self._env.new_uuid()
        metas: list[ManifestFileMeta] = []
        start = 0
        while start < len(pending):
            count = max(1, int(self._target_size_bytes / self._bytes_per_entry))
            batch = pending[start : start + count]
            metas.append(self._write_manifest(f"{MANIFEST_PREFIX}{uuid}-{len(metas)}", batch, queue))
            start += count
        return metas

    def write_manifest_list(
        self,
        manifests: Sequence[ManifestFileMeta],
        queue: FileQueue | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> tuple[str, int]:
        """Writes a manifest list, or puts it into the queue, and returns its name and exact size. `properties` are for
        `list_property`; readers of the format pass over them."""
        name = f"{MANIFEST_LIST_PREFIX}{self._env.new_uuid()}-0"
        data = write_manifest_list(manifests, self._codec, properties)
        self._put(name, data, queue)
        self._lists.put(name, tuple(manifests))
        return name, len(data)

    def create(self, queue: FileQueue) -> None:
        """Creates the files side by side: three to six a snapshot, and a disk that is busy takes its time for each.
        Their folder is synced once.

        After an error any of them may be there, or a part of it.
        """
        self._env.together([partial(self._create, *file, sync_folder=False) for file in queue])
        folders = self._env.file_io.folders
        if queue and folders is not None:
            folders.sync(self._paths.manifest_folder)

    @property
    def is_remote(self) -> bool:
        """True where each read is a request to a store."""
        return self._env.is_remote

    def ahead(self, manifests: Iterable[ManifestFileMeta]) -> AbstractContextManager[None]:
        """While the block runs, these manifests are requested before they are read, where that is worth it."""
        return self._ahead(self._manifests, ((each.file_name, each.file_size_bytes) for each in manifests))

    def lists_ahead(self, lists: Iterable[tuple[str, int | None]]) -> AbstractContextManager[None]:
        """The same of manifest lists, by name with their sizes."""
        return self._ahead(self._lists, lists)

    def _ahead(self, known: Container[str], files: Iterable[tuple[str, int | None]]) -> AbstractContextManager[None]:
        env = self._env
        if env.reads is None:
            return nullcontext()
        coming = [env.coming_bytes(self._paths.manifest(name), size) for name, size in files if name not in known]
        return env.reads.ahead(coming) if len(coming) > 1 else nullcontext()

    def read_manifest(self, manifest: ManifestFileMeta | str) -> tuple[ManifestEntry, ...]:
        """Entries of a manifest, in file order; the size is checked where it is known."""
        name = manifest if isinstance(manifest, str) else manifest.file_name
        cached = self._manifests.get(name)
        if cached is not None:
            return cached
        with self._reading(name, None if isinstance(manifest, str) else manifest.file_size_bytes) as data:
            entries = self._checked(tuple(read_manifest(data, self._paths.manifest(name))), name)
        if not isinstance(manifest, str) and len(entries) != manifest.num_added_files + manifest.num_deleted_files:
            raise CorruptDataError(
                f"the manifest has {len(entries)} entries where its list records "
                f"{manifest.num_added_files + manifest.num_deleted_files}; it was overwritten",
                path=self._paths.manifest(name),
            )
        self._manifests.put(name, entries)
        return entries

    def read_manifest_with(self, manifest: ManifestFileMeta, values: Collection[bytes]) -> Sequence[ManifestEntry]:
        """At least those entries in which one of the byte strings occurs (a partition, a file name), in file order.

        A manifest that is large and not in memory is not read into it: of a table of 200 000 files, a process that
        works on one partition neither decodes nor keeps the others.
        """
        count = manifest.num_added_files + manifest.num_deleted_files
        is_cached = manifest.file_name in self._manifests
        if is_cached or count <= READ_WHOLE_MAX or len(values) > VALUES_MAX or any(not any(item) for item in values):
            return self.read_manifest(manifest)
        with self._reading(manifest.file_name, manifest.file_size_bytes) as data:
            path = self._paths.manifest(manifest.file_name)
            return self._checked(read_manifest_with(data, path, values), manifest.file_name)

    def may_hold(self, manifest: ManifestFileMeta, partitions: Collection[bytes]) -> bool:
        """False when the bounds of the manifest say that it has no entry of any of the partitions."""
        if not self._partition_types or len(partitions) > VALUES_MAX:
            return True
        stats = manifest.partition_stats
        if len(stats.null_counts) != len(self._partition_types):
            return True
        try:
            low, high = (self._row(values) for values in (stats.min_values, stats.max_values))
        except InvalidRequestError:
            return True  # no rows of the partition's types: bounds that say nothing
        return any(is_within(self._row(item), low, high, stats.null_counts) for item in partitions)

    def _row(self, row: bytes) -> tuple[Any, ...]:
        cached = self._rows.get(row)
        if cached is None:
            if len(self._rows) >= ROWS_MAX:
                self._rows.clear()
            cached = self._rows[row] = tuple(decode_row(row, self._partition_types))
        return cached

    def read_manifest_list(self, name: str, size_bytes: int | None = None) -> tuple[ManifestFileMeta, ...]:
        """Manifests named by a list, in file order; the size is checked where the snapshot has it."""
        cached = self._lists.get(name)
        if cached is not None:
            return cached
        with self._reading(name, size_bytes) as data:
            metas = tuple(read_manifest_list(data, self._paths.manifest(name)))
        self._lists.put(name, metas)
        return metas

    def list_names(self) -> list[str]:
        """Names of all manifest lists there are, of snapshots or not."""
        entries = self._env.file_io.entries(self._paths.manifest_folder)
        return sorted(entry.name for entry in entries if entry.name.startswith(MANIFEST_LIST_PREFIX))

    def list_property(self, name: str, key: str) -> str | None:
        """What a manifest list was given under a key when it was written; None where it was not, or is gone."""
        try:
            return file_property(self._read(name, None), key)
        except NotFoundError:
            return None

    def read_index_manifest(self, name: str | None) -> tuple[IndexEntry, ...]:
        """Live index files; none for no index manifest."""
        if name is None:
            return ()
        cached = self._index
        if cached is None or cached[0] != name:
            with self._reading(name, None) as data:
                entries = self._checked(tuple(read_index_manifest(data, self._paths.manifest(name))), name)
            cached = self._index = (name, entries)
        return cached[1]

    def vector_files(self, name: str | None) -> dict[tuple[bytes, int], tuple[IndexFileMeta, ...]]:
        """By partition and bucket, the live index files for deletion vectors, also those that hold none any more."""
        found: dict[tuple[bytes, int], tuple[IndexFileMeta, ...]] = {}
        for entry in self.read_index_manifest(name):
            if entry.file.index_type == DELETION_VECTORS_INDEX:
                found[entry.bucket_id] = (*found.get(entry.bucket_id, ()), entry.file)
        return found

    def marking_files(self, name: str | None) -> dict[tuple[bytes, int], tuple[IndexFileMeta, ...]]:
        """The same of those that mark rows of data files."""
        by_bucket = {
            bucket_id: tuple(file for file in files if file.deletion_vectors)
            for bucket_id, files in self.vector_files(name).items()
        }
        return {bucket_id: files for bucket_id, files in by_bucket.items() if files}

    def write_index_manifest(self, entries: Sequence[IndexEntry], queue: FileQueue | None = None) -> str:
        """Writes the live index files of a snapshot, or puts them into the queue, and returns the name."""
        name = f"{INDEX_MANIFEST_PREFIX}{self._env.new_uuid()}-0"
        self._put(name, write_index_manifest(entries, self._codec), queue)
        self._index = (name, tuple(entries))
        return name

    def refuse_deletion_vectors(self, index_manifest: str | None) -> None:
        """Raises `UnsupportedFeatureError` when files of a snapshot have rows marked as deleted.

        A file that names none, as a full compaction leaves it, is fine.
        """
        if index_manifest is None or index_manifest == self._without_deletion_vectors:
            return
        for entry in self.read_index_manifest(index_manifest):
            if entry.file.index_type == DELETION_VECTORS_INDEX and entry.file.deletion_vectors:
                raise UnsupportedFeatureError(
                    f"the table at {self._paths.home} has deletion vectors ({entry.file.file_name}) and is not "
                    "written: marked rows would reappear, since its options have no deletion-vectors.enabled=true; "
                    "write it with Apache Paimon"
                )
        self._without_deletion_vectors = index_manifest

    def delete(self, names: Sequence[str]) -> None:
        """Removes manifests, lists or index manifests, best effort, and forgets them."""
        self.forget(names)
        if names:
            self._env.file_io.delete_all([self._paths.manifest(name) for name in names])

    def forget(self, names: Iterable[str]) -> None:
        """Drops what was deleted from memory."""
        gone = list(names)
        self._lists.drop(gone)
        self._manifests.drop(gone)

    def forget_entries(self, names: Iterable[str]) -> None:
        """Drops the entries of manifests that later snapshots have others for. On a disk: at a store, reading them once
        more for an expiry is a request."""
        if not self._env.is_remote:
            self._manifests.drop(names)

    def _write_manifest(self, name: str, entries: list[ManifestEntry], queue: FileQueue | None) -> ManifestFileMeta:
        if self._drops_stats:
            entries = [_without_stats(entry) if entry.kind is EntryKind.DELETE else entry for entry in entries]
        data = write_manifest(entries, self._codec)
        self._put(name, data, queue)
        self._bytes_per_entry = max(1.0, len(data) / len(entries))
        self._manifests.put(name, tuple(entries))
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
            for index, value in enumerate(self._row(partition)):
                one = ColumnStats(value, value, count if value is None else 0)
                stats[index] = merge_stats(stats[index], one)
        return stats

    def _put(self, name: str, data: bytes, queue: FileQueue | None) -> None:
        if queue is None:
            self._create(name, data)
        else:
            queue.append((name, data))

    def _create(self, name: str, data: bytes, *, sync_folder: bool = True) -> None:
        """No reader looks for a file of this random name before a snapshot names it, so it need not appear at once."""
        write_all(self._env.file_io.open_output(self._paths.manifest(name), sync_folder=sync_folder), data)

    @contextmanager
    def _reading(self, name: str, size_bytes: int | None) -> Iterator[bytes]:
        """The bytes of a file; what is kept of it locally is dropped where they turn out to be wrong."""
        try:
            yield self._read(name, size_bytes)
        except CorruptDataError:
            self._env.forget_immutable(self._paths.manifest(name))
            raise

    def _read(self, name: str, size_bytes: int | None) -> bytes:
        path = self._paths.manifest(name)
        try:
            data = self._env.immutable_bytes(path)
        except NotFoundError as error:
            raise self._missing(path) from error
        if size_bytes is not None and len(data) != size_bytes:
            raise CorruptDataError(
                f"the file has {len(data)} bytes where {size_bytes} are recorded; it is truncated or was overwritten",
                path=path,
                byte_offset=min(len(data), size_bytes),
            )
        return data

    def _checked(self, entries: Entries, name: str) -> Entries:
        if self.outside is not None:
            self.outside.check(entries, self._paths.manifest(name))
        return entries

    def _missing(self, path: str) -> NotFoundError:
        # A drop takes the schemas of the table first, those of its branches with the rest.
        schemas = {self._paths.schema_folder, replace(self._paths, branch_name=None).schema_folder}
        if not all(any(self._env.file_io.entries(folder)) for folder in schemas):
            text = f"the table at {self._paths.home} was dropped or renamed while it was open ({path} is gone)"
            return NotFoundError(text, path=path)
        return MissingManifestError(
            "the file does not exist although a snapshot names it. If that is the newest snapshot, the file was lost: "
            "restore it from a backup; `freshet check-table` says what else is missing. Otherwise the snapshot may "
            "have expired meanwhile: read a newer one, and keep snapshots longer than reads take "
            "(snapshot.time-retained, snapshot.num-retained.min)",
            path=path,
        )


def _without_stats(entry: ManifestEntry) -> ManifestEntry:
    """The entry without statistics of columns; those of the key stay, as Paimon leaves them."""
    return replace(entry, file=replace(entry.file, value_stats=EMPTY_STATS, value_stats_cols=()))
