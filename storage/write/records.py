"""What may be written: rows as they come from a caller, checked column by column and brought to the table's types.

In this order, as Paimon does:
1. every table column is there, converts without loss, and NULL stands in no NOT NULL column; other columns are refused
2. NULL becomes the default value of its column, where there is one
3. the kind of each row: `rowkind.field`, else the column `_ROW_KIND` ('+I' '-U' '+U' '-D' or their codes), else +I
4. `ignore-delete` drops -D and -U, `ignore-update-before` drops -U
5. retracts that are left must be what the merge engine takes (`retract_rules`)

Nothing is taken from an input of which one row is refused. Source: LSM semantics §1.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.arrow_types import arrow_type, conform
from freshet.storage.model.data_type import DataField
from freshet.storage.model.row_kind import KIND_TEXTS, ROW_KIND_COLUMN, RowKind
from freshet.storage.model.schema import TableSchema
from freshet.storage.write.retract_rules import RetractRules

Kinds = npt.NDArray[np.int8]

_KIND_TEXT_SET: Final = pa.array(KIND_TEXTS, pa.string())


@dataclass(frozen=True, slots=True)
class AcceptedRows:
    """Rows in the table's columns and types. `kinds` is None when every row is +I."""

    rows: pa.Table
    kinds: Kinds | None


class RecordRules:
    """The rules of one table; holds nothing of the rows."""

    def __init__(
        self,
        schema: TableSchema,
        *,
        table: str,
        rowkind_field: str | None = None,
        ignore_delete: bool = False,
        ignore_update_before: bool = False,
        retract_rules: RetractRules | None = None,
    ) -> None:
        self._fields = schema.fields
        self._names = frozenset(schema.column_names)
        self._table = table
        self._primary_keys = frozenset(schema.primary_keys)
        self._rowkind_field = rowkind_field
        self._dropped = {
            kind
            for kind, is_dropped in (
                (RowKind.DELETE, ignore_delete),
                (RowKind.UPDATE_BEFORE, ignore_delete or ignore_update_before),
            )
            if is_dropped
        }
        self._defaults = {
            column.name: _default_scalar(column) for column in schema.fields if column.default_value is not None
        }
        self._takes_retracts = schema.has_primary_key
        self._retract_rules = retract_rules

    def accept(self, data: pa.Table | pa.RecordBatch) -> AcceptedRows:
        """Applies the rules; raises `InvalidRequestError` naming column and row."""
        if not isinstance(data, pa.Table | pa.RecordBatch):
            raise InvalidRequestError(
                f"rows for {self._table} are a pyarrow Table or RecordBatch, not {type(data).__name__}; "
                "pa.Table.from_pylist(rows) and pa.Table.from_pandas(frame) make one",
                table=self._table,
            )
        table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
        self._check_columns(table.schema)
        self._check_nulls(table)
        rows = self._with_defaults(conform(table, self._fields, table=self._table))
        kinds = self._kinds(table, rows)
        if kinds is not None and self._dropped:
            keep = ~np.isin(kinds, list(self._dropped))
            if not keep.all():
                rows, kinds = rows.filter(pa.array(keep)), kinds[keep]
        if kinds is not None and not kinds.any():
            kinds = None
        if kinds is not None and not self._takes_retracts:
            self._check_append(kinds)
        if kinds is not None and self._retract_rules is not None:
            self._retract_rules.check(rows, kinds)
        return AcceptedRows(rows, kinds)

    def _check_columns(self, schema: pa.Schema) -> None:
        for name in schema.names:
            if name not in self._names and name != ROW_KIND_COLUMN:
                raise InvalidRequestError(
                    f"{self._table} has no column {name!r}; its columns are {', '.join(f.name for f in self._fields)}",
                    table=self._table,
                    column=name,
                )
        if len(set(schema.names)) != len(schema.names):
            raise InvalidRequestError(
                f"the rows for {self._table} name a column twice: {', '.join(schema.names)}", table=self._table
            )

    def _check_nulls(self, table: pa.Table) -> None:
        for field in self._fields:
            if field.type.nullable or field.name not in table.schema.names:
                continue
            column = table.column(field.name)
            if column.null_count:
                what = "part of the primary key" if field.name in self._primary_keys else "NOT NULL"
                raise InvalidRequestError(
                    f"column {field.name!r} of {self._table} is {what}, but row {_first_null(column)} of the input "
                    f"holds NULL there ({column.null_count} rows do); give it a value or leave the rows out",
                    column=field.name,
                    table=self._table,
                )

    def _with_defaults(self, rows: pa.Table) -> pa.Table:
        for name, default in self._defaults.items():
            position = rows.schema.get_field_index(name)
            column = rows.column(position)
            if column.null_count:
                filled = column.fill_null(default)
                rows = rows.set_column(position, rows.schema.field(position), filled)
        return rows

    def _kinds(self, given: pa.Table, rows: pa.Table) -> Kinds | None:
        if self._rowkind_field is not None:
            return self._parsed_kinds(rows.column(self._rowkind_field), self._rowkind_field)
        if ROW_KIND_COLUMN in given.schema.names:
            return self._parsed_kinds(given.column(ROW_KIND_COLUMN), ROW_KIND_COLUMN)
        return None

    def _parsed_kinds(self, column: pa.ChunkedArray[Any], name: str) -> Kinds:
        if pt.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        codes: Any = column
        if pt.is_integer(column.type):
            codes = column.cast(pa.int64(), safe=False)
        elif pt.is_string(column.type) or pt.is_large_string(column.type) or pt.is_string_view(column.type):
            codes = pc.index_in(column.cast(pa.string()), value_set=_KIND_TEXT_SET)
        else:
            raise InvalidRequestError(
                f"column {name!r} of {self._table} must hold row kinds, not {column.type}",
                column=name,
                table=self._table,
            )
        outside: Any = pc.or_(pc.less(codes, pa.scalar(0)), pc.greater(codes, pa.scalar(len(KIND_TEXTS) - 1)))
        is_bad: Any = pc.fill_null(outside, True)
        if pc.any(is_bad).as_py():
            row = pc.index(is_bad, True).as_py()
            raise InvalidRequestError(
                f"column {name!r} of {self._table} holds {column[row].as_py()!r} in row {row} of the input; "
                f"row kinds are {', '.join(KIND_TEXTS)}",
                column=name,
                table=self._table,
            )
        kinds: Kinds = codes.to_numpy().astype(np.int8)
        return kinds

    def _check_append(self, kinds: Kinds) -> None:
        retracts = np.flatnonzero((kinds == RowKind.DELETE) | (kinds == RowKind.UPDATE_BEFORE))
        if len(retracts):
            text = KIND_TEXTS[kinds[retracts[0]]]
            raise InvalidRequestError(
                f"{self._table} has no primary key and takes only rows of kind +I and +U, but the input has {text}; "
                "leave those rows out or write to a table with a primary key",
                table=self._table,
            )


def _first_null(column: pa.ChunkedArray[Any]) -> int:
    return int(pc.index(pc.is_null(column), True).as_py())


def _default_scalar(field: DataField) -> pa.Scalar[Any]:
    try:
        return pa.array([field.default_value], pa.string()).cast(arrow_type(field.type))[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            f"the default value {field.default_value!r} of column {field.name!r} is no {field.type}: {error}",
            column=field.name,
        ) from error
