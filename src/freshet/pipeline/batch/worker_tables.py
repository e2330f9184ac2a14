"""Tables that a Python worker keeps open from task to task: their caches of manifests make restoring a bucket cheap."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from freshet.storage.exceptions import ConflictError
from freshet.storage.table import Table

TABLES_MAX: Final = 16


@lru_cache(TABLES_MAX)
def open_worker_table(
    location: str, schema_id: int, options: tuple[tuple[str, str], ...], schema_time_ms: int | None = None
) -> Table:
    """The table at this schema, with these options over its own.

    A Python worker lives longer than a query, so what it has open is told apart by the time of the schema.
    """
    table = Table.open(location, options=dict(options), schema_id=schema_id)
    if schema_time_ms is not None and table.schema.time_ms != schema_time_ms:
        raise ConflictError(
            f"the table at {location} was dropped and created again while it was written to; start the pipeline anew",
            table=location,
        )
    return table
