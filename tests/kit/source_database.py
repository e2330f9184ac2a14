"""A database that changes, as Debezium tells of it: its rows are the oracle of what tables must hold in the end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
TYPES: Mapping[str, Mapping[str, Any]] = {
    "int": {"type": "int32"},
    "bigint": {"type": "int64"},
    "text": {"type": "string"},
    "double": {"type": "double"},
    "date": {"type": "int32", "name": "io.debezium.time.Date"},
    "timestamp": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
}


def type_of(kind: str) -> Mapping[str, Any]:
    """The type of a field in Connect's schema; `decimal(p, s)` has values that are written as texts."""
    if not kind.startswith("decimal("):
        return TYPES[kind]
    precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(", ")
    return {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": scale, "connect.decimal.precision": precision},
    }


@dataclass(slots=True)
class SourceTable:
    """One table: `columns` by name, the first one is the key; `rows` are those that it holds now."""

    db: str
    schema: str
    name: str
    columns: dict[str, str]
    rows: dict[Any, Row] = field(default_factory=dict)
    with_schema: bool = True
    changes: int = 0

    @property
    def topic(self) -> str:
        return f"{self.db}.{self.schema}.{self.name}"

    @property
    def key(self) -> str:
        return next(iter(self.columns))

    def upsert(self, *rows: Row) -> list[tuple[bytes, bytes]]:
        """The records of these rows, which are complete."""
        records = []
        for row in rows:
            before = self.rows.get(row[self.key])
            self.rows[row[self.key]] = row
            records.append(self._record("c" if before is None else "u", before, row))
        return records

    def delete(self, *keys: Any) -> list[tuple[bytes, bytes | None]]:
        """The records of deletions, each with its tombstone."""
        records: list[tuple[bytes, bytes | None]] = []
        for key in keys:
            row = self.rows.pop(key)
            records += [self._record("d", row, None), (self._key(key), None)]
        return records

    def truncate(self) -> list[tuple[None, bytes]]:
        """The record of a truncate, which has no key."""
        self.rows.clear()
        return [(None, self._record("t", None, None)[1])]

    def add_column(self, name: str, kind: str) -> None:
        self.columns[name] = kind
        for row in self.rows.values():
            row[name] = None

    def _key(self, key: Any) -> bytes:
        payload = {self.key: key}
        if not self.with_schema:
            return json.dumps(payload).encode()
        fields = [{**TYPES[self.columns[self.key]], "optional": False, "field": self.key}]
        return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": payload}).encode()

    def _record(self, op: str, before: Row | None, after: Row | None) -> tuple[bytes, bytes]:
        self.changes += 1
        source = {
            "connector": "mysql", "name": self.db, "db": self.db, "schema": self.schema, "table": self.name,
            "ts_ms": 1_700_000_000_000 + self.changes,
        }  # fmt: skip
        payload = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1_700_000_100_000}
        key = (after or before or {}).get(self.key)
        if not self.with_schema:
            return self._key(key), json.dumps(payload, separators=(",", ":")).encode()
        value = {"schema": self._envelope(), "payload": payload}
        return self._key(key), json.dumps(value, separators=(",", ":")).encode()

    def _envelope(self) -> dict[str, Any]:
        fields: Sequence[Mapping[str, Any]] = [
            {**type_of(kind), "optional": name != self.key, "field": name} for name, kind in self.columns.items()
        ]
        row = {"type": "struct", "fields": fields, "optional": True, "name": f"{self.topic}.Value"}
        return {
            "type": "struct",
            "name": f"{self.topic}.Envelope",
            "fields": [{**row, "field": "before"}, {**row, "field": "after"}, {"type": "string", "field": "op"}],
        }
