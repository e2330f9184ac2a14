"""The state of a reader of the log, as a value: everything that decides what comes next, JSON in and out.

Everything up to a batch is stable. In speculative mode one batch more may be open: for each bucket the rows of some
attempt that were shown, and, while a later attempt repeats them, how far that one is equal.

No rows are kept: a `Run` says where in the log they lie.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from freshet.logstore.protocol.record import NO_HASH, Attempt, RecordHeader
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.table_log import NO_BATCH, LogProgress


@dataclass(frozen=True, slots=True)
class Run:
    """The first `row_count` rows of an attempt in a bucket: they lie in [first_offset, end_offset)."""

    attempt: Attempt
    first_offset: int
    end_offset: int
    row_count: int = 0
    row_hash: bytes = NO_HASH

    def extended(self, header: RecordHeader, offset: int) -> Run:
        """With one more record."""
        return replace(self, end_offset=offset + 1, row_count=header.end_sequence, row_hash=header.row_hash)


@dataclass(frozen=True, slots=True)
class OpenBucket:
    """`shown` was handed out; `matched` is a later attempt that is equal to it as far as it has come."""

    shown: Run
    matched: Run | None = None

    @property
    def latest(self) -> Run:
        """The attempt that more rows are expected of."""
        return self.matched or self.shown


@dataclass(frozen=True, slots=True)
class ReaderState:
    """`stable_offsets` and `positions` are offsets by partition: where the open batch begins, and what is read next."""

    snapshot_id: int
    """The last snapshot that was looked at."""
    topic: str = ""
    topic_id: str = ""
    commit_user: str = ""
    generation: int = NO_BATCH
    batch: int = NO_BATCH
    epoch: int = NO_BATCH
    stable_offsets: Mapping[int, int] = field(default_factory=dict)
    positions: Mapping[int, int] = field(default_factory=dict)
    open_batch: int | None = None
    open_buckets: Mapping[BucketId, OpenBucket] = field(default_factory=dict)

    @property
    def has_log(self) -> bool:
        """True once a snapshot has said that there is a log."""
        return self.generation != NO_BATCH


def state_at(snapshot_id: int, progress: LogProgress | None) -> ReaderState:
    """The state of a reader that has read everything of a snapshot, and nothing else."""
    if progress is None:
        return ReaderState(snapshot_id)
    identity = progress.identity
    return ReaderState(
        snapshot_id,
        identity.topic,
        identity.topic_id,
        identity.commit_user,
        progress.generation,
        progress.batch,
        stable_offsets=progress.next_offsets,
        positions=progress.next_offsets,
    )


def state_to_json(state: ReaderState) -> dict[str, Any]:
    """Nested dicts of numbers and texts, without lists: streaming engines keep offsets so.

    Checkpoints have it, so its keys stay as earlier versions wrote them: `settled` has the stable offsets, `lanes` the
    open buckets.
    """
    source: dict[str, Any] = {
        "snapshot_id": state.snapshot_id,
        "topic": state.topic,
        "topic_id": state.topic_id,
        "commit_user": state.commit_user,
        "generation": state.generation,
        "batch": state.batch,
        "epoch": state.epoch,
        "settled": {str(partition): offset for partition, offset in state.stable_offsets.items()},
        "positions": {str(partition): offset for partition, offset in state.positions.items()},
        "lanes": {},
    }
    if state.open_batch is not None:
        source["open_batch"] = state.open_batch
    for (partition, bucket), each in state.open_buckets.items():
        kept = {"shown": _run_to_json(each.shown)}
        if each.matched is not None:
            kept["matched"] = _run_to_json(each.matched)
        source["lanes"][f"{bucket}/{base64.b64encode(partition).decode('ascii')}"] = kept
    return source


def state_from_json(source: Mapping[str, Any]) -> ReaderState:
    """The inverse of `state_to_json`."""
    open_buckets: dict[BucketId, OpenBucket] = {}
    for name, kept in source["lanes"].items():
        bucket, _, partition = name.partition("/")
        matched = _run(kept["matched"]) if "matched" in kept else None
        open_buckets[base64.b64decode(partition), int(bucket)] = OpenBucket(_run(kept["shown"]), matched)
    return ReaderState(
        source["snapshot_id"],
        source["topic"],
        source["topic_id"],
        source["commit_user"],
        source["generation"],
        source["batch"],
        source["epoch"],
        {int(partition): offset for partition, offset in source["settled"].items()},
        {int(partition): offset for partition, offset in source["positions"].items()},
        source.get("open_batch"),
        open_buckets,
    )


def _run_to_json(run: Run) -> dict[str, Any]:
    return {
        "epoch": run.attempt.epoch,
        "attempt": run.attempt.attempt,
        "first_offset": run.first_offset,
        "end_offset": run.end_offset,
        "row_count": run.row_count,
        "row_hash": run.row_hash.hex(),
    }


def _run(source: Mapping[str, Any]) -> Run:
    return Run(
        Attempt(source["epoch"], source["attempt"]),
        source["first_offset"],
        source["end_offset"],
        source["row_count"],
        bytes.fromhex(source["row_hash"]),
    )
