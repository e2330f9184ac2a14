"""What the cluster of a source is asked: whether it answers, its topics, their offsets, its last records."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from freshet.logstore.kafka.connection import LastError, error_text
from freshet.logstore.kafka.java_options import ClientSettings
from freshet.logstore.kafka.partition_offsets import offset_bounds, offsets_at
from freshet.logstore.kafka.sampled_record import SampledRecord
from freshet.logstore.protocol.client import OffsetBounds


@dataclass(frozen=True, slots=True)
class ClusterAnswer:
    """What a cluster said: its topics, or why it did not answer."""

    topics: frozenset[str] = frozenset()
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    """By topic."""
    cluster_id: str | None = None
    """None where the cluster gives none."""
    failure: str | None = None
    is_refused_setting: bool = False
    """The client refuses its settings, and has asked no broker."""


class KafkaCluster:
    """Asks one cluster whether it answers; keeps its connections from one question to the next."""

    def __init__(self, settings: ClientSettings) -> None:
        """Raises `ValueError` for settings that librdkafka refuses."""
        self._last_error = LastError(settings.values)
        configuration: dict[str, Any] = {
            **settings.values,
            "error_cb": self._last_error.keep,
            "log_level": 0,
            "socket.timeout.ms": 10_000,
        }
        try:
            self._client = AdminClient(configuration)
        except KafkaException as error:
            raise ValueError(error_text(error)) from error

    def ask(self, timeout_s: float) -> ClusterAnswer:
        """The topics of the cluster, or why no broker answered in time."""
        try:
            metadata = self._client.list_topics(timeout=timeout_s)
        except KafkaException as error:
            self._client.poll(0)  # delivers what `LastError` is to hear
            return ClusterAnswer(failure=self._last_error.heard() or error_text(error))
        self._last_error.last = None
        counts = {name: len(topic.partitions) for name, topic in metadata.topics.items()}
        return ClusterAnswer(frozenset(counts), counts, metadata.cluster_id)

    def topic_ids(self, names: Collection[str], timeout_s: float) -> dict[str, str]:
        """The ids of those topics that are there and that the user may describe.

        A topic that is deleted and created again has another id. Brokers before 2.8 give none.
        """
        if not names:
            return {}
        ids = {}
        for name, future in self._client.describe_topics(
            TopicCollection(sorted(names)), request_timeout=timeout_s
        ).items():
            try:
                topic_id = future.result().topic_id
            except KafkaException:
                continue
            if topic_id.get_most_significant_bits() or topic_id.get_least_significant_bits():
                ids[name] = str(topic_id)
        return ids

    def bounds(self, places: Collection[tuple[str, int]], timeout_s: float) -> dict[tuple[str, int], OffsetBounds]:
        """As `offset_bounds`; raises `OSError` where they could not be had."""
        try:
            return offset_bounds(self._client, places, timeout_s)
        except KafkaException as error:
            raise OSError(error_text(error)) from error

    def offsets_at(self, times_ms: Mapping[tuple[str, int], int], timeout_s: float) -> dict[tuple[str, int], int]:
        """As the function of this name; raises `OSError` where they could not be had."""
        try:
            return offsets_at(self._client, times_ms, timeout_s)
        except KafkaException as error:
            raise OSError(error_text(error)) from error


def last_records(
    settings: ClientSettings, partition_counts: Mapping[str, int], *, count: int, timeout_s: float
) -> list[SampledRecord]:
    """The last records of some topics, about `count` over all of their partitions.

    Fewer where there are not so many, or the brokers take longer; offsets of no group are changed. Raises `ValueError`
    where a broker refuses.
    """
    deadline = time.monotonic() + timeout_s
    partitions = [TopicPartition(topic, number) for topic, parts in partition_counts.items() for number in range(parts)]
    each = max(1, count // max(1, len(partitions)))
    try:
        consumer = Consumer(
            {**settings.values, "group.id": "freshet-check", "enable.auto.commit": False, "log_level": 0}
        )
        try:
            wanted = 0
            for place in partitions[:count]:
                low, high = consumer.get_watermark_offsets(place, timeout=max(0.1, deadline - time.monotonic()))
                place.offset = max(low, high - each)
                wanted += high - place.offset
            consumer.assign(partitions[:count])
            found: list[SampledRecord] = []
            while len(found) < wanted and (rest := deadline - time.monotonic()) > 0:
                messages = consumer.consume(wanted - len(found), timeout=min(1.0, rest))
                if found and not messages:
                    break  # what ends a transaction has an offset and is no record
                found += [
                    SampledRecord(message.key(), message.value(), message.topic() or "")
                    for message in messages
                    if message.error() is None
                ]
            return found
        finally:
            consumer.close()
    except KafkaException as error:
        raise ValueError(error_text(error)) from error
