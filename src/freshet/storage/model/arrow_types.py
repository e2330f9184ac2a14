"""Column types as Arrow types, both ways: the one mapping everybody uses.

| type | Arrow in memory | also taken from input, when nothing is lost |
|---|---|---|
| BOOLEAN | bool | |
| TINYINT … BIGINT | int8 … int64 | every signed and unsigned integer; floats of whole numbers below 2^53 |
| FLOAT, DOUBLE | float32, float64 | every float; integers |
| DECIMAL(p, s) | decimal128(p, s) | every decimal; integers |
| CHAR, VARCHAR, STRING | string | large_string, string_view, dictionaries of these |
| BINARY, VARBINARY, BYTES | binary | large, view and fixed-size binaries, dictionaries of these |
| DATE | date32 | date64 |
| TIME(p) | time32[ms], whatever p | time32[s], time64 |
| TIMESTAMP(p) | timestamp: s for p 0, ms 1–3, us 4–6, ns 7–9 | timestamps of other units without a zone |
| TIMESTAMP(p) WITH LOCAL TIME ZONE | the same with zone UTC | timestamps of other units with any zone |
| ARRAY, MAP, ROW | list, map, struct | large and fixed-size lists (not list views: pyarrow 26 casts them wrongly); |
| | | structs of some of the fields, in any order: those that are missing are NULL |

Nullability travels in fields; ids of new columns come from `model.schema.assign_ids`.

Source: FORMAT.md §2.2, §2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import starmap
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.model.data_type import (
    LENGTH_MAX,
    ArrayType,
    DataField,
    DataType,
    MapType,
    RowType,
    ScalarType,
    TypeRoot,
    child_types,
)
from freshet.storage.model.nested_arrays import Nested, all_nullable, child_fields, with_hidden_values
from freshet.storage.model.nested_arrays import converted as converted  # readers of these types convert by it
from freshet.storage.model.schema import TableSchema, assign_ids

_PLAIN: Final[dict[TypeRoot, pa.DataType]] = {
    TypeRoot.BOOLEAN: pa.bool_(),
    TypeRoot.TINYINT: pa.int8(),
    TypeRoot.SMALLINT: pa.int16(),
    TypeRoot.INT: pa.int32(),
    TypeRoot.BIGINT: pa.int64(),
    TypeRoot.FLOAT: pa.float32(),
    TypeRoot.DOUBLE: pa.float64(),
    TypeRoot.CHAR: pa.string(),
    TypeRoot.VARCHAR: pa.string(),
    TypeRoot.BINARY: pa.binary(),
    TypeRoot.VARBINARY: pa.binary(),
    TypeRoot.DATE: pa.date32(),
    TypeRoot.TIME: pa.time32("ms"),
}
_NUMPY: Final[dict[pa.DataType, np.dtype[Any]]] = {
    pa.int8(): np.dtype(np.int8),
    pa.int16(): np.dtype(np.int16),
    pa.int32(): np.dtype(np.int32),
    pa.int64(): np.dtype(np.int64),
    pa.float32(): np.dtype(np.float32),
    pa.float64(): np.dtype(np.float64),
}

_UNITS: Final = ("s", "ms", "ms", "ms", "us", "us", "us", "ns", "ns", "ns")
"""Unit of a timestamp, indexed by its precision."""

_PRECISIONS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}

PLAIN_SCALE_MAX: Final = 6
"""Scale up to which Arrow writes every decimal without an exponent."""


def numpy_type(arrow_type: pa.DataType) -> np.dtype[Any]:
    """The numpy type of a number's; `to_pandas_dtype` of older pyarrow asks for pandas, which need not be there."""
    return _NUMPY[arrow_type]


