"""Which records of a source are taken, by the tables that they name, and how the fast path decides it.

| only | a record of another table | one that names none |
|---|---|---|
| left out | taken; the tally names the tables, and the driver refuses a second one (`batch_check`) | taken |
| {…} | skipped, counted by the table's name | dead letter |
| any | taken, and not in the tally | taken |

Most topics hold one table. Once it is known, structs take no other (`json.structs`), which costs
nearly nothing; a record of another table then takes the careful path. Until it is known, and as soon as many records of
a block are of another one, each record is read twice: its names first (0.6 µs), then the whole, if it is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np

from freshet.pipeline.decode.change import Change, Dead, Reading, Several, Skipped, Truncate
from freshet.pipeline.decode.convert.converter import Mask
from freshet.pipeline.decode.images import Findings, RowIndexes
from freshet.pipeline.decode.inputs import Inputs
from freshet.pipeline.decode.json.schemas_seen import Group
from freshet.pipeline.decode.json.structs import Slot, can_refuse_tables
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.source_table import PARTS, UNREAD, SourceTable, TableSorter, part_names, table_of

OTHER_TABLE: Final = "another table: "
_NO_TABLE: Final = "the record does not say which table it is of, and `only` of its source asks for it"
_HOW_UNWRAPPED: Final = (
    " (add.fields=source.db,source.schema,source.table of ExtractNewRecordState; a tombstone cannot say it: "
    "delete.tombstone.handling.mode=rewrite)"
)


class TablesSeen:
    """The tables of one source, as one process has seen them."""

    def __init__(self, plan: DecodePlan) -> None:
        self._plan = plan
        self._only = plan.only
        self._sorter = TableSorter(plan.format)
        self._parts = part_names(plan.format)
        self._one: tuple[SourceTable | None] | None = None
        self._is_mixed = False
        self._seen: set[SourceTable | None] = set()
        self._no_table = _NO_TABLE + (_HOW_UNWRAPPED if plan.format == "debezium-unwrapped" else "")
        self._takes = lru_cache(1024)(self._takes_table)

    def judged(self, reading: Reading, index: int, findings: Findings) -> Reading:
        """What a record of the careful path is, once its table is taken into account."""
        if not self._plan.names_tables or isinstance(reading, Skipped):
            return reading
        table = table_of(reading.source, self._parts)
        if table is None:
            is_lost = self._only is not None and not isinstance(reading, Dead)
            return Dead(self._no_table) if is_lost else reading
        if not self._takes(table):
            return Skipped(OTHER_TABLE + str(table))
        _note(findings, table, index)
        return reading

    # --- the fast path ------------------------------------------------------------------------------------------------

    def only_of(self, inputs: Inputs, kinds: Mapping[Slot, frozenset[str]]) -> tuple[SourceTable | None] | None:
        """The one table that structs may take alone; None where they must take all, or cannot refuse others."""
        if self._one is None or not can_refuse_tables(self._plan, inputs, kinds):
            return None
        return self._one

    def must_sort(self, only: tuple[SourceTable | None] | None, inputs: Inputs) -> bool:
        """Whether records have to be sorted before structs that take `only` read them."""
        if not self._plan.names_tables or only is not None:
            return False
        # Added fields that nothing reads are refused by the struct of an unwrapped row.
        is_refused = self._plan.format == "debezium-unwrapped" and self._one == (None,)
        return not is_refused or any(each.is_member and each.name in PARTS for each in inputs.all)

    def sort(self, group: Group, findings: Findings) -> tuple[Group, RowIndexes]:
        """The records of the group that are taken, and those for the careful path."""
        tables = self._sorter.tables(group.values)
        self._seen |= set(tables) - {UNREAD}
        taken, unread = self.sort_tables(tables, group.indexes, findings)
        if taken.all():
            return group, group.indexes[:0]
        chosen = np.flatnonzero(taken).tolist()
        rest = replace(group, indexes=group.indexes[taken], values=[group.values[index] for index in chosen])
        return rest, group.indexes[unread]

    def sort_tables(
        self, tables: Sequence[SourceTable | None], indexes: RowIndexes, findings: Findings
    ) -> tuple[Mask, Mask]:
        """Which records of these tables are taken, and which are for the careful path; the others are counted."""
        if len(set(tables)) == 1 and self._is_taken(tables[0]):
            self._note_all(tables, indexes, findings)
            return np.ones(len(tables), bool), np.zeros(len(tables), bool)
        taken = np.fromiter(map(self._is_taken, tables), bool, len(tables))
        unread = np.fromiter((self._is_unread(table) for table in tables), bool, len(tables))
        for index in np.flatnonzero(~taken & ~unread).tolist():
            findings.skipped[OTHER_TABLE + str(tables[index])] += 1
        self._note_all([tables[index] for index in np.flatnonzero(taken).tolist()], indexes[taken], findings)
        return taken, unread

    def read_alone(
        self, only: tuple[SourceTable | None] | None, indexes: RowIndexes, careful: RowIndexes, findings: Findings
    ) -> None:
        """Notes the table of the records that structs of one table have read; those in `careful` they have not."""
        if only is None or only[0] is None or len(careful) == len(indexes):
            return
        if len(careful):
            indexes = np.setdiff1d(indexes, careful)
        _note(findings, only[0], int(indexes[0]))

    def is_other(self, reading: Reading) -> bool:
        """True for a record that the structs refuse because of its table."""
        if self._one is None or not isinstance(reading, Change | Several | Truncate):
            return False
        return table_of(reading.source, self._parts) != self._one[0]

    def mix(self) -> None:
        """Many records are of other tables: all are sorted from now on."""
        self._one, self._is_mixed = None, True

    def decide(self) -> bool:
        """After a block: true when structs may take one table alone from now on."""
        if self._one is not None or self._is_mixed or not self._seen:
            return False
        if len(self._seen) > 1:
            self.mix()
            return False
        (table,) = self._seen
        if not self._is_taken(table):
            return False
        self._one = (table,)
        return True

    def _is_taken(self, table: SourceTable | None) -> bool:
        return table is not UNREAD and (self._only is None if table is None else self._takes(table))

    def _is_unread(self, table: SourceTable | None) -> bool:
        return table is UNREAD or (table is None and self._only is not None)

    def _takes_table(self, table: SourceTable) -> bool:
        return self._only is None or self._only.takes(*table)

    @staticmethod
    def _note_all(tables: Sequence[SourceTable | None], indexes: RowIndexes, findings: Findings) -> None:
        for table in set(tables):
            if table is not None:
                _note(findings, table, int(indexes[tables.index(table)]))


def _note(findings: Findings, table: SourceTable, index: int) -> None:
    findings.tables[table] = min(index, findings.tables.get(table, index))
