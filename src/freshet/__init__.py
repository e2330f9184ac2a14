"""The front door of Freshet: every public name, and nothing else.

A name is loaded when it is first used: `from freshet import Catalog, col` loads no Spark, `table_sink`, `write` and
`register` do. Spark is the extra `spark` of the distribution; without it those raise an `ImportError` that says so, and
`from freshet import *` leaves them out.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from freshet._distribution import DISTRIBUTION as _DISTRIBUTION  # noqa: F401  # our packages look for it: before them
from freshet._distribution import overwritten
from freshet.storage.logs.registry import register_log_system

if TYPE_CHECKING:
    from freshet._version import __version__
    from freshet.pipeline.commands.bars import progress
    from freshet.pipeline.config.sections import CompactionConfig
    from freshet.pipeline.sources.batch_source import register
    from freshet.pipeline.sources.statements import sql
    from freshet.pipeline.spark.frame_write import WriteResult, write
    from freshet.pipeline.spark.table_sink import table_sink
    from freshet.storage.catalog import Catalog
    from freshet.storage.changes.changelog import Changelog
    from freshet.storage.changes.stream import ChangeStream
    from freshet.storage.edits.edit_commit import EditResult
    from freshet.storage.edits.expression import Expression, expr
    from freshet.storage.exceptions import (
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
    from freshet.storage.filters.column import Column, col
    from freshet.storage.filters.predicate import Predicate
    from freshet.storage.model.row_kind import ROW_KIND_COLUMN, SNAPSHOT_ID_COLUMN, RowKind
    from freshet.storage.model.tag import Tag
    from freshet.storage.scan.table_scan import TableScan
    from freshet.storage.schema.change import (
        AddColumn,
        ChangeType,
        DropColumn,
        DropPrimaryKey,
        MoveColumn,
        RenameColumn,
        ResetOption,
        SetColumnComment,
        SetComment,
        SetDefault,
        SetNullable,
        SetOption,
    )
    from freshet.storage.sql.result import SqlResult
    from freshet.storage.system_tables.system_table import SystemScan, SystemTable
    from freshet.storage.table import Table
    from freshet.storage.table_session import TableSession
    from freshet.storage.tags.table_tags import TableTags

_MODULES = {
    "freshet._version": ("__version__",),
    "freshet.pipeline.sources.batch_source": ("register",),
    "freshet.pipeline.spark.frame_write": ("WriteResult", "write"),
    "freshet.pipeline.spark.table_sink": ("table_sink",),
    "freshet.pipeline.commands.bars": ("progress",),
    "freshet.pipeline.sources.statements": ("sql",),
    "freshet.pipeline.config.model": ("CompactionConfig",),
    "freshet.storage.catalog": ("Catalog",),
    "freshet.storage.changes.changelog": ("Changelog",),
    "freshet.storage.changes.stream": ("ChangeStream",),
    "freshet.storage.edits.edit_commit": ("EditResult",),
    "freshet.storage.edits.expression": ("Expression", "expr"),
    "freshet.storage.exceptions": (
        "AlreadyExistsError",
        "ConflictError",
        "CorruptDataError",
        "InvalidRequestError",
        "NotFoundError",
        "RetryableError",
        "StorageError",
        "UnknownOutcomeError",
        "UnsupportedFeatureError",
    ),
    "freshet.storage.model.row_kind": ("ROW_KIND_COLUMN", "SNAPSHOT_ID_COLUMN", "RowKind"),
    "freshet.storage.model.tag": ("Tag",),
    "freshet.storage.filters.column": ("Column", "col"),
    "freshet.storage.filters.predicate": ("Predicate",),
    "freshet.storage.scan.table_scan": ("TableScan",),
    "freshet.storage.schema.change": (
        "AddColumn",
        "ChangeType",
        "DropColumn",
        "DropPrimaryKey",
        "MoveColumn",
        "RenameColumn",
        "ResetOption",
        "SetColumnComment",
        "SetComment",
        "SetDefault",
        "SetNullable",
        "SetOption",
    ),
    "freshet.storage.sql.result": ("SqlResult",),
    "freshet.storage.system_tables.system_table": ("SystemScan", "SystemTable"),
    "freshet.storage.table": ("Table",),
    "freshet.storage.table_session": ("TableSession",),
    "freshet.storage.tags.table_tags": ("TableTags",),
}
# A table with log.system=kafka asks for this; nothing of Kafka is loaded before.
register_log_system("kafka", lambda: import_module("freshet.logstore.kafka.logs").KAFKA_LOGS)

_EXTRAS = {"pyspark": "spark", "py4j": "spark", "confluent_kafka": "kafka"}
"""What is installed with which extra, by the name that is imported."""

_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "ROW_KIND_COLUMN",
    "SNAPSHOT_ID_COLUMN",
    "AddColumn",
    "AlreadyExistsError",
    "Catalog",
    "ChangeStream",
    "ChangeType",
    "Changelog",
    "Column",
    "CompactionConfig",
    "ConflictError",
    "CorruptDataError",
    "DropColumn",
    "DropPrimaryKey",
    "EditResult",
    "Expression",
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
    "SetDefault",
    "SetNullable",
    "SetOption",
    "SqlResult",
    "StorageError",
    "SystemScan",
    "SystemTable",
    "Table",
    "TableScan",
    "TableSession",
    "TableTags",
    "Tag",
    "UnknownOutcomeError",
    "UnsupportedFeatureError",
    "WriteResult",
    "__version__",
    "col",
    "expr",
    "progress",
    "register",
    "sql",
    "table_sink",
    "write",
]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # whoever blocks an import may say so here already
        return False


_WITH_SPARK = (
    "freshet.pipeline.sources.batch_source",
    "freshet.pipeline.spark.frame_write",
    "freshet.pipeline.spark.table_sink",
)
if not _is_installed("pyspark"):  # everything in __all__ is loaded by `import *`, help() and inspect
    for _name in (name for module in _WITH_SPARK for name in _MODULES[module]):
        __all__.remove(_name)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        if not name.startswith("_") and not _is_installed(f"freshet.{name}") and (text := overwritten()):
            raise ImportError(f"freshet has no name {name!r}: {text}", name="freshet", path=__file__)
        raise AttributeError(f"module 'freshet' has no name {name!r}")
    try:
        module = import_module(_MODULE_OF[name])
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").split(".")[0])
        if extra is None:
            raise
        raise ImportError(
            f"freshet.{name} needs {error.name}, which is not installed here; install Freshet's extra {extra!r}: "
            f"pip install '.[{extra}]' in a clone of it, or pip install 'WHEEL[{extra}]' with the path of its wheel",
            name=error.name,
        ) from error
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