def arrow_type(data_type: DataType, of_scalar: Callable[[ScalarType], pa.DataType] | None = None) -> pa.DataType:
    """The Arrow type that columns of this type have in memory; `of_scalar` gives scalar types others."""
    match data_type:
        case ScalarType():
            return (of_scalar or _scalar_arrow_type)(data_type)
        case ArrayType(element=element):
            return pa.list_(pa.field("element", arrow_type(element, of_scalar), element.nullable))
        case MapType(key=key, value=value):
            return pa.map_(
                pa.field("key", arrow_type(key, of_scalar), nullable=False),
                pa.field("value", arrow_type(value, of_scalar), value.nullable),
            )
        case RowType(fields=fields):
            return pa.struct([pa.field(f.name, arrow_type(f.type, of_scalar), f.type.nullable) for f in fields])


def arrow_field(field: DataField) -> pa.Field:
    """The Arrow field of a column, with its nullability."""
    return pa.field(field.name, arrow_type(field.type), field.type.nullable)


def arrow_schema(fields: TableSchema | Iterable[DataField]) -> pa.Schema:
    """The Arrow schema of a table's columns, or of the fields given."""
    columns = fields.fields if isinstance(fields, TableSchema) else fields
    return pa.schema([arrow_field(field) for field in columns])


def data_type_from_arrow(arrow: pa.DataType, nullable: bool = True) -> DataType:
    """The column type for an Arrow type; ids of nested fields are -1 until `fields_from_arrow` hands them out."""
    if pt.is_dictionary(arrow):
        return data_type_from_arrow(arrow.value_type, nullable)
    if pt.is_map(arrow):
        value = data_type_from_arrow(arrow.item_type, arrow.item_field.nullable)
        return MapType(data_type_from_arrow(arrow.key_type, False), value, nullable)
    if _is_list(arrow):
        return ArrayType(data_type_from_arrow(arrow.value_type, arrow.value_field.nullable), nullable)
    if pt.is_struct(arrow):
        return RowType(tuple(DataField(-1, f.name, data_type_from_arrow(f.type, f.nullable)) for f in arrow), nullable)
    return _scalar_from_arrow(arrow, nullable)


def fields_from_arrow(
    schema: pa.Schema, primary_keys: Sequence[str] = (), partition_keys: Sequence[str] = ()
) -> tuple[tuple[DataField, ...], int]:
    """Columns of a new table and the highest id handed out. Primary-key columns become NOT NULL.

    Raises `InvalidRequestError` naming the column for a key that is not a column, and `UnsupportedFeatureError` for an
    Arrow type that no column can have.
    """
    for key in (*primary_keys, *partition_keys):
        if key not in schema.names:
            raise InvalidRequestError(
                f"key column {key!r} is not in the schema; columns are {', '.join(schema.names)}", column=key
            )
    if len(set(schema.names)) != len(schema.names):
        raise InvalidRequestError(f"column names must be unique; got {', '.join(schema.names)}")
    columns = []
    for column in schema:
        try:
            data_type = data_type_from_arrow(column.type, column.nullable and column.name not in primary_keys)
        except UnsupportedFeatureError as error:
            raise UnsupportedFeatureError(f"column {column.name!r}: {error}", column=column.name) from error
        columns.append(DataField(-1, column.name, data_type))
    return assign_ids(columns)


def conform(data: pa.Table, fields: Sequence[DataField], *, table: str = "the table") -> pa.Table:
    """The columns named by `fields`, in their order and types; zero-copy where the types are equal already.

    Raises `InvalidRequestError` naming the column that is missing, does not convert without loss, or holds a null
    where the type is NOT NULL. Columns not named by `fields` are left out: the caller decides whether they may be.
    """
    return pa.table(
        [_conform_column(data, field, table) for field in fields],
        schema=pa.schema([arrow_field(field) for field in fields]),
    )


