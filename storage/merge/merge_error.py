"""The error for rows that a merge engine cannot make one row of: it names the table, the key and what to do.

Such rows are refused when they are written as far as one row tells. What is met here came together by merging, at a
flush, in a compaction or in a read; nothing on disk is wrong, and in each case an option or the column's type is the
remedy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.merge.column_results import EventRefused, NullInNotNull


@dataclass(frozen=True, slots=True)
class MergedTable:
    """What an engine knows of its table: for messages, and to leave keys and NOT NULL columns as they must be."""

    name: str
    key_columns: tuple[str, ...]
    """The whole primary key."""
    not_null: frozenset[str]
    """NOT NULL columns that are not part of the key."""

    def merge_error(self, rows: pa.Table, row: int, reason: str) -> InvalidRequestError:
        """The rows of the key of this row cannot be merged."""
        key = key_text(rows, row, self.key_columns)
        return InvalidRequestError(f"rows of {self.name} with key {key} cannot be merged: {reason}")

    def column_error(self, rows: pa.Table, error: EventRefused | NullInNotNull) -> InvalidRequestError:
        """The same, for what stopped the merge of a column."""
        if isinstance(error, EventRefused):
            return self.merge_error(rows, error.row, f"column {error.column!r}: {error.reason}")
        reason = f"column {error.column!r} is NOT NULL, and merging leaves NULL there; make the column nullable"
        return self.merge_error(rows, error.row, reason)


def key_text(rows: pa.Table, row: int, key_columns: tuple[str, ...]) -> str:
    """A key as people write it: `(shop=3, id='a')`."""
    values = [f"{name}={_shown(rows.column(name)[row])}" for name in key_columns if name in rows.column_names]
    return f"({', '.join(values)})"


def _shown(value: pa.Scalar[Any]) -> str:
    try:
        return repr(value.as_py())
    except (OverflowError, ValueError):  # a date or time outside the years 1 to 9999
        return str(getattr(value, "value", value))
