"""The Kafka source here and Spark's: of one topic and the same options both write the same offsets, batch by batch."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.sql import SparkSession

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.pipeline.config.model import SourceConfig, revealed
from freshet.pipeline.identity.checkpoint_folder import LocalCheckpoint
from freshet.pipeline.local.kafka_plan import cut
from freshet.pipeline.local.kafka_source import KafkaSource, kafka_source
from tests.kit.transactions import Transaction

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
pytest_plugins = ["tests.integration.source_fixtures"]


class Both:
    """A source that is read by Spark and here, each with a checkpoint of its own."""

    def __init__(self, spark: SparkSession, broker: ForeignBroker, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        self.broker = broker
        self.name = f"both-{uuid4().hex[:8]}"
        self._servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        self.begun_ms = int(time.time() * 1000) - 60_000
        self.texts: list[str] = []
        self.runs = 0

    def topic(self, name: str, partitions: int = 1) -> str:
        full = f"{self.name}.{name}"
        self.broker.create_topic(full, kafka_partitions=partitions)
        return full

    def send(self, topic: str, *counts: int) -> None:
        """So many records into each of the first partitions, a second from one to the next."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers, "linger.ms": 5})
        for partition, count in enumerate(counts):
            for number in range(count):
                producer.produce(topic, b"x", partition=partition, timestamp=self.begun_ms + 1000 * number)
        assert producer.flush(60) == 0

    def more_partitions(self, topic: str, count: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, count)])[topic].result(60)
        while len(admin.list_topics(topic, timeout=60).topics[topic].partitions) < count:
            pass

    def run(self, **options: str) -> list[str]:
        """The offsets of the batches that both plan until all is read; Spark's first offsets are those here too."""
        self.runs += 1
        given = {**self._servers, "kafka.isolation.level": "read_committed", **options}
        here = self._here(given)
        spark = self._on_spark(given)
        assert here == spark, f"run {self.runs}: here {here}, on Spark {spark}"
        return here

    def _here(self, options: dict[str, str]) -> list[str]:
        source = self.source(LocalCheckpoint(self._folder / "here"), **options)
        try:
            source.bound()
            found: list[str] = []
            start = self.texts[-1] if self.texts else source.first()
            while True:
                end = source.latest(start)
                assert end is not None
                if end == start and (self.texts or found):
                    return found
                source.ranges(start, end)
                found.append(end)
                self.texts.append(end)
                start = end
        finally:
            source.close()

    def source(self, folder: LocalCheckpoint, **options: str) -> KafkaSource:
        config = SourceConfig.model_validate({"kafka": {**self._servers, **options}, "format": "json"})
        assert revealed(config.kafka or {})
        return kafka_source(config, folder, 0)

    def _on_spark(self, options: dict[str, str]) -> list[str]:
        checkpoint = self._folder / "spark"
        before = _numbers(checkpoint)
        frame = self._spark.readStream.format("kafka").options(**options).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()
        first = (checkpoint / "sources/0/0").read_bytes()
        assert first == (self._folder / "here/sources/0/0").read_bytes()
        texts = [(checkpoint / "offsets" / str(each)).read_text() for each in sorted(_numbers(checkpoint) - before)]
        return [text.splitlines()[2] for text in texts]


def _numbers(checkpoint: Path) -> set[int]:
    return set(LocalCheckpoint(checkpoint).numbers("offsets"))


@pytest.fixture
def both(kafka_spark: SparkSession, kafka_broker: ForeignBroker, tmp_path: Path) -> Iterator[Both]:
    made = Both(kafka_spark, kafka_broker, tmp_path)
    yield made
    for topic in [each for each in kafka_broker.topics() if each.startswith(made.name)]:
        kafka_broker.delete_topic(topic)


