"""Marks partitions as done: programs that wait for one look for a file `_SUCCESS` in its folder.

    {"creationTime": ms, "modificationTime": ms}

Marked again, a partition keeps the first time and gets another second one. Nothing of the table changes: no snapshot is
made, and rows may still come. A partition without rows can be done, too. The branches of a table share the folders, and
so the marks.

Of the actions of `partition.mark-done-action` this is `success-file`; the others tell a metastore, an address or a
class, and are refused before anything is written. Source: FORMAT.md §12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from freshet.storage.exceptions import InvalidRequestError, NotFoundError, UnsupportedFeatureError
from freshet.storage.maintenance.partition_choice import PartitionValue, partition_folder
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.options.values import split_names

SUCCESS_FILE: Final = "_SUCCESS"
_ACTION: Final = "partition.mark-done-action"
_SUCCESS_ACTION: Final = "success-file"
_CREATED: Final = "creationTime"
_MODIFIED: Final = "modificationTime"


def mark_partitions_done(store: TableStore, partitions: Sequence[Mapping[str, PartitionValue]]) -> tuple[str, ...]:
    """Writes the file of each partition; their paths. All are checked before the first one is written."""
    others = [each for each in split_names(store.options.partition_mark_done_action) if each != _SUCCESS_ACTION]
    if others:
        raise UnsupportedFeatureError(
            f"table {store.name}: {_ACTION} has {others[0]!r}, which is not supported; nothing was marked. For a file "
            f"{SUCCESS_FILE} in the folder of the partition set it to {_SUCCESS_ACTION}, or give that to this call "
            f"alone: table.with_options({{{_ACTION!r}: {_SUCCESS_ACTION!r}}})",
            table=store.name,
            option=_ACTION,
        )
    if not partitions or not all(partitions):
        raise InvalidRequestError(
            'name the partition that is done, such as {"dt": "2026-11-22"}'
            if store.schema.partition_keys
            else f"table {store.name} is not partitioned: there is no partition to mark",
            table=store.name,
        )
    paths = [f"{store.paths.location}/{partition_folder(store, each)}/{SUCCESS_FILE}" for each in partitions]
    store.claims.check_writable()
    store.check_is_there()
    for path in paths:
        now_ms = store.env.now_ms()
        content = {_CREATED: _created_ms(store, path, now_ms), _MODIFIED: now_ms}
        store.env.file_io.overwrite(path, orjson.dumps(content))
    return tuple(paths)


def _created_ms(store: TableStore, path: str, now_ms: int) -> int:
    """When the partition was marked first; now where nothing says so, as in the empty files of other programs."""
    try:
        found = orjson.loads(store.env.file_io.read_bytes(path))
    except (NotFoundError, orjson.JSONDecodeError):
        return now_ms
    created = found.get(_CREATED) if isinstance(found, dict) else None
    return created if isinstance(created, int) else now_ms
