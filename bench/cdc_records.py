"""The change stream of the CDC benchmarks: Debezium records of an orders table, on a real broker.

| share | record |
|---|---|
| 70 % | `c` of a new key |
| 25 % | `u` of an earlier key, with `before` |
| 5 % | `d` of an earlier key, with `before` |

Ten columns, some 650 bytes a record without the schema; two Kafka partitions, a key always in the same one. Decimals
are texts and times are numbers, so that every peer reads the same record into the same columns. All of it follows from
the seed. Variants: `schema` puts the Connect schema next to the payload, `wide` has 100 columns, `broken` makes every
tenth record unreadable.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, Final

from confluent_kafka import Producer

from freshet.jobs.demo.kafka_broker import ForeignBroker

COLUMNS: Final = {
    "id": "BIGINT",
    "customer_id": "BIGINT",
    "status": "STRING",
    "total": "DECIMAL(14,4)",
    "quantity": "INT",
    "weight": "DOUBLE",
    "paid": "BOOLEAN",
    "city": "STRING",
    "note": "STRING",
    "updated_at": "BIGINT",
}
WIDE_COLUMNS: Final = {**COLUMNS, **{f"c{number:02}": "BIGINT" if number % 2 else "STRING" for number in range(90)}}
VARIANTS: Final = ("plain", "schema", "wide", "broken")
KAFKA_PARTITIONS: Final = 2
SEED: Final = 20_261_121

_STATES: Final = ("new", "paid", "packed", "sent", "delivered", "returned")
_CITIES: Final = ("Aachen", "Bremen", "Chemnitz", "Dresden", "Essen", "Fürth")
_CONNECT_TYPES: Final = {
    "BIGINT": "int64",
    "INT": "int32",
    "STRING": "string",
    "DOUBLE": "double",
    "BOOLEAN": "boolean",
}


def columns_of(variant: str) -> dict[str, str]:
    """Columns of the table that a variant fills."""
    return dict(WIDE_COLUMNS if variant == "wide" else COLUMNS)


def produce(broker: ForeignBroker, topic: str, count: int, variant: str = "plain", first: int = 0) -> int:
    """Makes the topic and fills it; returns the bytes of all values."""
    broker.create_topic(topic, kafka_partitions=KAFKA_PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "linger.ms": 50,
            "batch.num.messages": 20_000,
            "queue.buffering.max.messages": 400_000,
            "acks": "all",
        }
    )
    size_bytes = 0
    for key, value in records(count, variant, first):
        size_bytes += len(value)
        while True:
            try:
                producer.produce(topic, value, key=b'{"id":%d}' % key, partition=key % KAFKA_PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    return size_bytes


def records(count: int, variant: str = "plain", first: int = 0) -> Iterator[tuple[int, bytes]]:
    """(key, value) of each record."""
    chance = random.Random(SEED)
    rows: dict[int, str] = {}
    keys: list[int] = []
    schema = _schema_text(columns_of(variant)) if variant == "schema" else ""
    next_key = first
    for number in range(count):
        draw = chance.random()
        before = "null"
        if draw < 0.70 or not keys:
            key, op = next_key, "c"
            next_key += 1
            keys.append(key)
            after = rows[key] = _row(key, number, chance, variant)
        else:
            place = chance.randrange(len(keys))
            key = keys[place]
            before = rows[key]
            if draw < 0.95:
                op = "u"
                after = rows[key] = _row(key, number, chance, variant)
            else:
                op, after = "d", "null"
                keys[place] = keys[-1]
                keys.pop()
                del rows[key]
        value = _envelope(before, after, op, number)
        if variant == "schema":
            value = f'{{"schema":{schema},"payload":{value}}}'
        elif variant == "broken" and number % 10 == 3:
            value = value[:-7]
        yield key, value.encode()


def _row(key: int, number: int, chance: random.Random, variant: str) -> str:
    bits = chance.getrandbits(400)
    note = f"{bits:0100x}"
    text = (
        f'{{"id":{key},"customer_id":{bits % 50_021},"status":"{_STATES[bits % 6]}",'
        f'"total":"{bits % 99_991}.{bits % 10_000:04}","quantity":{bits % 97},"weight":{bits % 1009 / 8},'
        f'"paid":{"true" if bits & 1 else "false"},"city":"{_CITIES[bits // 7 % 6]}","note":"{note}",'
        f'"updated_at":{1_760_000_000_000_000 + number * 1000}'
    )
    if variant == "wide":
        text += "".join(
            f',"c{place:02}":{bits + place & 0xFFFFFFFF}'
            if place % 2
            else f',"c{place:02}":"{note[place : place + 12]}"'
            for place in range(90)
        )
    return text + "}"


def _envelope(before: str, after: str, op: str, number: int) -> str:
    moment = 1_760_000_000_000 + number
    return (
        f'{{"before":{before},"after":{after},"source":{{"version":"3.5.0.Final","connector":"postgresql","name":"shop",'
        f'"ts_ms":{moment},"snapshot":"false","db":"shop","sequence":"[\\"{number}\\",\\"{number + 8}\\"]",'
        f'"schema":"public","table":"orders","txId":{number // 10},"lsn":{24_000_000 + number * 8},"xmin":null}},'
        f'"op":"{op}","ts_ms":{moment + 3},"transaction":null}}'
    )


def _schema_text(columns: dict[str, str]) -> str:
    row: list[dict[str, Any]] = [
        {"type": _CONNECT_TYPES.get(kind, "string"), "optional": name != "id", "field": name}
        for name, kind in columns.items()
    ]
    source = ("version", "connector", "name", "ts_ms", "snapshot", "db", "sequence", "schema", "table", "txId", "lsn")
    fields: list[dict[str, Any]] = [
        {"type": "struct", "fields": row, "optional": True, "name": "shop.public.orders.Value", "field": "before"},
        {"type": "struct", "fields": row, "optional": True, "name": "shop.public.orders.Value", "field": "after"},
        {
            "type": "struct",
            "fields": [{"type": "string", "optional": True, "field": name} for name in source],
            "optional": False,
            "name": "io.debezium.connector.postgresql.Source",
            "field": "source",
        },
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ]
    return json.dumps(
        {"type": "struct", "fields": fields, "optional": False, "name": "shop.public.orders.Envelope"},
        separators=(",", ":"),
    )
