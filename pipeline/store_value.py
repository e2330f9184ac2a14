"""What an expression gave, into the type of its column: tried, NULL where it does not fit.

| given | column | rule |
|---|---|---|
| the column's carrier | any | lengths, ranges and fraction digits are checked |
| STRING | any | as text: numbers, ISO times; BINARY takes the UTF-8 bytes |
| a number | a number | TRY_CAST: rounded to the scale, NULL when out of range |
| DATE, TIMESTAMP, TIMESTAMP_NTZ | TIMESTAMP of either kind | in UTC |
| a whole number | TIME, TIMESTAMP(7-9) | in the carrier's unit |
| anything | STRING | its text, nested values as JSON |
| all other pairs | | refused before the start, naming the column |

Source: SQL store assignment; carriers in `freshet.pipeline.batch.arrow_bridge`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import types as spark

from freshet.pipeline.batch.arrow_bridge import spark_type
from freshet.pipeline.decode.carriers import is_nanos
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.formats.typed_value import steps_for
from freshet.pipeline.formats.value import PLAIN_TEXT, text_leaf
from freshet.pipeline.sql_text import literal
from freshet.storage.model.data_type import LENGTH_MAX, ArrayType, DataType, MapType, RowType, ScalarType, TypeRoot

StoreStep = Callable[[str, str], str]
"""SQL text from the expression's value and from the result of the step before."""

_WHOLE: Final = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)
_NUMBERS: Final = (*_WHOLE, spark.FloatType, spark.DoubleType, spark.DecimalType)
_TIMES: Final = (spark.DateType, spark.TimestampType, spark.TimestampNTZType)
_TEXTS: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_BINARIES: Final = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})


def store_steps(column: str, given: spark.DataType, data_type: DataType) -> list[StoreStep]:
    """The steps, perhaps none; raises `ConfigurationError` when the types have nothing to do with each other."""
    carrier = spark_type(data_type)
    if isinstance(given, spark.NullType):
        return [lambda _, __: f"CAST(NULL AS {carrier.simpleString()})"]
    if given.simpleString() == carrier.simpleString():
        check = _check(data_type)
        return [check] if check else []
    root = data_type.root
    if isinstance(given, spark.StringType):
        if root in _BINARIES:
            return _with_check([lambda value, _: f"CAST({value} AS BINARY)"], data_type)
        return [_text_step(data_type, number) for number in range(len(steps_for(data_type, PLAIN_TEXT)))]
    if root in _TEXTS:
        is_nested = isinstance(given, spark.ArrayType | spark.MapType | spark.StructType)
        text = "to_json({0})" if is_nested else "CAST({0} AS STRING)"
        return _with_check([lambda value, _: text.format(value)], data_type)
    if isinstance(given, _NUMBERS) and isinstance(carrier, _NUMBERS):
        if root is TypeRoot.TIME or is_nanos(data_type):
            if not isinstance(given, _WHOLE):
                raise _mismatch(column, given, data_type)
            return _with_check([lambda value, _: f"CAST({value} AS BIGINT)"], data_type)
        return [lambda value, _: f"try_cast({value} AS {carrier.simpleString()})"]
    if isinstance(given, _TIMES) and root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        if is_nanos(data_type):
            return [lambda value, _: f"try_multiply(unix_micros(CAST({value} AS TIMESTAMP)), 1000L)"]
        return _with_check([lambda value, _: f"CAST({value} AS {carrier.simpleString()})"], data_type)
    raise _mismatch(column, given, data_type)


def zero_of(data_type: DataType) -> str:
    """The zero of a type in its carrier: what a deleted row holds in NOT NULL columns of which nothing is known."""
    carrier = spark_type(data_type).simpleString()
    match data_type:
        case ArrayType():
            return f"CAST(array() AS {carrier})"
        case MapType():
            return f"CAST(map() AS {carrier})"
        case RowType(fields=fields):
            parts = [
                f"{literal(f.name)}, "
                + (f"CAST(NULL AS {spark_type(f.type).simpleString()})" if f.type.nullable else zero_of(f.type))
                for f in fields
            ]
            return f"named_struct({', '.join(parts)})"
    match data_type.root:
        case TypeRoot.BOOLEAN:
            return "false"
        case TypeRoot.DATE:
            return "date_from_unix_date(0)"
        case root if root in _TEXTS or root in _BINARIES:
            return f"CAST('' AS {carrier})"
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ if not is_nanos(data_type):
            return f"CAST(timestamp_micros(0L) AS {carrier})"
        case _:
            return f"CAST(0 AS {carrier})"


def _text_step(data_type: DataType, number: int) -> StoreStep:
    step = steps_for(data_type, PLAIN_TEXT)[number]
    return lambda value, last: step(text_leaf(value), last)


def _with_check(steps: list[StoreStep], data_type: DataType) -> list[StoreStep]:
    check = _check(data_type)
    return [*steps, check] if check else steps


def _check(data_type: DataType) -> StoreStep | None:
    """The test of a value that has the carrier's type already; None when every such value fits."""
    if not isinstance(data_type, ScalarType):
        return None
    root, precision = data_type.root, data_type.precision or 0
    if (root in _TEXTS or root in _BINARIES) and data_type.length != LENGTH_MAX:
        return lambda _, last: f"CASE WHEN length({last}) <= {data_type.length} THEN {last} END"
    if root is TypeRoot.TIME:
        step = 10 ** max(0, 3 - precision)
        return lambda _, last: f"CASE WHEN {last} BETWEEN 0 AND 86399999 AND {last} % {step} = 0 THEN {last} END"
    if is_nanos(data_type) and precision < 9:
        return lambda _, last: f"CASE WHEN {last} % {10 ** (9 - precision)} = 0 THEN {last} END"
    if root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ) and precision < 6:
        step = 10 ** (6 - precision)
        return lambda _, last: f"CASE WHEN unix_micros(CAST({last} AS TIMESTAMP)) % {step} = 0 THEN {last} END"
    return None


def _mismatch(column: str, given: spark.DataType, data_type: DataType) -> ConfigurationError:
    return ConfigurationError(
        f"select.{column}: gives {given.simpleString()}, the column is {data_type}; write a CAST to say what is meant"
    )
