"""Tables with changelogs that a test places itself: each commit says what it writes and what it logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from freshet.storage.commit.committer import Committer
from freshet.storage.files.data_file_writer import AppendFileWriter, KeyValueFileWriter
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta, FileSource
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.table import Table
from tests.storage.scan.scan_tables import PlacedTable, Rows

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
Change = tuple[Any, ...]
"""(kind, column values…, snapshot id)."""


class LoggedTable(PlacedTable):
    """`log` commits changes as changelog files of an APPEND, `place` (of the base) rows as data files."""

    def __init__(
        self,
        folder: Path,
        columns: pa.Schema = COLUMNS,
        *,
        keys: Sequence[str] = ("id",),
        producer: str = "input",
        options: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        spelled = {"changelog-producer": producer, **(options or {})} if keys else dict(options or {})
        super().__init__(folder, columns, keys=keys, options=spelled, **more)

    @property
    def store(self) -> TableStore:
        """For commits by hand, which bring their changelog with them."""
        return open_table_store(self.env, self.location, options={"changelog-producer": "none"})

    @property
    def table(self) -> Table:
        """As a reader opens it."""
        return Table(open_table_store(self.env, self.location, name="db.t"))

    def log(self, changes: Rows, rows: Rows = ()) -> Snapshot:
        """Commits changes as changelog files, with rows as data files; both have `_ROW_KIND`, +I by default."""
        store = self.store
        found: dict[tuple[bytes, int], dict[str, tuple[DataFileMeta, ...]]] = {}
        for part, given in (("changelog_files", changes), ("new_files", rows)):
            for partition, bucket, table in self._routed(store, self._key_values(store, given)) if given else ():
                files = tuple(self._logged(partition, bucket, table))
                found.setdefault((partition, bucket), {})[part] = files
        messages = [CommitMessage(*place, store.options.bucket, **files) for place, files in found.items()]
        self.identifier += 1
        return Committer(store, "placed").commit(self.identifier, messages).snapshots[-1]

    def _logged(self, partition: bytes, bucket: int, rows: pa.Table) -> list[DataFileMeta]:
        if not self.store.schema.has_primary_key:
            appender = AppendFileWriter(self.store, partition, bucket, FileSource.APPEND, 0)
            appender.write(rows.select(list(self.store.schema.column_names)))
            return appender.close()
        writer = KeyValueFileWriter(self.store, partition, bucket, 0, FileSource.APPEND)
        writer.write(rows)
        return writer.close()


def row(key: int, value: str | None = None, kind: str = "+I", **more: Any) -> dict[str, Any]:
    return {"id": key, "v": value, "_ROW_KIND": kind, **more}


def read_changes(batches: pa.Table | Iterable[pa.RecordBatch]) -> list[Change]:
    """Changes as tuples: kind first, then the columns, the snapshot last."""
    found = [
        row
        for batch in (batches.to_batches() if isinstance(batches, pa.Table) else batches)
        for row in batch.to_pylist()
    ]
    return [(row.pop("_ROW_KIND"), *row.values()) for row in found]


def folded(changes: Iterable[Change], start: Mapping[Any, Any] | None = None) -> dict[Any, Any]:
    """The table that changes (kind, key, value, …) make, checking each against the row that is there."""
    state = dict(start or {})
    for kind, key, value, *_ in changes:
        match kind:
            case "+I":
                assert key not in state
                state[key] = value
            case "+U":
                assert key not in state
                state[key] = value
            case _:
                assert state.pop(key) == value
    return state
