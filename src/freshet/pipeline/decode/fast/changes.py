"""Records decoded into structs: the changes among them, with the kind of each, and those that are no plain change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, Final, assert_never

import msgspec
import numpy as np

from freshet.pipeline.decode.canal import KINDS as CANAL_KINDS
from freshet.pipeline.decode.change import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from freshet.pipeline.decode.convert.converter import Mask
from freshet.pipeline.decode.debezium import KINDS as OPS
from freshet.pipeline.decode.fast.misfits import refused_path
from freshet.pipeline.decode.fast.places import of_whole_records
from freshet.pipeline.decode.fast.structs import Structs
from freshet.pipeline.decode.flat import KINDS as KIND_TEXTS
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.maxwell import KINDS as MAXWELL_KINDS
from freshet.pipeline.decode.plan import DecodePlan

_NOT_DECODED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_OP, _BEFORE, _AFTER = attrgetter("op"), attrgetter("before"), attrgetter("after")
_NO_KIND: Final = -1


@dataclass(slots=True)
class Changes:
    """The changes of some records: structs of the rows, and what the record says of them.

    `befores` are the rows before updates; of Canal and Maxwell what they had in place of values that have changed. A
    record that has several rows is here several times.
    """

    indexes: RowIndexes
    kinds: Any
    rows: list[Any]
    befores: list[Any] | None
    ops: list[Any]
    envelopes: list[Any]

    def keep(self, mask: Mask) -> None:
        """Leaves out the changes for which `mask` is false."""
        kept = np.flatnonzero(mask).tolist()
        self.indexes, self.kinds = self.indexes[mask], self.kinds[mask]
        self.rows = [self.rows[index] for index in kept]
        self.ops = [self.ops[index] for index in kept]
        self.envelopes = [self.envelopes[index] for index in kept]
        if self.befores is not None:
            self.befores = [self.befores[index] for index in kept]

    def rows_before(self, chosen: RowIndexes) -> Changes:
        """The chosen changes with the row before in place of the row after."""
        assert self.befores is not None
        rows = chosen.tolist()
        return Changes(
            self.indexes[chosen],
            self.kinds[chosen],
            [self.befores[index] for index in rows],
            None,
            [self.ops[index] for index in rows],
            [self.envelopes[index] for index in rows],
        )


class ChangeReader:
    """Reads the changes of records by one set of structs."""

    def __init__(self, plan: DecodePlan, structs: Structs) -> None:
        self._plan, self._structs = plan, structs
        key_names = [structs.row_names[name] for name in sorted(plan.key_fields)]
        self._key_of, self._key_parts = _getter(key_names), [attrgetter(name) for name in key_names]

    def read(self, values: Sequence[Any], indexes: RowIndexes) -> tuple[Changes, dict[int, str | None]]:
        """The records that could be decoded; of the others, by their place in `values`, the path that was refused."""
        structs, failed = _decode_all(self._structs.decode, values)
        if failed:
            structs = [each for index, each in enumerate(structs) if index not in failed]
            indexes = np.delete(indexes, list(failed))
        return self._changes(structs, indexes), failed

    def odd(self, changes: Changes) -> Mask:
        """The changes that take the careful path because of their kind, image or key."""
        plan = self._plan
        odd: Mask = changes.kinds == _NO_KIND
        if plan.format in ("debezium-json", "maxwell-json"):
            for index, row in enumerate(changes.rows):
                if row is None:
                    odd[index] = True
        if not plan.has_key:
            odd |= (changes.kinds == DELETE) | (changes.kinds == UPDATE_BEFORE)
        if plan.splits_updates:
            self._find_other_keys(changes, odd)
        return of_whole_records(changes.indexes, odd) if plan.has_several_rows else odd

    def ignored(self, kinds: Any) -> tuple[str, Mask]:
        """The rows that the table ignores, and why."""
        if self._plan.ignores_deletes:
            return "ignore-delete", (kinds == DELETE) | (kinds == UPDATE_BEFORE)
        if self._plan.ignores_update_before:
            return "ignore-update-before", kinds == UPDATE_BEFORE
        return "", np.zeros(len(kinds), bool)

    def _find_other_keys(self, changes: Changes, odd: Mask) -> None:
        """Marks updates of another key, and those without the row before them where values are added up."""
        befores, rows = changes.befores, changes.rows
        assert befores is not None
        is_same_key = self._has_same_parts if self._plan.is_binlog else self._has_same_key
        must_be_whole = bool(self._plan.added_up) and self._plan.takes_before
        for index in np.flatnonzero((changes.kinds == UPDATE_AFTER) & ~odd).tolist():
            before = befores[index]
            if before is None:
                odd[index] = must_be_whole
            elif not is_same_key(before, rows[index]):
                odd[index] = True

    def _has_same_key(self, before: Any, row: Any) -> bool:
        return bool(self._key_of(before) == self._key_of(row))

    def _has_same_parts(self, old: Any, row: Any) -> bool:
        """Whether no part of the key has changed; nearly always `old` has none."""
        return all(is_missing(each(old)) or each(old) == each(row) for each in self._key_parts)

    def _changes(self, structs: list[Any], indexes: RowIndexes) -> Changes:
        count, names = len(structs), self._structs.row_names
        ops: list[Any] = [None] * count
        match self._plan.format:
            case "debezium-json":
                return _of_envelopes(structs, indexes)
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
        return Changes(indexes, kinds, structs, None, ops, structs)

    def _of_rows(self, structs: list[Any], indexes: RowIndexes) -> Changes:
        """Messages of one row each."""
        ops, rows, olds = self._members(structs)
        kinds = np.fromiter(map(MAXWELL_KINDS.get, ops, repeat(_NO_KIND)), np.int8, len(ops))
        return Changes(indexes, kinds, rows, olds, ops, structs)

    def _of_lists(self, structs: list[Any], indexes: RowIndexes) -> Changes:
        """Messages of some rows each; those that are no change in full are left out."""
        ops, lists, old_lists = self._members(structs)
        kinds = np.fromiter(map(CANAL_KINDS.get, ops, repeat(_NO_KIND)), np.int8, len(ops))
        counts = np.fromiter((len(rows) if rows else 0 for rows in lists), np.int64, len(lists))
        starts = np.cumsum(counts) - counts
        olds: list[Any] = [None] * int(counts.sum())
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
            return Changes(indexes, kinds, rows, olds, ops, structs)
        all_ops, envelopes = (list(chain.from_iterable(map(repeat, each, counts.tolist()))) for each in (ops, structs))
        return Changes(np.repeat(indexes, counts), np.repeat(kinds, counts), rows, olds, all_ops, envelopes)

    def _members(self, structs: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """`type`, `data` and `old` of messages."""
        names = self._structs.source_names
        ops, rows, olds = (list(map(attrgetter(names[name]), structs)) for name in ("type", "data", "old"))
        return ops, rows, olds


def _of_envelopes(structs: list[Any], indexes: RowIndexes) -> Changes:
    ops = list(map(_OP, structs))
    befores, rows = list(map(_BEFORE, structs)), list(map(_AFTER, structs))
    kinds = np.fromiter(map(OPS.get, ops, repeat(_NO_KIND)), np.int8, len(ops))
    for index in np.flatnonzero(kinds == DELETE).tolist():
        rows[index] = befores[index]
    return Changes(indexes, kinds, rows, befores, ops, structs)


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


def is_missing(value: Any) -> bool:
    """True for what a struct has where the record has no such member."""
    return value is msgspec.UNSET or (type(value) is msgspec.Raw and not len(value))


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
