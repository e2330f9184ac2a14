"""Ranges of offsets that somebody plans and somebody else reads; values, without a client of Kafka."""

from __future__ import annotations

from dataclasses import dataclass

from freshet._frozen import Frozen


class OffsetRange(Frozen):
    """Offsets of a partition, from `start` up to and without `end`."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"topic {self.topic} partition {self.partition} offsets {self.start} to {self.end}"


@dataclass(slots=True)
class RangeProgress:
    """How far the reading of a range is; filled in as it goes on."""

    reached: int
    passed_over: int = 0
    """Offsets that were not in Kafka any more."""
    ended_at: int | None = None
    """The end of the partition, where one was seen."""
