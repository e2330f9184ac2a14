"""What rows an edit writes: computed from the rows of a snapshot, for the whole table or for some keys of it again.

The second is for keys that others have changed since the first: the rows of all other keys stay as they were computed.
So a plan looks at one row of the table at a time, and at what was given with the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from freshet.storage.lookup.stored_rows import find_stored_rows
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.row_kind import ROW_KIND_COLUMN, RowKind
from freshet.storage.model.snapshot import Snapshot


class RowPlan(Protocol):
    """Rows in columns of the table, and `_ROW_KIND` as codes."""

    def of_table(self, store: TableStore, snapshot: Snapshot | None) -> Iterator[pa.Table]:
        """All rows to write, in parts; of a key at most one but for a -U in front of its +U."""
        ...

    def of_keys(self, store: TableStore, snapshot: Snapshot | None, keys: pa.Table) -> pa.Table:
        """Those of these keys alone; `keys` has the columns of the primary key, each key once."""
        ...


def with_kind(rows: pa.Table, kind: RowKind) -> pa.Table:
    """The rows with their kind."""
    return rows.append_column(ROW_KIND_COLUMN, pa.array(np.full(rows.num_rows, kind, np.int8)))


def rows_of_keys(store: TableStore, snapshot: Snapshot | None, keys: pa.Table) -> pa.Table:
    """The rows that the table has of these keys."""
    return find_stored_rows(store, snapshot, keys).rows
