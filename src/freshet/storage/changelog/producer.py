"""Which producer emits the changes of a compaction, by the options of the table.

| `changelog-producer` | compactions that emit |
|---|---|
| `none`, `input` | none |
| `lookup` | those above level 0 with a file of level 0 among their inputs |
| `full-compaction` | those to the highest level |

`changelog-producer.row-deduplicate`: which updates change nothing.

| values | same when |
|---|---|
| numbers, dates, times, text, binary | they are equal |
| FLOAT, DOUBLE | bits are equal; every NaN is one NaN, -0.0 is not 0.0 |
| NULL | both are NULL |
| ROW | all fields are the same, NULL fields too |
| ARRAY | lengths and all elements are the same, and no element is NULL |
| MAP | the same keys have the same values, in whatever order, and no value is NULL |

Apache Paimon 2.0.0 takes a NULL element of an array and a NULL value of a map for different from everything, itself
included; so such an update is emitted although nothing changed. Columns named by
`changelog-producer.row-deduplicate-ignore-fields` are not looked at, nor are key columns, which cannot differ.

Source: MERGING.md §4.
"""

from __future__ import annotations

from typing import Any, Final, Protocol, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from freshet._frozen import Frozen
from freshet.storage.merge.aggregate.equality import equality_codes
from freshet.storage.merge.gather import contiguous, joined_rows, take_rows
from freshet.storage.merge.key_order import Flags, KeySegments
from freshet.storage.merge.merge_function import Merged, PreviousRow, retracts, stored_columns, without_retracts
from freshet.storage.merge.row_levels import levels_of, row_of_level, row_of_lowest_level
from freshet.storage.merge.sort_words import Positions
from freshet.storage.model.nested_arrays import Nested
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.schema import VALUE_KIND_COLUMN, TableSchema
from freshet.storage.model.value_bits import fixed_width, has_fixed_width, valid_flags
from freshet.storage.options.choices import ChangelogProducer, MergeEngine
from freshet.storage.options.core import CoreOptions

_KIND_TYPE: Final = pa.int8()


def compaction_changelog(
    schema: TableSchema, options: CoreOptions, *, output_level: int, max_level: int, takes_level_0: bool
) -> CompactionChangelog | None:
    """The producer of one rewrite, or None if it emits nothing; `takes_level_0` is about its own inputs."""
    unchanged = _unchanged(schema, options)
    match options.changelog_producer:
        case ChangelogProducer.NONE | ChangelogProducer.INPUT:
            return None
        case ChangelogProducer.LOOKUP:
            if output_level == 0 or not takes_level_0:
                return None
            is_first_row = options.merge_engine is MergeEngine.FIRST_ROW
            return FirstRowChangelog() if is_first_row else LookupChangelog(unchanged)
        case ChangelogProducer.FULL_COMPACTION:
            return FullCompactionChangelog(max_level, unchanged) if output_level == max_level else None
        case unknown:
            assert_never(unknown)


def _unchanged(schema: TableSchema, options: CoreOptions) -> SameValues | None:
    if not options.changelog_row_deduplicate:
        return None
    passed_over = {*(options.changelog_row_deduplicate_ignore_fields or ()), *schema.primary_keys}
    return SameValues(tuple(name for name in schema.column_names if name not in passed_over))


class FullCompactionChangelog(Frozen):
    """The producer `full-compaction`: a compaction to the highest level, `max_level`, compares with the row that was
    there.

    Old is the row of the highest level: the state that the last full compaction left. New is what the engine makes of
    all rows of the key, a key with one row passing as it is.

    | rows of the key | old | new | changelog |
    |---|---|---|---|
    | one, at the highest level | that row | that row | none |
    | one, below | none | a row | +I new |
    | one, below | none | a retract | none |
    | several | none | a row | +I new |
    | several | none | none, or a retract | none |
    | several | a row | none, or a retract | -D old |
    | several | a row | a row | -U old, +U new; with row-deduplicate none where both are the same |

    Compactions to lower levels emit nothing: the next full one emits what they merge. A file that moves to the highest
    level as it is holds no retract and no key of that level: its rows are +I. The files belong to the COMPACT snapshot.

    Source: MERGING.md §4.2.
    """

    max_level: int
    unchanged: Unchanged | None = None

    @property
    def previous_row(self) -> PreviousRow:
        return row_of_level(self.max_level)

    def changes(self, merged: Merged) -> pa.Table:
        return _changed_rows(merged, _lowest_levels(merged.segments) < self.max_level, self.unchanged)


