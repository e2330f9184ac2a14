"""Packs the small changelog files of a commit into one file a partition, where `precommit-compact` asks for it.

The files are concatenated into one, in the folder of the first one's bucket; there is still an entry for each bucket,
and its name says which part of the file it is (`paths.packed_range`). This is what the Flink sink of Apache
Paimon makes of the option, and Flink and this program are all that read it: other engines with Paimon do not know the
format `cc-parquet`.

The files that were packed are removed once the snapshot is there, so that a commit that is tried again finds them. What
a crash leaves of either kind is removed by orphan cleaning.

Source: FORMAT.md §7.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from freshet._frozen import Frozen
from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import ManifestEntry
from freshet.storage.paths import packed_name


class PackedChange(Frozen):
    """The change to be committed; paths of the files that were packed, and of those that they were packed into."""

    store: TableStore
    change: SnapshotChange
    originals: tuple[str, ...] = ()
    made: tuple[str, ...] = ()

    def is_committed(self) -> None:
        """The change is committed: the files that were packed are no longer needed."""
        self.store.env.file_io.delete_all(list(self.originals))

    def is_refused(self) -> None:
        """This form of the change will not be committed."""
        self.store.env.file_io.delete_all(list(self.made))


def packed_change(store: TableStore, change: SnapshotChange) -> PackedChange:
    """The change with its small changelog files packed, where the table asks for it and a partition has several."""
    if not store.options.precommit_compact or len(change.changelog_entries) < 2:
        return PackedChange(store, change)
    limit = min(store.options.compaction_file_size_bytes, store.options.precommit_compact_buffer_bytes)
    entries: list[ManifestEntry] = []
    originals: list[str] = []
    made: list[str] = []
    by_partition: dict[bytes, list[ManifestEntry]] = {}
    for entry in change.changelog_entries:
        if entry.file.file_size_bytes >= limit or entry.file.external_path is not None or entry.file.extra_files:
            entries.append(entry)
        else:
            by_partition.setdefault(entry.partition, []).append(entry)
    for group in (group for found in by_partition.values() for group in _groups(found, store)):
        if len(group) == 1:
            entries += group
            continue
        paths = [store.data_file(entry.partition, entry.bucket, entry.file.file_name) for entry in group]
        with store.naming_dropped_table():
            packed, path = _pack(store, group, paths)
        entries += packed
        originals += paths
        made.append(path)
    return PackedChange(store, replace(change, changelog_entries=tuple(entries)), tuple(originals), tuple(made))


def _groups(entries: Sequence[ManifestEntry], store: TableStore) -> list[list[ManifestEntry]]:
    """Entries that go into one file each, of about the target size."""
    groups: list[list[ManifestEntry]] = [[]]
    size = 0
    for entry in entries:
        if size >= store.options.target_file_size_bytes:
            groups.append([])
            size = 0
        groups[-1].append(entry)
        size += entry.file.file_size_bytes
    return groups


def _pack(store: TableStore, group: Sequence[ManifestEntry], paths: Sequence[str]) -> tuple[list[ManifestEntry], str]:
    start, first = f"compacted-changelog-{store.env.new_uuid()}", group[0]
    packed: list[ManifestEntry] = []
    offset = 0
    for entry in group:
        part = None if not packed else (offset, entry.file.file_size_bytes)
        name = packed_name(start, first.bucket, first.file.file_size_bytes, part)
        packed.append(replace(entry, file=replace(entry.file, file_name=name)))
        offset += entry.file.file_size_bytes
    path = store.data_file(first.partition, first.bucket, packed[0].file.file_name)
    output = store.env.file_io.open_output(path)
    try:
        for source in paths:
            output.write(store.env.file_io.read_bytes(source))
        output.close()
    finally:
        output.abort()
    return packed, path
