"""`freshet demo database`: a PostgreSQL database and a lake that follows it, with neither broker nor JVM.

    1. a PostgreSQL server with twelve tables and rows
    2. `freshet run` of files with `sync`; the database changes meanwhile, and so do its tables (`database_live`)
    3. each table of the lake is compared with the database, row by row

Exit code 1 on any difference. Ctrl-C at any time ends all of it, with exit code 130. With Debezium: `debezium_demo`.

Values are compared as texts, and counted:

| type of the column in the lake | text |
|---|---|
| DECIMAL | the number without zeros at its end |
| FLOAT, DOUBLE | the shortest text that is this number and no other |
| DATE, TIME, TIMESTAMP | ISO; WITH LOCAL TIME ZONE in UTC |
| BYTES | hexadecimal digits |
| ARRAY | the texts of its items |
| others | the value as it is |
"""

from __future__ import annotations

import datetime
import json
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from freshet.jobs.demo.database_live import DatabaseLive, Feed
from freshet.jobs.demo.postgres_server import PostgresServer, find_programs
from freshet.jobs.demo.source_database import DATABASE, TARGETS, SourceDatabase
from freshet.jobs.demo.stage import PIPELINES as FOLDER
from freshet.jobs.demo.stage import headline, play
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import NotFoundError
from freshet.storage.table import Table

PIPELINES: Final = ("postgres-database", "postgres-shards")
"""Their files have these names too."""
SLOTS: Final = ("freshet_shop", "freshet_shards")
"""Those of the files."""
_AS_TEXT: Final = (
    "numeric", "interval", "bit(1)", "bit(8)", "json", "jsonb", "time without time zone",
)  # fmt: skip
EXACT: Final = {
    "money": "to_json({0}::numeric)",
    "jsonb[]": "to_json({0}::text[])",
    **dict.fromkeys(_AS_TEXT, "to_json({0}::text)"),
}
"""Types that `to_json` does not show as they are in the lake; `{0}` is the column."""


class PostgresFeed:
    """A `Feed`: the log of the database, a slot for each pipeline."""

    resend = "resend"
    resend_text = "an UPDATE of all customers: rows that were there have what the new column's default says"

    def __init__(self, database: SourceDatabase) -> None:
        server = database.server
        self.environment = {"SHOP_DSN": server.dsn(), "SHOP_PASSWORD": server.password}

    def failure(self) -> str | None:
        """`Feed.failure`: the writer says it."""
        return None

    def begin(self, live: DatabaseLive) -> None:
        """`Feed.begin`."""
        live.until(lambda: live.first_row_s is not None)
        live.say(f"the first rows are in the lake {live.first_row_s:.2f} s after the start of the process")

    def catch_up(self, live: DatabaseLive) -> None:
        """`Feed.catch_up`: what is confirmed to the server is in the lake."""
        end = live.database.position()
        live.database.play("end")  # a transaction behind it, which both slots get
        live.until(lambda: live.database.has_sent(end, SLOTS))
        live.say(f"all changes up to {end} are in the lake")


DEAD_LETTERS: Final = "lake.dead_letters"
DIFFERENCES_SHOWN: Final = 2

Judge = Callable[[Sequence[Table]], Sequence[pa.Table]]
"""What another reader finds in tables."""


def play_database(output: Path | None) -> int:
    """Plays the demo in a new folder; 0 when the lake has what the database has."""
    find_programs()
    return play(_play, output, "database", fetches=False)


def _play(output: Path) -> bool:
    headline("1. a real PostgreSQL")
    with PostgresServer.start(DATABASE) as server:
        database = SourceDatabase(server, EXACT)
        database.play("tables")
        database.play("published")
        print(f"  PostgreSQL {server.version} at 127.0.0.1:{server.port}, with twelve tables", flush=True)
        source = follow(output, database, PostgresFeed(database), PIPELINES, "local")
    headline("3. the tables of the lake against the database, row by row")
    return compare(Catalog(str(output / "warehouse")), source)


def follow(
    output: Path, database: SourceDatabase, feed: Feed, pipelines: Sequence[str], engine: str
) -> dict[str, list[dict[str, object]]]:
    """The live part; what the database then has, by the names of the tables in the lake. Raises `DemoError`."""
    files = [FOLDER / f"{name}.yaml" for name in pipelines]
    headline("2. a writer (freshet run) follows the database")
    print(f"  freshet run {' '.join(map(str, files))} --on {engine}")
    live = DatabaseLive(output, database, feed, files, engine)
    live.run()
    parts = " + ".join(f"{count:,} {what}" for what, count in live.totals.items() if what != "records read")
    print(f"  {live.totals['records read']:,} records read = {parts}, as the batches reported")
    return {target: list(database.rows(tables)) for target, tables in TARGETS.items()}


