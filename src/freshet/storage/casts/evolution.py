"""Reads files that were written with an older (or newer) schema as the schema wanted now.

Every file is mapped by field id, at every depth, from the schema of its `_SCHEMA_ID`:

| in the schema wanted | in the file | becomes |
|---|---|---|
| id known, same type | the column, whatever its name | the same buffers, nothing is copied |
| id known, other type | the column | cast (`casts`); a pair without a cast is refused, naming column and types |
| id unknown | - | NULL; a default value is applied when writing only |
| - | a column whose id is gone | not read |

Fields of a ROW, also inside ARRAY and MAP, are mapped in the same way. A name that was dropped and added again has a
new id, so old files give NULL.

A filter on a column may look at a file's statistics only where the cast keeps the order and every value: same type,
longer text, or wider integer. Elsewhere rows are filtered after reading.

Source: FORMAT.md §13.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from freshet.storage.casts.casts import ArrayCast, cast_scalar, keeps_values
from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import ArrayType, DataField, DataType, MapType, RowType, ScalarType
from freshet.storage.model.nested_arrays import Nested


@dataclass(frozen=True, slots=True)
class ReadColumn:
    """One column wanted: the field of the file it comes from (None: NULL), and its conversion (None: not needed)."""

    wanted: DataField
    source: DataField | None
    cast: ArrayCast | None

    @property
    def keeps_bounds(self) -> bool:
        """True when statistics of the file's column are bounds of the column wanted."""
        return self.source is not None and keeps_bounds(self.source.type, self.wanted.type)

    def convert(self, column: pa.Array[Any] | pa.ChunkedArray[Any] | None, count: int) -> Any:
        """The column wanted from that of the file, which is None when there is none."""
        if column is None:
            return pa.nulls(count, arrow_type(self.wanted.type))
        if self.cast is None:
            return column
        try:
            if isinstance(column, pa.ChunkedArray):
                return pa.chunked_array([self.cast(chunk) for chunk in column.chunks], arrow_type(self.wanted.type))
            return self.cast(column)
        except (pa.ArrowInvalid, InvalidRequestError) as error:
            assert self.source is not None
            raise InvalidRequestError(
                f"column {self.wanted.name!r} was written as {self.source.type} and is {self.wanted.type} now, but a "
                f"value does not convert: {error}; alter the column back, or leave it out",
                column=self.wanted.name,
            ) from error


def map_columns(file_fields: Sequence[DataField], wanted: Sequence[DataField]) -> tuple[ReadColumn, ...]:
    """How to get the columns wanted from a file with these fields.

    Raises `UnsupportedFeatureError` naming column and types where there is no cast.
    """
    by_id = {field.id: field for field in file_fields}
    return tuple(_read_column(by_id.get(field.id), field) for field in wanted)


def keeps_bounds(source: DataType, target: DataType) -> bool:
    """True when values compare after the cast as before it, so that statistics and filters may be used on the file."""
    return isinstance(source, ScalarType) and isinstance(target, ScalarType) and keeps_values(source, target)


def _read_column(source: DataField | None, wanted: DataField) -> ReadColumn:
    if source is None:
        return ReadColumn(wanted, None, None)
    try:
        return ReadColumn(wanted, source, _caster(source.type, wanted.type))
    except UnsupportedFeatureError as error:
        raise UnsupportedFeatureError(
            f"column {wanted.name!r} was written as {source.type} and is {wanted.type} now: {error}; "
            "alter the column back, or leave it out",
            column=wanted.name,
        ) from error


def _caster(source: DataType, target: DataType) -> ArrayCast | None:
    """None where the arrays are already right, as they are in nearly every file."""
    if source == target:
        return None
    match source, target:
        case RowType(), RowType():
            return _row_caster(source, target)
        case ArrayType(), ArrayType():
            return _children_caster(source, target, (_caster(source.element, target.element),))
        case MapType(), MapType():
            if replace(source.key, nullable=True) != replace(target.key, nullable=True):
                raise UnsupportedFeatureError(f"keys of a MAP cannot change from {source.key} to {target.key}")
            return _children_caster(source, target, (None, _caster(source.value, target.value)))
    return cast_scalar(source, target)


def _row_caster(source: RowType, target: RowType) -> ArrayCast | None:
    columns = map_columns(source.fields, target.fields)
    order = {field.id: index for index, field in enumerate(source.fields)}
    goal = arrow_type(target)
    if arrow_type(source) == goal and all(
        column.cast is None and column.source is not None and order[column.source.id] == index
        for index, column in enumerate(columns)
    ):
        return None

    def cast(array: pa.Array[Any]) -> pa.Array[Any]:
        rows = Nested.of(array)
        parts = [
            column.convert(None if column.source is None else rows.children[order[column.source.id]], len(array))
            for column in columns
        ]
        return rows.over(parts, goal)

    return cast


def _children_caster(source: DataType, target: DataType, casts: Sequence[ArrayCast | None]) -> ArrayCast | None:
    goal = arrow_type(target)
    if not any(casts):
        return None if arrow_type(source) == goal else lambda array: array.cast(goal)

    def cast(array: pa.Array[Any]) -> pa.Array[Any]:
        whole = Nested.of(array)
        parts = [child if cast is None else cast(child) for child, cast in zip(whole.children, casts, strict=True)]
        return whole.over(parts, goal)

    return cast
