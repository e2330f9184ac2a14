"""Reads records by the fast path, and says which are left to the careful one.

These are left, record by record: no JSON, a type that the field's conversion does not take, a field that is not known
yet, no change, another key in `before`, an unavailable value that `before` has, a value that does not fit.

Measured (ten columns, 587-byte envelopes, a core that was not quiet): 4.7 µs of CPU per record all in, half of it
msgspec, the rest the transposition of structs into columns and their Arrow arrays. Python's collector must be off
meanwhile (`decoder` sees to it), or it doubles the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from freshet.pipeline.decode.careful import LEFT_NOTE, UNKNOWN_NOTE
from freshet.pipeline.decode.change import DELETE, UPDATE_AFTER, UPDATE_BEFORE
from freshet.pipeline.decode.convert.converter import Mask
from freshet.pipeline.decode.fast.changes import ChangeReader, Changes
from freshet.pipeline.decode.fast.columns import ColumnReader, Columns, without_unset
from freshet.pipeline.decode.fast.misfits import Cells, causes_of, paths_of
from freshet.pipeline.decode.fast.places import is_alone, of_whole_records, places_of, ranks_of
from freshet.pipeline.decode.fast.structs import ROW_PATHS, Slot, build_structs, slots_of
from freshet.pipeline.decode.fast.unavailable import UnavailableValues
from freshet.pipeline.decode.images import Cause, Images, Note, RowIndexes
from freshet.pipeline.decode.inputs import Inputs
from freshet.pipeline.decode.json_value import ALL_KINDS
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.source_table import SourceTable

_NO_PLACES: Final = np.zeros(0, np.int64)

_DETOUR_LEAST: Final = 16
"""Fewer records of a block take the careful path: the columns of a detour cost as much as these."""
_DETOUR_DEPTH: Final = 2
"""Fields of one record that may be refused."""
_DETOURS_MAX: Final = 16
"""Fields for which a reader has a detour."""


@dataclass(frozen=True, slots=True)
class FastRead:
    """What was read: images, indexes that take the careful path, how many were skipped by reason, and dead letters.

    `detoured` are the indexes of records that were read by a detour, and fit.
    """

    images: tuple[Images, ...]
    careful: RowIndexes
    skipped: Mapping[str, int]
    dead: Mapping[int, Cause]
    detoured: RowIndexes


class FastReader:
    """Reads records of one shape: one set of facts, one type per field."""

    def __init__(
        self,
        plan: DecodePlan,
        inputs: Inputs,
        kinds: Mapping[Slot, frozenset[str]],
        unknown: Sequence[str],
        detour_depth: int = _DETOUR_DEPTH,
        only: tuple[SourceTable | None] | None = None,
    ) -> None:
        """With `only`, records of any other table are left to the careful path."""
        self._plan, self._inputs = plan, inputs
        self.only = only
        self._kinds, self._unknown, self._detour_depth = dict(kinds), list(unknown), detour_depth
        self._detours: dict[Slot, FastReader] = {}
        self._paths = paths_of(slots_of(inputs), ROW_PATHS[plan.format]) if detour_depth else {}
        structs = build_structs(plan, inputs, kinds, unknown, only)
        self._conversions = structs.conversions
        self._changes = ChangeReader(plan, structs)
        self._columns = ColumnReader(plan, inputs, structs)
        self._unavailable = UnavailableValues(plan, inputs, structs)
        self._left_null = {column.only_field for column in plan.columns if column.keeps_on_null}

    def read(self, values: Sequence[Any], indexes: RowIndexes) -> FastRead:
        """Reads the records at `indexes` of the block."""
        found, failed = self._changes.read(values, indexes)
        odd = self._changes.odd(found)
        reason, ignored = self._changes.ignored(found.kinds)
        ignored &= ~odd
        done = [np.unique(found.indexes[ignored])]
        skipped = Counter({reason: len(done[0])} if len(done[0]) else {})
        if odd.any() or ignored.any():
            found.keep(~odd & ~ignored)
        images: list[Images] = []
        dead: dict[int, Cause] = {}
        detoured: list[RowIndexes] = []
        if len(found.indexes):
            of_all, bad = self._images(found, dead)
            images += [of_all] if of_all is not None else []
            done.append(found.indexes[~bad])
        for slot, rows in self._refused(failed).items():
            reader = self._detour(slot, len(rows))
            if reader is None:
                continue
            again = reader.read([values[row] for row in rows], indexes[rows])
            images += again.images
            skipped.update(again.skipped)
            dead |= again.dead
            taken = np.setdiff1d(indexes[rows], again.careful)
            done.append(taken)
            detoured.append(np.setdiff1d(taken, list(again.dead)))
        done.append(np.fromiter(dead, np.int64, len(dead)))
        is_done = np.zeros(len(indexes), bool)
        is_done[np.searchsorted(indexes, np.concatenate(done))] = True
        by_detour = np.sort(np.concatenate(detoured)) if detoured else _NO_PLACES
        return FastRead(tuple(images), indexes[~is_done], skipped, dead, by_detour)

    # --- detours -----------------------------------------------------------------------------------------------------

    def _refused(self, failed: Mapping[int, str | None]) -> dict[Slot, list[int]]:
        """The records that were refused for a field of the row, by that field."""
        refused: dict[Slot, list[int]] = {}
        for index, path in failed.items():
            slot = self._paths.get(path) if path is not None else None
            if slot is not None:
                refused.setdefault(slot, []).append(index)
        return refused

    def _detour(self, slot: Slot, count: int) -> FastReader | None:
        """The reader that keeps one more field raw; None where the careful path costs less, or there are too many."""
        found = self._detours.get(slot)
        if count < _DETOUR_LEAST or (found is None and len(self._detours) >= _DETOURS_MAX):
            return None
        if found is None:
            kinds = {**self._kinds, slot: ALL_KINDS}
            found = FastReader(self._plan, self._inputs, kinds, self._unknown, self._detour_depth - 1, self.only)
            self._detours[slot] = found
        return found

    # --- images ------------------------------------------------------------------------------------------------------

    def _images(self, found: Changes, dead: dict[int, Cause]) -> tuple[Images | None, Mask]:
        """The images, and the records among them that have none; those that are dead letters are put into `dead`."""
        count = len(found.indexes)
        bad = np.zeros(count, bool)
        columns = self._columns.read(found)
        unknown = self._columns.unknown(found)
        splits: RowIndexes | None = None
        if self._plan.takes_before and found.befores is not None and self._plan.splits_updates:
            splits = self._splits(found, bad)
        absent = self._columns.absent(columns)
        if absent or splits is not None:
            columns = without_unset(columns)
        new, missing = self._arrays(found, columns, bad, dead)
        old = self._old_arrays(found, splits, columns, bad) if splits is not None and len(splits) else None
        if self._plan.has_several_rows:
            bad = of_whole_records(found.indexes, bad)
        if bad.all():
            return None, bad
        places = places_of(found.indexes) if self._plan.has_several_rows else np.zeros(count, np.int64)
        befores = (2 * places).astype(np.int32)
        afters = befores.copy()
        if splits is not None:
            afters[splits] += 1
        kinds = found.kinds if self._plan.has_key else np.zeros(count, np.int8)
        images = Images(found.indexes, kinds, afters, new, *self._columns.metadata(found), missing, absent=absent)
        if old is not None and splits is not None:
            images = with_rows_before(images, old, splits, befores, bad)
        elif bad.any():
            images = at_rows(images, np.flatnonzero(~bad))
        if self._plan.has_several_rows:
            images = replace(images, subs=ranks_of(images.records, images.subs))
        notes = [Note(UNKNOWN_NOTE + name, np.unique(found.indexes[mask & ~bad])) for name, mask in unknown.items()]
        return replace(images, notes=[*notes, *self._left_notes(images)]), bad

    def _splits(self, found: Changes, bad: Mask) -> RowIndexes:
        """Updates with a complete row before them; others whose `before` lacks something take the careful path."""
        befores = found.befores
        assert befores is not None
        updates = np.flatnonzero(found.kinds == UPDATE_AFTER)
        indexes = np.array([index for index in updates.tolist() if befores[index] is not None], np.int64)
        bad[self._columns.lacking(found, indexes)] = True
        return indexes

    def _arrays(
        self, found: Changes, columns: Columns, bad: Mask, dead: dict[int, Cause]
    ) -> tuple[list[Any], dict[int, Mask]]:
        """The array of each input, and in which rows its value is unavailable; rows that do not convert are `bad`."""
        arrays, lost = self._columns.converted(columns)
        missing = self._unavailable.take_out(found, columns, arrays, bad)
        if missing:
            lost = [each for each in lost if each.index not in missing]
            for index in missing:
                arrays[index], mask = self._conversions[index].convert(columns[index])
                lost += [Cells(index, columns[index], mask)] if mask is not None else []
            lost.sort(key=lambda cells: cells.index)
        if lost:
            may_be_dead = ~bad & (found.kinds != DELETE)
            if self._plan.has_several_rows:
                may_be_dead &= is_alone(found.indexes)  # Of others the first row that does not fit decides.
            for row, cause in causes_of(self._inputs, lost, may_be_dead).items():
                dead[int(found.indexes[row])] = cause
            bad |= np.logical_or.reduce([each.lost for each in lost])
        return arrays, missing

    def _old_arrays(self, found: Changes, splits: RowIndexes, columns: Columns, bad: Mask) -> list[Any]:
        """The array of each input of the rows before these updates."""
        before = self._columns.read_before(found, splits, columns)
        arrays, lost = self._columns.converted(before)
        self._unavailable.refuse_before(before, arrays, splits, bad)
        for each in lost:
            bad[splits[each.lost]] = True
        return arrays

    def _left_notes(self, images: Images) -> list[Note]:
        names = {index: self._inputs.all[index].name for index in images.missing}
        return [
            Note(LEFT_NOTE + name, images.records[images.missing[index]])
            for index, name in names.items()
            if name in self._left_null
        ]


def with_rows_before(images: Images, old: Sequence[Any], splits: RowIndexes, befores: Any, bad: Mask) -> Images:
    """The images that are not bad, and those of the rows before `splits`, whose inputs are `old`, with these subs."""
    count = len(bad)
    kept, wanted = np.flatnonzero(~bad), splits[~bad[splits]]
    position = np.full(count, -1)
    position[splits] = np.arange(count, count + len(splits))
    take: Any = pa.array(np.concatenate([kept, position[wanted]]))
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
    take: Any = pa.array(rows)
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


def _taken(array: Any, take: Any) -> Any:
    return None if array is None else array.take(take)
