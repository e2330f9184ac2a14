"""The functions of Spark's that DuckDB computes, by name: each takes translated arguments and gives the translation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from freshet.pipeline.expressions.arithmetic import (
    absolute,
    computed,
    of_remainder,
)
from freshet.pipeline.expressions.casts import cast
from freshet.pipeline.expressions.grammar import NotOursError
from freshet.pipeline.expressions.signatures import Function, literal, plain
from freshet.pipeline.expressions.text_functions import TEXT_FUNCTIONS
from freshet.pipeline.expressions.time_functions import TIME_FUNCTIONS
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
    spark_name,
)

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


def _nvl(arguments: Sequence[Value]) -> Value:
    if len(arguments) != 2:
        raise NotOursError(f"nvl of {len(arguments)} arguments")
    return _coalesce(arguments)


def _nvl2(arguments: Sequence[Value]) -> Value:
    if len(arguments) != 3:
        raise NotOursError(f"nvl2 of {len(arguments)} arguments")
    if arguments[1].fails or arguments[2].fails:
        raise NotOursError("nvl2 of values that may fail")
    (one, other), kind = commonly(arguments[1:])
    sql = f"(CASE WHEN ({arguments[0].sql}) IS NOT NULL THEN {one.sql} ELSE {other.sql} END)"
    return Value(sql, kind).over(arguments[0])


def _nullif(arguments: Sequence[Value]) -> Value:
    if len(arguments) != 2:
        raise NotOursError(f"nullif of {len(arguments)} arguments")
    (one, other), kind = commonly(arguments)
    if kind == BINARY or arguments[0].type is None:
        raise NotOursError("nullif of such values")
    sql = f"(CASE WHEN ({one.sql}) = ({other.sql}) THEN NULL ELSE {arguments[0].sql} END)"
    return Value(sql, arguments[0].type).over(*arguments)


def _is_null(word: str) -> Function:
    def function(arguments: Sequence[Value]) -> Value:
        (value,) = arguments if len(arguments) == 1 else _refused(word)
        return Value(f"(({value.sql}) {word})", BOOLEAN).over(value)

    return function


def _refused(what: str) -> Sequence[Value]:
    raise NotOursError(what)


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


def _one_number(name: str) -> Function:
    def function(arguments: Sequence[Value]) -> Value:
        if len(arguments) != 1 or not is_number(arguments[0].type):
            raise NotOursError(f"{name} of such arguments")
        return _NUMBERS[name](arguments[0])

    return function


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
    def function(arguments: Sequence[Value]) -> Value:
        (value,) = arguments if len(arguments) == 1 else _refused(name)
        if value.type in WHOLE:
            return cast(value, BIGINT)
        if not is_decimal(value.type):
            raise NotOursError(f"{name} of {spark_name(value.type)}")
        precision, scale = value.decimal
        kind = decimal_type(precision - scale + 1, 0) if scale else value.type
        assert kind is not None
        return Value(f"CAST({name}({value.sql}) AS {duckdb_type(kind)})", kind).over(value)

    return function


def _binary_number(operator: str) -> Function:
    def function(arguments: Sequence[Value]) -> Value:
        if len(arguments) != 2:
            raise NotOursError(f"{operator} of {len(arguments)} arguments")
        return computed(operator, *arguments)

    return function


def _tried(operator: str) -> Function:
    def function(arguments: Sequence[Value]) -> Value:
        if len(arguments) != 2 or any(each.fails for each in arguments):
            raise NotOursError("try_… of values that may fail")
        if not all(is_number(each.type) for each in arguments):
            raise NotOursError("try_… of other values than numbers")
        return replace(computed(operator, *arguments), fails="", causes=())

    return function


def _pmod(arguments: Sequence[Value]) -> Value:
    if len(arguments) != 2:
        raise NotOursError(f"pmod of {len(arguments)} arguments")
    return of_remainder(*arguments)


_NUMBERS: Final[dict[str, Callable[[Value], Value]]] = {
    "abs": absolute,
    "sqrt": lambda value: Value(f"sqrt({cast(value, DOUBLE).sql})", DOUBLE).over(value),
}

FUNCTIONS: Final[dict[str, Function]] = {
    **TEXT_FUNCTIONS,
    **TIME_FUNCTIONS,
    "coalesce": _coalesce,
    "nvl": _nvl,
    "ifnull": _nvl,
    "nvl2": _nvl2,
    "nullif": _nullif,
    "isnull": _is_null("IS NULL"),
    "isnotnull": _is_null("IS NOT NULL"),
    "greatest": _extreme("greatest"),
    "least": _extreme("least"),
    "abs": _one_number("abs"),
    "sqrt": _one_number("sqrt"),
    "isnan": plain("coalesce(isnan({0}), false)", BOOLEAN, FLOATS),
    "round": _rounded,
    "ceil": _up_or_down("ceil"),
    "ceiling": _up_or_down("ceil"),
    "floor": _up_or_down("floor"),
    "mod": _binary_number("%"),
    "pmod": _pmod,
    "try_add": _tried("+"),
    "try_subtract": _tried("-"),
    "try_multiply": _tried("*"),
    "try_divide": _tried("/"),
    "try_mod": _tried("%"),
}
"""By name; `CAST_FUNCTIONS` has those that are casts."""
