"""What a writer takes as rows, as Arrow tables: one for what is in memory, one for each batch of a stream.

| given | taken as |
|---|---|
| pyarrow Table, RecordBatch | itself |
| anything with the Arrow C stream interface | its batches, some megabytes at a time |
| anything with the Arrow C array interface | one table |
| a list of dicts | rows; a key that a row lacks is the default of its column, else NULL |
| a dict of lists or arrays | columns |

Readers of record batches, pandas and polars frames and DuckDB results have the stream interface, record batches of
other libraries the array interface. Python values become the type of the table's column at once, so that `1` is taken
as a DECIMAL and a `datetime.date` as a DATE. Nothing here knows which columns must be there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import DataField
from freshet.storage.write.column_defaults import ColumnDefaults

STREAM_BYTES: Final = 8 * 1024 * 1024
"""Batches of a stream are gathered up to this size: checking and routing cost some milliseconds a time."""

_FRAMES: Final = frozenset({"pandas", "polars"})
"""Libraries whose frames hold their rows; polars streams a LazyFrame as it is read."""

_TAKEN: Final = (
    "a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars frame, a list of dicts, or a dict of lists"
)


def input_tables(
    data: object, fields: Sequence[DataField], *, table: str, defaults: ColumnDefaults | None = None
) -> Iterator[pa.Table]:
    """The rows given, as tables in the columns and types they came with.

    Raises `InvalidRequestError` for what is not rows, and, naming the column, for Python values of another type.
    """
    if isinstance(data, pa.Table):
        yield data
    elif isinstance(data, pa.RecordBatch):
        yield pa.Table.from_batches([data])
    elif hasattr(data, "__arrow_c_stream__"):
        yield from _streamed(data, table)
    elif hasattr(data, "__arrow_c_array__"):
        yield pa.Table.from_batches([_imported(data, table)])
    elif isinstance(data, Mapping):
        yield _from_columns(data, fields, table)
    elif isinstance(data, Sequence) and not isinstance(data, str | bytes | bytearray):
        yield _from_rows(data, fields, table, defaults)
    else:
        raise InvalidRequestError(f"rows for {table} are {_TAKEN}, not {type(data).__name__}", table=table)


def is_read_again(data: object) -> bool:
    """Whether the same rows can be had a second time: readers and results of queries are empty after the first."""
    if isinstance(data, pa.Table | pa.RecordBatch | Mapping | Sequence):
        return True
    return bool(getattr(data, "is_read_again", False)) or type(data).__module__.partition(".")[0] in _FRAMES


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
    except (pa.ArrowException, TypeError) as error:
        raise InvalidRequestError(f"the rows for {table} cannot be read as Arrow: {error}", table=table) from error


def _imported(data: Any, table: str) -> pa.RecordBatch:
    try:
        return pa.record_batch(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidRequestError(f"the rows for {table} cannot be read as Arrow: {error}", table=table) from error


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
            raise InvalidRequestError(
                f"column {name!r} of {table}{wanted} does not fit: {error}", column=name, table=table
            ) from error
    lengths = {len(values) for values in arrays.values()}
    if len(lengths) > 1:
        shown = ", ".join(f"{name} has {len(values)}" for name, values in arrays.items())
        raise InvalidRequestError(f"the columns of the input for {table} differ in length: {shown}", table=table)
    return pa.table(arrays)
