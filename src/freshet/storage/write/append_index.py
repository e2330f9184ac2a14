"""The deletion vectors of one bucket of an append table, which other programs wrote, while files of it are joined.

A joined file is written without the rows that were marked, so its inputs must take their vectors along: of the index
files that have one, the vectors of other data files go into a new index file, and the commit that replaces the data
files replaces these index files too. A bucket has one index file, the partition of a table without buckets several;
those that no joined file is in stay. Where another program has marked rows of an input meanwhile, the commit does not
fit, and the compaction is dropped.

Source: FORMAT.md §10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from freshet.storage.metadata.deletion_vector_store import BucketVectors
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.manifest import IndexFileMeta
from freshet.storage.write.increment import CompactionRound


def has_vectors(store: TableStore) -> bool:
    """Whether rows of the table may be marked."""
    return store.options.deletion_vectors_enabled


class AppendIndex:
    """Belongs to one bucket writer."""

    def __init__(self, store: TableStore, index_files: Sequence[IndexFileMeta]) -> None:
        self._store = store
        self.vectors = BucketVectors(store.vectors, tuple(index_files))

    @property
    def names(self) -> frozenset[str]:
        """Names of the committed index files."""
        return frozenset(file.file_name for file in self.vectors.index_files)

    def completed(self, message: CommitMessage, rounds: Sequence[CompactionRound]) -> CommitMessage:
        """The message of these rounds, with the index files that change; those are the committed ones from then on."""
        gone = {name for each in rounds for name in each.gone}
        replaced = tuple(file for file in self.vectors.index_files if marked_files(file) & gone)
        if not replaced:
            return message
        left = BucketVectors(self._store.vectors, replaced).without(gone)
        kept = tuple(file for file in self.vectors.index_files if file not in replaced)
        written: tuple[IndexFileMeta, ...] = ()
        if left:
            is_64_bit = self._store.options.deletion_vectors_bitmap64
            written = (self._store.vectors.write(left, is_64_bit=is_64_bit),)
        self.vectors = BucketVectors(self._store.vectors, (*kept, *written))
        return replace(message, compact_new_index_files=written, compact_deleted_index_files=replaced)


def marked_files(file: IndexFileMeta) -> frozenset[str]:
    """Names of the data files of which an index file marks rows."""
    return frozenset(vector.data_file_name for vector in file.deletion_vectors or ())
