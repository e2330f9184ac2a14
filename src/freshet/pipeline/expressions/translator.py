"""Expressions of Spark SQL as SQL of DuckDB's that computes the same, by the types of what they read.

A node is taken only where this module, `casts`, `arithmetic` or `functions` has it: the test of equality asks Spark
itself about all of them. Times are in UTC, names case-sensitive, ANSI mode is on, whatever a session says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, Final

from sqlglot import exp

from freshet.pipeline.expressions import arithmetic
from freshet.pipeline.expressions.casts import cast
from freshet.pipeline.expressions.functions import CAST_FUNCTIONS, FUNCTIONS
from freshet.pipeline.expressions.grammar import NotOursError, column_name
from freshet.pipeline.expressions.values import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    DOUBTFUL,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    WHOLE,
    Value,
    both,
    commonly,
    decimal_type,
    either,
    quoted,
    spark_name,
)
from freshet.storage.model.data_type import ScalarType

_COMPARISONS: Final = {
    exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM", exp.NullSafeNEQ: "IS DISTINCT FROM",
}  # fmt: skip
_ARITHMETIC: Final = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "div"}
_BITS: Final = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|"}
_TYPES: Final = {
    "BOOLEAN": BOOLEAN, "TINYINT": TINYINT, "SMALLINT": SMALLINT, "INT": INT, "BIGINT": BIGINT, "FLOAT": FLOAT,
    "DOUBLE": DOUBLE, "TEXT": STRING, "BINARY": BINARY, "DATE": DATE, "TIMESTAMPTZ": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP_NTZ,
}  # fmt: skip
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NO_COMPARISON: Final = (BINARY,)


class Translator:
    """The translator of expressions over some columns: SQL text and type of each, by its name."""

    def __init__(self, columns: Mapping[tuple[str, ...], Value]) -> None:
        self._columns = columns

    def value(self, node: exp.Expr) -> Value:
        """The translation of a tree. Raises `NotOursError` naming the part that only Spark computes."""
        kind = type(node)
        if kind in _COMPARISONS:
            return self._compared(_COMPARISONS[kind], *self._values(node.this, node.expression))
        if kind in _ARITHMETIC:
            return arithmetic.computed(_ARITHMETIC[kind], *self._values(node.this, node.expression))
        if kind in _BITS:
            return self._bits(_BITS[kind], *self._values(node.this, node.expression))
        taken = _NODES.get(kind)
        if taken is None:
            raise NotOursError(node.sql("spark"))
        return taken(self, node)

    def _values(self, *nodes: exp.Expr) -> list[Value]:
        return [self.value(node) for node in nodes]

    # --- leaves -------------------------------------------------------------------------------------------------------

    def _column(self, node: exp.Expr) -> Value:
        name = column_name(node)
        if name not in self._columns:
            raise NotOursError(node.sql("spark"))
        return self._columns[name]

    def _literal(self, node: exp.Expr) -> Value:
        text = str(node.this)
        if node.is_string:
            return Value(quoted(text), STRING, constant=text)
        return _number(text)

    def _boolean(self, node: exp.Expr) -> Value:
        return Value("true" if node.this else "false", BOOLEAN)

    def _null(self, node: exp.Expr) -> Value:
        return Value("NULL", None)

    def _negated(self, node: exp.Expr) -> Value:
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return _number(f"-{inner.this}")
        if isinstance(inner, exp.Cast) and isinstance(inner.this, exp.Literal) and not inner.this.is_string:
            raise NotOursError(node.sql("spark"))  # -5::TINYINT, of which the sign may belong to the number
        return arithmetic.negated(self.value(inner))

    # --- conditions ---------------------------------------------------------------------------------------------------

    def _compared(self, operator: str, left: Value, right: Value) -> Value:
        (a, b), kind = commonly([left, right])
        if kind in _NO_COMPARISON:
            raise NotOursError(f"{operator} of {spark_name(kind)}")
        return Value(f"(({a.sql}) {operator} ({b.sql}))", BOOLEAN).over(
            left, right, is_lazy=not operator.startswith("IS")
        )

    def _not(self, node: exp.Expr) -> Value:
        (value,) = self._conditions(node.this)
        return Value(f"(NOT ({value.sql}))", BOOLEAN).over(value)

    def _joined(self, node: exp.Expr) -> Value:
        left, right = self._conditions(node.this, node.expression)
        is_and = isinstance(node, exp.And)
        word, decided = ("AND", "FALSE") if is_and else ("OR", "TRUE")
        fails = either(left.fails, both(f"(({left.sql}) IS DISTINCT FROM {decided})", right.fails))
        found = Value(f"(({left.sql}) {word} ({right.sql}))", BOOLEAN)
        return replace(found, fails=fails if right.fails else left.fails, causes=_causes(left, right))

    def _conditions(self, *nodes: exp.Expr, or_null: bool = True) -> list[Value]:
        values = self._values(*nodes)
        for each in values:
            if each.type != BOOLEAN and not (or_null and each.type is None):
                raise NotOursError(f"{spark_name(each.type)} as a condition")
        return values

    def _is(self, node: exp.Expr) -> Value:
        what = node.expression
        if isinstance(what, exp.Null):
            value = self.value(node.this)
            return Value(f"(({value.sql}) IS NULL)", BOOLEAN).over(value)
        if isinstance(what, exp.Boolean):
            (value,) = self._conditions(node.this)
            word = "TRUE" if what.this else "FALSE"
            return Value(f"(({value.sql}) IS NOT DISTINCT FROM {word})", BOOLEAN).over(value)
        raise NotOursError(node.sql("spark"))

    def _in(self, node: exp.Expr) -> Value:
        if not node.expressions or set(node.args) - {"this", "expressions"}:
            raise NotOursError(node.sql("spark"))
        given = self._values(node.this, *node.expressions)
        values, kind = commonly(given)
        if kind in _NO_COMPARISON or any(each.fails for each in given[1:]):
            raise NotOursError(node.sql("spark"))
        listed = ", ".join(each.sql for each in values[1:])
        return Value(f"(({values[0].sql}) IN ({listed}))", BOOLEAN).over(given[0])

    def _between(self, node: exp.Expr) -> Value:
        if node.args.get("symmetric"):
            raise NotOursError(node.sql("spark"))
        value, low, high = self._values(node.this, node.args["low"], node.args["high"])
        if low.fails or high.fails:
            raise NotOursError(node.sql("spark"))
        above, below = self._compared(">=", value, low), self._compared("<=", value, high)
        return Value(f"({above.sql} AND {below.sql})", BOOLEAN).over(value)

    def _like(self, node: exp.Expr) -> Value:
        value, pattern = self._values(node.this, node.expression)
        if value.type != STRING or pattern.constant is None or pattern.type != STRING:
            raise NotOursError(node.sql("spark"))
        word = "NOT LIKE" if node.args.get("negate") else "LIKE"
        return Value(f"(({value.sql}) {word} {pattern.sql})", BOOLEAN).over(value)

    # --- branches -----------------------------------------------------------------------------------------------------

    def _case(self, node: exp.Expr) -> Value:
        subject = node.args.get("this")
        tests = []
        for branch in node.args["ifs"]:
            if subject is None:
                tests += self._conditions(branch.this, or_null=False)
            else:
                tests.append(self._compared("=", *self._values(subject, branch.this)))
        default = node.args.get("default")
        outcomes = self._values(*(branch.args["true"] for branch in node.args["ifs"]))
        return chosen(tests, [*outcomes, Value("NULL", None) if default is None else self.value(default)])

    def _if(self, node: exp.Expr) -> Value:
        otherwise = node.args.get("false")
        if otherwise is None:
            raise NotOursError(node.sql("spark"))
        return chosen(self._conditions(node.this, or_null=False), self._values(node.args["true"], otherwise))

    # --- casts, functions, others -------------------------------------------------------------------------------------

    def _cast(self, node: exp.Expr) -> Value:
        if any(given for name, given in node.args.items() if name not in ("this", "to", "safe", "_type")):
            raise NotOursError(node.sql("spark"))
        value, kind = self.value(node.this), _type_of(node.args["to"])
        if kind == DATE and isinstance(value.constant, str) and _DATE.fullmatch(value.constant):
            return Value(f"DATE {quoted(_checked_date(value.constant))}", DATE)
        found = cast(value, kind, is_tried=isinstance(node, exp.TryCast))
        is_doubtful = kind in WHOLE and isinstance(node.this, exp.Literal) and not node.this.is_string
        return replace(found, constant=DOUBTFUL) if is_doubtful else found

    def _function(self, node: exp.Expr) -> Value:
        name = str(node.this).lower()
        arguments = self._values(*node.expressions)
        if name in CAST_FUNCTIONS and len(arguments) == 1:
            return cast(arguments[0], CAST_FUNCTIONS[name])
        if name not in FUNCTIONS:
            raise NotOursError(f"{name}()")
        return FUNCTIONS[name](arguments)

    def _joined_texts(self, node: exp.Expr) -> Value:
        return FUNCTIONS["concat"](self._values(node.this, node.expression))

    def _bits(self, operator: str, left: Value, right: Value) -> Value:
        (a, b), kind = commonly([left, right])
        if kind not in WHOLE:
            raise NotOursError(f"{operator} of {spark_name(kind)}")
        return Value(f"(({a.sql}) {operator} ({b.sql}))", kind).over(left, right)

    def _parenthesised(self, node: exp.Expr) -> Value:
        found = self.value(node.this)
        return replace(found, sql=f"({found.sql})")


def chosen(tests: Sequence[Value], outcomes: Sequence[Value]) -> Value:
    """CASE: the outcome of the first test that is true, else the last outcome."""
    values, kind = commonly(outcomes)
    parts = [f"WHEN {test.sql} THEN {value.sql}" for test, value in zip(tests, values, strict=False)]
    sql = f"(CASE {' '.join(parts)} ELSE {values[-1].sql} END)"
    fails = outcomes[-1].fails
    for test, outcome in reversed(list(zip(tests, outcomes, strict=False))):
        if outcome.fails or fails:
            fails = f"(CASE WHEN {test.sql} THEN {outcome.fails or 'FALSE'} ELSE {fails or 'FALSE'} END)"
        fails = either(test.fails, fails)
    return Value(sql, kind, fails, _causes(*tests, *outcomes))


def _causes(*values: Value) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cause for each in values for cause in each.causes))


def _number(text: str) -> Value:
    digits = text.removeprefix("-")
    if digits.isdecimal():
        number = int(text)
        for kind, bits in ((INT, 31), (BIGINT, 63)):
            if -(2**bits) <= number < 2**bits:
                sql = text if digits == text else f"({text})"
                name = "INTEGER" if kind == INT else "BIGINT"
                return Value(f"CAST({sql} AS {name})", kind, constant=number)
        raise NotOursError(text)
    if "e" in digits.lower():
        return Value(f"CAST('{text}' AS DOUBLE)", DOUBLE)
    whole, _, fraction = digits.partition(".")
    if not (whole + fraction).isdecimal():
        raise NotOursError(text)
    scale = len(fraction)
    precision = max(len((whole + fraction).lstrip("0")), scale)
    kind = decimal_type(max(precision, 1), scale)
    return Value(f"CAST('{text}' AS DECIMAL({kind.precision}, {kind.scale}))", kind)


def _checked_date(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise NotOursError(f"DATE '{text}'") from error


def _type_of(node: exp.Expr) -> ScalarType:
    name = node.this.value if hasattr(node.this, "value") else str(node.this)
    if name == "DECIMAL":
        numbers = [int(str(each.this.this)) for each in node.expressions] or [10, 0]
        return decimal_type(numbers[0], numbers[1] if len(numbers) > 1 else 0)
    if name not in _TYPES or node.expressions:
        raise NotOursError(node.sql("spark"))
    return _TYPES[name]


_NODES: Final[dict[type[exp.Expr], Callable[[Translator, Any], Value]]] = {
    exp.Column: Translator._column,
    exp.Bracket: Translator._column,
    exp.Literal: Translator._literal,
    exp.Boolean: Translator._boolean,
    exp.Null: Translator._null,
    exp.Neg: Translator._negated,
    exp.Not: Translator._not,
    exp.And: Translator._joined,
    exp.Or: Translator._joined,
    exp.Is: Translator._is,
    exp.In: Translator._in,
    exp.Between: Translator._between,
    exp.Like: Translator._like,
    exp.Case: Translator._case,
    exp.If: Translator._if,
    exp.Cast: Translator._cast,
    exp.TryCast: Translator._cast,
    exp.Anonymous: Translator._function,
    exp.DPipe: Translator._joined_texts,
    exp.Paren: Translator._parenthesised,
}
