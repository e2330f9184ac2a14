"""Batches whose records the workers read themselves: which those are, and who reads what of them.

The engine plans what a batch reads, and writes it down. Where the workers take the ranges of that plan, the plan is not
run. Source: docs/explanation/spark.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from freshet._frozen import Frozen
from freshet.logstore.kafka.java_options import client_settings
from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.pipeline.config.model import PipelineConfig, SourceConfig, revealed
from freshet.pipeline.config.source_options import why_spark_reads
from freshet.pipeline.query.task.kafka_ranges import ISOLATION, DirectClient
from freshet.pipeline.query.wire.ranges import Ranges, record_count_of

RECORDS_MIN: Final = 20_000
"""Batches with fewer records are left to Spark, whose plan is made once: another one takes 0.1 s."""
LOOK_RECORDS: Final = 20_000
LOOK_RECORDS_MIN: Final = 64
"""Records of a first look in all, and in each of its pieces."""
_LOOK_PIECES: Final = 3
LOOK_SHARE: Final = 3
"""A batch is looked at first where it has so many times the records of the look."""
_TIMEOUT_MS: Final = 120_000
"""Spark's own, `kafkaConsumer.pollTimeoutMs`, where nothing else is said (`spark.network.timeout`)."""


class DirectReads(Frozen):
    """How the workers read the Kafka sources of a query; `takes_small`: they read small batches too."""

    clients: tuple[DirectClient, ...]
    takes_small: bool = False

    @classmethod
    def of(cls, config: PipelineConfig) -> DirectReads | None:
        """The reads of a pipeline file; None where Spark has to read one of its sources."""
        if any(map(_is_read_by_spark, config.sources)):
            return None
        takes_small = all(source.read == "python" for source in config.sources)
        return cls(tuple(direct_client(source) for source in config.sources), takes_small)

    def takes(self, ranges: Ranges) -> bool:
        """Whether the workers read a batch of these ranges; one in which nothing is to be read is the engine's."""
        if not any(ranges.values()):
            return False
        return self.takes_small or record_count_of(ranges) >= RECORDS_MIN

    def under(self, isolations: Mapping[int, str]) -> DirectReads:
        """The same with each source under its isolation of these."""
        clients = (client.under(isolations[index]) for index, client in enumerate(self.clients))
        return replace(self, clients=tuple(clients))

    def for_a_look(self) -> DirectReads:
        """For some records of each range, once."""
        return replace(self, clients=tuple(client.for_a_look() for client in self.clients))


def look_pieces(ranges: Sequence[OffsetRange]) -> tuple[OffsetRange, ...] | None:
    """The beginning, the middle and the end of each range; None where that is not far less than all of them."""
    count = max(LOOK_RECORDS_MIN, LOOK_RECORDS // max(1, _LOOK_PIECES * len(ranges)))
    whole = sum(each.end - each.start for each in ranges)
    if not whole or whole < LOOK_SHARE * count * _LOOK_PIECES * len(ranges):
        return None
    pieces = []
    for each in ranges:
        last = each.end - count
        if last < each.start + (_LOOK_PIECES - 1) * count:
            pieces.append(each)
            continue
        starts = (each.start, (each.start + last) // 2, last)
        pieces += [replace(each, start=start, end=start + count) for start in starts]
    return tuple(pieces)


def grouped(ranges: Sequence[OffsetRange], count: int) -> tuple[tuple[int, ...], ...]:
    """The numbers of the ranges in at most so many groups of about equally many records."""
    groups: list[list[int]] = [[] for _ in range(min(count, len(ranges)))]
    sizes = [0] * len(groups)
    for number in sorted(range(len(ranges)), key=lambda number: ranges[number].start - ranges[number].end):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(number)
        sizes[smallest] += ranges[number].end - ranges[number].start
    return tuple(tuple(sorted(group)) for group in groups)


def direct_client(source: SourceConfig) -> DirectClient:
    """How the workers reach the brokers of a source of Kafka."""
    options = revealed(source.kafka or {})
    lowered = {key.lower(): value for key, value in options.items()}
    settings = {**client_settings(options).values, ISOLATION: source.isolation}
    timeout_ms = float(lowered.get("kafkaconsumer.polltimeoutms", _TIMEOUT_MS))
    takes_losses = lowered.get("failondataloss", "true").lower() == "false"
    return DirectClient(tuple(sorted(settings.items())), timeout_ms / 1000, takes_losses)


def _is_read_by_spark(source: SourceConfig) -> bool:
    if source.kafka is None or source.read == "spark":
        return True
    return why_spark_reads(source.select, revealed(source.kafka)) is not None
