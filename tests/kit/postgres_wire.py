"""What pgoutput sends, read byte by byte: an oracle for tests, in a session with the settings given.

changes(connection, "slot", "publication")          [Change(xid=731, kind="I", table="t", row=["1", None, "x"]), …]
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import psycopg

_READ = """
SELECT data FROM pg_logical_slot_{}_binary_changes(%s, NULL, NULL, 'proto_version', '1', 'publication_names', %s)
"""
_NULL, _UNCHANGED = b"nu"


@dataclass(frozen=True)
class Change:
    """An insert or update with its new row, a deletion with its key; by the transaction's id of 32 bits."""

    xid: int
    kind: str
    table: str
    row: list[str | None]


def changes(connection: psycopg.Connection[Any], slot: str, publication: str, *, consume: bool = False) -> list[Change]:
    """The changes of the transactions that wait in a slot, which may then forget them."""
    names: dict[int, str] = {}
    found, xid = [], 0
    query = _READ.format("get" if consume else "peek").encode()
    for (message,) in connection.execute(query, (slot, publication)).fetchall():
        kind = message[:1].decode()
        if kind == "B":
            (xid,) = struct.unpack_from(">I", message, 17)
        elif kind == "R":
            names[_oid(message)] = message[5:].split(b"\0")[1].decode()
        elif kind in "IUD":
            assert message[5:6] in (b"N", b"K"), "identity full, or a key that changed: not read here"
            found.append(Change(xid, kind, names[_oid(message)], _tuple(message[6:])))
    return found


def _oid(message: bytes) -> int:
    return int(struct.unpack_from(">I", message, 1)[0])


def _tuple(content: bytes) -> list[str | None]:
    (count,) = struct.unpack_from(">H", content)
    at, values = 2, list[str | None]()
    for _ in range(count):
        kind = content[at]
        assert kind != _UNCHANGED
        if kind == _NULL:
            values.append(None)
            at += 1
            continue
        (length,) = struct.unpack_from(">I", content, at + 1)
        values.append(content[at + 5 : at + 5 + length].decode())
        at += 5 + length
    return values
