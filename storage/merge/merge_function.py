"""What a merge engine is to the merge: rows of each key in order go in, at most one row per key comes out.

The rule of the lone record holds for every engine: a key with exactly one row passes as it is, with its kind, its
sequence number and its nulls, and the function is not asked. (The compaction of a table that needs lookup has no such
rule; its function says so by `passes_lone_rows = False`.)

`drop_delete` removes results whose kind is -U or -D: readers always do, compactions where no older row can lie below.

Source: LSM semantics §0, §2.1, §2.7.
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.merge.key_order import KeySegments
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.schema import VALUE_KIND_COLUMN

LEVEL_COLUMN: Final = "_LEVEL"
"""Level of the file a row comes from, int8; 0 or less for level 0 and the buffer. Only while rows are merged, and only
for functions that read levels; the callers add it."""


class MergeFunction(Protocol):
    """One merge engine with its options. Engines derive from it and say only where they are not as most are."""

    @property
    def passes_lone_rows(self) -> bool:
        """True if a key with one row is not merged."""
        ...

    @property
    def merges_in_stages(self) -> bool:
        """True if rows merged in stages, each on neighbouring rows, always give what they give merged at once."""
        return False

    @property
    def reads_levels(self) -> bool:
        """True if the rows must have the column `LEVEL_COLUMN`; results never have it."""
        return False

    def columns_needed(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        """`columns`, and those that the merge must see to make them; key and sequence columns are the caller's."""
        return columns

    def merge(
        self,
        segments: KeySegments,
        *,
        drop_delete: bool,
        columns: tuple[str, ...] | None = None,
        executor: Executor | None = None,
    ) -> pa.Table:
        """The results in key order, with all columns or those named; `executor` works on columns in parallel."""
        ...


def retracts(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """True where the kind of a row is -U or -D."""
    kinds: npt.NDArray[np.int8] = rows.column(VALUE_KIND_COLUMN).to_numpy()
    result: npt.NDArray[np.bool_] = (kinds == RowKind.UPDATE_BEFORE) | (kinds == RowKind.DELETE)
    return result
