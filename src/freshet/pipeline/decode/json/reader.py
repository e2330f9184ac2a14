"""Records in JSON decoded into structs by msgspec, and what the evaluator makes of them.

Left to the careful path is also what is no JSON, and a record with a field that is not known yet. Records that are
refused for a field of the row are read again with that field raw (*a detour*): msgspec names the path of the value that
it refuses.

Measured (ten columns, 587-byte envelopes, a core that was not quiet): 4.7 µs of CPU per record all in, half of it
msgspec, the rest the transposition of structs into columns and their Arrow arrays; a record whose value does not fit
costs 12 to 20 µs more, and 55 µs by the careful path. Python's collector must be off meanwhile (`decoder` sees to it),
or it doubles the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, Final, assert_never

import msgspec
import numpy as np

from freshet._frozen import Frozen
from freshet.pipeline.decode.binlog import CANAL_KINDS, MAXWELL_KINDS
from freshet.pipeline.decode.change import DELETE, INSERT, UPDATE_AFTER
from freshet.pipeline.decode.debezium import KINDS as OPS
from freshet.pipeline.decode.evaluator import NO_KIND, Evaluator
from freshet.pipeline.decode.flat import KINDS as KIND_TEXTS
from freshet.pipeline.decode.images import Cause, Images, RowIndexes
from freshet.pipeline.decode.inputs import Inputs
from freshet.pipeline.decode.json.changes import JsonChanges, Shape
from freshet.pipeline.decode.json.structs import ROW_PATHS, Slot, Struct, build_structs, slots_of
from freshet.pipeline.decode.json_value import ALL_KINDS
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.source_table import SourceTable

_NOT_DECODED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_OP, _BEFORE, _AFTER = attrgetter("op"), attrgetter("before"), attrgetter("after")
_PATH_MARK: Final = " - at `"
_NO_PLACES: Final = np.zeros(0, np.int64)

_DETOUR_LEAST: Final = 16
"""Fewer records of a block take the careful path: the columns of a detour cost as much as these."""
_DETOUR_DEPTH: Final = 2
"""Fields of one record that may be refused."""
_DETOURS_MAX: Final = 16
"""Fields for which a reader has a detour."""


class FastRead(Frozen):
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
        self._paths = _paths_of(slots_of(inputs), ROW_PATHS[plan.format]) if detour_depth else {}
        self._structs = build_structs(plan, inputs, kinds, unknown, only)
        self._shape = Shape(plan, inputs, self._structs)
        self._evaluator = Evaluator(plan, inputs)

    def read(self, values: Sequence[bytes], indexes: RowIndexes) -> FastRead:
        """Reads the records at `indexes` of the block."""
        structs, failed = _decode_all(self._structs.decode, values)
        decoded = indexes
        if failed:
            structs = [each for index, each in enumerate(structs) if index not in failed]
            decoded = np.delete(indexes, list(failed))
        found = self._evaluator.evaluate(self._changes(structs, decoded))
        detoured: list[RowIndexes] = []
        for slot, rows in self._refused(failed).items():
            reader = self._detour(slot, len(rows))
            if reader is None:
                continue
            again = reader.read([values[row] for row in rows], indexes[rows])
            found.images += again.images
            found.dead |= again.dead
            for reason, count in again.skipped.items():
                found.skipped[reason] = found.skipped.get(reason, 0) + count
            taken = np.setdiff1d(indexes[rows], again.careful)
            found.done.append(taken)
            detoured.append(np.setdiff1d(taken, list(again.dead)))
        is_done = np.zeros(len(indexes), bool)
        is_done[np.searchsorted(indexes, np.concatenate([_NO_PLACES, *found.done]))] = True
        by_detour = np.sort(np.concatenate(detoured)) if detoured else _NO_PLACES
        return FastRead(tuple(found.images), indexes[~is_done], found.skipped, found.dead, by_detour)

    # --- detours ------------------------------------------------------------------------------------------------------

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

    # --- changes ------------------------------------------------------------------------------------------------------

    def _changes(self, structs: list[Struct], indexes: RowIndexes) -> JsonChanges:
        count, names = len(structs), self._structs.row_names
        ops: list[str | None] = [None] * count
        match self._plan.format:
            case "debezium-json":
                return self._of_envelopes(structs, indexes)
            case "maxwell-json":
                return self._of_rows(structs, indexes)
            case "canal-json":
                return self._of_lists(structs, indexes)
            case "debezium-unwrapped":
                ops = list(map(attrgetter(names["__op"]), structs))
                deleted = map(attrgetter(names["__deleted"]), structs)
                kinds = np.fromiter(map(_unwrapped_kind, ops, deleted), np.int8, count)
            case "json":
                kinds = np.zeros(count, np.int8)
            case "row-kind":
                assert self._plan.kind_field is not None
                given = map(attrgetter(names[self._plan.kind_field]), structs)
                kinds = np.fromiter(map(_kind_code, given), np.int8, count)
            case "debezium-avro" | "avro":
                raise AssertionError("read by decode.avro")
            case unknown:
                assert_never(unknown)
        return JsonChanges(self._shape, indexes, kinds, structs, None, ops, structs)

    def _of_rows(self, structs: list[Struct], indexes: RowIndexes) -> JsonChanges:
        """Messages of one row each."""
        ops, rows, olds = self._members(structs)
        kinds = np.fromiter(map(MAXWELL_KINDS.get, ops, repeat(NO_KIND)), np.int8, len(ops))
        return JsonChanges(self._shape, indexes, kinds, rows, olds, ops, structs)

    def _of_lists(self, structs: list[Struct], indexes: RowIndexes) -> JsonChanges:
        """Messages of some rows each; those that are no change in full are left out."""
        ops, lists, old_lists = self._members(structs)
        kinds = np.fromiter(map(CANAL_KINDS.get, ops, repeat(NO_KIND)), np.int8, len(ops))
        counts = np.fromiter((len(rows) if rows else 0 for rows in lists), np.int64, len(lists))
        starts = np.cumsum(counts) - counts
        olds: list[Struct] = [None] * int(counts.sum())
        fits = counts > 0
        for index in np.flatnonzero(kinds == UPDATE_AFTER).tolist():
            old = old_lists[index]
            if old is None:
                continue
            if len(old) == counts[index]:
                olds[starts[index] : starts[index] + len(old)] = old
            else:
                fits[index] = False
        if not fits.all():
            kept = np.flatnonzero(fits)
            return self._of_lists([structs[index] for index in kept.tolist()], indexes[kept])
        rows = list(chain.from_iterable(lists))
        if len(rows) == len(lists):
            return JsonChanges(self._shape, indexes, kinds, rows, olds, ops, structs)
        all_ops, envelopes = (list(chain.from_iterable(map(repeat, each, counts.tolist()))) for each in (ops, structs))
        return JsonChanges(
            self._shape, np.repeat(indexes, counts), np.repeat(kinds, counts), rows, olds, all_ops, envelopes
        )

    def _members(self, structs: list[Struct]) -> tuple[list[Any], list[Any], list[Any]]:
        """`type`, `data` and `old` of messages."""
        names = self._structs.source_names
        ops, rows, olds = (list(map(attrgetter(names[name]), structs)) for name in ("type", "data", "old"))
        return ops, rows, olds

    def _of_envelopes(self, structs: list[Struct], indexes: RowIndexes) -> JsonChanges:
        ops = list(map(_OP, structs))
        befores, rows = list(map(_BEFORE, structs)), list(map(_AFTER, structs))
        kinds = np.fromiter(map(OPS.get, ops, repeat(NO_KIND)), np.int8, len(ops))
        for index in np.flatnonzero(kinds == DELETE).tolist():
            rows[index] = befores[index]
        return JsonChanges(self._shape, indexes, kinds, rows, befores, ops, structs)


def _decode_all(
    decode: Callable[[bytes], Struct], values: Sequence[bytes]
) -> tuple[list[Struct], dict[int, str | None]]:
    """A struct per value; None where there is none, and the path of what was refused by its index."""
    structs: list[Struct] = []
    failed: dict[int, str | None] = {}
    left = map(decode, values)
    while True:
        try:
            structs.extend(left)
            return structs, failed
        except _NOT_DECODED as error:
            failed[len(structs)] = _refused_path(error)
            structs.append(None)


def _kind_code(text: str | None) -> int:
    return KIND_TEXTS.get(text, NO_KIND) if text is not None else NO_KIND


def _unwrapped_kind(op: str | None, deleted: str | bool | None) -> int:
    if op == "t":
        return NO_KIND
    if op == "d" or deleted is True or deleted == "true":
        return DELETE
    return UPDATE_AFTER if op == "u" else INSERT


def _paths_of(slots: Sequence[Slot], prefixes: Sequence[str]) -> Mapping[str, Slot]:
    """The slots of the row by the path that msgspec names when it refuses a value of rows at these paths."""
    return {f"{prefix}.{slot[1]}`": slot for slot in slots if not slot[0] for prefix in prefixes}


def _refused_path(error: Exception) -> str | None:
    """The path of the value that msgspec refused; None for errors that are not about a value."""
    if not isinstance(error, msgspec.ValidationError):
        return None
    _, _, path = str(error).rpartition(_PATH_MARK)
    return path
