"""What a source has to read, asked before its query starts: how many Kafka partitions, how large their records.

What a checkpoint's last finished batch has read does not count. A batch that was planned and not finished, for example
because memory did not suffice, is among what is looked at: it comes again, in smaller pieces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from freshet._frozen import Frozen
from freshet.logstore.kafka.cluster import KafkaCluster
from freshet.logstore.kafka.look import look_at_records
from freshet.logstore.kafka.record_sizes import NOTHING_SEEN, RecordSizes
from freshet.logstore.protocol.client import TopicPartition
from freshet.pipeline.checks.kafka_reach import ASK_S, brokers_of, first_read, partition_counts
from freshet.pipeline.config.model import PipelineConfig, SourceConfig
from freshet.pipeline.config.record_place import RecordPlace
from freshet.pipeline.config.rules import subscribed_pattern
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.identity.checkpoint_folder import CheckpointPlace, as_folder
from freshet.pipeline.identity.checkpoint_offsets import finished_lines


class UnreadRecords(Frozen):
    """What no finished batch of a source has read, as far as its cluster could be asked."""

    kafka_partitions: int = 0
    """Of all of its topics; 0 where it is not known, and of files."""
    sizes: RecordSizes = NOTHING_SEEN
    """Nothing seen where it is not known, of topics without records and of files."""


NOTHING_KNOWN: Final = UnreadRecords()


def unread_records(source: SourceConfig, checkpoint: CheckpointPlace) -> UnreadRecords:
    """Asks the cluster of a source, if it has one: 55 ms for its partitions, about 60 ms for the sizes."""
    brokers = brokers_of(source)
    counts = partition_counts(source)
    if brokers is None or not counts:
        return NOTHING_KNOWN
    read = finished_offsets(checkpoint)
    sizes = look_at_records(brokers.settings, counts, read, isolation=source.isolation)
    return UnreadRecords(sum(counts.values()), sizes)


def finished_offsets(checkpoint: CheckpointPlace) -> dict[TopicPartition, int]:
    """Where the last finished batch ended, as far as the checkpoint says; of a topic that two sources read, the
    earlier place."""
    try:
        found: dict[TopicPartition, int] = {}
        for topics in map(json.loads, finished_lines(checkpoint)):
            for topic, ends in topics.items() if isinstance(topics, dict) else ():
                for number, end in ends.items() if isinstance(ends, dict) else ():
                    place = TopicPartition(topic, int(number))
                    found[place] = min(end, found.get(place, end))
    except (OSError, ValueError, TypeError):
        return {}  # not readable: checks of the checkpoint report it
    return found


def refuse_wrong_places(configs: Sequence[PipelineConfig], places: Sequence[RecordPlace]) -> None:
    """Raises `InvalidRequestError` for a record that no pipeline is going to read."""
    for place in places:
        reading = list(_reading(configs, place))
        if not reading:
            raise InvalidRequestError(f"--skip-record {place}: no source of these pipelines reads topic {place.topic}")
        reasons = [_why_not(config, source, place) for config, source in reading]
        if all(reasons):
            raise InvalidRequestError(f"--skip-record {place}: {reasons[0]}")


def _reading(configs: Sequence[PipelineConfig], place: RecordPlace) -> Iterator[tuple[PipelineConfig, SourceConfig]]:
    for config in configs:
        for source in config.sources:
            if source.is_kafka and (first_read(source, [place.topic]) is not None or _is_of_java(source)):
                yield config, source


def _is_of_java(source: SourceConfig) -> bool:
    """Whether the topics of a source are named by a pattern that only Java knows."""
    try:
        re.compile(subscribed_pattern(source) or "")
    except re.error:
        return True
    return False


def _why_not(config: PipelineConfig, source: SourceConfig, place: RecordPlace) -> str | None:
    """Why a source does not read the record any more, or not yet; None where it does, or nobody could be asked."""
    brokers = brokers_of(source)
    assert brokers is not None
    if not brokers.settings.untranslated:
        client = KafkaCluster(brokers.settings)
        count = client.ask(ASK_S).partition_counts.get(place.topic)
        if count is not None and place.partition >= count:
            return f"topic {place.topic} has {count} partitions, from 0 on"
        at = (place.topic, place.partition)
        found = client.bounds([at], ASK_S).get(at) if count is not None else None
        if found is not None and not found.first <= place.offset < found.end:
            has = f"offsets {found.first} to {found.end - 1}" if found.end > found.first else "no records"
            return f"partition {place.partition} of topic {place.topic} has {has}"
    folder = as_folder(config.checkpoint)
    read = 0 if folder is None else finished_offsets(folder).get(TopicPartition(place.topic, place.partition), 0)
    return f"{config.name} has read that record, and goes on at offset {read}" if place.offset < read else None
