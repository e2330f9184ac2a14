"""The rows of a file that a command is given, as Arrow in bounded memory; the format is that of its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.dataset as dataset
from pyarrow import types

from freshet.storage.exceptions import InvalidRequestError, NotFoundError

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


def file_rows(path: str, schema: pa.Schema) -> pa.RecordBatchReader:
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
