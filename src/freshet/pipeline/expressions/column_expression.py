"""The expression that fills one column of a table, translated: what it reads, and its value in the column's type.

| given | column | rule |
|---|---|---|
| the column's carrier | any | lengths, ranges and fraction digits are checked |
| STRING | any but text | as text, by the decoder's conversions: numbers, ISO times |
| a number | a number | tried: rounded to the scale, NULL when out of range |
| DATE, TIMESTAMP, TIMESTAMP_NTZ | TIMESTAMP of either kind | in UTC |
| a whole number | TIME, TIMESTAMP(7-9) | in the carrier's unit |
| anything | STRING | its text |

All other pairs are left to Spark, which refuses them by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from freshet._frozen import Frozen
from freshet.pipeline.expressions.casts import NO_VALUE, cast
from freshet.pipeline.expressions.evaluation import ExpressionSql, column_index
from freshet.pipeline.expressions.grammar import NotOursError, Parsed
from freshet.pipeline.expressions.translator import Translator
from freshet.pipeline.expressions.values import (
    BIGINT,
    BINARY,
    DATE,
    STRING,
    TIMES,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    WHOLE,
    Value,
    duckdb_type,
    is_number,
    spark_name,
)
from freshet.storage.model.data_type import (
    BYTES_ROOTS,
    LENGTH_MAX,
    TEXT_ROOTS,
    TIMESTAMP_ROOTS,
    DataType,
    ScalarType,
    TypeRoot,
    with_nullable,
)

_CARRIED_DIGITS: Final = 6
_LAST_MILLI: Final = 86_399_999


class ColumnExpression(Frozen):
    """`reads` are the numbers of what it reads, `is_text` says that the value is a text to be converted to the column's
    type; `reason` and `misfit` are what a dead letter says. `causes` may fail, besides casts."""

    text: str
    sql: ExpressionSql
    reads: tuple[int, ...]
    is_text: bool
    reason: str
    misfit: str
    causes: tuple[str, ...]


def carrier(data_type: DataType | None) -> ScalarType:
    """The type in which a field or a column of the table travels. Raises `NotOursError` for nested ones."""
    if not isinstance(data_type, ScalarType):
        raise NotOursError("a nested value" if data_type else "the headers of a record")
    root = data_type.root
    if root in TEXT_ROOTS:
        return STRING
    if root in BYTES_ROOTS:
        return BINARY
    if root is TypeRoot.TIME or _is_nanos(data_type):
        return BIGINT
    if root in TIMESTAMP_ROOTS:
        return TIMESTAMP if root is TypeRoot.TIMESTAMP_LTZ else TIMESTAMP_NTZ
    plain = with_nullable(data_type, True)
    assert isinstance(plain, ScalarType)
    return plain


def column_expression(
    text: str, parsed: Parsed, columns: Mapping[tuple[str, ...], Value], data_type: DataType
) -> ColumnExpression:
    """Translates an expression for a column of this type. Raises `NotOursError` naming what only Spark computes."""
    value = Translator(columns).value(parsed.tree)
    is_text = value.type == STRING and carrier(data_type) not in (STRING, BINARY)
    stored = value.sql if is_text else _stored(value, data_type)
    misfits = "" if stored == value.sql else f"(({value.sql}) IS NOT NULL AND ({stored}) IS NULL)"
    causes = tuple(cause for cause in value.causes if not cause.startswith(NO_VALUE))
    reason = f"{text!r} cannot be computed: {' or '.join(value.causes)}"
    if not causes:
        reason = f"a cast in {text!r} gave NULL for a value that was not NULL"
    return ColumnExpression(
        text,
        ExpressionSql(stored, value.fails, misfits),
        tuple(sorted(column_index(columns[name].sql) for name in parsed.references)),
        is_text,
        reason,
        f"the value of {text!r} does not fit {data_type}",
        causes,
    )


def _stored(value: Value, data_type: DataType) -> str:
    """The value in the column's carrier, NULL where it does not fit."""
    kind, given = carrier(data_type), value.type
    assert isinstance(data_type, ScalarType)
    if given is None:
        return f"CAST(NULL AS {duckdb_type(kind)})"
    is_counted = data_type.root is TypeRoot.TIME or _is_nanos(data_type)
    if given == kind or (given in TIMES and kind in TIMES):
        return _checked(value.sql, data_type)
    if kind in (STRING, BINARY) and (kind == STRING or given == STRING):
        return _checked(cast(value, kind).sql, data_type)
    if is_number(given) and is_number(kind) and (given in WHOLE or not is_counted):
        return _checked(cast(value, kind, is_tried=True).sql, data_type)
    if given in (DATE, *TIMES) and data_type.root in TIMESTAMP_ROOTS:
        time = cast(value, TIMESTAMP).sql
        if is_counted:
            return f"TRY_CAST(CAST(epoch_us({time}) AS HUGEINT) * 1000 AS BIGINT)"
        return _checked(time, data_type)
    raise NotOursError(f"{spark_name(given)} for a column {data_type}")


def _checked(sql: str, data_type: ScalarType) -> str:
    """NULL where a value of the carrier's type does not fit."""
    root, precision = data_type.root, data_type.precision or 0
    if root in TEXT_ROOTS and data_type.length != LENGTH_MAX:
        return f"CASE WHEN length({sql}) <= {data_type.length} THEN {sql} END"
    if root in BYTES_ROOTS and data_type.length != LENGTH_MAX:
        return f"CASE WHEN octet_length({sql}) <= {data_type.length} THEN {sql} END"
    if root is TypeRoot.TIME:
        unit = 10 ** max(0, 3 - precision)
        return f"CASE WHEN ({sql}) BETWEEN 0 AND {_LAST_MILLI} AND ({sql}) % {unit} = 0 THEN {sql} END"
    if _is_nanos(data_type):
        return sql if precision == 9 else f"CASE WHEN ({sql}) % {10 ** (9 - precision)} = 0 THEN {sql} END"
    if root in TIMESTAMP_ROOTS and precision < _CARRIED_DIGITS:
        return f"CASE WHEN epoch_us({sql}) % {10 ** (_CARRIED_DIGITS - precision)} = 0 THEN {sql} END"
    return sql


def _is_nanos(data_type: ScalarType) -> bool:
    return data_type.root in TIMESTAMP_ROOTS and (data_type.precision or 0) > _CARRIED_DIGITS
