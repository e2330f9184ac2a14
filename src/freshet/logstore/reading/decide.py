"""What a reader of the log shows and takes back: pure decisions over its state, records and snapshots.

| seen | then |
|---|---|
| record of a settled batch, of an older epoch or attempt, of another user, or seen before | passed over |
| record of a batch that may not be the next one | the snapshots must be looked at first (`Step.stops_at`) |
| record of the live attempt | its rows are shown |
| record of a later attempt | equal rows are silent; from the first difference on, what was shown is taken back |
| record that does not join on to the one before it | `LogLostError` |
| snapshot that settles a batch | what is shown becomes exactly what it names; everything else is taken back |

A writer begins a batch only after the commit before it has returned. So once a record of a batch was seen, the
snapshots of all batches before it are there: looking at them then, and not earlier, is enough to never show two
open batches.

The snapshot decides alone. The order of epochs and attempts says only what is shown early: the winner may be of an
older one, and lies in [settled, next offset) of its partition.

A reader of committed changes uses `settle` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from freshet.logstore.exceptions import LogLostError
from freshet.logstore.protocol.client import StoredRecord
from freshet.logstore.protocol.record import Attempt, RecordHeader, decode_header, user_hash
from freshet.logstore.reading.reader_state import OpenLane, ReaderState, Run, state_at
from freshet.storage.model.table_log import Lane, LogIncrement, LogProgress


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows to hand out: those of one attempt in one lane with sequences [first, end), which lie in [start, stop) of the
    partition of their bucket. `is_retracted`: last one first, with inverted kinds.
    """

    topic: str
    commit_user: str
    batch: int
    lane: Lane
    attempt: Attempt
    start_offset: int
    stop_offset: int
    first_sequence: int
    end_sequence: int
    is_retracted: bool = False
    row_hash: bytes | None = None
    """Where it is known: the hash that the last record of the range must have."""


