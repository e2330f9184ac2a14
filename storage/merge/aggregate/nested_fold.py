"""nested_update for keys that are folded one by one: on positions of rows and their codes, never on values."""

from __future__ import annotations

from collections.abc import Iterable

from freshet.storage.merge.aggregate.events import Event, Positions
from freshet.storage.merge.aggregate.live_events import LiveEvents
from freshet.storage.merge.aggregate.nested_rows import ERROR, NestedRows
from freshet.storage.merge.aggregate.parts import Parts
from freshet.storage.options.engine import ColumnFunction

_Table = dict[int, int]


class NestedFold:
    """Folds the events of one key after the other, on positions of rows.

    acc is None, a list of positions that nothing was added to yet, or rows by nested key.
    """

    def __init__(self, function: ColumnFunction, column: str, rows: NestedRows, parts: Parts) -> None:
        self._limit = function.count_limit
        self._keyed = bool(function.nested_key)
        self._rows = rows
        self._parts = parts
        self._positions: list[int] = []
        self._codes: list[int] = []
        self._counts: list[bool] = []
        self._null_keys: list[bool] = []
        self._sequences: list[int] | None = None
        self._event = 0

    def results(self, events: LiveEvents) -> dict[int, list[int] | None]:
        """The rows of each key."""
        picks = self._parts.picks(events)
        self._load(picks.parts)
        results: dict[int, list[int] | _Table | None] = dict.fromkeys(events.keys.tolist())
        for key, event, code, length, first in self._parts.walk(events):
            self._event = event
            x = None if length is None else list(range(first, first + length))
            acc = results[key]
            if code == Event.SET:
                acc = x
            elif code == Event.RETRACT:
                acc = acc if acc is None or x is None else self._without(acc, x)
            elif code == Event.ADD_LATE:
                acc = x if acc is None else self._added(x, list(_rows_of(acc)))
            elif x is not None:
                acc = self._added(acc, x)
            results[key] = acc
        return {
            key: None if acc is None else [self._positions[index] for index in _rows_of(acc)]
            for key, acc in results.items()
        }

    def _load(self, parts: Positions) -> None:
        rows = self._rows
        assert rows.keys is not None
        self._positions = parts.tolist()
        self._codes = rows.keys[parts].tolist()
        self._counts = rows.counts[parts].tolist()
        self._null_keys = rows.null_keys[parts].tolist()
        self._sequences = None if rows.sequences is None else rows.sequences[parts].tolist()

    def _added(self, acc: list[int] | _Table | None, x: list[int]) -> list[int] | _Table:
        if self._keyed:
            table = acc if isinstance(acc, dict) else self._put({}, acc or (), None)
            return self._put(table, x, self._limit)
        rows = list(_rows_of(acc)) if acc is not None else []
        room = None if self._limit is None else self._limit - len(rows)
        if acc is not None and room is not None and room <= 0:
            return rows
        new = [index for index in x if self._counts[index]]
        return [index for index in rows if self._counts[index]] + (new if room is None else new[: max(room, 0)])

    def _without(self, acc: list[int] | _Table, x: list[int]) -> list[int] | _Table:
        if self._keyed:
            table = dict(acc) if isinstance(acc, dict) else self._put({}, acc, None, by_sequence=False)
            for index in self._looked_at(x):
                table.pop(self._codes[index], None)
            return table
        retracted = {self._codes[index] for index in x if self._counts[index]}
        return [index for index in _rows_of(acc) if self._counts[index] and self._codes[index] not in retracted]

    def _put(self, table: _Table, x: Iterable[int], limit: int | None, *, by_sequence: bool = True) -> _Table:
        sequences = self._sequences if by_sequence else None
        for index in self._looked_at(x):
            code = self._codes[index]
            old = table.get(code)
            if old is None:
                if limit is None or len(table) < limit:
                    table[code] = index
            elif sequences is None or sequences[index] >= sequences[old]:
                table[code] = index
        return table

    def _looked_at(self, x: Iterable[int]) -> Iterable[int]:
        for index in x:
            if self._null_keys[index] and self._rows.strategy == ERROR:
                raise self._rows.null_key_error(self._event)
            if self._counts[index]:
                yield index


def _rows_of(acc: list[int] | _Table) -> Iterable[int]:
    return acc.values() if isinstance(acc, dict) else acc
