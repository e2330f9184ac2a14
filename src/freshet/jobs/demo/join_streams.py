"""Three change streams about the same orders, late, out of order, twice, and the wide rows that they must make.

| stream | format | what a deletion carries | orders the group |
|---|---|---|---|
| orders | Debezium envelope | the key, nothing else | `source.lsn` |
| payments | flattened by Connect (`__deleted`, `__source_lsn`) | the key, nothing else | `__source_lsn` |
| shipments | Debezium envelope | the whole row | `source.lsn` |

The truth is kept without any table: of each (stream, order) the change with the highest lsn counts, whenever it came;
an order is there as soon as one stream has said something about it that was no deletion.

Everything is drawn from one seed. In each stream the first change of an order comes first, as Kafka keeps it; what
comes after it may be swapped, late or repeated. Source: MERGING.md §2.5; what really arrives from Debezium.
"""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from freshet._frozen import Frozen
from freshet.jobs.demo.shop import UNAVAILABLE, Message, decimal_text, order_key

ORDERS, PAYMENTS, SHIPMENTS = "orders", "payments", "shipments"
STREAMS: Final = (ORDERS, PAYMENTS, SHIPMENTS)
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    ORDERS: ("customer", "status", "total", "note", "order_lsn"),
    PAYMENTS: ("paid", "method", "payment_lsn"),
    SHIPMENTS: ("carrier", "shipped", "shipment_lsn"),
}
"""The columns that each stream fills; the last one orders its sequence group."""

_STATUSES: Final = ("placed", "paid", "packed", "shipped", "delivered")
_METHODS: Final = ("card", "cash", "transfer")
_CARRIERS: Final = ("Bring", "DHL", "La Poste", "Yamato")
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_FIRST_DAY: Final = datetime.datetime(2026, 1, 1)
_LONG_NOTE: Final = "Deliver to the back door; the bell is broken. " * 50

Row = dict[str, Any]


def topic_of(stream: str) -> str:
    """The Kafka topic of a stream."""
    return f"store.public.{stream}"


class _State(Frozen):
    """The latest change of one order in one stream; `row` is None when it was a deletion."""

    lsn: int
    row: Row | None


