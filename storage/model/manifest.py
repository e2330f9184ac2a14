"""Manifest entries, and the manifest files that hold them.

The live files of a snapshot are the ADD entries of base and delta whose identity is in no DELETE entry anywhere, in
whatever order they stand. Therefore one identity is never added, deleted and added again; a change of level is a
DELETE at the old level and an ADD at the new one, which is legal because the level is part of the identity.

Source: FORMAT.md §3.4, §4.1, §4.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from freshet.storage.model.data_file import DataFileMeta, SimpleStats

FileIdentity = tuple[bytes, int, int, str, tuple[str, ...], bytes | None, str | None]
"""(partition, bucket, level, file name, extra files, embedded index, external path)."""


class EntryKind(IntEnum):
    """The code is part of the format."""

    ADD = 0
    DELETE = 1


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One file added to or deleted from a bucket. `partition` is a serialized binary row of the partition keys."""

    kind: EntryKind
    partition: bytes
    bucket: int
    total_buckets: int
    file: DataFileMeta

    @property
    def identity(self) -> FileIdentity:
        """What a DELETE must repeat exactly to hit its ADD."""
        file = self.file
        return (
            self.partition,
            self.bucket,
            file.level,
            file.file_name,
            file.extra_files,
            file.embedded_index,
            file.external_path,
        )


@dataclass(frozen=True, slots=True)
class ManifestFileMeta:
    """One manifest, as a manifest list names it. `file_size_bytes` is exact."""

    file_name: str
    file_size_bytes: int
    num_added_files: int
    num_deleted_files: int
    partition_stats: SimpleStats
    schema_id: int
    min_bucket: int | None = None
    max_bucket: int | None = None
    min_level: int | None = None
    max_level: int | None = None
    min_row_id: int | None = None
    max_row_id: int | None = None