def compare(catalog: Catalog, source: Mapping[str, Sequence[Mapping[str, object]]], judge: Judge | None = None) -> bool:
    """Prints a line for each table of the lake; True when Freshet, and the judge, read what the source holds.

    `source` are the rows of the database by the names of the tables in the lake.
    """
    agreed = True
    names = [name for name in source if _is_there(catalog, name)]
    read = {} if judge is None else dict(zip(names, judge([catalog.table(name) for name in names]), strict=True))
    width = max(map(len, source))
    for name, rows in source.items():
        start = f"  {name:<{width}}  {len(rows):>6,} rows in the database"
        if name not in names:
            agreed = False
            print(f"{start}: DIFFERENT, the lake has no such table")
            continue
        ours = catalog.table(name).scan().to_arrow()
        readers = {"Freshet": ours}
        if name in read:
            readers["Apache Paimon"] = read[name].cast(ours.schema)
        found = {reader: differences(rows, table) for reader, table in readers.items()}
        agreed &= not any(found.values())
        verdicts = ", ".join(f"{'DIFFERENT' if lines else 'equal'} by {reader}" for reader, lines in found.items())
        print(f"{start}: {verdicts}")
        for line in [f"{reader}: {line}" for reader, lines in found.items() for line in lines]:
            print(f"    {line}")
    return agreed & _show_dead_letters(catalog)


def differences(rows: Sequence[Mapping[str, object]], table: pa.Table) -> list[str]:
    """What a table of the lake lacks of the rows of the database, and has beyond them; nothing where it is equal."""
    columns = list(rows[0]) if rows else table.column_names
    if missing := [name for name in columns if name not in table.column_names]:
        return [f"lacks columns: {', '.join(missing)}"]
    wanted, found = texts_of_json(rows, table.schema), texts_of_table(table, columns)
    parts = {"lacks": wanted - found, "has beyond them": found - wanted}
    return [
        f"{what} {each.total()} rows, such as {' '.join(list(each)[:DIFFERENCES_SHOWN])}"
        for what, each in parts.items()
        if each
    ]


def _show_dead_letters(catalog: Catalog) -> bool:
    """Prints records that could become no row; True when there are none."""
    if not _is_there(catalog, DEAD_LETTERS):
        print("  no dead letters")
        return True
    dead = catalog.table(DEAD_LETTERS).scan().to_arrow()
    print(f"  dead letters: {dead.num_rows}")
    for row in dead.slice(0, DIFFERENCES_SHOWN).to_pylist():
        print(f"    {row['topic']} at {row['log_offset']}: {row['reason']}")
    return bool(dead.num_rows == 0)


def _is_there(catalog: Catalog, name: str) -> bool:
    try:
        catalog.table(name)
    except NotFoundError:
        return False
    return True


def texts_of_table(rows: pa.Table, columns: Sequence[str]) -> Counter[str]:
    """How often each row of a table is there, by its text. Raises `KeyError` for a column that it does not have."""
    chosen = rows.select(columns)
    return Counter(_text(row) for row in chosen.to_pylist())


def texts_of_json(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> Counter[str]:
    """The same of rows as PostgreSQL shows them in JSON, by the types that the table of the lake has.

    Numbers are `Decimal`. Raises `ValueError` where a value is none of its type.
    """
    return Counter(_text({name: _value(value, schema.field(name).type) for name, value in row.items()}) for row in rows)


def _text(row: Mapping[str, Any]) -> str:
    return json.dumps({name: _shown(value) for name, value in row.items()}, ensure_ascii=False)


def _shown(value: Any) -> Any:
    if isinstance(value, Decimal):
        return f"{value.normalize():f}" if value else "0"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).isoformat()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [_shown(each) for each in value]
    return value


def _value(value: Any, arrow_type: pa.DataType) -> Any:
    """What a row of the lake holds if it holds this."""
    if value is None:
        return None
    if pa.types.is_list(arrow_type):
        return [_value(each, arrow_type.value_type) for each in value]
    if pa.types.is_integer(arrow_type):
        return int(value)
    if pa.types.is_decimal(arrow_type):
        return Decimal(value)
    if pa.types.is_float32(arrow_type):
        return struct.unpack("f", struct.pack("f", float(value)))[0]
    if pa.types.is_float64(arrow_type):
        return float(value)
    if pa.types.is_date(arrow_type):
        return datetime.date.fromisoformat(value)
    if pa.types.is_time(arrow_type):
        return datetime.time.fromisoformat(value)
    if pa.types.is_timestamp(arrow_type):
        return datetime.datetime.fromisoformat(value)
    if pa.types.is_binary(arrow_type) or pa.types.is_large_binary(arrow_type):
        return bytes.fromhex(value.removeprefix("\\x"))
    return value
