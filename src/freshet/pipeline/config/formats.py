"""The formats of records."""

from __future__ import annotations

from typing import Final, Literal

Format = Literal["debezium-json", "debezium-unwrapped", "canal-json", "maxwell-json", "json", "row-kind"]
DEBEZIUM_FORMATS: Final = frozenset({"debezium-json", "debezium-unwrapped"})
BINLOG_FORMATS: Final = frozenset({"canal-json", "maxwell-json"})
"""Change captures of MySQL's binary log, whose updates carry the old values of the columns that changed."""
