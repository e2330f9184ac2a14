"""`freshet demo database --debezium`: PostgreSQL, Debezium and a lake that follows, with Apache Paimon as judge.

1. a broker, a PostgreSQL server with twelve tables and rows, Kafka Connect with Debezium
2. `freshet run` of files with `sync`; the database changes meanwhile, and so do its tables (`database_live`)
3. each table is read by Freshet and by Apache Paimon (JVM) and compared with the database, row by row
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from freshet.jobs.demo.database_demo import compare, follow
from freshet.jobs.demo.database_live import DatabaseLive
from freshet.jobs.demo.kafka_broker import any_broker
from freshet.jobs.demo.kafka_connect import DEBEZIUM_GROUP, KafkaConnect
from freshet.jobs.demo.paimon_reader import read_by_paimon
from freshet.jobs.demo.postgres_server import USER, PostgresServer, find_programs
from freshet.jobs.demo.source_database import DATABASE, SourceDatabase
from freshet.jobs.demo.stage import headline, play
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.identity.checkpoint_offsets import finished_lines
from freshet.pipeline.spark.jars import ensure_jars
from freshet.storage.catalog import Catalog
from freshet.storage.table import Table

PIPELINES: Final = ("demo-database", "demo-shards")
"""Their files have these names too."""
TOPICS: Final = "shop.public."
SLOT: Final = "freshet"
ONE_PARTITION: Final = "daily_totals"
"""A truncate is one record in one Kafka partition: only there is it in order with the rows before and after it."""
_ANSWER_TIMEOUT_S: Final = 60.0
_SNAPSHOT_IS_DONE: Final = "aggregateType='Incremental Snapshot', type='COMPLETED'"

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

EXACT: Final = {
    "money": "to_json({0}::numeric)",
    "interval": "to_json((extract(epoch FROM {0}) * 1000000)::bigint)",  # microseconds
    "bit(1)": "to_json({0} = B'1')",
    "bit(8)": "to_json('\\x' || lpad(to_hex({0}::integer), 2, '0'))",
    "json": "to_json({0}::text)",
    "jsonb": "to_json({0}::text)",
    "jsonb[]": "to_json({0}::text[])",
}
"""Types that `to_json` does not show as Debezium sends them; `{0}` is the column."""


class DebeziumFeed:
    """A `Feed`: a broker and a connector."""

    resend = "snapshot"
    resend_text = "an incremental snapshot of the customers"

    def __init__(self, bootstrap_servers: str, connect: KafkaConnect) -> None:
        self.environment = {"KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers}
        self._bootstrap_servers, self._connect = bootstrap_servers, connect

    def failure(self) -> str | None:
        """`Feed.failure`."""
        return self._connect.failure()

    def begin(self, live: DatabaseLive) -> None:
        """`Feed.begin`."""
        live.until(self._connect.runs)
        live.say("Debezium runs, and sends what is there: its snapshot")

    def catch_up(self, live: DatabaseLive) -> None:
        """`Feed.catch_up`: 1. Debezium has sent all there is, 2. all records are committed to the tables."""
        end = live.database.position()
        live.until(lambda: self._connect.has_logged(_SNAPSHOT_IS_DONE))
        live.until(lambda: live.database.has_sent(end, [SLOT]))  # 1
        wanted = self._end_offsets()
        live.until(lambda: _has_read(live, wanted))  # 2
        topics = len({topic for topic, _ in wanted})
        live.say(f"all {sum(wanted.values()):,} records of {topics} topics are in the lake")

    def _end_offsets(self) -> dict[tuple[str, int], int]:
        """By topic and Kafka partition of the tables; those without records are left out."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap_servers, "group.id": "freshet-demo"})
        try:
            topics = consumer.list_topics(timeout=_ANSWER_TIMEOUT_S).topics
            places = [
                (name, number) for name in topics if name.startswith(TOPICS) for number in topics[name].partitions
            ]
            ends = {
                (name, number): consumer.get_watermark_offsets(TopicPartition(name, number), timeout=_ANSWER_TIMEOUT_S)[
                    1
                ]
                for name, number in places
            }
        finally:
            consumer.close()
        return {place: end for place, end in ends.items() if end > 0}


def connector(server: PostgresServer) -> dict[str, str]:
    """The settings of the connector that reads a server."""
    return CONNECTOR | {
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": USER,
        "database.password": server.password,
        "database.dbname": DATABASE,
    }


def _has_read(live: DatabaseLive, wanted: Mapping[tuple[str, int], int]) -> bool:
    """True when the checkpoint says that all records before these offsets are in the tables."""
    read: dict[str, dict[str, int]] = {}
    for pipeline in PIPELINES:
        folder = live.warehouse / "_checkpoints" / pipeline
        for line in finished_lines(str(folder)):
            read |= json.loads(line)
    return all(read.get(topic, {}).get(str(number), 0) >= end for (topic, number), end in wanted.items())


def play_debezium(output: Path | None, engine: str) -> int:
    """Plays the demo in a new folder; 0 when both readers and the database agree on every table."""
    find_programs()  # before anything is fetched or started
    ensure_jars(DEBEZIUM_GROUP)
    return play(partial(_play, engine), output, "database")


def _play(engine: str, output: Path) -> bool:
    headline("1. a real Kafka broker, a real PostgreSQL, a real Debezium")
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
    headline("3. the tables, read by Freshet and by Apache Paimon (JVM), against the database")
    return compare(Catalog(str(output / "warehouse")), source, _read_by_paimon)


def _read_by_paimon(tables: Sequence[Table]) -> list[pa.Table]:
    return read_by_paimon([("rows", table) for table in tables])
