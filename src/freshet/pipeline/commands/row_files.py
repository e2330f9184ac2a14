"""The rows of a file that a command is given, as Arrow in bounded memory; the format is that of its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Final

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.dataset as dataset

from freshet.storage.exceptions import InvalidRequestError, NotFoundError


def file_rows(path: str, schema: pa.Schema) -> pa.RecordBatchReader:
    """The rows, in the columns that the file has; texts of CSV and JSON are read in the types of the table.

    Raises `NotFoundError` for a file that is not there, `InvalidRequestError` for one that cannot be read.
    """
    suffix = PurePath(path).suffix.lower()
    if suffix not in _FORMATS:
        raise InvalidRequestError(f"{path}: its name does not say of which format it is: {', '.join(_FORMATS)}")
    try:
        return _FORMATS[suffix](path, schema)
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no file {path}", path=path) from error
    except (pa.ArrowException, OSError) as error:
        raise InvalidRequestError(f"{path} cannot be read as {suffix}: {error}", path=path) from error


def _of_format(name: str) -> Callable[[str, pa.Schema], pa.RecordBatchReader]:
    def read(path: str, schema: pa.Schema) -> pa.RecordBatchReader:
        del schema
        return dataset.dataset(path, format=name).scanner().to_reader()

    return read


def _csv(path: str, schema: pa.Schema) -> pa.RecordBatchReader:
    options = csv.ConvertOptions(
        column_types={field.name: field.type for field in schema}, strings_can_be_null=True, null_values=[""]
    )
    return csv.open_csv(path, convert_options=options)


def _json(path: str, schema: pa.Schema) -> pa.RecordBatchReader:
    found = dataset.dataset(path, format="json").schema
    typed = pa.schema([schema.field(field.name) if field.name in schema.names else field for field in found])
    nullable = pa.schema([field.with_nullable(True) for field in typed])
    return dataset.dataset(path, format="json", schema=nullable).scanner().to_reader()


_FORMATS: Final[Mapping[str, Callable[[str, pa.Schema], pa.RecordBatchReader]]] = {
    ".parquet": _of_format("parquet"),
    ".arrow": _of_format("ipc"),
    ".orc": _of_format("orc"),
    ".csv": _csv,
    ".jsonl": _json,
}
