"""What snapshots say of the log of a table: the proof of which records count. The log itself is not storage's matter.

    freshet.log = {"version": 1, "topic": "shop.orders", "topic-id": "…", "generation": 0, "user": "orders-cdc",
                   "start": {"0": 0, "1": 0}, "batch": 17, "next": {"0": 5210, "1": 4877},
                   "won": [["<partition, base64>", <bucket>, <epoch>, <attempt>, <next>, <rows>, "<hash>"], …]}

The buckets of one number, in whatever table partition, share the log partition of that number. `batch` is the last
commit of the logging user that is stable. It and all before it are *stable* because it is decided which attempts at
them count: those in `won` of the first snapshot that has their batch, and no others. `next` has the stable offset of
every partition, always: everything of stable batches lies before it, everything of later ones at it or behind.

An offset never goes back within a generation. Another topic is another generation; it begins at `start`. Snapshots
without the property (of other libraries) change nothing: the newest one that has it says how far the log has come.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import orjson

from freshet._frozen import Frozen
from freshet.storage.exceptions import UnknownOutcomeError
from freshet.storage.model.manifest import BucketId

LOG_PROPERTY: Final = "freshet.log"
"""Key in a snapshot's properties; part of what we write, do not change."""

NO_BATCH: Final = -1
"""The batch before the first one of a log."""

_VERSION: Final = 1


class LogIncrement(Frozen):
    """What one attempt logged of one bucket in one batch. `next_offset` is the one after its last record, `row_hash`
    rolls over the contents of its records."""

    epoch: int
    attempt: int
    next_offset: int
    row_count: int
    row_hash: str


class LogIdentity(Frozen):
    """Which log it is, and who writes it. `start` has the first offset of each partition that belongs to it."""

    topic: str
    topic_id: str
    commit_user: str
    start: Mapping[int, int]


class LogProgress(Frozen):
    """How far the log has come with a snapshot."""

    identity: LogIdentity
    generation: int
    batch: int
    next_offsets: Mapping[int, int]
    won: Mapping[BucketId, LogIncrement]


def log_of(properties: Mapping[str, str] | None, snapshot_id: int) -> LogProgress | None:
    """What a snapshot says of the log; None if nothing. Unreadable text is refused: guessing could lose changes."""
    text = (properties or {}).get(LOG_PROPERTY)
    if text is None:
        return None
    try:
        source = orjson.loads(text)
        if source["version"] != _VERSION:
            raise ValueError(f"version {source['version']}")
        identity = LogIdentity(
            str(source["topic"]), str(source["topic-id"]), str(source["user"]), _offsets(source["start"])
        )
        won = {
            (base64.b64decode(partition, validate=True), int(bucket)): LogIncrement(
                int(epoch), int(attempt), int(after), int(rows), str(hashed)
            )
            for partition, bucket, epoch, attempt, after, rows, hashed in source["won"]
        }
        return LogProgress(identity, int(source["generation"]), int(source["batch"]), _offsets(source["next"]), won)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnknownOutcomeError(
            f"snapshot {snapshot_id}: the property {LOG_PROPERTY} is unreadable ({error}); a newer version of this "
            "library may have written it: upgrade"
        ) from error


def log_to_text(progress: LogProgress) -> str:
    """The inverse of `log_of`."""
    identity = progress.identity
    won = [
        [
            base64.b64encode(partition).decode("ascii"),
            bucket,
            each.epoch,
            each.attempt,
            each.next_offset,
            each.row_count,
            each.row_hash,
        ]
        for (partition, bucket), each in sorted(progress.won.items())
    ]
    return orjson.dumps(
        {
            "version": _VERSION,
            "topic": identity.topic,
            "topic-id": identity.topic_id,
            "generation": progress.generation,
            "user": identity.commit_user,
            "start": _texts(identity.start),
            "batch": progress.batch,
            "next": _texts(progress.next_offsets),
            "won": won,
        }
    ).decode()


def with_stable_batch(progress: LogProgress, batch: int, won: Mapping[BucketId, LogIncrement]) -> LogProgress:
    """The progress once a batch is stable, by these winners."""
    after = dict(progress.next_offsets)
    for (_, bucket), each in won.items():
        after[bucket] = max(after.get(bucket, 0), each.next_offset)
    return replace(progress, batch=batch, next_offsets=after, won=won)


def _offsets(source: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in source.items()}


def _texts(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}
