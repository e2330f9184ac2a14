"""How lookups went: which way the files were asked, and what became of their stores."""

from __future__ import annotations

import threading


class LookupMetrics:
    """Counters of one writer or task; may be shared by threads.

    | counter | counts |
    |---|---|
    | keys | keys asked of files; one that is asked of several files counts for each |
    | found | those of them that a file had |
    | by_store, by_reading | files asked, by the way they were |
    | stores_kept | stores made of rows in memory, as their file was written |
    | stores_built, stores_evicted, stores_broken | stores made; removed for age, room, or because their file has left the table; thrown away as damaged or foreign |
    """  # noqa: E501 - a table

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"LookupMetrics({self.counts()})"

    def add(self, **counts: int) -> None:
        """Adds to counters."""
        with self._lock:
            for name, count in counts.items():
                if count:
                    self._counts[name] = self._counts.get(name, 0) + count

    def counts(self) -> dict[str, int]:
        """A copy of the counters that are not zero."""
        with self._lock:
            return dict(self._counts)
