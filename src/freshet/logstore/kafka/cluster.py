"""What the cluster of a source is asked: whether it answers, its topics, their offsets, its last records."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from freshet._frozen import Frozen, field
from freshet.logstore.kafka.connection import LastError, error_text
from freshet.logstore.kafka.java_options import READ_UNCOMMITTED, ClientSettings
from freshet.logstore.kafka.partition_offsets import OpenTransaction, offset_bounds, offsets_at, open_transactions
from freshet.logstore.kafka.record_sizes import SampledRecord
from freshet.logstore.protocol.client import OffsetBounds

_AT_ONCE: Final = 500
_FURTHER: Final = 16
"""How many times further back a partition is looked at that has no record so near its end."""


def asked_ids(client: AdminClient, names: Collection[str], timeout_s: float) -> Callable[[], dict[str, str]]:
    """Asks for `KafkaCluster.topic_ids`; what it gives waits for the answer."""
    asked = client.describe_topics(TopicCollection(sorted(names)), request_timeout=timeout_s)

    def answer() -> dict[str, str]:
        ids = {}
        for name, future in asked.items():
            try:
                topic_id = future.result().topic_id
            except KafkaException:
                continue
            if topic_id.get_most_significant_bits() or topic_id.get_least_significant_bits():
                ids[name] = str(topic_id)
        return ids

    return answer


class ClusterAnswer(Frozen):
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
        self._settings = settings.values
        self._last_error = LastError(settings.values)
        configuration: dict[str, Any] = {
            **settings.values,
            "error_cb": self._last_error.keep,
            "log_level": 0,
            "socket.timeout.ms": 10_000,
            "enable.sparse.connections": False,  # else the second broker is often asked only after 50 ms
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
        return asked_ids(self._client, names, timeout_s)() if names else {}

    def topic_settings(
        self, names: Collection[str], keys: Collection[str], timeout_s: float
    ) -> dict[str, dict[str, str]]:
        """Some settings of those topics whose settings the user may see; raises `OSError` where none can be had."""
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in sorted(names)]
        found = {}
        try:
            answers = self._client.describe_configs(resources, request_timeout=timeout_s) if resources else {}
        except KafkaException as error:
            raise OSError(error_text(error)) from error
        for resource, future in answers.items():
            try:
                entries = future.result()
            except KafkaException:
                continue
            found[resource.name] = {key: entries[key].value for key in keys if key in entries}
        return found

    def bounds(
        self, places: Collection[tuple[str, int]], timeout_s: float, *, isolation: str = READ_UNCOMMITTED
    ) -> dict[tuple[str, int], OffsetBounds]:
        """The answer of `offset_bounds`; raises `OSError` where they could not be had."""
        try:
            return offset_bounds(self._client, places, timeout_s, isolation=isolation)
        except KafkaException as error:
            raise OSError(error_text(error)) from error

    def open_transactions(self, places: Collection[tuple[str, int]], timeout_s: float) -> list[OpenTransaction]:
        """The answer of the function of this name; raises `OSError` where they could not be asked for."""
        try:
            return open_transactions(self._client, self._settings, places, timeout_s)
        except KafkaException as error:
            raise OSError(error_text(error)) from error

    def offsets_at(
        self, times_ms: Mapping[tuple[str, int], int], timeout_s: float, *, isolation: str
    ) -> dict[tuple[str, int], int]:
        """The answer of the function of this name; raises `OSError` where they could not be had."""
        try:
            return offsets_at(self._client, times_ms, timeout_s, isolation)
        except KafkaException as error:
            raise OSError(error_text(error)) from error


def last_records(
    settings: ClientSettings, partition_counts: Mapping[str, int], *, count: int, timeout_s: float, isolation: str
) -> list[SampledRecord]:
    """The last records of some topics, about `count` over all of their partitions.

    Fewer where there are not so many, or the brokers take longer; offsets of no group are changed. Raises `ValueError`
    where a broker refuses.
    """
    deadline = time.monotonic() + timeout_s
    partitions = [TopicPartition(topic, number) for topic, parts in partition_counts.items() for number in range(parts)]
    back = max(1, count // max(1, len(partitions)))
    own = {"group.id": "freshet-check", "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0}
    try:
        consumer = Consumer({**settings.values, **own, "isolation.level": isolation})
        try:
            bounds = {
                place: consumer.get_watermark_offsets(place, timeout=max(0.1, deadline - time.monotonic()))
                for place in partitions[:count]
            }
            found: list[SampledRecord] = []
            left = [place for place, (low, high) in bounds.items() if low < high]
            while left and len(found) < count and time.monotonic() < deadline:
                for place in left:
                    place.offset = max(bounds[place][0], bounds[place][1] - back)
                silent = _read_to_the_ends(consumer, left, found, deadline)
                left = [place for place in left if place in silent and place.offset > bounds[place][0]]
                back *= _FURTHER
            return found
        finally:
            consumer.close()
    except KafkaException as error:
        raise ValueError(error_text(error)) from error


def _read_to_the_ends(
    consumer: Consumer, places: list[TopicPartition], found: list[SampledRecord], deadline: float
) -> set[TopicPartition]:
    """Adds what is there; gives the places that had nothing: what ends a transaction, and what one that was aborted
    has written, have offsets and are no records."""
    consumer.assign(places)
    silent, reading = set(places), set(places)
    while reading and (rest := deadline - time.monotonic()) > 0:
        for message in consumer.consume(_AT_ONCE, timeout=min(0.05, rest)):
            place = TopicPartition(message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is None:
                silent.discard(place)
                found.append(SampledRecord(message.key(), message.value(), message.topic() or ""))
            elif error.code() == KafkaError._PARTITION_EOF:
                reading.discard(place)
    return silent
