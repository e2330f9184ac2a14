"""What a lookup is: keys in, their stored rows out, and for each key where its row is.

    keys   [3, 5, 8]      rows   5 | b        positions   [-1, 0, 1]
                                 8 | e

`FileLookup` is the one interface behind every lookup: it finds keys in one immutable data file. `RunLookup` asks it
file by file for sorted runs and levels, `stored_rows` for a snapshot. An implementation may choose by cost how to find
the keys of one call: by reading the file (`semi_join`), or in an index of the file made before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.sort_words import Positions
from freshet.storage.model.data_file import DataFileMeta


@dataclass(frozen=True, slots=True)
class FoundRows:
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
