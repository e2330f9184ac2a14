"""Rows for other libraries: a stream; a pandas or polars frame, a DuckDB relation, each loaded when it is asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from freshet.storage.exceptions import InvalidRequestError, StorageError
from freshet.storage.model.shown import HtmlShown

if TYPE_CHECKING:  # whoever has them sees what comes back
    import duckdb
    import pandas
    import polars


class FrameOutputs(HtmlShown):
    """What gives rows to other libraries, of anything that gives them as batches of Arrow."""

    schema: pa.Schema
    """Columns of the rows."""
    _place: str
    """Whose rows they are, for errors."""

    @abstractmethod
    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch."""

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows, in bounded memory, for a consumer that pulls."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for libraries that take Arrow streams: `polars.DataFrame(scan)`, `pyarrow.table(scan)`."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """All rows."""
        return pa.Table.from_batches(self.to_batches(), self.schema)

    def to_pandas(self) -> pandas.DataFrame:
        """All rows as a pandas DataFrame; `InvalidRequestError` without pandas, and for values that it cannot hold."""
        optional_library("pandas", "to_pandas()")
        rows = self.to_arrow()
        try:
            return rows.to_pandas()
        except (ValueError, OverflowError) as error:
            raise InvalidRequestError(
                f"rows of {self._place} cannot be a pandas DataFrame: {error} (its dates are of the years 1 "
                "to 9999); leave the column out, filter the rows, or take to_polars() or to_arrow()",
                table=self._place,
            ) from error

    def to_polars(self) -> polars.DataFrame:
        """All rows as a polars DataFrame; `InvalidRequestError` without polars."""
        return optional_library("polars", "to_polars()").from_arrow(self.to_arrow())

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """All rows as a DuckDB relation, of a connection or of DuckDB's default one; needs duckdb."""
        return (connection or optional_library("duckdb", "to_duckdb()")).from_arrow(self.to_arrow())


def optional_library(name: str, asked_by: str) -> Any:
    """The module; `InvalidRequestError` says what to install when it is not there."""
    try:
        return import_module(name)
    except ImportError as error:
        raise InvalidRequestError(
            f"{asked_by} needs {name}, which cannot be imported ({error}); install it with: pip install {name}"
        ) from error


class RowStream:
    """A stream that is opened as often as the library reads it."""

    is_read_again = True

    def __init__(self, schema: pa.Schema, open_batches: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self._schema = schema
        self._open = open_batches
        self.failures: list[StorageError] = []

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    @contextmanager
    def read_by(self, *others: type[Exception]) -> Iterator[RowStream]:
        """While the library reads: what it makes of an error of the batches becomes that error again."""
        try:
            yield self
        except (StorageError, pa.ArrowException, *others) as error:
            if self.failures and error is not self.failures[0]:
                raise self.failures[0] from error
            raise

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._open()
        except StorageError as error:
            self.failures.append(error)
            raise
