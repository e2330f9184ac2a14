"""`freshet demo database --debezium`: PostgreSQL, Debezium and a lake that follows, with Apache Paimon as judge.

1. a broker, a PostgreSQL server with twelve tables and rows, Kafka Connect with Debezium
2. `freshet run` of files with `sync`; the database changes meanwhile, and so do its tables (`database_live`)
3. each table is read by Freshet and by Apache Paimon (JVM) and compared with the database, row by row
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from freshet.jobs.demo.database_demo import compare, follow
from freshet.jobs.demo.debezium_feed import EXACT, PIPELINES, TOPICS, DebeziumFeed, connector
from freshet.jobs.demo.kafka_broker import any_broker
from freshet.jobs.demo.kafka_connect import DEBEZIUM_GROUP, KafkaConnect
from freshet.jobs.demo.paimon_reader import read_by_paimon
from freshet.jobs.demo.postgres_server import PostgresServer, find_programs
from freshet.jobs.demo.source_database import DATABASE, SourceDatabase
from freshet.jobs.demo.stage import headline, play
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.spark.jars import ensure_jars
from freshet.storage.catalog import Catalog
from freshet.storage.table import Table


def play_debezium(output: Path | None, engine: str) -> int:
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
            database = SourceDatabase(server, EXACT)
            database.play("tables")
            print(f"  PostgreSQL {server.version} at 127.0.0.1:{server.port}, with twelve tables", flush=True)
            with KafkaConnect.start(output, broker.bootstrap_servers, connector(server)) as connect:
                feed = DebeziumFeed(broker.bootstrap_servers, connect)
                source = follow(output, database, feed, PIPELINES, engine)
    if source is None:
        return 1
    headline("3. the tables, read by Freshet and by Apache Paimon (JVM), against the database")
    are_equal = compare(Catalog(str(output / "warehouse")), source, _read_by_paimon)
    print(f"\n{time.monotonic() - began:.0f} s in all; everything lies in {output}")
    return 0 if are_equal else 1


def _read_by_paimon(tables: Sequence[Table]) -> list[pa.Table]:
    return read_by_paimon([("rows", table) for table in tables])
