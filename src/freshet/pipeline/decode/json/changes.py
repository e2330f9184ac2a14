"""Changes as structs of rows, and these structs as columns: the values of each input, converted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter, is_
from typing import assert_never

import msgspec
import numpy as np
import pyarrow as pa

from freshet.pipeline.decode.binlog import SECOND_MS
from freshet.pipeline.decode.convert.converter import Mask, Values
from freshet.pipeline.decode.evaluator import InputColumn, Metadata
from freshet.pipeline.decode.flat import ADDED_PREFIX
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.inputs import Inputs
from freshet.pipeline.decode.json.structs import Struct, Structs
from freshet.pipeline.decode.json_value import parse_json, text_of
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.row_rules import Kinds
from freshet.pipeline.decode.toast import is_really_there, placeholder_forms


class Shape:
    """What is known of the changes that one set of structs reads."""

    def __init__(self, plan: DecodePlan, inputs: Inputs, structs: Structs) -> None:
        self.plan, self.inputs, self.structs = plan, inputs, structs
        names = [structs.row_names[name] for name in sorted(plan.key_fields)]
        self.key_parts = [attrgetter(name) for name in names]
        self.key_of = attrgetter(*names) if names else lambda struct: None
        self.with_default = plan.fields_with_default
        self.reads_source = any(each.is_member for each in inputs.all)
        self.wanted: set[str | None] = {each.name for each in plan.scope if not each.is_member}
        self.wanted |= {column.metadata for column in plan.columns}
        self._forms = placeholder_forms(plan.placeholder)
        self.able = [index for index, each in enumerate(inputs.all) if self._forms and each.may_be_toast]
        self._characters = frozenset(map(len, self._forms))
        lengths = [len(form.encode()) for form in self._forms]
        self._is_form_length = np.zeros(max(lengths, default=0) + 2, bool)
        self._is_form_length[lengths] = True
        self._raw_marks = tuple(form.encode().strip(b"[]") for form in self._forms if not form.startswith("{"))
        self._raw_length_min = min(map(len, self._raw_marks), default=0)
        """Shorter values have none: a number nearly always is."""

    def column(self, index: int, values: Values) -> InputColumn:
        """The values of an input, and which of them are unavailable."""
        conversion = self.structs.conversions[index]
        array, lost = conversion.convert(values)
        column = InputColumn(array, lost, values)
        if index not in self.able:
            return column
        rows = self._unavailable(index, values, array)
        if not rows:
            return column
        mask = np.zeros(len(values), bool)
        mask[rows] = True
        if conversion.annotation is msgspec.Raw:
            column.unclear = mask
            return column
        left = list(values)
        for row in rows:
            left[row] = None
        array, lost = conversion.convert(left)
        return InputColumn(array, lost, left, gone=mask)

    def _unavailable(self, index: int, values: Values, array: pa.Array) -> list[int]:
        """The rows whose value is the placeholder, or may be, where it is kept raw."""
        if pa.types.is_decimal(array.type) and not array.null_count:
            return []  # a placeholder is no number
        if self.structs.conversions[index].annotation is msgspec.Raw:
            least = self._raw_length_min
            return [row for row, value in enumerate(values) if len(value) >= least and self._has_mark(value)]
        if pa.types.is_string(array.type):  # nearly always its length decides; a hash costs 0.05 µs
            offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)
            lengths = np.minimum(np.diff(offsets), len(self._is_form_length) - 1)
            rows = np.flatnonzero(self._is_form_length[lengths]).tolist()
            return [row for row in rows if values[row] in self._forms]
        characters, forms = self._characters, self._forms
        return [
            row for row, value in enumerate(values) if value is not None and len(value) in characters and value in forms
        ]

    def _has_mark(self, value: msgspec.Raw) -> bool:
        octets = bytes(value).replace(b" ", b"")
        return any(mark in octets for mark in self._raw_marks)

    def is_there(self, old: object) -> bool:
        """Whether the row before a change has a value of its own."""
        return isinstance(old, str) and is_really_there(old, self._forms)


@dataclass(slots=True)
class JsonChanges:
    """The changes of some records (`evaluator.ParsedChanges`): structs of the rows, and what the record says of them.

    `befores` are the rows before updates; of Canal and Maxwell what they had in place of values that have changed.
    """

    shape: Shape
    records: RowIndexes
    kinds: Kinds
    rows: list[Struct]
    befores: list[Struct] | None
    ops: list[str | None]
    envelopes: list[Struct]
    values: list[Values] | None = None
    """The values of each input, once they are read."""

    def taken(self, rows: RowIndexes) -> JsonChanges:
        kept = rows.tolist()
        befores = self.befores
        return JsonChanges(
            self.shape,
            self.records[rows],
            self.kinds[rows],
            [self.rows[row] for row in kept],
            None if befores is None else [befores[row] for row in kept],
            [self.ops[row] for row in kept],
            [self.envelopes[row] for row in kept],
        )

    def rows_lacking(self) -> Mask | None:
        if self.shape.plan.format not in ("debezium-json", "maxwell-json"):
            return None
        return np.fromiter(map(is_, self.rows, repeat(None)), bool, len(self.rows))

    def have_before(self, rows: RowIndexes) -> Mask:
        befores = self.befores
        if befores is None:
            return np.zeros(len(rows), bool)
        return np.fromiter((befores[row] is not None for row in rows.tolist()), bool, len(rows))

    def have_same_key(self, rows: RowIndexes) -> Mask:
        assert self.befores is not None
        pairs = [(self.befores[row], self.rows[row]) for row in rows.tolist()]
        if self.shape.plan.is_binlog:
            return np.fromiter((self._has_same_parts(old, new) for old, new in pairs), bool, len(pairs))
        key_of = self.shape.key_of
        return np.fromiter((key_of(old) == key_of(new) for old, new in pairs), bool, len(pairs))

    def _has_same_parts(self, old: Struct, new: Struct) -> bool:
        """Whether no part of the key has changed; nearly always `old` has none."""
        return all(_is_missing(each(old)) or each(old) == each(new) for each in self.shape.key_parts)

    def lack_before(self, rows: RowIndexes) -> list[int]:
        if self.shape.plan.is_binlog or self.befores is None:
            return []  # What is not there has not changed.
        found: list[int] = []
        for get in map(attrgetter, self.shape.structs.row_names.values()):
            for row in rows.tolist():
                if _is_missing(get(self.befores[row])) and not _is_missing(get(self.rows[row])):
                    found.append(row)
        return found

    def columns(self) -> list[InputColumn]:
        shape = self.shape
        values = self._values()
        absent: dict[int, Mask] = {}
        for index, each in enumerate(shape.inputs.all) if shape.with_default else ():
            if not each.is_member and each.name in shape.with_default:
                mask = np.fromiter(map(_is_missing, values[index]), bool, len(values[index]))
                if mask.any():
                    absent[index] = mask
        if absent or shape.plan.takes_before:
            values = _without_unset(values)
        self.values = values
        found = []
        for index, given in enumerate(values):
            column = shape.column(index, given)
            column.absent = absent.get(index)
            if column.gone is not None and self.befores is not None:
                column.kept = self._kept(shape.structs.row_names[shape.inputs.all[index].name], column.gone)
            found.append(column)
        return found

    def columns_before(self, rows: RowIndexes) -> list[InputColumn]:
        assert self.befores is not None
        assert self.values is not None
        chosen = rows.tolist()
        befores = [self.befores[row] for row in chosen]
        if not self.shape.plan.is_binlog:
            envelopes, ops = [self.envelopes[row] for row in chosen], [self.ops[row] for row in chosen]
            before = JsonChanges(self.shape, self.records[rows], self.kinds[rows], befores, None, ops, envelopes)
            values = _without_unset(before._values())
        else:
            olds = _transposed(befores, self.shape.structs.row_names)
            values = []
            for each, given in zip(self.shape.inputs.all, self.values, strict=True):
                after = [given[row] for row in chosen]
                if not each.is_member:
                    pairs = zip(olds[each.name], after, strict=True)
                    after = [new if _is_missing(old) else old for old, new in pairs]
                values.append(after)
        return [self.shape.column(index, given) for index, given in enumerate(values)]

    def _kept(self, attribute: str, gone: Mask) -> Mask:
        """The rows whose row before has the value."""
        kept = np.zeros(len(gone), bool)
        assert self.befores is not None
        for row in np.flatnonzero(gone).tolist():
            before = self.befores[row]
            kept[row] = before is not None and self.shape.is_there(getattr(before, attribute))
        return kept

    def _values(self) -> list[Values]:
        """The values of each input in the rows."""
        plan, structs = self.shape.plan, self.shape.structs
        by_attribute = _transposed(self.rows, structs.row_names)
        sources: Mapping[str, Values] = {}
        if self.shape.reads_source and structs.source is not None:
            given = [each.source for each in self.envelopes]
            if None in given:
                nothing = structs.source()
                given = [nothing if each is None else each for each in given]
            sources = _transposed(given, structs.source_names)
        found: list[Values] = []
        for each, conversion in zip(self.shape.inputs.all, structs.conversions, strict=True):
            if not each.is_member:
                found.append(by_attribute[each.name])
            elif plan.is_binlog:
                found.append(list(map(attrgetter(structs.source_names[each.name]), self.envelopes)))
            elif plan.format == "debezium-json":
                found.append(sources[each.name])
            elif plan.format == "debezium-unwrapped":
                first, second = by_attribute[f"__source_{each.name}"], by_attribute[f"__{each.name}"]
                found.append([b if _is_null(a) else a for a, b in zip(first, second, strict=True)])
            else:
                found.append([conversion.default] * len(self.rows))
        return found

    def unknown(self) -> dict[str, Mask]:
        found = {}
        for name, attribute in self.shape.structs.unknown.items():
            if self.shape.plan.format == "debezium-unwrapped" and name.startswith(ADDED_PREFIX):
                continue
            values = map(attrgetter(attribute), self.rows)
            mask = np.fromiter((value is not msgspec.UNSET for value in values), bool, len(self.rows))
            if mask.any():
                found[name] = mask
        return found

    def metadata(self) -> Metadata:
        wanted = self.shape.wanted
        ops = pa.array(self.ops, pa.string()) if "_op" in wanted else None
        ts_ms = pa.array(self._ts_ms(), pa.int64()) if "_ts_ms" in wanted else None
        sources = None
        if "_source" in wanted:
            is_wrapped = self.shape.plan.format == "debezium-json"
            texts = _source_texts(self.envelopes) if is_wrapped else [None] * len(self.rows)
            sources = pa.array(texts, pa.string())
        return ops, ts_ms, sources

    def _ts_ms(self) -> list[int | None]:
        structs = self.shape.structs
        match self.shape.plan.format:
            case "debezium-json":
                return [each.ts_ms for each in self.envelopes]
            case "canal-json":
                return list(map(attrgetter(structs.source_names["ts"]), self.envelopes))
            case "maxwell-json":
                seconds = map(attrgetter(structs.source_names["ts"]), self.envelopes)
                return [None if ts is None else ts * SECOND_MS for ts in seconds]
            case "debezium-unwrapped":
                names = structs.row_names
                pairs = map(attrgetter(names["__ts_ms"], names["__source_ts_ms"]), self.rows)
                return [second if first is None else first for first, second in pairs]
            case "json" | "row-kind":
                return [None] * len(self.rows)
            case "debezium-avro" | "avro":
                raise AssertionError("read by decode.avro")
            case unknown:
                assert_never(unknown)


def _without_unset(columns: list[Values]) -> list[Values]:
    """The columns, None in place of what is missing."""
    return [
        [None if value is msgspec.UNSET else value for value in values] if msgspec.UNSET in values else values
        for values in columns
    ]


def _transposed(structs: Sequence[Struct], names: Mapping[str, str]) -> dict[str, Values]:
    if not structs:
        return dict.fromkeys(names, ())
    columns = zip(*map(msgspec.structs.astuple, structs), strict=True)
    return dict(zip(names, columns, strict=True))


def _is_missing(value: object) -> bool:
    """True for what a struct has where the record has no such member."""
    return value is msgspec.UNSET or (type(value) is msgspec.Raw and not len(value))


def _is_null(value: object) -> bool:
    return value is None or (type(value) is msgspec.Raw and (not len(value) or value == b"null"))


def _source_texts(envelopes: Sequence[Struct]) -> list[str | None]:
    return [None if _is_null(each.source) else text_of(parse_json(bytes(each.source).decode())) for each in envelopes]
