"""Manifest entries of data files and of index files, and the manifest files that hold the former.

The live files of a snapshot are the ADD entries of base and delta whose identity is in no DELETE entry anywhere, in
whatever order they come. Therefore one identity is never added, deleted and added again; a change of level is a
DELETE at the old level and an ADD at the new one, which is legal because the level is part of the identity.

Index files hold what a table knows besides its data files:

| type             | belongs to                | holds |
|------------------|---------------------------|-------|
| HASH             | a bucket, one file        | hashes of the keys that live in it (dynamic buckets) |
| DELETION_VECTORS | a bucket, one file        | for some data files, which of their rows are deleted |
| others           | the table                 | written by other programs, handed on as they are |

Of append tables without buckets, deletion vectors are in several files, keyed by name.

Source: FORMAT.md §3.4, §4.1, §4.2, §4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

from freshet._frozen import Frozen
from freshet.storage.model.data_file import DataFileMeta, SimpleStats

BucketId = tuple[bytes, int]
"""(partition, bucket)."""

FileIdentity = tuple[bytes, int, int, str, tuple[str, ...], bytes | None, str | None]
"""(partition, bucket, level, file name, extra files, embedded index, external path)."""

HASH_INDEX: Final = "HASH"
DELETION_VECTORS_INDEX: Final = "DELETION_VECTORS"


class EntryKind(IntEnum):
    """The code is part of the format."""

    ADD = 0
    DELETE = 1


class ManifestEntry(Frozen):
    """One file added to or deleted from a bucket. `partition` is a serialized binary row of the partition keys."""

    kind: EntryKind
    partition: bytes
    bucket: int
    total_buckets: int
    file: DataFileMeta

    @property
    def bucket_id(self) -> BucketId:
        """Whose file it is."""
        return self.partition, self.bucket

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


class ManifestFileMeta(Frozen):
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


class DeletionVectorRange(Frozen):
    """Where the vector of one data file lies in an index file, in bytes; `cardinality` is the number of its rows."""

    data_file_name: str
    offset: int
    length: int
    cardinality: int | None = None


class IndexFileMeta(Frozen):
    """One index file. `row_count` is the number of hashes, or of vectors. `deletion_vectors` is None but for those."""

    index_type: str
    file_name: str
    file_size_bytes: int
    row_count: int
    deletion_vectors: tuple[DeletionVectorRange, ...] | None = None
    external_path: str | None = None
    global_index: Mapping[str, Any] | None = None
    """What other programs say of an index of theirs; opaque."""


class IndexEntry(Frozen):
    """One index file added to or deleted from a bucket. An index manifest holds ADDs only."""

    kind: EntryKind
    partition: bytes
    bucket: int
    file: IndexFileMeta

    @property
    def bucket_id(self) -> BucketId:
        """Whose file it is."""
        return self.partition, self.bucket

    @property
    def marked_files(self) -> frozenset[str]:
        """Names of the data files that rows of are deleted."""
        return frozenset(item.data_file_name for item in self.file.deletion_vectors or ())
