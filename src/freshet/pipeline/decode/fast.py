"""The fast way of records: structs by msgspec, one decode per record, then columns by Arrow and numpy.

What is not plain here is left to the careful way, record by record: no JSON, a type that the field's conversion does
not take, a field that is not known yet, no change, another key in `before`, an unavailable value that `before` has, a
value that does not fit.

Measured (ten columns, 587-byte envelopes, a core that was not quiet): 4.7 µs of CPU per record all in, half of it
msgspec, the rest the transposition of structs into columns and their Arrow arrays. Python's collector must be off
meanwhile (`decoder` sees to it), or it doubles the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from freshet.pipeline.decode.careful import LEFT_NOTE, UNKNOWN_NOTE
from freshet.pipeline.decode.change import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from freshet.pipeline.decode.convert.converter import Mask
from freshet.pipeline.decode.debezium import KINDS as OPS
from freshet.pipeline.decode.fast_structs import Slot, Structs, build_structs, slots_of
from freshet.pipeline.decode.flat import ADDED_PREFIX
from freshet.pipeline.decode.flat import KINDS as KIND_TEXTS
from freshet.pipeline.decode.images import Images, Note, RowIndexes
from freshet.pipeline.decode.inputs import Inputs
from freshet.pipeline.decode.json_value import ALL_KINDS, parse_json, text_of
from freshet.pipeline.decode.misfits import Blame, Cells, judged, paths_of, refused_path
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.decode.toast import is_really_there, placeholder_forms

_NOT_DECODED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_OP, _BEFORE, _AFTER = attrgetter("op"), attrgetter("before"), attrgetter("after")
_NO_KIND: Final = -1
_NO_PLACES: Final = np.zeros(0, np.int64)

_DETOUR_LEAST: Final = 16
"""Fewer records of a block take the careful way: the columns of a detour cost as much as these."""
_DETOUR_DEPTH: Final = 2
"""Fields of one record that may be refused."""
_DETOURS_MAX: Final = 16
"""Fields for which a reader has a detour."""


@dataclass(frozen=True, slots=True)
class FastRead:
    """What was read: images, indexes that take the careful way, how many were skipped by reason, and dead letters.

    `detoured` are the indexes of records that were read by a detour, and fit.
    """

    images: tuple[Images, ...]
    careful: RowIndexes
    skipped: Mapping[str, int]
    dead: Mapping[int, Blame]
    detoured: RowIndexes


@dataclass(slots=True)
class _Decoded:
    """The changes of some records: structs of the rows, and what the record says of them."""

    indexes: RowIndexes
    kinds: Any
    rows: list[Any]
    befores: list[Any] | None
    ops: list[Any]
    envelopes: list[Any]


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
        """With `only`, records of any other table are left to the careful way."""
        self._plan, self._inputs = plan, inputs
        self.only = only
        self._reads_source = any(each.is_member for each in inputs.all)
        self._kinds, self._unknown, self._detour_depth = dict(kinds), list(unknown), detour_depth
        self._detours: dict[Slot, FastReader] = {}
        self._paths = paths_of(slots_of(inputs), is_flat=plan.format != "debezium-json") if detour_depth else {}
        self._structs: Structs = build_structs(plan, inputs, kinds, unknown, only)
        names = self._structs.row_names
        self._key_of = _getter([names[name] for name in sorted(plan.key_fields)])
        self._forms = placeholder_forms(plan.placeholder) if plan.placeholder else frozenset()
        lengths = [len(form.encode()) for form in self._forms]
        self._is_form_length = np.zeros(max(lengths, default=0) + 2, bool)
        self._is_form_length[lengths] = True
        self._raw_marks = _raw_marks(plan.placeholder)
        self._vital_names = {name for column in plan.columns if column.is_vital for name in column.payload_fields}
        self._left_null = {column.only_field for column in plan.columns if column.keeps_on_null}
        self._needed = {
            name
            for column in plan.columns
            if column.payload_fields and (column.only_field is None or column.is_key)
            for name in column.payload_fields
        }

    def read(self, values: Sequence[Any], indexes: RowIndexes) -> FastRead:
        """Reads the records at `indexes` of the block."""
        found, refused = self._decoded(values, indexes)
        odd = self._odd(found)
        reason, ignored = self._ignored(found.kinds)
        ignored &= ~odd
        done = [found.indexes[ignored]]
        skipped = Counter({reason: len(done[0])} if len(done[0]) else {})
        if odd.any() or ignored.any():
            self._keep(found, ~odd & ~ignored)
        images: list[Images] = []
        dead: dict[int, Blame] = {}
        detoured: list[RowIndexes] = []
        if len(found.indexes):
            of_all, bad = self._images(found, dead)
            images += [of_all] if of_all is not None else []
            done.append(found.indexes[~bad])
        for slot, rows in refused.items():
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

    # --- records -----------------------------------------------------------------------------------------------------

    def _detour(self, slot: Slot, count: int) -> FastReader | None:
        """The reader that keeps one more field raw; None where the careful way costs less, or there are too many."""
        found = self._detours.get(slot)
        if count < _DETOUR_LEAST or (found is None and len(self._detours) >= _DETOURS_MAX):
            return None
        if found is None:
            kinds = {**self._kinds, slot: ALL_KINDS}
            found = FastReader(self._plan, self._inputs, kinds, self._unknown, self._detour_depth - 1, self.only)
            self._detours[slot] = found
        return found

    def _decoded(self, values: Sequence[Any], indexes: RowIndexes) -> tuple[_Decoded, dict[Slot, list[int]]]:
        """The records that could be decoded; those that were refused for a field of the row, by that field."""
        structs, failed = _decode_all(self._structs.decode, values)
        refused: dict[Slot, list[int]] = {}
        if failed:
            for index, path in failed.items():
                slot = self._paths.get(path) if path is not None else None
                if slot is not None:
                    refused.setdefault(slot, []).append(index)
            structs = [each for index, each in enumerate(structs) if index not in failed]
            indexes = np.delete(indexes, list(failed))
        if self._plan.format == "debezium-json":
            ops = list(map(_OP, structs))
            befores, rows = list(map(_BEFORE, structs)), list(map(_AFTER, structs))
            kinds = np.fromiter(map(OPS.get, ops, repeat(_NO_KIND)), np.int8, len(ops))
            for index in np.flatnonzero(kinds == DELETE).tolist():
                rows[index] = befores[index]
            return _Decoded(indexes, kinds, rows, befores, ops, structs), refused
        flat = _Decoded(indexes, self._flat_kinds(structs), structs, None, self._flat_ops(structs), structs)
        return flat, refused

    def _flat_ops(self, rows: Sequence[Any]) -> list[Any]:
        if self._plan.format != "debezium-unwrapped":
            return [None] * len(rows)
        return list(map(attrgetter(self._structs.row_names["__op"]), rows))

    def _flat_kinds(self, rows: Sequence[Any]) -> Any:
        match self._plan.format:
            case "json":
                return np.zeros(len(rows), np.int8)
            case "row-kind":
                assert self._plan.kind_field is not None
                given = map(attrgetter(self._structs.row_names[self._plan.kind_field]), rows)
                return np.fromiter((_kind_code(text) for text in given), np.int8, len(rows))
            case _:
                names = self._structs.row_names
                marks = map(attrgetter(names["__op"], names["__deleted"]), rows)
                return np.fromiter((_unwrapped_kind(op, deleted) for op, deleted in marks), np.int8, len(rows))

    def _odd(self, found: _Decoded) -> Mask:
        """Records for the careful way, by what they are."""
        plan = self._plan
        odd: Mask = found.kinds == _NO_KIND
        if plan.format == "debezium-json":
            for index, row in enumerate(found.rows):
                if row is None:
                    odd[index] = True
        if not plan.has_key:
            odd |= (found.kinds == DELETE) | (found.kinds == UPDATE_BEFORE)
        if plan.splits_updates:
            assert found.befores is not None
            self._find_splits(found, odd)
        return odd

    def _find_splits(self, found: _Decoded, odd: Mask) -> None:
        befores, rows, key_of = found.befores, found.rows, self._key_of
        assert befores is not None
        must_be_whole = bool(self._plan.added_up) and self._plan.takes_before
        for index in np.flatnonzero((found.kinds == UPDATE_AFTER) & ~odd).tolist():
            before = befores[index]
            if before is None:
                odd[index] = must_be_whole
            elif key_of(before) != key_of(rows[index]):
                odd[index] = True

    def _ignored(self, kinds: Any) -> tuple[str, Mask]:
        """The rows that the table ignores, and why."""
        if self._plan.ignores_deletes:
            return "ignore-delete", (kinds == DELETE) | (kinds == UPDATE_BEFORE)
        if self._plan.ignores_update_before:
            return "ignore-update-before", kinds == UPDATE_BEFORE
        return "", np.zeros(len(kinds), bool)

    @staticmethod
    def _keep(found: _Decoded, mask: Mask) -> None:
        kept = np.flatnonzero(mask).tolist()
        found.indexes, found.kinds = found.indexes[mask], found.kinds[mask]
        found.rows = [found.rows[index] for index in kept]
        found.ops = [found.ops[index] for index in kept]
        found.envelopes = [found.envelopes[index] for index in kept]
        if found.befores is not None:
            found.befores = [found.befores[index] for index in kept]

    # --- columns -----------------------------------------------------------------------------------------------------

    def _images(self, found: _Decoded, dead: dict[int, Blame]) -> tuple[Images | None, Mask]:
        """The images, and the records among them that have none; those that are judged already are put into `dead`."""
        count = len(found.indexes)
        bad = np.zeros(count, bool)
        columns = self._columns(found)
        noted = self._unknown_notes(found)
        splits: RowIndexes | None = None
        if self._plan.takes_before and found.befores is not None:
            splits = self._splits(found, columns, bad)
        new, lost = self._converted(columns)
        missing = self._resolve_toast(found, columns, new, bad)
        if missing:
            lost = [each for each in lost if each.index not in missing]
            for index in missing:
                new[index], mask = self._structs.conversions[index].convert(columns[index])
                lost += [Cells(index, columns[index], mask)] if mask is not None else []
            lost.sort(key=lambda cells: cells.index)
        if lost:
            may_be_judged = ~bad & (found.kinds != DELETE)
            for row, blame in judged(self._inputs, lost, may_be_judged).items():
                dead[int(found.indexes[row])] = blame
            bad |= np.logical_or.reduce([each.lost for each in lost])
        old = self._old(found, splits, bad) if splits is not None and len(splits) else None
        kinds = found.kinds if self._plan.has_key else np.zeros(count, np.int8)
        kept = np.flatnonzero(~bad)
        if not len(kept):
            return None, bad
        is_split = np.zeros(count, bool)
        if splits is not None:
            is_split[splits] = True
        subs = is_split.astype(np.int32)
        arrays, records, all_kinds = new, found.indexes, kinds
        ops, ts_ms, sources = self._metadata(found)
        take: Any = kept
        if old is not None and splits is not None:
            wanted = splits[~bad[splits]]
            position = np.full(count, -1)
            position[splits] = np.arange(count, count + len(splits))
            arrays = [pa.concat_arrays([after, before]) for after, before in zip(new, old, strict=True)]
            take = np.concatenate([kept, position[wanted]])
            again = np.concatenate([kept, wanted])
            records, subs = found.indexes[again], np.concatenate([subs[kept], np.zeros(len(wanted), np.int32)])
            all_kinds = np.concatenate([kinds[kept], np.full(len(wanted), UPDATE_BEFORE, np.int8)])
            ops, ts_ms, sources = (_taken(array, again) for array in (ops, ts_ms, sources))
            missing = {
                index: np.concatenate([mask[kept], np.zeros(len(wanted), bool)]) for index, mask in missing.items()
            }
            arrays = [array.take(pa.array(take)) for array in arrays]
        elif bad.any():
            arrays = [array.take(pa.array(kept)) for array in arrays]
            records, subs, all_kinds = found.indexes[kept], subs[kept], kinds[kept]
            ops, ts_ms, sources = (_taken(array, kept) for array in (ops, ts_ms, sources))
            missing = {index: mask[kept] for index, mask in missing.items()}
        notes = [Note(UNKNOWN_NOTE + name, found.indexes[mask & ~bad]) for name, mask in noted.items()]
        for index, mask in missing.items():
            name = self._inputs.all[index].name
            if name in self._left_null:
                notes.append(Note(LEFT_NOTE + name, records[mask]))
        return Images(records, all_kinds, subs, arrays, ops, ts_ms, sources, missing, notes), bad

    def _columns(self, found: _Decoded) -> list[Sequence[Any]]:
        """The values of each input, as they were decoded."""
        by_attribute = _transposed(found.rows, self._structs.row_names)
        sources: Mapping[str, Sequence[Any]] = {}
        if self._reads_source and self._structs.source is not None:
            given = [each.source for each in found.envelopes]
            if None in given:
                nothing = self._structs.source()
                given = [nothing if each is None else each for each in given]
            sources = _transposed(given, self._structs.source_names)
        columns: list[Sequence[Any]] = []
        for each, conversion in zip(self._inputs.all, self._structs.conversions, strict=True):
            if not each.is_member:
                columns.append(by_attribute[each.name])
            elif self._plan.format == "debezium-json":
                columns.append(sources[each.name])
            elif self._plan.format == "debezium-unwrapped":
                first, second = by_attribute[f"__source_{each.name}"], by_attribute[f"__{each.name}"]
                columns.append([b if _is_null(a) else a for a, b in zip(first, second, strict=True)])
            else:
                columns.append([conversion.default] * len(found.rows))
        return columns

    def _unknown_notes(self, found: _Decoded) -> dict[str, Mask]:
        noted = {}
        for name, attribute in self._structs.unknown.items():
            if self._plan.format == "debezium-unwrapped" and name.startswith(ADDED_PREFIX):
                continue
            values = map(attrgetter(attribute), found.rows)
            mask = np.fromiter((value is not msgspec.UNSET for value in values), bool, len(found.rows))
            if mask.any():
                noted[name] = mask
        return noted

    def _splits(self, found: _Decoded, columns: list[Sequence[Any]], bad: Mask) -> RowIndexes:
        """Updates with a complete row before them; others whose `before` lacks something take the careful way."""
        assert found.befores is not None
        befores = found.befores
        updates = np.flatnonzero(found.kinds == UPDATE_AFTER)
        indexes = np.array([index for index in updates.tolist() if befores[index] is not None], np.int64)
        names = self._structs.row_names.values()
        for name in names:
            get = attrgetter(name)
            for index in indexes.tolist():
                if _is_missing(get(befores[index])) and not _is_missing(get(found.rows[index])):
                    bad[index] = True
        for number, values in enumerate(columns):
            columns[number] = _without_unset(values)
        return indexes

    def _old(self, found: _Decoded, splits: RowIndexes, bad: Mask) -> list[Any]:
        assert found.befores is not None
        chosen = splits.tolist()
        before = _Decoded(
            found.indexes[splits],
            found.kinds[splits],
            [found.befores[index] for index in chosen],
            None,
            [found.ops[index] for index in chosen],
            [found.envelopes[index] for index in chosen],
        )
        columns = [_without_unset(values) for values in self._columns(before)]
        arrays, lost = self._converted(columns)
        for each in lost:
            bad[splits[each.lost]] = True
        return arrays

    def _resolve_toast(
        self, found: _Decoded, columns: list[Sequence[Any]], arrays: Sequence[Any], bad: Mask
    ) -> dict[int, Mask]:
        """NULL in place of unavailable values that stay as stored; those that `before` has take the careful way.

        Columns of which something is missing are changed, and must be converted again.
        """
        missing: dict[int, Mask] = {}
        if not self._forms:
            return missing
        updates = np.flatnonzero(found.kinds == UPDATE_AFTER)
        if not len(updates):
            return missing
        for index, each in enumerate(self._inputs.all):
            if not each.may_be_toast:
                continue
            conversion = self._structs.conversions[index]
            if conversion.annotation is msgspec.Raw:
                for row in updates.tolist():
                    octets = bytes(columns[index][row]).replace(b" ", b"")
                    bad[row] |= any(mark in octets for mark in self._raw_marks)
            elif self._may_have_form(columns[index], arrays[index], updates):
                mask = self._unavailable(found, columns, index, bad)
                if mask.any():
                    missing[index] = mask
        return missing

    def _may_have_form(self, values: Sequence[Any], array: Any, updates: RowIndexes) -> bool:
        """True where an update may have the placeholder: the length nearly always tells, and a hash costs 0.05 µs."""
        if not pa.types.is_string(array.type):
            return not self._forms.isdisjoint(values)
        offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)
        lengths = np.minimum(np.diff(offsets)[updates], len(self._is_form_length) - 1)
        return bool(self._is_form_length[lengths].any())

    def _unavailable(self, found: _Decoded, columns: list[Sequence[Any]], index: int, bad: Mask) -> Mask:
        name = self._inputs.all[index].name
        attribute = self._structs.row_names[name]
        values = list(columns[index])
        mask = np.zeros(len(values), bool)
        for row in np.flatnonzero(found.kinds == UPDATE_AFTER).tolist():
            if values[row] not in self._forms:
                continue
            before = found.befores[row] if found.befores is not None else None
            old = getattr(before, attribute) if before is not None else None
            if (
                name in self._needed
                or (isinstance(old, str) and is_really_there(old, self._forms))
                or (self._plan.takes_before and before is not None)
            ):
                bad[row] = True
            else:
                mask[row] = True
            values[row] = None
        columns[index] = values
        return mask

    def _converted(self, columns: Sequence[Sequence[Any]]) -> tuple[list[Any], list[Cells]]:
        """The array of each input, and the cells that did not convert."""
        arrays, lost = [], []
        for index, (conversion, values) in enumerate(zip(self._structs.conversions, columns, strict=True)):
            array, mask = conversion.convert(values)
            if mask is not None:
                lost.append(Cells(index, values, mask))
            arrays.append(array)
        return arrays, lost

    def _metadata(self, found: _Decoded) -> tuple[Any, Any, Any]:
        """`_op`, `_ts_ms` and `_source` where they are read, else None."""
        plan = self._plan
        wanted = {each.name for each in plan.scope if not each.is_member} | {c.metadata for c in plan.columns}
        ops = pa.array(found.ops, pa.string()) if "_op" in wanted else None
        ts_ms = sources = None
        if "_ts_ms" in wanted:
            ts_ms = pa.array(self._ts_ms(found), pa.int64())
        if "_source" in wanted:
            texts = _source_texts(found.envelopes) if plan.format == "debezium-json" else [None] * len(found.rows)
            sources = pa.array(texts, pa.string())
        return ops, ts_ms, sources

    def _ts_ms(self, found: _Decoded) -> list[Any]:
        match self._plan.format:
            case "debezium-json":
                return [each.ts_ms for each in found.envelopes]
            case "debezium-unwrapped":
                names = self._structs.row_names
                pairs = map(attrgetter(names["__ts_ms"], names["__source_ts_ms"]), found.rows)
                return [second if first is None else first for first, second in pairs]
            case _:
                return [None] * len(found.rows)


def _decode_all(decode: Callable[[Any], Any], values: Sequence[Any]) -> tuple[list[Any], dict[int, str | None]]:
    """A struct per value; None where there is none, and the path of what was refused by its index."""
    structs: list[Any] = []
    failed: dict[int, str | None] = {}
    left = map(decode, values)
    while True:
        try:
            structs.extend(left)
            return structs, failed
        except _NOT_DECODED as error:
            failed[len(structs)] = refused_path(error)
            structs.append(None)


def _transposed(structs: Sequence[Any], names: Mapping[str, str]) -> dict[str, Sequence[Any]]:
    if not structs:
        return dict.fromkeys(names, ())
    columns = zip(*map(msgspec.structs.astuple, structs), strict=True)
    return dict(zip(names, columns, strict=True))


def _getter(names: Sequence[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda struct: None


def _kind_code(text: str | None) -> int:
    return KIND_TEXTS.get(text, _NO_KIND) if text is not None else _NO_KIND


def _unwrapped_kind(op: str | None, deleted: str | bool | None) -> int:
    if op == "t":
        return _NO_KIND
    if op == "d" or deleted is True or deleted == "true":
        return DELETE
    return UPDATE_AFTER if op == "u" else INSERT


def _is_missing(value: Any) -> bool:
    return value is msgspec.UNSET or (type(value) is msgspec.Raw and not len(value))


def _is_null(value: Any) -> bool:
    return value is None or (type(value) is msgspec.Raw and (not len(value) or value == b"null"))


def _without_unset(values: Sequence[Any]) -> Sequence[Any]:
    return [None if value is msgspec.UNSET else value for value in values] if msgspec.UNSET in values else values


def _raw_marks(placeholder: str | None) -> tuple[bytes, ...]:
    if placeholder is None:
        return ()
    return tuple(form.encode().strip(b"[]") for form in placeholder_forms(placeholder) if not form.startswith("{"))


def _source_texts(envelopes: Sequence[Any]) -> list[str | None]:
    return [None if _is_null(each.source) else text_of(parse_json(bytes(each.source).decode())) for each in envelopes]


def _taken(array: Any, indexes: Any) -> Any:
    return None if array is None else array.take(pa.array(indexes))