class RowComparison(Protocol):
    """Compares rows that lie in the log."""

    def first_difference(self, old: RowRange, new: RowRange) -> int:
        """The first sequence at which the two differ; the end of both, which have the same sequences, if none does."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """The state after something was seen, and what to hand out, in order.

    `stops_at` is the batch of the first record that was not taken, because the snapshots must be looked at first.
    """

    state: ReaderState
    ranges: tuple[RowRange, ...] = ()
    stops_at: int | None = None


def show_records(
    state: ReaderState, partition: int, records: Iterable[StoredRecord], next_offset: int, rows: RowComparison
) -> Step:
    """Takes records of one partition, in speculative mode."""
    lanes = dict(state.lanes)
    epoch, open_batch, user = state.epoch, state.open_batch, user_hash(state.commit_user)
    ranges: list[RowRange] = []
    stops_at: int | None = None
    for record in records:
        if record.header is None or record.offset < state.positions[partition]:
            continue
        header = decode_header(record.header)
        if header.user_hash != user or header.batch <= state.batch or header.attempt.epoch < epoch:
            continue
        if open_batch is None and header.batch == state.batch + 1:
            open_batch = header.batch
        if open_batch is None or header.batch > open_batch:
            stops_at, next_offset = header.batch, record.offset
            break
        if header.batch < open_batch:
            continue
        epoch = header.attempt.epoch
        now = replace(state, open_batch=open_batch)
        if header.lane not in lanes and header.first_sequence > 0:
            continue  # its beginning was not seen: it shows when it is settled
        lane, shown = _taken(now, lanes.get(header.lane), header, record.offset, rows)
        lanes[header.lane] = lane
        for each in shown:
            _add(ranges, each)
    positions = {**state.positions, partition: max(next_offset, state.positions[partition])}
    after = replace(state, epoch=epoch, open_batch=open_batch, lanes=lanes, positions=positions)
    return Step(after, tuple(ranges), stops_at)


def _add(ranges: list[RowRange], wanted: RowRange) -> None:
    """Rows that go on where the last range of their lane ends are read together with it."""
    before = ranges[-1] if ranges else None
    if (
        before is not None
        and not (before.is_retracted or wanted.is_retracted)
        and (before.lane, before.attempt, before.end_sequence) == (wanted.lane, wanted.attempt, wanted.first_sequence)
    ):
        ranges[-1] = replace(before, stop_offset=wanted.stop_offset, end_sequence=wanted.end_sequence)
    else:
        ranges.append(wanted)


def opened(state: ReaderState, batch: int) -> ReaderState:
    """After the snapshots were looked at: the batch whose record stopped the reader may be shown, unless it is settled
    or an earlier one is open."""
    may_open = state.open_batch is None and batch > state.batch
    return replace(state, open_batch=batch) if may_open else state


def is_settling(state: ReaderState, progress: LogProgress | None) -> bool:
    """True where a snapshot says more of the log than this reader has settled."""
    if progress is None:
        return False
    return progress.generation != state.generation or progress.batch > state.batch


def settle(state: ReaderState, snapshot_id: int, progress: LogProgress, rows: RowComparison) -> Step:
    """What is shown becomes what the snapshot names."""
    identity = progress.identity
    ranges: list[RowRange] = []
    if progress.generation != state.generation or state.open_batch != progress.batch:
        # Another log; or the open batch came to nothing (its compaction was lost), or was begun too early by a writer
        # that a zombie overtook: nothing of it counts, and it may be shown again when it comes again.
        for lane, each in state.lanes.items():
            ranges += _retraction(state, lane, each.shown, 0)
        state = replace(state, lanes={}, open_batch=None, positions=state.settled)
    if progress.generation != state.generation:
        state = replace(
            state,
            topic=identity.topic,
            topic_id=identity.topic_id,
            commit_user=identity.commit_user,
            generation=progress.generation,
            epoch=-1,
            settled=identity.start,
            positions=identity.start,
        )
    now = replace(state, open_batch=progress.batch)
    for lane in sorted({*state.lanes, *progress.won}):
        ranges += _settled(now, lane, state.lanes.get(lane), progress.won.get(lane), rows)
    behind = progress.next_offsets
    after = replace(
        state,
        snapshot_id=snapshot_id,
        batch=progress.batch,
        settled=behind,
        positions={number: max(offset, state.positions.get(number, offset)) for number, offset in behind.items()},
        open_batch=None,
        lanes={},
    )
    return Step(after, tuple(ranges))


def shown_between(before: ReaderState, after: ReaderState, rows: RowComparison) -> list[RowRange]:
    """What leads from what one state shows to what the other shows, where no snapshot that settles lies between."""
    ranges: list[RowRange] = []
    for lane, each in sorted(after.lanes.items()):
        shown, now = before.lanes.get(lane), each.shown
        if shown is None:
            ranges += _shown(after, lane, now, 0, now.first_offset)
        elif shown.shown.attempt == now.attempt:
            ranges += _shown(after, lane, now, shown.shown.row_count, shown.shown.end_offset)
        else:
            both = min(shown.shown.row_count, now.row_count)
            same = _same(after, lane, shown.shown, now, 0, both, rows)
            ranges += _retraction(after, lane, shown.shown, same)
            ranges += _shown(after, lane, now, same, now.first_offset)
    return ranges


def _taken(
    state: ReaderState, lane: OpenLane | None, header: RecordHeader, offset: int, rows: RowComparison
) -> tuple[OpenLane, list[RowRange]]:
    """A lane of the open batch with one more record, and what that shows."""
    if lane is None:
        lane = OpenLane(Run(header.attempt, offset, offset))
    if header.attempt < lane.latest.attempt:
        return lane, []
    if header.attempt > lane.latest.attempt:
        lane = OpenLane(lane.shown, Run(header.attempt, offset, offset))
    before = lane.latest
    if header.end_sequence <= before.row_count:
        return lane, []
    if header.first_sequence != before.row_count:
        raise LogLostError(
            f"topic {state.topic} partition {header.lane[1]}: at offset {offset} the rows from {header.first_sequence} "
            f"on of batch {header.batch} follow row {before.row_count} of the same attempt: records between are "
            "missing. Begin anew from a snapshot (scan_mode='latest-full')"
        )
    latest = before.extended(header, offset)
    if lane.matched is None:
        return OpenLane(latest), _shown(state, header.lane, latest, before.row_count, before.end_offset)
    return _compared(state, header.lane, lane.shown, before.row_count, latest, rows)


def _compared(
    state: ReaderState, lane: Lane, shown: Run, equal_count: int, latest: Run, rows: RowComparison
) -> tuple[OpenLane, list[RowRange]]:
    """A later attempt takes the place of what is shown, once it differs or has come as far."""
    both = min(shown.row_count, latest.row_count)
    same = _same(state, lane, shown, latest, equal_count, both, rows)
    if same == both and latest.row_count < shown.row_count:
        return OpenLane(shown, latest), []
    ranges = _retraction(state, lane, shown, same)
    return OpenLane(latest), [*ranges, *_shown(state, lane, latest, same, latest.first_offset)]


def _settled(
    state: ReaderState, lane: Lane, open_lane: OpenLane | None, won: LogIncrement | None, rows: RowComparison
) -> list[RowRange]:
    """What makes the rows shown of a lane those of the winner."""
    shown = None if open_lane is None else open_lane.shown
    if won is None:
        return [] if shown is None else _retraction(state, lane, shown, 0)
    winner = Run(
        Attempt(won.epoch, won.attempt),
        state.settled.get(lane[1], 0),
        won.next_offset,
        won.row_count,
        bytes.fromhex(won.row_hash),
    )
    if shown is None:
        return _shown(state, lane, winner, 0, winner.first_offset, is_whole=True)
    if shown.attempt == winner.attempt:
        if shown.row_count > winner.row_count or (
            shown.row_count == winner.row_count and shown.row_hash != winner.row_hash
        ):
            raise LogLostError(
                f"topic {state.topic} partition {lane[1]}: batch {state.open_batch} has {shown.row_count} rows in the "
                f"log, the snapshot says {winner.row_count}, or others; the log and the table differ. Begin anew from "
                "a snapshot (scan_mode='latest-full')"
            )
        return _shown(state, lane, winner, shown.row_count, shown.end_offset, is_whole=True)
    both = min(shown.row_count, winner.row_count)
    same = _same(state, lane, shown, winner, 0, both, rows)
    ranges = _retraction(state, lane, shown, same)
    return [*ranges, *_shown(state, lane, winner, same, winner.first_offset, is_whole=True)]


def _same(state: ReaderState, lane: Lane, old: Run, new: Run, first: int, end: int, rows: RowComparison) -> int:
    """How many rows, of the first `end`, are equal in both; the first `first` are known to be."""
    if first >= end:
        return end
    if old.row_count == new.row_count == end and old.row_hash == new.row_hash:
        return end
    pair = [_range(state, lane, run, first, end, run.first_offset) for run in (old, new)]
    return rows.first_difference(*pair)


def _shown(
    state: ReaderState, lane: Lane, run: Run, first: int, start_offset: int, *, is_whole: bool = False
) -> list[RowRange]:
    if first >= run.row_count:
        return []
    found = _range(state, lane, run, first, run.row_count, start_offset)
    return [replace(found, row_hash=run.row_hash)] if is_whole else [found]


def _retraction(state: ReaderState, lane: Lane, run: Run, first: int) -> list[RowRange]:
    if first >= run.row_count:
        return []
    return [replace(_range(state, lane, run, first, run.row_count, run.first_offset), is_retracted=True)]


def _range(state: ReaderState, lane: Lane, run: Run, first: int, end: int, start_offset: int) -> RowRange:
    assert state.open_batch is not None
    return RowRange(
        state.topic, state.commit_user, state.open_batch, lane, run.attempt, start_offset, run.end_offset, first, end
    )


def taken_back(state: ReaderState, ends: Mapping[int, int]) -> Step:
    """Everything that is open is taken back. Records before `ends` are shown only by the snapshot that settles them:
    they were made upon rows that have changed since, or the files have told them already, where the compaction of
    their batch was lost and somebody else's came."""
    ranges = [each for lane, kept in state.lanes.items() for each in _retraction(state, lane, kept.shown, 0)]
    positions = {number: max(offset, ends.get(number, offset)) for number, offset in state.positions.items()}
    return Step(replace(state, lanes={}, open_batch=None, positions=positions), tuple(ranges))


def passed_over(state: ReaderState, snapshot_id: int, progress: LogProgress) -> ReaderState:
    """The state of a reader that has the changes up to a snapshot from elsewhere; nothing may be open."""
    assert not state.lanes
    after = state_at(snapshot_id, progress)
    return replace(after, epoch=state.epoch) if progress.generation == state.generation else after


def headroom(state: ReaderState, first_offsets: Mapping[int, int]) -> dict[int, int]:
    """By partition: how many offsets retention may still take before it takes what this reader has not settled."""
    return {
        number: offset - first_offsets[number] for number, offset in state.settled.items() if number in first_offsets
    }
