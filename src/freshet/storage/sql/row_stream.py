"""Batches handed to a library as an Arrow stream, whose errors it would make texts of: the error itself is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from freshet.storage.exceptions import StorageError


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
