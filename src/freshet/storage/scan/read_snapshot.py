"""The snapshot that a reader asks for, and what happened when files that it needs are gone.

| asked | snapshot |
|---|---|
| nothing | the latest; none for a table without one |
| snapshot id | that one; it must not have expired |
| tag | the one the tag holds, even if it has expired |
| timestamp | the newest one committed at or before it (epoch milliseconds, or a datetime with a time zone) |

Expiry, a rollback or a drop may overtake the reader:

| found on disk | error |
|---|---|
| no table, or another one of its name | `NotFoundError`: it was dropped while it was read |
| another snapshot of the same id | `RetryableError`: the table was rolled back, read it again |
| neither the snapshot nor a tag that holds it | `RetryableError`: it expired, read a newer one |
| the snapshot, or a tag that holds it | the error as it was: a file is missing that should be there |

Expiry removes the snapshot before the files that only it names, so a file that is missing while its snapshot is there
was lost in another way.

Source: MERGING.md §6.4.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import SupportsIndex

from freshet.storage.exceptions import (
    InvalidRequestError,
    MissingFileError,
    NotFoundError,
    RetryableError,
    StorageError,
)
from freshet.storage.io.local_errors import memory_errors
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arguments import TimeGiven, time_ms
from freshet.storage.model.snapshot import Snapshot


@contextmanager
def explained(store: TableStore, snapshot: Snapshot | None) -> Iterator[None]:
    """Errors about missing files and memory become errors that say why; `snapshot` is the one that is read."""
    try:
        with memory_errors(store.location):
            yield
    except (MissingFileError, NotFoundError) as error:
        reason = _reason(store, snapshot)
        if reason is None:
            raise
        raise reason from error


def _reason(store: TableStore, snapshot: Snapshot | None) -> StorageError | None:
    try:
        store.check_is_there()
    except NotFoundError as error:
        return error
    if snapshot is None or snapshot in store.snapshots.tags.all().values():
        return None
    try:
        found = store.snapshots.fresh(snapshot.id)
    except NotFoundError as error:
        return RetryableError(
            f"snapshot {snapshot.id} of {store.location} expired before it was read to its end ({error}): read the "
            "table again to see a newer one; to read for longer, keep snapshots longer (snapshot.time-retained, "
            "snapshot.num-retained.min) or read a tag, which expiry leaves alone",
            table=store.location,
        )
    if found == snapshot:
        return None
    return RetryableError(
        f"snapshot {snapshot.id} of {store.location} was replaced while it was read: the table was rolled back and "
        "has gone on since; read it again",
        table=store.location,
    )


def find_in(
    store: TableStore,
    *,
    snapshot_id: int | None = None,
    tag: str | None = None,
    timestamp_ms: TimeGiven | None = None,
) -> Snapshot | None:
    """The snapshot that a reader of a table asks for; `NotFoundError` where the table was dropped: it would look like
    an empty one, and the next of its name like one of NULLs."""
    find = partial(find_snapshot, store.snapshots, snapshot_id=snapshot_id, tag=tag, timestamp_ms=timestamp_ms)
    if store.env.reads is None:
        store.check_is_there()
        return find()
    calls: list[Callable[[], Snapshot | None]] = [store.check_is_there, find]
    return store.env.together(calls)[1]


def find_snapshot(
    snapshots: SnapshotStore,
    *,
    snapshot_id: int | None = None,
    tag: str | None = None,
    timestamp_ms: TimeGiven | None = None,
) -> Snapshot | None:
    """The snapshot that at most one of the three names; `NotFoundError` names what there is instead."""
    if timestamp_ms is not None:
        timestamp_ms = time_ms("timestamp_ms", timestamp_ms)
    asked = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms}
    given = [name for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise InvalidRequestError(
            f"{' and '.join(given)} exclude each other: a scan reads one snapshot; give one of them"
        )
    for name, value in asked.items():
        expected = str if name == "tag" else SupportsIndex
        if value is not None and (not isinstance(value, expected) or isinstance(value, bool)):
            raise InvalidRequestError(f"{name} must be {'text' if name == 'tag' else 'a whole number'}, not {value!r}")
    if tag is not None and (not tag.isprintable() or "/" in tag):
        raise InvalidRequestError(f"{tag!r} is no name of a tag; tags there are: {', '.join(snapshots.tags.names())}")
    if snapshot_id is not None:
        return snapshots.snapshot(snapshot_id)
    if tag is not None:
        return snapshots.tags.of(tag)
    if timestamp_ms is None:
        return snapshots.latest()
    found = snapshots.at_or_before(timestamp_ms)
    if found is None:
        raise NotFoundError(nothing_by(snapshots, timestamp_ms))
    return found


def nothing_by(snapshots: SnapshotStore, time_ms: int) -> str:
    """Says that there is no snapshot of a time or before it, and which is the first."""
    return f"no snapshot was committed at or before {_time_text(time_ms)}: {_first_text(snapshots)}"


def _first_text(snapshots: SnapshotStore) -> str:
    earliest = snapshots.earliest()
    if earliest is None:
        return "the table has no snapshot yet"
    return f"the earliest one still there is {earliest.id}, of {_time_text(earliest.time_ms)}"


def _time_text(time_ms: int) -> str:
    try:
        at = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    return f"{at.isoformat(timespec='milliseconds')} ({time_ms} ms)"
