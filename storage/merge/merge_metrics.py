"""How many keys were merged, and for how many of them values were folded one by one in Python.

Rows of a key are merged by operations on whole columns; a few rules cannot be told that way, and then the rows of that
key cost about a thousand times more. `keys_looped` says how often it happened, so that nobody has to guess.
"""

from __future__ import annotations

import threading


class MergeMetrics:
    """Counters of one writer or scan; may be shared by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys_merged = 0
        self._keys_looped = 0

    @property
    def keys_merged(self) -> int:
        """Keys that went through a merge with several rows; a key merged twice counts twice."""
        return self._keys_merged

    @property
    def keys_looped(self) -> int:
        """Those of them for which at least one column was folded value by value."""
        return self._keys_looped

    def __repr__(self) -> str:
        return f"MergeMetrics(keys_merged={self._keys_merged}, keys_looped={self._keys_looped})"

    def add(self, merged: int, looped: int = 0) -> None:
        """Counts keys."""
        with self._lock:
            self._keys_merged += merged
            self._keys_looped += looped
