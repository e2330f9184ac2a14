"""What a source has to read, asked before its query starts: how many Kafka partitions, how large their records.

What a checkpoint's last finished batch has read does not count. A batch that was planned and not finished, for example
because memory did not suffice, is among what is looked at: it comes again, in smaller pieces.
"""

from __future__ import annotations

import json
from typing import Final

from freshet._frozen import Frozen
from freshet.logstore.kafka.look import look_at_records
from freshet.logstore.kafka.record_sizes import NOTHING_SEEN, RecordSizes
from freshet.logstore.protocol.client import TopicPartition
from freshet.pipeline.checks.kafka_reach import brokers_of, partition_counts
from freshet.pipeline.config.model import SourceConfig
from freshet.pipeline.identity.checkpoint_folder import CheckpointPlace
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
