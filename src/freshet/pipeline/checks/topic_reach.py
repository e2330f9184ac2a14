"""How far the sources of a pipeline are from the end of what Kafka keeps: what was deleted before it was read, and what
will be soon.

A topic keeps records for `retention.ms`, and `retention.bytes` of each partition. A reader is near the end where
records that wait for it are older than half of the time; or, where bytes were deleted already, where it is within a
tenth of what is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from freshet._frozen import Frozen
from freshet.logstore.kafka.connection import log_client_settings
from freshet.logstore.kafka.java_options import ClientSettings
from freshet.pipeline.checks.kafka_reach import ASK_S, Brokers, Clusters, brokers_of, topics_of
from freshet.pipeline.checks.offset_check import positions_of
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.starting_offsets import Place, shown
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder
from freshet.pipeline.identity.checkpoint_offsets import checkpoint_offsets

RETENTION: Final = ("retention.ms", "retention.bytes")
NEAR_SHARE: Final = 0.5
"""Of `retention.ms`."""
NEAR_BYTES_SHARE: Final = 0.1


class TopicReach(Frozen):
    """One source. The places are those that are worst off, as people read them."""

    source_index: int
    lost_records: int
    lost_place: str
    near_records: int
    """Of the partitions that are near the end, those that are that old; where bytes count, all that wait."""
    near_place: str
    retention: str
    """The setting that the topic of `near_place` has."""


class LogReach(Frozen):
    """The topic of the log of a table, and how long it keeps records."""

    topic: str
    retention_ms: int


def log_reach(config: PipelineConfig, clients: Clusters) -> LogReach | None:
    """None of a table without a log, or whose topic is not there or keeps records for ever. Raises `OSError` or
    `ValueError` where brokers do not answer."""
    options = config.table.written_options
    if not options.has_log:
        return None
    settings = ClientSettings(log_client_settings(options.given))
    client = clients.of(Brokers(settings.values.get("bootstrap.servers", ""), settings))
    topic = options.given.get("kafka.topic", "").strip()
    kept_ms = int(client.topic_settings({topic}, RETENTION, ASK_S).get(topic, {}).get("retention.ms", -1))
    return None if kept_ms < 0 else LogReach(topic, kept_ms)


def topic_reaches(config: PipelineConfig, folder: CheckpointFolder, clients: Clusters, now_ms: int) -> list[TopicReach]:
    """The reach of each source that reads from Kafka and has begun.

    Raises `OSError` or `ValueError` where brokers do not answer; clusters that only the Java client can reach are not
    asked.
    """
    found = (_reach(config, index, folder, clients, now_ms) for index in range(len(config.sources)))
    return [each for each in found if each is not None]


def _reach(
    config: PipelineConfig, index: int, folder: CheckpointFolder, clients: Clusters, now_ms: int
) -> TopicReach | None:
    source = config.sources[index]
    brokers, kept = brokers_of(source), checkpoint_offsets(folder, index)
    if brokers is None or brokers.settings.untranslated or kept is None:
        return None
    client = clients.of(brokers)
    answer = client.ask(ASK_S)
    if answer.failure:
        raise OSError(f"no broker answers at {brokers.servers} ({answer.failure})")
    there = topics_of(source, answer) & answer.topics
    positions = {place: at for place, at in positions_of(config, folder, kept).items() if place[0] in there}
    bounds = client.bounds(positions, ASK_S)
    settings = client.topic_settings({topic for topic, _ in positions}, RETENTION, ASK_S)
    kept_ms = {topic: int(each.get("retention.ms", -1)) for topic, each in settings.items()}
    times_ms = {
        place: round(now_ms - NEAR_SHARE * kept_ms[place[0]]) for place in positions if kept_ms.get(place[0], -1) >= 0
    }
    old_ends = client.offsets_at(times_ms, ASK_S, isolation=source.isolation)
    lost = {place: bounds[place][0] - at for place, at in positions.items() if at < bounds[place][0]}
    near = {place: count for place, count in _near(positions, bounds, old_ends, settings) if place not in lost}
    worst = max(near, key=near.__getitem__, default=None)
    return TopicReach(
        index,
        sum(lost.values()),
        shown([max(lost, key=lost.__getitem__)]) if lost else "",
        sum(near.values()),
        "" if worst is None else shown([worst]),
        "" if worst is None else ", ".join(f"{key}={value}" for key, value in settings[worst[0]].items()),
    )


def _near(
    positions: Mapping[Place, int],
    bounds: Mapping[Place, tuple[int, int]],
    old_ends: Mapping[Place, int],
    settings: Mapping[str, Mapping[str, str]],
) -> Iterator[tuple[Place, int]]:
    for place, at in positions.items():
        first, end = bounds[place]
        if place in old_ends:
            old_end = end if old_ends[place] < 0 else old_ends[place]  # no record is younger
            if at < old_end:
                yield place, old_end - at
                continue
        has_bytes = int(settings.get(place[0], {}).get("retention.bytes", -1)) >= 0
        if has_bytes and first > 0 and at < end and at - first < NEAR_BYTES_SHARE * (end - first):
            yield place, end - at
