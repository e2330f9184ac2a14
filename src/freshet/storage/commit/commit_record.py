"""Whose commit a delta manifest list belongs to, as a property of its file: what a lost commit is made again from.

    freshet.commit = {"version": 1, "snapshot_id": 8, "user": "orders-cdc", "identifier": 17, …}

On a store another program may copy its snapshot over one that was created (`catalogs.coordination`). What the snapshot
named is still there then, and no file of the table says whose it is: the user, the identifier and the rest of what
makes the commit the same one when it is made again. So it is written with the list, before the claim, at no request of
its own. It proves nothing about the claim: whether the table has the commit, its last commits say.

Compactions have no record: what they compacted is still there when they are lost. Other programs pass over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.commit.identity import CommitIdentity
from freshet.storage.commit.next_snapshot import CommitRequest
from freshet.storage.exceptions import UnknownOutcomeError
from freshet.storage.model.commit_message import CommitDigest
from freshet.storage.model.manifest import IndexEntry
from freshet.storage.model.snapshot import Snapshot

COMMIT_RECORD: Final = "freshet.commit"
"""Key in the header of a delta manifest list; part of what we write, do not change."""

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """A commit, but for its files; `snapshot_id` is the one that it was to be."""

    snapshot_id: int
    user: str
    identifier: int
    query_id: str | None = None
    digest: CommitDigest | None = None
    carried: str | None = None
    watermark: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    changelog_list: str | None = None
    index_entries: tuple[IndexEntry, ...] = ()
    is_numbered: bool = False
    """Its rows are numbered above those of the snapshot before it."""
    is_logged: bool = False
    """Its rows are in the log of the table."""
    branch: str | None = None
    """The branch it was to be a snapshot of, None for the table itself: their manifest lists lie in one folder."""
    version: int = _VERSION

    @property
    def identity(self) -> CommitIdentity:
        """Who commits."""
        return CommitIdentity(self.user, self.identifier, self.query_id, self.digest, carried=self.carried)

    @property
    def text(self) -> str:
        """The inverse of `commit_record`."""
        return _ENCODER.encode(self).decode()


def record_of(
    request: CommitRequest, change: SnapshotChange, latest: Snapshot | None, branch: str | None
) -> CommitRecord | None:
    """The record of a commit upon the latest snapshot; None for a compaction."""
    identity = request.identity
    if not identity.is_traced:
        return None
    return CommitRecord(
        snapshot_id=1 if latest is None else latest.id + 1,
        user=identity.commit_user,
        identifier=identity.identifier,
        query_id=identity.query_id,
        digest=identity.digest,
        carried=identity.carried,
        watermark=request.watermark,
        properties=dict(request.properties),
        index_entries=change.index_entries,
        is_numbered=bool(change.numbered_at),
        is_logged=request.log is not None or bool(change.log.won),
        branch=branch,
    )


def commit_record(text: str, name: str) -> CommitRecord:
    """The record of the list of this name; `UnknownOutcomeError` for one that a later release wrote."""
    try:
        if _VERSIONED.decode(text).version == _VERSION:
            return _RECORD.decode(text)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UnknownOutcomeError(f"{name}: the property {COMMIT_RECORD} is unreadable ({error})") from error
    raise UnknownOutcomeError(
        f"{name}: the property {COMMIT_RECORD} is of a newer release of Freshet; upgrade before repairing"
    )


class _Versioned(msgspec.Struct):
    version: int


_ENCODER: Final = msgspec.json.Encoder()
_VERSIONED: Final = msgspec.json.Decoder(_Versioned)
_RECORD: Final = msgspec.json.Decoder(CommitRecord)
