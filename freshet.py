"""The front door of Freshet: every public name, and nothing else.

Tables need no Spark: `from freshet import Catalog, col`. The names that do need it (`table_sink`, `register`) load it
when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from storage.catalog import Catalog
from storage.exceptions import (
    AlreadyExistsError,
    ConflictError,
    CorruptDataError,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
    StorageError,
    UnknownOutcomeError,
    UnsupportedFeatureError,
)
from storage.model.row_kind import ROW_KIND_COLUMN, RowKind
from storage.predicate import Predicate, col
from storage.schema_change import (
    AddColumn,
    ChangeType,
    DropColumn,
    MoveColumn,
    RenameColumn,
    ResetOption,
    SetColumnComment,
    SetComment,
    SetNullable,
    SetOption,
)
from storage.table import Table
from storage.table_session import TableSession

if TYPE_CHECKING:
    from pipeline.batch_source import register
    from pipeline.table_sink import table_sink

_SPARK_NAMES = {"table_sink": "pipeline.table_sink", "register": "pipeline.batch_source"}

try:
    __version__ = version("freshet")
except PackageNotFoundError:  # a checkout that was not installed
    __version__ = "0+unknown"

__all__ = [
    "ROW_KIND_COLUMN",
    "AddColumn",
    "AlreadyExistsError",
    "Catalog",
    "ChangeType",
    "ConflictError",
    "CorruptDataError",
    "DropColumn",
    "InvalidRequestError",
    "MoveColumn",
    "NotFoundError",
    "Predicate",
    "RenameColumn",
    "ResetOption",
    "RetryableError",
    "RowKind",
    "SetColumnComment",
    "SetComment",
    "SetNullable",
    "SetOption",
    "StorageError",
    "Table",
    "TableSession",
    "UnknownOutcomeError",
    "UnsupportedFeatureError",
    "__version__",
    "col",
    "register",
    "table_sink",
]


def __getattr__(name: str) -> Any:
    if name in _SPARK_NAMES:
        return getattr(import_module(_SPARK_NAMES[name]), name)
    raise AttributeError(f"module 'freshet' has no name {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
