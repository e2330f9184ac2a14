"""Splits: what one reader reads at a time, complete in itself; of the rows of a snapshot, and of changes.

`raw_convertible` splits hold each key once and no retract row, so their files are read straight, in order; the files
of any other split are cut into sections and merged.

| part of a split of changes | rows come out as |
|---|---|
| `removed` | the rows of a state that is gone, merged, each of kind -D |
| `added` | the rows of a state that is there now, merged, each of kind +I |
| both, `is_compared` | their difference: rows equal in both do not come out, others as +I, as -U before +U, or as -D |
| `files` | changes as they are stored, file by file: with their kinds in a keyed table, as +I in an append table |

Changelog files and the files that a commit added are `files`. A stream that begins with the rows of a snapshot gets
them as `added`; an overwrite is what it `removed` and what it `added`; of two snapshots, the keys of the split are the
same on both sides. Parts come in the order of the table. An overwrite that gives a partition another number of buckets
is first all that it removed, then all that it added: a key may have come to another bucket.

Source: FORMAT.md §7.3.
"""

from __future__ import annotations

from freshet._frozen import Frozen
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import IndexFileMeta
from freshet.storage.model.snapshot_walk import StepSize


class Split(Frozen):
    """Files of one bucket at one snapshot."""

    snapshot_id: int
    partition: bytes
    bucket: int
    total_buckets: int
    files: tuple[DataFileMeta, ...]
    raw_convertible: bool
    index_files: tuple[IndexFileMeta, ...] = ()
    """The index files of the bucket whose deletion vectors say which rows of `files` do not count."""
    marked_by: tuple[IndexFileMeta, ...] | None = None
    """Only rows count that the deletion vectors of these mark; None: all. Of files whose rows need no merging."""

    @property
    def row_count_max(self) -> int:
        """Rows stored; exact for raw-convertible splits none of whose rows are marked as deleted."""
        return sum(file.row_count for file in self.files)

    @property
    def marked_row_count(self) -> int | None:
        """Rows of the files that deletion vectors mark; None where the index files do not say."""
        names = {file.file_name for file in self.files}
        counts = [
            vector.cardinality
            for index_file in self.index_files
            for vector in index_file.deletion_vectors or ()
            if vector.data_file_name in names
        ]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None


class ChangeSplit(Frozen):
    """Changes that one snapshot made in one bucket. A value: it may be pickled and read by another process."""

    snapshot_id: int
    partition: bytes
    bucket: int
    files: tuple[DataFileMeta, ...] = ()
    removed: Split | None = None
    added: Split | None = None
    is_compared: bool = False
    total_buckets: int = 0
    """The number of buckets of the partition, when the changes were made."""
    leaving: bool | None = None
    """In a table whose rows move between partitions: True for the changes of keys that are gone from the bucket at the
    end of the split, False for those of all other keys, None for both."""

    @property
    def row_count_max(self) -> int:
        """Rows stored; fewer may come out of states that are merged, and of a filter."""
        states = sum(state.row_count_max for state in (self.removed, self.added) if state is not None)
        return states + sum(file.row_count for file in self.files)

    @property
    def size(self) -> StepSize:
        """Files, bytes and rows."""
        states = [state.files for state in (self.removed, self.added) if state is not None]
        files = [file for part in (self.files, *states) for file in part]
        return StepSize(len(files), sum(file.file_size_bytes for file in files), sum(file.row_count for file in files))
