"""Ranges of offsets, of librdkafka's mock cluster: where they end, and what is said where they cannot be read."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Producer

from freshet.logstore.exceptions import LogTruncatedError, LogUnavailableError
from freshet.logstore.kafka import range_reader
from freshet.logstore.kafka.java_options import java_client_option
from freshet.logstore.kafka.offset_range import OffsetRange, RangeProgress
from freshet.logstore.kafka.polled_records import RECORD_SCHEMA
from freshet.logstore.kafka.range_reader import RangeReader
from tests.kit.mock_kafka import FETCH, MockKafka, mock_kafka

COUNT = 200


@pytest.fixture
def cluster() -> Iterator[MockKafka]:
    with mock_kafka(topics={"t": 1}) as made:
        producer = Producer({"bootstrap.servers": made.bootstrap_servers, "linger.ms": 5})
        for number in range(COUNT):
            producer.produce("t", f"v{number}", key=None if number % 3 else f"k{number}", timestamp=1000 + number)
        assert producer.flush(30) == 0
        yield made


def reader(cluster: MockKafka, *, takes_losses: bool = False, timeout_s: float = 20) -> RangeReader:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "reconnect.backoff.max.ms": 100}
    return RangeReader(settings, timeout_s=timeout_s, takes_losses=takes_losses)


def values(own: RangeReader, wanted: OffsetRange) -> tuple[list[bytes], RangeProgress]:
    progress = RangeProgress(wanted.start)
    found = []
    for records in own.read(wanted, progress):
        batch = records.batch()
        assert batch.schema == RECORD_SCHEMA and batch.num_rows == len(records)
        found += batch.to_pylist()
    for row in found:
        number = int(row["value"][1:])
        assert row["offset"] == number and row["timestamp"].timestamp() == (1000 + number) / 1000
        assert row["key"] == (None if number % 3 else f"k{number}".encode())
    return [row["value"] for row in found], progress


def test_ranges_one_after_the_other(cluster: MockKafka) -> None:
    """Records behind a range are not given, and a reader goes back."""
    own = reader(cluster)
    for start, end in ((0, 50), (50, 51), (10, 200), (7, 7), (0, COUNT)):
        found, progress = values(own, OffsetRange("t", 0, start, end))
        assert found == [f"v{number}".encode() for number in range(start, end)]
        assert progress.reached >= end and not progress.passed_over
    own.close()


def test_batches_are_bounded_by_bytes(cluster: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch that unpacks to much more, and one record larger than a batch may be."""
    monkeypatch.setattr(range_reader, "BATCH_BYTES", 1 << 20)
    sizes = [100_000] * 40 + [0] * 10 + [900_000] * 3 + [10] * 50
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 50, "compression.type": "lz4"})
    for size in sizes:
        producer.produce("t", b"x" * size)
    producer.produce("t", None)
    assert producer.flush(30) == 0
    own, progress = reader(cluster), RangeProgress(COUNT)
    batches = [records.batch() for records in own.read(OffsetRange("t", 0, COUNT, COUNT + len(sizes) + 1), progress)]
    found = [value for batch in batches for value in batch.column("value").to_pylist()]
    assert [None if value is None else len(value) for value in found] == [*sizes, None]
    assert all(batch.num_rows == 1 or batch.column("value").nbytes < (1 << 20) + 4096 for batch in batches)
    assert len(batches) < 20


def test_an_offset_that_is_not_there(cluster: MockKafka) -> None:
    beyond = OffsetRange("t", 0, 1000, 1010)
    with pytest.raises(LogTruncatedError, match="t partition 0 offsets 1000 to 1010: offset 1000 is not in Kafka"):
        values(reader(cluster, timeout_s=1), beyond)
    found, progress = values(reader(cluster, takes_losses=True, timeout_s=1), beyond)
    assert not found and progress.passed_over == 10 and progress.reached == 1010


@pytest.mark.parametrize("takes_losses", [False, True])
def test_an_offset_behind_the_end_that_comes_later(cluster: MockKafka, takes_losses: bool) -> None:
    """As from a leader that has just changed: it does not know at once how far the partition goes."""
    own = reader(cluster, takes_losses=takes_losses)
    watermarks, said = own._watermarks, []

    def behind(wanted: OffsetRange) -> tuple[int, int]:
        said.append(watermarks(wanted))
        if len(said) == 2:
            late = Producer({"bootstrap.servers": cluster.bootstrap_servers})
            for number in range(COUNT, COUNT + 20):
                late.produce("t", f"v{number}", key=None if number % 3 else f"k{number}", timestamp=1000 + number)
            assert late.flush(30) == 0
        return said[-1]

    own._watermarks = behind  # type: ignore[method-assign]
    found, progress = values(own, OffsetRange("t", 0, COUNT + 5, COUNT + 15))
    assert len(found) == 10 and not progress.passed_over and said == [(0, COUNT), (0, COUNT)]


