"""What the decoders of a batch of many tables know: a value that travels to the workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from freshet._frozen import Frozen
from freshet.pipeline.config.sync import SyncConfig
from freshet.pipeline.decode.change import Change, Dead, RawRecord, Several, Truncate
from freshet.pipeline.decode.flat import is_tombstone
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.source_table import SourceTable, table_of, table_of_record
from freshet.pipeline.query.wire.packed_rows import PackRule
from freshet.pipeline.sync.routes import EXCLUDED, route_of
from freshet.pipeline.sync.table_decoding import TableDecoding

LEFT: Final = "left to the pipeline"
HELD: Final = "held back, its table is set apart"
NOTHING: Final = "a deletion or a truncate, and there is no such table"


class Held(NamedTuple):
    """Instead of the decoding of a source table: why its records are passed over."""

    reason: str
    is_nothing: bool = False
    """Of a batch that had deletions alone when it was looked at: each record is looked at, whether it is one."""


class ManyPlan(Frozen):
    """What the decoders of a batch know: a value that travels to the workers.

    `tables` are the source tables that are known, `rules` the task of each outcome by the number of its target.
    """

    config: SyncConfig
    ledger: DecodePlan
    tables: Mapping[SourceTable, TableDecoding | Held]
    rules: tuple[PackRule, ...]
    follows_fields: bool
    guesses: bool
    only: str | None = None
    """The one target that is written, where records of others are left to the pipeline."""
    is_replay: bool = False
    """Of dead letters: those of tables that are set apart, or that no rule takes, stay dead letters."""

    def table_of(self, reading: Change | Several | Dead | Truncate, record: RawRecord) -> SourceTable | None:
        """The table of a record; None where it does not say it, and its topic may have rows that name other tables."""
        format_name = self.ledger.format
        table = table_of_record(format_name, reading.source, record.topic)
        if table is None or format_name != "debezium-unwrapped" or table_of(reading.source) is not None:
            return table
        is_row = not isinstance(reading, Dead) and not is_tombstone(record.value)
        return table if is_row or self.stands_for(table) else None

    def stands_for(self, table: SourceTable) -> bool:
        """Whether a record that is no row and does not name its table is of the one that its topic stands for."""
        return table in self.tables or route_of(self.config, table) == EXCLUDED
