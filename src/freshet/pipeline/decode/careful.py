"""The careful path of a record: read value by value, with every rule in plain Python.

| a change | outcome |
|---|---|
| a deletion or -U that the table ignores | skipped |
| a deletion, and the table has no primary key | dead letter |
| an update whose columns add up, `before` not complete | dead letter |
| a field that nothing reads | noted by name, or the run stops |
| an unavailable value (TOAST), whatever the operation, that `before` has | that value, noted |
| one that `before` does not have | the stored value is kept, of the old key's row where the key has changed |
| one of which a column is computed, or without primary key; one in a deletion | dead letter; NULL |
| a value that does not fit its type | dead letter naming the column; in a deletion only where a vital column needs it |
| another key in `before` | -D of the old key, +I of the new |
| `before` is complete and the changelog wants it | -U of `before`, +U |
| one of several changes of a record is none of these rows | the record is none of them: the first such change decides |

It costs some 40 µs a record; it takes what parsers give (`evaluator`) and that rejects, with the same outcomes.

Fields may differ from those of the plan in the case of their letters alone: the source has renamed its column. A record
that has a field of the plan by its name is read as it is. Where it lacks the field, the one that is called so
without regard to case stands in its place; of two nobody knows which it is, and the record is a dead letter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.pipeline.decode.change import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    Change,
    Dead,
    RawRecord,
    Reading,
    Several,
    Skipped,
)
from freshet.pipeline.decode.convert.converter import LOST, Cell, Mask
from freshet.pipeline.decode.flat import ADDED_PREFIX
from freshet.pipeline.decode.images import Images, Note
from freshet.pipeline.decode.inputs import FactsKey, Input, Inputs, facts_key, inputs_of
from freshet.pipeline.decode.json_value import JsonValue, text_of
from freshet.pipeline.decode.outcomes import old_key_text
from freshet.pipeline.decode.plan import DecodePlan, PayloadField
from freshet.pipeline.decode.reading import deletion_of_update, old_key_of, read_record
from freshet.pipeline.decode.record_block import RecordsAround
from freshet.pipeline.decode.toast import is_really_there, placeholder_forms


class SpelledFields:
    """The fields of a plan, by their names without regard to case."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_lower: dict[str, list[str]] = {}
        for name in names:
            self._by_lower.setdefault(name.lower(), []).append(name)

    def may_have(self, name: str) -> bool:
        """Whether a field that is none of the plan's is called like one."""
        return name.lower() in self._by_lower

    def found(self, names: Collection[str]) -> Mapping[str, str] | Dead:
        """The fields of the plan by the names that a record of these names has for them, where those are others."""
        found: dict[str, str] = {}
        taken: dict[str, str] = {}
        for name in names:
            fields = self._by_lower.get(name.lower(), ())
            if name in fields:
                continue
            missing = [each for each in fields if each not in names]
            for each in missing:
                first = taken.setdefault(each, name)
                if first != name or len(missing) > 1:
                    both = (first, name) if first != name else tuple(missing[:2])
                    return Dead(f"fields {both[0]} and {both[1]} differ in the case of their letters alone", each)
                found[name] = each
        return found

    def reading(self, reading: Reading) -> Reading:
        """What a record says, by the names of the plan."""
        if isinstance(reading, Change):
            return self._change(reading)
        if not isinstance(reading, Several):
            return reading
        changes = []
        for each in reading.changes:
            change = self._change(each)
            if isinstance(change, Dead):
                return change
            changes.append(change)
        return Several(tuple(changes))

    def _change(self, change: Change) -> Change | Dead:
        names = self.found({**change.image, **(change.before or {})})
        if isinstance(names, Dead):
            return replace(names, source=change.source)
        if not names:
            return change
        before = None if change.before is None else _renamed(change.before, names)
        facts = None if change.facts is None else _renamed(change.facts, names)
        return replace(change, image=_renamed(change.image, names), before=before, facts=facts)


def _renamed(members: Mapping[str, JsonValue], names: Mapping[str, str]) -> dict[str, JsonValue]:
    return {names.get(name, name): value for name, value in members.items()}


