"""A split: what one reader reads at a time, complete in itself.

`raw_convertible` splits hold each key once and no retract row, so their files are read straight, in order; the files
of any other split are cut into sections and merged. Source: FORMAT.md §7.3.
"""

from __future__ import annotations

from dataclasses import dataclass

from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.index_file import IndexFileMeta


@dataclass(frozen=True, slots=True)
class Split:
    """Files of one bucket at one snapshot."""

    snapshot_id: int
    partition: bytes
    bucket: int
    total_buckets: int
    files: tuple[DataFileMeta, ...]
    raw_convertible: bool
    index_files: tuple[IndexFileMeta, ...] = ()
    """Those of the bucket whose deletion vectors say which rows of `files` do not count."""

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
