"""The schema of a table at one schema id.

Invariants: field ids are unique in the whole schema (nested ones too) and never above `highest_field_id`; partition
keys are columns; primary keys are NOT NULL columns (checked at creation by `freshet.storage.catalog`). The options are
exactly what the user typed; defaults are not stored.

Source: FORMAT.md §2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Final

from freshet.storage.model.data_type import ArrayType, DataField, DataType, MapType, RowType

SCHEMA_VERSION: Final = 3
"""Version written; a smaller one means other defaults for file format (ORC) and, when missing, bucket (1)."""

SEQUENCE_NUMBER_COLUMN: Final = "_SEQUENCE_NUMBER"
VALUE_KIND_COLUMN: Final = "_VALUE_KIND"
KEY_COLUMN_PREFIX: Final = "_KEY_"

SEQUENCE_NUMBER_ID: Final = 2147483646
VALUE_KIND_ID: Final = 2147483645
KEY_COLUMN_ID_START: Final = 1073741823
"""Id of `_KEY_<c>` is this plus the id of c."""

SYSTEM_COLUMNS: Final = frozenset(
    {SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN, "_LEVEL", "rowkind", "_ROW_ID", "_ROW_KIND"}
)
_APPENDED: Final = frozenset({"rowkind", "_row_kind", "_snapshot_id"})
"""What changes and the audit log have beside the columns, in lower case: Spark finds columns in any case."""


def column_named(given: object, known: Sequence[str]) -> str | None:
    """The column that a name means: the one that is spelled so, else the only one but for the case of its letters."""
    if given in known:
        return str(given)
    same = [name for name in known if isinstance(given, str) and name.lower() == given.lower()]
    return same[0] if len(same) == 1 else None


def is_system_name(name: str) -> bool:
    """Whether a column of this name cannot be created."""
    return name in SYSTEM_COLUMNS or name.startswith(KEY_COLUMN_PREFIX) or name.lower() in _APPENDED


@dataclass(frozen=True)
class TableSchema:
    """One schema file, as a value."""

    id: int
    fields: tuple[DataField, ...]
    highest_field_id: int
    partition_keys: tuple[str, ...] = ()
    primary_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """They may hold secrets."""
    comment: str | None = None
    time_ms: int = 0
    version: int = SCHEMA_VERSION

    @cached_property
    def by_name(self) -> Mapping[str, DataField]:
        """Columns by name."""
        return MappingProxyType({column.name: column for column in self.fields})

    @cached_property
    def by_id(self) -> Mapping[int, DataField]:
        """Top-level columns by field id."""
        return MappingProxyType({column.id: column for column in self.fields})

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(column.name for column in self.fields)

    @property
    def keys_cross_partitions(self) -> bool:
        """True where the primary key has not all partition columns, so that a key may be in any partition."""
        return bool(self.primary_keys) and not set(self.partition_keys) <= set(self.primary_keys)

    @cached_property
    def trimmed_primary_keys(self) -> tuple[str, ...]:
        """Primary key minus the partition keys: what files are sorted by. The whole key if nothing would remain."""
        trimmed = tuple(name for name in self.primary_keys if name not in self.partition_keys)
        return trimmed or self.primary_keys

    @property
    def has_primary_key(self) -> bool:
        """True for a primary-key table, False for an append-only one."""
        return bool(self.primary_keys)

    def types_of(self, names: tuple[str, ...]) -> tuple[DataType, ...]:
        """Types of the columns named, in the order of the names."""
        return tuple(self.by_name[name].type for name in names)


def assign_ids(columns: Sequence[DataField], first_free_id: int = 0) -> tuple[tuple[DataField, ...], int]:
    """Numbers columns, nested fields included, from `first_free_id` on; whatever ids they carry are replaced.

    A new top-level column takes its id first, then the ids of the rows nested in its type. Inside a ROW, the ids nested
    in a child are handed out before the child's own: `r ROW<x, y ROW<p, q>, z>` with r = 30 gives x 31, p 32, q 33,
    y 34, z 35. Ids are never reused within a table (FORMAT.md §2.2).

    Returns the columns and the highest id handed out (`first_free_id - 1` when there are no columns).
    """
    result = []
    free = first_free_id
    for column in columns:
        own = free
        nested, free = _assign(column.type, free + 1)
        result.append(replace(column, id=own, type=nested))
    return tuple(result), free - 1


def _assign(data_type: DataType, free: int) -> tuple[DataType, int]:
    match data_type:
        case ArrayType(element=element):
            assigned, free = _assign(element, free)
            return replace(data_type, element=assigned), free
        case MapType(key=key, value=value):
            assigned_key, free = _assign(key, free)
            assigned_value, free = _assign(value, free)
            return replace(data_type, key=assigned_key, value=assigned_value), free
        case RowType(fields=fields):
            children = []
            for child in fields:
                assigned, free = _assign(child.type, free)
                children.append(replace(child, id=free, type=assigned))
                free += 1
            return replace(data_type, fields=tuple(children)), free
    return data_type, free
