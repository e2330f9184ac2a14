"""What a merge engine knows of its table: for messages, and to leave keys and NOT NULL columns as they must be.

Rows that cannot be merged are refused when they are written, where one row alone shows it. What is met here came
together by merging, at a flush, in a compaction or in a read; nothing on disk is wrong, and in each case an option or
the column's type is the remedy.

Rows of a key are merged by operations on whole columns; a few rules cannot be expressed that way, and then the rows of
that key cost about a thousand times more. `MergeMetrics.keys_in_python` counts these keys.
"""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa

from freshet._frozen import Frozen, field
from freshet.storage.exceptions import InvalidRequestError


class MergeMetrics:
    """Counters of one writer or scan; may be shared by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys_merged = 0
        self._keys_in_python = 0

    @property
    def keys_merged(self) -> int:
        """Keys that went through a merge with several rows; a key merged twice counts twice."""
        return self._keys_merged

    @property
    def keys_in_python(self) -> int:
        """The keys of them for which at least one column was folded value by value."""
        return self._keys_in_python

    def __repr__(self) -> str:
        return f"MergeMetrics(keys_merged={self._keys_merged}, keys_in_python={self._keys_in_python})"

    def add(self, merged: int, in_python: int = 0) -> None:
        """Counts keys."""
        with self._lock:
            self._keys_merged += merged
            self._keys_in_python += in_python


class MergedTable(Frozen):
    """One table, as its merge engine sees it."""

    name: str
    key_columns: tuple[str, ...]
    """The whole primary key."""
    not_null: frozenset[str] = frozenset()
    """NOT NULL columns that are not part of the key."""
    metrics: MergeMetrics = field(default_factory=MergeMetrics)

    def merge_error(self, rows: pa.Table, row: int, reason: str) -> InvalidRequestError:
        """The rows of the key of this row cannot be merged."""
        key = key_text(rows, row, self.key_columns)
        return InvalidRequestError(f"rows of {self.name} with key {key} cannot be merged: {reason}")


def key_text(rows: pa.Table, row: int, key_columns: tuple[str, ...]) -> str:
    """A key as people write it: `(shop=3, id='a')`."""
    values = [f"{name}={value_text(rows.column(name)[row])}" for name in key_columns if name in rows.column_names]
    return f"({', '.join(values)})"


def value_text(value: pa.Scalar[Any]) -> str:
    """A value of a row as people write it: `3`, `'a'`."""
    try:
        return repr(value.as_py())
    except (OverflowError, ValueError):  # a date or time outside the years 1 to 9999
        return str(getattr(value, "value", value))
