"""What a merge engine does with each column, resolved from the options of a table.

Source: LSM semantics §2.3 to §2.6.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class AggregateFunction(StrEnum):
    """Functions that make one value of a column out of the values of a key's rows."""

    SUM = "sum"
    PRODUCT = "product"
    MAX = "max"
    MIN = "min"
    LAST_VALUE = "last_value"
    LAST_NON_NULL_VALUE = "last_non_null_value"
    FIRST_VALUE = "first_value"
    FIRST_NON_NULL_VALUE = "first_non_null_value"
    LISTAGG = "listagg"
    BOOL_AND = "bool_and"
    BOOL_OR = "bool_or"
    COLLECT = "collect"
    MERGE_MAP = "merge_map"
    MERGE_MAP_WITH_KEYTIME = "merge_map_with_keytime"
    NESTED_UPDATE = "nested_update"
    NESTED_PARTIAL_UPDATE = "nested_partial_update"
    RBM32 = "rbm32"
    RBM64 = "rbm64"
    HLL_SKETCH = "hll_sketch"
    THETA_SKETCH = "theta_sketch"


@dataclass(frozen=True, slots=True)
class ColumnFunction:
    """One function with the options of its column; those of other functions keep their defaults."""

    name: AggregateFunction
    ignore_retract: bool = False
    distinct: bool = False
    """listagg, collect: a value is taken once."""
    delimiter: str = ","
    """listagg; may be empty, which joins without anything between (and splits at blanks for distinct)."""
    nested_key: tuple[str, ...] = ()
    nested_sequence: tuple[str, ...] = ()
    null_strategy: str = "merge"
    """nested_update, nested_partial_update: merge, ignore or error for rows whose key has nulls."""
    count_limit: int | None = None
    """nested_update: rows at which an array takes no more; None for no limit."""
    time_field: str | None = None
    """merge_map_with_keytime: field of the value that holds the time; None for the last one."""


@dataclass(frozen=True, slots=True)
class SequenceGroup:
    """Columns of partial-update that change together, when the ordering columns do not go back.

    `removes_record` is true if an ordering column stands in partial-update.remove-record-on-sequence-group.
    """

    ordering: tuple[str, ...]
    protected: tuple[str, ...]
    removes_record: bool


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of the merge engine, with a function per column.

    `functions` has for aggregation every column that is not part of the primary key (a sequence.field column with
    last_value); for partial-update those that have a function, named or by default, and are no ordering column; for
    the other engines none.
    """

    functions: Mapping[str, ColumnFunction]
    groups: tuple[SequenceGroup, ...]
    remove_record_on_delete: bool
    ignore_delete: bool
