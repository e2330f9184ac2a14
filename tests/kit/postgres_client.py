"""A random client of a PostgreSQL database that knows what each table holds at every moment of the log.

    client = RandomClient(source, chance)               makes the tables, with rows
    client.step()                                       a transaction, or one that is rolled back
    client.held("d", lsn)                               {key: {column: value, …}} after the transaction that ends there
    client.copied(key)                                  what a copy may have of a row of `d`, whenever it was read

| table | what happens to it |
|---|---|
| `d` | inserts, updates with TOAST that changes or stays, other keys, deletes; columns come, go, get other names |
| `s` | inserts and updates of numbers, with the whole row before (FULL) |
| `w1`, `w2` | the two halves of wide rows: inserts and updates |

What is held of `d` is what a lake has: a row as it was when it last changed, by the names that its columns had then.
A lake's oracle is a dict: rows are copied with each transaction. The client is the only writer.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

from tests.kit.postgres_source import PostgresSource

TABLES: Final = ("d", "s", "w1", "w2")
STARTING_ROWS: Final = 150
MARKER_S: Final = 1.0
BIG: Final = 5000
"""Characters that do not shrink: such a value lies out of line."""

Rows = dict[int, dict[str, Any]]


class Undone(Exception):
    """The transaction is to be rolled back."""


class RandomClient:
    """One session; see the module."""

    def __init__(self, source: PostgresSource, chance: Random, rows: int = STARTING_ROWS) -> None:
        self._chance = chance
        self._session = source.connect()
        self._session.execute(b"SET lock_timeout = '60 s'")
        self._next = 1
        self._columns: dict[str, str] = {"n": "int", "big": "text"}
        """Of `d`, but for the key."""
        self._names = 0
        self._is_wide = False
        self.rows: dict[str, Rows] = {name: {} for name in TABLES}
        """As the database has them."""
        self._lake: dict[str, Rows] = {name: {} for name in TABLES}
        self._begins: list[int] = []
        self._states: list[dict[str, Rows]] = []
        self._tables: list[Rows] = []
        """What `d` had in the database at the same moments."""
        self._told_at = 0.0
        self.markers = 0
        self.alters = 0.0
        """In which share of transactions columns of `d` change."""
        for statement in (
            "CREATE TABLE d (id bigint PRIMARY KEY, n int, big text)",
            "CREATE TABLE s (id bigint PRIMARY KEY, v bigint, w numeric(12, 2))",
            "ALTER TABLE s REPLICA IDENTITY FULL",
            "CREATE TABLE w1 (id bigint PRIMARY KEY, a int, big text)",
            "CREATE TABLE w2 (id bigint PRIMARY KEY, b int, c text)",
            "CREATE PUBLICATION p FOR TABLE d, s, w1, w2",
        ):
            self._session.execute(statement.encode())
        with self._transaction():
            for table in TABLES:
                for _ in range(rows):
                    self._insert(table)

    def held(self, table: str, lsn: int) -> Rows:
        """What a lake holds of a table whose stream was read up to the end of a transaction."""
        return self._states[bisect_left(self._begins, lsn) - 1][table]

    def copied(self, key: int) -> list[dict[str, Any]]:
        """The row of a key as it last changed, and with the columns that `d` has had since."""
        last = self._lake["d"][key]
        found = [last]
        for lake, table in zip(reversed(self._states), reversed(self._tables), strict=True):
            if lake["d"].get(key) is not last:
                break
            found.append(table[key])
        return found

    @property
    def lake(self) -> dict[str, Rows]:
        """The same after all that was committed."""
        return self._lake

    def step(self) -> None:
        """One transaction, and a marker when it is time for one."""
        if time.monotonic() - self._told_at >= MARKER_S:
            self._told_at = time.monotonic()
            with self._transaction():
                self.markers += 1
                self._session.execute(b"SELECT pg_logical_emit_message(true, 'marker', %s)", (str(self.markers),))
        try:
            with self._transaction():
                for _ in range(self._chance.choice((1, 1, 2, 5, 40))):
                    self._act()
                if self._chance.random() < self.alters:
                    self._alter()
                    self._act()
                if self._chance.random() < 0.1:
                    raise Undone
        except Undone:
            return

    def close(self) -> None:
        self._session.close()

    # --- transactions -------------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Notes what is held from its end on; what was before comes back where it is undone."""
        begin = self._session.execute(b"SELECT pg_current_wal_insert_lsn() - '0/0'").fetchall()[0][0]
        kept = self._kept()
        self._session.execute(b"BEGIN")
        try:
            yield
        except Undone:
            self._session.execute(b"ROLLBACK")
            self._back_to(kept)
            raise
        self._session.execute(b"COMMIT")
        self._begins.append(int(begin))
        self._states.append({name: dict(rows) for name, rows in self._lake.items()})
        self._tables.append(dict(self.rows["d"]))

    def _kept(self) -> tuple[Any, ...]:
        copies = ({name: dict(rows) for name, rows in each.items()} for each in (self.rows, self._lake))
        return (*copies, dict(self._columns), self._is_wide)

    def _back_to(self, kept: tuple[Any, ...]) -> None:
        self.rows, self._lake, self._columns, self._is_wide = kept

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _act(self) -> None:
        table = self._chance.choice(("d", "d", "d", "s", "w1", "w2"))
        if self._chance.random() < 0.1:
            self._savepoint(table)
        else:
            self._change(table)

    def _savepoint(self, table: str) -> None:
        kept = self._kept()
        self._session.execute(b"SAVEPOINT a")
        for _ in range(3):
            self._change(table)
        if self._chance.random() < 0.5:
            self._session.execute(b"ROLLBACK TO a")
            self._back_to(kept)
        self._session.execute(b"RELEASE a")

    def _change(self, table: str) -> None:
        key = self._a_key(table)
        draw = self._chance.random()
        if key is None or draw < 0.1:
            self._insert(table)
        elif table == "d" and draw < 0.2:
            self._session.execute(b"DELETE FROM d WHERE id = %s", (key,))
            del self.rows["d"][key], self._lake["d"][key]
        elif table == "d" and draw < 0.3:
            self._move(key)
        elif table == "d" and draw < 0.32:
            self._insert("d")  # and another key, all before the first commit
            self._move(self._next - 1)
        else:
            self._update(table, key)

    def _insert(self, table: str) -> None:
        key = self._next
        self._next += 1
        row = {name: self._value(table, name) for name in self._of(table)}
        names = ", ".join(("id", *row))
        marks = ", ".join(["%s"] * (len(row) + 1))
        self._session.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})".encode(), (key, *row.values()))
        self.rows[table][key] = self._lake[table][key] = row

    def _update(self, table: str, key: int) -> None:
        chosen = [name for name in self._of(table) if self._chance.random() < (0.15 if name == "big" else 0.6)]
        changes = {name: self._value(table, name) for name in chosen or [self._of(table)[0]]}
        texts = ", ".join(f"{name} = %s" for name in changes)
        self._session.execute(f"UPDATE {table} SET {texts} WHERE id = %s".encode(), (*changes.values(), key))
        self.rows[table][key] = self._lake[table][key] = {**self.rows[table][key], **changes}

    def _move(self, key: int) -> None:
        to = self._next
        self._next += 1
        self._session.execute(b"UPDATE d SET id = %s WHERE id = %s", (to, key))
        row = self.rows["d"].pop(key)
        del self._lake["d"][key]
        self.rows["d"][to] = self._lake["d"][to] = row

    def _a_key(self, table: str) -> int | None:
        keys = list(self.rows[table])
        return self._chance.choice(keys) if keys else None

    def _of(self, table: str) -> tuple[str, ...]:
        others = {"s": ("v", "w"), "w1": ("a", "big"), "w2": ("b", "c")}
        return tuple(self._columns) if table == "d" else others[table]

    def _value(self, table: str, name: str) -> Any:
        if name in ("big", "c"):
            if table == "d" and self._chance.random() < 0.1:  # a partial update keeps what NULL would take away
                return None
            size = BIG if name == "big" else 10
            return self._chance.randbytes(size // 2).hex()
        most = 10**12 if name == "n" and self._is_wide else 10**6
        return self._chance.randrange(most)

    # --- columns of d -------------------------------------------------------------------------------------------------

    def _alter(self) -> None:
        added = [name for name in self._columns if name.startswith("x")]
        draw = self._chance.choice(("add", "add", "drop", "again", "rename", "widen"))
        if draw == "widen" and not self._is_wide:
            self._session.execute(b"ALTER TABLE d ALTER COLUMN n TYPE bigint")
            self._is_wide = True
        elif draw == "add" or not added:
            if len(added) < 6:
                self._add(self._new_name(), self._chance.choice((None, 7)))
        elif draw == "drop":
            self._drop(self._chance.choice(added))
        elif draw == "again":
            name = self._chance.choice(added)
            self._drop(name)
            self._add(name, None)
        elif draw == "rename":
            name, new = self._chance.choice(added), self._new_name()
            self._session.execute(f"ALTER TABLE d RENAME COLUMN {name} TO {new}".encode())
            self._columns = {new if each == name else each: kind for each, kind in self._columns.items()}
            for key, row in self.rows["d"].items():
                self.rows["d"][key] = {new if each == name else each: value for each, value in row.items()}

    def _new_name(self) -> str:
        self._names += 1
        return f"x{self._names}"

    def _add(self, name: str, default: int | None) -> None:
        text = f"ALTER TABLE d ADD COLUMN {name} int"
        self._session.execute((text if default is None else f"{text} DEFAULT {default}").encode())
        self._columns = {**self._columns, name: "int"}
        for key, row in self.rows["d"].items():
            self.rows["d"][key] = {**row, name: default}

    def _drop(self, name: str) -> None:
        self._session.execute(f"ALTER TABLE d DROP COLUMN {name}".encode())
        self._columns = {each: kind for each, kind in self._columns.items() if each != name}
        for key, row in self.rows["d"].items():
            self.rows["d"][key] = {each: value for each, value in row.items() if each != name}
