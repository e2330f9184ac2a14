"""Functions of dates and times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from freshet.pipeline.expressions.arithmetic import (
    OUT_OF_RANGE,
    shifted_date,
)
from freshet.pipeline.expressions.casts import cast
from freshet.pipeline.expressions.grammar import NotOursError
from freshet.pipeline.expressions.signatures import TEXT, Function, literal, plain, want
from freshet.pipeline.expressions.values import (
    BIGINT,
    DATE,
    INT,
    SMALLINT,
    STRING,
    TIMES,
    TIMESTAMP,
    TINYINT,
    WHOLE,
    Value,
    quoted,
)

_FORMATS: Final = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_UNITS: Final = {
    "YEAR": "year", "YYYY": "year", "YY": "year", "QUARTER": "quarter", "MONTH": "month", "MM": "month",
    "MON": "month", "WEEK": "week", "DAY": "day", "DD": "day", "HOUR": "hour", "MINUTE": "minute", "SECOND": "second",
}  # fmt: skip
_CLOCK: Final = frozenset({"day", "hour", "minute", "second"})


def _part(template: str) -> Function:
    def function(arguments: Sequence[Value]) -> Value:
        want(arguments, (DATE, *TIMES))
        return Value(f"CAST({template.format(arguments[0].sql)} AS INTEGER)", INT).over(*arguments)

    return function


def _time_part(name: str) -> Function:
    def function(arguments: Sequence[Value]) -> Value:
        want(arguments, TIMES)
        return Value(f"CAST({name}({arguments[0].sql}) AS INTEGER)", INT).over(*arguments)

    return function


def _days_between(arguments: Sequence[Value]) -> Value:
    if len(arguments) != 2:
        raise NotOursError(f"datediff of {len(arguments)} arguments")
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


TIME_FUNCTIONS: Final[dict[str, Function]] = {
    "year": _part("year({0})"),
    "quarter": _part("quarter({0})"),
    "month": _part("month({0})"),
    "day": _part("day({0})"),
    "dayofmonth": _part("day({0})"),
    "dayofyear": _part("dayofyear({0})"),
    "dayofweek": _part("dayofweek({0}) + 1"),
    "weekday": _part("isodow({0}) - 1"),
    "weekofyear": _part("weekofyear({0})"),
    "hour": _time_part("hour"),
    "minute": _time_part("minute"),
    "second": _time_part("second"),
    "datediff": _days_between,
    "date_diff": _days_between,
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
