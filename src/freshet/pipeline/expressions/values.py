"""One translated expression, the types that Spark gives such, and how operands come to a common one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from freshet.pipeline.expressions.grammar import NotOursError
from freshet.storage.model.data_type import LENGTH_MAX, ScalarType, TypeRoot

BOOLEAN: Final = ScalarType(TypeRoot.BOOLEAN)
TINYINT: Final = ScalarType(TypeRoot.TINYINT)
SMALLINT: Final = ScalarType(TypeRoot.SMALLINT)
INT: Final = ScalarType(TypeRoot.INT)
BIGINT: Final = ScalarType(TypeRoot.BIGINT)
FLOAT: Final = ScalarType(TypeRoot.FLOAT)
DOUBLE: Final = ScalarType(TypeRoot.DOUBLE)
STRING: Final = ScalarType(TypeRoot.VARCHAR, True, LENGTH_MAX)
BINARY: Final = ScalarType(TypeRoot.VARBINARY, True, LENGTH_MAX)
DATE: Final = ScalarType(TypeRoot.DATE)
TIMESTAMP_NTZ: Final = ScalarType(TypeRoot.TIMESTAMP, precision=6)
TIMESTAMP: Final = ScalarType(TypeRoot.TIMESTAMP_LTZ, precision=6)

WHOLE: Final = (TINYINT, SMALLINT, INT, BIGINT)
FLOATS: Final = (FLOAT, DOUBLE)
TIMES: Final = (TIMESTAMP, TIMESTAMP_NTZ)
DECIMAL_MAX: Final = 38
_DIGITS: Final = {TINYINT: 3, SMALLINT: 5, INT: 10, BIGINT: 20}
_NAMES: Final = {
    TypeRoot.INT: "INTEGER", TypeRoot.VARCHAR: "VARCHAR", TypeRoot.VARBINARY: "BLOB", TypeRoot.TIMESTAMP: "TIMESTAMP",
    TypeRoot.TIMESTAMP_LTZ: "TIMESTAMP",
}  # fmt: skip
DOUBTFUL: Final = "10L"
"""The constant of a whole number that may be a literal (`10L`) or a cast of one: sqlglot does not tell them apart, and
beside a decimal they differ."""
_SQL_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class Value:
    """SQL of DuckDB's that never fails: NULL where Spark's expression is NULL or fails, `fails` is true where it fails
    ("" where it cannot, and never NULL). `type` None is that of a bare NULL.

    `causes` say in words what may fail, `constant` is the value of a literal.
    """

    sql: str
    type: ScalarType | None
    fails: str = ""
    causes: tuple[str, ...] = ()
    constant: str | int | None = None

    def __post_init__(self) -> None:
        if len(self.sql) + len(self.fails) > _SQL_MAX:
            raise NotOursError("an expression of this size")

    def failing(self, condition: str, cause: str) -> Value:
        """The value where it fails by a condition of its own, too."""
        return replace(self, fails=either(self.fails, condition), causes=tuple(dict.fromkeys([*self.causes, cause])))

    def over(self, *operands: Value, is_lazy: bool = True) -> Value:
        """The value with the failures of what it is computed from, of which Spark computes none after one is NULL."""
        fails, before = self.fails, ""
        for each in operands:
            if each.fails:
                fails = either(fails, both(before, each.fails))
            if is_lazy and each.constant is None:
                before = both(before, f"({each.sql}) IS NOT NULL")
        causes = tuple(dict.fromkeys(cause for each in (*operands, self) for cause in each.causes))
        return replace(self, fails=fails, causes=causes)

    @property
    def decimal(self) -> tuple[int, int]:
        """Precision and scale of a number that counts as a decimal, whole ones too."""
        if self.type in _DIGITS:
            if self.constant == DOUBTFUL:
                raise NotOursError("a decimal beside a whole number with a type")
            is_literal = isinstance(self.constant, int)
            return (len(str(abs(int(self.constant or 0)))) if is_literal else _DIGITS[self.type], 0)
        assert self.type is not None
        return self.type.precision or 0, self.type.scale or 0


def either(left: str, right: str) -> str:
    """The conditions joined by OR, "" for none."""
    return f"({left} OR {right})" if left and right else left or right


def both(left: str, right: str) -> str:
    """The conditions joined by AND, "" for none."""
    return f"({left} AND {right})" if left and right else left or right


def is_decimal(kind: ScalarType | None) -> bool:
    """True for a DECIMAL."""
    return kind is not None and kind.root is TypeRoot.DECIMAL


def is_number(kind: ScalarType | None) -> bool:
    """True for a number of any kind."""
    return kind in WHOLE or kind in FLOATS or is_decimal(kind)


def decimal_type(precision: int, scale: int) -> ScalarType:
    """A DECIMAL; of more digits than 38 Spark drops some by rules of its own."""
    if precision > DECIMAL_MAX or scale > precision:
        raise NotOursError(f"a decimal of {precision} digits")
    return ScalarType(TypeRoot.DECIMAL, True, None, precision, scale)


def duckdb_type(kind: ScalarType) -> str:
    """DuckDB's name of a type."""
    if is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return _NAMES.get(kind.root, kind.root.value)


