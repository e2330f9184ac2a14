"""Column types: the values, and their text as schema files hold it.

Scalars are strings (`DECIMAL(10, 2) NOT NULL`), constructed types are JSON objects (`{"type": "ARRAY NOT NULL",
"element": T}`). Lengths and precisions left out take the parser's defaults: CHAR, VARCHAR, BINARY, VARBINARY 1;
DECIMAL 10, 0; TIME 0; TIMESTAMP 6. STRING is VARCHAR(2147483647), BYTES is VARBINARY(2147483647).

Source: FORMAT.md §2.1. Types outside this module (MULTISET, VARIANT, BLOB, VECTOR) are named and refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError

LENGTH_MAX: Final = 2147483647
"""Length of STRING and BYTES."""

_UNSUPPORTED: Final = frozenset({"MULTISET", "VARIANT", "BLOB", "VECTOR"})


class TypeRoot(StrEnum):
    """Family of a type, spelled as in schema files."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    ARRAY = "ARRAY"
    MAP = "MAP"
    ROW = "ROW"


INTEGER_ROOTS: Final = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
"""From the narrowest to the widest."""
FLOAT_ROOTS: Final = frozenset({TypeRoot.FLOAT, TypeRoot.DOUBLE})
TEXT_ROOTS: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
BYTES_ROOTS: Final = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
TIMESTAMP_ROOTS: Final = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})


class ScalarType(Frozen):
    """A type without parts.

    `length` belongs to CHAR, VARCHAR, BINARY, VARBINARY; `precision` to DECIMAL, TIME, TIMESTAMP and TIMESTAMP_LTZ
    (fraction digits of a second there); `scale` to DECIMAL.
    """

    root: TypeRoot
    nullable: bool = True
    length: int | None = None
    precision: int | None = None
    scale: int | None = None

    def __str__(self) -> str:
        return _scalar_text(self) + ("" if self.nullable else " NOT NULL")


class ArrayType(Frozen):
    """A list of elements."""

    element: DataType
    nullable: bool = True

    @property
    def root(self) -> TypeRoot:
        """Always ARRAY."""
        return TypeRoot.ARRAY

    def __str__(self) -> str:
        return f"ARRAY<{self.element}>" + ("" if self.nullable else " NOT NULL")


class MapType(Frozen):
    """Keys to values; keys are never null in files."""

    key: DataType
    value: DataType
    nullable: bool = True

    @property
    def root(self) -> TypeRoot:
        """Always MAP."""
        return TypeRoot.MAP

    def __str__(self) -> str:
        return f"MAP<{self.key}, {self.value}>" + ("" if self.nullable else " NOT NULL")


class RowType(Frozen):
    """Named fields, each with an id of its own."""

    fields: tuple[DataField, ...]
    nullable: bool = True

    @property
    def root(self) -> TypeRoot:
        """Always ROW."""
        return TypeRoot.ROW

    def __str__(self) -> str:
        inner = ", ".join(f"{field.name} {field.type}" for field in self.fields)
        return f"ROW<{inner}>" + ("" if self.nullable else " NOT NULL")


DataType = ScalarType | ArrayType | MapType | RowType


class DataField(Frozen):
    """One column or one field of a ROW. Ids are never reused within a table."""

    id: int
    name: str
    type: DataType
    description: str | None = None
    default_value: str | None = None


# name pattern -> (root, attribute taking the first number, its default)
_SCALARS: Final[Mapping[str, tuple[TypeRoot, str | None, int | None]]] = {
    "BOOLEAN": (TypeRoot.BOOLEAN, None, None),
    "TINYINT": (TypeRoot.TINYINT, None, None),
    "SMALLINT": (TypeRoot.SMALLINT, None, None),
    "INT": (TypeRoot.INT, None, None),
    "INTEGER": (TypeRoot.INT, None, None),
    "BIGINT": (TypeRoot.BIGINT, None, None),
    "FLOAT": (TypeRoot.FLOAT, None, None),
    "DOUBLE": (TypeRoot.DOUBLE, None, None),
    "DOUBLE PRECISION": (TypeRoot.DOUBLE, None, None),
    "DECIMAL": (TypeRoot.DECIMAL, "precision", 10),
    "NUMERIC": (TypeRoot.DECIMAL, "precision", 10),
    "DEC": (TypeRoot.DECIMAL, "precision", 10),
    "CHAR": (TypeRoot.CHAR, "length", 1),
    "VARCHAR": (TypeRoot.VARCHAR, "length", 1),
    "STRING": (TypeRoot.VARCHAR, None, LENGTH_MAX),
    "BINARY": (TypeRoot.BINARY, "length", 1),
    "VARBINARY": (TypeRoot.VARBINARY, "length", 1),
    "BYTES": (TypeRoot.VARBINARY, None, LENGTH_MAX),
    "DATE": (TypeRoot.DATE, None, None),
    "TIME": (TypeRoot.TIME, "precision", 0),
    "TIME WITHOUT TIME ZONE": (TypeRoot.TIME, "precision", 0),
    "TIMESTAMP": (TypeRoot.TIMESTAMP, "precision", 6),
    "TIMESTAMP WITHOUT TIME ZONE": (TypeRoot.TIMESTAMP, "precision", 6),
    "TIMESTAMP WITH LOCAL TIME ZONE": (TypeRoot.TIMESTAMP_LTZ, "precision", 6),
    "TIMESTAMP_LTZ": (TypeRoot.TIMESTAMP_LTZ, "precision", 6),
}

