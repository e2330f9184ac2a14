"""A small shop as Debezium sees it: change records of two tables, and what the tables must hold in the end.

| happens | becomes |
|---|---|
| a customer, an order is new | `c` |
| an order's status changes; its long note does not | `u`, the note as "unavailable" (TOAST) |
| an order is deleted | `d` and a tombstone |
| an order gets another number | `d`, tombstone, `c` under the new key, the same lsn |
| two changes of one order arrive the wrong way round | the later one first; the lsn orders them |
| a record is sent again after a restart of the connector | the same record twice |
| a record is broken | no JSON, a total that is no number, a key that is missing |

Everything is drawn from one seed. Source: what really arrives from Debezium (PostgreSQL, pgoutput).
"""

from __future__ import annotations

import base64
import datetime
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from freshet._frozen import Frozen

ORDERS_TOPIC: Final = "shop.public.orders"
CUSTOMERS_TOPIC: Final = "shop.public.customers"
UNAVAILABLE: Final = "__debezium_unavailable_value"

_STATUSES: Final = ("placed", "paid", "packed", "shipped", "delivered")
_CITIES: Final = ("Bergen", "Genève", "Kyōto", "Łódź", "Porto", "Zürich")
_FIRST_DAY: Final = datetime.datetime(2026, 1, 1)
_LONG_NOTE: Final = "Please ring twice; the dog is friendly. " * 60

_CUSTOMER_SCHEMA: Final = {
    "type": "struct",
    "fields": [
        {"type": "int64", "optional": False, "field": "customer_id"},
        {"type": "string", "optional": True, "field": "name"},
        {"type": "string", "optional": True, "field": "city"},
        {
            "type": "bytes",
            "optional": True,
            "name": "org.apache.kafka.connect.data.Decimal",
            "version": 1,
            "parameters": {"scale": "2", "connect.decimal.precision": "10"},
            "field": "credit",
        },
        {"type": "int32", "optional": True, "name": "io.debezium.time.Date", "version": 1, "field": "since"},
    ],
}


class Message(Frozen):
    """One Kafka record; a value of None is a tombstone."""

    topic: str
    key: bytes | None
    value: bytes | None