def _conform_column(data: pa.Table, field: DataField, table: str) -> pa.ChunkedArray:
    position = data.schema.get_field_index(field.name)
    if position < 0:
        hint = "with NULLs where there is no value" if field.type.nullable else "NULL is not allowed there"
        raise InvalidRequestError(
            f"the input lacks column {field.name!r} ({field.type}) of {table}; add it, {hint}",
            column=field.name,
            table=table,
        )
    column = data.column(position)
    target = arrow_type(field.type)
    # Fields that are NOT NULL may be NULL in a NULL row, which neither Arrow's cast nor its Parquet writer takes.
    has_parts = bool(_parts_without_null(field.type))
    given = all_nullable(target) if has_parts else target
    if not column.type.equals(given):
        column = _cast_losslessly(column, field, given, table)
    if _holds_forbidden_null(column, field.type):
        raise InvalidRequestError(
            f"column {field.name!r} of {table} is {field.type}, the input holds nulls where NOT NULL forbids them; "
            "remove those rows",
            column=field.name,
            table=table,
        )
    if has_parts:
        return pa.chunked_array([with_hidden_values(chunk, target) for chunk in column.chunks], target)
    return column


def _holds_forbidden_null(column: pa.ChunkedArray | pa.Array, data_type: DataType) -> bool:
    if not data_type.nullable and column.null_count:
        return True
    parts = _parts_without_null(data_type)
    for chunk in (column.chunks if isinstance(column, pa.ChunkedArray) else [column]) if parts else ():
        # The fields of a NULL row count as NULL there, which NOT NULL allows.
        rows = chunk.drop_null() if pt.is_struct(chunk.type) and chunk.null_count else chunk
        children = Nested.of(rows).children
        if any(_holds_forbidden_null(children[index], part) for index, part in parts):
            return True
    return False


def _parts_without_null(data_type: DataType) -> list[tuple[int, DataType]]:
    """The children that are NOT NULL or have such a part; keys of maps, which never are null, do not count."""
    numbered = list(enumerate(child_types(data_type)))[1 if isinstance(data_type, MapType) else 0 :]
    return [(index, part) for index, part in numbered if not part.nullable or _parts_without_null(part)]


_BY_ARROW: Final = "data.select(table.arrow_schema.names).cast(table.arrow_schema)"
"""The columns of the table in its order: a frame may have them in another, and its index besides."""


def _how_to_cast(given: pa.DataType, target: pa.DataType) -> str:
    if pt.is_decimal(target) and pt.is_floating(given):
        return f", for floats are not exact: Decimal('9.5') for 9.5, or Arrow's cast, {_BY_ARROW}"
    if pt.is_nested(target):
        return ""
    return f", such as by Arrow: {_BY_ARROW}"


def _cast_losslessly(column: pa.ChunkedArray, field: DataField, target: pa.DataType, table: str) -> pa.ChunkedArray:
    if not is_lossless_pair(column.type, target):
        raise InvalidRequestError(
            f"column {field.name!r} of {table} is {field.type}, the input has {column.type}; cast it before writing"
            f"{_how_to_cast(column.type, target)}",
            column=field.name,
            table=table,
        )
    try:
        if pt.is_decimal(target) and pt.is_integer(column.type):
            # A direct cast asks for room for every integer of the type, not for those that are there.
            column = column.cast(pa.decimal128(20, 0))
        converted = column.cast(target)
        if pt.is_floating(target):
            _refuse_rounded(column, converted)
        if pt.is_integer(target) and pt.is_floating(column.type):
            _refuse_inexact(column)
    except pa.ArrowException as error:
        raise InvalidRequestError(
            f"column {field.name!r} of {table} is {field.type}; the input ({column.type}) does not fit: {error}"
            f"{'; a missing value is None' if 'value nan' in str(error) else ''}",
            column=field.name,
            table=table,
        ) from error
    return converted


def _refuse_rounded(before: pa.ChunkedArray, after: pa.ChunkedArray) -> None:
    if pt.is_floating(before.type) and before.type.bit_width > after.type.bit_width:
        back = after.cast(before.type)
        same = pc.or_(pc.equal(back, before), pc.and_(pc.is_nan(back), pc.is_nan(before)))
        if pc.all(same).as_py() is False:
            raise pa.ArrowInvalid("a value needs more digits than the column holds")


