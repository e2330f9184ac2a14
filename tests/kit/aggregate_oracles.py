"""Aggregate functions as the format defines them, one value at a time: the fold of the oracles.

A function is created for each merge of a key; `agg(acc, x)`, `agg_reversed(acc, x)` and `retract(acc, x)` answer
with the next accumulator. Values are what `pa.Array.to_pylist()` gives: maps are lists of pairs,
rows are dicts; NULL is None. Nothing here is taken from the code under test.

Source: MERGING.md §2.6.1.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from tests.kit.oracle import exact_key, key_rank, sequence_rank

_WIDE = decimal.Context(prec=1000, rounding=decimal.ROUND_HALF_UP, traps=[decimal.DivisionByZero])
_EXACT = decimal.Context(prec=1000, traps=[decimal.Inexact, decimal.DivisionByZero, decimal.InvalidOperation])
_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
# Character.isWhitespace: separators but the three that do not break, and the old control characters.
BLANKS = frozenset("\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \u1680\u2028\u2029\u205f\u3000") | {
    chr(code) for code in range(0x2000, 0x200B) if code != 0x2007
}


class CannotMerge(Exception):
    """A record that the table's functions cannot take."""


class Function:
    """One function of one column, in one merge."""

    def __init__(self, type_text: str, options: Mapping[str, str]) -> None:
        self.type_text = type_text.removesuffix(" NOT NULL")
        self.options = options

    def agg(self, acc: Any, x: Any) -> Any:
        raise NotImplementedError

    def agg_reversed(self, acc: Any, x: Any) -> Any:
        return self.agg(x, acc)

    def retract(self, acc: Any, x: Any) -> Any:
        raise CannotMerge(f"{type(self).__name__} takes no retract")


class IgnoreRetract(Function):
    """Any function under `ignore-retract`."""

    def __init__(self, inner: Function) -> None:
        super().__init__(inner.type_text, inner.options)
        self.inner = inner

    def agg(self, acc: Any, x: Any) -> Any:
        return self.inner.agg(acc, x)

    def retract(self, acc: Any, x: Any) -> Any:
        return acc


class _NullAbsorbing(Function):
    """If one side is NULL the other is the result."""

    def agg(self, acc: Any, x: Any) -> Any:
        if acc is None or x is None:
            return x if acc is None else acc
        return self.both(acc, x)

    def both(self, acc: Any, x: Any) -> Any:
        raise NotImplementedError


# ---------------------------------------------------------------------------------------------- numbers


class _Numeric(_NullAbsorbing):
    def fit(self, value: int) -> int:
        bits = _INTEGER_BITS[self.type_text]
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise CannotMerge(f"{value} overflows {self.type_text}")
        return value

    def fit_decimal(self, value: Decimal) -> Decimal | None:
        """Rounded half up to the scale; NULL if it has more digits than the precision."""
        precision, scale = _decimal(self.type_text)
        rounded = value.quantize(Decimal(1).scaleb(-scale, _WIDE), context=_WIDE)
        return rounded if len(rounded.as_tuple().digits) <= precision else None

    def floats(self, operation: Callable[[Any, Any], Any], acc: float, x: float) -> float:
        width = np.float32 if self.type_text == "FLOAT" else np.float64
        with np.errstate(all="ignore"):
            return float(operation(width(acc), width(x)))


class Sum(_Numeric):
    def both(self, acc: Any, x: Any) -> Any:
        if self.type_text in _INTEGER_BITS:
            return self.fit(acc + x)
        if self.type_text in ("FLOAT", "DOUBLE"):
            return self.floats(np.add, acc, x)
        return self._decimals(_WIDE.add(acc, x))

    def retract(self, acc: Any, x: Any) -> Any:
        if x is None:
            return acc
        if self.type_text in _INTEGER_BITS:
            return self.fit(-x if acc is None else acc - x)
        if self.type_text in ("FLOAT", "DOUBLE"):
            return -x if acc is None else self.floats(np.subtract, acc, x)
        return self.fit_decimal(_WIDE.minus(x)) if acc is None else self._decimals(_WIDE.subtract(acc, x))

    def _decimals(self, value: Decimal) -> Decimal | None:
        precision, scale = _decimal(self.type_text)
        if precision <= 18 and -(2**63) <= int(value.scaleb(scale, _WIDE)) < 2**63:
            return value  # not checked again
        return self.fit_decimal(value)


