"""The SQL types of what sources call their types.

| field of a Kafka Connect schema, as Debezium writes it | type |
|---|---|
| int8, int16, int32, int64 | TINYINT, SMALLINT, INT, BIGINT |
| float32 (float), float64 (double), boolean, string, bytes | FLOAT, DOUBLE, BOOLEAN, STRING, BYTES |
| org.apache.kafka.connect.data.Decimal | DECIMAL of its precision and scale; STRING above 38 digits |
| io.debezium.data.VariableScaleDecimal | DECIMAL(38, 18): what does not fit is a dead letter |
| io.debezium.time.Date, connect's Date | DATE |
| Time, connect's Time | TIME(3) |
| MicroTime, NanoTime, IsoTime | STRING, the time: the table format has no TIME that holds microseconds, or 838 hours |
| Timestamp, connect's Timestamp; MicroTimestamp; NanoTimestamp | TIMESTAMP(3); (6); (9) |
| ZonedTimestamp | TIMESTAMP(6) WITH LOCAL TIME ZONE; of SQL Server and Oracle (9) |
| array, map | ARRAY, MAP of what is in them |
| any other struct or name | by its plain type; a struct is STRING, its JSON |

| MySQL's name, such as `bigint(20) unsigned`, as Canal writes it | type |
|---|---|
| tinyint, smallint, mediumint, int, bigint | TINYINT, SMALLINT, INT, INT, BIGINT |
| the same, unsigned | SMALLINT, INT, BIGINT, BIGINT, DECIMAL(20, 0) |
| decimal(p, s), numeric | DECIMAL(p, s); STRING above 38 digits |
| float, double | FLOAT, DOUBLE |
| date, datetime(n), timestamp(n), time | DATE, TIMESTAMP(n), TIMESTAMP(n), STRING (times may be negative) |
| year, bit | INT, DECIMAL(20, 0) |
| binary, varbinary, blobs | BYTES |
| all others | STRING |

Source: Debezium's documentation of its connectors, "Data type mappings".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from freshet.pipeline.decode.json_value import JsonValue

DECIMAL_DIGITS_MAX: Final = 38
STRING: Final = "STRING"
_PLAIN: Final = {
    "int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT", "float": "FLOAT", "float32": "FLOAT",
    "double": "DOUBLE", "float64": "DOUBLE", "boolean": "BOOLEAN", "string": STRING, "bytes": "BYTES",
}  # fmt: skip
_DEBEZIUM: Final = "io.debezium.time."
_CONNECT: Final = "org.apache.kafka.connect.data."
_NAMED: Final = {
    f"{_DEBEZIUM}Date": "DATE", f"{_CONNECT}Date": "DATE",
    f"{_DEBEZIUM}Time": "TIME(3)", f"{_DEBEZIUM}MicroTime": STRING, f"{_DEBEZIUM}NanoTime": STRING,
    f"{_CONNECT}Time": "TIME(3)",
    f"{_DEBEZIUM}Timestamp": "TIMESTAMP(3)", f"{_CONNECT}Timestamp": "TIMESTAMP(3)",
    f"{_DEBEZIUM}MicroTimestamp": "TIMESTAMP(6)", f"{_DEBEZIUM}NanoTimestamp": "TIMESTAMP(9)",
    f"{_DEBEZIUM}ZonedTimestamp": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    f"{_DEBEZIUM}IsoDate": "DATE", f"{_DEBEZIUM}IsoTime": STRING, f"{_DEBEZIUM}IsoTimestamp": "TIMESTAMP(6)",
    "io.debezium.data.VariableScaleDecimal": "DECIMAL(38, 18)",
}  # fmt: skip
_DECIMAL: Final = f"{_CONNECT}Decimal"
_FINER: Final = {
    f"{_DEBEZIUM}ZonedTimestamp": "TIMESTAMP(9) WITH LOCAL TIME ZONE", f"{_DEBEZIUM}IsoTimestamp": "TIMESTAMP(9)",
}  # fmt: skip
_FINER_OF: Final = ("io.debezium.connector.sqlserver.Source", "io.debezium.connector.oracle.Source")
"""Names of `source` in the schemas of connectors whose databases have more than microseconds in such columns."""


def sql_type_of_name(name: str, source: str = "") -> str | None:
    """The type that a name of Connect's or Debezium's says; None where it says none. `source` is the name of the struct
    that says where a change is from."""
    return _FINER[name] if source in _FINER_OF and name in _FINER else _NAMED.get(name)


def sql_type_of_field(field: Mapping[str, JsonValue], source: str = "") -> str:
    """The type of a field or of the items of an array: a JSON object of a Connect schema."""
    name = field.get("name")
    if name == _DECIMAL:
        return _decimal(field.get("parameters"))
    named = sql_type_of_name(name, source) if isinstance(name, str) else None
    if named is not None:
        return named
    kind = field.get("type")
    if kind == "array" and isinstance(field.get("items"), dict):
        return f"ARRAY<{sql_type_of_field(field['items'], source)}>"
    if kind == "map" and isinstance(field.get("keys"), dict) and isinstance(field.get("values"), dict):
        return f"MAP<{sql_type_of_field(field['keys'])}, {sql_type_of_field(field['values'], source)}>"
    return _PLAIN.get(str(kind), STRING)


def _decimal(parameters: JsonValue) -> str:
    given = parameters if isinstance(parameters, dict) else {}
    try:
        scale = int(given.get("scale", "0"))
        precision = int(given.get("connect.decimal.precision", DECIMAL_DIGITS_MAX))
    except (TypeError, ValueError):
        return STRING
    return f"DECIMAL({precision}, {scale})" if 0 <= scale <= precision <= DECIMAL_DIGITS_MAX else STRING


_MYSQL_TYPE: Final = re.compile(
    r"\s*([a-z]+(?: precision)?)\s*(?:\(\s*([0-9]+)\s*(?:,\s*([0-9]+)\s*)?\))?(.*)", re.IGNORECASE
)
_UNSIGNED_BIGINT: Final = "DECIMAL(20, 0)"
_INTEGERS: Final = {
    "tinyint": ("TINYINT", "SMALLINT"), "smallint": ("SMALLINT", "INT"), "mediumint": ("INT", "BIGINT"),
    "int": ("INT", "BIGINT"), "integer": ("INT", "BIGINT"), "bigint": ("BIGINT", _UNSIGNED_BIGINT),
}  # fmt: skip
_MYSQL_PLAIN: Final = {
    "float": "FLOAT", "double": "DOUBLE", "double precision": "DOUBLE", "real": "DOUBLE", "date": "DATE", "year": "INT",
    "bit": _UNSIGNED_BIGINT, "boolean": "TINYINT", "bool": "TINYINT",
    **dict.fromkeys(("binary", "varbinary", "blob", "tinyblob", "mediumblob", "longblob"), "BYTES"),
}  # fmt: skip
UNSIZED_DECIMAL: Final = "DECIMAL"
"""The type of a decimal without digits: MySQL's and Canal's always have them."""
_DECIMALS: Final = frozenset({"decimal", "numeric", "dec", "fixed"})
_STAMPS: Final = frozenset({"datetime", "timestamp"})
_DIGITS_READ: Final = 9


def sql_type_of_mysql(text: str) -> str:
    """The type; STRING for what is not known."""
    match = _MYSQL_TYPE.fullmatch(text)
    if match is None:
        return "STRING"
    name, first, second, rest = match[1].lower(), match[2], match[3], match[4].lower()
    if name in _INTEGERS:
        return _INTEGERS[name]["unsigned" in rest or "zerofill" in rest]
    if name in _DECIMALS and first is None:
        return UNSIZED_DECIMAL
    if name in _DECIMALS:
        precision, scale = _number(first), _number(second)
        return f"DECIMAL({precision}, {scale})" if scale <= precision <= DECIMAL_DIGITS_MAX else "STRING"
    if name in _STAMPS:
        return f"TIMESTAMP({min(_number(first), 6)})"
    return _MYSQL_PLAIN.get(name, "STRING")


def _number(digits: str | None) -> int:
    """The number of the first nine digits: what has more is larger than any type, and so are they."""
    return int(digits[:_DIGITS_READ]) if digits else 0