@dataclass
class JoinStreams:
    """The three sources; every method gives the messages of one thing that happens there."""

    seed: int = 11
    sent: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STREAMS, 0))
    """Messages so far, by stream."""
    broken: int = 0
    """Those of them that can become no row."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._lsn = 1000
        self._latest: dict[tuple[str, int], _State] = {}
        self._rows_seen: set[int] = set()

    def expected(self) -> dict[int, Row]:
        """The wide rows, by order."""
        wide: dict[int, Row] = {}
        for number in self._rows_seen:
            wide[number] = {"order_id": number}
            for stream in STREAMS:
                state = self._latest.get((stream, number), _State(0, None))
                *values, ordering = COLUMNS[stream]
                wide[number] |= {name: None if state.row is None else state.row[name] for name in values}
                wide[number][ordering] = state.lsn or None
        return wide

    def present(self, stream: str) -> list[int]:
        """The orders that the stream has a row for."""
        return [number for (name, number), state in self._latest.items() if name == stream and state.row is not None]

    def insert(self, stream: str, number: int) -> Iterator[Message]:
        """A new row, or one that comes back after its deletion."""
        yield self._change("c", stream, number, self._random_row(stream, number))

    def update(self, stream: str, number: int) -> Iterator[Message]:
        """A change of a row that is there."""
        yield self._change("u", stream, number, self._changed_row(stream, number))

    def swapped_updates(self, stream: str, number: int) -> Iterator[Message]:
        """Two changes of one row, the later one first."""
        first = self._change("u", stream, number, self._changed_row(stream, number))
        second = self._change("u", stream, number, self._changed_row(stream, number))
        yield from (second, first)

    def late_update(self, stream: str, number: int) -> Iterator[Message]:
        """A change that happened before what the stream has said last: it must change nothing."""
        row = self._random_row(stream, number)
        lsn = self._latest[stream, number].lsn - 1
        yield self._message("u", stream, number, row, lsn)

    def repeat(self, stream: str, number: int) -> Iterator[Message]:
        """The latest change once more, as after a restart of the connector."""
        state = self._latest[stream, number]
        yield self._message("d" if state.row is None else "u", stream, number, state.row or {}, state.lsn)

    def delete(self, stream: str, number: int) -> Iterator[Message]:
        """The row is gone from this stream; envelopes are followed by a tombstone."""
        before = self._latest[stream, number].row or {}
        lsn = self._tick()
        self._latest[stream, number] = _State(lsn, None)
        yield self._message("d", stream, number, before, lsn)
        if stream != PAYMENTS:
            yield self._count(stream, Message(topic_of(stream), order_key(number), None))

    def without_order(self, number: int) -> Iterator[Message]:
        """A payment that does not say where it belongs in time: it can become no row."""
        self.broken += 1
        yield self._message("u", PAYMENTS, number, self._random_row(PAYMENTS, number), None)

    def anything(self, count: int, numbers: range) -> Iterator[Message]:
        """Some changes of these orders, at random."""
        for _ in range(count):
            stream, number = self._random.choice(STREAMS), self._random.choice(numbers)
            state = self._latest.get((stream, number))
            if state is None:
                yield from self.insert(stream, number)
                continue
            draw = self._random.random()
            yield from self._action(draw, is_present=state.row is not None)(stream, number)

    def _action(self, draw: float, *, is_present: bool) -> Callable[[str, int], Iterator[Message]]:
        choices: tuple[tuple[float, Callable[[str, int], Iterator[Message]]], ...]
        if is_present:
            choices = ((0.5, self.update), (0.65, self.swapped_updates), (0.75, self.late_update), (0.85, self.repeat))
        else:
            choices = ((0.3, self.insert), (0.7, self.late_update), (1.0, self.repeat))
        return next((action for limit, action in choices if draw < limit), self.delete)

    def _changed_row(self, stream: str, number: int) -> Row:
        """The same row with other values; the note of an order never changes."""
        before = self._latest[stream, number].row or {}
        row = self._random_row(stream, number)
        return {**row, "note": before.get("note")} if stream == ORDERS else row

    def _random_row(self, stream: str, number: int) -> Row:
        draw = self._random
        match stream:
            case "orders":
                return {
                    "customer": f"Customer {number % 97}",
                    "status": draw.choice(_STATUSES),
                    "total": Decimal(draw.randint(100, 500_000)).scaleb(-2),
                    "note": _LONG_NOTE if draw.random() < 0.1 else None,
                }
            case "payments":
                return {
                    "paid": Decimal(draw.randint(100, 500_000)).scaleb(-2),
                    "method": draw.choice(_METHODS).upper(),
                }
            case _:
                days = datetime.timedelta(microseconds=draw.randint(0, 10**13))
                return {"carrier": draw.choice(_CARRIERS), "shipped": _FIRST_DAY + days}

    def _change(self, op: str, stream: str, number: int, row: Row) -> Message:
        lsn = self._tick()
        self._latest[stream, number] = _State(lsn, row)
        self._rows_seen.add(number)
        return self._message(op, stream, number, row, lsn)

    def _message(self, op: str, stream: str, number: int, row: Row, lsn: int | None) -> Message:
        document = _flat(op, number, row, lsn) if stream == PAYMENTS else _envelope(stream, op, number, row, lsn)
        value = json.dumps(document, ensure_ascii=False).encode()
        return self._count(stream, Message(topic_of(stream), order_key(number), value))

    def _tick(self) -> int:
        self._lsn += self._random.randint(2, 300)
        return self._lsn

    def _count(self, stream: str, message: Message) -> Message:
        self.sent[stream] += 1
        return message


def _envelope(stream: str, op: str, number: int, row: Row, lsn: int | None) -> Row:
    fields = _payload(stream, op, number, row)
    return {
        "before": fields if op == "d" else None,
        "after": None if op == "d" else fields,
        "source": {"version": "3.5.0.Final", "connector": "postgresql", "name": "store", "table": stream, "lsn": lsn},
        "op": op,
        "ts_ms": 1_767_225_600_000 + (lsn or 0),
        "transaction": None,
    }


def _payload(stream: str, op: str, number: int, row: Row) -> Row:
    if stream == SHIPMENTS:
        shipped = row.get("shipped")
        micros = None if shipped is None else (shipped - _EPOCH) // datetime.timedelta(microseconds=1)
        return {"order_id": number, "carrier": row.get("carrier"), "shipped": micros}
    if op == "d":  # REPLICA IDENTITY DEFAULT: NOT NULL columns are made up
        return {"order_id": number, "customer": "", "status": "", "total": None, "note": None}
    # PostgreSQL sends no value that lies out of line and did not change.
    note = UNAVAILABLE if op == "u" and row["note"] == _LONG_NOTE else row["note"]
    return {
        "order_id": number, "customer": row["customer"], "status": row["status"],
        "total": decimal_text(row["total"]), "note": note,
    }  # fmt: skip


def _flat(op: str, number: int, row: Row, lsn: int | None) -> Row:
    has_row = op != "d"
    return {
        "order_id": number,
        "amount": str(row["paid"]) if has_row else None,
        "method": row["method"].lower() if has_row else None,
        "__deleted": "false" if has_row else "true",
        "__op": op,
        "__source_lsn": lsn,
    }
