"""The value of an expression in the carrier of its column, NULL where it does not fit; the zero of a type.

| given | column | rule |
|---|---|---|
| the column's carrier | any | lengths, ranges and fraction digits are checked |
| STRING | any but text | as text, by the decoder's conversions (an Arrow function): numbers, ISO times |
| STRING | BINARY | its UTF-8 bytes |
| a number | a number | TRY_CAST: rounded to the scale, NULL when out of range |
| DATE, TIMESTAMP, TIMESTAMP_NTZ | TIMESTAMP of either kind | in UTC |
| a whole number | TIME, TIMESTAMP(7-9) | in the carrier's unit |
| anything | STRING | its text, nested values as JSON |
| all other pairs | | refused before the start, naming the column |
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql import types as spark_types

from freshet.pipeline.decode.carriers import is_nanos
from freshet.pipeline.decode.convert.by_type import convert_texts
from freshet.pipeline.decode.plan import ColumnPlan
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.spark.arrow_bridge import spark_type
from freshet.storage.model.data_type import LENGTH_MAX, ArrayType, DataType, MapType, RowType, ScalarType, TypeRoot

_WHOLE: Final = (spark_types.ByteType, spark_types.ShortType, spark_types.IntegerType, spark_types.LongType)
_NUMBERS: Final = (*_WHOLE, spark_types.FloatType, spark_types.DoubleType, spark_types.DecimalType)
_TIMES: Final = (spark_types.DateType, spark_types.TimestampType, spark_types.TimestampNTZType)
_NESTED: Final = (spark_types.ArrayType, spark_types.MapType, spark_types.StructType)
_TEXTS: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_BINARIES: Final = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
_TIMESTAMPS: Final = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})


def stored_value(column: ColumnPlan, given: spark_types.DataType, value: Column) -> Column:
    """The value in the column's carrier, NULL where it does not fit; see the table above."""
    data_type = column.field.type
    carrier, root = spark_type(data_type), data_type.root
    if isinstance(given, spark_types.NullType):
        return F.lit(None).cast(carrier)
    if given.simpleString() == carrier.simpleString():
        return _checked(value, data_type)
    if isinstance(given, spark_types.StringType):
        return _checked(value.cast("binary"), data_type) if root in _BINARIES else _from_text(value, data_type)
    if root in _TEXTS:
        return _checked(F.to_json(value) if isinstance(given, _NESTED) else value.cast("string"), data_type)
    if isinstance(given, _NUMBERS) and isinstance(carrier, _NUMBERS):
        if root is not TypeRoot.TIME and not is_nanos(data_type):
            return value.try_cast(carrier)
        if isinstance(given, _WHOLE):
            return _checked(value.cast("bigint"), data_type)
    if isinstance(given, _TIMES) and root in _TIMESTAMPS:
        if is_nanos(data_type):
            return F.try_multiply(F.unix_micros(value.cast("timestamp")), F.lit(1000).cast("bigint"))
        return _checked(value.cast(carrier), data_type)
    raise ConfigurationError(
        f"select.{column.field.name}: gives {given.simpleString()}, the column is {data_type}; write a CAST to say "
        "what is meant"
    )


def _from_text(value: Column, data_type: DataType) -> Column:
    def convert(texts: pa.Array) -> pa.Array:
        return convert_texts(data_type, texts)

    return F.arrow_udf(convert, spark_type(data_type))(value)  # type: ignore[call-overload, no-any-return]


def _checked(value: Column, data_type: DataType) -> Column:
    """NULL where a value of the carrier's type does not fit."""
    if not isinstance(data_type, ScalarType):
        return value
    root, precision = data_type.root, data_type.precision or 0
    if (root in _TEXTS or root in _BINARIES) and data_type.length != LENGTH_MAX:
        return F.when(F.length(value) <= F.lit(data_type.length), value)
    if root is TypeRoot.TIME:
        fits = value.between(0, 86_399_999) & (value % F.lit(10 ** max(0, 3 - precision)) == 0)
        return F.when(fits, value)
    if is_nanos(data_type) and precision < 9:
        return F.when(value % F.lit(10 ** (9 - precision)) == 0, value)
    if root in _TIMESTAMPS and precision < 6:
        return F.when(F.unix_micros(value.cast("timestamp")) % F.lit(10 ** (6 - precision)) == 0, value)
    return value


def zero_text(data_type: DataType) -> str:
    """SQL text of the zero of a type in its carrier."""
    carrier = spark_type(data_type).simpleString()
    match data_type:
        case ArrayType():
            return f"CAST(array() AS {carrier})"
        case MapType():
            return f"CAST(map() AS {carrier})"
        case RowType(fields=fields):
            parts = ["CAST(NULL AS VOID)" if field.type.nullable else zero_text(field.type) for field in fields]
            return f"CAST(struct({', '.join(parts)}) AS {carrier})"
    match data_type.root:
        case TypeRoot.BOOLEAN:
            return "false"
        case TypeRoot.DATE:
            return "date_from_unix_date(0)"
        case root if root in _TEXTS or root in _BINARIES:
            return f"CAST('' AS {carrier})"
        case root if root in _TIMESTAMPS and not is_nanos(data_type):
            return f"CAST(timestamp_micros(0L) AS {carrier})"
        case _:
            return f"CAST(0 AS {carrier})"
