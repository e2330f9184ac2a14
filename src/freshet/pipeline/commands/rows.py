"""Rows on standard output: a table for people, JSON lines, CSV or an Arrow stream for programs. The commands that print
them: read, and tail, which follows a log."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import typer

from freshet.pipeline.commands.arguments import (
    AtTime,
    CatalogOption,
    TableName,
    Warehouse,
    open_readable,
    open_table,
    time_given,
)
from freshet.pipeline.commands.bars import counted
from freshet.pipeline.commands.failure_report import while_running
from freshet.pipeline.commands.output import complain, json_line, print_columns
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.merge.gather import limited
from freshet.storage.model.arrow_types import PLAIN_SCALE_MAX, decimal_texts
from freshet.storage.model.display import plural, printable, shortened
from freshet.storage.scan.table_scan import TableScan
from freshet.storage.system_tables.system_table import SystemScan

if TYPE_CHECKING:
    from freshet.storage.changes.stream import ChangeStream

ROWS_SHOWN: Final = 50
"""Rows of `--format table` unless `--limit` says otherwise: all of them must be seen before a width is known."""

CELL_MAX: Final = 40
"""Characters of a cell in `--format table`."""

_SHORT_YEAR: Final = re.compile(r"^-(\d{3})-")
"""A year before 0 as NumPy writes it, with its sign in place of a digit."""

CSV_ROWS: Final = pyarrow.csv.WriteOptions(include_header=False)

RowFormat = Annotated[
    Literal["table", "json", "csv", "arrow"],
    typer.Option("--format", help="table, json (a line per row), csv, or arrow (an IPC stream)."),
]
TailFormat = Annotated[
    Literal["json", "csv", "arrow"],
    typer.Option("--format", help="json (a line per row), csv, or arrow (an IPC stream)."),
]
Columns = Annotated[str | None, typer.Option(help="Columns, separated by commas; default: all.")]
FilterText = Annotated[
    str | None, typer.Option("--filter", help="SQL condition, such as \"total > 10 AND status = 'open'\".")
]
Limit = Annotated[int | None, typer.Option(min=0, help=f"Rows at most; default: {ROWS_SHOWN} for a table, else all.")]


def check_output(output: str) -> None:
    """Refuses to write binary data to a terminal."""
    if output == "arrow" and sys.stdout.isatty():
        raise InvalidRequestError("--format arrow writes binary data; redirect it to a file or a program")


def rows_wanted(output: str, limit: int | None) -> int | None:
    """Rows to read; of a table one more than are shown, to know whether there are more."""
    if output != "table":
        return limit
    return (ROWS_SHOWN if limit is None else limit) + 1


def column_names(columns: str | None) -> list[str] | None:
    """The value of --columns."""
    return None if columns is None else [name.strip() for name in columns.split(",") if name.strip()]


def write_rows(schema: pa.Schema, batches: Iterable[pa.RecordBatch], output: str, wanted: int | None) -> None:
    """Writes the rows, each batch at once except in a table; `wanted` is what `rows_wanted` gave."""
    match output:
        case "table":
            _print_table(pa.Table.from_batches(batches, schema), ROWS_SHOWN if wanted is None else wanted - 1)
        case "json":
            for batch in batches:
                for row in _json_rows(batch):
                    sys.stdout.write(f"{json_line(row)}\n")
                sys.stdout.flush()
        case "csv":
            flat = _flat_schema(schema)
            with pyarrow.csv.CSVWriter(sys.stdout.buffer, flat) as writer:
                for batch in batches:
                    written = _flat(batch, flat)
                    if written.schema == flat:
                        writer.write_batch(written)
                    else:  # far dates as text, which the writer of one schema would not take
                        pyarrow.csv.write_csv(written, sys.stdout.buffer, CSV_ROWS)
                    sys.stdout.flush()
        case "arrow":
            with pa.ipc.new_stream(sys.stdout.buffer, schema) as stream:
                for batch in batches:
                    stream.write_batch(batch)
                    sys.stdout.flush()
    sys.stdout.flush()


def write_followed(stream: ChangeStream, output: str, limit: int | None) -> None:
    """Writes the rows of a stream as they come, until it ends, enough was seen, or Ctrl-C."""
    with closing(stream), while_running(), suppress(KeyboardInterrupt):
        write_rows(stream.schema, limited(stream, limit), output, limit)


def _json_rows(batch: pa.RecordBatch) -> list[Any]:
    rows = _python_rows(batch)
    return [_finite(row) for row in rows] if any(_has_floats(field.type) for field in batch.schema) else rows


def _has_floats(data_type: pa.DataType) -> bool:
    fields = (data_type.field(index) for index in range(data_type.num_fields))
    return pa.types.is_floating(data_type) or any(_has_floats(field.type) for field in fields)


def _finite(value: Any) -> Any:
    """NaN and infinities as texts: JSON has no numbers for them, and as null they would look like NULL."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def _print_table(found: pa.Table, shown: int) -> None:
    rows = [row for batch in found.slice(0, shown).to_batches() for row in _python_rows(batch)]
    cells = [[_cell(value) for value in row.values()] for row in rows]
    numbers = [field.name for field in found.schema if _is_number(field.type)]
    print_columns([printable(name) for name in found.schema.names], cells, right=numbers)
    if found.num_rows > shown:
        complain(f"the first {plural(shown, 'row')}; --limit shows more")


