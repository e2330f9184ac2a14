"""Spark's filters as the table's: only those that mean exactly the same, because Spark does not apply them again.

| Spark | taken for columns of type |
|---|---|
| =, <=>, <, <=, >, >= , IN with a value | BOOLEAN, integers, DECIMAL, DATE, CHAR, VARCHAR, TIMESTAMP(0-6), no zone |
| IS NULL, IS NOT NULL | all |
| starts with | CHAR, VARCHAR |
| NOT of these (a NULL makes it NULL on both sides, so the row goes) | as above |
| OR | Spark does not offer it |

FLOAT and DOUBLE are left to Spark (its NaN equals itself and is the largest), and so are the types that travel as other
ones. IN with a NULL among its values never gives FALSE, so its NOT is left alone.

Source: pyspark.sql.datasource; real parts §6, "Python data source".
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import datasource as spark

from freshet.storage.model.data_type import DataType, ScalarType, TypeRoot
from freshet.storage.model.schema import TableSchema
from freshet.storage.predicate import Predicate, col

_EXACT: Final = frozenset(
    {
        TypeRoot.BOOLEAN,
        TypeRoot.TINYINT,
        TypeRoot.SMALLINT,
        TypeRoot.INT,
        TypeRoot.BIGINT,
        TypeRoot.DECIMAL,
        TypeRoot.DATE,
        TypeRoot.CHAR,
        TypeRoot.VARCHAR,
        TypeRoot.TIMESTAMP,
    }
)
_TEXTS: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_CARRIED_PRECISION_MAX: Final = 6


def to_predicate(pushed: spark.Filter, schema: TableSchema) -> Predicate | None:
    """The table's form of one filter; None for what Spark must apply itself."""
    if isinstance(pushed, spark.Not):
        if isinstance(pushed.child, spark.In) and any(value is None for value in pushed.child.value):
            return None
        if isinstance(pushed.child, spark.EqualNullSafe):
            return None
        inner = to_predicate(pushed.child, schema)
        return None if inner is None else ~inner
    attribute: tuple[str, ...] = getattr(pushed, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in schema.by_name:
        return None
    return _on_column(pushed, attribute[0], schema.by_name[attribute[0]].type)


def _on_column(pushed: Any, name: str, data_type: DataType) -> Predicate | None:
    column = col(name)
    match pushed:
        case spark.IsNull():
            return column.is_null()
        case spark.IsNotNull():
            return column.is_not_null()
    if not _is_exact(data_type):
        return None
    match pushed:
        case spark.EqualNullSafe(value=None):
            return column.is_null()
        case spark.EqualTo(value=value) | spark.EqualNullSafe(value=value) if value is not None:
            return column == value
        case spark.LessThan(value=value) if value is not None:
            return column < value
        case spark.LessThanOrEqual(value=value) if value is not None:
            return column <= value
        case spark.GreaterThan(value=value) if value is not None:
            return column > value
        case spark.GreaterThanOrEqual(value=value) if value is not None:
            return column >= value
        case spark.In(value=values):
            known = [value for value in values if value is not None]
            return column.is_in(known) if known else None
        case spark.StringStartsWith(value=value) if data_type.root in _TEXTS:
            return column.starts_with(value)
        case _:
            return None


def _is_exact(data_type: DataType) -> bool:
    if not isinstance(data_type, ScalarType) or data_type.root not in _EXACT:
        return False
    return data_type.root is not TypeRoot.TIMESTAMP or (data_type.precision or 0) <= _CARRIED_PRECISION_MAX