class Product(_Numeric):
    def both(self, acc: Any, x: Any) -> Any:
        if self.type_text in _INTEGER_BITS:
            return self.fit(acc * x)
        if self.type_text in ("FLOAT", "DOUBLE"):
            return self.floats(np.multiply, acc, x)
        return self.fit_decimal(_WIDE.multiply(acc, x))

    def retract(self, acc: Any, x: Any) -> Any:
        if acc is None or x is None:
            return acc
        if self.type_text in ("FLOAT", "DOUBLE"):
            return self.floats(np.divide, acc, x)
        if x == 0:
            raise CannotMerge("division by zero")
        if self.type_text in _INTEGER_BITS:
            quotient = abs(acc) // abs(x)
            return self.fit(quotient if (acc < 0) == (x < 0) else -quotient)
        try:
            return self.fit_decimal(_EXACT.divide(acc, x))
        except decimal.Inexact as error:
            raise CannotMerge("a quotient without end") from error


class Max(_NullAbsorbing):
    def both(self, acc: Any, x: Any) -> Any:
        return x if key_rank(acc) < key_rank(x) else acc


class Min(_NullAbsorbing):
    def both(self, acc: Any, x: Any) -> Any:
        return acc if key_rank(acc) < key_rank(x) else x


class BoolAnd(_NullAbsorbing):
    def both(self, acc: Any, x: Any) -> Any:
        return acc and x


class BoolOr(_NullAbsorbing):
    def both(self, acc: Any, x: Any) -> Any:
        return acc or x


# ---------------------------------------------------------------------------------------------- first and last


class LastValue(Function):
    def agg(self, acc: Any, x: Any) -> Any:
        return x

    def retract(self, acc: Any, x: Any) -> Any:
        return None


class LastNonNullValue(Function):
    def agg(self, acc: Any, x: Any) -> Any:
        return acc if x is None else x

    def retract(self, acc: Any, x: Any) -> Any:
        return acc if x is None else None


class FirstValue(Function):
    """What counts is the first call, not whether there is an accumulator."""

    called = False

    def agg(self, acc: Any, x: Any) -> Any:
        if self.called:
            return acc
        self.called = True
        return x


class FirstNonNullValue(Function):
    called = False

    def agg(self, acc: Any, x: Any) -> Any:
        if self.called or x is None:
            return acc
        self.called = True
        return x


# ---------------------------------------------------------------------------------------------- text, lists, maps


class Listagg(Function):
    def agg(self, acc: Any, x: Any) -> Any:
        if x is None or _blank(x):
            return acc
        if acc is None or _blank(acc):
            return x
        delimiter = self.options.get("list-agg-delimiter", ",")
        if self.options.get("distinct") != "true":
            return acc + delimiter + x
        splitter = delimiter or " "
        seen, result = set(acc.split(splitter)), acc
        for token in x.split(splitter):
            if not _blank(token) and token not in seen:
                seen.add(token)
                result += delimiter + token
        return result


class Collect(Function):
    def agg_reversed(self, acc: Any, x: Any) -> Any:
        return self.agg(acc, x)

    def agg(self, acc: Any, x: Any) -> Any:
        distinct = self.options.get("distinct") == "true"
        if acc is None and x is None:
            return None
        if not distinct:
            return (acc or []) + (x or [])
        constructed = re.match(r"ARRAY<(ROW|ARRAY|MAP|MULTISET)\b", self.type_text) is not None
        result = list(acc or []) if constructed else []
        for element in [*([] if constructed else acc or []), *(x or [])]:
            if not any(equal(element, other) for other in result):
                result.append(element)
        return result

    def retract(self, acc: Any, x: Any) -> Any:
        if acc is None or not x:
            return acc
        leaving, staying = list(x), []
        for element in acc:
            match = next((index for index, other in enumerate(leaving) if equal(other, element)), None)
            if match is None:
                staying.append(element)
            else:
                del leaving[match]
        return staying


class MergeMap(_NullAbsorbing):
    def both(self, acc: Any, x: Any) -> Any:
        return list({**_by_key(acc), **_by_key(x)}.values())

    def retract(self, acc: Any, x: Any) -> Any:
        if acc is None or not x:
            return acc
        return [pair for key, pair in _by_key(acc).items() if key not in _by_key(x)]


class MergeMapWithKeytime(_NullAbsorbing):
    def both(self, acc: Any, x: Any) -> Any:
        result = _by_key(acc)
        for key, row in x:
            found = exact_key(key)
            if row is None:
                result.pop(found, None)
                continue
            time = self._time(row)
            if time is None:
                continue
            old = result[found][1] if found in result else None
            old_time = None if old is None else self._time(old)
            if old_time is None or time > old_time:
                result[found] = (key, row)
        return list(result.values())

    def _time(self, row: dict[str, Any]) -> Any:
        return row[self.options.get("ts-field", list(row)[-1])]


