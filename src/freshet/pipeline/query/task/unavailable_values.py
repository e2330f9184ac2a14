"""Fills in values that a change did not carry because they had not changed (TOAST columns of PostgreSQL).

For each row that lacks a value, in input order, per key:

| the state of the key | outcome |
|---|---|
| an earlier row of the same batch that has the value | that value |
| else the row stored in the table at the base snapshot | its value |
| deleted, or not stored, or NULL | the row is a dead letter naming the column |

A value that PostgreSQL keeps out of line is never NULL, so a NULL that is stored is one that never came.

A row whose key has changed (`outcomes.OldKey`) has its values from the row of the old key, where its own key has none:

| the deletion of the old key | outcome |
|---|---|
| is in front of the row, in the same Kafka partition | the values before it |
| is in another Kafka partition, and the only one of that key in the batch | the same |
| is in another task, and the first record of that key in the batch (`OldKey.is_first`) | what is stored of it |
| is elsewhere in another task or another batch, or one of several | dead letter naming the column |

Where rows have an order of their own (`sequence.field`, or a sequence group of a partial-update table, each with a
state of its own) the state is the row that wins by it, not the one that came last:

| the row, seen from the state | outcome |
|---|---|
| all ordering columns of the group are NULL | it is not about this group |
| it orders before the state (a late record or deletion) | the state stays; the value stays NULL and is not used |
| it orders at or after the state | as above, and it is the new state |

Only the keys concerned are looked at, row by row; the rest of the batch is not touched. A retract row needs no values.
Columns where NULL leaves the stored value alone (`engine_rules`) come here with a row that is new to its key, and
stay NULL where that has a value.

Source: what really arrives from Debezium, outcome table, "unchanged TOAST value".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import total_ordering
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.pipeline.config.engine_rules import engine_rules
from freshet.pipeline.decode.carriers import carrier_arrow_type, carry_array, restore_array
from freshet.pipeline.decode.outcomes import (
    COLUMN,
    DATA_PREFIX,
    KAFKA_PARTITION,
    KIND,
    REASON,
    TAG,
    TAG_DEAD,
    TOPIC,
    UNAVAILABLE,
    is_old_key,
    old_key_in,
)
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.merge.gather import take_rows
from freshet.storage.model.row_kind import RowKind
from freshet.storage.table import Table

if TYPE_CHECKING:
    from freshet.storage.lookup.lookup_metrics import LookupMetrics

NOT_STORED: Final = "a value that the change did not carry is not stored in the table either"
MOVED: Final = (
    "the key has changed, and a value that the change did not carry is not known: no task of the batch had the new row "
    "and the deletion of the old one (REPLICA IDENTITY FULL sends whole rows)"
)
"""Reasons of the dead letters made here."""

Key = tuple[Any, ...]
_Old = tuple[Key, bool]
"""The key that a row had before, and whether its deletion is its first record in the batch."""
Order = tuple[tuple[bool, Any], ...]
"""Ordering values, so that NULL is smallest whatever the direction."""
Place = tuple[Any, ...]
"""Topic and Kafka partition."""
Positions = npt.NDArray[np.int64]


@total_ordering
@dataclass(frozen=True, slots=True)
class Descending:
    """A value that is the smaller the larger it is."""

    value: Any

    def __lt__(self, other: Descending) -> bool:
        return bool(other.value < self.value)


class ChangeUnit(NamedTuple):
    """Columns whose values change together: those of a sequence group, or of the whole row.

    `ordering` are the columns that decide which row wins; empty where the last one does.
    """

    ordering: tuple[str, ...]
    columns: tuple[str, ...]
    is_group: bool = False
    is_descending: bool = False

    def order_of(self, row: Mapping[str, Any]) -> Order:
        """The rank of the row among those of its key."""
        values = [row[name] for name in self.ordering]
        if self.is_descending:
            return tuple((value is not None, Descending(value)) for value in values)
        return tuple((value is not None, value) for value in values)

    def takes_part(self, row: Mapping[str, Any]) -> bool:
        """True when the row is about these columns."""
        return not self.is_group or any(row[name] is not None for name in self.ordering)


class State(NamedTuple):
    """Values of a unit's columns, and the ordering values of the row they came with."""

    order: Order
    values: Mapping[str, Any]


