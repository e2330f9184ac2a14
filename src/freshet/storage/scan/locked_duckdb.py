"""The one place that opens DuckDB for expressions and queries that people give.

A connection computes over the Arrow data that is registered with it, in UTC and in the order of the rows, and reaches
nothing else: no file, no network, no extension, no variable of Python. Text that it runs cannot change that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from freshet.storage.exceptions import InvalidRequestError, OutOfMemoryError, StorageError
from freshet.storage.io.env import Env
from freshet.storage.model.display import one_line
from freshet.storage.scan.frame_outputs import optional_library

_REASON_MAX: Final = 600
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
    """A connection for what `asked_by` names; `close` it whatever happens.

    With `env` it spills what does not fit into memory to a scratch folder of it, else it spills nothing.
    """

    def __init__(self, asked_by: str, env: Env | None = None) -> None:
        duckdb = optional_library("duckdb", asked_by)
        self.errors: type[Exception] = duckdb.Error
        self._memory_errors = (duckdb.OutOfMemoryException, MemoryError)
        self._env = env
        self._folder = "" if env is None else env.scratch_folder()
        self.connection: Any = duckdb.connect(config={**_CONFIG, "temp_directory": self._folder})
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

    def failure(self, error: BaseException, beginning: str = "") -> StorageError:
        """What an error of a query is to those who gave it."""
        reason = one_line(str(error))[:_REASON_MAX]
        if isinstance(error, self._memory_errors):
            return OutOfMemoryError(f"{beginning}there is not enough memory for it: {reason}")
        return InvalidRequestError(f"{beginning}DuckDB cannot compute it: {reason}" if beginning else reason)

    def close(self) -> None:
        """Ends the connection and removes what it has spilled."""
        self.connection.close()
        if self._env is not None:
            self._env.release_scratch(self._folder)
