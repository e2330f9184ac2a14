"""`$options`: the options that the newest schema of the table has, by key; secrets are hidden.

Defaults are not among them, nor what was given when the table was opened.

Source: MERGING.md §6.6; FORMAT.md §2.
"""

from __future__ import annotations

from typing import Final

from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.secrets import shown_options
from freshet.storage.system_tables.definition import MetadataRows, SystemTableDefinition, columns_of, fields_of

FIELDS: Final = fields_of(key="STRING NOT NULL", value="STRING NOT NULL")


def _source(store: TableStore, _snapshot: Snapshot | None) -> MetadataRows:
    return MetadataRows(FIELDS, lambda: columns_of(FIELDS, _rows(store)))


def _rows(store: TableStore) -> list[tuple[str, str]]:
    newest = store.schemas.schema(store.schemas.check_current(store.schema))
    return sorted(shown_options(newest.options).items())


OPTIONS: Final = SystemTableDefinition("options", "the options it has now", _source, FIELDS)
