"""What each snapshot gives to a reader that plans in pieces: of its rows, or of its changes.

| the next snapshot | its pieces |
|---|---|
| makes a batch stable | by bucket: what makes the rows that are shown those that it names |
| changes rows and was not logged | what is open is retracted; its files (`log.on-lake-only`) |
| makes a batch stable whose records are gone, `log.on-truncated=fall-back` | its files |
| any other | none |

The same position gives the same pieces; snapshots and planned splits are kept until `forget`. Pieces are values
that travel: what one snapshot, or what was logged since, gives of one bucket.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from freshet._frozen import Frozen
from freshet.logstore.exceptions import LogLakeOnlyError, LogTruncatedError
from freshet.logstore.protocol.client import Fetched, LogClient, TopicPartition
from freshet.logstore.reading.decide import RowRange, after_files, apply_snapshot, makes_stable, retract_open
from freshet.logstore.reading.reader_state import LogPosition, ReaderState
from freshet.logstore.reading.rows import LogRows
from freshet.logstore.reading.tail import RecentRecords, checked_topic
from freshet.storage.logs.log_systems import LoggedTable, TableHistory
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.snapshot_walk import SnapshotStep, SnapshotWalk, StepSize, by_bucket
from freshet.storage.model.split import ChangeSplit
from freshet.storage.model.table_log import LogProgress, log_of
from freshet.storage.options.choices import OnLakeOnly, OnTruncated

_LOG: Final = logging.getLogger(__name__)

_GROUP_ROWS: Final = 50_000
"""Buckets with fewer changes are read by one task, up to so many rows."""

_CARRIED_BYTES_MAX: Final = 1024 * 1024
"""Records that the planning reader has fetched travel with their group, up to so many bytes."""


class LogPiece(Frozen):
    """Changes of one bucket, in their order; `snapshot_id` is None while their batch is open.

    `total_buckets` is the number of buckets of the table when they were logged.
    """

    bucket_id: BucketId
    ranges: tuple[RowRange, ...]
    snapshot_id: int | None
    total_buckets: int

    @property
    def partition(self) -> bytes:
        """The partition of the table."""
        return self.bucket_id[0]

    @property
    def bucket(self) -> int:
        """Which is the partition of the topic."""
        return self.bucket_id[1]

    @property
    def size(self) -> StepSize:
        """Rows, and the offsets they lie in."""
        rows = sum(row_count(each) for each in self.ranges)
        return StepSize(rows=rows, offsets=sum(each.stop_offset - each.start_offset for each in self.ranges))


Piece = LogPiece | ChangeSplit


class LogGroup(Frozen):
    """Pieces that are read one after the other, and records of theirs that are known already."""

    pieces: tuple[Piece, ...]
    carried: tuple[tuple[TopicPartition, int, Fetched], ...] = ()


def log_pieces(ranges: Sequence[RowRange], snapshot_id: int | None, *states: ReaderState) -> list[LogPiece]:
    """A piece for each bucket of each topic; the states know the topics."""
    counts = {state.topic: len(state.stable_offsets) for state in states}
    by_topic: dict[tuple[str, BucketId], list[RowRange]] = {}
    for each in ranges:
        by_topic.setdefault((each.topic, each.bucket_id), []).append(each)
    return [LogPiece(bucket, tuple(found), snapshot_id, counts[topic]) for (topic, bucket), found in by_topic.items()]


def grouped(pieces: Iterable[Piece], state_id: int | None) -> list[list[Piece]]:
    """Pieces by the group that reads them, as `by_bucket` says; small buckets together."""
    groups: list[list[Piece]] = []
    room = 0
    for found in by_bucket(pieces, state_id):
        rows = sum(piece.size.rows for piece in found)
        is_of_state = state_id is not None and found[0].snapshot_id == state_id
        if is_of_state or rows > room:
            groups.append([])
            room = 0 if is_of_state else _GROUP_ROWS
        groups[-1] += found
        room -= rows
    return groups


def carried(pieces: Iterable[Piece], recent: RecentRecords) -> tuple[tuple[TopicPartition, int, Fetched], ...]:
    """The records of some pieces, as far as they were fetched."""
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for piece in pieces:
        for wanted in piece.ranges if isinstance(piece, LogPiece) else ():
            topic_partition = TopicPartition(wanted.topic, wanted.bucket_id[1])
            first, stop = ranges.get(topic_partition, (wanted.start_offset, wanted.stop_offset))
            ranges[topic_partition] = min(first, wanted.start_offset), max(stop, wanted.stop_offset)
    found = []
    size_bytes = 0
    for topic_partition, (first, stop) in ranges.items():
        known = recent.at(topic_partition, first)
        if known is None or known.next_offset < stop:
            continue
        records = tuple(record for record in known.records if record.offset < stop)
        size_bytes += sum(len(record.value) for record in records)
        if size_bytes > _CARRIED_BYTES_MAX:
            break
        found.append((topic_partition, first, Fetched(records, stop)))
    return tuple(found)


def row_count(wanted: RowRange) -> int:
    """Rows of a range."""
    return wanted.end_sequence - wanted.first_sequence


_Step = SnapshotStep[LogPosition, Piece]


class SnapshotSteps(SnapshotWalk[LogPosition, Piece]):
    """The steps of one reader. `client` and `rows` connect when they are first called."""

    def __init__(
        self,
        table: LoggedTable,
        history: TableHistory,
        client: Callable[[], LogClient],
        rows: Callable[[], LogRows],
        *,
        is_speculative: bool,
    ) -> None:
        super().__init__(table.name)
        self._history = history
        self._client = client
        self._rows = rows
        self._is_speculative = is_speculative
        self._on_lake_only = table.options.log_on_lake_only
        self.falls_back = table.options.log_on_truncated is OnTruncated.FALL_BACK
        self._checked: set[str] = set()
        self._snapshots: dict[int, Snapshot] = {}
        self._splits: dict[tuple[int, bool], tuple[ChangeSplit, ...]] = {}
        """Planned splits, by snapshot and whether they are its rows or its changes."""

    def forget(self, snapshot_id: int) -> None:
        """Lets go of snapshots before this one."""
        self._splits = {key: splits for key, splits in self._splits.items() if key[0] >= snapshot_id}
        self._snapshots = {key: snapshot for key, snapshot in self._snapshots.items() if key >= snapshot_id}

    def planned(self, position: LogPosition) -> _Step | None:
        """What the snapshot after a position gives, or the one whose rows come next; None while it is not there."""
        return self._state_step(position) if position.is_state else self._change_step(position)

    def within(self, position: LogPosition, step: _Step, taken: int) -> LogPosition:
        """After the first pieces of a snapshot."""
        return replace(position, taken=taken, of=len(step.pieces), of_ms=step.time_ms, from_files=step.from_files)

    def left_text(self) -> str:
        """What is left of the history; raises where the table was dropped."""
        return self._history.left_text()

    def _state_step(self, position: LogPosition) -> _Step:
        snapshot_id = position.state.snapshot_id
        if (snapshot_id, True) not in self._splits:
            self._snapshots[snapshot_id] = self._history.first_rows(snapshot_id)
        snapshot = self._snapshots[snapshot_id]
        after = LogPosition(position.state, before_ms=snapshot.time_ms)
        return SnapshotStep(self._planned(snapshot, self._history.state_splits, is_state=True), after)

    def _change_step(self, position: LogPosition) -> _Step | None:
        state = position.state
        is_known = state.snapshot_id + 1 in self._snapshots
        snapshot = self._snapshot(state.snapshot_id + 1)
        if not is_known and not self._history.is_same(state.snapshot_id, position.before_ms):
            raise self.other_history(state.snapshot_id, "has read")
        if snapshot is None:
            return None
        if not is_known:
            is_after_state = (state.snapshot_id, True) in self._splits
            self._history.check_goes_on(state.snapshot_id, snapshot, is_after_state=is_after_state)
        progress = log_of(snapshot.properties, snapshot.id)
        if position.from_files:
            return self._from_files(position, snapshot, progress)
        if progress is not None and makes_stable(state, progress):
            return self._stable_batch(position, snapshot, progress)
        if self._history.has_changes(snapshot):
            return self._lake_only(position, snapshot)
        return SnapshotStep((), _moved(replace(state, snapshot_id=snapshot.id), snapshot))

    def _stable_batch(self, position: LogPosition, snapshot: Snapshot, progress: LogProgress) -> _Step:
        step = apply_snapshot(position.state, snapshot.id, progress, self._rows())
        self.check_topic(step.state)
        if step.ranges and self.falls_back and not self._reaches(step.ranges):
            if position.state.open_buckets or position.taken:
                raise LogTruncatedError(
                    f"table {self.table}: retention has taken records of topic {progress.identity.topic} that "
                    f"this reader has handed out in part, before snapshot {snapshot.id} named them: they cannot be "
                    "retracted. Begin at a newer snapshot with a new checkpoint, and raise retention.ms of the topic",
                    table=self.table,
                )
            return self._from_files(position, snapshot, progress)
        pieces = log_pieces(step.ranges, snapshot.id, position.state, step.state)
        return SnapshotStep(tuple(pieces), _moved(step.state, snapshot))

    def _from_files(self, position: LogPosition, snapshot: Snapshot, progress: LogProgress | None) -> _Step:
        pieces = self._planned(snapshot, self._history.change_splits, is_state=False)
        state = replace(position.state, snapshot_id=snapshot.id)
        if progress is not None:
            state = after_files(position.state, snapshot.id, progress)
        after = _moved(state, snapshot)
        if position.from_files and not state.has_log:  # the offsets of the log are not known yet
            after = replace(after, from_files=True)
        return SnapshotStep(pieces, after, from_files=True)

    def _lake_only(self, position: LogPosition, snapshot: Snapshot) -> _Step:
        if self._on_lake_only is OnLakeOnly.FAIL:
            raise lake_only_error(snapshot, table=self.table, begin="scan.mode=latest")
        step = retract_open(position.state, self._ends(position.state))
        pieces: tuple[Piece, ...] = tuple(log_pieces(step.ranges, snapshot.id, position.state))
        if self._on_lake_only is OnLakeOnly.APPLY:
            pieces += self._planned(snapshot, self._history.change_splits, is_state=False)
        return SnapshotStep(pieces, _moved(replace(step.state, snapshot_id=snapshot.id), snapshot))

    def _ends(self, state: ReaderState) -> Mapping[int, int]:
        """How far the log has come, for a reader that shows it before it is stable."""
        if not self._is_speculative or not state.has_log:
            return {}
        return {number: each.end for number, each in self._client().bounds(state.topic).items()}

    def _planned(
        self, snapshot: Snapshot, plan: Callable[[Snapshot], list[ChangeSplit]], *, is_state: bool
    ) -> tuple[ChangeSplit, ...]:
        key = (snapshot.id, is_state)
        if key not in self._splits:
            self._splits[key] = tuple(plan(snapshot))
        return self._splits[key]

    def _snapshot(self, snapshot_id: int) -> Snapshot | None:
        found = self._snapshots.get(snapshot_id)
        if found is None:
            found = self._history.find(snapshot_id)
            if found is not None:
                self._snapshots[snapshot_id] = found
        return found

    def _reaches(self, ranges: Sequence[RowRange]) -> bool:
        """Whether all records are still there; asked only where something else can be done."""
        topic = ranges[0].topic
        bounds = self._client().bounds(topic)
        return all(each.topic != topic or each.start_offset >= bounds[each.bucket_id[1]].first for each in ranges)

    def check_topic(self, state: ReaderState) -> None:
        """Once for each topic: raises `LogConfigError` for another one of its name."""
        if not state.has_log or state.topic_id in self._checked:
            return
        facts = checked_topic(self._client(), state, table=self.table)
        self._checked.add(state.topic_id)
        retention_ms = int(facts.settings.get("retention.ms", -1))
        if self._history.consumer_id is not None and not self.falls_back and retention_ms >= 0:
            _LOG.warning(
                "table %s: consumer %s keeps snapshots from expiry, not the records of topic %s, which its brokers "
                "delete after %d ms: a reader that pauses longer will fail. With log.on-truncated=fall-back it goes on "
                "with the files of these snapshots",
                self.table, self._history.consumer_id, state.topic, retention_ms,
            )  # fmt: skip


def _moved(state: ReaderState, snapshot: Snapshot) -> LogPosition:
    return LogPosition(state, before_ms=snapshot.time_ms)


def lake_only_error(snapshot: Snapshot, *, table: str, begin: str) -> LogLakeOnlyError:
    """For `log.on-lake-only=fail`; `begin` says how to begin after the snapshot."""
    return LogLakeOnlyError(
        f"table {table}: snapshot {snapshot.id} ({snapshot.commit_kind} by {snapshot.commit_user!r}) changes rows and "
        f"was not logged. Begin after it ({begin}), or set log.on-lake-only to apply, which reads such changes from "
        "their files, or skip",
        table=table,
        option="log.on-lake-only",
    )
