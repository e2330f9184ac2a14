"""Columns whose unchanged values cannot be told from NULL, as Debezium writes changes of PostgreSQL (TOAST).

A value that PostgreSQL keeps out of line is not in the change that leaves it as it is. Debezium has a placeholder for
most types (`decode.toast`), and writes NULL for the others:

| column here | of PostgreSQL |
|---|---|
| ARRAY of anything but texts, INT, BIGINT, DATE, BYTES | float8[], boolean[], numeric[], smallint[], timestamptz[] … |
| ARRAY<BYTES>, BYTES, unless `binary.handling.mode` is bytes; BYTES with hex are seen | bytea[], bytea |
| DECIMAL(38), unless `decimal.handling.mode` is string | numeric without precision |

Others are texts here and cannot be known by their type: inet[], citext[], ranges and enums in arrays, varbit and bit.

Source: captures of Debezium 3.6.1 with PostgreSQL 15.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from freshet.pipeline.config.model import PipelineConfig, SourceConfig
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.storage.model.data_type import ArrayType, DataType, TypeRoot

_OCTETS: Final = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
_SEEN_IN_ARRAYS: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.DATE})
_UNBOUNDED_DIGITS: Final = 38


def null_when_unchanged(columns: Mapping[str, DataType], source: SourceConfig) -> list[str]:
    """The columns whose unchanged values come as NULL from this source, if it is PostgreSQL."""
    found = columns.items() if source.is_debezium and source.postgres is None else ()
    return [name for name, each in found if _is_unseen(each, source)]


def toast_warning(names: Sequence[str], where: str = "") -> str:
    """What is to be known of such columns."""
    return (
        f"{', '.join(names)}{where}: where the source is PostgreSQL, Debezium writes NULL for a value of such a type "
        "that a change leaves as it is and that is stored out of line (TOAST): it overwrites what the table has. Set "
        "REPLICA IDENTITY FULL for the source table, or have numbers written as texts (decimal.handling.mode=string) "
        "and bytes as bytes (binary.handling.mode=bytes)"
    )


def toast_warnings(config: PipelineConfig) -> Iterator[str]:
    """The warnings of a file with one table."""
    yield from (toast_warning(names) for names in _by_source(config) if names)


def toast_columns(config: PipelineConfig) -> list[str]:
    """The columns of a file with one table, by all of its sources."""
    return list(dict.fromkeys(name for names in _by_source(config) for name in names))


def _by_source(config: PipelineConfig) -> Iterator[list[str]]:
    if isinstance(config, SyncPipelineConfig) or not config.table.primary_key:
        return
    types = {field.name: field.type for field in config.table.table_schema.fields}
    for source in config.sources:
        yield null_when_unchanged({name: each for name, each in types.items() if source.fills(name)}, source)


def _is_unseen(data_type: DataType, source: SourceConfig) -> bool:
    if isinstance(data_type, ArrayType):
        root = data_type.element.root
        return source.binary_handling_mode != "bytes" if root in _OCTETS else root not in _SEEN_IN_ARRAYS
    if data_type.root in _OCTETS:
        return source.binary_handling_mode.startswith("base64")
    is_unbounded = data_type.root is TypeRoot.DECIMAL and getattr(data_type, "precision", 0) == _UNBOUNDED_DIGITS
    return is_unbounded and source.decimal_handling_mode != "string"
