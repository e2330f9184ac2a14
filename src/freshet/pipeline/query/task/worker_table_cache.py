"""Tables that a Python worker keeps open from task to task: their caches of manifests make restoring a bucket cheap."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from freshet.storage.table import Table, TableHandle

TABLES_MAX: Final = 256


@lru_cache(TABLES_MAX)
def open_worker_table(handle: TableHandle) -> Table:
    """The table of a handle. A Python worker lives longer than a query: by the time of its schema the handle
    distinguishes a table that is open here from a later one of its name."""
    return Table.of(handle)
