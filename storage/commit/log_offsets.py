"""The next offset of the log of every bucket, as snapshots carry them in their properties.

    freshet.log-offsets = [["<partition, base64>", <bucket>, <next offset>], ...]

A snapshot holds everything of the log before these offsets. Buckets that were quiet carry theirs forward; an offset
never goes back. Snapshots of other writers do not hand properties on: the offsets are those of the newest snapshot of
ours, which is the one that carries the history of commits. Tables without a log have no such property.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import orjson

from freshet.storage.commit.changes import Bucket
from freshet.storage.exceptions import UnknownOutcomeError
from freshet.storage.model.snapshot import Snapshot

LOG_OFFSETS_PROPERTY: Final = "freshet.log-offsets"
"""Key in a snapshot's properties; part of what we write, do not change."""

LogOffsets = Mapping[Bucket, int]

NO_OFFSETS: Final[LogOffsets] = MappingProxyType({})


def log_offsets_of(snapshot: Snapshot) -> LogOffsets:
    """The offsets that a snapshot carries; none for a table without a log."""
    text = (snapshot.properties or {}).get(LOG_OFFSETS_PROPERTY)
    if text is None:
        return NO_OFFSETS
    try:
        found = {
            (base64.b64decode(partition, validate=True), int(bucket)): int(offset)
            for partition, bucket, offset in orjson.loads(text)
        }
    except (orjson.JSONDecodeError, TypeError, ValueError) as error:
        raise UnknownOutcomeError(
            f"snapshot {snapshot.id}: the property {LOG_OFFSETS_PROPERTY} is unreadable ({error}); "
            "a newer version of this library may have written it: upgrade before writing"
        ) from error
    return MappingProxyType(found)


def advanced(offsets: LogOffsets, change: LogOffsets) -> LogOffsets:
    """The offsets after a change."""
    return {**offsets, **{bucket: max(offset, offsets.get(bucket, offset)) for bucket, offset in change.items()}}


def log_offsets_to_text(offsets: LogOffsets) -> str:
    """The inverse of `log_offsets_of`."""
    items = [
        [base64.b64encode(partition).decode("ascii"), bucket, offset]
        for (partition, bucket), offset in sorted(offsets.items())
    ]
    return orjson.dumps(items).decode()