_LIMITS: Final[Mapping[TypeRoot, tuple[int, int]]] = {
    TypeRoot.DECIMAL: (1, 38),
    TypeRoot.TIME: (0, 9),
    TypeRoot.TIMESTAMP: (0, 9),
    TypeRoot.TIMESTAMP_LTZ: (0, 9),
    TypeRoot.CHAR: (1, LENGTH_MAX),
    TypeRoot.VARCHAR: (1, LENGTH_MAX),
    TypeRoot.BINARY: (1, LENGTH_MAX),
    TypeRoot.VARBINARY: (1, LENGTH_MAX),
}

_TEXT: Final = re.compile(
    r"^\s*(?P<head>[A-Z_]+(?:\s+PRECISION)?)"
    r"(?:\s*\(\s*(?P<first>\d{1,18})\s*(?:,\s*(?P<second>\d{1,18})\s*)?\))?"
    r"(?P<tail>\s+WITH(?:OUT)?(?:\s+LOCAL)?\s+TIME\s+ZONE)?"
    r"(?P<null>\s+NOT\s+NULL|\s+NULL)?\s*$",
    re.IGNORECASE,
)


def parse_data_type(source: str | Mapping[str, Any]) -> DataType:
    """Reads a type as a schema file holds it: a string for scalars, an object for ARRAY, MAP and ROW.

    Raises `InvalidRequestError` for text that is not a type and `UnsupportedFeatureError` for a type of the format that
    is not supported.
    """
    if isinstance(source, str):
        return _parse_scalar(source)
    tag = str(source.get("type", ""))
    name, nullable = _split_tag(tag)
    match name:
        case "ARRAY":
            return ArrayType(parse_data_type(source["element"]), nullable)
        case "MAP":
            return MapType(parse_data_type(source["key"]), parse_data_type(source["value"]), nullable)
        case "ROW":
            return RowType(tuple(parse_field(field) for field in source["fields"]), nullable)
    _check_supported(name)
    raise InvalidRequestError(f"unknown column type {tag!r}")


def parse_field(source: Mapping[str, Any]) -> DataField:
    """Reads one field object of a schema file."""
    return DataField(
        id=int(source["id"]),
        name=str(source["name"]),
        type=parse_data_type(source["type"]),
        description=source.get("description"),
        default_value=source.get("defaultValue"),
    )


def type_to_json(data_type: DataType) -> str | dict[str, Any]:
    """Writes a type as schema files hold it; the inverse of `parse_data_type`."""
    suffix = "" if data_type.nullable else " NOT NULL"
    match data_type:
        case ScalarType():
            return str(data_type)
        case ArrayType(element=element):
            return {"type": "ARRAY" + suffix, "element": type_to_json(element)}
        case MapType(key=key, value=value):
            return {"type": "MAP" + suffix, "key": type_to_json(key), "value": type_to_json(value)}
        case RowType(fields=fields):
            return {"type": "ROW" + suffix, "fields": [field_to_json(field) for field in fields]}


def field_to_json(field: DataField) -> dict[str, Any]:
    """Writes one field object of a schema file; absent description and default are left out."""
    result: dict[str, Any] = {"id": field.id, "name": field.name, "type": type_to_json(field.type)}
    if field.description is not None:
        result["description"] = field.description
    if field.default_value is not None:
        result["defaultValue"] = field.default_value
    return result


def child_types(data_type: DataType) -> tuple[DataType, ...]:
    """The types of which a type is made: the element, key and value, those of the fields; none of a scalar."""
    match data_type:
        case ArrayType(element=element):
            return (element,)
        case MapType(key=key, value=value):
            return (key, value)
        case RowType(fields=fields):
            return tuple(field.type for field in fields)
    return ()


