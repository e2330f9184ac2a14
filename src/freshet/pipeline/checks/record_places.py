"""Whether the records that are to be skipped are there, and still to be read: asked before a run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from freshet.logstore.kafka.cluster import KafkaCluster
from freshet.logstore.protocol.client import TopicPartition
from freshet.pipeline.checks.kafka_reach import ASK_S, brokers_of, first_read
from freshet.pipeline.checks.unread_records import finished_offsets
from freshet.pipeline.config.model import PipelineConfig, SourceConfig
from freshet.pipeline.config.record_place import RecordPlace
from freshet.pipeline.config.rules import subscribed_pattern
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.identity.checkpoint_folder import as_folder


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
