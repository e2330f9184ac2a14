"""Fills in values that a change did not carry because they had not changed (TOAST columns of PostgreSQL).

For each row that lacks a value, in input order, per key:

| the latest state of the key | outcome |
|---|---|
| an earlier row of the same batch that has the value | that value |
| else the row stored in the table at the base snapshot | its value |
| deleted earlier in the batch, or not stored | the row is a dead letter naming the column |

Only the keys concerned are looked at, row by row; the rest of the batch is not touched. A retract row needs no values.
With the merge engine partial-update nothing comes here: NULL keeps the old value there.

Source: what really arrives from Debezium, outcome table, "unchanged TOAST value".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.arrow_bridge import carry_array
from pipeline.routed_rows import COLUMN, DATA_PREFIX, KIND, REASON, TAG, TAG_DEAD, UNAVAILABLE
from storage.model.row_kind import RowKind
from storage.model.snapshot import Snapshot
from storage.predicate import col, conjunction
from storage.scan.table_scan import TableScan
from storage.table_store import TableStore

NOT_STORED: Final = "a value that the change did not carry is not stored in the table either"
"""Reason of the dead letters made here."""

Key = tuple[Any, ...]
State = dict[str, Any]
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FilledRows:
    """`rows` without the `dead` ones, which are tagged as dead letters; `count` rows got values."""

    rows: pa.Table
    dead: pa.Table
    count: int


class UnavailableValues:
    """Looks up unavailable values in one table at one snapshot (None: the table is empty).

    `watch` sees all rows of a task once, in any order, and reads what is stored; `fill` then takes them in input order,
    in as many portions as there are.
    """

    def __init__(self, store: TableStore, snapshot: Snapshot | None) -> None:
        self._store = store
        self._snapshot = snapshot
        self._places = {name: f"{DATA_PREFIX}{place}" for place, name in enumerate(store.schema.column_names)}
        self._columns: list[str] = []
        self._watched: set[Key] = set()
        self._states: dict[Key, State | None] = {}

    def watch(self, rows: pa.Table) -> None:
        """Notes the keys of the rows that lack values, and reads the stored rows of these keys."""
        if UNAVAILABLE not in rows.column_names:
            return
        affected = _affected(rows)
        if not len(affected):
            return
        lacking = rows.column(UNAVAILABLE).take(pa.array(affected)).to_pylist()
        self._columns = sorted({name for names in lacking for name in names})
        self._watched = set(self._keys(rows, affected))
        self._states = dict(self._stored(self._watched, self._columns))

    def fill(self, rows: pa.Table) -> FilledRows:
        """Fills in the rows of one portion."""
        if not self._watched or not rows.num_rows:
            return FilledRows(rows, rows.slice(0, 0), 0)
        related, related_keys = self._related(rows)
        values = {name: rows.column(self._places[name]).take(pa.array(related)).to_pylist() for name in self._columns}
        kinds = rows.column(KIND).take(pa.array(related)).to_pylist()
        lacking = rows.column(UNAVAILABLE).take(pa.array(related)).to_pylist()
        found: dict[str, list[tuple[int, Any]]] = {name: [] for name in self._columns}
        dead: dict[int, str] = {}
        filled = 0
        for place, (position, key) in enumerate(zip(related.tolist(), related_keys, strict=True)):
            if RowKind(kinds[place]).is_retract:
                self._states[key] = None
                continue
            row = {name: values[name][place] for name in self._columns}
            missing = lacking[place] or ()
            state = self._states.get(key)
            unknown = next((name for name in missing if state is None or name not in state), None)
            if unknown is not None:
                dead[position] = unknown
                continue
            for name in missing:
                assert state is not None
                row[name] = state[name]
                found[name].append((position, row[name]))
            filled += bool(missing)
            self._states[key] = row
        return _apply(rows, {self._places[name]: pairs for name, pairs in found.items()}, dead, filled)

    def _keys(self, rows: pa.Table, positions: Positions) -> list[Key]:
        names = [self._places[name] for name in self._store.schema.primary_keys]
        parts = [rows.column(name).take(pa.array(positions)).to_pylist() for name in names]
        return list(zip(*parts, strict=True))

    def _related(self, rows: pa.Table) -> tuple[Positions, list[Key]]:
        """Every row of a watched key: a filter on the first key column, then the exact check of what is left."""
        first: Any = rows.column(self._places[self._store.schema.primary_keys[0]])
        may_be: Any = pc.is_in(first, value_set=pa.array([key[0] for key in self._watched], first.type))
        positions = np.flatnonzero(may_be.to_numpy())
        candidates = self._keys(rows, positions)
        kept = [place for place, key in enumerate(candidates) if key in self._watched]
        return positions[kept], [candidates[place] for place in kept]

    def _stored(self, keys: set[Key], columns: Sequence[str]) -> Mapping[Key, State]:
        if self._snapshot is None:
            return {}
        schema = self._store.schema
        names = schema.primary_keys
        # A superset for keys of several columns; the states of keys that nobody asks for do no harm.
        filters = [col(name).is_in({key[place] for key in keys}) for place, name in enumerate(names)]
        wanted = [*names, *(name for name in columns if name not in names)]
        scan = TableScan(self._store, columns=wanted, filter=conjunction(filters), snapshot=self._snapshot)
        table = scan.to_arrow()
        lists = {name: _carried_list(table.column(name), schema.by_name[name].type) for name in wanted}
        return {
            tuple(lists[name][row] for name in names): {name: lists[name][row] for name in columns}
            for row in range(table.num_rows)
        }


def _affected(rows: pa.Table) -> Positions:
    """Positions of the rows that lack values."""
    lengths: Any = pc.fill_null(pc.list_value_length(rows.column(UNAVAILABLE)), 0)
    return np.flatnonzero(lengths.to_numpy())


def _carried_list(column: Any, data_type: Any) -> list[Any]:
    return [value for chunk in column.chunks for value in carry_array(chunk, data_type).to_pylist()]


def _apply(
    rows: pa.Table, found: Mapping[str, Sequence[tuple[int, Any]]], dead: Mapping[int, str], count: int
) -> FilledRows:
    for name, pairs in found.items():
        if pairs:
            rows = rows.set_column(rows.schema.get_field_index(name), name, _with_values(rows.column(name), pairs))
    if not dead:
        return FilledRows(rows, rows.slice(0, 0), count)
    lost = rows.take(pa.array(list(dead)))
    texts = {REASON: [NOT_STORED] * len(dead), COLUMN: list(dead.values()), TAG: [TAG_DEAD] * len(dead)}
    for name, values in texts.items():
        place = lost.schema.get_field_index(name)
        lost = lost.set_column(place, lost.schema.field(place), pa.array(values, lost.schema.field(place).type))
    mask = np.ones(rows.num_rows, dtype=bool)
    mask[list(dead)] = False
    return FilledRows(rows.filter(pa.array(mask)), lost, count)


def _with_values(column: Any, pairs: Sequence[tuple[int, Any]]) -> Any:
    """The column with other values at some positions: the new ones are appended and then gathered into place."""
    positions = np.arange(len(column))
    positions[[position for position, _ in pairs]] = np.arange(len(column), len(column) + len(pairs))
    new = pa.array([value for _, value in pairs], column.type)
    return pa.chunked_array([*column.chunks, new]).combine_chunks().take(pa.array(positions))