_EXACT_BITS: Final = {16: 11, 32: 24, 64: 53}
"""Whole numbers of so many bits are exact in floats of that width."""


def _refuse_inexact(floats: pa.ChunkedArray) -> None:
    """Refuses a float that stands for several whole numbers: which one was meant is lost."""
    bits = _EXACT_BITS[floats.type.bit_width]
    if pc.any(pc.greater_equal(pc.abs(floats.cast(pa.float64())), float(2**bits))).as_py():
        raise pa.ArrowInvalid(f"from 2^{bits} on not every whole number is such a float; give integers")


class _Family(Frozen):
    holds: Callable[[pa.DataType], bool]
    takes: tuple[Callable[[pa.DataType], bool], ...]


def _is_list(arrow: pa.DataType) -> bool:
    return bool(pt.is_list(arrow) or pt.is_large_list(arrow) or pt.is_fixed_size_list(arrow))


def _is_text(arrow: pa.DataType) -> bool:
    return bool(pt.is_string(arrow) or pt.is_large_string(arrow) or pt.is_string_view(arrow))


def _is_bytes(arrow: pa.DataType) -> bool:
    return bool(
        pt.is_binary(arrow) or pt.is_large_binary(arrow) or pt.is_binary_view(arrow) or pt.is_fixed_size_binary(arrow)
    )


def _is_naive_timestamp(arrow: pa.DataType) -> bool:
    return bool(pt.is_timestamp(arrow) and arrow.tz is None)


def _is_zoned_timestamp(arrow: pa.DataType) -> bool:
    return bool(pt.is_timestamp(arrow) and arrow.tz is not None)


_FAMILIES: Final = (
    _Family(pt.is_integer, (pt.is_integer, pt.is_floating)),
    _Family(pt.is_floating, (pt.is_floating, pt.is_integer)),
    _Family(pt.is_decimal, (pt.is_decimal, pt.is_integer)),
    _Family(_is_text, (_is_text,)),
    _Family(_is_bytes, (_is_bytes,)),
    _Family(pt.is_date, (pt.is_date,)),
    _Family(pt.is_time, (pt.is_time,)),
    _Family(_is_naive_timestamp, (_is_naive_timestamp,)),
    _Family(_is_zoned_timestamp, (_is_zoned_timestamp,)),
)


def is_lossless_pair(source: pa.DataType, target: pa.DataType) -> bool:
    """True when the families agree, part by part; the values are then checked by a safe cast."""
    if pt.is_null(source) or source.equals(target):
        return True
    if pt.is_dictionary(source):
        return is_lossless_pair(source.value_type, target)
    if pt.is_nested(target):
        return _nested_alike(source, target) and all(starmap(is_lossless_pair, _inner_types(source, target)))
    return any(family.holds(target) and any(takes(source) for takes in family.takes) for family in _FAMILIES)


def _nested_alike(source: pa.DataType, target: pa.DataType) -> bool:
    if pt.is_struct(source) and pt.is_struct(target):
        names = [field.name for field in source]
        return len(set(names)) == len(names) and {field.name for field in target}.issuperset(names)
    return bool((pt.is_map(source) and pt.is_map(target)) or (_is_list(source) and pt.is_list(target)))


def _inner_types(source: pa.DataType, target: pa.DataType) -> list[tuple[pa.DataType, pa.DataType]]:
    if pt.is_struct(source):
        return [(field.type, target.field(field.name).type) for field in source]
    return [(each.type, goal.type) for each, goal in zip(child_fields(source), child_fields(target), strict=True)]