def many_topics(both: Both) -> None:
    """More topics than a map of Scala has buckets at first, and a batch that is limited."""
    topics = [both.topic(f"orders-{number}", partitions=1 + number % 3) for number in range(13)]
    for number, topic in enumerate(topics):
        both.send(topic, *([number * 3] * (1 + number % 3)))
    options = {"subscribe": ",".join(topics), "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
    assert len(both.run(**options)) > 3
    both.more_partitions(topics[4], 14)
    both.send(topics[4], *([5] * 14))
    assert len(both.run(**options)) >= 1


def assigned(both: Both) -> None:
    """Partitions with gaps, from offsets that are said; -2 and -1 among them."""
    topic = both.topic("t", partitions=40)
    both.send(topic, *([9] * 40))
    numbers = [0, 5, 17, 33, 16, 32, 1]
    starts = dict(zip(map(str, numbers), [-2, -1, 3, 9, 0, -2, 4], strict=True))
    options = {"assign": f'{{"{topic}":{numbers}}}', "startingOffsets": f'{{"{topic}":{starts}}}'.replace("'", '"')}
    assert len(both.run(**options, maxOffsetsPerTrigger="20")) > 1
    both.send(topic, *([2] * 40))
    assert len(both.run(**options)) == 1


def pattern(both: Both) -> None:
    """A part of the name is enough; topics come and go."""
    first, second = both.topic("orders"), both.topic("orders-eu", partitions=2)
    both.topic("other")
    both.send(first, 5)
    options = {"subscribePattern": f"{both.name}[.]ord", "startingOffsets": "latest", "failOnDataLoss": "false"}
    assert len(both.run(**options)) == 1
    both.send(first, 3)
    both.send(both.topic("my-orders-us", partitions=2), 4, 4)
    both.send(both.topic("orders-us", partitions=2), 4, 4)
    assert len(both.run(**options, maxOffsetsPerTrigger="6")) > 1
    both.broker.delete_topic(second)
    assert second not in both.run(**options)[-1]


def times(both: Both) -> None:
    """From a time on, which one partition does not reach; an open transaction is not in the end of another."""
    topic = both.topic("t", partitions=3)
    both.send(topic, 10, 3, 6)
    begun = Transaction(both.broker.bootstrap_servers, topic, 2)
    begun.send([(None, b"held")] * 4)
    both.send(topic, 0, 0, 2)
    options = {
        "subscribe": topic,
        "startingTimestamp": str(both.begun_ms + 4000),
        "startingOffsetsByTimestampStrategy": "latest",
    }
    try:
        assert both.run(**options) == [f'{{"{topic}":{{"0":10,"1":3,"2":6}}}}']
    finally:
        begun.commit()
    assert both.run(**options) == [f'{{"{topic}":{{"0":10,"1":3,"2":13}}}}']


def times_of_partitions(both: Both) -> None:
    topic = both.topic("t", partitions=2)
    both.send(topic, 10, 10)
    given = f'{{"{topic}":{{"0":{both.begun_ms + 3000},"1":{both.begun_ms + 8500}}}}}'
    assert len(both.run(subscribe=topic, startingOffsetsByTimestamp=given, minPartitions="7")) == 1


def least(both: Both) -> None:
    """The first batch is planned at once, and what is too little then stays."""
    topic = both.topic("t", partitions=2)
    both.send(topic, 30, 10)
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": "15"}
    found = both.run(**options, maxOffsetsPerTrigger="15")
    assert len(found) == 2
    both.send(topic, 3)
    assert len(both.run(**options, maxTriggerDelay="1h")) == 1


@pytest.mark.parametrize("story", [many_topics, assigned, pattern, times, times_of_partitions, least])
def test_offsets_are_those_of_spark(both: Both, story: Callable[[Both], None]) -> None:
    story(both)


def test_ranges_are_cut_as_spark_cuts_them(kafka_spark: SparkSession) -> None:
    jvm: Any = kafka_spark._jvm
    chance = random.Random(7)
    option = jvm.scala.Option
    for ranges_min, range_max in itertools.product((None, 1, 3, 8, 30), (None, 7, 40)):
        sizes = [chance.choice((1, 2, 5, 13, 100, 400)) for _ in range(chance.randint(1, 9))]
        ranges = [OffsetRange("t", number, 50, 50 + size) for number, size in enumerate(sizes)]
        package = jvm.org.apache.spark.sql.kafka010
        given = jvm.java.util.ArrayList()
        for each in ranges:
            place = jvm.org.apache.kafka.common.TopicPartition(each.topic, each.partition)
            given.add(package.KafkaOffsetRange(place, each.start, each.end, option.empty()))
        options = jvm.java.util.HashMap()
        for key, value in {"minPartitions": ranges_min, "maxRecordsPerPartition": range_max}.items():
            if value is not None:
                options[key] = str(value)
        calculator = package.KafkaOffsetRangeCalculator.apply(
            jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(options)
        )
        buffer = jvm.scala.jdk.javaapi.CollectionConverters.asScala(given).toSeq()
        nowhere = jvm.scala.jdk.javaapi.CollectionConverters.asScala(jvm.java.util.ArrayList()).toSeq()
        found = calculator.getRanges(buffer, nowhere)
        theirs = [
            (each.topicPartition().partition(), each.fromOffset(), each.untilOffset())
            for each in jvm.scala.jdk.javaapi.CollectionConverters.asJava(found)
        ]
        ours = [(each.partition, each.start, each.end) for each in cut(ranges, ranges_min, range_max)]
        assert ours == theirs, (sizes, ranges_min, range_max)
