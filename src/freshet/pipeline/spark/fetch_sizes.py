"""How much Spark's Kafka source takes at a time, and how long it waits for it.

After each poll Spark asks the broker for the first and the last offset of the partition, two round trips in which
nothing is read, and the Java client polls 500 records at most. With more at a time a record costs 15 % to 19 % less
processor time, of the whole job (300,000 Debezium records of 646 and of 2,700 bytes, medians of four warm runs, two
cores: 7.6 to 6.5 s and 12.3 to 10.9 s).

A consumer reads its socket while it polls, and what comes in between waits in the socket: 64 KB, as Spark sets it,
unless the operating system may choose (-1). The records of 2,700 bytes cost 6 % less time then (300,000, medians of
three warm runs: 5.0 and 4.7 s), the small ones the same.

Between two micro-batches a consumer has asked for what comes next, and the broker holds that request until something
comes or `fetch.max.wait.ms` is over, half a second by default. The next batch waits for its answer where the first
records of its range have ended the request before, and the others need a new one: batches of few records that had all
come took 0.6 to 1.2 s, and 0.1 to 0.2 s with `FETCH_WAIT_MS`. A consumer asks only while it polls, so nothing is asked
more often between two batches.

Spark keeps one consumer for each partition that a task has read, and each may hold what was polled and what was
fetched ahead. Their sum is bounded, so many partitions keep the client's own size of a fetch.

A fetch is counted in bytes as they were sent, a poll in records. A fetch of very compressible records holds a hundred
times its size and more, all of it in one poll if the count allows: 16384 records of 100 KB are more than any heap that
Spark has by default. So the count follows the records that were looked at (`unread_records`), uncompressed: a poll has
about as many bytes as a fetch may have. Spark takes these options when a query starts; later
`spark/job` lets the number follow.
"""

from __future__ import annotations

from typing import Final

from freshet.logstore.kafka.record_sizes import RecordSizes

_HELD_BYTES: Final = 64 << 20
"""What the consumers of all partitions may fetch at a time, together."""

_FETCH_MAX_BYTES: Final = 8 << 20
FETCH_MIN_BYTES: Final = 1 << 20
"""The client's default, `max.partition.fetch.bytes`."""

FETCH_WAIT_MS: Final = 10

_POLL_RECORDS: Final = 16384
CLIENT_POLL_RECORDS: Final = 500
"""The client's default, `max.poll.records`."""


def fetch_options(partition_count: int, seen: RecordSizes) -> dict[str, str]:
    """Options of Spark's Kafka source for topics of so many partitions in all, 0 where it is not known."""
    fetched = min(_FETCH_MAX_BYTES, _HELD_BYTES // max(1, partition_count)) if partition_count else FETCH_MIN_BYTES
    options = {"kafka.fetch.max.wait.ms": str(FETCH_WAIT_MS)}
    if fetched > FETCH_MIN_BYTES:
        options |= {"kafka.max.partition.fetch.bytes": str(fetched), "kafka.receive.buffer.bytes": "-1"}
    polled = poll_records(max(fetched, FETCH_MIN_BYTES), seen)
    return options if polled == CLIENT_POLL_RECORDS else {**options, "kafka.max.poll.records": str(polled)}


def poll_records(fetched: int, seen: RecordSizes) -> int:
    """The records that a fetch may have bytes, uncompressed."""
    if not seen.largest:
        return CLIENT_POLL_RECORDS
    most = _POLL_RECORDS if fetched > FETCH_MIN_BYTES else CLIENT_POLL_RECORDS
    return max(1, min(most, fetched // max(1, seen.mean)))
