"""The topic that a reader follows: what was fetched of it, how it waits for more, and whether it is still the one that
the snapshots of the table name.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from freshet.logstore.exceptions import LogConfigError, LogTruncatedError, LogUnavailableError
from freshet.logstore.protocol.client import Fetched, LogClient, StoredRecord, TopicFacts, TopicPartition
from freshet.logstore.protocol.control import control_topic, end_of_control
from freshet.logstore.protocol.record import decode_header
from freshet.logstore.protocol.topic import existing_topic
from freshet.logstore.reading.reader_state import ReaderState
from freshet.storage.logs.log_systems import TableHistory
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.table_log import LogProgress, log_of

RANGE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of one partition; a single fetch may have more."""

BYTES_MAX: Final = 128 * 1024 * 1024
"""Bytes of all partitions; those that came longest ago go first."""

_RECORD_BYTES: Final = 200
"""What a record takes besides its header and value."""

_TOPIC_LOOK_S: Final = 10.0
"""A reader that has waited so long for more looks whether the topic is still there: a consumer waits for one that was
deleted for ever, without a word."""


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
        self.has_heard = False
        """Whether something came in the last wait: rows, or a record of the control topic."""

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
        self.has_heard, self._is_woken = self._is_woken, False
        if self.has_heard:
            return False
        has_rows = self._fetch_ahead(positions, wait_s)
        self.has_heard, self._is_woken = has_rows or self._is_woken, False
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


@dataclass(slots=True)
class _OffsetRange:
    """Everything that lies in [start, end)."""

    start: int
    end: int
    offsets: list[int] = field(default_factory=list)
    records: list[StoredRecord] = field(default_factory=list)
    size_bytes: int = 0


class RecentRecords:
    """The records of one reader that were fetched last, by partition: one range of offsets each, so that rows of
    several buckets that lie in one range, and rows that are shown as they come, are fetched once.
    """

    def __init__(self) -> None:
        self._ranges: dict[TopicPartition, _OffsetRange] = {}
        self._size_bytes = 0

    def add(self, topic_partition: TopicPartition, position: int, fetched: Fetched) -> None:
        """What was fetched from a position on: joined to what lies before it, unless that becomes too much."""
        size_bytes = sum(_size_bytes(record) for record in fetched.records)
        known = self._ranges.pop(topic_partition, None)
        self._size_bytes -= 0 if known is None else known.size_bytes
        if known is None or known.end != position or known.size_bytes + size_bytes > RANGE_BYTES_MAX:
            known = _OffsetRange(position, position)
        known.end = fetched.next_offset
        known.size_bytes += size_bytes
        self._size_bytes += known.size_bytes
        while self._size_bytes > BYTES_MAX and self._ranges:
            self._size_bytes -= self._ranges.pop(next(iter(self._ranges))).size_bytes
        self._ranges[topic_partition] = known
        known.records += fetched.records
        known.offsets += [record.offset for record in fetched.records]

    def at(self, topic_partition: TopicPartition, position: int) -> Fetched | None:
        """What is known from a position on; None where that is nothing."""
        known = self._ranges.get(topic_partition)
        if known is None or not known.start <= position < known.end:
            return None
        return Fetched(tuple(known.records[bisect_left(known.offsets, position) :]), known.end)


def _size_bytes(record: StoredRecord) -> int:
    """The bytes of a record; of JSON deletes the header is all there is."""
    return _RECORD_BYTES + len(record.value) + len(record.header or b"")


class LogWaiting:
    """The wait of one reader that has handed out everything, for data and control records together; it is called
    between two looks at the snapshots.
    """

    def __init__(
        self,
        table: str,
        history: TableHistory,
        client: LogClient,
        tail: LogTail,
        is_speculative: bool,
        falls_back: bool,
    ) -> None:
        self._table = table
        self._history = history
        self._client = client
        self._tail = tail
        self._is_speculative = is_speculative
        self._falls_back = falls_back
        self._stuck_at: ReaderState | None = None
        """Where rows came that cannot be shown: those of a batch beyond the open one."""
        self._unseen_s = 0.0
        self._was_missing = False

    def wait(self, state: ReaderState, seconds: float) -> bool:
        """Waits so long, or until something is logged; True where rows came that may show."""
        if not state.has_log or state == self._stuck_at:
            self._history.wait(seconds)
            self._look_at_topic(state, seconds)
            return False
        has_rows = self._has_come(state, seconds)
        self._stuck_at = state if has_rows else None
        if self._tail.has_heard:  # a question takes 24 ms, while rows wait
            self._unseen_s = 0.0
        else:
            self._look_at_topic(state, seconds)
        return has_rows

    def _has_come(self, state: ReaderState, seconds: float) -> bool:
        positions = state.positions if self._is_speculative else {}
        wanted = {TopicPartition(state.topic, number): offset for number, offset in positions.items()}
        try:
            return self._tail.wait(state.topic, wanted, seconds)
        except LogTruncatedError:
            if not self._falls_back:
                raise
            self._history.wait(seconds)  # what is gone comes from files, when its snapshot is there
            return False

    def _look_at_topic(self, state: ReaderState, waited_s: float) -> None:
        """Raises `LogConfigError` when a reader that waits has found its topic gone twice, or to be another one."""
        self._unseen_s += waited_s
        if not state.has_log or self._unseen_s < _TOPIC_LOOK_S:
            return
        self._unseen_s = 0.0
        try:
            is_missing = self._client.topic(state.topic) is None
            if not is_missing or self._was_missing:
                checked_topic(self._client, state, table=self._table)
        except LogUnavailableError:
            return  # brokers that are away are waited for
        self._was_missing = is_missing  # one that has just started may not know its topics yet


def progress_at(history: TableHistory, snapshot: Snapshot) -> LogProgress | None:
    """How far the log has come with a snapshot, as the newest one up to it says: other libraries drop properties.

    None where no snapshot that is left says it: the next one that was logged does.
    """
    found: Snapshot | None = snapshot
    while found is not None:
        progress = log_of(found.properties, found.id)
        if progress is not None or found.id == 1:
            return progress
        found = history.find_left(found.id - 1)
    return None


def checked_topic(client: LogClient, state: ReaderState, *, table: str) -> TopicFacts:
    """The topic that a reader is in; `LogConfigError` where it is gone, or is another one of its name."""
    facts = existing_topic(client, state.topic, len(state.stable_offsets), table=table)
    if facts.topic_id != state.topic_id:
        raise LogConfigError(
            f"table {table}: topic {state.topic} is not the one that the snapshots name (id {state.topic_id}, it has "
            f"{facts.topic_id}): it was deleted and created again. Its offsets mean nothing; the writer must begin a "
            "new log (kafka.topic)",
            table=table,
            option="kafka.topic",
        )
    return facts


def check_bounds(client: LogClient, state: ReaderState, *, table: str) -> None:
    """Raises `LogTruncatedError` where retention has taken what comes next."""
    bounds = client.bounds(state.topic)
    for number, offset in state.stable_offsets.items():
        if not bounds[number].first <= offset <= bounds[number].end:
            raise LogTruncatedError(
                f"table {table}: topic {state.topic} partition {number} has offsets {bounds[number].first} to "
                f"{bounds[number].end}, and the log after snapshot {state.snapshot_id} begins at {offset}. Begin at a "
                "newer snapshot (scan_mode='latest-full'), read on from the files (log.on-truncated=fall-back), and "
                "raise retention.ms of the topic",
                table=table,
            )
