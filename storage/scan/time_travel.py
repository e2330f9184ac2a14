"""Finds the snapshot that a reader asks for.

| asked | snapshot |
|---|---|
| nothing | the latest; none for a table without one |
| snapshot id | that one; it must not have expired |
| tag | the one the tag holds, even if it has expired |
| timestamp | the newest one committed at or before it (epoch milliseconds) |

Source: MERGING.md §6.4.
"""

from __future__ import annotations

import datetime
from typing import SupportsIndex

from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.model.snapshot import Snapshot


def find_snapshot(
    snapshots: SnapshotStore,
    *,
    snapshot_id: int | None = None,
    tag: str | None = None,
    timestamp_ms: int | None = None,
) -> Snapshot | None:
    """The snapshot asked for by at most one of the three; `NotFoundError` names what there is instead."""
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
        raise InvalidRequestError(f"{tag!r} is no name of a tag; tags there are: {', '.join(snapshots.tag_names())}")
    if snapshot_id is not None:
        return snapshots.snapshot(snapshot_id)
    if tag is not None:
        return snapshots.tag(tag)
    if timestamp_ms is None:
        return snapshots.latest()
    found = snapshots.at_or_before(timestamp_ms)
    if found is None:
        raise NotFoundError(
            f"no snapshot was committed at or before {_time_text(timestamp_ms)}: {_first_text(snapshots)}"
        )
    return found


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
