"""What a writer takes as rows, as Arrow tables: one for what is in memory, one for each batch of a stream.

| given | taken as |
|---|---|
| pyarrow Table, RecordBatch | itself |
| anything with the Arrow C stream interface | its batches, some megabytes at a time |
| anything with the Arrow C array interface | one table |
| a DataFrame of Spark | one table, which Spark brings to this process |
| a list of dicts | rows; a key that a row lacks is the default of its column, else NULL; a row without a kind is +I |
| a dict of lists or arrays | columns |

Of frames without rows the types do not count, which libraries only guess. The index of a pandas frame is a column where
the table has one of its name; without a name it is none.

Readers of record batches, pandas and polars frames and DuckDB results have the stream interface, record batches of
other libraries the array interface. Python values become the type of the table's column at once, so that `1` is taken
as a DECIMAL and a `datetime.date` as a DATE. Nothing here knows which columns must be there.

The default of a column fills it where a new row does not have it, and nothing else (`ColumnDefaults`):

| the row | a column with a default is |
|---|---|
| has the column, NULL too | what the row has |
| lacks it, and is +I or +U of a merge engine that takes whole rows | the default |
| lacks it, and its engine merges columns (partial-update, aggregation) | not given, so that what is stored stays |
| lacks it, and is -U or -D | NULL: an image of a row that is there |

A row that lacks a NOT NULL column must have something there: it gets the default, and is refused where the engine
merges columns, since nobody can tell whether the default replaces a value. Key columns are filled in any engine: they
say which row it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import DataField
from freshet.storage.model.row_kind import ROW_KIND_COLUMN, RowKind
from freshet.storage.model.schema import TableSchema

STREAM_BYTES: Final = 8 * 1024 * 1024
"""Batches of a stream are gathered up to this size: checking and routing cost some milliseconds a time."""

_FRAMES: Final = frozenset({"pandas", "polars"})
"""Libraries whose frames hold their rows; polars streams a LazyFrame as it is read."""

_NO_NAME: Final = "__index_level_"
"""What an index of pandas without a name is called in Arrow, with the number of its level."""

_TAKEN: Final = (
    "a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars frame, a list of dicts, or a dict of lists"
)


def input_tables(
    data: object, fields: Sequence[DataField], *, table: str, defaults: ColumnDefaults | None = None
) -> Iterator[pa.Table]:
    """The rows given, as tables in the columns and types they came with.

    Raises `InvalidRequestError` for what is not rows, and, naming the column, for Python values of another type.
    """
    for rows in _given(data, fields, table, defaults):
        yield _fitted(rows, fields, table)


def _given(
    data: object, fields: Sequence[DataField], table: str, defaults: ColumnDefaults | None
) -> Iterator[pa.Table]:
    if isinstance(data, pa.Table):
        yield data
    elif isinstance(data, pa.RecordBatch):
        yield pa.Table.from_batches([data])
    elif callable(to_arrow := getattr(data, "toArrow", None)):  # of Spark, whose stream needs pandas
        yield to_arrow()
    elif hasattr(data, "__arrow_c_stream__"):
        yield from _streamed(data, table)
    elif hasattr(data, "__arrow_c_array__"):
        yield pa.Table.from_batches([_imported(data, table)])
    elif isinstance(data, Mapping):
        yield _from_columns(data, fields, table)
    elif isinstance(data, Sequence) and not isinstance(data, str | bytes | bytearray):
        yield _from_rows(data, fields, table, defaults)
    else:
        collected = "; give its .collect()" if hasattr(data, "collect") else ""
        raise InvalidRequestError(f"rows for {table} are {_TAKEN}, not {type(data).__name__}{collected}", table=table)


def _fitted(rows: pa.Table, fields: Sequence[DataField], table: str) -> pa.Table:
    """The rows without an index that is no column; where there are none, in the types of the table."""
    types = {field.name: arrow_type(field.type) for field in fields}
    levels = (rows.schema.pandas_metadata or {}).get("index_columns", ())
    no_columns = [level for level in levels if isinstance(level, str) and level not in types]
    named = [level for level in no_columns if not level.startswith(_NO_NAME)]
    if named:
        raise InvalidRequestError(
            f"{table} has no column {named[0]!r}, which is the index of the frame; leave it out with "
            "reset_index(drop=True), or give the index the name of a column",
            column=named[0],
            table=table,
        )
    rows = _without_views(rows.drop_columns([level for level in no_columns if level in rows.schema.names]))
    if rows.num_rows:
        return rows
    others = [field for field in rows.schema if field.name not in types]
    return pa.schema([*map(pa.field, types, types.values()), *others]).empty_table()


def _without_views(rows: pa.Table) -> pa.Table:
    """Categories of polars are views, from which Arrow cannot take the values of a dictionary."""
    for number, column in enumerate(rows.columns):
        if pt.is_dictionary(column.type) and pt.is_string_view(column.type.value_type):
            type_ = pa.dictionary(column.type.index_type, pa.large_string())
            chunks = [
                pa.DictionaryArray.from_arrays(c.indices, c.dictionary.cast(type_.value_type)) for c in column.chunks
            ]
            rows = rows.set_column(number, rows.schema.names[number], pa.chunked_array(chunks, type_))
    return rows


def is_read_again(data: object) -> bool:
    """Whether the same rows can be had a second time: readers and results of queries are empty after the first."""
    if isinstance(data, pa.Table | pa.RecordBatch | Mapping | Sequence):
        return True
    return getattr(data, "is_read_again", False) is True or type(data).__module__.partition(".")[0] in _FRAMES


def _streamed(data: Any, table: str) -> Iterator[pa.Table]:
    try:
        # The errors of a reader of this process are its own; through a C stream they are texts.
        reader = data if isinstance(data, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(data)
        gathered: list[pa.RecordBatch] = []
        for batch in reader:
            gathered.append(batch)
            if sum(part.nbytes for part in gathered) >= STREAM_BYTES:
                yield pa.Table.from_batches(gathered)
                gathered = []
        yield pa.Table.from_batches(gathered, reader.schema)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _unreadable(error, table) from error


def _unreadable(error: Exception, table: str) -> InvalidRequestError:
    said = ": ".join(str(each) for each in reversed(error.args))
    return InvalidRequestError(f"the rows for {table} cannot be read as Arrow: {said}", table=table)


def _imported(data: Any, table: str) -> pa.RecordBatch:
    try:
        return pa.record_batch(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _unreadable(error, table) from error


def _from_rows(
    rows: Sequence[Any], fields: Sequence[DataField], table: str, defaults: ColumnDefaults | None
) -> pa.Table:
    names: dict[str, None] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InvalidRequestError(
                f"row {number} of the input for {table} is {type(row).__name__}, but a list holds one dict for each "
                "row, such as [{'id': 1}]",
                table=table,
            )
        names.update(dict.fromkeys(row))
    if not rows:
        return pa.schema([pa.field(field.name, arrow_type(field.type)) for field in fields]).empty_table()
    if defaults is not None:
        rows = defaults.in_rows(rows, names)
    if ROW_KIND_COLUMN in names:
        rows = [{ROW_KIND_COLUMN: _inserted(rows), **row} for row in rows]
    return _from_columns({name: [row.get(name) for row in rows] for name in names}, fields, table)


def _from_columns(columns: Mapping[Any, Any], fields: Sequence[DataField], table: str) -> pa.Table:
    types = {field.name: field.type for field in fields}
    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        if not isinstance(name, str):
            raise InvalidRequestError(f"the input for {table} has a column named {name!r}; names are text", table=table)
        if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
            raise InvalidRequestError(
                f"column {name!r} of the input for {table} is {type(values).__name__}, but a dict holds a list of "
                "values for each column, such as {'id': [1, 2]}; put a single row into a list: [{'id': 1}]",
                column=name,
                table=table,
            )
        if isinstance(values, pa.Array | pa.ChunkedArray):
            arrays[name] = values
            continue
        data_type = types.get(name)
        try:
            arrays[name] = pa.array(values, type=None if data_type is None else arrow_type(data_type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            wanted = "" if data_type is None else f" is {data_type}; the input"
            remedy = "; a missing value is None" if "nan" in str(error) else ""
            raise InvalidRequestError(
                f"column {name!r} of {table}{wanted} does not fit: {error}{remedy}", column=name, table=table
            ) from error
    lengths = {len(values) for values in arrays.values()}
    if len(lengths) > 1:
        shown = ", ".join(f"{name} has {len(values)}" for name, values in arrays.items())
        raise InvalidRequestError(f"the columns of the input for {table} differ in length: {shown}", table=table)
    return pa.table(arrays)


_RETRACTS: Final = frozenset({"-U", "-D", int(RowKind.UPDATE_BEFORE), int(RowKind.DELETE)})


class ColumnDefaults:
    """The defaults of one schema; `takes_whole_rows` says whether its merge engine does."""

    def __init__(self, schema: TableSchema, *, takes_whole_rows: bool) -> None:
        self._values = {field.name: _scalar(field) for field in schema.fields if field.default_value is not None}
        self._fills = frozenset(
            name for name in self._values if takes_whole_rows or name in {*schema.primary_keys, *schema.partition_keys}
        )

    def fills(self, name: str) -> bool:
        """Whether rows that lack this column get a value."""
        return name in self._fills

    def is_left_out(self, name: str) -> bool:
        """Whether the column has a default that no row gets."""
        return name in self._values and name not in self._fills

    def column(self, field: DataField, is_new: npt.NDArray[np.bool_]) -> pa.Array[Any]:
        """The column of rows that lack it; `is_new` says of each whether it is +I or +U."""
        nulls = pa.nulls(len(is_new), arrow_type(field.type))
        if field.name not in self._fills or not is_new.any():
            return nulls
        filled = pa.repeat(self._values[field.name], len(is_new))
        return filled if is_new.all() or not field.type.nullable else pc.if_else(pa.array(is_new), filled, nulls)

    def in_rows(self, rows: Sequence[Mapping[Any, Any]], names: Collection[str]) -> Sequence[Mapping[Any, Any]]:
        """The same rows, of which each has some of these columns, with the defaults of those that it lacks."""
        for name in self._fills & set(names):
            if not all(name in row for row in rows):
                value = self._values[name].as_py()
                rows = [row if name in row or _is_retract(row) else {**row, name: value} for row in rows]
        return rows


def _inserted(rows: Sequence[Mapping[Any, Any]]) -> str | int:
    """The kind of rows that have none, as the others have theirs: a text or a code."""
    given = next(row[ROW_KIND_COLUMN] for row in rows if ROW_KIND_COLUMN in row)
    return int(RowKind.INSERT) if isinstance(given, int) else RowKind.INSERT.text


def _is_retract(row: Mapping[Any, Any]) -> bool:
    return row.get(ROW_KIND_COLUMN) in _RETRACTS


def _scalar(field: DataField) -> pa.Scalar[Any]:
    try:
        return pa.array([field.default_value], pa.string()).cast(arrow_type(field.type))[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            f"the default value {field.default_value!r} of column {field.name!r} is not a valid {field.type}: {error}",
            column=field.name,
        ) from error
