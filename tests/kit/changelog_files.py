"""The changelog files of a table, snapshot by snapshot, and what they add up to.

changes = changelog(table)                 {snapshot id: [Change, …]}, in the order of the files
texts_of(changes[3])                       ["-U 1,apple", "+U 1,apache"]: kind, then the columns
folded(changes.values())                   the rows after all of them, by key; checks each change
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.metadata.live_files import changelog_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.row_kind import KIND_TEXTS
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.table import Table


@dataclass(frozen=True)
class Change:
    """A changelog row: `kind` as text, the sequence number, the values by column."""

    kind: str
    number: int
    values: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.kind} {','.join('N' if value is None else str(value) for value in self.values.values())}"


def changelog(table: Table, *, after: int = 0) -> dict[int, list[Change]]:
    """The changes of every snapshot that the table has, or of those after one; empty ones left out."""
    snapshots = [snapshot for snapshot in table.snapshots() if snapshot.id > after]
    found = {snapshot.id: changes_of(table.store, snapshot) for snapshot in snapshots}
    return {number: changes for number, changes in found.items() if changes}


def changes_of(store: TableStore, snapshot: Snapshot) -> list[Change]:
    """The changes of one snapshot, file by file; its record count must be right."""
    changes = [
        change
        for entry in changelog_entries(store.manifests, snapshot)
        for change in file_changes(store, entry.partition, entry.bucket, entry.file)
    ]
    assert (snapshot.changelog_record_count or 0) == len(changes)
    assert (snapshot.changelog_manifest_list is None) == (not changes)
    return changes


def file_changes(store: TableStore, partition: bytes, bucket: int, file: DataFileMeta) -> list[Change]:
    """The changes of one file."""
    columns = store.schema.column_names
    batches = DataFileRead(store, partition, bucket, file, columns, system_columns=True).batches()
    rows = plain_rows(pa.Table.from_batches(batches))
    assert len(rows) == file.row_count
    return [
        Change(KIND_TEXTS[row[VALUE_KIND_COLUMN]], row[SEQUENCE_NUMBER_COLUMN], {name: row[name] for name in columns})
        for row in rows
    ]


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as dicts; timestamps as numbers, since Python has none of nanoseconds."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.itercolumns()
    ]
    rows: list[dict[str, Any]] = pa.table(dict(zip(table.column_names, columns, strict=True))).to_pylist()
    return rows


def texts_of(changes: Iterable[Change]) -> list[str]:
    """Changes as texts, in their order."""
    return [str(change) for change in changes]


def folded(
    snapshots: Iterable[Sequence[Change]], keys: Sequence[str] = ("k",), *, is_strict: bool = True
) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    """The rows after these changes, by key.

    Strict: a +I comes only if there is no row, -U and -D remove the current row, with its values, and after each -U its
    +U comes next.
    """
    rows: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for changes in snapshots:
        awaited: tuple[Any, ...] | None = None
        for change in changes:
            key = tuple(change.values[name] for name in keys)
            if is_strict:
                assert (change.kind == "+U") == (awaited is not None), f"{change} after a change of {awaited}"
                assert awaited in (None, key)
                current = rows.get(key)
                if change.kind in ("-U", "-D"):
                    assert current is not None and repr(current) == repr(change.values), (str(change), current)
                elif change.kind == "+I":
                    assert current is None, (str(change), current)
            awaited = key if change.kind == "-U" and is_strict else None
            if change.kind in ("+I", "+U"):
                rows[key] = change.values
            else:
                rows.pop(key, None)
        assert awaited is None
    return rows
