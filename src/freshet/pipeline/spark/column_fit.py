"""Whether the columns of a frame fit those of a table, and what has to be done with them.

Names are resolved as Spark resolves them: by case where the session says so (`spark.sql.caseSensitive`), else without,
but a name that is the same in all letters counts first.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from pyspark.sql import types as spark

from freshet.pipeline.decode.carriers import is_nanos
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.spark.arrow_bridge import spark_type
from freshet.storage.model.data_type import DataField, ScalarType, TypeRoot
from freshet.storage.model.row_kind import ROW_KIND_COLUMN
from freshet.storage.model.schema import TableSchema

_INTEGERS: Final = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)


class Fit(Enum):
    """How a column becomes the carrier of its table type."""

    SAME = auto()
    WIDENS = auto()
    """By a cast that loses nothing."""
    MICROS_AS_NANOS = auto()
    """A timestamp of Spark's, for a column that is finer."""


def resolved_names(given: Sequence[str], schema: TableSchema, *, by_case: bool) -> list[str]:
    """The names of the table's columns in the place of those of a frame; others stay as they are.

    Raises `InvalidRequestError` where two columns of the frame are one of the table.
    """
    known = [*schema.column_names, ROW_KIND_COLUMN]
    names = [_resolved(name, known, by_case=by_case) for name in given]
    for position, name in enumerate(names):
        if name in names[:position]:
            earlier = given[names.index(name)]
            which = f"{earlier!r} and {given[position]!r}" if earlier != given[position] else f"{earlier!r} twice"
            raise InvalidRequestError(f"the frame has the columns {which}, which are both {name!r}; drop one of them")
    return names


def _resolved(name: str, known: Sequence[str], *, by_case: bool) -> str:
    if name in known or by_case:
        return name
    alike = [each for each in known if each.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else name


def fit_of(found: spark.DataType, field: DataField) -> Fit:
    """How a column of this type becomes that of the table; raises `InvalidRequestError` where values could be lost."""
    wanted = spark_type(field.type)
    if _same(found, wanted):
        return Fit.SAME
    if is_nanos(field.type) and isinstance(found, spark.TimestampNTZType | spark.TimestampType):
        root = TypeRoot.TIMESTAMP_LTZ if isinstance(found, spark.TimestampType) else TypeRoot.TIMESTAMP
        if isinstance(field.type, ScalarType) and field.type.root is root:
            return Fit.MICROS_AS_NANOS
    if _widens(found, wanted):
        return Fit.WIDENS
    raise InvalidRequestError(
        f"column {field.name!r} of the frame is {found.simpleString()}, the table's is {field.type}, which Spark "
        f"carries as {wanted.simpleString()}; cast it in the query"
    )


def _same(found: spark.DataType, wanted: spark.DataType) -> bool:
    """Equal but for nullability, which the task checks row by row, and for the length of texts."""
    match found, wanted:
        case spark.ArrayType(), spark.ArrayType():
            return _same(found.elementType, wanted.elementType)
        case spark.MapType(), spark.MapType():
            return _same(found.keyType, wanted.keyType) and _same(found.valueType, wanted.valueType)
        case spark.StructType(), spark.StructType():
            return found.names == wanted.names and all(
                _same(left.dataType, right.dataType) for left, right in zip(found, wanted, strict=True)
            )
        case spark.CharType() | spark.VarcharType(), spark.StringType():
            return True
        case _:
            return found == wanted


def _widens(found: spark.DataType, wanted: spark.DataType) -> bool:
    match found, wanted:
        case spark.ArrayType(), spark.ArrayType():
            inner = [(found.elementType, wanted.elementType, found.containsNull <= wanted.containsNull)]
        case spark.MapType(), spark.MapType():
            inner = [(found.keyType, wanted.keyType, True)]
            inner += [(found.valueType, wanted.valueType, found.valueContainsNull <= wanted.valueContainsNull)]
        case spark.StructType(), spark.StructType() if found.names == wanted.names:  # Spark casts by position
            pairs = zip(found, wanted, strict=True)
            inner = [(one.dataType, other.dataType, one.nullable <= other.nullable) for one, other in pairs]
        case _:
            return _scalar_widens(found, wanted)
    return all(takes_nulls and (_same(one, other) or _widens(one, other)) for one, other, takes_nulls in inner)


def _scalar_widens(found: spark.DataType, wanted: spark.DataType) -> bool:
    if isinstance(found, _INTEGERS) and isinstance(wanted, _INTEGERS):
        return _INTEGERS.index(type(found)) < _INTEGERS.index(type(wanted))
    if isinstance(found, spark.FloatType) and isinstance(wanted, spark.DoubleType):
        return True
    if isinstance(found, spark.DecimalType) and isinstance(wanted, spark.DecimalType):
        return found.scale <= wanted.scale and found.precision - found.scale <= wanted.precision - wanted.scale
    return isinstance(found, spark.NullType)