def _python_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    columns = [_python_values(array) for array in batch.columns]
    return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _python_values(array: pa.Array) -> list[Any]:
    """Python objects; text for what Python's calendar cannot hold: nanoseconds, and years before 1 or after 9999."""
    array = pc.cast(array, _without_nanoseconds(array.type))
    try:
        values: list[Any] = array.to_pylist()
        return values
    except OverflowError:
        if not pa.types.is_nested(array.type):
            near = pc.if_else(pa.array(_are_far(array)), pa.scalar(None, array.type), array).to_pylist()
            return [text if value is None else value for text, value in zip(_day_texts(array), near, strict=True)]
        numbers = pc.cast(array, _with_leaves(array.type, _number_type)).to_pylist()
        return [_with_day_texts(value, array.type) for value in numbers]


def _without_nanoseconds(data_type: pa.DataType) -> pa.DataType:
    return _with_leaves(
        data_type,
        lambda leaf: pa.string() if pa.types.is_temporal(leaf) and getattr(leaf, "unit", None) == "ns" else leaf,
    )


def _with_leaves(data_type: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with the types of its leaves changed."""
    if pa.types.is_list(data_type):
        return pa.list_(data_type.value_field.with_type(_with_leaves(data_type.value_type, change)))
    if pa.types.is_map(data_type):
        return pa.map_(_with_leaves(data_type.key_type, change), _with_leaves(data_type.item_type, change))
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(_with_leaves(field.type, change)) for field in data_type])
    return change(data_type)


def _has_day(data_type: pa.DataType) -> bool:
    return pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type)


def _number_type(leaf: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(leaf) else pa.int64() if pa.types.is_timestamp(leaf) else leaf


def _with_day_texts(value: Any, data_type: pa.DataType) -> Any:
    """A nested value of which the dates and timestamps are numbers, with texts in their place."""
    if value is None:
        return None
    if pa.types.is_list(data_type):
        return [_with_day_texts(each, data_type.value_type) for each in value]
    if pa.types.is_map(data_type):
        types = (data_type.key_type, data_type.item_type)
        return [tuple(map(_with_day_texts, pair, types)) for pair in value]
    if pa.types.is_struct(data_type):
        return {field.name: _with_day_texts(value[field.name], field.type) for field in data_type}
    if not _has_day(data_type):
        return value
    return _day_texts(pa.array([value], _number_type(data_type)).cast(data_type))[0]


def _are_far(array: pa.Array) -> Any:
    """Which dates or timestamps are outside of Python's calendar."""
    stamps = array.to_numpy(zero_copy_only=False)
    years = stamps.astype("datetime64[Y]").astype(np.int64) + 1970
    return ~np.isnat(stamps) & ((years < 1) | (years > 9999))


def _day_texts(array: pa.Array) -> list[str | None]:
    """Dates or timestamps in the form of Arrow, but written by NumPy: Arrow gives up beyond the year 32767, and is
    wrong for such an instant in UTC.
    """
    suffix = "Z" if getattr(array.type, "tz", None) else ""
    texts = np.datetime_as_string(array.to_numpy(zero_copy_only=False)).tolist()
    whole = [_SHORT_YEAR.sub(r"-0\1-", text).replace("T", " ") + suffix for text in texts]
    return [None if text.startswith("NaT") else each for text, each in zip(texts, whole, strict=True)]


def _flat_schema(schema: pa.Schema) -> pa.Schema:
    """CSV has no form for nested values and bytes: they are JSON and hexadecimal text. Decimals that Arrow may write
    with an exponent are text with plain digits.
    """
    return pa.schema([pa.field(field.name, pa.string() if _needs_text(field.type) else field.type) for field in schema])


def _needs_text(data_type: pa.DataType) -> bool:
    if pa.types.is_decimal(data_type):
        return bool(data_type.scale > PLAIN_SCALE_MAX)
    return pa.types.is_nested(data_type) or pa.types.is_binary(data_type) or pa.types.is_fixed_size_binary(data_type)


def _flat(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in this schema, but a column that holds far dates, which are text."""
    arrays = [_flat_array(array) for array in batch.columns]
    return pa.RecordBatch.from_arrays(
        arrays, schema=pa.schema([field.with_type(array.type) for field, array in zip(schema, arrays, strict=True)])
    )


def _flat_array(array: pa.Array) -> pa.Array:
    if pa.types.is_decimal(array.type) and _needs_text(array.type):
        return decimal_texts(array)
    if _needs_text(array.type):
        return pa.array([None if value is None else _text(value) for value in _python_values(array)], pa.string())
    if _has_day(array.type) and _are_far(array).any():
        return pa.array(_day_texts(array), pa.string())
    return array


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else json_line(_finite(value))


def _cell(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, Decimal):
        text = format(value, "f")
    else:
        text = (
            value if isinstance(value, str) else _text(value) if isinstance(value, bytes | list | dict) else str(value)
        )
    return shortened(printable(text), CELL_MAX)


def _is_number(data_type: pa.DataType) -> bool:
    return pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type)


ReadableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="Table as database.table, or a system table such as 'shop.orders$files'.")
]


def read(
    warehouse: Warehouse,
    table: ReadableName,
    filter_text: FilterText = None,
    columns: Columns = None,
    limit: Limit = None,
    snapshot_id: Annotated[int | None, typer.Option("--snapshot", help="Snapshot id; default: the latest.")] = None,
    tag: Annotated[str | None, typer.Option(help="The snapshot that this tag names.")] = None,
    at: AtTime = None,
    output: RowFormat = "table",
    catalog_option: CatalogOption = None,
) -> None:
    """Print the rows of a table, merged, as of one snapshot.

    TABLE may be a system table: `shop.orders$files` prints what `shop.orders` says of its data files. There are
    $snapshots, $schemas, $options, $files, $partitions, $buckets, $tags, $branches, $consumers, $manifests, $audit_log
    and $ro; quote the name, so that the shell leaves the $ alone.
    """
    check_output(output)
    wanted = rows_wanted(output, limit)
    opened = open_readable(warehouse, table, catalog_option)
    scan = opened.scan(
        column_names(columns),
        filter=filter_text,
        snapshot_id=snapshot_id,
        tag=tag,
        timestamp_ms=None if at is None else time_given(at, "--timestamp"),
        limit=wanted,
    )
    write_rows(scan.schema, _scanned(scan, wanted), output, wanted)


def _scanned(scan: TableScan | SystemScan, limit: int | None) -> Iterator[pa.RecordBatch]:
    """The rows; a whole table with a bar over its splits, unless the rows themselves go to the terminal."""
    if limit is not None or sys.stdout.isatty():
        yield from scan.to_batches()
        return
    for split in counted(scan.plan(), "reading"):
        yield from scan.read_split(split)


def tail(
    warehouse: Warehouse,
    table: TableName,
    speculative: Annotated[
        bool,
        typer.Option(
            "--speculative", help="Show changes as soon as they are logged, also those that are retracted later."
        ),
    ] = False,
    scan_mode: Annotated[
        Literal["latest-full", "latest"],
        typer.Option(help="Begin with the rows that are there now (latest-full), or with what comes next (latest)."),
    ] = "latest-full",
    from_snapshot: Annotated[int | None, typer.Option(help="Begin with the changes of this snapshot.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", help="Set KEY=VALUE for this call, such as kafka.sasl.password=…")
    ] = None,
    filter_text: FilterText = None,
    columns: Columns = None,
    limit: Annotated[int | None, typer.Option(min=0, help="End after this many rows.")] = None,
    max_wait_s: Annotated[
        float | None, typer.Option("--max-wait", min=0, help="End after this many seconds without a change.")
    ] = None,
    output: TailFormat = "csv",
    catalog_option: CatalogOption = None,
) -> None:
    """Follow the log of a table: rows with their kind (+I -U +U -D), until Ctrl-C.

    They have the columns that the table had at the start: for columns that are added later, call it again.
    """
    check_output(output)
    opened = open_table(warehouse, table, catalog_option)
    if option:
        opened = opened.with_options(dict(_pair(text) for text in option))
    stream = opened.stream(
        column_names(columns),
        filter_text,
        isolation="speculative" if speculative else "committed",
        scan_mode=None if from_snapshot is not None else scan_mode,
        from_snapshot=from_snapshot,
        max_wait_s=max_wait_s,
    )
    write_followed(stream, output, limit)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InvalidRequestError(f"--option {text}: give KEY=VALUE")
    return key, value
