"""The shop's database in PostgreSQL: its tables and what happens to them (`database/*.sql`), and how Debezium reads it.

What a table holds is asked in a form that JSON keeps exactly; `row_texts` makes of it what it makes of a lake's rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from freshet.jobs.demo.postgres_server import USER, PostgresServer

DATABASE: Final = "shop"
SCRIPTS: Final = Path(__file__).with_name("database")
SLOT: Final = "freshet"
ONE_PARTITION: Final = "daily_totals"
"""A truncate is one record in one Kafka partition: only there is it in order with the rows before and after it."""

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

CONNECTOR: Final = {
    "name": "shop",
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "tasks.max": "1",
    "plugin.name": "pgoutput",
    "topic.prefix": DATABASE,
    "slot.name": SLOT,
    "publication.name": SLOT,
    "publication.autocreate.mode": "all_tables",  # tables that come later are in it
    "schema.include.list": "public",
    "signal.data.collection": "ops.signals",
    "incremental.snapshot.chunk.size": "100",
    "notification.enabled.channels": "log",
    "message.key.columns": "public.visits:visitor,page",
    "topic.creation.default.replication.factor": "1",
    "topic.creation.default.partitions": "3",
    "topic.creation.groups": "one",
    "topic.creation.one.include": f".*[.]{ONE_PARTITION}",
    "topic.creation.one.replication.factor": "1",
    "topic.creation.one.partitions": "1",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "true",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "true",  # types of the tables are made from them
    "value.converter.replace.null.with.default": "false",  # NULL in a column with a default is NULL
    "skipped.operations": "none",  # truncates are sent
    "heartbeat.interval.ms": "1000",
}
"""What is the same for every server."""

_EXACT: Final = {
    "money": "to_json({0}::numeric)",
    "interval": "to_json((extract(epoch FROM {0}) * 1000000)::bigint)",  # microseconds
    "bit(1)": "to_json({0} = B'1')",
    "bit(8)": "to_json('\\x' || lpad(to_hex({0}::integer), 2, '0'))",
    "json": "to_json({0}::text)",
    "jsonb": "to_json({0}::text)",
    "jsonb[]": "to_json({0}::text[])",
}
"""Types that `to_json` does not show as Debezium sends them; `{0}` is the column."""


class SourceDatabase:
    """The database of a server."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def connector(self) -> dict[str, str]:
        """The settings of the connector."""
        return CONNECTOR | {
            "database.hostname": "127.0.0.1",
            "database.port": str(self._server.port),
            "database.user": USER,
            "database.password": self._server.password,
            "database.dbname": DATABASE,
        }

    def play(self, script: str, round_number: int = 0) -> None:
        """Runs `database/<script>.sql`."""
        text = (SCRIPTS / f"{script}.sql").read_text(encoding="utf-8")
        self._server.run(f"\\set round {round_number}\n{text}")

    def position(self) -> str:
        """Where the log of the database ends now."""
        return self._server.run("SELECT pg_current_wal_lsn()").strip()

    def has_sent(self, position: str) -> bool:
        """True when Debezium has sent all changes before a position, and Kafka has acknowledged them."""
        query = f"SELECT confirmed_flush_lsn >= '{position}' FROM pg_replication_slots WHERE slot_name = '{SLOT}'"
        return self._server.run(query).strip() == "t"

    def rows(self, tables: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The rows of tables as JSON shows them, each value exactly as Debezium sends it."""
        for table in tables:
            yield from self._server.rows(exact_query(table, self._columns(table)))

    def _columns(self, table: str) -> dict[str, str]:
        found = self._server.rows(
            "SELECT attname AS name, format_type(atttypid, atttypmod) AS type FROM pg_attribute"
            f" WHERE attrelid = '{quoted(table)}'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        return {column["name"]: column["type"] for column in found}


def exact_query(table: str, columns: Mapping[str, str]) -> str:
    """A query for the rows of a table with columns of these types."""
    shown = (f"{_EXACT.get(kind, '{0}').format(quoted(name))} AS {quoted(name)}" for name, kind in columns.items())
    return f"SELECT {', '.join(shown)} FROM {quoted(table)}"


def quoted(name: str) -> str:
    """An identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'
