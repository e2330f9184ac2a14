"""What a lookup is: keys in, their stored rows out, and for each key where its row is.

    keys   [3, 5, 8]      rows   5 | b        positions   [-1, 0, 1]
                                 8 | e

`FileLookup` is the one interface behind every lookup: it finds keys in one immutable data file. `RunLookup` asks it
file by file for sorted runs and levels, `stored_rows` for a snapshot. An implementation may choose by cost how to find
the keys of one call: by reading the file (`SemiJoin`), or in an index of the file made before.

Whatever finds the rows, a semi-join or an index of the file made before, knows the file, which never changes, and not
what has been deleted of it since. So each hit is checked against the vectors that the bucket has now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.sort_words import Positions
from freshet.storage.metadata.deletion_vector_store import BucketVectors
from freshet.storage.model.data_file import DataFileMeta


class FoundRows(Frozen):
    """The answer to a number of keys.

    `rows` has each row found once. `positions` has one number for each key asked, in the order asked: the position of
    its row in `rows`, or -1 where there is none.

    `file_rows`, where one file was asked, has for each key the number of its row in the file, counted from 0, or -1:
    what a deletion vector names. A lookup that does not know it leaves it out.
    """

    rows: pa.Table
    positions: Positions
    file_rows: Positions | None = None

    @property
    def is_found(self) -> Flags:
        """True for the keys asked that have a row."""
        return self.positions >= 0

    def by_key(self) -> pa.Table:
        """One row for each key asked, in the order asked: all columns NULL where there is none."""
        indices = pa.array(self.positions, mask=self.positions < 0)
        schema = pa.schema([field.with_nullable(True) for field in self.rows.schema])
        return pa.table([column.take(indices) for column in self.rows.columns], schema=schema)


class FileLookup(Protocol):
    """Finds keys in the data files of one bucket."""

    def find(self, file: DataFileMeta, keys: pa.Table, columns: Sequence[str] | None) -> FoundRows:
        """What the file has of these keys.

        `keys` has the key columns of the table (the primary key without partition columns), ascending, each key once.
        Rows come as the file has them, retracts included: `_SEQUENCE_NUMBER`, `_VALUE_KIND`, then `columns`, in key
        order. With None only the presence of the keys is asked: `rows` has no columns, and its row count and the
        positions mean nothing beyond that -1 is absent.

        Raises `CorruptDataError` for a file that is missing or damaged.
        """
        ...


def no_rows_found(schema: pa.Schema, key_count: int) -> FoundRows:
    """The answer where none of the keys is there."""
    return FoundRows(schema.empty_table(), np.full(key_count, -1, np.int64))


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


class UnmarkedRows(Frozen):
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