INCOMPLETE: Final = "the update does not carry the whole row before it, so its value would count twice"
NO_KEY: Final = "a deletion, and the table has no primary key"
NO_ROW: Final = "an unchanged value that the record does not carry (TOAST), and the table has no primary key"
NEEDED: Final = "an unchanged value that the record does not carry (TOAST) is needed to compute the column"
UNKNOWN_NOTE, FOUND_NOTE, LEFT_NOTE = "unknown field ", "TOAST value from before: ", "TOAST value left NULL: "


_NO_RECORD: Final = RawRecord(None, None)


def shown_name(name: str) -> str:
    """The name of a field for notes and messages; characters that cannot be shown or sent, such as lone surrogates, as
    escapes."""
    return name if name.isprintable() else ascii(name)[1:-1]


class UnknownFields(Frozen):
    """A record with fields that nothing reads, where that stops the run."""

    names: tuple[str, ...]


class RecordRow(Frozen):
    """One image of a record; `values` are those of the inputs."""

    kind: int
    sub: int
    values: tuple[Cell, ...]
    missing: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()
    old_key: str | None = None
    """The key before, of a row that lacks values and had another one, as `outcomes.old_key_text` writes it."""


class RecordRows(Frozen):
    """The rows that a change becomes; the notes are texts."""

    change: Change
    rows: tuple[RecordRow, ...]
    notes: tuple[str, ...] = ()
    facts: FactsKey = None


@dataclass(slots=True)
class _Toast:
    image: Mapping[str, JsonValue]
    missing: list[PayloadField] = field(default_factory=list)
    found: list[str] = field(default_factory=list)