class _Nested(Function):
    def key(self, row: dict[str, Any]) -> Any:
        """The row's key, or None where the row does not count."""
        values = [row[name] for name in _names(self.options.get("nested-key", ""))]
        strategy = self.options.get("nested-key-null-strategy", "merge")
        if None in values and strategy == "error":
            raise CannotMerge("a nested key is NULL")
        return None if None in values and strategy == "ignore" else exact_key(tuple(values))


class NestedUpdate(_Nested):
    def agg(self, acc: Any, x: Any) -> Any:
        if x is None:
            return acc
        limit = int(self.options.get("count-limit", 2**31 - 1))
        if "nested-key" not in self.options:
            if acc is not None and len(acc) >= limit:
                return acc
            kept = [row for row in acc or [] if row is not None]
            return kept + [row for row in x if row is not None][: limit - len(acc or [])]
        rows: dict[Any, Any] = {}
        for row in acc or []:
            self._put(rows, row, None)
        for row in x:
            self._put(rows, row, limit)
        return list(rows.values())

    def retract(self, acc: Any, x: Any) -> Any:
        if acc is None or x is None:
            return acc
        leaving = [row for row in x if row is not None]
        present = [row for row in acc if row is not None]
        if "nested-key" not in self.options:
            return [row for row in present if not any(equal(row, other) for other in leaving)]
        rows = {key: row for row in present if (key := self.key(row)) is not None}
        for row in leaving:
            rows.pop(self.key(row), None)
        return list(rows.values())

    def _put(self, rows: dict[Any, Any], row: Any, limit: int | None) -> None:
        key = None if row is None else self.key(row)
        if key is None:
            return
        if key in rows:
            names = _names(self.options.get("nested-sequence-field", ""))
            if names and _ranks(row, names) < _ranks(rows[key], names):
                return
        elif limit is not None and len(rows) >= limit:
            return
        rows[key] = row


class NestedPartialUpdate(_Nested):
    def agg(self, acc: Any, x: Any) -> Any:
        if x is None:
            return acc
        rows: dict[Any, dict[str, Any]] = {}
        for row in [*(acc or []), *x]:
            key = None if row is None else self.key(row)
            if key is not None:
                merged = rows.setdefault(key, dict.fromkeys(row))
                merged.update({name: value for name, value in row.items() if value is not None})
        return list(rows.values())


class Opaque(_NullAbsorbing):
    """Bitmaps and sketches: only their own library can read them, so the oracle does not check them."""

    def both(self, acc: Any, x: Any) -> Any:
        return acc


FUNCTIONS: Mapping[str, type[Function]] = {
    "sum": Sum,
    "product": Product,
    "max": Max,
    "min": Min,
    "bool_and": BoolAnd,
    "bool_or": BoolOr,
    "last_value": LastValue,
    "last_non_null_value": LastNonNullValue,
    "first_value": FirstValue,
    "first_non_null_value": FirstNonNullValue,
    "first_not_null_value": FirstNonNullValue,
    "listagg": Listagg,
    "collect": Collect,
    "merge_map": MergeMap,
    "merge_map_with_keytime": MergeMapWithKeytime,
    "nested_update": NestedUpdate,
    "nested_partial_update": NestedPartialUpdate,
    **dict.fromkeys(("rbm32", "rbm64", "hll_sketch", "theta_sketch"), Opaque),
}


def make_function(name: str, type_text: str, options: Mapping[str, str]) -> Function:
    """A function as a column's options want it; `options` lack the prefix `fields.COLUMN.`."""
    function = FUNCTIONS[name](type_text, options)
    return IgnoreRetract(function) if options.get("ignore-retract") == "true" else function


def equal(left: Any, right: Any) -> bool:
    """Equality of values: a NULL inside an array or as a map's value equals nothing, a NULL field equals NULL."""
    if left is None or right is None:
        return left is right
    if isinstance(left, dict):
        return all(equal(left[name], right[name]) for name in left)
    if isinstance(left, list):
        if len(left) != len(right):
            return False
        if left and isinstance(left[0], tuple):
            others = _by_key(right)
            return all(exact_key(k) in others and _equal_item(v, others[exact_key(k)][1]) for k, v in left)
        return all(_equal_item(one, other) for one, other in zip(left, right, strict=True))
    if isinstance(left, float):
        return exact_key(left) == exact_key(right)
    return bool(left == right)


def _equal_item(left: Any, right: Any) -> bool:
    return left is not None and right is not None and equal(left, right)


def _by_key(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, tuple[Any, Any]]:
    return {exact_key(key): (key, value) for key, value in pairs}


def _ranks(row: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(sequence_rank(row[name], False) for name in names)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _blank(text: str) -> bool:
    return all(character in BLANKS for character in text)


def _decimal(type_text: str) -> tuple[int, int]:
    precision, scale = re.findall(r"\d+", type_text)
    return int(precision), int(scale)
