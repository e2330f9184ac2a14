"""What a system table is: its columns, and how their values come from the metadata of a table.

A column is built when it is asked for, whole, as an Arrow array: statistics of 100,000 files as texts cost more than
the rest of them, and most questions leave them out.

Source: MERGING.md §6.6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from operator import itemgetter
from typing import Any, Final, Protocol

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.filters.predicate import Predicate
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.data_file import EMPTY_ROW
from freshet.storage.model.data_type import DataField
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.split import Split
from freshet.storage.model.sql_type import parse_sql_type

WHOLE: Final = Split(0, EMPTY_ROW, 0, 0, (), raw_convertible=True)
"""All of a table that is read in one part."""

Values = Callable[[TableStore, Any], "Iterable[Any] | pa.Array[Any]"]
"""The values of a column, from what was read of the metadata of a table."""

Column = tuple[str, str, Values]
"""A column: its name, its type as SQL has it, its values."""


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


class SystemTableDefinition(Frozen):
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


class MetadataRows(Frozen):
    """Rows made of metadata, all in one part."""

    store: TableStore
    fields: tuple[DataField, ...]
    values: Mapping[str, Values]
    read: Callable[[], Any]

    def plan(self, predicate: Predicate | None) -> Sequence[Split]:
        """One part."""
        del predicate
        return [WHOLE]

    def batches(
        self, part: Split, columns: tuple[str, ...], predicate: Predicate | None, executor: Executor | None = None
    ) -> Iterator[pa.RecordBatch]:
        """All rows."""
        del part, predicate, executor
        found = self.read()
        fields = {field.name: field for field in self.fields}
        schema = arrow_schema([fields[name] for name in columns])
        arrays = [_array(self.values[field.name](self.store, found), field.type) for field in schema]
        yield from pa.Table.from_arrays(arrays, schema=schema).to_batches()


def _array(values: Iterable[Any] | pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    return values.cast(kind) if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values, kind)


def metadata_table(
    noun: str,
    summary: str,
    read: Callable[[TableStore, Snapshot | None], Any],
    columns: Sequence[Column],
    *,
    travels: bool = False,
) -> SystemTableDefinition:
    """A system table of these columns, which are made of what `read` finds."""
    fields = tuple(DataField(index, name, parse_sql_type(text)) for index, (name, text, _) in enumerate(columns))
    values = {name: made for name, _, made in columns}

    def source(store: TableStore, snapshot: Snapshot | None) -> MetadataRows:
        return MetadataRows(store, fields, values, partial(read, store, snapshot))

    return SystemTableDefinition(noun, summary, source, fields, travels)


def each(value: Callable[[Any], Any]) -> Values:
    """A column with a value for each thing that was found."""
    return lambda store, found: [value(one) for one in found]


def parts(**types: str) -> list[Column]:
    """The columns of a table whose rows are found as they are, by name, with their types."""
    return [(name, text, each(itemgetter(index))) for index, (name, text) in enumerate(types.items())]