class CarefulReader:
    """Reads the records of one source."""

    def __init__(self, plan: DecodePlan) -> None:
        self._plan = plan
        self._inputs: dict[FactsKey, Inputs] = {}
        self._forms = placeholder_forms(plan.placeholder)
        self._able = [each for each in plan.fields if each.may_be_toast] if self._forms else []
        known = {each.name for each in plan.fields}
        self._known = known | ({plan.kind_field} if plan.kind_field else set())
        vital = plan.columns if plan.takes_before else [column for column in plan.columns if column.is_vital]
        self._old_fields = frozenset(name for column in vital for name in column.payload_fields)
        self._old_indexes = frozenset(
            index for index, column in enumerate(plan.columns) if plan.takes_before or column.is_vital
        )
        self._computed = [
            (column.field.name, column.payload_fields)
            for column in plan.columns
            if plan.is_debezium and column.payload_fields and (column.only_field is None or column.is_key)
        ]
        left = [column.only_field for column in plan.columns if column.keeps_on_null]
        self._left_null = frozenset(name for name in left if name is not None)
        self._with_default = plan.fields_with_default
        self.spelled = SpelledFields(sorted(known)) if plan.spells_freely else None
        """Where fields may be called otherwise."""

    def read(self, record: RawRecord) -> Reading:
        """What the record says."""
        reading = read_record(self._plan.format, record, self._plan.kind_field, self._plan.registry)
        return reading if self.spelled is None else self.spelled.reading(reading)

    def inputs(self, key: FactsKey) -> Inputs:
        """The inputs under these facts."""
        found = self._inputs.get(key)
        if found is None:
            found = self._inputs[key] = inputs_of(self._plan, key)
        return found

    def unknown(self, image: Mapping[str, JsonValue]) -> list[str]:
        """The fields that nothing reads, in their order."""
        names = [name for name in image if name not in self._known]
        if self._plan.format == "debezium-unwrapped":
            return [name for name in names if not name.startswith(ADDED_PREFIX)]
        return names

    def rows(
        self, reading: Change | Several, record: RawRecord = _NO_RECORD, neighbours: RecordsAround | None = None
    ) -> RecordRows | Skipped | Dead | UnknownFields:
        """What becomes of a change, or of several of one record together; see the table of the module. `neighbours` are
        the records around it."""
        if isinstance(reading, Change):
            return self._rows(reading, record, neighbours)
        parts = []
        for change in reading.changes:
            found = self._rows(change, record, neighbours)
            if not isinstance(found, RecordRows):
                return found
            parts.append(found)
        rows = chain.from_iterable(part.rows for part in parts)
        notes = dict.fromkeys(chain.from_iterable(part.notes for part in parts))
        numbered = tuple(replace(row, sub=sub) for sub, row in enumerate(rows))
        return RecordRows(reading.changes[0], numbered, tuple(notes), parts[0].facts)

    def _rows(
        self, change: Change, record: RawRecord, neighbours: RecordsAround | None
    ) -> RecordRows | Skipped | Dead | UnknownFields:
        plan, kind = self._plan, change.kind
        is_retract = kind in (UPDATE_BEFORE, DELETE)
        if plan.ignores_deletes and is_retract:
            return Skipped("ignore-delete")
        if plan.ignores_update_before and kind == UPDATE_BEFORE:
            return Skipped("ignore-update-before")
        if is_retract and not plan.has_key:
            return Dead(NO_KEY)
        toast = self._resolved(change)
        if toast.missing and not plan.has_key:
            return Dead(NO_ROW, toast.missing[0].column)
        before, is_whole = self._row_before(change)
        is_complete = (
            before is not None and not toast.missing and not (change.image.keys() - before.keys()) and is_whole
        )
        if plan.added_up and plan.takes_before and plan.captures_changes and kind == UPDATE_AFTER and not is_complete:
            return Dead(INCOMPLETE, plan.added_up[0])
        unknown = self.unknown(change.image)
        if unknown and plan.fails_on_unknown:
            return UnknownFields(tuple(unknown))
        lacking = frozenset(each.name for each in toast.missing)
        for column, fields in self._computed if lacking else ():
            if not fields.isdisjoint(lacking):
                return Dead(NEEDED, column)
        key = facts_key(plan, change.facts)
        inputs = self.inputs(key)
        new = self._values(inputs, toast.image, change.source, is_delete=kind == DELETE)
        if isinstance(new, Dead):
            return new
        split = self._split(change, toast.image, is_complete=is_complete)
        absent = self._with_default - toast.image.keys()
        new_kind = INSERT if split == DELETE or not plan.has_key else kind
        old_row = None
        if lacking and new_kind == INSERT and plan.is_debezium:
            given, is_first = (before, False) if split == DELETE else self._key_before(change, record, neighbours)
            old_row = self._old_key(inputs, given, new, is_first=is_first)
        is_new = new_kind == INSERT and (plan.has_envelope or old_row is not None)
        left_null = frozenset() if is_new else self._left_null
        notes = (
            *(UNKNOWN_NOTE + shown_name(name) for name in unknown),
            *(FOUND_NOTE + name for name in toast.found),
            *(LEFT_NOTE + each.name for each in toast.missing if each.name in left_null),
        )
        if split is None:
            return RecordRows(change, (RecordRow(new_kind, 0, new, lacking, absent, old_row),), notes, key)
        old = self._values(inputs, before or {}, change.source, is_delete=split == DELETE, is_old=True)
        if isinstance(old, Dead):
            return old
        return RecordRows(
            change, (RecordRow(split, 0, old), RecordRow(new_kind, 1, new, lacking, absent, old_row)), notes, key
        )

    def _resolved(self, change: Change) -> _Toast:
        """The image with what `before` has in place of unavailable values, NULL where it has none."""
        toast = _Toast(change.image)
        for each in self._able:
            if text_of(change.image.get(each.name)) not in self._forms:
                continue
            old = (change.before or {}).get(each.name)
            is_there = is_really_there(text_of(old), self._forms)
            if is_there:
                toast.found.append(each.name)
            elif change.kind != DELETE:
                toast.missing.append(each)
            toast.image = {**toast.image, each.name: old if is_there else None}
        return toast

    def _row_before(self, change: Change) -> tuple[Mapping[str, JsonValue] | None, bool]:
        """The row before a change, NULL in place of unavailable values, and whether it has none of these."""
        before = change.before
        if before is None or not self._plan.takes_before:
            return before, True
        gone = [each.name for each in self._able if text_of(before.get(each.name)) in self._forms]
        return ({**before, **dict.fromkeys(gone)}, False) if gone else (before, True)

    def _key_before(
        self, change: Change, record: RawRecord, neighbours: RecordsAround | None
    ) -> tuple[Mapping[str, JsonValue] | None, bool]:
        """The key that the row of an insert had before, and whether its deletion is its first record in the batch."""
        plan = self._plan
        before = () if neighbours is None else neighbours.before()
        found = deletion_of_update(plan.format, change, before, plan.registry)
        key = old_key_of(plan.format, record, None if found is None else found[0], plan.registry)
        return key, found is not None and neighbours is not None and neighbours.is_first(found[1].key)

    def _old_key(
        self, inputs: Inputs, given: Mapping[str, JsonValue] | None, new: Sequence[Cell], *, is_first: bool
    ) -> str | None:
        """The text of the key that a row had before; None where that is not known. What is no field of the row is what
        the row has."""
        if given is None:
            return None
        plan, found = self._plan, {}
        keys = [column for column in plan.columns if column.is_key]
        for column in keys:
            for each, value in zip(inputs.all, new, strict=True):
                is_own = each.name == column.direct and not each.is_member
                if is_own or (each.index is not None and plan.columns[each.index] is column):
                    text = given.get(each.name) if is_own else value
                    found[column.field.name] = each.converter.one(text) if is_own and text is not None else text
        if len(found) < len(keys) or LOST in found.values() or None in found.values():
            return None
        return old_key_text([column.field for column in keys], found, is_first=is_first)

    def _split(self, change: Change, image: Mapping[str, JsonValue], *, is_complete: bool) -> int | None:
        """Kind of the row before the change: -D when the key is another one, -U where the changelog takes it."""
        plan, before = self._plan, change.before
        if before is None or not plan.splits_updates:
            return None
        for name in plan.key_fields:
            old, new = text_of(before.get(name)), text_of(image.get(name))
            if old is not None and new is not None and old != new:
                return DELETE
        return UPDATE_BEFORE if plan.takes_before and is_complete else None

    def _values(
        self,
        inputs: Inputs,
        image: Mapping[str, JsonValue],
        source: JsonValue,
        *,
        is_delete: bool,
        is_old: bool = False,
    ) -> tuple[Cell, ...] | Dead:
        members = source if isinstance(source, dict) else {}
        values: list[Cell] = []
        for each in inputs.all:
            if is_old and not self._is_wanted_of_old(each):
                values.append(None)
                continue
            value = members.get(each.name) if each.is_member else image.get(each.name)
            converted = None if value is None else each.converter.one(value)
            if converted is LOST:
                if each.is_vital or not is_delete:
                    return Dead(each.reason, each.column)
                converted = None
            values.append(converted)
        return tuple(values)

    def _is_wanted_of_old(self, each: Input) -> bool:
        if each.is_member:
            return each.index is None or each.index in self._old_indexes
        return each.name in self._old_fields


