"""The shop's database in PostgreSQL: its tables, what happens to them (`database/*.sql`), and who has read how much.

What a table holds is asked in a form that JSON keeps exactly; `database_demo` compares it with the rows of a lake.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from freshet.jobs.demo.postgres_server import PostgresServer

DATABASE: Final = "shop"
SCRIPTS: Final = Path(__file__).with_name("database")
_ROUND: Final = re.compile("(?<!:):round")
TARGETS: Final[Mapping[str, Sequence[str]]] = {
    "lake.customers": ["customers"],
    "lake.orders": ["orders_0", "orders_1"],
    "lake.order_lines": ["order_lines"],
    "lake.products": ["products"],
    "lake.stock": ["stock"],
    "lake.payments": ["payments"],
    "lake.events": ["events"],
    "lake.visits": ["visits"],
    "lake.odd_name": ["Odd Näme"],
    "lake.daily_totals": ["daily_totals"],
    "lake.every_type": ["every_type"],
    "lake.refunds": ["refunds"],
}
"""Which tables of the database make which table of the lake, as the files in `pipelines/` say."""


class SourceDatabase:
    """The database of a server."""

    def __init__(self, server: PostgresServer, exact: Mapping[str, str]) -> None:
        self.server = server
        self._exact = exact

    def play(self, script: str, round_number: int = 0) -> None:
        """Runs `database/<script>.sql`, in which `:round` is a number."""
        text = (SCRIPTS / f"{script}.sql").read_text(encoding="utf-8")
        self.server.run(_ROUND.sub(str(round_number), text))

    def position(self) -> str:
        """Where the log of the database ends now."""
        return str(self.server.run("SELECT pg_current_wal_lsn()")[0][0])

    def has_sent(self, position: str, slots: Sequence[str]) -> bool:
        """True when all that is before a position is confirmed of these slots: it is where their changes go."""
        query = f"SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn >= '{position}' AND slot_name IN "
        count = self.server.run(query + "(" + ", ".join(f"'{slot}'" for slot in slots) + ")")[0][0]
        return bool(count == len(slots))

    def rows(self, tables: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The rows of tables as JSON shows them, each value exactly as it is sent."""
        for table in tables:
            yield from self.server.rows(exact_query(table, self.columns(table), self._exact))

    def columns(self, table: str) -> dict[str, str]:
        """The types of a table's columns."""
        found = self.server.rows(
            "SELECT attname AS name, format_type(atttypid, atttypmod) AS type FROM pg_attribute"
            f" WHERE attrelid = '{quoted(table)}'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        return {column["name"]: column["type"] for column in found}


def exact_query(table: str, columns: Mapping[str, str], exact: Mapping[str, str]) -> str:
    """A query for the rows of a table with columns of these types.

    `exact` are types that `to_json` does not show as they are sent, and what does; `{0}` is the column.
    """
    shown = (f"{exact.get(kind, '{0}').format(quoted(name))} AS {quoted(name)}" for name, kind in columns.items())
    return f"SELECT {', '.join(shown)} FROM {quoted(table)}"


def quoted(name: str) -> str:
    """An identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'
