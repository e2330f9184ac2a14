"""The merge engines, row by row: what `Engine.merge` makes of the records of a key, in their order.

Source: MERGING.md §1, §2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.kit.aggregate_oracles import CannotMerge, Function, make_function
from tests.kit.oracle import DELETE, INSERT, RETRACTS, sequence_rank

KINDS = ("+I", "-U", "+U", "-D")
KIND_COLUMN = "_ROW_KIND"
Values = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """A stored record."""

    values: Values
    kind: int
    number: int


@dataclass(frozen=True)
class Group:
    """A sequence group of partial-update."""

    ordering: tuple[str, ...]
    protected: tuple[str, ...]


@dataclass(frozen=True)
class Engine:
    """A table's columns, keys and options, as far as merging looks at them."""

    columns: Mapping[str, str]
    primary_keys: Sequence[str]
    options: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.options.get("merge-engine", "deduplicate")

    @property
    def ignores_deletes(self) -> bool:
        names = ("ignore-delete", f"{self.name}.ignore-delete")
        return any(self.options.get(name) == "true" for name in names)

    @property
    def needs_lookup(self) -> bool:
        emits = self.options.get("changelog-producer") == "lookup"
        return self.name == "first-row" or self.options.get("force-lookup") == "true" or emits

    @property
    def sequence_columns(self) -> list[str]:
        return names_of(self.options.get("sequence.field", ""))

    @property
    def groups(self) -> list[Group]:
        return [
            Group(tuple(names_of(key[len("fields.") : -len(".sequence-group")])), tuple(names_of(protected)))
            for key, protected in self.options.items()
            if key.startswith("fields.") and key.endswith(".sequence-group")
        ]

    def functions(self, default: str | None = None) -> dict[str, Function]:
        """New functions for one merge: of columns that have one, or `default`."""
        default = self.options.get("fields.default-aggregate-function", default)
        found = {}
        for column, type_text in self.columns.items():
            own = self.own_options(column)
            name = own.get("aggregate-function", default)
            if name is not None and column not in self.primary_keys:
                found[column] = make_function(name, type_text, own)
        return found

    def own_options(self, column: str) -> dict[str, str]:
        """Options of a column, without their prefix."""
        prefix = f"fields.{column}."
        return {key[len(prefix) :]: value for key, value in self.options.items() if key.startswith(prefix)}

    def merge(self, records: Sequence[Record]) -> Record | None:
        """The records of one key, in order, as one: the function itself, without the lone-record rule."""
        merge = MERGES[self.name](self)
        for record in records:
            merge.add(record)
        return merge.result()

    def rank(self, record: Record) -> tuple[Any, ...]:
        """The order of a key's records."""
        descending = self.options.get("sequence.field.sort-order", "ascending") == "descending"
        return (
            tuple(sequence_rank(record.values[column], descending) for column in self.sequence_columns),
            record.number,
        )


class Merge(Protocol):
    """The state of one merge of one key."""

    def add(self, record: Record) -> None: ...

    def result(self) -> Record | None: ...


class DeduplicateMerge:
    """The last record stays; deletes from before they were ignored do not count."""

    def __init__(self, engine: Engine) -> None:
        self.ignores_deletes = engine.ignores_deletes
        self.last: Record | None = None

    def add(self, record: Record) -> None:
        if record.kind not in RETRACTS or not self.ignores_deletes:
            self.last = record

    def result(self) -> Record | None:
        return self.last


class FirstRowMerge:
    """The first record stays."""

    def __init__(self, engine: Engine) -> None:
        self.ignores_deletes = engine.ignores_deletes
        self.first: Record | None = None

    def add(self, record: Record) -> None:
        if record.kind in RETRACTS:
            if not self.ignores_deletes:
                raise CannotMerge("first-row takes no retract")
        elif self.first is None:
            self.first = record

    def result(self) -> Record | None:
        return self.first


