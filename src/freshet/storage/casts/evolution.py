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

A reader that has had the table open since before an ALTER reads files of a later schema than its own. Its columns stay
as they were, so a wider type is cast to the narrower one of the reader: a value that would become another one is
refused, as is NULL in a column that the reader knows as NOT NULL. Numbers in FLOAT and DOUBLE are rounded.

A filter on a column may look at a file's statistics only where the cast keeps the order and every value: same type,
longer text, or wider integer. Elsewhere rows are filtered after reading.

Source: FORMAT.md §13.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.storage.casts.casts import ArrayCast, cast_scalar, keeps_values
from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import FLOAT_ROOTS, ArrayType, DataField, DataType, MapType, RowType, ScalarType
from freshet.storage.model.nested_arrays import Nested

OPEN_AGAIN: Final = (
    "Open the table again to read what was written since; a stream goes on where it stopped, by its consumer or its "
    "checkpoint. Or leave the column out"
)


class ReadColumn(Frozen):
    """One column wanted: the field of the file it comes from (None: NULL), and its conversion (None: not needed)."""

    wanted: DataField
    source: DataField | None
    cast: ArrayCast | None
    earlier: str | None = None
    """The schema wanted, for messages, where the file is of a later one."""

    @property
    def keeps_bounds(self) -> bool:
        """True when statistics of the file's column are bounds of the column wanted."""
        return self.source is not None and keeps_bounds(self.source.type, self.wanted.type)

    def convert(self, column: pa.Array[Any] | pa.ChunkedArray[Any] | None, count: int) -> Any:
        """The column wanted from that of the file, which is None when there is none."""
        if column is None:
            if self.earlier is not None and count and not self.wanted.type.nullable:
                raise self._overtaken("it was dropped")
            return pa.nulls(count, arrow_type(self.wanted.type))
        found = column if self.cast is None else self._cast(column)
        if self.earlier is not None and not self.wanted.type.nullable and found.null_count:
            raise self._overtaken("it may be NULL by now, and is")
        return found

    def _cast(self, column: pa.Array[Any] | pa.ChunkedArray[Any]) -> Any:
        assert self.cast is not None
        assert self.source is not None
        try:
            if isinstance(column, pa.ChunkedArray):
                return pa.chunked_array([self.cast(chunk) for chunk in column.chunks], arrow_type(self.wanted.type))
            return self.cast(column)
        except (pa.ArrowInvalid, InvalidRequestError) as error:
            if self.earlier is not None:
                raise self._overtaken(f"it is {self.source.type} by now, and a value does not fit: {error}") from error
            raise InvalidRequestError(
                f"column {self.wanted.name!r} was written as {self.source.type} and is {self.wanted.type} now, but a "
                f"value does not convert: {error}; alter the column back, or leave it out",
                column=self.wanted.name,
            ) from error

    def _overtaken(self, what: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"column {self.wanted.name!r} is {self.wanted.type} in {self.earlier}, with which this reader opened the "
            f"table; {what}. {OPEN_AGAIN}",
            column=self.wanted.name,
        )


def map_columns(
    file_fields: Sequence[DataField], wanted: Sequence[DataField], *, earlier: str | None = None
) -> tuple[ReadColumn, ...]:
    """How to get the columns wanted from a file with these fields; `earlier` names the schema wanted, for messages,
    where that of the file is a later one.

    Raises `UnsupportedFeatureError` naming column and types where there is no cast.
    """
    by_id = {field.id: field for field in file_fields}
    return tuple(_read_column(by_id.get(field.id), field, earlier) for field in wanted)


def keeps_bounds(source: DataType, target: DataType) -> bool:
    """True when values compare after the cast as before it, so that statistics and filters may be used on the file."""
    return isinstance(source, ScalarType) and isinstance(target, ScalarType) and keeps_values(source, target)


def _read_column(source: DataField | None, wanted: DataField, earlier: str | None) -> ReadColumn:
    if source is None:
        return ReadColumn(wanted, None, None, earlier)
    try:
        return ReadColumn(wanted, source, _caster(source.type, wanted.type, earlier), earlier)
    except UnsupportedFeatureError as error:
        remedy = "alter the column back, or leave it out" if earlier is None else OPEN_AGAIN
        raise UnsupportedFeatureError(
            f"column {wanted.name!r} was written as {source.type} and is {wanted.type} {earlier or 'now'}: {error}; "
            f"{remedy}",
            column=wanted.name,
        ) from error


def _caster(source: DataType, target: DataType, earlier: str | None) -> ArrayCast | None:
    """None where the arrays are already right, as they are in nearly every file."""
    if source == target:
        return None
    match source, target:
        case RowType(), RowType():
            return _row_caster(source, target, earlier)
        case ArrayType(), ArrayType():
            return _children_caster(source, target, (_caster(source.element, target.element, earlier),))
        case MapType(), MapType():
            if replace(source.key, nullable=True) != replace(target.key, nullable=True):
                raise UnsupportedFeatureError(f"keys of a MAP cannot change from {source.key} to {target.key}")
            return _children_caster(source, target, (None, _caster(source.value, target.value, earlier)))
    cast = cast_scalar(source, target)
    if earlier is None or cast is None or keeps_bounds(source, target):
        return cast
    assert isinstance(target, ScalarType)
    return cast if target.root in FLOAT_ROOTS else _unchanged(cast, source, target)


def _unchanged(cast: ArrayCast, source: DataType, target: ScalarType) -> ArrayCast:
    """The cast, for values that come back as they were: others would be told as values that nobody wrote."""
    back = cast_scalar(target, source)

    def checked(array: pa.Array[Any]) -> pa.Array[Any]:
        found = cast(array)
        again = found if back is None else back(found)
        is_other = pc.or_(pc.xor(array.is_null(), again.is_null()), pc.fill_null(pc.not_equal(array, again), False))
        if pc.any(is_other).as_py():
            raise InvalidRequestError(f"{array.filter(is_other)[0].as_py()!r}")
        return found

    return checked


def _row_caster(source: RowType, target: RowType, earlier: str | None) -> ArrayCast | None:
    columns = map_columns(source.fields, target.fields, earlier=earlier)
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
