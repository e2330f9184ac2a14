"""What one bucket's writer hands to the committer: a versioned value, serialised as JSON: its fields by their names,
bytes as base64. Never pickled, as it may outlive the version that wrote it; one of another version is refused: tasks
and committer must run the same release.

The new-files increment becomes the APPEND snapshot, the compaction increment the COMPACT snapshot of the same
identifier. A file flushed and compacted in one commit is ADDed by the first and DELETEd by the second; an upgrade
is in `compact_before` at the old level and in `compact_after` at the new one, under one name. `compact_lookups`
names the files above, outside of the compaction, in which it looked up what is stored of its keys: its outputs are
right only while these are live.

What was logged goes with what it repeats: of rows in `log`, with the APPEND; of a compaction's changelog in
`compact_log`, with the COMPACT.

Index files (deletion vectors, hashes of dynamic buckets) come and go in the same two halves: those of the rows with the
APPEND, those of the compaction with the COMPACT. One that is replaced is among the deleted ones.

Rows are numbered above everything that is live in their bucket at the snapshot `numbered_at`. Where another writer has
committed larger numbers since, the files are rewritten before the claim: the commit that comes last wins.

Of a table with dynamic buckets the assigner gives messages of its own: the index files of buckets that got keys, and
upon which index files of the whole partition they were assigned. Where these have changed before the claim, a key may
be in another bucket by now: all is assigned again.

`CommitDigest` says in short what a commit was made from, so that a commit of the same number but of other input is
recognised: two commits of one identifier are the same commit only if they read the same. The hash decides; the text
names the range for people, in the message that shows both sides.

Source: MERGING.md §1.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import msgspec

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.commit_facts import CompactionFacts
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import BucketId, IndexFileMeta
from freshet.storage.model.table_log import LogIncrement

COMMIT_MESSAGE_VERSION: Final = 7


class CommitMessage(Frozen):
    """Changes of one bucket."""

    partition: bytes
    bucket: int
    total_buckets: int
    new_files: tuple[DataFileMeta, ...] = ()
    deleted_files: tuple[DataFileMeta, ...] = ()
    changelog_files: tuple[DataFileMeta, ...] = ()
    compact_before: tuple[DataFileMeta, ...] = ()
    compact_after: tuple[DataFileMeta, ...] = ()
    compact_changelog_files: tuple[DataFileMeta, ...] = ()
    compact_lookups: tuple[str, ...] = ()
    new_index_files: tuple[IndexFileMeta, ...] = ()
    deleted_index_files: tuple[IndexFileMeta, ...] = ()
    compact_new_index_files: tuple[IndexFileMeta, ...] = ()
    compact_deleted_index_files: tuple[IndexFileMeta, ...] = ()
    log: LogIncrement | None = None
    compact_log: LogIncrement | None = None
    numbered_at: int | None = None
    """The snapshot above whose files the rows of the new files are numbered, 0 for none; None where numbers do not
    matter. Without new files it is said of rows that come with the compaction: those that waited for their bucket."""
    assigned_upon: str | None = None
    """In a message from the assigner of a table with dynamic buckets, which brings no rows, the state of the hash
    indexes of the partition (`metadata.hash_index_store.index_state`) that its keys were assigned upon. Where rows move
    between partitions, the snapshot (`PlacedUpon`)."""
    compactions: tuple[CompactionFacts, ...] = ()
    """What was compacted and why, for the history."""
    version: int = COMMIT_MESSAGE_VERSION

    @property
    def bucket_id(self) -> BucketId:
        """The bucket that changes."""
        return self.partition, self.bucket

    @property
    def compaction(self) -> CommitMessage:
        """The half of it that a COMPACT snapshot makes visible."""
        return replace(
            self,
            new_files=(),
            deleted_files=(),
            changelog_files=(),
            new_index_files=(),
            deleted_index_files=(),
            log=None,
            assigned_upon=None,
        )

    @property
    def is_empty(self) -> bool:
        """True when nothing changed."""
        has_rows = self.new_files or self.deleted_files or self.changelog_files
        has_index = self.new_index_files or self.deleted_index_files
        is_checked = self.log is not None or self.assigned_upon is not None
        return not (has_rows or has_index or is_checked or self.has_compaction)

    @property
    def has_compaction(self) -> bool:
        """True when there is something for a COMPACT snapshot."""
        has_index = self.compact_new_index_files or self.compact_deleted_index_files
        has_rows = self.compact_before or self.compact_after or self.compact_changelog_files
        return bool(has_rows or has_index or self.compact_log is not None)


class PlacedUpon(Frozen):
    """The snapshot that the places of keys were looked up at; 0 for the table before its first."""

    snapshot_id: int
    uuid: str | None

    @property
    def text(self) -> str:
        """The text that messages carry."""
        return f"{self.snapshot_id} {self.uuid or ''}"

    @classmethod
    def parsed(cls, text: str) -> PlacedUpon:
        """The one in a message."""
        number, _, uuid = text.partition(" ")
        return cls(int(number), uuid or None)


DIGEST_TEXT_MAX: Final = 300
"""Characters of a range that are carried with a snapshot; the hash alone decides."""


class CommitDigest(Frozen):
    """`hash` is any text that is equal exactly when the input was, `text` says what was read, such as
    `topic orders: 0 [100, 250), 1 [90, 180)`."""

    hash: str
    text: str

    @property
    def shown(self) -> str:
        """The text, cut where it is too long for a message, and the beginning of the hash."""
        text = self.text if len(self.text) <= DIGEST_TEXT_MAX else f"{self.text[:DIGEST_TEXT_MAX]}…"
        return f"{text or 'an unnamed range'} ({self.hash[:12]})"


class _Versioned(msgspec.Struct):
    """What every release finds in a message."""

    version: int


_ENCODER: Final = msgspec.json.Encoder()
_VERSIONS: Final = msgspec.json.Decoder(list[_Versioned])
_MESSAGES: Final = msgspec.json.Decoder(list[CommitMessage])


def encode_commit_messages(messages: Iterable[CommitMessage]) -> bytes:
    """JSON array of messages."""
    return _ENCODER.encode(list(messages))


def decode_commit_messages(data: bytes | str) -> list[CommitMessage]:
    """The messages of a JSON array."""
    try:
        versions = {message.version for message in _VERSIONS.decode(data)}
        if versions <= {COMMIT_MESSAGE_VERSION}:
            return _MESSAGES.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidRequestError(f"the commit messages cannot be read: {error!r}") from error
    raise InvalidRequestError(
        f"a commit message of version {min(versions - {COMMIT_MESSAGE_VERSION})} where {COMMIT_MESSAGE_VERSION} is "
        "expected; tasks and committer must run the same release of Freshet"
    )
