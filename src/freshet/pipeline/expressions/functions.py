"""The functions of Spark's that DuckDB computes, by name: each takes translated arguments and gives the translation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from freshet.pipeline.expressions.arithmetic import OUT_OF_RANGE, absolute, computed, of_remainder, shifted_date
from freshet.pipeline.expressions.casts import cast
from freshet.pipeline.expressions.grammar import NotOursError
from freshet.pipeline.expressions.text_functions import TEXT, TEXT_FUNCTIONS, Function, literal, plain, want
from freshet.pipeline.expressions.values import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    FLOATS,
    INT,
    SMALLINT,
    STRING,
    TIMES,
    TIMESTAMP,
    TINYINT,
    WHOLE,
    Value,
    both,
    commonly,
    decimal_type,
    duckdb_type,
    either,
    is_decimal,
    is_number,
    quoted,
    spark_name,
)
from freshet.storage.model.data_type import ScalarType

_FORMATS: Final = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_UNITS: Final = {
    "YEAR": "year", "YYYY": "year", "YY": "year", "QUARTER": "quarter", "MONTH": "month", "MM": "month",
    "MON": "month", "WEEK": "week", "DAY": "day", "DD": "day", "HOUR": "hour", "MINUTE": "minute", "SECOND": "second",
}  # fmt: skip
_CLOCK: Final = frozenset({"day", "hour", "minute", "second"})


def _counted(name: str, count: int, function: Callable[..., Value]) -> Function:
    """A function of so many arguments, of whatever types."""

    def counted(arguments: Sequence[Value]) -> Value:
        if len(arguments) != count:
            raise NotOursError(f"{name} of {len(arguments)} arguments")
        return function(*arguments)

    return counted


def _part(template: str, kinds: Sequence[ScalarType] = (DATE, *TIMES)) -> Function:
    return plain(f"CAST({template} AS INTEGER)", INT, kinds)


def _days_between(*arguments: Value) -> Value:
    want(arguments, (DATE, *TIMES), (DATE, *TIMES))
    end, start = (cast(each, DATE) for each in arguments)
    return Value(f"CAST(date_diff('day', {start.sql}, {end.sql}) AS INTEGER)", INT).over(*arguments)


def _shifted(operator: str) -> Function:
    def function(arguments: Sequence[Value]) -> Value:
        want(arguments, (DATE, *TIMES), (INT, SMALLINT, TINYINT))
        return shifted_date(operator, cast(arguments[0], DATE), arguments[1])

    return function


def _add_months(arguments: Sequence[Value]) -> Value:
    want(arguments, (DATE, *TIMES), (INT,))
    date, months = cast(arguments[0], DATE), arguments[1]
    if not isinstance(months.constant, int) or abs(months.constant) > 12_000:
        raise NotOursError("add_months of other months than a constant")
    return Value(f"CAST({date.sql} + to_months({months.constant}) AS DATE)", DATE).over(date)


def _last_day(arguments: Sequence[Value]) -> Value:
    want(arguments, (DATE, *TIMES))
    return Value(f"last_day({cast(arguments[0], DATE).sql})", DATE).over(*arguments)


def _to_date(arguments: Sequence[Value]) -> Value:
    want(arguments, (STRING, DATE, *TIMES))
    return cast(arguments[0], DATE)


def _truncated_date(arguments: Sequence[Value]) -> Value:
    want(arguments, (DATE, *TIMES), TEXT)
    unit = _UNITS.get(str(literal(arguments[1], str)).upper())
    if unit is None or unit in _CLOCK:
        raise NotOursError("trunc to such a unit")
    return Value(f"CAST(date_trunc('{unit}', {cast(arguments[0], DATE).sql}) AS DATE)", DATE).over(arguments[0])


def _truncated_time(arguments: Sequence[Value]) -> Value:
    want(arguments, TEXT, (DATE, *TIMES))
    unit = _UNITS.get(str(literal(arguments[0], str)).upper())
    if unit is None:
        raise NotOursError("date_trunc to such a unit")
    return Value(f"CAST(date_trunc('{unit}', {arguments[1].sql}) AS TIMESTAMP)", TIMESTAMP).over(arguments[1])


def _formatted(arguments: Sequence[Value]) -> Value:
    want(arguments, (DATE, *TIMES), TEXT)
    wanted = str(literal(arguments[1], str))
    pattern, rest = "", wanted
    while rest:
        run = rest[: len(rest) - len(rest.lstrip(rest[0]))]
        if (rest[0].isalpha() and run not in _FORMATS) or rest[0] in "'[]{}#%":
            raise NotOursError(f"date_format with {wanted}")
        pattern += _FORMATS.get(run, run)
        rest = rest[len(run) :]
    found = f"strftime({arguments[0].sql}, {quoted(pattern)})"
    if "yyyy" in wanted:
        found = f"CASE WHEN year({arguments[0].sql}) > 9999 THEN '+' || {found} ELSE {found} END"
    return Value(found, STRING).over(arguments[0])


def _time_of(factor: int) -> Function:
    def function(arguments: Sequence[Value]) -> Value:
        want(arguments, WHOLE)
        micros = f"TRY_CAST(CAST({arguments[0].sql} AS HUGEINT) * {factor} AS BIGINT)"
        sql = f"make_timestamp({micros})"
        found = Value(sql, TIMESTAMP).over(*arguments)
        if factor == 1:
            return found
        return found.failing(f"(({arguments[0].sql}) IS NOT NULL AND {micros} IS NULL)", OUT_OF_RANGE)

    return function


def _unix(divisor: int) -> Function:
    def function(arguments: Sequence[Value]) -> Value:
        want(arguments, (TIMESTAMP,))
        micros = f"epoch_us({arguments[0].sql})"
        rest = f"((({micros} % {divisor}) + {divisor}) % {divisor})"
        return Value(f"CAST(({micros} - {rest}) // {divisor} AS BIGINT)", BIGINT).over(*arguments)

    return function


_TIME_FUNCTIONS: Final[dict[str, Function]] = {
    "year": _part("year({0})"),
    "quarter": _part("quarter({0})"),
    "month": _part("month({0})"),
    "day": _part("day({0})"),
    "dayofmonth": _part("day({0})"),
    "dayofyear": _part("dayofyear({0})"),
    "dayofweek": _part("dayofweek({0}) + 1"),
    "weekday": _part("isodow({0}) - 1"),
    "weekofyear": _part("weekofyear({0})"),
    "hour": _part("hour({0})", TIMES),
    "minute": _part("minute({0})", TIMES),
    "second": _part("second({0})", TIMES),
    "datediff": _counted("datediff", 2, _days_between),
    "date_diff": _counted("date_diff", 2, _days_between),
    "date_add": _shifted("+"),
    "dateadd": _shifted("+"),
    "date_sub": _shifted("-"),
    "add_months": _add_months,
    "last_day": _last_day,
    "to_date": _to_date,
    "trunc": _truncated_date,
    "date_trunc": _truncated_time,
    "date_format": _formatted,
    "unix_date": plain("CAST({0} - DATE '1970-01-01' AS INTEGER)", INT, (DATE,)),
    "date_from_unix_date": plain("(DATE '1970-01-01' + {0})", DATE, (INT, SMALLINT, TINYINT)),
    "timestamp_seconds": _time_of(1_000_000),
    "timestamp_millis": _time_of(1000),
    "timestamp_micros": _time_of(1),
    "unix_seconds": _unix(1_000_000),
    "unix_millis": _unix(1000),
    "unix_micros": _unix(1),
}

CAST_FUNCTIONS: Final = {
    "boolean": BOOLEAN, "tinyint": TINYINT, "smallint": SMALLINT, "int": INT, "bigint": BIGINT, "float": FLOAT,
    "double": DOUBLE, "date": DATE, "timestamp": TIMESTAMP, "binary": BINARY, "string": STRING,
    "decimal": decimal_type(10, 0),
}  # fmt: skip


# --- NULL and choices -------------------------------------------------------------------------------------------------


def _coalesce(arguments: Sequence[Value]) -> Value:
    if not arguments:
        raise NotOursError("coalesce of nothing")
    values, kind = commonly(arguments)
    fails, before = "", ""
    for each in arguments:
        if each.fails:
            fails = either(fails, both(before, each.fails))
        before = both(before, f"({each.sql}) IS NULL")
    causes = tuple(dict.fromkeys(cause for each in arguments for cause in each.causes))
    return Value(f"coalesce({', '.join(each.sql for each in values)})", kind, fails, causes)


def _nvl(value: Value, other: Value) -> Value:
    return _coalesce((value, other))


def _nvl2(value: Value, *choices: Value) -> Value:
    if any(each.fails for each in choices):
        raise NotOursError("nvl2 of values that may fail")
    (one, other), kind = commonly(choices)
    sql = f"(CASE WHEN ({value.sql}) IS NOT NULL THEN {one.sql} ELSE {other.sql} END)"
    return Value(sql, kind).over(value)


def _nullif(value: Value, null: Value) -> Value:
    (one, other), kind = commonly((value, null))
    if kind == BINARY or value.type is None:
        raise NotOursError("nullif of such values")
    sql = f"(CASE WHEN ({one.sql}) = ({other.sql}) THEN NULL ELSE {value.sql} END)"
    return Value(sql, value.type).over(value, null)


def _is_null(value: Value) -> Value:
    return Value(f"(({value.sql}) IS NULL)", BOOLEAN).over(value)


def _is_not_null(value: Value) -> Value:
    return Value(f"(({value.sql}) IS NOT NULL)", BOOLEAN).over(value)


def _extreme(name: str) -> Function:
    def function(arguments: Sequence[Value]) -> Value:
        if len(arguments) < 2:
            raise NotOursError(f"{name} of {len(arguments)} arguments")
        values, kind = commonly(arguments)
        if kind in (BINARY, BOOLEAN, None) or kind in FLOATS:
            raise NotOursError(f"{name} of {spark_name(kind)}")
        return Value(f"{name}({', '.join(each.sql for each in values)})", kind).over(*arguments, is_lazy=False)

    return function


# --- numbers ----------------------------------------------------------------------------------------------------------


def _of_number(name: str, function: Callable[[Value], Value]) -> Function:
    def of_number(value: Value) -> Value:
        if not is_number(value.type):
            raise NotOursError(f"{name} of {spark_name(value.type)}")
        return function(value)

    return _counted(name, 1, of_number)


def _root(value: Value) -> Value:
    return Value(f"sqrt({cast(value, DOUBLE).sql})", DOUBLE).over(value)


def _rounded(arguments: Sequence[Value]) -> Value:
    digits = int(literal(arguments[1], int)) if len(arguments) == 2 else 0
    if len(arguments) not in (1, 2) or not 0 <= digits <= 38:
        raise NotOursError("round with such arguments")
    value = arguments[0]
    if value.type in WHOLE:
        return replace(value, constant=None)
    if not is_decimal(value.type):
        raise NotOursError(f"round of {spark_name(value.type)}")
    precision, scale = value.decimal
    if digits >= scale:
        kind = decimal_type(precision - scale + scale + 1, scale)
        return Value(f"CAST({value.sql} AS {duckdb_type(kind)})", kind).over(value)
    kind = decimal_type(precision - scale + digits + 1, digits)
    return Value(f"CAST({value.sql} AS {duckdb_type(kind)})", kind).over(value)


def _up_or_down(name: str) -> Function:
    def function(value: Value) -> Value:
        if value.type in WHOLE:
            return cast(value, BIGINT)
        if not is_decimal(value.type):
            raise NotOursError(f"{name} of {spark_name(value.type)}")
        precision, scale = value.decimal
        kind = decimal_type(precision - scale + 1, 0) if scale else value.type
        assert kind is not None
        return Value(f"CAST({name}({value.sql}) AS {duckdb_type(kind)})", kind).over(value)

    return _counted(name, 1, function)


def _tried(operator: str) -> Function:
    def function(*arguments: Value) -> Value:
        if any(each.fails for each in arguments):
            raise NotOursError("try_… of values that may fail")
        if not all(is_number(each.type) for each in arguments):
            raise NotOursError("try_… of other values than numbers")
        return replace(computed(operator, *arguments), fails="", causes=())

    return _counted("try_…", 2, function)


FUNCTIONS: Final[dict[str, Function]] = {
    **TEXT_FUNCTIONS,
    **_TIME_FUNCTIONS,
    "coalesce": _coalesce,
    "nvl": _counted("nvl", 2, _nvl),
    "ifnull": _counted("ifnull", 2, _nvl),
    "nvl2": _counted("nvl2", 3, _nvl2),
    "nullif": _counted("nullif", 2, _nullif),
    "isnull": _counted("isnull", 1, _is_null),
    "isnotnull": _counted("isnotnull", 1, _is_not_null),
    "greatest": _extreme("greatest"),
    "least": _extreme("least"),
    "abs": _of_number("abs", absolute),
    "sqrt": _of_number("sqrt", _root),
    "isnan": plain("coalesce(isnan({0}), false)", BOOLEAN, FLOATS),
    "round": _rounded,
    "ceil": _up_or_down("ceil"),
    "ceiling": _up_or_down("ceil"),
    "floor": _up_or_down("floor"),
    "mod": _counted("mod", 2, partial(computed, "%")),
    "pmod": _counted("pmod", 2, of_remainder),
    "try_add": _tried("+"),
    "try_subtract": _tried("-"),
    "try_multiply": _tried("*"),
    "try_divide": _tried("/"),
    "try_mod": _tried("%"),
}
"""By name; `CAST_FUNCTIONS` has those that are casts."""