def images_of(plan: DecodePlan, inputs: Inputs, found: Mapping[int, RecordRows]) -> Images:
    """The images of some records (by index in the block)."""
    flat = [(index, rows, row) for index, rows in found.items() for row in rows.rows]
    columns = list(zip(*(row.values for _, _, row in flat), strict=True)) or [()] * len(inputs.all)
    names = [field.name for field in plan.fields]
    missing = _masks(names, [row.missing for _, _, row in flat])
    noted: dict[str, list[int]] = {}
    for index, rows in found.items():
        for text in rows.notes:
            noted.setdefault(text, []).append(index)
    return Images(
        records=np.array([index for index, _, _ in flat], np.int64),
        kinds=np.array([row.kind for _, _, row in flat], np.int8),
        subs=np.array([row.sub for _, _, row in flat], np.int32),
        inputs=[pa.array(values, each.converter.arrow) for each, values in zip(inputs.all, columns, strict=True)],
        ops=pa.array([rows.change.op for _, rows, _ in flat], pa.string()),
        ts_ms=pa.array([rows.change.ts_ms for _, rows, _ in flat], pa.int64()),
        sources=pa.array([_source_text(plan, rows.change) for _, rows, _ in flat], pa.string()),
        missing=missing,
        old_keys={place: row.old_key for place, (_, _, row) in enumerate(flat) if row.old_key is not None},
        notes=[Note(text, indexes) for text, indexes in noted.items()],
        absent=_masks(names, [row.absent for _, _, row in flat]),
    )


def _masks(names: Sequence[str], of_rows: Sequence[frozenset[str]]) -> dict[int, Mask]:
    """For each name that some row has, the rows that have it."""
    return {
        index: np.fromiter((name in row for row in of_rows), bool, len(of_rows))
        for index, name in enumerate(names)
        if any(name in row for row in of_rows)
    }


def _source_text(plan: DecodePlan, change: Change) -> str | None:
    return text_of(change.source) if plan.has_envelope else None
