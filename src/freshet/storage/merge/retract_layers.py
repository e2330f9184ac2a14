"""What of a key's rows may be merged into one row while older rows of the key lie below, and what is kept apart.

A flush merges rows before the older ones of the bucket are at hand, and so do compactions that do not reach the oldest
run. What follows a retract then goes into another file than the retract, with larger numbers, so that whoever merges
sees both and the older rows (`options.retracts` says which retracts, `compact.picker` which compactions):

    rows of a key, in order          -D   +I   -D   +I   +U        -U   +U   -U   +U
    depth, -D removing the row        1    1    1    0    0
    depth, retracts alone                                           3    2    1    0

Depth 0 is the newest file, which has the keys that are not cut too. Rows before the last -D that removes are gone with
it. A key that would need more than `LAYERS_MAX` files has the rest of its rows, from an add on, merged into the newest:
what they retract was mostly written by the same commit.

Values that do not count are blank before rows are merged; changelogs of the input have the rows as they came.

Source: MERGING.md §2.4 to §2.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.storage.merge.key_order import Flags, KeySegments
from freshet.storage.merge.key_rows import last_marked, merged_rows
from freshet.storage.merge.merge_function import kinds_of
from freshet.storage.merge.row_levels import with_rows
from freshet.storage.merge.sequence_groups import group_order, rows_removing_records
from freshet.storage.model.arrow_types import arrow_type, empty_value
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.retracts import Blank, RetractRule

LAYERS_MAX: Final = 16


class RetractLayers(Frozen):
    """Blanks and cuts the rows of one table; `cuts` is False where files of a commit have no order."""

    schema: TableSchema
    rule: RetractRule
    cuts: bool

    @property
    def count(self) -> int:
        """Files that rows of a key may be in."""
        if not (self.cuts and self.rule.needs_older_rows):
            return 1
        return LAYERS_MAX if self.rule.alone else 2

    def of(self, segments: KeySegments) -> Iterator[tuple[int, KeySegments]]:
        """The rows of each depth, as segments that are merged apart, the oldest first."""
        depths = self._depths(segments) if self.count > 1 else None
        if depths is None or not depths.any():
            yield 0, segments
            return
        for depth in range(int(depths.max()), -1, -1):
            own = replace(with_rows(segments, depths == depth), never_lone=None)
            if len(own.starts):
                yield depth, own

    def blanked(self, rows: pa.Table) -> pa.Table:
        """The rows without the values that do not count."""
        kinds = kinds_of(rows)
        for blank in self.rule.blanks:
            chosen = _chosen(rows, kinds, blank)
            for name in blank.columns if chosen.any() else ():
                field = self.schema.by_name[name]
                goal = arrow_type(field.type)
                empty = pa.scalar(None if field.type.nullable else empty_value(field.type), goal)
                position = rows.schema.get_field_index(name)
                column: Any = pc.if_else(pa.array(chosen), empty, rows.column(position))
                rows = rows.set_column(position, rows.schema.field(position), column)
        return rows

    def _depths(self, segments: KeySegments) -> npt.NDArray[np.int64]:
        """How many cuts are behind each row, in row order."""
        kinds = kinds_of(segments.rows)[segments.order]
        alone = np.isin(kinds, self.rule.alone) if self.rule.alone else np.zeros(len(kinds), np.bool_)
        removes = self._removing(segments, kinds)
        begins = alone.copy()
        begins[1:] |= alone[:-1] | removes[:-1]
        last_removal = last_marked(removes, segments.starts, segments.ends)
        begins &= np.arange(len(kinds)) > np.repeat(last_removal, segments.counts)
        begins[segments.starts] = False
        layers: npt.NDArray[np.int64] = np.cumsum(begins, dtype=np.int64)
        layers -= np.repeat(layers[segments.starts], segments.counts)
        for key in np.flatnonzero(layers[segments.ends - 1] >= LAYERS_MAX).tolist():
            rows = slice(int(segments.starts[key]), int(segments.ends[key]))
            layers[rows] = _capped(layers[rows], alone[rows])
        return np.repeat(layers[segments.ends - 1], segments.counts) - layers

    def _removing(self, segments: KeySegments, kinds: npt.NDArray[np.int8]) -> Flags:
        """True for rows that remove the row, with all that lies before them."""
        is_delete: Flags = kinds == RowKind.DELETE
        if self.rule.removes:
            return is_delete
        if not self.rule.removing_groups or not is_delete.any():
            return np.zeros(len(kinds), np.bool_)
        keys = merged_rows(segments, passes_lone_rows=False)
        orders = {group: group_order(keys, group.ordering) for group in self.rule.removing_groups}
        is_start = np.zeros(len(kinds), np.bool_)
        is_start[segments.starts] = True
        return rows_removing_records(keys, orders, is_start)[0]


def _capped(layers: npt.NDArray[np.int64], alone: Flags) -> npt.NDArray[np.int64]:
    """The layers of a key that has too many, the last of which begins with an add: what is retracted there finds it."""
    firsts = np.searchsorted(layers, np.arange(LAYERS_MAX))
    last = next((each for each in range(LAYERS_MAX - 1, 0, -1) if not alone[firsts[each]]), LAYERS_MAX - 1)
    return np.minimum(layers, last)


def deletes_with_values(rows: pa.Table, rule: RetractRule, schema: TableSchema) -> int:
    """How many rows of kind -D have a value where none counts; NOT NULL columns always have one."""
    kinds = kinds_of(rows)
    has_value = np.zeros(len(kinds), np.bool_)
    for blank in rule.blanks:
        chosen = _chosen(rows, kinds, blank) & (kinds == RowKind.DELETE)
        for name in blank.columns if chosen.any() else ():
            if schema.by_name[name].type.nullable:
                has_value |= chosen & rows.column(name).is_valid().to_numpy()
    return int(has_value.sum())


def _chosen(rows: pa.Table, kinds: npt.NDArray[np.int8], blank: Blank) -> Flags:
    chosen: Flags = np.isin(kinds, blank.kinds)
    for name in blank.nulls:
        chosen &= rows.column(name).is_null().to_numpy()
    if blank.values:
        chosen &= np.logical_or.reduce([rows.column(name).is_valid().to_numpy() for name in blank.values])
    return chosen
