"""What a table that many verbs work on must hold: plain rows for each snapshot, tag and branch.

Rows are dicts by the number of a column, which stays when the column gets another name; a value that a row lacks is
NULL. A line is the table or one of its branches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[int, Any]
Texts = list[str]

P, K, V, N = range(4)
"""Numbers of the columns that a table begins with."""


@dataclass(frozen=True)
class Column:
    """A column; `kind` is STRING, INT or BIGINT."""

    number: int
    name: str
    kind: str


FIRST_COLUMNS = (Column(P, "p", "STRING"), Column(K, "k", "INT"), Column(V, "v", "STRING"), Column(N, "n", "INT"))


@dataclass(frozen=True)
class State:
    """Rows, in the columns that a table had."""

    columns: tuple[Column, ...] = FIRST_COLUMNS
    rows: tuple[Row, ...] = ()

    def texts(self) -> Texts:
        """The rows in an order in which they can be compared."""
        return texts(tuple(row.get(column.number) for column in self.columns) for row in self.rows)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def column(self, number: int) -> Column | None:
        """The column of a number, where it was not dropped."""
        return next((column for column in self.columns if column.number == number), None)

    def named(self, row: Row) -> dict[str, Any]:
        """A row by the names of the columns."""
        return {column.name: row.get(column.number) for column in self.columns}


def texts(rows: Iterable[Sequence[Any]]) -> Texts:
    """Rows as texts, sorted."""
    return sorted(repr(tuple(row)) for row in rows)


@dataclass
class Line:
    """The table, or a branch of it, as it must be: now, at the snapshots that are there, and by its tags."""

    name: str
    keys: tuple[int, ...]
    """Columns of the primary key; none of a table without one."""
    now: State = field(default_factory=State)
    states: dict[int, State] = field(default_factory=dict)
    """Of snapshots of which it is known."""
    tags: dict[str, tuple[int, State]] = field(default_factory=dict)

    def key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row.get(number) for number in self.keys)

    def with_rows(self, rows: Iterable[Row]) -> State:
        """The columns of now, with other rows."""
        return State(self.now.columns, tuple(rows))

    def added(self, rows: Iterable[Row], to: Iterable[Row] | None = None) -> State:
        """After these rows were added: of a keyed table each replaces that of its key."""
        before = self.now.rows if to is None else to
        if not self.keys:
            return self.with_rows([*before, *rows])
        held = {self.key(row): row for row in before}
        for row in rows:
            held[self.key(row)] = row
        return self.with_rows(held.values())

    def without(self, is_gone: Callable[[Row], bool]) -> State:
        """After the rows were taken away of which this is true."""
        return self.with_rows(row for row in self.now.rows if not is_gone(row))

    def changed(self, is_meant: Callable[[Row], bool], change: Callable[[Row], Row]) -> State:
        """After some rows were changed."""
        return self.with_rows(change(row) if is_meant(row) else row for row in self.now.rows)

    def saw(self, ids: Sequence[int]) -> None:
        """The snapshots that are there after a verb; the newest one has the rows of now."""
        self.states = {each: state for each, state in self.states.items() if each in ids}
        if ids and ids[-1] not in self.states:
            self.states[ids[-1]] = self.now

    def cut(self, snapshot_id: int) -> None:
        """Snapshots and tags after one are gone."""
        self.states = {each: state for each, state in self.states.items() if each <= snapshot_id}
        self.tags = {name: tag for name, tag in self.tags.items() if tag[0] <= snapshot_id}
