"""Tables of a merge engine for tests: rows as dicts in and out, and a form in which rows can be compared.

table = FreshetTable.create(folder, columns, ["k"], options)     one bucket, automatic compaction off
table.commit([{"k": 1, "v": 5, "_ROW_KIND": "+I"}])
table.compact()
assert texts(table.read()) == texts(arrow_rows(expected, columns))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from freshet import Catalog
from freshet.storage.commit.commit_result import CommitResult
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.sql_type import parse_sql_type
from freshet.storage.table import Table
from tests.kit.engine_merges import KIND_COLUMN, Values

MANUAL: Mapping[str, str] = {"bucket": "1", "num-sorted-run.compaction-trigger": "1000", "num-levels": "3"}
"""No compaction but those asked for."""

Decode = Callable[[Any], Any]


def schedule_options(options: Mapping[str, str]) -> dict[str, str]:
    """A table's options with those that leave compaction to the caller; two levels where lookup compacts anyway."""
    emits = options.get("changelog-producer") == "lookup"
    lookup = options.get("merge-engine") == "first-row" or options.get("force-lookup") == "true" or emits
    return {**MANUAL, **({"num-levels": "2"} if lookup else {}), **options}


def arrow_rows(rows: Sequence[Values], columns: Mapping[str, str]) -> pa.Table:
    """Rows as Arrow; columns that a row lacks are NULL, `_ROW_KIND` is +I where it is not given."""
    arrays = {
        name: pa.array([row.get(name) for row in rows], arrow_type(parse_sql_type(type_text)))
        for name, type_text in columns.items()
    }
    return pa.table({**arrays, KIND_COLUMN: pa.array([row.get(KIND_COLUMN, "+I") for row in rows], pa.string())})


def texts(table: pa.Table, unordered: Mapping[str, Decode | None] | None = None) -> list[str]:
    """Rows as sorted texts: -0.0 is not 0.0, maps have no order, nor have `unordered` columns (decoded before)."""
    columns = []
    names = [name for name in table.column_names if name != KIND_COLUMN]
    for name in names:
        column = table.column(name)
        values = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        if unordered is not None and name in unordered:
            decode = unordered[name]
            values = [None if value is None else sorted(map(repr, (decode or plain)(value))) for value in values]
        columns.append([plain(value) for value in values])
    return sorted(repr(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True))


def plain(value: Any) -> Any:
    """The value with maps in the order of their texts."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):
            return sorted(((plain(key), plain(item)) for key, item in value), key=repr)
        return [plain(item) for item in value]
    return value


@dataclass
class FreshetTable:
    """A table of Freshet's with one writer that stays open."""

    table: Table
    columns: Mapping[str, str]
    identifier: int = 0
    session: Any = field(default=None, repr=False)

    @classmethod
    def create(
        cls,
        folder: Path,
        columns: Mapping[str, str],
        primary_keys: Sequence[str],
        options: Mapping[str, str],
        *,
        partition_keys: Sequence[str] = (),
        name: str = "t",
    ) -> FreshetTable:
        table = Catalog(str(folder)).create_table(
            f"db.{name}",
            schema=columns,
            primary_keys=primary_keys,
            partition_keys=partition_keys,
            options=schedule_options(options),
        )
        return cls(table, columns)

    def write(self, rows: Sequence[Values]) -> int:
        """Rows wait for the next commit."""
        if self.session is None:
            self.session = self.table.writer("freshet")
        written: int = self.session.write(arrow_rows(rows, self.columns))
        return written

    def commit(self, rows: Sequence[Values] = ()) -> CommitResult:
        """Writes and commits."""
        if rows:
            self.write(rows)
        self.identifier += 1
        result: CommitResult = self.session.commit(self.identifier)
        return result

    def compact(self) -> None:
        """Compacts fully while the writer is open."""
        self.table.compact(full=True)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The merged rows."""
        return self.table.scan(columns).to_arrow()

    def close(self) -> None:
        """Ends the writer."""
        if self.session is not None:
            self.session.close()
            self.session = None
