"""What of a buffer's rows may be merged into one row of level 0, and what lies in files of its own.

A flush merges the rows of a key before the older ones of the bucket are at hand. What follows a retract then goes into
another file than the retract, of the same commit and with larger numbers, so that each merge that sees both sees the
older rows too, or keeps the two apart (`options.retracts` says which retracts, `compact.folding` how compactions obey):

    rows of a key, in order          -D   +I   -D   +I   +U        -U   +U   -U   +U
    layer, -D removing the row        0    0    0    1    1
    layer, retracts alone                                           0    1    2    3

Rows before the last -D that removes are gone with it. A key with more layers than `LAYERS_MAX` has the rest of its rows
merged into the last one: what they retract was mostly written by the same commit.

Values that do not count are blank before rows are merged; changelogs of the input have the rows as they came.

Source: MERGING.md §2.4 to §2.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.merge.key_order import Flags, KeySegments
from freshet.storage.merge.key_rows import last_marked
from freshet.storage.merge.merge_function import kinds_of
from freshet.storage.merge.row_levels import with_rows
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.retracts import Blank, RetractRule
from freshet.storage.write.records import blank_of

LAYERS_MAX: Final = 16
"""Level-0 files of one flush."""


@dataclass(frozen=True, slots=True)
class RetractLayers:
    """Blanks and cuts the rows of one table; `cuts` is False where files of a commit have no order."""

    schema: TableSchema
    rule: RetractRule
    cuts: bool

    def of(self, segments: KeySegments) -> Iterator[tuple[int, KeySegments]]:
        """The rows of each layer that has some, from the first on, as segments that are merged apart."""
        blanked = replace(segments, rows=self.blanked(segments.rows))
        layers = self._numbers(segments) if self.cuts and self.rule.needs_older_rows else None
        if layers is None or not layers.any():
            yield 0, blanked
            return
        for number in range(int(layers.max()) + 1):
            yield number, replace(with_rows(blanked, layers == number), never_lone=None)

    def blanked(self, rows: pa.Table) -> pa.Table:
        """The rows without the values that do not count."""
        kinds = kinds_of(rows)
        for blank in self.rule.blanks:
            chosen = _chosen(rows, kinds, blank)
            for name in blank.columns if chosen.any() else ():
                field = self.schema.by_name[name]
                goal = arrow_type(field.type)
                empty = pa.scalar(None if field.type.nullable else blank_of(field.type), goal)
                position = rows.schema.get_field_index(name)
                column: Any = pc.if_else(pa.array(chosen), empty, rows.column(position))
                rows = rows.set_column(position, rows.schema.field(position), column)
        return rows

    def _numbers(self, segments: KeySegments) -> npt.NDArray[np.int64]:
        """The layer of each row, in row order."""
        kinds = kinds_of(segments.rows)[segments.order]
        alone = np.isin(kinds, self.rule.alone) if self.rule.alone else np.zeros(len(kinds), np.bool_)
        removes = kinds == RowKind.DELETE if self.rule.removes else np.zeros(len(kinds), np.bool_)
        begins = alone.copy()
        begins[1:] |= alone[:-1] | removes[:-1]
        last_removal = last_marked(removes, segments.starts, segments.ends)
        begins &= np.arange(len(kinds)) > np.repeat(last_removal, segments.counts)
        begins[segments.starts] = False
        numbers = np.cumsum(begins)
        numbers -= np.repeat(numbers[segments.starts], segments.counts)
        return np.minimum(numbers, LAYERS_MAX - 1)


def retract_layers(store: TableStore) -> RetractLayers | None:
    """Those of a table; None where rows of a buffer are merged as they came."""
    rule = store.retract_rule
    if rule is None:
        return None
    return RetractLayers(store.schema, rule, cuts=not store.options.sequence_snapshot_ordering)


def _chosen(rows: pa.Table, kinds: npt.NDArray[np.int8], blank: Blank) -> Flags:
    chosen: Flags = np.isin(kinds, blank.kinds)
    for name in blank.nulls:
        chosen &= rows.column(name).is_null().to_numpy()
    if blank.values:
        chosen &= np.logical_or.reduce([rows.column(name).is_valid().to_numpy() for name in blank.values])
    return chosen
