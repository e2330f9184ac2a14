"""What a reader of the log shows and retracts: pure decisions over its state, records and snapshots.

| seen | then |
|---|---|
| record of a stable batch, of an older epoch or attempt, of another user, or seen before | skipped |
| record of a batch that may not be the next one | the snapshots must be looked at first (`Step.stops_at`) |
| record of the live attempt | its rows are shown |
| record of a later attempt | equal rows are silent; from the first difference on, what was shown is retracted |
| record that does not follow the one before it | `LogLostError` |
| snapshot that makes a batch stable | what is shown becomes exactly what it names; everything else is retracted |

A writer begins a batch only after the commit before it has returned. So once a record of a batch was seen, the
snapshots of all batches before it are there: looking at them then, and not earlier, is enough to never show two
open batches.

The snapshot decides alone. The order of epochs and attempts says only what is shown early: the winner may be of an
older one, and lies in [last stable offset, next offset) of its partition.

A reader of committed changes uses `apply_snapshot` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from freshet._frozen import Frozen
from freshet.logstore.exceptions import LogLostError
from freshet.logstore.protocol.client import StoredRecord
from freshet.logstore.protocol.record import Attempt, RecordHeader, decode_header, user_hash
from freshet.logstore.reading.reader_state import OpenBucket, ReaderState, Run, state_at
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.table_log import LogIncrement, LogProgress


class RowRange(Frozen):
    """Rows to hand out: those of one attempt in one bucket with sequences [first, end), which are in [start, stop) of
    the partition of that bucket. `is_retracted`: last one first, with inverted kinds.
    """

    topic: str
    commit_user: str
    batch: int
    bucket_id: BucketId
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


class Step(Frozen):
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
    open_buckets = dict(state.open_buckets)
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
        if header.bucket_id not in open_buckets and header.first_sequence > 0:
            continue  # its beginning was not seen: it is shown once the batch is stable
        open_bucket, shown = _taken(now, open_buckets.get(header.bucket_id), header, record.offset, rows)
        open_buckets[header.bucket_id] = open_bucket
        for each in shown:
            _add(ranges, each)
    positions = {**state.positions, partition: max(next_offset, state.positions[partition])}
    after = replace(state, epoch=epoch, open_batch=open_batch, open_buckets=open_buckets, positions=positions)
    return Step(after, tuple(ranges), stops_at)


def _add(ranges: list[RowRange], wanted: RowRange) -> None:
    """Rows that go on where the last range of their bucket ends are read together with it."""
    before = ranges[-1] if ranges else None
    if (
        before is not None
        and not (before.is_retracted or wanted.is_retracted)
        and (before.bucket_id, before.attempt, before.end_sequence)
        == (wanted.bucket_id, wanted.attempt, wanted.first_sequence)
    ):
        ranges[-1] = replace(before, stop_offset=wanted.stop_offset, end_sequence=wanted.end_sequence)
    else:
        ranges.append(wanted)


def opened(state: ReaderState, batch: int) -> ReaderState:
    """After the snapshots were looked at: the batch whose record stopped the reader may be shown, unless it is stable
    or an earlier one is open."""
    may_open = state.open_batch is None and batch > state.batch
    return replace(state, open_batch=batch) if may_open else state


def makes_stable(state: ReaderState, progress: LogProgress) -> bool:
    """True where a snapshot makes a batch stable that this reader does not know as stable."""
    return progress.generation != state.generation or progress.batch > state.batch


def apply_snapshot(state: ReaderState, snapshot_id: int, progress: LogProgress, rows: RowComparison) -> Step:
    """What is shown becomes what the snapshot names."""
    identity = progress.identity
    ranges: list[RowRange] = []
    if progress.generation != state.generation or state.open_batch != progress.batch:
        # Another log; or the open batch was dropped (its compaction was lost), or was begun too early by a writer that
        # a zombie overtook: nothing of it counts, and it is shown again if it is logged again.
        for bucket, each in state.open_buckets.items():
            ranges += _retraction(state, bucket, each.shown, 0)
        state = replace(state, open_buckets={}, open_batch=None, positions=state.stable_offsets)
    if progress.generation != state.generation:
        state = replace(
            state,
            topic=identity.topic,
            topic_id=identity.topic_id,
            commit_user=identity.commit_user,
            generation=progress.generation,
            epoch=-1,
            stable_offsets=identity.start,
            positions=identity.start,
        )
    now = replace(state, open_batch=progress.batch)
    for bucket in sorted({*state.open_buckets, *progress.won}):
        ranges += _to_winner(now, bucket, state.open_buckets.get(bucket), progress.won.get(bucket), rows)
    behind = progress.next_offsets
    after = replace(
        state,
        snapshot_id=snapshot_id,
        batch=progress.batch,
        stable_offsets=behind,
        positions={number: max(offset, state.positions.get(number, offset)) for number, offset in behind.items()},
        open_batch=None,
        open_buckets={},
    )
    return Step(after, tuple(ranges))


def shown_between(before: ReaderState, after: ReaderState, rows: RowComparison) -> list[RowRange]:
    """What leads from what one state shows to what the other shows, where no snapshot between makes a batch stable."""
    ranges: list[RowRange] = []
    for bucket, each in sorted(after.open_buckets.items()):
        shown, now = before.open_buckets.get(bucket), each.shown
        if shown is None:
            ranges += _shown(after, bucket, now, 0, now.first_offset)
        elif shown.shown.attempt == now.attempt:
            ranges += _shown(after, bucket, now, shown.shown.row_count, shown.shown.end_offset)
        else:
            both = min(shown.shown.row_count, now.row_count)
            same = _same(after, bucket, shown.shown, now, 0, both, rows)
            ranges += _retraction(after, bucket, shown.shown, same)
            ranges += _shown(after, bucket, now, same, now.first_offset)
    return ranges


def _taken(
    state: ReaderState, open_bucket: OpenBucket | None, header: RecordHeader, offset: int, rows: RowComparison
) -> tuple[OpenBucket, list[RowRange]]:
    """A bucket of the open batch with one more record, and what that shows."""
    if open_bucket is None:
        open_bucket = OpenBucket(Run(header.attempt, offset, offset))
    if header.attempt < open_bucket.latest.attempt:
        return open_bucket, []
    if header.attempt > open_bucket.latest.attempt:
        open_bucket = OpenBucket(open_bucket.shown, Run(header.attempt, offset, offset))
    before = open_bucket.latest
    if header.end_sequence <= before.row_count:
        return open_bucket, []
    if header.first_sequence != before.row_count:
        raise LogLostError(
            f"topic {state.topic} partition {header.bucket_id[1]}: at offset {offset} the rows from "
            f"{header.first_sequence} on of batch {header.batch} follow row {before.row_count} of the same attempt: "
            "records between are missing. Start again from a snapshot (scan_mode='latest-full')"
        )
    latest = before.extended(header, offset)
    if open_bucket.matched is None:
        return OpenBucket(latest), _shown(state, header.bucket_id, latest, before.row_count, before.end_offset)
    return _compared(state, header.bucket_id, open_bucket.shown, before.row_count, latest, rows)


def _compared(
    state: ReaderState, bucket: BucketId, shown: Run, equal_count: int, latest: Run, rows: RowComparison
) -> tuple[OpenBucket, list[RowRange]]:
    """A later attempt replaces what is shown, once it differs or has as many rows."""
    both = min(shown.row_count, latest.row_count)
    same = _same(state, bucket, shown, latest, equal_count, both, rows)
    if same == both and latest.row_count < shown.row_count:
        return OpenBucket(shown, latest), []
    ranges = _retraction(state, bucket, shown, same)
    return OpenBucket(latest), [*ranges, *_shown(state, bucket, latest, same, latest.first_offset)]


def _to_winner(
    state: ReaderState, bucket: BucketId, open_bucket: OpenBucket | None, won: LogIncrement | None, rows: RowComparison
) -> list[RowRange]:
    """What makes the rows shown of a bucket those of the winner."""
    shown = None if open_bucket is None else open_bucket.shown
    if won is None:
        return [] if shown is None else _retraction(state, bucket, shown, 0)
    winner = Run(
        Attempt(won.epoch, won.attempt),
        state.stable_offsets.get(bucket[1], 0),
        won.next_offset,
        won.row_count,
        bytes.fromhex(won.row_hash),
    )
    if shown is None:
        return _shown(state, bucket, winner, 0, winner.first_offset, is_whole=True)
    if shown.attempt == winner.attempt:
        if shown.row_count > winner.row_count or (
            shown.row_count == winner.row_count and shown.row_hash != winner.row_hash
        ):
            raise LogLostError(
                f"topic {state.topic} partition {bucket[1]}: batch {state.open_batch} has {shown.row_count} rows in "
                f"the log, the snapshot says {winner.row_count}, or others; the log and the table differ. Start again "
                "from a snapshot (scan_mode='latest-full')"
            )
        return _shown(state, bucket, winner, shown.row_count, shown.end_offset, is_whole=True)
    both = min(shown.row_count, winner.row_count)
    same = _same(state, bucket, shown, winner, 0, both, rows)
    ranges = _retraction(state, bucket, shown, same)
    return [*ranges, *_shown(state, bucket, winner, same, winner.first_offset, is_whole=True)]


def _same(state: ReaderState, bucket: BucketId, old: Run, new: Run, first: int, end: int, rows: RowComparison) -> int:
    """How many rows, of the first `end`, are equal in both; the first `first` are known to be."""
    if first >= end:
        return end
    if old.row_count == new.row_count == end and old.row_hash == new.row_hash:
        return end
    pair = [_range(state, bucket, run, first, end, run.first_offset) for run in (old, new)]
    return rows.first_difference(*pair)


def _shown(
    state: ReaderState, bucket: BucketId, run: Run, first: int, start_offset: int, *, is_whole: bool = False
) -> list[RowRange]:
    if first >= run.row_count:
        return []
    found = _range(state, bucket, run, first, run.row_count, start_offset)
    return [replace(found, row_hash=run.row_hash)] if is_whole else [found]


def _retraction(state: ReaderState, bucket: BucketId, run: Run, first: int) -> list[RowRange]:
    if first >= run.row_count:
        return []
    return [replace(_range(state, bucket, run, first, run.row_count, run.first_offset), is_retracted=True)]


def _range(state: ReaderState, bucket: BucketId, run: Run, first: int, end: int, start_offset: int) -> RowRange:
    assert state.open_batch is not None
    return RowRange(
        state.topic, state.commit_user, state.open_batch, bucket, run.attempt, start_offset, run.end_offset, first, end
    )


def retract_open(state: ReaderState, ends: Mapping[int, int]) -> Step:
    """Retracts everything that is open. Records before `ends` are shown only with the snapshot that makes them stable:
    they were made for rows that have changed since, or the files have emitted them already, where the compaction of
    their batch was lost and one of another writer came."""
    ranges = [each for bucket, kept in state.open_buckets.items() for each in _retraction(state, bucket, kept.shown, 0)]
    positions = {number: max(offset, ends.get(number, offset)) for number, offset in state.positions.items()}
    return Step(replace(state, open_buckets={}, open_batch=None, positions=positions), tuple(ranges))


def after_files(state: ReaderState, snapshot_id: int, progress: LogProgress) -> ReaderState:
    """The state of a reader that has the changes up to a snapshot from files; nothing may be open."""
    assert not state.open_buckets
    after = state_at(snapshot_id, progress)
    return replace(after, epoch=state.epoch) if progress.generation == state.generation else after


def headroom(state: ReaderState, first_offsets: Mapping[int, int]) -> dict[int, int]:
    """By partition: how many offsets retention may still delete before it deletes what this reader needs."""
    return {
        number: offset - first_offsets[number]
        for number, offset in state.stable_offsets.items()
        if number in first_offsets
    }
