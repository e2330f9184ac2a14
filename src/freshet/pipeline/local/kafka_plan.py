"""What a batch of Kafka reads, as Spark's source plans it: functions of offsets alone.

| option | says |
|---|---|
| maxOffsetsPerTrigger | how much a batch has; each partition gives its share of what is there |
| minOffsetsPerTrigger, maxTriggerDelay | how much is to be there, unless so much time has gone by |
| minPartitions, maxRecordsPerPartition | into how many ranges it is cut, and how long they are |
| failOnDataLoss | whether a batch may begin with offsets that are gone, or end before its beginning |

Source: Spark's `KafkaMicroBatchStream`, `KafkaOffsetReaderAdmin`, `KafkaOffsetRangeCalculator`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from freshet._frozen import Frozen
from freshet.logstore.exceptions import LOST
from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.pipeline.config.starting_offsets import Place, shown

Offsets = Mapping[Place, int]

_UNIT_MS: Final[Mapping[str, float]] = {
    "us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "": 1,
}  # fmt: skip


class KafkaLimits(Frozen):
    """How large the batches of a source are, and when they begin."""

    most: int | None = None
    least: int | None = None
    delay_ms: int = 900_000
    ranges_min: int | None = None
    range_max: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> KafkaLimits:
        """What options say whose names are in small letters; their values are checked already."""
        numbers = (
            int(options[key]) if options.get(key) else None
            for key in ("maxoffsetspertrigger", "minoffsetspertrigger", "minpartitions", "maxrecordsperpartition")
        )
        most, least, ranges_min, range_max = numbers
        delay_ms = _milliseconds(options.get("maxtriggerdelay") or "15m")
        return cls(most, least, delay_ms, ranges_min, range_max)


def is_too_little(least: int, start: Offsets, ends: Offsets) -> bool:
    """Whether fewer records than `least` wait between these offsets."""
    return sum(end - start.get(place, 0) for place, end in ends.items()) < least


def limited(most: int, start: Offsets, ends: Offsets, firsts: Offsets) -> dict[Place, int]:
    """The ends of a batch of about `most` records, in proportion to what each partition has; one that has anything
    gives at least one. `firsts` are the first offsets of partitions that `start` has not."""
    begins = {**firsts, **start}
    sizes = {place: end - begins[place] for place, end in ends.items() if place in begins and end > begins[place]}
    total = float(sum(sizes.values()))
    found = dict(ends)
    for place, size in sizes.items():
        share = most * (size / total)
        found[place] = min(ends[place], begins[place] + (math.ceil(share) if share < 1 else math.floor(share)))
    return found


def losses(start: Offsets, ends: Offsets, firsts: Offsets) -> Iterator[str]:
    """What is gone between the end of a batch and the plan of the next; `firsts` as in `limited`."""
    new = sorted(ends.keys() - start.keys())
    if gone := [place for place in new if place not in firsts]:
        yield f"{shown(gone)} came and {_is_gone(gone)} again: {LOST}"
    for place in new:
        if firsts.get(place, 0):
            yield f"{shown([place])} is new, and its first offset is {firsts[place]}, not 0: {LOST}"
    if gone := sorted(start.keys() - ends.keys()):
        yield f"{shown(gone)} {_is_gone(gone)}: {LOST}"
    for place in sorted(start.keys() & ends.keys()):
        if ends[place] < start[place]:
            yield f"{shown([place])} was read up to offset {start[place]} and ends at {ends[place]}: {LOST}"


def planned_ranges(start: Offsets, ends: Offsets, firsts: Offsets, limits: KafkaLimits) -> list[OffsetRange]:
    """What is read between two offsets, in the order of topics and partitions."""
    begins = {**firsts, **start}
    found = [OffsetRange(*place, begins[place], ends[place]) for place in sorted(ends) if place in begins]
    return cut([each for each in found if _size(each) > 0], limits.ranges_min, limits.range_max)


def cut(ranges: Sequence[OffsetRange], ranges_min: int | None, range_max: int | None) -> list[OffsetRange]:
    """The ranges, cut where one is longer than `range_max` or all of them are fewer than `ranges_min`."""
    found = list(ranges)
    if range_max is not None:
        found = [part for each in found for part in _parts(each, -(-_size(each) // range_max))]
    if ranges_min is None or not len(found) < ranges_min:
        return found
    total = sum(map(_size, found))
    whole = {each for each in found if _share(_size(each), total, ranges_min) == 1}
    cut_total = total - sum(map(_size, whole))
    cut_min = max(ranges_min - len(whole), 1)
    return [
        part
        for each in found
        for part in ([each] if each in whole else _parts(each, _share(_size(each), cut_total, cut_min)))
    ]


def _size(each: OffsetRange) -> int:
    return each.end - each.start


def _share(size: int, total: int, count: int) -> int:
    return max(math.floor(size / total * count + 0.5), 1)


def _parts(each: OffsetRange, count: int) -> Iterator[OffsetRange]:
    """A range in so many parts, the last ones longer by what is left over."""
    start = each.start
    for left in range(count, 0, -1):
        end = start + (each.end - start) // left
        if end > start:
            yield replace(each, start=start, end=end)
        start = end


def _is_gone(places: Sequence[Place]) -> str:
    return "is gone" if len(places) == 1 else "are gone"


def _milliseconds(text: str) -> int:
    match = re.fullmatch(r"(-?\d+)\s*([a-z]*)", text.strip().lower())
    assert match is not None, text
    return int(int(match[1]) * _UNIT_MS[match[2]])