class LookupChangelog(Frozen):
    """The producer `lookup`, of every engine but first-row: a compaction of level 0 compares with the row that was
    above it.

    Old is the row of the lowest level at or above 1 among the compaction's inputs; where none of them has the key, the
    one that was looked up above the output level. New is what the engine makes of the rows of level 0 and the old one;
    no row passes unmerged.

    | level 0 has the key | old | new | changelog |
    |---|---|---|---|
    | no | any | any | none |
    | yes | none, or a retract | a row | +I new |
    | yes | none, or a retract | none, or a retract | none |
    | yes | a row | none, or a retract | -D old |
    | yes | a row | a row | -U old, +U new; with row-deduplicate none where both are the same |

    First-row: a key that is at any level above is not new.

    | inputs have the key above level 0, or it was found above | result | changelog |
    |---|---|---|
    | yes | the old row | none |
    | no | the first row | +I that row |

    The files belong to the COMPACT snapshot. A row of level 0 is compacted once: two compactions that take it conflict.

    Apache Paimon emits a first row that was written as +U as +U, although nothing came before it.

    Source: MERGING.md §4.3, §4.4.
    """

    unchanged: Unchanged | None = None

    @property
    def previous_row(self) -> PreviousRow:
        return row_of_lowest_level

    def changes(self, merged: Merged) -> pa.Table:
        return _changed_rows(merged, _lowest_levels(merged.segments) <= 0, self.unchanged)


class FirstRowChangelog(Frozen):
    """A `CompactionChangelog` of first-row tables; keys found above were left out before the merge."""

    @property
    def previous_row(self) -> PreviousRow:
        return row_of_lowest_level

    def changes(self, merged: Merged) -> pa.Table:
        return _changed_rows(merged, merged.previous < 0)


def _lowest_levels(segments: KeySegments) -> Positions:
    """By key: the lowest level that has a row of it; level 0 and the buffer are 0 or less."""
    if not len(segments.starts):
        return np.zeros(0, np.int64)
    lowest: Positions = np.minimum.reduceat(levels_of(segments.rows)[segments.order], segments.starts)
    return lowest


class CompactionChangelog(Protocol):
    """What a compaction emits of its changes."""

    @property
    def previous_row(self) -> PreviousRow:
        """Which of a key's rows is the old one; a merge must get this rule before its changes are asked for."""
        ...

    def changes(self, merged: Merged) -> pa.Table:
        """The changelog rows of a round of merging, in key order; system columns first."""
        ...


class Unchanged(Protocol):
    """Compares pairs of rows."""

    def pairs(self, old: pa.Table, old_rows: Positions, new: pa.Table, new_rows: Positions) -> Flags:
        """True where `old[old_rows[i]]` is the same as `new[new_rows[i]]`."""
        ...


def _changed_rows(merged: Merged, touched: Flags, unchanged: Unchanged | None = None) -> pa.Table:
    """The changelog rows of the keys touched, whose rows before and after a merge are known; of updates that are
    `unchanged` none.

    | row before | row after | changelog rows, in key order |
    |---|---|---|
    | nothing, or a retract | nothing, or a retract | none |
    | nothing, or a retract | a row | +I the new row |
    | a row | nothing, or a retract | -D the old row |
    | a row | a row | -U the old row, then +U the new one |

    Each changelog row has the sequence number of its record: the old one's, or that of the merged one. The values of -D
    are those of the old row, whatever the delete brought.

    Source: MERGING.md §4.
    """
    has_new = touched & without_retracts(merged.kinds)
    has_old = touched & (merged.previous >= 0)
    if has_old.any():
        has_old &= ~retracts(merged.segments.rows)[merged.previous]
    updates = has_old & has_new
    if unchanged is not None and updates.any():
        before, after = merged.previous[updates], merged.positions[updates]
        emits = ~unchanged.pairs(merged.segments.rows, before, merged.rows, after)
        has_old[updates] = emits
        has_new[updates] = emits
    return _joined(merged, has_old, has_new)


def with_kind(rows: pa.Table, kinds: npt.NDArray[np.int8]) -> pa.Table:
    """The rows with other kinds."""
    index = rows.schema.get_field_index(VALUE_KIND_COLUMN)
    return rows.set_column(index, rows.schema.field(index), pa.array(kinds, _KIND_TYPE))


