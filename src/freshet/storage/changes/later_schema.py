"""What a stream says when it meets commits of a schema that is later than the one it reads: its columns stay.

Values that its types cannot hold are refused where they are read (`casts/evolution`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from freshet.storage.metadata.table_store import TableStore

_LOG: Final = logging.getLogger(__name__)


class LaterSchemas:
    """Of one reader, which has these columns: what differs is said once."""

    def __init__(self, store: TableStore, columns: Sequence[str]) -> None:
        self._store = store
        self._columns = tuple(columns)
        self._seen_id = store.schema.id
        self._said = ""

    def notice(self, schema_id: int) -> None:
        """A commit of this schema is read next."""
        if schema_id <= self._seen_id:
            return
        own, now = self._store.schema, self._store.schemas.schema(schema_id)
        self._seen_id = schema_id
        kept = {field.id for field in now.fields}
        known = {field.id for field in own.fields}
        gone = [name for name in self._columns if own.by_name[name].id not in kept]
        come = [field.name for field in now.fields if field.id not in known]
        parts = [
            f"{_named(gone)} dropped, NULL from here on" if gone else "",
            f"{_named(come)} added, not read" if come else "",
        ]
        text = "; ".join(filter(None, parts))
        if text and text != self._said:
            self._said = text
            _LOG.warning(
                "table %s was altered (schema %d) while a stream reads it as of schema %d: %s. Open the stream again "
                "to read the columns of now; it goes on where it stopped",
                self._store.name,
                schema_id,
                own.id,
                text,
            )


def _named(names: Sequence[str]) -> str:
    return ("column " if len(names) == 1 else "columns ") + ", ".join(names)
