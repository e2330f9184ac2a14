"""What a worker knows of the records of ranges before it reads them all."""

from __future__ import annotations

from confluent_kafka import Producer

from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.logstore.kafka.record_sizes import RecordSizes
from freshet.pipeline.query.task.kafka_ranges import DirectClient, probed_sizes
from tests.kit.mock_kafka import mock_kafka


def test_sizes_are_those_of_the_first_the_middle_and_the_last_records() -> None:
    with mock_kafka(topics={"t": 2}) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(90):
            producer.produce("t", b"x" * (5000 if 40 <= number < 50 else 10), partition=0)
        producer.produce("t", b"x" * 300, partition=1)
        producer.flush()
        client = DirectClient((("bootstrap.servers", cluster.bootstrap_servers),), 10.0, False)
        whole, end, other = OffsetRange("t", 0, 0, 90), OffsetRange("t", 0, 60, 90), OffsetRange("t", 1, 0, 1)
        sizes = probed_sizes(client, [whole, other])
        assert sizes.largest == 5000 and 3000 < sizes.mean < 5000
        assert probed_sizes(client, [end, other]) == RecordSizes(300, 300)