def _joined(merged: Merged, old: Flags, new: Flags) -> pa.Table:
    """The old rows of some keys and the new rows of some keys, the old one of a key first."""
    after = take_rows(merged.rows, merged.positions[new])
    kinds_after = np.where(old[new], RowKind.UPDATE_AFTER, RowKind.INSERT).astype(np.int8)
    if not old.any():
        return with_kind(after, kinds_after)
    before = take_rows(merged.segments.rows, merged.previous[old], merged.rows.column_names)
    kinds_before = np.where(new[old], RowKind.UPDATE_BEFORE, RowKind.DELETE).astype(np.int8)
    ends = np.cumsum(old.astype(np.int64) + new)
    # A key's last row is the new one where it has one; the old row is right before it.
    positions = np.concatenate([ends[old] - 1 - new[old], ends[new] - 1])
    order = np.empty(len(positions), np.int64)
    order[positions] = np.arange(len(positions))
    joined = take_rows(joined_rows(before, after, after.schema), order)
    return with_kind(joined, np.concatenate([kinds_before, kinds_after])[order])


def input_rows(segments: KeySegments) -> pa.Table:
    """The changelog of the producer `input`: all rows of a buffer in order, as they were written.

    | rows of a key in one flush | changelog | level 0 |
    |---|---|---|
    | any number, any kinds | all of them, kinds and values as written | what they merge to |

    Rows are in the order in which they are merged: by key, then sequence fields, then arrival. What the table held
    before is not looked at, so the input must bring -U and -D itself; rows of ignored kinds (`ignore-delete`,
    `ignore-update-before`) are in neither. The files belong to the APPEND snapshot.

    Source: MERGING.md §1.2, §4.1.
    """
    return take_rows(segments.rows, segments.order, stored_columns(segments.rows))


class SameValues(Frozen):
    """An `Unchanged` that compares these columns."""

    columns: tuple[str, ...]

    def pairs(self, old: pa.Table, old_rows: Positions, new: pa.Table, new_rows: Positions) -> Flags:
        result = np.ones(len(old_rows), np.bool_)
        left = np.arange(len(old_rows))
        for name in self.columns:
            if not len(left):
                break
            same = same_values(_taken(old, name, old_rows[left]), _taken(new, name, new_rows[left]))
            result[left[~same]] = False
            left = left[same]
        return result


def same_values(left: pa.Array[Any], right: pa.Array[Any]) -> Flags:
    """True where both values are the same by the table above; the arrays have one type and length."""
    if pt.is_nested(left.type):
        codes = equality_codes(pa.concat_arrays([left, right]))
        same: Flags = codes[: len(left)] == codes[len(left) :]
        return same & ~_has_null_part(left)
    left_valid, right_valid = valid_flags(left), valid_flags(right)
    if has_fixed_width(left.type):
        left_bits, right_bits = fixed_width(left), fixed_width(right)
        equal: Flags = np.equal(left_bits, right_bits).reshape(len(left), -1 if len(left) else 1).all(axis=1)
        if pt.is_floating(left.type):
            equal |= np.isnan(_floats(left_bits)) & np.isnan(_floats(right_bits))
    else:
        equal = pc.equal(left, right).fill_null(False).to_numpy(zero_copy_only=False)
    return np.where(left_valid & right_valid, equal, left_valid == right_valid)


def _floats(bits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return bits.view({2: np.float16, 4: np.float32, 8: np.float64}[bits.itemsize])


def _has_null_part(values: pa.Array[Any]) -> Flags:
    """True where an array element or a map value is NULL, at any depth."""
    whole = Nested.of(values)
    last = whole.children[-1]
    broken = np.zeros(len(last), np.bool_) if whole.offsets is None else ~valid_flags(last)
    for child in whole.children:
        if pt.is_nested(child.type):
            broken |= _has_null_part(child)
    if whole.offsets is None:
        return broken
    before = np.append(0, np.cumsum(broken))
    holds: Flags = before[whole.offsets[1:]] > before[whole.offsets[:-1]]
    return holds


def _taken(rows: pa.Table, name: str, positions: Positions) -> pa.Array[Any]:
    return contiguous(rows.column(name)).take(pa.array(positions))
