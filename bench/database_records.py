"""The change stream of W12: the records of W9 as if they were of a hundred tables, a topic for each.

Four of five records are of the first twenty tables. A key is always of one table.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import Producer

from bench.cdc_records import records
from freshet.jobs.demo.kafka_broker import ForeignBroker

TABLES: Final = 100
LARGE_TABLES: Final = 20


def table_of(key: int) -> str:
    """The table of a key."""
    is_small = key % 5 == 0
    number = LARGE_TABLES + key // 5 % (TABLES - LARGE_TABLES) if is_small else key // 5 % LARGE_TABLES
    return f"t{number:02}"


def produce_database(broker: ForeignBroker, db: str, count: int) -> None:
    """Makes a topic of one partition for each table, and fills them."""
    for number in range(TABLES):
        broker.create_topic(f"{db}.public.t{number:02}", kafka_partitions=1)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50, "queue.buffering.max.messages": 400_000}
    )
    own = f'"db":"{db}"'.encode()
    for key, value in records(count):
        table = table_of(key)
        changed = value.replace(b'"table":"orders"', b'"table":"%s"' % table.encode()).replace(b'"db":"shop"', own)
        while True:
            try:
                producer.produce(f"{db}.public.{table}", changed, key=b'{"id":%d}' % key)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()
