"""Index files: what a table knows beside its data files, named by the index manifest of a snapshot.

| type             | belongs to                | holds |
|------------------|---------------------------|-------|
| HASH             | a bucket, one file        | hashes of the keys that live in it (dynamic buckets) |
| DELETION_VECTORS | a bucket, one file        | for some data files, which of their rows are deleted |
| others           | the table                 | written by other programs, handed on as they are |

Of append tables without buckets, deletion vectors are in several files, keyed by name. Source: FORMAT.md §4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from freshet.storage.model.manifest import EntryKind

HASH_INDEX: Final = "HASH"
DELETION_VECTORS_INDEX: Final = "DELETION_VECTORS"


@dataclass(frozen=True, slots=True)
class DeletionVectorRange:
    """Where the vector of one data file lies in an index file, in bytes; `cardinality` is the number of its rows."""

    data_file_name: str
    offset: int
    length: int
    cardinality: int | None = None


@dataclass(frozen=True, slots=True)
class IndexFileMeta:
    """One index file. `row_count` is the number of hashes, or of vectors. `deletion_vectors` is None but for those."""

    index_type: str
    file_name: str
    file_size_bytes: int
    row_count: int
    deletion_vectors: tuple[DeletionVectorRange, ...] | None = None
    external_path: str | None = None
    global_index: Mapping[str, Any] | None = None
    """What other programs say of an index of theirs; opaque."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One index file added to or deleted from a bucket. An index manifest holds ADDs only."""

    kind: EntryKind
    partition: bytes
    bucket: int
    file: IndexFileMeta

    @property
    def marked_files(self) -> frozenset[str]:
        """Names of the data files that rows of are deleted."""
        return frozenset(item.data_file_name for item in self.file.deletion_vectors or ())
