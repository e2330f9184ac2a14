"""Finds keys in data files, and passes over the rows that deletion vectors mark.

Whatever finds the rows, a semi-join or an index of the file made before, knows the file, which never changes, and not
what has been deleted of it since. So each hit is checked against the vectors that the bucket has now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.lookup.file_lookup import FileLookup, FoundRows
from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.sort_words import Positions
from freshet.storage.metadata.deletion_vector_store import BucketVectors
from freshet.storage.model.data_file import DataFileMeta


class NotedRows:
    """A `FileLookup` that notes each row it finds: what compaction marks, because a newer row takes its place."""

    def __init__(self, files: FileLookup) -> None:
        self._files = files
        self._rows: dict[str, Bitmap32] = {}

    @property
    def rows(self) -> Mapping[str, Bitmap32]:
        """Positions of the rows found, by name of their data file."""
        return self._rows

    def find(self, file: DataFileMeta, keys: pa.Table, columns: Sequence[str] | None) -> FoundRows:
        """What the file has of these keys; see `FileLookup`."""
        found = self._files.find(file, keys, columns)
        if found.is_found.any():
            assert found.file_rows is not None
            hits = found.file_rows[found.is_found].astype(np.uint32)
            self._rows.setdefault(file.file_name, Bitmap32()).update(Bitmap32(hits))
        return found


@dataclass(frozen=True, slots=True)
class UnmarkedRows:
    """A `FileLookup` on top of one that says where in its file each row is."""

    files: FileLookup
    vectors: BucketVectors

    def find(self, file: DataFileMeta, keys: pa.Table, columns: Sequence[str] | None) -> FoundRows:
        """What the file has of these keys and no vector marks; see `FileLookup`."""
        found = self.files.find(file, keys, columns)
        deleted = self.vectors.of(file.file_name)
        if not deleted or not found.is_found.any():
            return found
        assert found.file_rows is not None
        gone = _is_in(found.file_rows, deleted)
        if not gone.any():
            return found
        positions, file_rows = np.where(gone, -1, found.positions), np.where(gone, -1, found.file_rows)
        if columns is None:
            return FoundRows(found.rows, positions, file_rows)
        stays = np.zeros(found.rows.num_rows, np.bool_)
        stays[positions[positions >= 0]] = True
        numbers = np.cumsum(stays) - 1
        positions = np.where(gone, -1, numbers[found.positions])
        return FoundRows(found.rows.filter(pa.array(stays)), np.where(found.positions < 0, -1, positions), file_rows)


def _is_in(rows: Positions, deleted: Bitmap32) -> Flags:
    asked = np.flatnonzero(rows >= 0)
    hits = Bitmap32(rows[asked].astype(np.uint32)) & deleted
    is_in = np.zeros(len(rows), np.bool_)
    if hits:
        is_in[asked] = np.isin(rows[asked], np.asarray(hits.to_array(), np.int64))
    return is_in
