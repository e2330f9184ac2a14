"""The formats of records, and what each means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

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


class OfFormat:
    """What has records of one format."""

    __slots__ = ()
    if TYPE_CHECKING:  # else it would be the first field of models
        format: Format | None

    @property
    def is_debezium(self) -> bool:
        """True when the records come from Debezium, wrapped or not."""
        return self.format in DEBEZIUM_FORMATS

    @property
    def is_avro(self) -> bool:
        """True when the records are in Avro, and their schemas in a registry."""
        return self.format in AVRO_FORMATS

    @property
    def is_binlog(self) -> bool:
        """True when the records come from Canal or Maxwell."""
        return self.format in BINLOG_FORMATS

    @property
    def captures_changes(self) -> bool:
        """True when the records are the changes of a table, which they name."""
        return self.is_debezium or self.is_binlog