def spark_name(kind: ScalarType | None) -> str:
    """Spark's name of a type, for people."""
    names = {TypeRoot.VARCHAR: "STRING", TypeRoot.VARBINARY: "BINARY", TypeRoot.TIMESTAMP: "TIMESTAMP_NTZ"}
    if kind is None or is_decimal(kind):
        return "NULL" if kind is None else f"DECIMAL({kind.precision},{kind.scale})"
    return names.get(kind.root, kind.root.value).replace("TIMESTAMP_LTZ", "TIMESTAMP")


def quoted(text: str) -> str:
    """A literal of DuckDB's."""
    return "'" + text.replace("'", "''") + "'"


def widened(value: Value, kind: ScalarType) -> Value:
    """The value in a type that has room for it."""
    if value.type == kind:
        return value
    sql = f"CAST({value.sql} AS {duckdb_type(kind)})"
    if is_decimal(value.type) and kind == DOUBLE:
        sql = double_of_decimal(value)
    elif value.type == DATE and kind in TIMES:
        sql = f"CAST({value.sql} AS TIMESTAMP)"
    return replace(value, sql=sql, type=kind)


def double_of_decimal(value: Value) -> str:
    """The nearest DOUBLE of a decimal: by its text where its digits are more than a DOUBLE has for sure."""
    precision, _ = value.decimal
    return f"CAST({value.sql} AS DOUBLE)" if precision <= 15 else f"CAST(CAST({value.sql} AS VARCHAR) AS DOUBLE)"


def common_type(values: Sequence[Value]) -> ScalarType | None:
    """The type that Spark gives to branches and to the sides of a comparison; None where all are a bare NULL."""
    found: Value | None = None
    for each in values:
        if each.type is None:
            continue
        found = each if found is None else Value("", _wider(found, each))
    return None if found is None else found.type


def commonly(values: Sequence[Value]) -> tuple[list[Value], ScalarType | None]:
    """The values in their common type."""
    kind = common_type(values)
    return [each if kind is None or each.type is None else widened(each, kind) for each in values], kind


def _wider(left: Value, right: Value) -> ScalarType:
    one, other = left.type, right.type
    if one == other:
        assert one is not None
        return one
    if is_number(one) and is_number(other):
        if one in FLOATS or other in FLOATS:
            return DOUBLE
        if one in WHOLE and other in WHOLE:
            return WHOLE[max(WHOLE.index(one), WHOLE.index(other))]  # type: ignore[arg-type]
        (p1, s1), (p2, s2) = _plain_decimal(left), _plain_decimal(right)
        scale = max(s1, s2)
        return decimal_type(max(p1 - s1, p2 - s2) + scale, scale)
    if {one, other} <= {DATE, TIMESTAMP, TIMESTAMP_NTZ} and DATE in (one, other):
        return other if one == DATE else one  # type: ignore[return-value]
    raise NotOursError(f"{spark_name(one)} beside {spark_name(other)}")


def _plain_decimal(value: Value) -> tuple[int, int]:
    return (_DIGITS[value.type], 0) if value.type in _DIGITS else value.decimal