@pytest.mark.parametrize("takes_losses", [False, True])
def test_an_offset_that_a_broker_denies_though_it_is_there(cluster: MockKafka, takes_losses: bool) -> None:
    cluster.fail(FETCH, KafkaError.OFFSET_OUT_OF_RANGE, times=1)
    found, progress = values(reader(cluster, takes_losses=takes_losses), OffsetRange("t", 0, 10, 20))
    assert len(found) == 10 and not progress.passed_over


@pytest.mark.parametrize("takes_losses", [False, True])
def test_an_offset_before_the_first_one_is_lost_at_once(
    cluster: MockKafka, takes_losses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = reader(cluster, takes_losses=takes_losses)
    monkeypatch.setattr(own, "_watermarks", lambda _: (50, COUNT))
    cluster.fail(FETCH, KafkaError.OFFSET_OUT_OF_RANGE, times=1)
    started_s = time.monotonic()
    if takes_losses:
        found, progress = values(own, OffsetRange("t", 0, 10, 60))
        assert len(found) == 10 and progress.passed_over == 40
    else:
        with pytest.raises(LogTruncatedError, match="offset 10 is not in Kafka, which has 50 to 200"):
            values(own, OffsetRange("t", 0, 10, 60))
    assert time.monotonic() - started_s < 10  # of 20 allowed


def test_a_partition_that_ends_before_the_range(cluster: MockKafka) -> None:
    """It did not when the range was planned: what is missing will not come."""
    wanted = OffsetRange("t", 0, 150, 300)
    with pytest.raises(LogTruncatedError, match="offsets 150 to 300: offset 200 is not in Kafka, which has 0 to 200"):
        values(reader(cluster, timeout_s=1), wanted)
    found, progress = values(reader(cluster, takes_losses=True, timeout_s=1), wanted)
    assert len(found) == 50 and progress.passed_over == 100 and progress.reached == 300


def test_records_that_come_later_than_the_end_of_the_partition_was_seen(cluster: MockKafka) -> None:
    """As from a new leader, which does not know at once which records all replicas have."""
    own, progress, found = reader(cluster), RangeProgress(150), 0
    for batch in own.read(OffsetRange("t", 0, 150, COUNT + 10), progress):
        if not found:
            late = Producer({"bootstrap.servers": cluster.bootstrap_servers})
            for number in range(10):
                late.produce("t", f"v{COUNT + number}")
            assert late.flush(30) == 0
        found += len(batch)
    assert found == 60 and progress.reached == COUNT + 10 and not progress.passed_over


def test_what_was_heard_before_records_came_is_not_said(cluster: MockKafka) -> None:
    own = reader(cluster, timeout_s=1)
    with pytest.raises(LogUnavailableError, match="nothing came for 1 s behind offset 0"):
        values(own, OffsetRange("t", 7, 0, 10))
    values(own, OffsetRange("t", 0, 0, 10))
    own._last_error.keep(KafkaError(KafkaError._TRANSPORT, "refused"))
    values(own, OffsetRange("t", 0, 10, 20))
    assert own._last_error.heard() is None


def test_brokers_that_are_gone(cluster: MockKafka) -> None:
    own = reader(cluster, timeout_s=1)
    values(own, OffsetRange("t", 0, 0, 10))
    cluster.set_up(False)
    with pytest.raises(LogUnavailableError, match="nothing came for 1 s behind offset 10"):
        values(own, OffsetRange("t", 0, 10, 20))
    cluster.set_up(True)
    found, _ = values(reader(cluster), OffsetRange("t", 0, 10, 20))
    assert len(found) == 10


# --- several ranges at the same time ----------------------------------------------------------------------------------


@pytest.fixture
def topics() -> Iterator[MockKafka]:
    """Records that say their place: three topics, `a` of two partitions."""
    with mock_kafka(topics={"a": 2, "b": 1, "empty": 1}) as made:
        producer = Producer({"bootstrap.servers": made.bootstrap_servers, "linger.ms": 5})
        for number in range(COUNT):
            for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
                producer.produce(topic, f"{topic}{partition}-{number}", partition=partition)
        assert producer.flush(30) == 0
        yield made


def several(own: RangeReader, *wanted: OffsetRange) -> list[RangeProgress]:
    """Reads ranges together, each must be read to its end and in order."""
    given = [(each, RangeProgress(each.start)) for each in wanted]
    found: list[list[bytes]] = [[] for _ in wanted]
    for index, batch in own.read_several(given):
        assert len(batch) and batch.lengths.tolist() == [len(value or b"") for value in batch.values]
        found[index] += [value for value in batch.values if value is not None]
    for each, values in zip(wanted, found, strict=True):
        numbers = range(each.start, min(each.end, COUNT)) if each.topic != "empty" else ()
        assert values == [f"{each.topic}{each.partition}-{number}".encode() for number in numbers], str(each)
    return [progress for _, progress in given]


def test_ranges_of_several_topics_and_partitions(topics: MockKafka) -> None:
    own = reader(topics)
    for _ in range(2):
        wanted = OffsetRange("a", 0, 0, COUNT), OffsetRange("b", 0, 50, 60), OffsetRange("a", 1, 199, COUNT)
        assert all(progress.reached >= each.end for progress, each in zip(several(own, *wanted), wanted, strict=True))
    own.close()


def test_ranges_of_one_partition_are_read_one_after_the_other(topics: MockKafka) -> None:
    """As batches of many sources may have them, in any order; others are read meanwhile."""
    several(
        reader(topics),
        OffsetRange("a", 0, 150, COUNT), OffsetRange("b", 0, 0, COUNT), OffsetRange("a", 0, 0, 150),
        OffsetRange("a", 0, 10, 20), OffsetRange("a", 0, 7, 7),
    )  # fmt: skip


def test_no_ranges_and_ranges_without_records(topics: MockKafka) -> None:
    assert several(reader(topics)) == []
    (progress,) = several(reader(topics), OffsetRange("b", 0, 5, 5))
    assert progress.reached == 5


def test_one_of_several_ranges_is_not_there(topics: MockKafka) -> None:
    wanted = OffsetRange("a", 0, 0, COUNT), OffsetRange("b", 0, 1000, 1010)
    with pytest.raises(LogTruncatedError, match="b partition 0 offsets 1000 to 1010: offset 1000 is not in Kafka"):
        several(reader(topics, timeout_s=1), *wanted)
    first, lost = several(reader(topics, takes_losses=True, timeout_s=1), *wanted)
    assert (first.reached, first.passed_over) == (COUNT, 0)
    assert (lost.reached, lost.passed_over) == (1010, 10)


def test_one_of_several_ranges_does_not_come_to_its_end(topics: MockKafka) -> None:
    """Though all others are read."""
    wanted = OffsetRange("a", 0, 0, COUNT), OffsetRange("b", 0, 0, 300), OffsetRange("a", 1, 0, COUNT)
    given = [(each, RangeProgress(each.start)) for each in wanted]
    with pytest.raises(LogTruncatedError, match=f"b partition 0 offsets 0 to 300: offset {COUNT} is not in Kafka"):
        list(reader(topics, timeout_s=1).read_several(given))
    assert [progress.reached for _, progress in given] == [COUNT, COUNT, COUNT]


def test_a_reader_that_is_left_in_the_middle_reads_the_next_ranges(topics: MockKafka) -> None:
    own = reader(topics)
    reading = own.read_several([(OffsetRange("a", 0, 0, COUNT), RangeProgress(0))])
    next(reading)
    reading.close()  # type: ignore[attr-defined]
    several(own, OffsetRange("b", 0, 0, 10), OffsetRange("a", 0, 5, 10))
    own.close()


def test_a_topic_that_there_is_not(topics: MockKafka) -> None:
    with pytest.raises(LogUnavailableError, match="topic nowhere partition 3 offsets 0 to 5"):
        several(reader(topics, timeout_s=2), OffsetRange("nowhere", 3, 0, 5))


@pytest.mark.parametrize(
    ("options", "only_java"),
    [
        ({}, None),
        ({"kafka.isolation.level": "read_committed", "kafka.group.id": "g", "failOnDataLoss": "false"}, None),
        ({"kafka.max.partition.fetch.bytes": "1", "kafka.receive.buffer.bytes": "-1"}, None),
        ({"kafka.interceptor.classes": "x.Y"}, "kafka.interceptor.classes"),
        ({"kafka.ssl.truststore.location": "/t.jks"}, "kafka.ssl.truststore.location"),
        ({"kafka.ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "kafka.ssl.cipher.suites"),
        ({"kafka.ssl.truststore.password": "p"}, "kafka.ssl.truststore.password"),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "GSSAPI"}, "kafka.sasl.mechanism = GSSAPI"),
    ],
)
def test_options_that_only_the_java_client_has(options: dict[str, str], only_java: str | None) -> None:
    assert java_client_option({"kafka.bootstrap.servers": "h:1", **options}) == only_java
