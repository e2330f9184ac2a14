"""The state of a reader of the log, as a value: everything that decides what comes next, JSON in and out.

Everything up to a batch is stable. In speculative mode one batch more may be open: for each bucket the rows of some
attempt that were shown, and, while a later attempt repeats them, how far that one is equal.

No rows are kept: a `Run` says where in the log they lie.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from freshet._frozen import Frozen, field
from freshet.logstore.protocol.record import NO_HASH, Attempt, RecordHeader
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.table_log import NO_BATCH, LogProgress

_LOG: Final = "log"
"""Key of the state of the reader; positions of a reader of snapshots alone have none."""


class Run(Frozen):
    """The first `row_count` rows of an attempt in a bucket: they lie in [first_offset, end_offset)."""

    attempt: Attempt
    first_offset: int
    end_offset: int
    row_count: int = 0
    row_hash: bytes = NO_HASH

    def extended(self, header: RecordHeader, offset: int) -> Run:
        """With one more record."""
        return replace(self, end_offset=offset + 1, row_count=header.end_sequence, row_hash=header.row_hash)


class OpenBucket(Frozen):
    """`shown` was handed out; `matched` is a later attempt that is equal to it as far as it has come."""

    shown: Run
    matched: Run | None = None

    @property
    def latest(self) -> Run:
        """The attempt that more rows are expected of."""
        return self.matched or self.shown


class ReaderState(Frozen):
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


class LogPosition(Frozen):
    """A position between snapshots and log, for an engine that keeps it as JSON: the whole state of a reader, by which
    everything before it was taken. `from_files`: the next snapshot is read from its files, whatever the log has, as the
    ones before it are gone or have no offsets of the log. `before_ms` is the commit time of the snapshot in the state,
    where it was there: it distinguishes a history from another one of the same ids. `of_ms` is that of the snapshot
    whose rows come next, or which was read in part.

    | | |
    |---|---|
    | the rows of a snapshot come next | `is_state`; the state is that of a reader that has read them |
    | the changes after it | the state says what was shown |
    | a snapshot was read in part | the first `taken` of its `of` pieces were taken |

    Positions of a reader of snapshots alone (`StreamPosition`) are understood, so that such a query may go on with the
    log.
    """

    state: ReaderState
    is_state: bool = False
    taken: int = 0
    of: int = 0
    from_files: bool = False
    before_ms: int | None = None
    of_ms: int | None = None

    def to_document(self) -> dict[str, Any]:
        """The position for JSON."""
        return {
            _LOG: state_to_json(self.state),
            "is_state": self.is_state,
            "taken": self.taken,
            "of": self.of,
            "from_files": self.from_files,
            "before_ms": self.before_ms,
            "of_ms": self.of_ms,
        }

    @property
    def next_id(self) -> int:
        """The first snapshot that is still needed."""
        return self.state.snapshot_id + (not self.is_state)

    def reads_beyond(self, other: LogPosition) -> bool:
        """True where a reader that is at the same snapshot has read less of the log at the other one."""
        if (self.next_id, self.is_state, self.taken) != (other.next_id, other.is_state, other.taken):
            return False
        read = other.state.positions
        return any(offset > read.get(partition, offset) for partition, offset in self.state.positions.items())


def position_from(document: Mapping[str, Any]) -> LogPosition | int:
    """The inverse of `to_document`; the id of the next snapshot for a position between two snapshots alone.

    Raises `InvalidRequestError` for what is no position, or one within a snapshot.
    """
    try:
        if _LOG in document:
            kept = {name: value for name, value in document.items() if name != _LOG}
            return LogPosition(state_from_json(document[_LOG]), **kept)
        if document["is_state"] or document["taken"]:
            raise InvalidRequestError(
                f"the checkpoint is within snapshot {document['snapshot_id']}, which was read without the log: go "
                "on with log.read.isolation=none until that snapshot has been read",
                option="log.read.isolation",
            )
        return int(document["snapshot_id"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidRequestError(f"{dict(document)!r} is no position in the changes of a table: {error!r}") from None