def _scalar_arrow_type(scalar: ScalarType) -> pa.DataType:
    if scalar.root is TypeRoot.DECIMAL:
        assert scalar.precision is not None
        assert scalar.scale is not None
        return pa.decimal128(scalar.precision, scalar.scale)
    if scalar.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        assert scalar.precision is not None
        return pa.timestamp(_UNITS[scalar.precision], "UTC" if scalar.root is TypeRoot.TIMESTAMP_LTZ else None)
    return _PLAIN[scalar.root]


_UNSIGNED: Final = {pa.uint8(): TypeRoot.SMALLINT, pa.uint16(): TypeRoot.INT, pa.uint32(): TypeRoot.BIGINT}
_SCALAR_ROOTS: Final = {
    pa.bool_(): TypeRoot.BOOLEAN,
    pa.int8(): TypeRoot.TINYINT,
    pa.int16(): TypeRoot.SMALLINT,
    pa.int32(): TypeRoot.INT,
    pa.int64(): TypeRoot.BIGINT,
    pa.float16(): TypeRoot.FLOAT,
    pa.float32(): TypeRoot.FLOAT,
    pa.float64(): TypeRoot.DOUBLE,
    pa.date32(): TypeRoot.DATE,
    pa.date64(): TypeRoot.DATE,
    **_UNSIGNED,
}


def _scalar_from_arrow(arrow: pa.DataType, nullable: bool) -> ScalarType:
    if arrow in _SCALAR_ROOTS:
        return ScalarType(_SCALAR_ROOTS[arrow], nullable)
    if _is_text(arrow):
        return ScalarType(TypeRoot.VARCHAR, nullable, length=LENGTH_MAX)
    if pt.is_fixed_size_binary(arrow):
        return ScalarType(TypeRoot.BINARY, nullable, length=arrow.byte_width)
    if _is_bytes(arrow):
        return ScalarType(TypeRoot.VARBINARY, nullable, length=LENGTH_MAX)
    if pt.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return ScalarType(TypeRoot.DECIMAL, nullable, precision=arrow.precision, scale=arrow.scale)
    if pt.is_time32(arrow):
        return ScalarType(TypeRoot.TIME, nullable, precision=_PRECISIONS[arrow.unit])
    if pt.is_timestamp(arrow):
        root = TypeRoot.TIMESTAMP if arrow.tz is None else TypeRoot.TIMESTAMP_LTZ
        return ScalarType(root, nullable, precision=_PRECISIONS[arrow.unit])
    raise UnsupportedFeatureError(
        f"no column type holds the Arrow type {arrow}; cast it (time64 to time32[ms], uint64 to decimal128(20, 0)) "
        "or leave it out"
    )


def decimal_texts(array: pa.Array[Any]) -> pa.Array[Any]:
    """Plain digits, as many after the point as the scale says: Arrow writes small values with an exponent."""
    if array.type.scale <= PLAIN_SCALE_MAX:
        return array.cast(pa.string())
    scale = array.type.scale
    unscaled = pa.Array.from_buffers(
        pa.decimal128(38, 0), len(array), array.buffers(), null_count=array.null_count, offset=array.offset
    )
    digits = pc.utf8_lpad(pc.abs(unscaled).cast(pa.string()), width=scale + 1, padding="0")
    sign = pc.if_else(pc.less(unscaled, pa.scalar(Decimal(0), unscaled.type)), "-", "")
    whole, fraction = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale, None)
    return pc.binary_join_element_wise(sign, whole, ".", fraction, "")


def empty_value(data_type: DataType) -> Any:
    """A value that every column of the type can hold."""
    match data_type:
        case ArrayType() | MapType():
            return []
        case RowType(fields=fields):
            return {field.name: None if field.type.nullable else empty_value(field.type) for field in fields}
    if data_type.root in (TypeRoot.CHAR, TypeRoot.VARCHAR):
        return ""
    if data_type.root in (TypeRoot.BINARY, TypeRoot.VARBINARY):
        return b""
    return False if data_type.root is TypeRoot.BOOLEAN else 0
