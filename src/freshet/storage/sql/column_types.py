"""Column types as Spark SQL writes them, and back.

| Spark | type |
|---|---|
| `TIMESTAMP`, `TIMESTAMP_LTZ` | TIMESTAMP(6) WITH LOCAL TIME ZONE |
| `TIMESTAMP_NTZ` | TIMESTAMP(6) |
| `BINARY` | BYTES |
| `STRUCT<a: INT>` | ROW<a INT> |
| others | of the same name |

What Spark has no name for is written with a length or a precision: `TIMESTAMP_NTZ(3)`, `TIME(3)`, `BINARY(16)`.

Source: Apache Paimon 2.0.0, the types of its Spark catalog.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from freshet.storage.model.data_type import (
    LENGTH_MAX,
    ArrayType,
    DataField,
    DataType,
    MapType,
    RowType,
    ScalarType,
    TypeRoot,
    parse_data_type,
    with_nullable,
)
from freshet.storage.sql.names import text_literal
from freshet.storage.sql.refusals import only, refused

_PRECISION: Final = 6
"""Of a timestamp in Spark."""

_NAMES: Final = frozenset(
    {
        *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "DATE", "TIME", "STRING"),
        *("CHAR", "VARCHAR", "BINARY", "VARBINARY"),
    }
)
_ZONED: Final = frozenset({exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ})
_LENGTHS: Final = frozenset({exp.DType.CHAR, exp.DType.VARCHAR, exp.DType.VARBINARY})


def type_of(node: exp.Expr | None) -> DataType:
    """The type that a statement writes; nullable."""
    if not isinstance(node, exp.DataType):
        raise refused(node if node is not None else "no type", "a column has a name and a type")
    kind, inner = node.this, node.expressions
    only(node, "this", "expressions", "nested")
    if kind in (exp.DType.ARRAY, exp.DType.MAP) and not (
        inner and all(isinstance(each, exp.DataType) for each in inner)
    ):
        raise refused(node)
    if kind is exp.DType.ARRAY and len(inner) == 1:
        return ArrayType(type_of(inner[0]))
    if kind is exp.DType.MAP and len(inner) == 2:
        return MapType(type_of(inner[0]), type_of(inner[1]))
    if kind is exp.DType.STRUCT and inner:
        return RowType(tuple(field_of_definition(each) for each in inner))
    numbers = [_number(each) for each in inner]
    if kind in _ZONED and len(numbers) <= 1:
        return ScalarType(TypeRoot.TIMESTAMP_LTZ, precision=numbers[0] if numbers else _PRECISION)
    if kind is exp.DType.TIMESTAMPNTZ and len(numbers) <= 1:
        return ScalarType(TypeRoot.TIMESTAMP, precision=numbers[0] if numbers else _PRECISION)
    if kind is exp.DType.BINARY and not numbers:
        return ScalarType(TypeRoot.VARBINARY, length=LENGTH_MAX)
    if kind in _LENGTHS and not numbers:
        raise refused(kind.value, "its length is missing; write STRING, or a length as in VARCHAR(20)")
    name = "STRING" if kind is exp.DType.TEXT else kind.value
    if name not in _NAMES:
        raise refused(node, "there is no such type; STRING, BIGINT and DECIMAL(10, 2) are some")
    written = f"({', '.join(map(str, numbers))})" if numbers else ""
    return parse_data_type(f"{name}{written}")


def field_of_definition(node: exp.Expr) -> DataField:
    """A column, or a field of a STRUCT, as it is defined: name, type, NOT NULL, COMMENT."""
    if not isinstance(node, exp.ColumnDef):
        raise refused(node, "a column has a name and a type")
    if not node.name:
        raise refused(node, "a field in a column is added by itself: ADD COLUMN address.zip STRING")
    only(node, "this", "kind", "constraints", "position", "exists")
    data_type, comment = type_of(node.args.get("kind")), None
    for constraint in node.args.get("constraints") or ():
        match constraint.kind:
            case exp.NotNullColumnConstraint() as null:
                data_type = with_nullable(data_type, bool(null.args.get("allow_null")))
            case exp.CommentColumnConstraint() as described:
                comment = text_literal(described.this)
            case exp.PrimaryKeyColumnConstraint():
                data_type = with_nullable(data_type, False)
            case _:
                raise refused(constraint)
    return DataField(0, node.name, data_type, comment)


def type_text(data_type: DataType) -> str:
    """The type as a statement would write it, without NOT NULL."""
    match data_type:
        case ArrayType(element):
            return f"ARRAY<{type_text(element)}>"
        case MapType(key, value):
            return f"MAP<{type_text(key)}, {type_text(value)}>"
        case RowType(fields):
            return f"STRUCT<{', '.join(_field_text(each) for each in fields)}>"
    match data_type.root:
        case TypeRoot.TIMESTAMP_LTZ:
            return "TIMESTAMP" if data_type.precision == _PRECISION else f"TIMESTAMP_LTZ({data_type.precision})"
        case TypeRoot.TIMESTAMP:
            return "TIMESTAMP_NTZ" if data_type.precision == _PRECISION else f"TIMESTAMP_NTZ({data_type.precision})"
        case TypeRoot.VARBINARY if data_type.length == LENGTH_MAX:
            return "BINARY"
    return str(with_nullable(data_type, True))


def _field_text(field: DataField) -> str:
    null = "" if field.type.nullable else " NOT NULL"
    return f"{exp.to_identifier(field.name, quoted=True).sql('spark')}: {type_text(field.type)}{null}"


def _number(node: exp.Expr) -> int:
    if isinstance(node, exp.DataTypeParam) and isinstance(node.this, exp.Literal) and node.this.name.isdigit():
        return int(node.this.name)
    raise refused(node, "a whole number is expected there")