def with_nullable(data_type: DataType, nullable: bool) -> DataType:
    """The same type with the nullability given."""
    return data_type if data_type.nullable == nullable else replace(data_type, nullable=nullable)


def _split_tag(tag: str) -> tuple[str, bool]:
    upper = tag.strip().upper()
    if upper.endswith("NOT NULL"):
        return upper[: -len("NOT NULL")].strip(), False
    return upper, True


def _check_supported(name: str) -> None:
    if name in _UNSUPPORTED:
        raise UnsupportedFeatureError(f"column type {name} is not supported yet; leave the column out of the table")


_ELSEWHERE: Final = {
    **dict.fromkeys(("LONG", "INT64"), "BIGINT"),
    **dict.fromkeys(("INT32", "INT16", "SHORT"), "INT"),
    **dict.fromkeys(("TEXT", "STR", "OBJECT"), "STRING"),
    **dict.fromkeys(("FLOAT64", "REAL", "NUMBER"), "DOUBLE"),
    "FLOAT32": "FLOAT",
    "BOOL": "BOOLEAN",
    "DATETIME": "TIMESTAMP(6)",
    "STRUCT": "ROW<…>",
    "UUID": "STRING",
}
"""What other systems call a type, and its name here."""


def _parse_scalar(text: str) -> ScalarType:
    _check_supported(re.split(r"\W", text.strip(), maxsplit=1)[0].upper())
    match = _TEXT.match(text)
    first_word = re.match(r"\s*(\w+)\s*<", text)
    if first_word is not None and first_word[1].upper() in _UNSUPPORTED:
        raise UnsupportedFeatureError(
            f"column type {first_word[1].upper()} is not supported yet; leave the column out of the table"
        )
    if match is None:
        raise InvalidRequestError(f"cannot read the column type {text!r}; examples: BIGINT, DECIMAL(10, 2) NOT NULL")
    head = re.sub(r"\s+", " ", match["head"].upper())
    tail = re.sub(r"\s+", " ", (match["tail"] or "").upper()).strip()
    name = f"{head} {tail}".strip()
    if name not in _SCALARS:
        meant = _ELSEWHERE.get(head)
        hint = f"write {meant}" if meant else "STRING, BIGINT, DOUBLE, DECIMAL(10, 2), DATE, TIMESTAMP(6) are some"
        raise InvalidRequestError(f"unknown column type {text!r}: {hint}")
    root, attribute, default = _SCALARS[name]
    first = int(match["first"]) if match["first"] else default
    second = int(match["second"]) if match["second"] else None
    if (match["first"] and attribute is None) or (second is not None and root is not TypeRoot.DECIMAL):
        raise InvalidRequestError(f"column type {text!r} does not take these numbers")
    nullable = not (match["null"] or "").strip().upper().startswith("NOT")
    precision = first if attribute == "precision" else None
    length = first if root in (TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY) else None
    scale = (second or 0) if root is TypeRoot.DECIMAL else None
    _check_limits(text, root, first, scale)
    return ScalarType(root, nullable, length, precision, scale)


def _check_limits(text: str, root: TypeRoot, first: int | None, scale: int | None) -> None:
    if root not in _LIMITS or first is None:
        return
    low, high = _LIMITS[root]
    if not low <= first <= high:
        raise InvalidRequestError(f"column type {text!r}: {first} is outside {low}..{high}")
    if scale is not None and scale > first:
        raise InvalidRequestError(f"column type {text!r}: scale {scale} is larger than precision {first}")


def _scalar_text(scalar: ScalarType) -> str:
    match scalar.root:
        case TypeRoot.VARCHAR if scalar.length == LENGTH_MAX:
            return "STRING"
        case TypeRoot.VARBINARY if scalar.length == LENGTH_MAX:
            return "BYTES"
        case TypeRoot.CHAR | TypeRoot.VARCHAR | TypeRoot.BINARY | TypeRoot.VARBINARY:
            return f"{scalar.root}({scalar.length})"
        case TypeRoot.DECIMAL:
            return f"DECIMAL({scalar.precision}, {scalar.scale})"
        case TypeRoot.TIME | TypeRoot.TIMESTAMP:
            return f"{scalar.root}({scalar.precision})"
        case TypeRoot.TIMESTAMP_LTZ:
            return f"TIMESTAMP({scalar.precision}) WITH LOCAL TIME ZONE"
        case _:
            return str(scalar.root)
