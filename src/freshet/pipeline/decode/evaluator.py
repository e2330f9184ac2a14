"""What becomes of changes whose values a parser gives as columns: images of rows, dead letters, skipped records.

    block ─ parser (`json`, `avro`) ─ ParsedChanges ─ Evaluator ─┬─ images
                                                                 └─ what is left to the careful path

| left to the careful path |
|---|
| no change, no row, a deletion where the table has no key |
| an update of another key, or without the row before it where values are added up |
| an unavailable value that `before` may have, that is needed, or of a row that is no update |
| a value that its conversion does not take, unless no form of its type does: then it is a dead letter of its column |

Only the row of such a value pays for it; of several in a row the first counts, as in the careful path. Of deletions,
for which values that are not vital may be lost, the careful path decides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, Self

import msgspec
import numpy as np
import pyarrow as pa

from freshet.pipeline.decode.careful import LEFT_NOTE, UNKNOWN_NOTE
from freshet.pipeline.decode.change import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from freshet.pipeline.decode.convert.converter import LOST, Converter, Mask, Values
from freshet.pipeline.decode.images import Cause, Findings, Images, Note, RowIndexes, Subs
from freshet.pipeline.decode.inputs import Inputs
from freshet.pipeline.decode.json_value import JsonNumber, parse_json
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.record_block import RecordBlock
from freshet.pipeline.decode.row_rules import Kinds
from freshet.pipeline.decode.source_table import SourceTable

NO_KIND: Final = -1
"""In place of the kind of a record that is no plain change."""


@dataclass(slots=True)
class InputColumn:
    """The values of one input in some rows, converted; what a mask does not say is said of no row."""

    array: pa.Array
    lost: Mask | None = None
    """Values that the conversion did not take."""
    cells: Values | None = None
    """The values as they were decoded; None where that does not tell whether some form of the type takes them."""
    gone: Mask | None = None
    """Unavailable values (unchanged TOAST), which are NULL in the array."""
    kept: Mask | None = None
    """Unavailable values that the row before may have."""
    unclear: Mask | None = None
    """Rows that the careful path has to look at."""
    absent: Mask | None = None
    """Rows that lack the field, where its column has a default."""
    misfit: str | None = None
    """Why a record with a value that is lost is a dead letter, where the careful path would not take it either."""


Metadata = tuple[pa.Array | None, pa.Array | None, pa.Array | None]
"""`_op`, `_ts_ms` and `_source` where they are read, else None."""


class ParsedChanges(Protocol):
    """The rows of some records, in the order of these. A record that has several rows is here several times."""

    records: RowIndexes
    """Indexes in the block."""
    kinds: Kinds

    def taken(self, rows: RowIndexes) -> Self:
        """Some of them."""

    def rows_lacking(self) -> Mask | None:
        """The records without a row, if there are any."""

    def have_before(self, rows: RowIndexes) -> Mask:
        """Which of these rows have a row before them."""

    def have_same_key(self, rows: RowIndexes) -> Mask:
        """Which of these rows, with one before each, have its key."""

    def lack_before(self, rows: RowIndexes) -> Sequence[int]:
        """The rows among these whose row before lacks a field that they have."""

    def columns(self) -> Sequence[InputColumn]:
        """The column of each input."""

    def columns_before(self, rows: RowIndexes) -> Sequence[InputColumn]:
        """The same of the rows before these, which all have one."""

    def unknown(self) -> Mapping[str, Mask]:
        """The fields that nothing reads, as notes show them, and the rows that have them."""

    def metadata(self) -> Metadata:
        """What expressions and columns read of the records."""


class RecordParser(ABC):
    """Reads the records of one source as changes in columns, and has them evaluated."""

    @abstractmethod
    def read(self, block: RecordBlock, indexes: RowIndexes, findings: Findings) -> tuple[list[Images], RowIndexes]:
        """The images of the records at these indexes of a block, and the other records, which take the careful path;
        those that are skipped or dead letters are put into `findings`."""

    def can_presume(self) -> bool:
        """Whether it can refuse records of any table but one before it reads them."""
        return False

    def read_presumed(
        self, block: RecordBlock, table: SourceTable, findings: Findings
    ) -> tuple[list[Images], RowIndexes]:
        """The images of the records that are taken for changes of this table, and the indexes of all others whose
        values are not NULL."""
        raise AssertionError("only where `can_presume` says so")


@dataclass(slots=True)
class Evaluated:
    """What is known of some records: their images, those that are done with, how many were skipped and why, and the
    dead letters. All records that are not done with take the careful path."""

    images: list[Images] = field(default_factory=list)
    done: list[RowIndexes] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    dead: dict[int, Cause] = field(default_factory=dict)


class Evaluator:
    """Evaluates changes of one source under one set of facts."""

    def __init__(self, plan: DecodePlan, inputs: Inputs) -> None:
        self._plan, self._inputs = plan, inputs
        self._left_null = {column.only_field for column in plan.columns if column.keeps_on_null}
        self._needed = {
            name
            for column in plan.columns
            if column.payload_fields and (column.only_field is None or column.is_key)
            for name in column.payload_fields
        }

    def evaluate(self, changes: ParsedChanges) -> Evaluated:
        """What becomes of the changes."""
        found = Evaluated()
        odd = self._odd(changes)
        reason, ignored = self._ignored(changes.kinds)
        ignored &= ~odd
        if ignored.any():
            skipped = np.unique(changes.records[ignored])
            found.skipped[reason] = len(skipped)
            found.done.append(skipped)
        chosen = ~(odd | ignored)
        if not chosen.all():
            changes = changes.taken(np.flatnonzero(chosen))
        if len(changes.records):
            bad = self._images(changes, found)
            found.done += [changes.records[~bad], np.fromiter(found.dead, np.int64, len(found.dead))]
        return found

    def _odd(self, changes: ParsedChanges) -> Mask:
        """The changes that take the careful path because of their kind, image or key."""
        plan, kinds = self._plan, changes.kinds
        odd: Mask = kinds == NO_KIND
        lacking = changes.rows_lacking()
        if lacking is not None:
            odd |= lacking
        if not plan.has_key:
            odd |= (kinds == DELETE) | (kinds == UPDATE_BEFORE)
        if plan.splits_updates:
            updates = np.flatnonzero((kinds == UPDATE_AFTER) & ~odd)
            has_before = changes.have_before(updates)
            odd[updates[~has_before]] = bool(plan.added_up) and plan.takes_before
            both = updates[has_before]
            odd[both] = ~changes.have_same_key(both)
        return _of_whole_records(changes.records, odd) if plan.has_several_rows else odd

    def _ignored(self, kinds: Kinds) -> tuple[str, Mask]:
        """The rows that the table ignores, and why."""
        if self._plan.ignores_deletes:
            return "ignore-delete", (kinds == DELETE) | (kinds == UPDATE_BEFORE)
        if self._plan.ignores_update_before:
            return "ignore-update-before", kinds == UPDATE_BEFORE
        return "", np.zeros(len(kinds), bool)

    # --- images -------------------------------------------------------------------------------------------------------

    def _images(self, changes: ParsedChanges, found: Evaluated) -> Mask:
        """Which of the changes have no image; those of all others, and dead letters, are put into `found`."""
        plan, records, count = self._plan, changes.records, len(changes.records)
        bad = np.zeros(count, bool)
        splits: RowIndexes | None = None
        if plan.takes_before and plan.splits_updates:
            updates = np.flatnonzero(changes.kinds == UPDATE_AFTER)
            splits = updates[changes.have_before(updates)]
            bad[changes.lack_before(splits)] = True
        columns = changes.columns()
        missing = self._missing(changes, columns, bad)
        self._find_misfits(changes, columns, bad, found.dead)
        old = None
        if splits is not None and len(splits):
            old = changes.columns_before(splits)
            for mask in (mask for each in old for mask in (each.lost, each.gone, each.unclear) if mask is not None):
                bad[splits[mask]] = True
        if plan.has_several_rows:
            bad = _of_whole_records(records, bad)
        if bad.all():
            return bad
        places = _places_of(records) if plan.has_several_rows else np.zeros(count, np.int64)
        befores = (2 * places).astype(np.int32)
        afters = befores.copy()
        if splits is not None:
            afters[splits] += 1
        kinds = changes.kinds if plan.has_key else np.zeros(count, np.int8)
        absent = {index: each.absent for index, each in enumerate(columns) if each.absent is not None}
        arrays = [each.array for each in columns]
        images = Images(records, kinds, afters, arrays, *changes.metadata(), missing, absent=absent)
        if old is not None and splits is not None:
            images = _with_rows_before(images, [each.array for each in old], splits, befores, bad)
        elif bad.any():
            images = at_rows(images, np.flatnonzero(~bad))
        if plan.has_several_rows:
            images = replace(images, subs=_ranks_of(images.records, images.subs))
        notes = [Note(UNKNOWN_NOTE + name, np.unique(records[rows & ~bad])) for name, rows in changes.unknown().items()]
        found.images.append(replace(images, notes=[*notes, *self._left_notes(images)]))
        return bad

    def _missing(self, changes: ParsedChanges, columns: Sequence[InputColumn], bad: Mask) -> dict[int, Mask]:
        """Where values are unavailable and stay as stored; `bad` are those that the careful path has to look at."""
        plan, kinds = self._plan, changes.kinds
        missing: dict[int, Mask] = {}
        for index, each in enumerate(columns):
            if each.unclear is not None:
                bad |= each.unclear
            if each.gone is None or not each.gone.any():
                continue
            rows = np.flatnonzero(each.gone)
            left = kinds[rows] == DELETE
            if plan.has_envelope:
                left |= kinds[rows] == INSERT
            if plan.takes_before:
                left |= changes.have_before(rows)
            if each.kept is not None:
                left |= each.kept[rows]
            if self._inputs.all[index].name in self._needed or not plan.has_key:
                left[:] = True
            bad[rows[left]] = True
            if not left.all():
                missing[index] = each.gone.copy()
                missing[index][rows[left]] = False
        return missing

    def _find_misfits(
        self, changes: ParsedChanges, columns: Sequence[InputColumn], bad: Mask, dead: dict[int, Cause]
    ) -> None:
        """Marks the rows with a value that does not convert; some of these are dead letters."""
        lost = [(index, each) for index, each in enumerate(columns) if each.lost is not None and each.lost.any()]
        if not lost:
            return
        may_be_dead = ~bad & (changes.kinds != DELETE)
        if self._plan.has_several_rows:
            may_be_dead &= _is_alone(changes.records)  # Of others the first row that does not fit decides.
        decided: set[int] = set()
        for index, each in lost:
            assert each.lost is not None
            bad |= each.lost
            given = self._inputs.all[index]
            for row in np.flatnonzero(each.lost & may_be_dead).tolist():
                if row in decided:
                    continue
                decided.add(row)
                if each.misfit is not None:
                    dead[int(changes.records[row])] = (each.misfit, given.column)
                elif each.cells is not None and _is_lost(given.converter, each.cells[row]):
                    dead[int(changes.records[row])] = (given.reason, given.column)

    def _left_notes(self, images: Images) -> list[Note]:
        names = {index: self._inputs.all[index].name for index in images.missing}
        return [
            Note(LEFT_NOTE + name, images.records[images.missing[index]])
            for index, name in names.items()
            if name in self._left_null
        ]


def _is_lost(converter: Converter, value: object) -> bool:
    """True when no form of the type takes the value; false also where what was decoded does not decide it."""
    if isinstance(value, msgspec.Raw):
        try:
            return converter.one(parse_json(bytes(value).decode())) is LOST
        except RecursionError:
            return False
    if isinstance(value, int) and not isinstance(value, bool):
        return converter.one(JsonNumber(value)) is LOST
    return isinstance(value, str) and converter.one(value) is LOST


def _with_rows_before(images: Images, old: Sequence[pa.Array], splits: RowIndexes, befores: Subs, bad: Mask) -> Images:
    """The images that are not bad, and those of the rows before `splits`, whose inputs are `old`, with these subs."""
    count = len(bad)
    kept, wanted = np.flatnonzero(~bad), splits[~bad[splits]]
    position = np.full(count, -1)
    position[splits] = np.arange(count, count + len(splits))
    take: pa.Array = pa.array(np.concatenate([kept, position[wanted]]))
    return replace(
        at_rows(replace(images, inputs=()), np.concatenate([kept, wanted])),
        kinds=np.concatenate([images.kinds[kept], np.full(len(wanted), UPDATE_BEFORE, np.int8)]),
        subs=np.concatenate([images.subs[kept], befores[wanted]]),
        inputs=[pa.concat_arrays([after, before]).take(take) for after, before in zip(images.inputs, old, strict=True)],
        missing=_with_none(images.missing, kept, len(wanted)),
        absent=_with_none(images.absent, kept, len(wanted)),
    )


def at_rows(images: Images, rows: RowIndexes) -> Images:
    """The images of some rows."""
    take: pa.Array = pa.array(rows)
    return Images(
        records=images.records[rows],
        kinds=images.kinds[rows],
        subs=images.subs[rows],
        inputs=[array.take(take) for array in images.inputs],
        ops=_taken(images.ops, take),
        ts_ms=_taken(images.ts_ms, take),
        sources=_taken(images.sources, take),
        missing={index: mask[rows] for index, mask in images.missing.items()},
        absent={index: mask[rows] for index, mask in images.absent.items()},
    )


def _with_none(masks: Mapping[int, Mask], kept: RowIndexes, more: int) -> dict[int, Mask]:
    return {index: np.concatenate([mask[kept], np.zeros(more, bool)]) for index, mask in masks.items()}


def _taken(array: pa.Array, take: pa.Array) -> pa.Array:
    return None if array is None else array.take(take)


# --- records of several rows, which are next to one another -----------------------------------------------------------


def _places_of(records: RowIndexes) -> RowIndexes:
    """The place of each row in its record, from 0."""
    rows = np.arange(len(records))
    is_first = np.ones(len(records), bool)
    is_first[1:] = records[1:] != records[:-1]
    places: RowIndexes = rows - np.maximum.accumulate(np.where(is_first, rows, 0))
    return places


def _is_alone(records: RowIndexes) -> Mask:
    """The rows that are the only one of their record."""
    differs = records[1:] != records[:-1]
    alone = np.ones(len(records), bool)
    alone[1:] &= differs
    alone[:-1] &= differs
    return alone


def _of_whole_records(records: RowIndexes, rows: Mask) -> Mask:
    """All rows of the records of which one is marked."""
    return np.isin(records, records[rows]) if rows.any() else rows


def _ranks_of(records: RowIndexes, order: Subs) -> Subs:
    """The rank of each row among those of its record, by `order`; here the rows may come in any sequence."""
    by_place = np.lexsort((order, records))
    ranks = np.empty(len(records), np.int32)
    ranks[by_place] = _places_of(records[by_place])
    return ranks
