"""`freshet demo database`: PostgreSQL, Debezium and a lake that follows, with Apache Paimon as judge.

    1. a broker, a PostgreSQL server with twelve tables and rows, Kafka Connect with Debezium
    2. `freshet run` of one file with `sync`; the database changes meanwhile, and so do its tables (`database_live`)
    3. each table is read by Freshet and by Apache Paimon (JVM) and compared with the database, row by row

Exit code 1 on any difference. Ctrl-C at any time ends all of it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from freshet.jobs.demo.database_live import TOPICS, DatabaseLive
from freshet.jobs.demo.kafka_broker import any_broker
from freshet.jobs.demo.kafka_connect import DEBEZIUM_GROUP, KafkaConnect
from freshet.jobs.demo.live import DemoError
from freshet.jobs.demo.paimon_reader import read_by_paimon
from freshet.jobs.demo.postgres_server import PostgresServer, find_programs
from freshet.jobs.demo.row_texts import texts_of_json, texts_of_table
from freshet.jobs.demo.source_database import DATABASE, ONE_PARTITION, TARGETS, SourceDatabase
from freshet.jobs.demo.stage import PIPELINES, headline, play
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.spark.jars import ensure_jars
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import NotFoundError

FILE: Final = PIPELINES / "demo-database.yaml"
TRUNCATES_ARE_SKIPPED: Final = True
"""As `on_truncate` of the file says: then the truncated table still has its earlier rows."""
DIFFERENCES_SHOWN: Final = 3


def play_database(output: Path | None) -> int:
    """Plays the demo in a new folder; 0 when both readers and the database agree on every table."""
    find_programs()  # before anything is fetched or started
    ensure_jars(DEBEZIUM_GROUP)
    return play(_play, output, "database")


def _play(output: Path) -> int:
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
                print(f"  freshet run {FILE}")
                live = DatabaseLive(output, broker.bootstrap_servers, database, connect, FILE)
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
        if name not in read:
            agreed = False
            print(f"  {name:<{width}}  DIFFERENT: it is not in the lake")
            continue
        ours = catalog.table(name).scan().to_arrow()
        wanted = texts_of_json(rows, ours.schema)
        verdicts = [
            _verdict(wanted, found, list(rows[0]), keeps_more=name.endswith(ONE_PARTITION) and TRUNCATES_ARE_SKIPPED)
            for found in (ours, read[name].cast(ours.schema))
        ]
        agreed &= not any(verdict.startswith("DIFFERENT") for verdict in verdicts)
        print(
            f"  {name:<{width}}  {wanted.total():>6,} rows in the database; Freshet {verdicts[0]}, Paimon {verdicts[1]}"
        )
    dead = catalog.table("lake.dead_letters").scan().to_arrow() if _is_there(catalog, "lake.dead_letters") else None
    count = dead.num_rows if dead else 0
    print(f"  dead letters: {count}")
    for row in dead.slice(0, DIFFERENCES_SHOWN).to_pylist() if dead else []:
        print(f"    {row['topic']} at {row['log_offset']}: {row['reason']}")
    return agreed and count == 0


def _verdict(wanted: Counter[str], rows: pa.Table, columns: Sequence[str], *, keeps_more: bool) -> str:
    """`equal`, or what is missing and what is too much, with some of it."""
    if missing := [name for name in columns if name not in rows.column_names]:
        return f"DIFFERENT: no columns {', '.join(missing)}"
    found = texts_of_table(rows, columns)
    lacks, extra = wanted - found, found - wanted
    if keeps_more and not lacks:
        return f"has them, and {extra.total()} from before the truncate"
    if not lacks and not extra:
        return "equal"
    shown = [
        f"\n    {sign} {text}" for sign, each in (("-", lacks), ("+", extra)) for text in list(each)[:DIFFERENCES_SHOWN]
    ]
    return f"DIFFERENT: lacks {lacks.total()}, has {extra.total()} more{''.join(shown)}"


def _is_there(catalog: Catalog, name: str) -> bool:
    try:
        catalog.table(name)
    except NotFoundError:
        return False
    return True
