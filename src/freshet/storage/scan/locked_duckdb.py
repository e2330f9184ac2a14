"""The one place that opens DuckDB for expressions and queries that people give.

A connection computes over the Arrow data that is registered with it, in UTC and in the order of the rows, and reaches
nothing else: no file, no network, no extension, no variable of Python. Text that it runs cannot change that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from freshet.storage.exceptions import InvalidRequestError, OutOfMemoryError, StorageError
from freshet.storage.io.env import Env
from freshet.storage.model.display import one_line

_REASON_MAX: Final = 600
_OF_DUCKDB: Final = re.compile(r"\s*^(LINE \d+:|\s*Candidate functions:).*", re.DOTALL | re.MULTILINE)
"""Where an error is in a text that its caller did not write, and which functions of DuckDB there are instead."""
_CONFIG: Final = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_extension_repositories": "forbidden",
    "allow_persistent_secrets": "false",
}
_SETTINGS: Final = (
    "SET TimeZone = 'UTC'; SET preserve_insertion_order = true; SET python_enable_replacements = false; "
    "SET lock_configuration = true"
)


class LockedDuckDb:
    """A connection; `close` it whatever happens.

    With `env` it spills what does not fit into memory to a scratch folder of it, else it spills nothing. It has as many
    threads as there are cores, or `threads`.
    """

    def __init__(self, env: Env | None = None, threads: int | None = None) -> None:
        import duckdb as _duckdb

        self.errors: type[Exception] = _duckdb.Error
        self._memory_errors = (_duckdb.OutOfMemoryException, MemoryError)
        self._env = env
        self._folder = "" if env is None else env.scratch_folder()
        config = {**_CONFIG, "temp_directory": self._folder} | ({} if threads is None else {"threads": str(threads)})
        self.connection: Any = _duckdb.connect(config=config)
        self.connection.execute(_SETTINGS)

    def computed(self, text: str, names: Sequence[str]) -> pa.Table:
        """The rows of a query, in columns of these names; `InvalidRequestError` says what DuckDB says."""
        try:
            rows: pa.Table = self.connection.sql(text).to_arrow_table()
        except (self.errors, pa.ArrowException, UnicodeError, MemoryError) as error:
            raise self.failure(error) from error
        if rows.column_names != list(names):
            raise InvalidRequestError(f"it gives {rows.num_columns} columns where {len(names)} are computed")
        return rows

    def prepare(self, name: str, text: str) -> None:
        """Plans a query, which `EXECUTE name` runs as often as wanted; `InvalidRequestError` says what DuckDB says."""
        try:
            self.connection.execute(f"PREPARE {name} AS {text}")
        except self.errors as error:
            raise self.failure(error) from error

    def add_function(self, name: str, function: Callable[..., str], arguments: Sequence[str]) -> None:
        """Lets queries call a function of Python that makes a text of its arguments, which have these types."""
        self.connection.create_function(name, function, list(arguments), "VARCHAR")

    def failure(self, error: BaseException, beginning: str = "") -> StorageError:
        """What an error of a query is to those who gave it."""
        reason = one_line(_OF_DUCKDB.sub("", str(error)))[:_REASON_MAX]
        if isinstance(error, self._memory_errors):
            return OutOfMemoryError(f"{beginning}there is not enough memory for it: {reason}")
        return InvalidRequestError(f"{beginning}DuckDB cannot compute it: {reason}" if beginning else reason)

    def close(self) -> None:
        """Ends the connection and removes what it has spilled."""
        self.connection.close()
        if self._env is not None:
            self._env.release_scratch(self._folder)
