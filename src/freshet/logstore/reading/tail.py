"""Records as they come, for a reader that may take fewer than there are: what was fetched is not fetched again."""

from __future__ import annotations

from collections.abc import Mapping

from freshet.logstore.protocol.client import Fetched, LogClient, TopicPartition
from freshet.logstore.protocol.control import control_topic, end_of_control
from freshet.logstore.protocol.record import decode_header
from freshet.logstore.reading.recent_records import RecentRecords


class LogTail:
    """Belongs to one reader; `recent` is shared with the reader of rows.

    A reader that waits follows the control topic as well, in all it fetches: a client that is asked for other
    partitions assigns its consumer again.
    """

    def __init__(self, client: LogClient, recent: RecentRecords) -> None:
        self._client = client
        self._recent = recent
        self._control: dict[TopicPartition, int] = {}
        """What is read next of the control topic, once the reader has waited."""
        self._is_woken = False

    def fetch(self, positions: Mapping[TopicPartition, int], wait_s: float) -> Mapping[TopicPartition, Fetched]:
        """What lies from these positions on; waits so long where that is nothing."""
        known = self._known(positions)
        if len(known) == len(positions):
            return known
        self._fetch_ahead(positions, 0.0 if known else wait_s)
        return self._known(positions)

    def wait(self, topic: str, positions: Mapping[TopicPartition, int], wait_s: float) -> bool:
        """Waits so long for records behind those that are known, or of the control topic; True where rows came."""
        control = control_topic(topic)
        if control not in self._control:
            self._control = {control: end_of_control(self._client, topic)}
        is_woken, self._is_woken = self._is_woken, False
        if is_woken:
            return False
        has_rows = self._fetch_ahead(positions, wait_s)
        self._is_woken = False
        return has_rows

    def _known(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, Fetched]:
        known = {each: self._recent.at(each, position) for each, position in positions.items()}
        return {each: fetched for each, fetched in known.items() if fetched is not None}

    def _fetch_ahead(self, positions: Mapping[TopicPartition, int], wait_s: float) -> bool:
        ahead = {**positions, **{each: known.next_offset for each, known in self._known(positions).items()}}
        fetched = dict(self._client.fetch({**self._control, **ahead}, wait_s=wait_s))
        for control in self._control.keys() & fetched.keys():
            self._control[control] = fetched.pop(control).next_offset
            self._is_woken = True
        for topic_partition, each in fetched.items():
            self._recent.add(topic_partition, ahead[topic_partition], each)
        return bool(fetched)


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