@dataclass
class Shop:
    """The shop's database and its change stream; `orders` and `customers` are what the tables must hold."""

    seed: int = 7
    orders: dict[int, dict[str, Any]] = field(default_factory=dict)
    customers: dict[int, dict[str, Any]] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=lambda: {ORDERS_TOPIC: 0, CUSTOMERS_TOPIC: 0})
    broken: int = 0
    """Records sent that can become no row."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._lsn = 1_000_000
        self._next_order = 1

    @property
    def lsn(self) -> int:
        """The log sequence number of the latest change."""
        return self._lsn

    def open(self, customer_count: int) -> Iterator[Message]:
        """The first customers."""
        for number in range(1, customer_count + 1):
            row = {
                "customer_id": number,
                "name": f"Customer {number}",
                "city": self._random.choice(_CITIES),
                "credit": Decimal(self._random.randint(0, 100_000)).scaleb(-2),
                "since": (_FIRST_DAY - datetime.timedelta(days=self._random.randint(0, 3000))).date(),
            }
            self.customers[number] = row
            yield self._customer("r", None, row)

    def trade(self, event_count: int) -> Iterator[Message]:
        """Some changes of orders and customers, at random."""
        for _ in range(event_count):
            draw = self._random.random()
            if draw < 0.45 or len(self.orders) < 20:
                yield from self._place_order()
            elif draw < 0.80:
                yield from self._update_order()
            elif draw < 0.86:
                yield from self._delete_order()
            elif draw < 0.89:
                yield from self._renumber_order()
            elif draw < 0.92:
                yield from self._swapped_updates()
            elif draw < 0.99:
                yield from self._move_customer()
            elif draw < 0.995:
                yield from self._sent_again()
            else:
                yield self._broken_record()

    def _place_order(self) -> Iterator[Message]:
        number = self._next_order
        self._next_order += 1
        row = {
            "order_id": number,
            "customer_id": self._random.choice(list(self.customers)),
            "status": _STATUSES[0],
            "total": Decimal(self._random.randint(100, 5_000_000)).scaleb(-2),
            "ordered": _FIRST_DAY + datetime.timedelta(microseconds=self._random.randint(0, 10**13)),
            "note": _LONG_NOTE if self._random.random() < 0.05 else f"note {number}",
        }
        yield self._change_order("c", row)

    def _update_order(self) -> Iterator[Message]:
        row = dict(self._any_order())
        row["status"] = self._random.choice(_STATUSES[1:])
        yield self._change_order("u", row)

    def _delete_order(self) -> Iterator[Message]:
        number = self._any_order()["order_id"]
        yield from self._deletion(number, self._tick())
        del self.orders[number]

    def _renumber_order(self) -> Iterator[Message]:
        row = dict(self._any_order())
        lsn = self._tick()
        yield from self._deletion(row["order_id"], lsn)
        del self.orders[row["order_id"]]
        row["order_id"] = self._next_order
        self._next_order += 1
        yield self._change_order("c", row, lsn=lsn)

    def _swapped_updates(self) -> Iterator[Message]:
        row = dict(self._any_order())
        earlier = self._order_message("u", {**row, "status": "earlier"}, self._tick())
        row["status"] = "later"
        yield self._change_order("u", row)
        yield earlier

    def _move_customer(self) -> Iterator[Message]:
        before = self.customers[self._random.choice(list(self.customers))]
        row = {**before, "city": self._random.choice(_CITIES)}
        self.customers[row["customer_id"]] = row
        yield self._customer("u", before, row)

    def _sent_again(self) -> Iterator[Message]:
        row = self._any_order()
        yield self._order_message("u", row, row["changed"])

    def _broken_record(self) -> Message:
        self.broken += 1
        values = [
            b'{"before": null, "after": {"order_id": 1',
            self._envelope("u", None, {"order_id": 3, "total": "not a number"}),
            self._envelope("c", None, {"order_id": None, "status": "placed"}),
        ]
        return self._count(Message(ORDERS_TOPIC, b'{"order_id": 0}', self._random.choice(values)))

    def _any_order(self) -> dict[str, Any]:
        return self.orders[self._random.choice(list(self.orders))]

    def _change_order(self, op: str, row: dict[str, Any], *, lsn: int | None = None) -> Message:
        row["changed"] = self._tick() if lsn is None else lsn
        self.orders[row["order_id"]] = row
        return self._order_message(op, row, row["changed"])

    def _order_message(self, op: str, row: dict[str, Any], lsn: int) -> Message:
        """PostgreSQL sends no value that lies out of line and did not change, and no row before an update."""
        is_toast = op == "u" and row["note"] == _LONG_NOTE
        after = {
            "order_id": row["order_id"],
            "customer_id": row["customer_id"],
            "status": row["status"],
            "total": decimal_text(row["total"]),
            "ordered": (row["ordered"] - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1),
            "note": UNAVAILABLE if is_toast else row["note"],
        }
        return self._count(Message(ORDERS_TOPIC, order_key(row["order_id"]), self._envelope(op, None, after, lsn)))

    def _deletion(self, number: int, lsn: int) -> Iterator[Message]:
        before = {"order_id": number, "customer_id": 0, "status": None, "total": None, "ordered": None, "note": None}
        yield self._count(Message(ORDERS_TOPIC, order_key(number), self._envelope("d", before, None, lsn)))
        yield self._count(Message(ORDERS_TOPIC, order_key(number), None))

    def _customer(self, op: str, before: dict[str, Any] | None, after: dict[str, Any]) -> Message:
        payload = json.loads(self._envelope(op, _customer_json(before), _customer_json(after)))
        schema = {
            "type": "struct",
            "name": "shop.public.customers.Envelope",
            "optional": False,
            "fields": [{**_CUSTOMER_SCHEMA, "optional": True, "field": name} for name in ("before", "after")],
        }
        value = json.dumps({"schema": schema, "payload": payload}, ensure_ascii=False).encode()
        key = json.dumps({"payload": {"customer_id": after["customer_id"]}}).encode()
        return self._count(Message(CUSTOMERS_TOPIC, key, value))

    def _envelope(
        self, op: str, before: dict[str, Any] | None, after: dict[str, Any] | None, lsn: int | None = None
    ) -> bytes:
        document = {
            "before": before,
            "after": after,
            "source": {
                "version": "3.5.0.Final",
                "connector": "postgresql",
                "name": "shop",
                "snapshot": "true" if op == "r" else "false",
                "db": "shop",
                "schema": "public",
                "lsn": self._tick() if lsn is None else lsn,
            },
            "op": op,
            "ts_ms": 1_767_225_600_000 + self._lsn,
            "transaction": None,
        }
        return json.dumps(document, ensure_ascii=False).encode()

    def _tick(self) -> int:
        self._lsn += self._random.randint(1, 300)
        return self._lsn

    def _count(self, message: Message) -> Message:
        self.sent[message.topic] += 1
        return message


def _customer_json(row: dict[str, Any] | None) -> dict[str, Any] | None:
    if row is None:
        return None
    days = (row["since"] - datetime.date(1970, 1, 1)).days
    return {**row, "credit": decimal_text(row["credit"]), "since": days}


def decimal_text(number: Decimal) -> str:
    """Unscaled two's complement, big endian, base64: how Kafka Connect writes decimals."""
    unscaled = int(number.scaleb(2))
    return base64.b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)).decode()


def order_key(number: int) -> bytes:
    """The key of the records of an order."""
    return json.dumps({"order_id": number}).encode()
