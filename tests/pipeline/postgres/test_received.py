"""What is held of a stream, against a list of its transactions; positions as texts; rows found in messages."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.pipeline.postgres.lsn import lsn_of, lsn_text
from freshet.pipeline.postgres.received import Received
from freshet.pipeline.postgres.spilled_messages import read_all
from freshet.pipeline.postgres.wire import TEXT, messages_of, texts_at, tuples_at

HEAD = b"w" + bytes(24)


def _transaction(end: int, changes: int) -> list[bytes]:
    begin = HEAD + b"B" + bytes(20)
    commit = HEAD + b"C\0" + struct.pack(">QQQ", end - 1, end, 0)
    return [begin, *[HEAD + b"I" + struct.pack(">I", 7) + b"N\0\0"] * changes, commit]


@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    cuts=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    first=st.integers(0, 11),
    limit=st.integers(1, 600),
)
def test_whole_transactions_are_taken_in_any_parts(sizes: list[int], cuts: list[int], first: int, limit: int) -> None:
    ends = [10 * (number + 1) for number in range(len(sizes))]
    frames = [frame for end, size in zip(ends, sizes, strict=True) for frame in _transaction(end, size)]
    received, at = Received(0), 0
    for number in range(len(frames)):
        size = cuts[number % len(cuts)]
        if at < len(frames):
            received.add(messages_of(frames[at : at + size])[0])
        at += size
    assert (received.end, received.has_part, received.has_whole) == (ends[-1], False, True)
    found = received.end_within(limit)
    assert found is not None
    taken = ends.index(found.lsn) + 1
    assert found.weight == sum(sizes[:taken])
    whole = received.up_to(found.lsn)
    assert whole is not None
    assert whole.weight == found.weight
    assert len(read_all(whole.parts).starts) == sum(size + 2 for size in sizes[:taken])
    assert received.up_to(found.lsn - 1) is None
    received.drop(ends[min(first, len(ends) - 1)])
    left = sizes[min(first, len(ends) - 1) + 1 :]
    assert received.size_bytes == sum(len(frame) for size in left for frame in _transaction(10, size))
    assert received.is_empty is not bool(left)
    rest = received.end_within(1 << 30)
    assert (0 if rest is None else rest.weight) == sum(left)


def test_a_part_of_a_transaction_is_forgotten() -> None:
    received = Received(0)
    received.add(messages_of([*_transaction(10, 2), *_transaction(20, 3)[:2]])[0])
    received.add(messages_of(_transaction(20, 3)[2:4])[0])
    assert received.has_part
    received.forget_part()
    assert (received.end, received.has_part, received.size_bytes) == (10, False, sum(map(len, _transaction(10, 2))))
    received.add(messages_of(_transaction(20, 3))[0])
    assert received.up_to(20) is not None


def test_keepalives_are_told_from_messages() -> None:
    keepalive = b"k" + struct.pack(">QQB", 77, 0, 1)
    messages, found = messages_of([*_transaction(10, 1), keepalive])
    assert (len(messages.starts), found) == (3, keepalive)


@given(
    rows=st.lists(
        st.lists(st.one_of(st.none(), st.just(...), st.binary(max_size=9)), min_size=3, max_size=3), max_size=9
    )
)
def test_rows_are_found(rows: list[list[bytes | None]]) -> None:
    data, starts = b"", []
    for row in rows:
        starts.append(len(data))
        parts = [b"n" if v is None else b"u" if v is ... else b"t" + struct.pack(">I", len(v)) + v for v in row]
        data += struct.pack(">H", len(row)) + b"".join(parts)
    data += bytes(8)
    octets = np.frombuffer(data, np.uint8)
    found = tuples_at(octets, np.array(starts, np.int64), 3)
    for index in range(3):
        texts = texts_at(data, found.begins[index], found.lengths[index], found.kinds[index] != TEXT)
        assert texts.to_pylist() == [row[index] if isinstance(row[index], bytes) else None for row in rows]


@pytest.mark.parametrize("lsn", [0, 1, 2**32 - 1, 2**32, 0x16B374D848])
def test_positions(lsn: int) -> None:
    assert lsn_of(lsn_text(lsn)) == lsn
