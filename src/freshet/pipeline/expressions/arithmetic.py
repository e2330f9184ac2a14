"""Arithmetic under ANSI rules: what overflows or divides by zero fails, decimals get the digits that Spark gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from freshet.pipeline.expressions.grammar import NotOursError
from freshet.pipeline.expressions.values import (
    BIGINT,
    DATE,
    DECIMAL_MAX,
    DOUBLE,
    FLOATS,
    INT,
    WHOLE,
    Value,
    common_type,
    decimal_type,
    duckdb_type,
    is_decimal,
    is_number,
    spark_name,
    widened,
)
from freshet.storage.model.data_type import ScalarType

OUT_OF_RANGE: Final = "a number out of range"
DIVISION: Final = "a division by zero"
_SCALE_MIN: Final = 6


def computed(operator: str, left: Value, right: Value) -> Value:
    """`+`, `-`, `*`, `/`, `%` or `div` of two numbers, or days added to a date."""
    if operator in "+-" and left.type == DATE:
        return _of_date(operator, left, right)
    if not (is_number(left.type) and is_number(right.type)):
        raise NotOursError(f"{spark_name(left.type)} {operator} {spark_name(right.type)}")
    if (is_decimal(left.type) or is_decimal(right.type)) and not {left.type, right.type} & set(FLOATS):
        return _of_decimals(operator, left, right)
    kind = common_type([left, right])
    assert kind is not None
    if operator == "/":
        kind = DOUBLE
    if operator in "+-*":
        a, b = widened(left, kind), widened(right, kind)
        if kind in FLOATS:
            return Value(f"({a.sql} {operator} {b.sql})", kind).over(left, right)
        return _within(f"{_wide(left, kind)} {operator} {_wide(right, kind)}", kind, left, right)
    return _divided(operator, left, right, kind)


def negated(value: Value) -> Value:
    """The number with the other sign."""
    if value.type in WHOLE:
        return _within(f"-{_wide(value, value.type)}", value.type, value)
    return Value(f"(-({_number(value).sql}))", value.type).over(value)


def absolute(value: Value) -> Value:
    """The number without its sign."""
    if value.type in WHOLE:
        return _within(f"abs({_wide(value, value.type)})", value.type, value)
    return Value(f"abs({_number(value).sql})", value.type).over(value)


def of_remainder(left: Value, right: Value) -> Value:
    """The remainder that is not negative where the divisor is positive (`pmod`)."""
    kind = common_type([left, right])
    if left.type not in WHOLE or right.type not in WHOLE or kind is None:
        raise NotOursError(f"pmod of {spark_name(left.type)} and {spark_name(right.type)}")
    a, b = _wide(left, kind), _wide(right, kind)
    found = f"CASE WHEN ({a} % {b}) < 0 THEN (({a} % {b}) + {b}) % {b} ELSE {a} % {b} END"
    return _unless_zero(f"CAST({found} AS {duckdb_type(kind)})", kind, left, right)


def _number(value: Value) -> Value:
    if not is_number(value.type):
        raise NotOursError(f"arithmetic of {spark_name(value.type)}")
    return value


def _wide(value: Value, kind: ScalarType | None) -> str:
    """A whole number where a sum, a difference or a product of two of this type has room."""
    return f"CAST({value.sql} AS {'HUGEINT' if kind == BIGINT else 'BIGINT'})"


def _within(wide: str, kind: ScalarType | None, *operands: Value) -> Value:
    assert kind is not None
    text = f"TRY_CAST(({wide}) AS {duckdb_type(kind)})"
    there = " AND ".join(f"({each.sql}) IS NOT NULL" for each in operands)
    return Value(text, kind).over(*operands).failing(f"({there} AND {text} IS NULL)", OUT_OF_RANGE)


def _of_date(operator: str, left: Value, right: Value) -> Value:
    if right.type == INT or (operator == "+" and right.type in WHOLE[:2]):
        return shifted_date(operator, left, right)
    raise NotOursError(f"DATE {operator} {spark_name(right.type)}")


def shifted_date(operator: str, date: Value, days: Value) -> Value:
    """A date and days after or before it."""
    if date.type != DATE or days.type not in WHOLE[:3]:
        raise NotOursError(f"days of {spark_name(days.type)} added to {spark_name(date.type)}")
    text = f"TRY({date.sql} {operator} CAST({days.sql} AS INTEGER))"
    return Value(text, DATE).over(date, days)


def _divided(operator: str, left: Value, right: Value, kind: ScalarType) -> Value:
    a, b = widened(left, kind).sql, widened(right, kind).sql
    if kind in FLOATS:
        if operator == "div":
            raise NotOursError("div of floating point")
        return _unless_zero(f"({a} {operator} {b})", kind, left, right)
    is_safe = _written(right) not in (None, -1)  # The least number divided by -1 has no room.
    if not is_safe:
        a, b = _wide(left, kind), _wide(right, kind)
    if operator == "%":
        return _unless_zero(f"CAST(({a} % {b}) AS {duckdb_type(kind)})", kind, left, right)
    found = _unless_zero(f"TRY_CAST(({a} // {b}) AS BIGINT)", BIGINT, left, right)
    if kind != BIGINT or is_safe:
        return found
    least = f"(({left.sql}) = -9223372036854775808 AND ({right.sql}) = -1)"
    return found.failing(f"(({left.sql}) IS NOT NULL AND ({right.sql}) IS NOT NULL AND {least})", OUT_OF_RANGE)


def _written(value: Value) -> int | None:
    """The whole number that an operand is; None where it is none, or not known."""
    return value.constant if isinstance(value.constant, int) else None


def _unless_zero(text: str, kind: ScalarType, left: Value, right: Value) -> Value:
    found = Value(f"CASE WHEN ({right.sql}) <> 0 THEN {text} END", kind).over(right, left)
    if _written(right) not in (None, 0):
        return replace(found, sql=text)
    return found.failing(f"(({left.sql}) IS NOT NULL AND ({right.sql}) IS NOT NULL AND ({right.sql}) = 0)", DIVISION)


def _of_decimals(operator: str, left: Value, right: Value) -> Value:
    (p1, s1), (p2, s2) = left.decimal, right.decimal
    if operator in "+-":
        scale = max(s1, s2)
        kind = decimal_type(max(p1 - s1, p2 - s2) + scale + 1, scale)
        text = f"CAST(({widened(left, kind).sql} {operator} {widened(right, kind).sql}) AS {duckdb_type(kind)})"
        return Value(text, kind).over(left, right)
    if operator == "*":
        kind = decimal_type(p1 + p2 + 1, s1 + s2)
        # DuckDB multiplies in as many digits as the wider one has.
        a, b = (widened(each, decimal_type(p1 + p2 + 1, scale)).sql for each, scale in ((left, s1), (right, s2)))
        return Value(f"CAST(({a} * {b}) AS {duckdb_type(kind)})", kind).over(left, right)
    if operator == "/":
        scale = max(_SCALE_MIN, s1 + p2 + 1)
        kind = decimal_type(p1 - s1 + s2 + scale, scale)
        return _unless_zero(_quotient(left, right, kind), kind, left, right)
    if operator == "%":
        scale = max(s1, s2)
        kind = decimal_type(min(p1 - s1, p2 - s2) + scale, scale)
        both = decimal_type(max(p1 - s1, p2 - s2) + scale, scale)
        text = f"CAST(({widened(left, both).sql} % {widened(right, both).sql}) AS {duckdb_type(kind)})"
        return _unless_zero(text, kind, left, right)
    raise NotOursError("div of decimals")


def _quotient(left: Value, right: Value, kind: ScalarType) -> str:
    """A quotient of decimals, rounded half up: of whole numbers, since DuckDB makes a DOUBLE of it."""
    (p1, s1), (p2, s2), (precision, scale) = left.decimal, right.decimal, (kind.precision or 0, kind.scale or 0)
    if precision + scale > DECIMAL_MAX or max(p1 + s1, p2 + s2) >= DECIMAL_MAX or precision >= DECIMAL_MAX:
        raise NotOursError("a quotient of so many digits")
    n = f"({_unscaled(left)} * {10 ** (scale - s1 + s2)}::HUGEINT)"
    d = _unscaled(right)
    up = f"CASE WHEN 2 * abs({n} % {d}) >= abs({d}) THEN sign({n}) * sign({d}) ELSE 0 END"
    unit = f"CAST('{'0.' + '0' * (scale - 1)}1' AS DECIMAL({precision + scale}, {scale}))"
    return f"CAST(CAST(({n} // {d}) + {up} AS DECIMAL({precision + scale}, 0)) * {unit} AS {duckdb_type(kind)})"


def _unscaled(value: Value) -> str:
    precision, scale = value.decimal
    if not scale:
        return f"CAST({value.sql} AS HUGEINT)"
    digits = precision + scale + 1
    wide, factor = f"CAST({value.sql} AS DECIMAL({digits}, {scale}))", f"CAST({10**scale} AS DECIMAL({digits}, 0))"
    return f"CAST({wide} * {factor} AS HUGEINT)"
