"""`$branches`: branches of the table, by name, and when the folder of each was last changed, on the wall clock here.

In an object store a folder has no time; there it is that of the newest file of the branch's schemas.

Source: MERGING.md §6.6; FORMAT.md §12.
"""

from __future__ import annotations

from typing import Final

from freshet.storage.io.file_io import FileStatus
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.paths import BRANCH_PREFIX
from freshet.storage.system_tables.definition import MetadataRows, SystemTableDefinition, columns_of, fields_of

FIELDS: Final = fields_of(branch_name="STRING NOT NULL", create_time="TIMESTAMP(3) NOT NULL")


def _source(store: TableStore, _snapshot: Snapshot | None) -> MetadataRows:
    return MetadataRows(FIELDS, lambda: columns_of(FIELDS, _rows(store)))


def _rows(store: TableStore) -> list[tuple[str, int]]:
    return [
        (folder.name.removeprefix(BRANCH_PREFIX), store.env.wall_clock_ms(_changed_ms(store, folder)))
        for folder in store.env.file_io.entries(store.paths.branch_folder)
        if folder.is_folder and folder.name.startswith(BRANCH_PREFIX)
    ]


def _changed_ms(store: TableStore, folder: FileStatus) -> int:
    if folder.modified_ms:
        return folder.modified_ms
    name = folder.name.removeprefix(BRANCH_PREFIX)
    files = store.env.file_io.entries(store.paths.branch(name).schema_folder)
    return max((status.modified_ms for status in files), default=0)


BRANCHES: Final = SystemTableDefinition("branches", "its branches", _source, FIELDS)
