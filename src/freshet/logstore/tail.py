"""Records as they come, for a reader that may take fewer than there are: what was fetched is not fetched again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from freshet.logstore.client import Fetched, LogClient, TopicPartition
from freshet.logstore.recent_records import RecentRecords
from freshet.logstore.record import decode_header


@dataclass(frozen=True, slots=True)
class LogTail:
    """Belongs to one reader; `recent` is shared with whoever reads rows."""

    client: LogClient
    recent: RecentRecords

    def fetch(self, positions: Mapping[TopicPartition, int], wait_s: float) -> Mapping[TopicPartition, Fetched]:
        """What lies from these positions on; waits so long where that is nothing."""
        known = {
            topic_partition: self.recent.at(topic_partition, position)
            for topic_partition, position in positions.items()
        }
        if not positions or all(each is not None for each in known.values()):
            return {topic_partition: each for topic_partition, each in known.items() if each is not None}
        ahead = {
            topic_partition: positions[topic_partition] if each is None else each.next_offset
            for topic_partition, each in known.items()
        }
        is_empty = all(each is None for each in known.values())
        for topic_partition, fetched in self.client.fetch(ahead, wait_s=wait_s if is_empty else 0.0).items():
            self.recent.add(topic_partition, ahead[topic_partition], fetched)
        found = {
            topic_partition: self.recent.at(topic_partition, position)
            for topic_partition, position in positions.items()
        }
        return {topic_partition: each for topic_partition, each in found.items() if each is not None}


def first_of(fetched: Fetched, position: int, *, offsets: int | None, rows: int | None, stop: int | None) -> Fetched:
    """The first so many offsets, or so many rows, or what lies before `stop`; one record at least."""
    end = fetched.next_offset if stop is None else min(stop, fetched.next_offset)
    if offsets is not None:
        first = fetched.records[0].offset + 1 if fetched.records else position
        end = min(end, max(position + offsets, first))
    records = [record for record in fetched.records if record.offset < end]
    if rows is None:
        return Fetched(tuple(records), end)
    count = 0
    for index, record in enumerate(records):
        count += 0 if record.header is None else decode_header(record.header).row_count
        if count > rows and index:
            return Fetched(tuple(records[:index]), record.offset)
    return Fetched(tuple(records), end)
