"""How Debezium brings the changes of the demo's database into Kafka, and how far the lake has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from freshet.jobs.demo.database_live import DatabaseLive
from freshet.jobs.demo.kafka_connect import KafkaConnect
from freshet.jobs.demo.postgres_server import USER, PostgresServer
from freshet.jobs.demo.source_database import DATABASE

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
        done = [int(file.name) for file in (folder / "commits").glob("*") if file.name.isdecimal()]
        if done:
            read |= json.loads((folder / "offsets" / str(max(done))).read_text().splitlines()[-1])
    return all(read.get(topic, {}).get(str(number), 0) >= end for (topic, number), end in wanted.items())
