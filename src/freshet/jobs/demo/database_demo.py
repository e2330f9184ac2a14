"""`freshet demo database`: PostgreSQL, Debezium and a lake that follows, with Apache Paimon as judge.

    1. a broker, a PostgreSQL server with twelve tables and rows, Kafka Connect with Debezium
    2. `freshet run` of files with `sync`; the database changes meanwhile, and so do its tables (`database_live`)
    3. each table is read by Freshet and by Apache Paimon (JVM) and compared with the database, row by row

Exit code 1 on any difference. Ctrl-C at any time ends all of it, with exit code 130.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa

from freshet.jobs.demo.database_live import PIPELINES, TOPICS, DatabaseLive
from freshet.jobs.demo.kafka_broker import any_broker
from freshet.jobs.demo.kafka_connect import DEBEZIUM_GROUP, KafkaConnect
from freshet.jobs.demo.live import DemoError
from freshet.jobs.demo.paimon_reader import read_by_paimon
from freshet.jobs.demo.postgres_server import PostgresServer, find_programs
from freshet.jobs.demo.row_texts import texts_of_json, texts_of_table
from freshet.jobs.demo.source_database import DATABASE, TARGETS, SourceDatabase
from freshet.jobs.demo.stage import PIPELINES as FOLDER
from freshet.jobs.demo.stage import headline, play
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