class AggregationMerge:
    """Every column has a function."""

    def __init__(self, engine: Engine) -> None:
        self.functions = engine.functions("last_non_null_value")
        for column in engine.sequence_columns:
            self.functions[column] = make_function("last_value", engine.columns[column], engine.own_options(column))
        self.removes = engine.options.get("aggregation.remove-record-on-delete") == "true"
        self.row: Values = dict.fromkeys(engine.columns)
        self.is_removed = False
        self.number = 0

    def add(self, record: Record) -> None:
        self.number = record.number
        self.is_removed = self.removes and record.kind == DELETE
        if self.is_removed:
            self.row = dict(record.values)
            return
        for column, value in record.values.items():
            function = self.functions.get(column)
            if function is None:
                self.row[column] = value
            elif record.kind in RETRACTS:
                self.row[column] = function.retract(self.row[column], value)
            else:
                self.row[column] = function.agg(self.row[column], value)

    def result(self) -> Record:
        return Record(self.row, DELETE if self.is_removed else INSERT, self.number)


class PartialUpdateMerge:
    """Non-null values replace older ones; columns of a sequence group only if the group's ordering does not go back."""

    def __init__(self, engine: Engine) -> None:
        self.group_of = {column: group for group in engine.groups for column in (*group.ordering, *group.protected)}
        ordering = {column for group in engine.groups for column in group.ordering}
        self.functions = {c: f for c, f in engine.functions().items() if c not in ordering}
        self.removes = engine.options.get("partial-update.remove-record-on-delete") == "true"
        self.removing = names_of(engine.options.get("partial-update.remove-record-on-sequence-group", ""))
        self.ignores_deletes = engine.ignores_deletes
        self.row: Values = dict.fromkeys(engine.columns)
        self.filled = self.inserted = self.is_removed = False
        self.number = 0

    def add(self, record: Record) -> None:
        self.is_removed = False
        if record.kind in RETRACTS:
            if not self.filled:
                self.row, self.filled = dict(record.values), True
            if not self.ignores_deletes:
                self.number = record.number
                self._retract(record)
            return
        self.number = record.number
        self.filled = self.inserted = True
        done: set[str] = set()
        for column, value in record.values.items():
            self._add(record, column, value, done)

    def result(self) -> Record:
        return Record(self.row, DELETE if self.is_removed or not self.inserted else INSERT, self.number)

    def _add(self, record: Record, column: str, value: Any, done: set[str]) -> None:
        group, function = self.group_of.get(column), self.functions.get(column)
        if group is None:
            if function is not None:
                self.row[column] = function.agg(self.row[column], value)
            elif value is not None:
                self.row[column] = value
        elif column in done or self._is_unordered(group, record):
            return
        elif not self._is_late(group, record):
            if column in group.ordering:
                self.row.update({name: record.values[name] for name in group.ordering})
                done.update(group.ordering)
            else:
                self.row[column] = value if function is None else function.agg(self.row[column], value)
        elif function is not None:
            self.row[column] = function.agg_reversed(self.row[column], value)

    def _retract(self, record: Record) -> None:
        if not self.group_of:
            if not self.removes:
                raise CannotMerge("partial-update takes no retract")
            if record.kind == DELETE:
                self.row, self.is_removed = dict(record.values), True
            return
        done: set[str] = set()
        for column, value in record.values.items():
            group, function = self.group_of.get(column), self.functions.get(column)
            if group is None or column in done or self._is_unordered(group, record):
                continue
            if not self._is_late(group, record):
                if column in group.ordering:
                    if record.kind == DELETE and any(name in self.removing for name in group.ordering):
                        self.row, self.is_removed = dict(record.values), True
                        return
                    self.row.update({name: record.values[name] for name in group.ordering})
                    done.update(group.ordering)
                else:
                    self.row[column] = None if function is None else function.retract(self.row[column], value)
            elif function is not None:
                self.row[column] = function.retract(self.row[column], value)

    def _is_unordered(self, group: Group, record: Record) -> bool:
        return all(record.values[name] is None for name in group.ordering)

    def _is_late(self, group: Group, record: Record) -> bool:
        def rank(values: Values) -> tuple[Any, ...]:
            return tuple(sequence_rank(values[name], False) for name in group.ordering)

        return rank(record.values) < rank(self.row)


MERGES: Mapping[str, Any] = {
    "deduplicate": DeduplicateMerge,
    "first-row": FirstRowMerge,
    "aggregation": AggregationMerge,
    "partial-update": PartialUpdateMerge,
}


def names_of(text: str) -> list[str]:
    """A list of columns as options write it."""
    return [name.strip() for name in text.split(",") if name.strip()]
