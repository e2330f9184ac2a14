"""Casts under ANSI rules, as SQL of DuckDB's; a pair of types that is not here is Spark's.

| from | to | rewritten since DuckDB else … |
|---|---|---|
| a fraction | a whole number | rounds; Spark cuts off |
| a text | a number | takes `1_000`, `0x1F`, for a whole number `1.5`; Spark takes `1d` and hexadecimal floating point |
| a text | BOOLEAN, DATE | takes other words and forms |
| a decimal of more than 15 digits | DOUBLE | divides, and rounds twice |
| DATE, TIMESTAMP | a text | writes years before 1 and after 9999 in another way |

Texts of numbers that are rare and hard go to functions of Python (`odd_texts`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from freshet.pipeline.expressions.grammar import NotOursError
from freshet.pipeline.expressions.odd_texts import ODD_DECIMAL, ODD_DOUBLE
from freshet.pipeline.expressions.values import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    FLOATS,
    STRING,
    TIMES,
    TIMESTAMP,
    WHOLE,
    Value,
    double_of_decimal,
    duckdb_type,
    is_decimal,
    is_number,
    spark_name,
)
from freshet.storage.model.data_type import ScalarType

_BLANK: Final = r"[\x00-\x20\x7f]*"
"""What Spark leaves out around numbers, dates and truth values."""
_WHOLE: Final = r"[+-]?[0-9]+"
_DECIMAL: Final = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)"
_LOOSE_DATE: Final = rf"{_BLANK}([+-]?[0-9]{{4,7}})(-([0-9]{{1,2}})(-([0-9]{{1,2}})([ T](?s:.*))?)?)?{_BLANK}"
NO_VALUE: Final = "a value that is no "
"""Begins the cause of a cast that fails."""
_TRUE, _FALSE = "('t', 'true', 'y', 'yes', '1')", "('f', 'false', 'n', 'no', '0')"


def cast(value: Value, kind: ScalarType, *, is_tried: bool = False) -> Value:
    """The value in another type; `is_tried` gives NULL where it does not fit. Raises `NotOursError`."""
    if value.type is None:
        return replace(value, sql=f"CAST(NULL AS {duckdb_type(kind)})", type=kind, constant=None)
    if value.type == kind:
        return value
    text = _sql(value, kind)
    if text is None:
        raise NotOursError(f"a cast of {spark_name(value.type)} to {spark_name(kind)}")
    found = replace(value, sql=text, type=kind, constant=None)
    if is_tried or not _may_fail(value, kind):
        return found
    # Infinities and NaN are NULL as decimals, and no failure.
    is_there = f"isfinite({value.sql})" if is_decimal(kind) and value.type == DOUBLE else f"({value.sql}) IS NOT NULL"
    return found.failing(f"(coalesce({is_there}, false) AND ({text}) IS NULL)", NO_VALUE + spark_name(kind))


def _may_fail(value: Value, kind: ScalarType) -> bool:
    """Whether a value may have no counterpart in the type."""
    if kind in (STRING, BINARY, BOOLEAN) or value.type in (DATE, *TIMES):
        return value.type == STRING and kind == BOOLEAN
    if value.type == BOOLEAN or (kind in FLOATS and value.type != STRING):
        return False
    if value.type in WHOLE and kind in WHOLE:
        return WHOLE.index(kind) < WHOLE.index(value.type)
    if is_decimal(kind) and (is_decimal(value.type) or value.type in WHOLE):
        (precision, scale), wanted = value.decimal, kind.scale or 0
        digits = precision - scale + (1 if scale > wanted else 0)
        return digits > (kind.precision or 0) - wanted
    return True


def _sql(value: Value, kind: ScalarType) -> str | None:
    given = value.type
    if given == STRING:
        return _of_text(value.sql, kind)
    if kind == STRING:
        return _to_text(value)
    if kind == BOOLEAN and is_number(given):
        return f"(({value.sql}) <> 0)"
    if given == BOOLEAN and kind in (*WHOLE, *FLOATS):
        return f"CAST({value.sql} AS {duckdb_type(kind)})"
    if is_number(given):
        return _of_number(value, kind)
    if given == DATE and kind in TIMES:
        return f"CAST({value.sql} AS TIMESTAMP)"
    if given in TIMES and kind in (DATE, *TIMES):
        return f"CAST({value.sql} AS DATE)" if kind == DATE else value.sql
    if given == TIMESTAMP and kind == BIGINT:
        return f"((epoch_us({value.sql}) - (((epoch_us({value.sql}) % 1000000) + 1000000) % 1000000)) // 1000000)"
    return None


def _of_number(value: Value, kind: ScalarType) -> str | None:
    given, text, name = value.type, value.sql, duckdb_type(kind)
    if kind in WHOLE:
        if given in WHOLE:
            return f"TRY_CAST({text} AS {name})"
        whole = f"TRY_CAST(trunc({text}) AS {name})"
        if given in FLOATS and kind == BIGINT:
            # What is just too large for a BIGINT becomes the largest, as in Java.
            return f"CASE WHEN ({text}) = 9223372036854775808 THEN 9223372036854775807 ELSE {whole} END"
        return whole
    if kind in FLOATS:
        if is_decimal(given):
            return double_of_decimal(value) if kind == DOUBLE else None
        if given == DOUBLE:
            return None  # beyond FLOAT it is infinite to Spark, an error to DuckDB
        return f"CAST({text} AS {name})"
    if is_decimal(kind) and given == DOUBLE:
        return _of_text(f"CAST({text} AS VARCHAR)", kind)  # the digits that Java writes, too
    return f"TRY_CAST({text} AS {name})" if is_decimal(kind) and given != FLOAT else None


def _of_text(text: str, kind: ScalarType) -> str | None:
    name = duckdb_type(kind)
    if kind in WHOLE:
        return (
            f"CASE WHEN {_is_as_written(text, 'BIGINT')} THEN TRY_CAST({text} AS {name}) "
            f"WHEN regexp_full_match({text}, '{_BLANK}{_WHOLE}{_BLANK}') "
            f"THEN TRY_CAST(regexp_extract({text}, '{_WHOLE}') AS {name}) END"
        )
    if kind == DOUBLE:
        return (
            f"CASE WHEN regexp_full_match({text}, '{_DECIMAL}([eE][+-]?[0-9]+)?') "
            f"THEN TRY_CAST({text} AS DOUBLE) ELSE TRY_CAST({ODD_DOUBLE}({text}) AS DOUBLE) END"
        )
    if is_decimal(kind):
        return (
            f"CASE WHEN {_is_as_written(text, name)} THEN TRY_CAST({text} AS {name}) ELSE TRY_CAST(CASE WHEN "
            f"regexp_full_match({text}, '{_DECIMAL}') AND length({text}) < 30 THEN {text} "
            f"ELSE {ODD_DECIMAL}({text}, {kind.scale}) END AS {name}) END"
        )
    if kind == BOOLEAN:
        word = f"lower(regexp_extract({text}, '^{_BLANK}([A-Za-z01]+){_BLANK}$', 1))"
        return f"CASE WHEN {word} IN {_TRUE} THEN true WHEN {word} IN {_FALSE} THEN false END"
    if kind == DATE:
        part = [f"regexp_extract({text}, '{_LOOSE_DATE}', {group})" for group in (1, 3, 5)]
        year, month, day = (f"TRY_CAST(CASE {each} WHEN '' THEN '1' ELSE {each} END AS BIGINT)" for each in part)
        return (
            f"CASE WHEN length({text}) = 10 AND {_is_as_written(text, name)} THEN TRY_CAST({text} AS DATE) "
            f"WHEN regexp_full_match({text}, '{_LOOSE_DATE}') THEN TRY(make_date({year}, {month}, {day})) END"
        )
    return f"encode({text})" if kind == BINARY else None


def _is_as_written(text: str, name: str) -> str:
    """True for a text that is what a value of the type looks like, which is fast to find out."""
    return f"CAST(TRY_CAST({text} AS {name}) AS VARCHAR) = {text}"


def _to_text(value: Value) -> str | None:
    text, given = value.sql, value.type
    if given in WHOLE or given == BOOLEAN:
        return f"CAST({text} AS VARCHAR)"
    if is_decimal(given):
        plain = f"CAST({text} AS VARCHAR)"
        if given is not None and given.precision == given.scale:  # .5
            return f"replace(replace('-' || {plain}, '--.', '-0.'), '-.', '0.')"
        return plain
    if given == DATE or given in TIMES:
        return _in_years(text, f"CAST({text} AS VARCHAR)")
    return None


def _in_years(text: str, plain: str) -> str:
    """The text of a time whose year may not have four digits."""
    year = f"year({text})"
    sign = f"CASE WHEN {year} > 9999 THEN '+' WHEN {year} < 0 THEN '-' ELSE '' END"
    digits = f"CAST(abs({year}) AS VARCHAR)"
    padded = f"lpad({digits}, CAST(greatest(4, length({digits})) AS INTEGER), '0')"
    rest = f"replace(regexp_extract({plain}, '-[0-9]{{2}}-[0-9]{{2}}.*'), ' (BC)', '')"
    return f"CASE WHEN {year} BETWEEN 1 AND 9999 THEN {plain} ELSE {sign} || {padded} || {rest} END"
