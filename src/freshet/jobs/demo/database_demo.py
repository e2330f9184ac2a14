"""`freshet demo database`: PostgreSQL, Debezium and a lake that follows, with Apache Paimon as judge.

    1. a broker, a PostgreSQL server with twelve tables and rows, Kafka Connect with Debezium
    2. `freshet run` of files with `sync`; the database changes meanwhile, and so do its tables (`database_live`)
    3. each table is read by Freshet and by Apache Paimon (JVM) and compared with the database, row by row

Exit code 1 on any difference. Ctrl-C at any time ends all of it, with exit code 130.

Rows as texts, so that those of a database and those of a lake can be compared value by value, and counted.

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
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from freshet.jobs.demo.database_live import PIPELINES, TOPICS, DatabaseLive
from freshet.jobs.demo.kafka_broker import any_broker
from freshet.jobs.demo.kafka_connect import DEBEZIUM_GROUP, KafkaConnect
from freshet.jobs.demo.live import DemoError
from freshet.jobs.demo.postgres_server import PostgresServer, find_programs
from freshet.jobs.demo.source_database import DATABASE, TARGETS, SourceDatabase
from freshet.jobs.demo.stage import PIPELINES as FOLDER
from freshet.jobs.demo.stage import headline, play, read_by_paimon
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.spark.jars import ensure_jars
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import NotFoundError

FILES: Final = [FOLDER / f"{name}.yaml" for name in PIPELINES]
DEAD_LETTERS: Final = "lake.dead_letters"
DIFFERENCES_SHOWN: Final = 2


def play_database(output: Path | None, engine: str) -> int:
    """Plays the demo in a new folder; 0 when both readers and the database agree on every table."""
    find_programs()  # before anything is fetched or started
    ensure_jars(DEBEZIUM_GROUP)
    return play(partial(_play, engine), output, "database")


def _play(engine: str, output: Path) -> int:
    began = time.monotonic()
    headline("1. a real Kafka broker, a real PostgreSQL, a real Debezium")
    (output / "warehouse").mkdir()
    with any_broker() as broker:
        if taken := sorted(topic for topic in broker.topics() if topic.startswith(TOPICS)):
            raise InvalidRequestError(
                f"topic {taken[0]} at {broker.bootstrap_servers} is there already: delete {TOPICS}*, or unset "
                "KAFKA_BOOTSTRAP_SERVERS to start a broker"
            )
        print(f"  Kafka at {broker.bootstrap_servers}")
        with PostgresServer.start(DATABASE) as server:
            database = SourceDatabase(server)
            database.play("tables")
            print(f"  PostgreSQL {server.version} at 127.0.0.1:{server.port}, with twelve tables", flush=True)
            with KafkaConnect.start(output, broker.bootstrap_servers, database.connector()) as connect:
                headline("2. a writer (freshet run) follows the database")
                print(f"  freshet run {' '.join(map(str, FILES))} --on {engine}")
                live = DatabaseLive(output, broker.bootstrap_servers, database, connect, FILES, engine)
                try:
                    live.run()
                except DemoError as error:
                    print(f"\nthe demo has failed: {error}", flush=True)
                    return 1
            source = {target: list(database.rows(tables)) for target, tables in TARGETS.items()}
    parts = " + ".join(f"{count:,} {what}" for what, count in live.totals.items() if what != "records read")
    print(f"  {live.totals['records read']:,} records read = {parts}, as the batches reported")
    are_equal = compare(Catalog(str(output / "warehouse")), source)
    print(f"\n{time.monotonic() - began:.0f} s in all; everything lies in {output}")
    return 0 if are_equal else 1


def compare(catalog: Catalog, source: Mapping[str, Sequence[Mapping[str, object]]]) -> bool:
    """Prints a line for each table of the lake; True when Freshet and Apache Paimon both read what the source holds.

    `source` are the rows of the database by the names of the tables in the lake.
    """
    headline("3. the tables, read by Freshet and by Apache Paimon (JVM), against the database")
    agreed = True
    names = [name for name in source if _is_there(catalog, name)]
    tables = [catalog.table(name) for name in names]
    read = dict(zip(names, read_by_paimon([("rows", table) for table in tables]), strict=True))
    width = max(map(len, source))
    for name, rows in source.items():
        start = f"  {name:<{width}}  {len(rows):>6,} rows in the database"
        if name not in read:
            agreed = False
            print(f"{start}: DIFFERENT, the lake has no such table")
            continue
        ours = catalog.table(name).scan().to_arrow()
        both = {"Freshet": ours, "Apache Paimon": read[name].cast(ours.schema)}
        found = {reader: differences(rows, table) for reader, table in both.items()}
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
