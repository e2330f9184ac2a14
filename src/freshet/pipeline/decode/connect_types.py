"""The SQL type of a field in a Kafka Connect schema, as Debezium writes it.

| field | type |
|---|---|
| int8, int16, int32, int64 | TINYINT, SMALLINT, INT, BIGINT |
| float32 (float), float64 (double), boolean, string, bytes | FLOAT, DOUBLE, BOOLEAN, STRING, BYTES |
| org.apache.kafka.connect.data.Decimal | DECIMAL of its precision and scale; STRING above 38 digits |
| io.debezium.data.VariableScaleDecimal | DECIMAL(38, 18): what does not fit is a dead letter |
| io.debezium.time.Date, connect's Date | DATE |
| Time, MicroTime, NanoTime, connect's Time | TIME(3): the table format has no finer one |
| Timestamp, connect's Timestamp; MicroTimestamp; NanoTimestamp | TIMESTAMP(3); (6); (9) |
| ZonedTimestamp | TIMESTAMP(6) WITH LOCAL TIME ZONE |
| array, map | ARRAY, MAP of what is in them |
| any other struct or name | by its plain type; a struct is STRING, its JSON |

Source: Debezium's documentation of its connectors, "Data type mappings".
"""

from __future__ import annotations

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
    f"{_DEBEZIUM}Time": "TIME(3)", f"{_DEBEZIUM}MicroTime": "TIME(3)", f"{_DEBEZIUM}NanoTime": "TIME(3)",
    f"{_CONNECT}Time": "TIME(3)",
    f"{_DEBEZIUM}Timestamp": "TIMESTAMP(3)", f"{_CONNECT}Timestamp": "TIMESTAMP(3)",
    f"{_DEBEZIUM}MicroTimestamp": "TIMESTAMP(6)", f"{_DEBEZIUM}NanoTimestamp": "TIMESTAMP(9)",
    f"{_DEBEZIUM}ZonedTimestamp": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    f"{_DEBEZIUM}IsoDate": "DATE", f"{_DEBEZIUM}IsoTime": "TIME(3)", f"{_DEBEZIUM}IsoTimestamp": "TIMESTAMP(6)",
    "io.debezium.data.VariableScaleDecimal": "DECIMAL(38, 18)",
}  # fmt: skip
_DECIMAL: Final = f"{_CONNECT}Decimal"


def sql_type_of_name(name: str) -> str | None:
    """The type that a name of Connect's or Debezium's says; None where it says none."""
    return _NAMED.get(name)


def sql_type_of_field(field: Mapping[str, JsonValue]) -> str:
    """The type of a field or of the items of an array: a JSON object of a Connect schema."""
    name = field.get("name")
    if name == _DECIMAL:
        return _decimal(field.get("parameters"))
    if isinstance(name, str) and name in _NAMED:
        return _NAMED[name]
    kind = field.get("type")
    if kind == "array" and isinstance(field.get("items"), dict):
        return f"ARRAY<{sql_type_of_field(field['items'])}>"
    if kind == "map" and isinstance(field.get("keys"), dict) and isinstance(field.get("values"), dict):
        return f"MAP<{sql_type_of_field(field['keys'])}, {sql_type_of_field(field['values'])}>"
    return _PLAIN.get(str(kind), STRING)


def _decimal(parameters: JsonValue) -> str:
    given = parameters if isinstance(parameters, dict) else {}
    try:
        scale = int(given.get("scale", "0"))
        precision = int(given.get("connect.decimal.precision", DECIMAL_DIGITS_MAX))
    except (TypeError, ValueError):
        return STRING
    return f"DECIMAL({precision}, {scale})" if 0 <= scale <= precision <= DECIMAL_DIGITS_MAX else STRING
