"""How much Spark's Kafka source takes at a time.

After each poll Spark asks the broker for the first and the last offset of the partition, two round trips in which
nothing is read, and the Java client polls 500 records at most. With more at a time a record costs 15 % to 19 % less
processor time, of the whole job (300,000 Debezium records of 646 and of 2,700 bytes, medians of four warm runs, two
cores: 7.6 to 6.5 s and 12.3 to 10.9 s).

A consumer reads its socket while it polls, and what comes in between waits in the socket: 64 KB, as Spark sets it,
unless the operating system may choose (-1). The records of 2,700 bytes cost 6 % less time then (300,000, medians of
three warm runs: 5.0 and 4.7 s), the small ones the same.

Spark keeps one consumer for each partition that a task has read, and each may hold what was polled and what was
fetched ahead. Their sum is bounded, so many partitions keep the client's own sizes.
"""

from __future__ import annotations

from typing import Final

_HELD_BYTES: Final = 64 << 20
"""What the consumers of all partitions may fetch at a time, together."""

_FETCH_MAX_BYTES: Final = 8 << 20
_FETCH_MIN_BYTES: Final = 1 << 20
"""The client's default, `max.partition.fetch.bytes`."""

_BYTES_A_RECORD: Final = 512
"""Small for a change record: a poll should end with what was fetched, not with the count."""

_CLIENT_POLL_RECORDS: Final = 500
"""The client's default, `max.poll.records`."""


def fetch_options(partition_count: int | None) -> dict[str, str]:
    """Options of Spark's Kafka source for topics of so many partitions in all; None where nobody knows."""
    if not partition_count:
        return {}
    fetched = min(_FETCH_MAX_BYTES, _HELD_BYTES // partition_count)
    if fetched <= _FETCH_MIN_BYTES:
        return {}
    return {
        "kafka.max.partition.fetch.bytes": str(fetched),
        "kafka.max.poll.records": str(max(_CLIENT_POLL_RECORDS, fetched // _BYTES_A_RECORD)),
        "kafka.receive.buffer.bytes": "-1",
    }
