"""The formats of records."""

from __future__ import annotations

from typing import Final, Literal

Format = Literal[
    "debezium-json", "debezium-unwrapped", "debezium-avro", "canal-json", "maxwell-json", "json", "row-kind", "avro"
]  # fmt: skip
DEBEZIUM_FORMATS: Final = frozenset({"debezium-json", "debezium-unwrapped", "debezium-avro"})
ENVELOPE_FORMATS: Final = frozenset({"debezium-json", "debezium-avro"})
"""Debezium's records with the row before and after a change."""

AVRO_FORMATS: Final = frozenset({"debezium-avro", "avro"})
"""Formats whose schemas are in a registry."""

PLAIN_FORMATS: Final = frozenset({"json", "avro", "row-kind"})
"""Formats whose records are rows that do not name their table."""

BINLOG_FORMATS: Final = frozenset({"canal-json", "maxwell-json"})
"""Change captures of MySQL's binary log, whose updates carry the old values of the columns that changed."""
