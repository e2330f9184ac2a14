"""Messages of `pgoutput`, protocol version 1, found in one buffer without a look at each of them in Python.

    w start:8 end:8 time:8 | B final_lsn:8 time:8 xid:4
                           | C flags:1 commit_lsn:8 end_lsn:8 time:8
                           | R oid:4 schema name identity:1 count:2 (flag:1 name type:4 typmod:4)*
                           | Y oid:4 schema name
                           | I oid:4 N tuple
                           | U oid:4 (K|O tuple)? N tuple
                           | D oid:4 (K|O) tuple
                           | T count:4 flags:1 oid:4*
    k wal_end:8 time:8 reply_wanted:1
    tuple = count:2 (n | u | t length:4 bytes)*

Positions are of the kind byte of a message (behind the 25 bytes of `w`); numbers are big endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet._frozen import Frozen

Octets = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

HEAD: Final = 25
"""Bytes of `w` in front of a message."""
BEGIN, COMMIT, RELATION, TYPE, INSERT, UPDATE, DELETE, TRUNCATE = (ord(each) for each in "BCRYIUDT")
KEY, OLD, NEW = (ord(each) for each in "KON")
NULL, UNCHANGED, TEXT = (ord(each) for each in "nut")
DATA: Final = ord("w")
KEEPALIVE: Final = ord("k")
EPOCH_US: Final = 946_684_800_000_000
"""Microseconds from 1970 to 2000, from which the server counts."""

_COLUMN: Final = struct.Struct(">Ii")


class Messages(Frozen):
    """Messages in the order in which they came: `data` has each behind its head, `starts` are the positions of their
    kind bytes."""

    data: bytes
    starts: Positions

    @property
    def octets(self) -> Octets:
        """The data as numbers."""
        return np.frombuffer(self.data, np.uint8)

    @property
    def kinds(self) -> Kinds:
        """The kind of each message."""
        return self.octets[self.starts]

    @staticmethod
    def joined(parts: Sequence[Messages]) -> Messages:
        """The messages of all parts."""
        if len(parts) == 1:
            return parts[0]
        ends = np.cumsum([0, *(len(each.data) for each in parts)])
        starts = [each.starts + end for each, end in zip(parts, ends, strict=False)]
        return Messages(b"".join(each.data for each in parts), np.concatenate([np.zeros(0, np.int64), *starts]))

    def cut(self, first: int, last: int) -> Messages:
        """The messages of these numbers, with no more data than they have."""
        if first >= last:
            return Messages(b"", np.zeros(0, np.int64))
        begin = int(self.starts[first]) - HEAD
        end = int(self.starts[last]) - HEAD if last < len(self.starts) else len(self.data)
        return Messages(self.data[begin:end], self.starts[first:last] - begin)


class RelationColumn(Frozen):
    """A column as the server says it at a change."""

    name: str
    type_oid: int
    typmod: int
    is_identity: bool


class Relation(Frozen):
    """A table as it was at the changes that follow."""

    oid: int
    schema: str
    name: str
    identity: str
    """`d`, `n`, `f` or `i`: default, nothing, full or an index."""
    columns: tuple[RelationColumn, ...]

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


def distinct(values: npt.NDArray[Any]) -> list[int]:
    """The values that occur, in their order; mostly there is one."""
    if len(values) and (values == values[0]).all():
        return [int(values[0])]
    found: list[int] = np.unique(values).tolist()
    return found


def numbers(octets: Octets, at: Positions, size: int) -> Positions:
    """The unsigned numbers of `size` bytes (2, 4 or 8) at these positions, of which those of 8 have 63 bits."""
    found = np.zeros(len(at), np.int64)
    for place in range(size):
        found = (found << 8) | octets[at + place]
    return found


def messages_of(frames: Sequence[Any]) -> tuple[Messages, bytes | None]:
    """The messages of some frames as a client gets them, and the keepalive that came last, if one came after them all
    or among them."""
    data = b"".join(frames)
    lengths = np.fromiter(map(len, frames), np.int64, len(frames))
    ends = np.cumsum(lengths)
    begins = ends - lengths
    is_data = np.frombuffer(data, np.uint8)[begins] == DATA
    if is_data.all():
        return Messages(data, begins + HEAD), None
    last = int(np.flatnonzero(~is_data)[-1])
    keepalive = data[int(begins[last]) : int(ends[last])]
    kept = [bytes(frames[index]) for index in np.flatnonzero(is_data).tolist()]
    messages, _ = messages_of(kept) if kept else (Messages(b"", np.zeros(0, np.int64)), None)
    return messages, keepalive


def relation_of(message: bytes) -> Relation:
    """What an `R` says."""
    oid = int.from_bytes(message[1:5], "big")
    schema, at = _text(message, 5)
    name, at = _text(message, at)
    identity = chr(message[at])
    count = int.from_bytes(message[at + 1 : at + 3], "big")
    at += 3
    columns = []
    for _ in range(count):
        is_identity = bool(message[at] & 1)
        column, at = _text(message, at + 1)
        type_oid, typmod = _COLUMN.unpack_from(message, at)
        at += _COLUMN.size
        columns.append(RelationColumn(column, type_oid, typmod, is_identity))
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def relations_in(messages: Messages) -> Iterator[tuple[int, Relation]]:
    """The relations among messages, and their places."""
    ends = np.append(messages.starts[1:], len(messages.data) + HEAD) - HEAD
    for place in np.flatnonzero(messages.kinds == RELATION).tolist():
        yield place, relation_of(messages.data[int(messages.starts[place]) : int(ends[place])])


def truncated_oids(message: bytes) -> tuple[int, ...]:
    """The tables of a `T`."""
    count = int.from_bytes(message[1:5], "big")
    return tuple(int.from_bytes(message[at : at + 4], "big") for at in range(6, 6 + 4 * count, 4))


class Tuples(Frozen):
    """Rows of one relation: for each column the kinds of its values, where they begin and how long they are."""

    kinds: tuple[Kinds, ...]
    begins: tuple[Positions, ...]
    lengths: tuple[Positions, ...]
    ends: Positions
    """Where each row ends."""


def tuples_at(octets: Octets, at: Positions, columns: int) -> Tuples:
    """The rows at these positions, which have so many columns; raises `ValueError` where one has not."""
    counts = numbers(octets, at, 2)
    if len(counts) and not (counts == columns).all():
        raise ValueError(f"a row has {int(counts[counts != columns][0])} columns, and its relation {columns}")
    place = at + 2
    kinds, begins, lengths = [], [], []
    last = len(octets) - 4
    for _ in range(columns):
        kind = octets[place]
        has_text = kind == TEXT
        length = np.where(has_text, numbers(octets, np.minimum(place + 1, last), 4), 0)
        begin = place + np.where(has_text, 5, 1)
        kinds.append(kind)
        begins.append(begin)
        lengths.append(length)
        place = begin + length
    return Tuples(tuple(kinds), tuple(begins), tuple(lengths), place)


def texts_at(data: bytes, begins: Positions, lengths: Positions, is_null: Mask) -> pa.Array:
    """The bytes at these positions, in any order and also twice, as an Arrow binary array; NULL where `is_null`."""
    places = np.arange(len(begins))
    if len(begins) > 1 and not (begins[1:] > begins[:-1]).all():
        begins, firsts, places = np.unique(begins, return_index=True, return_inverse=True)
        lengths = lengths[firsts]
    offsets = np.empty(2 * len(begins) + 1, np.int64)
    offsets[0:-1:2], offsets[1::2] = begins, begins + lengths
    offsets[-1] = offsets[-2] if len(begins) else 0
    whole = pa.Array.from_buffers(pa.large_binary(), 2 * len(begins), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return whole.take(pa.array(2 * places, mask=is_null if is_null.any() else None)).cast(pa.binary())


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(0, at)
    return message[at:end].decode(), end + 1
