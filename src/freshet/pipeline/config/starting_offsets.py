"""Where a Kafka source begins, as its file says, and whether its topics can be read from there: a decision over values.

| option, the first that is given counts | is wrong where |
|---|---|
| startingTimestamp | no record of a partition is as late, unless startingOffsetsByTimestampStrategy is latest |
| startingOffsetsByTimestamp | the same; a partition is left out, or is not there |
| startingOffsets, as JSON | an offset lies beyond the end, or was deleted; a partition is left out, or is not there |

Spark finds all this when the query has begun, with messages of its own, and keeps the offsets in the checkpoint.
Offsets are half-open: the end is the next one. Spark writes -2 for the earliest and -1 for the latest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from freshet._frozen import Frozen

Place = tuple[str, int]
"""A topic and the number of one of its partitions."""

EARLIEST: Final = -2
_ALL_PARTITIONS: Final = "Spark wants all partitions: -2 is the earliest offset of one, -1 the latest"


class Start(Frozen):
    """What a file says: one option, and an offset or a time (ms) for each place; one time for all under no place."""

    option: str
    values: Mapping[Place, int]
    time_ms: int | None = None
    is_time: bool = False
    is_latest_without_match: bool = False

    def times(self, places: set[Place]) -> dict[Place, int]:
        """The times that are to be looked up, of places that are there."""
        if self.time_ms is not None:
            return dict.fromkeys(places, self.time_ms)
        return {place: time_ms for place, time_ms in self.values.items() if place in places} if self.is_time else {}


def start_of(options: Mapping[str, str]) -> Start | None:
    """Where a source begins; None where it says earliest, latest or nothing."""
    given = {key.lower(): (key, value) for key, value in options.items() if value}
    strategy = given.get("startingoffsetsbytimestampstrategy", ("", "error"))[1].lower()
    is_latest = strategy == "latest"
    if "startingtimestamp" in given:
        key, text = given["startingtimestamp"]
        return Start(key, {}, int(text), is_time=True, is_latest_without_match=is_latest)
    if "startingoffsetsbytimestamp" in given:
        key, text = given["startingoffsetsbytimestamp"]
        return Start(key, places_of(text), is_time=True, is_latest_without_match=is_latest)
    key, text = given.get("startingoffsets", ("", "latest"))
    return None if text.strip().lower() in ("earliest", "latest") else Start(key, places_of(text))


def places_of(text: str) -> dict[Place, int]:
    """JSON such as {"topic": {"0": 23}}."""
    return {
        (topic, int(number)): value
        for topic, partitions in json.loads(text).items()
        for number, value in partitions.items()
    }


def start_problems(
    start: Start,
    bounds: Mapping[Place, tuple[int, int]],
    matches: Mapping[Place, int],
    *,
    takes_losses: bool,
) -> Iterator[str]:
    """What is wrong with a start. `bounds` are first offset and end of each partition that is read; `matches` the first
    offset that is as late as the time asked for, -1 where there is none; `takes_losses`: failOnDataLoss is false."""
    if start.time_ms is None:
        yield from _other_places(start, set(bounds))
    if start.is_time:
        late = sorted(place for place, offset in matches.items() if offset < 0)
        if late and not start.is_latest_without_match:
            yield (
                f"no record of {shown(late)} is as late as the time given; give an earlier one, or set "
                "startingOffsetsByTimestampStrategy: latest to begin at the end there"
            )
        return
    for place, offset in sorted(start.values.items()):
        if place not in bounds:
            continue
        first, end = bounds[place]
        if offset < EARLIEST:
            yield f"{offset} is no offset of {shown([place])}; write -2 for the earliest, -1 for the latest"
        elif offset > end:
            yield f"offset {offset} lies beyond the end of {shown([place])}, which has {range_text(first, end)}"
        elif 0 <= offset < first and not takes_losses:
            yield (
                f"offset {offset} of {shown([place])} was deleted; there are {range_text(first, end)}. Write -2 for "
                "the earliest"
            )


def assigned_problems(assigned: set[Place], there: set[Place]) -> Iterator[str]:
    """Partitions that a source is assigned and that its topics have not: Spark reads the others and says nothing."""
    gone = sorted(assigned - there)
    if gone:
        yield f"names {shown(gone)}, which {'is' if len(gone) == 1 else 'are'} not there"


def shown(places: list[Place]) -> str:
    """Places for people: `topic a partition 0, topic b partition 2`."""
    return ", ".join(f"topic {topic} partition {number}" for topic, number in places)


def _other_places(start: Start, read: set[Place]) -> Iterator[str]:
    left_out, others = sorted(read - start.values.keys()), sorted(start.values.keys() - read)
    topics = {topic for topic, _ in read}
    foreign = sorted({topic for topic, _ in others} - topics)
    gone = [place for place in others if place[0] in topics]
    if foreign:
        yield f"names topic {', '.join(foreign)}, which the source does not read ({', '.join(sorted(topics))})"
    if gone:
        yield f"names {shown(gone)}, which {'is' if len(gone) == 1 else 'are'} not there"
    if left_out:
        yield f"lacks {shown(left_out)}; {_ALL_PARTITIONS}"


def range_text(first: int, end: int) -> str:
    """The offsets that a partition has, for people."""
    return f"no records (its next offset is {end})" if first == end else f"offsets {first} to {end - 1}"
