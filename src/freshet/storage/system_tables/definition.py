"""What a system table is: its columns, and how their values come from the metadata of a table.

A column is built when it is asked for, whole, as an Arrow array: statistics of 100,000 files as texts cost more than
the rest of them, and most questions leave them out.

Source: MERGING.md §6.6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

from freshet.storage.filters.predicate import Predicate
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_file import EMPTY_ROW
from freshet.storage.model.data_type import DataField
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.split import Split
from freshet.storage.model.sql_type import parse_sql_type

WHOLE: Final = Split(0, EMPTY_ROW, 0, 0, (), raw_convertible=True)
"""All of a table that is read in one part."""

Columns = Mapping[str, Callable[[], "pa.Array[Any]"]]
"""What makes each column, by its name."""


class RowSource(Protocol):
    """The rows of a system table of one table."""

    @property
    def fields(self) -> tuple[DataField, ...]:
        """Its columns."""
        ...

    def plan(self, predicate: Predicate | None) -> Sequence[Split]:
        """What can be read independently; whatever is left out has no row that can match."""
        ...

    def batches(
        self, part: Split, columns: tuple[str, ...], predicate: Predicate | None, executor: Executor | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows of one part, in these columns; of those that do not match any may be there still. An executor decodes
        files ahead."""
        ...


@dataclass(frozen=True, slots=True)
class SystemTableDefinition:
    """One system table of every table."""

    noun: str
    """Behind the `$`."""
    summary: str
    """Half a line for people."""
    source: Callable[[TableStore, Snapshot | None], RowSource]
    fields: tuple[DataField, ...] = ()
    """Its columns; none where they are those of the table, maybe with others."""
    travels: bool = False
    """True where it is one of a snapshot; the others say what there is now."""


@dataclass(frozen=True)
class MetadataRows:
    """Rows made of metadata, all in one part."""

    fields: tuple[DataField, ...]
    columns: Callable[[], Columns]

    def plan(self, predicate: Predicate | None) -> Sequence[Split]:
        """One part."""
        del predicate
        return [WHOLE]

    def batches(
        self, part: Split, columns: tuple[str, ...], predicate: Predicate | None, executor: Executor | None = None
    ) -> Iterator[pa.RecordBatch]:
        """All rows."""
        del part, predicate, executor
        made = self.columns()
        fields = {field.name: field for field in self.fields}
        schema = pa.schema(
            [pa.field(name, arrow_type(fields[name].type), fields[name].type.nullable) for name in columns]
        )
        yield from pa.Table.from_arrays([made[name]() for name in columns], schema=schema).to_batches()


def fields_of(**types: str) -> tuple[DataField, ...]:
    """Columns by name, with their types as SQL has them."""
    return tuple(DataField(index, name, parse_sql_type(text)) for index, (name, text) in enumerate(types.items()))


def columns_of(fields: Sequence[DataField], rows: Sequence[Sequence[Any]]) -> Columns:
    """The columns of rows, for tables that never have many."""

    def column(index: int, field: DataField) -> Callable[[], pa.Array[Any]]:
        return lambda: pa.array([row[index] for row in rows], arrow_type(field.type))

    return {field.name: column(index, field) for index, field in enumerate(fields)}
