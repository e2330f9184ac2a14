"""Ranges of Kafka's offsets that the workers of a batch read, and what they are called in tallies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from freshet.logstore.kafka.offset_range import OffsetRange

Ranges = Mapping[int, Sequence[OffsetRange]]
"""What a batch reads of each Kafka source, by its index in the pipeline file."""


def range_name(source_index: int, number: int) -> str:
    """What a range is called in tallies."""
    return f"{source_index}/{number}"


def record_count_of(ranges: Ranges) -> int:
    """Offsets in all of the ranges."""
    return sum(max(0, each.end - each.start) for of in ranges.values() for each in of)