class FilledRows(Frozen):
    """`rows` without the `dead` ones, which are tagged as dead letters; `count` rows got values."""

    rows: pa.Table
    dead: pa.Table
    count: int


class UnavailableValues:
    """Looks up unavailable values in one table at the snapshot of this id (None: the table is empty).

    `watch` sees all rows of a task once, in any order, and reads what is stored; `fill` then takes them in input order,
    in as many slices as there are. `carried` are the table's columns that the rows have, by index.
    """

    def __init__(
        self,
        table: Table,
        snapshot_id: int | None,
        carried: Sequence[str],
        lookup_metrics: LookupMetrics | None = None,
    ) -> None:
        self._table = table
        self._snapshot_id = snapshot_id
        self._lookup_metrics = lookup_metrics
        self._carried = tuple(carried)
        self._column_names = {name: f"{DATA_PREFIX}{index}" for index, name in enumerate(carried)}
        self._units: tuple[ChangeUnit, ...] = ()
        self._watched: set[Key] = set()
        self._old: set[Key] = set()
        """Keys that rows had before."""
        self._ahead: Counter[Key] = Counter()
        """Of these, the rows still to come, deletions not counted; those without a row in the task are not here."""
        self._deletions: Counter[Key] = Counter()
        """Of these, the deletions of the task."""
        self._gone: dict[tuple[Key, ChangeUnit], tuple[State, Place]] = {}
        """Their states before they were deleted, and where that was."""
        self._keeps_on_null: frozenset[str] = frozenset()
        self._states: dict[tuple[Key, ChangeUnit], State] = {}

    def watch(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Notes the keys of the rows that lack values, and reads the stored rows of these keys."""
        missing: set[str] = set()
        for batch in batches:
            if UNAVAILABLE not in batch.schema.names:
                return
            texts: Any = batch.column(UNAVAILABLE)
            if texts.null_count == len(texts):
                continue
            affected = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False))
            for text in pc.unique(texts.drop_null()).to_pylist():
                missing |= self._named(text)
                old_key = self._old_key(text)
                self._old |= set() if old_key is None else {old_key[0]}
            self._watched.update(self._keys(batch, affected))
        self._watched |= self._old
        if self._watched and self._table.options.has_postponed_buckets:
            raise InvalidRequestError(
                f"table {self._table.name}: a change does not carry the value of {', '.join(sorted(missing))}, and "
                "with bucket=-2 the row that has it may wait unseen; nothing was written. Have PostgreSQL send whole "
                "rows (ALTER TABLE … REPLICA IDENTITY FULL), or create the table with a number of buckets",
                table=self._table.name,
                option="bucket",
            )
        if self._watched:
            self._units = self._units_of(sorted(missing))
            self._states = self._stored(self._watched)
        for batch in batches if self._old else ():
            positions, keys = self._related(batch)
            kinds = batch.column(KIND).take(pa.array(positions)).to_pylist()
            for key, kind in zip(keys, kinds, strict=True):
                self._ahead[key] += not RowKind(kind).is_retract
                self._deletions[key] += kind == RowKind.DELETE

    def fill(self, rows: pa.Table) -> FilledRows:
        """Fills in the rows of one slice."""
        if not self._watched or not rows.num_rows:
            return FilledRows(rows, rows.slice(0, 0), 0)
        related, related_keys = self._related(rows)
        names = [*dict.fromkeys(name for unit in self._units for name in (*unit.ordering, *unit.columns))]
        values = [rows.column(self._column_names[name]).take(pa.array(related)).to_pylist() for name in names]
        kinds = rows.column(KIND).take(pa.array(related)).to_pylist()
        lacking = rows.column(UNAVAILABLE).take(pa.array(related)).to_pylist()
        places = self._places(rows, related)
        found: dict[str, list[tuple[int, Any]]] = {name: [] for name in names}
        dead: dict[int, tuple[str, str]] = {}
        filled = 0
        for index, (position, key) in enumerate(zip(related.tolist(), related_keys, strict=True)):
            row = {name: column[index] for name, column in zip(names, values, strict=True)}
            missing = self._named(lacking[index])
            kind = RowKind(kinds[index])
            self._ahead[key] -= not kind.is_retract
            old_key = self._old_key(lacking[index])
            looked_up = self._look_up(key, row, missing, old_key, places[index])
            unknown = next((name for name, value in looked_up.items() if value is None), None)
            if unknown is not None:
                dead[position] = (MOVED if old_key else NOT_STORED, unknown)
                continue
            for name, value in looked_up.items():
                found[name].append((position, value))
            filled += bool(looked_up)
            self._note(key, {**row, **looked_up}, kind, places[index])
        return _apply(rows, {self._column_names[name]: pairs for name, pairs in found.items()}, dead, filled)

    def _look_up(
        self, key: Key, row: Mapping[str, Any], missing: frozenset[str], old_key: _Old | None, place: Place
    ) -> dict[str, Any]:
        """The values of the missing columns that will be taken from this row; None where there is none."""
        values: dict[str, Any] = {}
        for unit in self._units:
            wanted = [name for name in unit.columns if name in missing]
            if not wanted or not unit.takes_part(row):
                continue
            state = self._states.get((key, unit))
            if state is not None and unit.order_of(row) < state.order:
                continue
            own = {} if state is None else state.values
            old = {} if old_key is None else self._before(*old_key, unit, place)
            for name in wanted:
                if own.get(name) is None:
                    values[name] = old.get(name)
                elif name not in self._keeps_on_null:
                    values[name] = own[name]
        return values

    def _before(self, old_key: Key, is_first: bool, unit: ChangeUnit, place: Place) -> Mapping[str, Any]:
        """The values of a key before the row of another one took its place; none where they are not known."""
        state, gone = self._states.get((old_key, unit)), self._gone.get((old_key, unit))
        if gone is not None and (gone[1] == place or self._deletions[old_key] == 1):
            return gone[0].values
        if old_key not in self._ahead:  # it has no row in this task
            return state.values if is_first and state is not None else {}
        if gone is not None or self._deletions[old_key] != 1 or self._ahead[old_key] > 0 or state is None:
            return {}
        return state.values

    def _note(self, key: Key, row: Mapping[str, Any], kind: RowKind, place: Place) -> None:
        """The row becomes the state of the units that take it."""
        for unit in self._units:
            if not unit.takes_part(row):
                continue
            order, state = unit.order_of(row), self._states.get((key, unit))
            if state is None or order >= state.order:
                if kind is RowKind.DELETE and key in self._old:
                    self._gone[key, unit] = State(order, {}) if state is None else state, place
                values = {} if kind.is_retract else {name: row[name] for name in unit.columns}
                self._states[key, unit] = State(order, values)

    def _units_of(self, columns: Sequence[str]) -> tuple[ChangeUnit, ...]:
        options = self._table.options
        rules = engine_rules(self._table.schema, options)
        self._keeps_on_null = frozenset(filter(rules.keeps_on_null, columns))
        whole: list[str] = []
        members: dict[tuple[str, ...], list[str]] = {}
        for name in columns:
            group = rules.group_of(name)
            (whole if group is None else members.setdefault(group.ordering, [])).append(name)
        units = [ChangeUnit(ordering, tuple(names), is_group=True) for ordering, names in members.items()]
        if whole:
            row = ChangeUnit(options.sequence_field, tuple(whole), is_descending=options.sequence_descending)
            units.append(row)
        return tuple(units)

    def _named(self, text: str | None) -> frozenset[str]:
        """The columns whose indexes the text lists."""
        parts = text.split(",") if text else ()
        return frozenset(self._carried[int(part)] for part in parts if not is_old_key(part))

    def _old_key(self, text: str | None) -> _Old | None:
        """The key that the row had before, if it had another one."""
        found = old_key_in(text.split(",")) if text else None
        if found is None:
            return None
        return tuple(found.values[name] for name in self._table.schema.primary_keys), found.is_first

    def _keys(self, rows: pa.Table | pa.RecordBatch, positions: Positions) -> list[Key]:
        names = [self._column_names[name] for name in self._table.schema.primary_keys]
        parts = [rows.column(name).take(pa.array(positions)).to_pylist() for name in names]
        return list(zip(*parts, strict=True))

    def _places(self, rows: pa.Table, positions: Positions) -> list[Place]:
        """Where these rows are from."""
        if not self._old:
            return [()] * len(positions)
        parts = (rows.column(name).take(pa.array(positions)).to_pylist() for name in (TOPIC, KAFKA_PARTITION))
        return list(zip(*parts, strict=True))

    def _related(self, rows: pa.Table | pa.RecordBatch) -> tuple[Positions, list[Key]]:
        """Every row of a watched key: a filter on the first key column, then the exact check of what is left."""
        first: Any = rows.column(self._column_names[self._table.schema.primary_keys[0]])
        may_be: Any = pc.is_in(first, value_set=pa.array([key[0] for key in self._watched], first.type))
        positions = np.flatnonzero(may_be.to_numpy(zero_copy_only=False))
        candidates = self._keys(rows, positions)
        kept = [index for index, key in enumerate(candidates) if key in self._watched]
        return positions[kept], [candidates[index] for index in kept]

    def _stored(self, keys: Collection[Key]) -> dict[tuple[Key, ChangeUnit], State]:
        """The states of these keys at the snapshot: the files and row groups that hold them are read, and no others."""
        if self._snapshot_id is None:
            return {}
        asked = list(keys)
        wanted = [*dict.fromkeys(name for unit in self._units for name in (*unit.ordering, *unit.columns))]
        found = self._table.lookup(
            self._key_table(asked), wanted, snapshot_id=self._snapshot_id, metrics=self._lookup_metrics
        )
        types = self._table.schema.by_name
        lists = {name: _carried_list(found.rows.column(name), types[name].type) for name in wanted}
        states = {}
        for key, position in zip(asked, found.positions.tolist(), strict=True):
            if position < 0:
                continue
            row = {name: values[position] for name, values in lists.items()}
            for unit in self._units:
                if unit.takes_part(row):
                    states[key, unit] = State(unit.order_of(row), {name: row[name] for name in unit.columns})
        return states

    def _key_table(self, keys: Sequence[Key]) -> pa.Table:
        schema = self._table.schema
        columns = {}
        for index, name in enumerate(schema.primary_keys):
            data_type = schema.by_name[name].type
            carried: pa.Array = pa.array([key[index] for key in keys], carrier_arrow_type(data_type))
            columns[name] = restore_array(carried, data_type)
        return pa.table(columns)


def _carried_list(column: Any, data_type: Any) -> list[Any]:
    return [value for chunk in column.chunks for value in carry_array(chunk, data_type).to_pylist()]


def _apply(
    rows: pa.Table, found: Mapping[str, Sequence[tuple[int, Any]]], dead: Mapping[int, tuple[str, str]], count: int
) -> FilledRows:
    for name, pairs in found.items():
        if pairs:
            rows = rows.set_column(rows.schema.get_field_index(name), name, _with_values(rows.column(name), pairs))
    if not dead:
        return FilledRows(rows, rows.slice(0, 0), count)
    lost = rows.take(pa.array(list(dead)))
    reasons, columns = (list(each) for each in zip(*dead.values(), strict=True))
    texts = {REASON: reasons, COLUMN: columns, TAG: [TAG_DEAD] * len(dead)}
    for name, values in texts.items():
        index = lost.schema.get_field_index(name)
        lost = lost.set_column(index, lost.schema.field(index), pa.array(values, lost.schema.field(index).type))
    mask = np.ones(rows.num_rows, dtype=bool)
    mask[list(dead)] = False
    return FilledRows(rows.filter(pa.array(mask)), lost, count)


def _with_values(column: Any, pairs: Sequence[tuple[int, Any]]) -> Any:
    """The column with other values at some positions: the new ones are appended and then gathered into their rows."""
    positions = np.arange(len(column))
    positions[[position for position, _ in pairs]] = np.arange(len(column), len(column) + len(pairs))
    new = pa.array([value for _, value in pairs], column.type)
    return take_rows(pa.table({"value": pa.chunked_array([*column.chunks, new])}), positions).column(0)
