"""Commands that change the rows of a table, each in one commit: append, upsert, overwrite and merge with the rows of a
file, which SQL does not read (as Arrow in bounded memory; the format is that of its name); rollback."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.dataset as dataset
import typer
from pyarrow import types

from freshet.pipeline.commands.arguments import AsJson, CatalogOption, TableName, Warehouse, open_table
from freshet.pipeline.commands.bars import working
from freshet.pipeline.commands.output import in_snapshots, print_json, say
from freshet.pipeline.commands.partitions import partitions_given
from freshet.storage.edits.edit_commit import EditResult
from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.model.display import plural
from freshet.storage.table import Table

RowFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="Rows: .parquet, .arrow, .orc, .csv (with a header) or .jsonl and .json (an object a line).",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would change; nothing is committed.")]

_EPOCH: Final = "1970-01-01 "
_PLACE: Final = re.compile(r"(?:Invalid: )?In CSV column #(\d+): ")

_FAR_EXPONENT: Final = re.compile(rb"(?<![A-Za-z0-9_-])-?[0-9.]{1,40}[eE]-[0-9]{4,}(?![A-Za-z0-9_-])")
"""A number by itself: the hexadecimal digits of a UUID are none."""
_MAYBE_FAR: Final = re.compile(rb"[eE]-[0-9]{4}")
"""What all of them have, which is found five times as fast."""
_NUMBER_BYTES: Final = 60
_CHUNK_BYTES: Final = 8 << 20
_LINES: Final = (".jsonl", ".json", ".ndjson")
_TEXTS: Final = frozenset({".csv", *_LINES})


def append(
    warehouse: Warehouse,
    table: TableName,
    file: RowFile,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Add the rows of a file to a table, in one commit."""
    run_edit(
        TablePlace(warehouse, table, catalog_option),
        f"appending to {table}",
        lambda opened: opened.append(_file_rows(file, opened.arrow_schema)),
        as_json=as_json,
    )


def upsert(
    warehouse: Warehouse,
    table: TableName,
    file: RowFile,
    given: Annotated[
        bool, typer.Option("--given", help="Columns that the file does not have keep what is stored.")
    ] = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Add the rows of a file to a table, or replace those of their keys, in one commit."""
    run_edit(
        TablePlace(warehouse, table, catalog_option),
        f"upserting into {table}",
        lambda opened: opened.upsert(_file_rows(file, opened.arrow_schema), columns="given" if given else "all"),
        as_json=as_json,
    )


def overwrite(
    warehouse: Warehouse,
    table: TableName,
    file: RowFile,
    partition: Annotated[
        list[str] | None,
        typer.Option(help="Replace this partition, such as dt=2026-11-22. The rows must be of it."),
    ] = None,
    dynamic: Annotated[
        bool | None,
        typer.Option(
            "--dynamic/--whole",
            help="Replace the partitions that occur in the rows, or the whole table. Default: as "
            "dynamic-partition-overwrite says.",
            show_default=False,
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="FILTER",
            help="Replace the rows for which this is true, as SQL: \"city = 'Ulm'\". It must be true for each row of "
            "the file.",
        ),
    ] = None,
    dry_run: DryRun = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Put the rows of a file in the place of those of a table, of some partitions, or of a filter, in one commit."""
    chosen = partitions_given(partition)
    run_edit(
        TablePlace(warehouse, table, catalog_option),
        f"overwriting {table}",
        lambda opened: opened.overwrite(
            _file_rows(file, opened.arrow_schema), partition=chosen, filter=where, dynamic=dynamic, dry_run=dry_run
        ),
        as_json=as_json,
    )


def merge(
    warehouse: Warehouse,
    table: TableName,
    file: RowFile,
    on: Annotated[
        list[str],
        typer.Option("--on", metavar="COLUMN", help="A column on which rows are matched. May be repeated."),
    ],
    when: Annotated[
        list[str] | None,
        typer.Option(
            "--when",
            metavar="CLAUSE",
            help='What becomes of rows, as in MERGE: "matched then update", "matched and source.gone then delete", '
            '"matched then update set total = target.total + source.total", "not matched then insert", "not matched by '
            'source then delete". May be repeated: of a row the first clause that fits counts.',
        ),
    ] = None,
    dry_run: DryRun = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Update, delete and add rows by those of a file, in one commit.

    The file is the source, the table the target: clauses name their columns as source.total and target.total.
    """
    if not when:
        raise InvalidRequestError(
            'say what becomes of rows, in order: --when "matched then update" --when "not matched then insert" is an '
            "upsert"
        )
    clauses = when

    def merged(opened: Table) -> EditResult:
        begun = opened.merge(_file_rows(file, opened.arrow_schema), on)
        for clause in clauses:
            begun = begun.when(clause)
        return begun.execute(dry_run=dry_run)

    run_edit(TablePlace(warehouse, table, catalog_option), f"merging into {table}", merged, as_json=as_json)


def rollback(
    warehouse: Warehouse,
    table: TableName,
    to_snapshot: Annotated[
        int | None, typer.Option("--to-snapshot", help="Back to this snapshot; 0 is the table before its first.")
    ] = None,
    to_tag: Annotated[str | None, typer.Option("--to-tag", help="Back to this tag.")] = None,
    to_timestamp: Annotated[
        str | None,
        typer.Option(
            "--to-timestamp",
            help="Back to the snapshot of this moment, such as 2026-11-22T08:00:00+01:00; without a zone, local time.",
        ),
    ] = None,
    undo: Annotated[
        tuple[str, int] | None,
        typer.Option(
            metavar="USER NUMBER",
            help="Back to before this commit of a user, such as a batch of a pipeline, and with it all later commits.",
        ),
    ] = None,
    delete_newer: Annotated[
        bool,
        typer.Option(
            "--delete-newer",
            help="Remove the later snapshots instead of adding one; their ids are used again, so nobody may have the "
            "table open.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --delete-newer: all streams of the table were stopped.")
    ] = False,
    dry_run: DryRun = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Give a table the rows of an earlier snapshot, in a new snapshot.

    Later commits count as never made: a pipeline whose batches are gone stops at its next one, and says what to do.
    """
    given = [each for each in (to_snapshot, to_tag, to_timestamp, undo) if each is not None]
    if len(given) != 1:
        raise InvalidRequestError(
            "say where to go back to, once: --to-snapshot, --to-tag, --to-timestamp or --undo USER NUMBER"
        )
    to = to_snapshot if to_snapshot is not None else to_tag
    moment = None if to_timestamp is None else _moment(to_timestamp)
    run_edit(
        TablePlace(warehouse, table, catalog_option),
        f"rolling {table} back",
        lambda opened: opened.rollback(
            moment if to is None else to, undo=undo, delete_newer=delete_newer, force=force, dry_run=dry_run
        ),
        as_json=as_json,
    )


class TablePlace(NamedTuple):
    """What a command was given to find a table."""

    warehouse: str
    table: str
    catalog_option: Sequence[str] | None


def run_edit(place: TablePlace, what: str, edit: Callable[[Table], EditResult], *, as_json: bool) -> None:
    """Opens the table, edits it while a bar says what, and prints what was done."""
    with working(what):
        result = edit(open_table(*place))
    report_edit(result, place.table, as_json=as_json)


def report_edit(result: EditResult, table: str, *, as_json: bool) -> None:
    """Prints what an edit did, or would do."""
    if as_json:
        print_json(edit_facts(result, table))
        return
    counts = _row_counts(result)
    parts = [f"{plural(count, 'row')} {name.removeprefix('rows_')}" for name, count in counts.items() if count]
    if result.snapshots_removed:
        parts.append(f"snapshots {result.snapshots_removed[0]} to {result.snapshots_removed[-1]} removed")
    files = (("removed", result.files_removed), ("added", result.files_added))
    changed = [f"{plural(count, 'data file')} {verb}" for verb, count in files if count]
    if changed:
        parts.append(f"{' and '.join(changed)} in {plural(result.partitions, 'partition')}")
    if not parts:
        say("nothing changed" if not result.is_dry_run else "nothing would change")
        return
    if result.is_dry_run:
        say(f"would be: {', '.join(parts)}; nothing was committed")
        return
    ids = [snapshot.id for snapshot in result.snapshots]
    waits = "; readers see it with the next compaction" if result.hidden_buckets else ""
    say(", ".join([*parts, *([in_snapshots(ids)] if ids else [])]) + waits)


def edit_facts(result: EditResult, table: str) -> dict[str, Any]:
    """What an edit did, or would do, for programs."""
    return {
        "table": table,
        "snapshots": [snapshot.id for snapshot in result.snapshots],
        **{f"rows_{kind}": count for kind, count in _row_counts(result).items()},
        "files_removed": result.files_removed,
        "files_added": result.files_added,
        "partitions": result.partitions,
        "snapshots_removed": list(result.snapshots_removed),
        "dry_run": result.is_dry_run,
        "waits_for_compaction": bool(result.hidden_buckets),
    }


def _row_counts(result: EditResult) -> dict[str, int | None]:
    return {"deleted": result.rows_deleted, "updated": result.rows_updated, "inserted": result.rows_inserted}


def _moment(text: str) -> datetime.datetime:
    try:
        return datetime.datetime.fromisoformat(text).astimezone()
    except ValueError as error:
        raise InvalidRequestError(
            f"--to-timestamp {text!r} is no moment; write one such as 2026-11-22T08:00:00+01:00"
        ) from error


def _file_rows(path: str, schema: pa.Schema) -> pa.RecordBatchReader:
    """The rows, in the columns that the file has; texts of CSV and JSON are read in the types of the table.

    Raises `NotFoundError` for a file that is not there, `InvalidRequestError` for one that cannot be read.
    """
    suffix = PurePath(path).suffix.lower()
    if suffix not in _FORMATS:
        raise InvalidRequestError(f"{path}: its name does not say of which format it is: {', '.join(_FORMATS)}")
    try:
        if suffix in _TEXTS and any(types.is_decimal(field.type) for field in schema):
            _refuse_far_exponents(path)
        return _FORMATS[suffix](path, schema)
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no file {path}", path=path) from error
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error, _header(path) if suffix == ".csv" else ()) from error


def _refuse_far_exponents(path: str) -> None:
    """Arrow looks up the power of ten of an exponent beyond its table: a decimal of 1e-99999999 ends the process."""
    rest = b""
    with pa.OSFile(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            text = rest + chunk
            for maybe in _MAYBE_FAR.finditer(text):
                start = max(0, maybe.start() - _NUMBER_BYTES)
                found = _FAR_EXPONENT.search(text[start : maybe.end() + _NUMBER_BYTES])
                if found is not None:
                    number = found[0].decode()
                    raise InvalidRequestError(
                        f"{path}: {number} is beyond every DECIMAL: write it without exponent", path=path
                    )
            rest = text[-_NUMBER_BYTES:]


def _unreadable(path: str, error: Exception, columns: Sequence[str]) -> InvalidRequestError:
    """The error of a file, with columns by name where it counts them."""

    def named(place: re.Match[str]) -> str:
        number = int(place[1])
        return f"column {columns[number]!r}: " if number < len(columns) else place[0]

    suffix = PurePath(path).suffix.lower()
    form = "JSON, an object on each line" if suffix in _LINES else suffix
    return InvalidRequestError(f"{path} cannot be read as {form}: {_PLACE.sub(named, str(error))}", path=path)


def _reading(path: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    """A reader of batches whose errors name the file."""

    def read() -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except pa.ArrowException as error:
            raise _unreadable(path, error, schema.names) from error

    return pa.RecordBatchReader.from_batches(schema, read())


def _of_format(name: str) -> Callable[[str, pa.Schema], pa.RecordBatchReader]:
    def read(path: str, schema: pa.Schema) -> pa.RecordBatchReader:
        del schema
        return dataset.dataset(path, format=name).scanner().to_reader()

    return read


def _csv(path: str, schema: pa.Schema) -> pa.RecordBatchReader:
    options = csv.ConvertOptions(
        column_types={field.name: field.type for field in schema}, strings_can_be_null=True, null_values=[""]
    )
    reader = csv.open_csv(path, convert_options=options)
    return _reading(path, reader.schema, iter(reader))


def _header(path: str) -> Sequence[str]:
    """The columns of a CSV file, whatever is in them; none where that cannot be found out."""
    try:
        return tuple(csv.open_csv(path).schema.names)
    except (pa.ArrowException, OSError):
        return ()


def _json(path: str, schema: pa.Schema) -> pa.RecordBatchReader:
    found = dataset.dataset(path, format="json").schema
    typed = pa.schema([schema.field(field.name) if field.name in schema.names else field for field in found])
    wanted = pa.schema([field.with_nullable(True) for field in typed])
    # Arrow reads days and times of JSON as numbers; as texts they are cast.
    texts = pa.schema([field.with_type(pa.string()) if _is_text_in_json(field.type) else field for field in wanted])
    scanner = dataset.dataset(path, format="json", schema=texts).scanner()
    return _reading(path, wanted, (_cast(batch, wanted) for batch in scanner.to_reader()))


def _is_text_in_json(column: pa.DataType) -> bool:
    return types.is_date(column) or types.is_time(column)


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        try:
            if types.is_time(field.type) and types.is_string(column.type):
                column = pc.binary_join_element_wise(_EPOCH, column, "").cast(pa.timestamp(field.type.unit))
            columns.append(column.cast(field.type))
        except pa.ArrowInvalid as error:
            raise pa.ArrowInvalid(f"column {field.name!r}: {error}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


_FORMATS: Final[Mapping[str, Callable[[str, pa.Schema], pa.RecordBatchReader]]] = {
    ".parquet": _of_format("parquet"),
    ".arrow": _of_format("ipc"),
    ".orc": _of_format("orc"),
    ".csv": _csv,
    **dict.fromkeys(_LINES, _json),
}
