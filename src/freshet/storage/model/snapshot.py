"""One snapshot: the JSON value that makes a commit visible.

Snapshot N is visible exactly when the file `snapshot-N` exists; ids are contiguous from 1. Each non-empty commit of a
writer is one APPEND snapshot (OVERWRITE if it deletes) and, when it compacted, one COMPACT snapshot with the same
commit user and identifier, in this order.

Source: FORMAT.md §3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from freshet.storage.model.display import time_text
from freshet.storage.model.shown import Facts, Shown

SNAPSHOT_VERSION: Final = 3
BATCH_COMMIT_IDENTIFIER: Final = 9223372036854775807
"""Identifier of batch commits, which have no order of their own."""

RESCALED_PROPERTY: Final = "freshet.rescaled"
"""In an OVERWRITE that puts the rows of partitions into another number of buckets and changes none: that number. Part
of what we write, do not change."""


ROLLED_BACK_PROPERTY: Final = "freshet.rolled-back-to"
"""In an OVERWRITE that gives a table the content of an earlier snapshot, and what that knew of commits: its id, 0 for
the table before its first. Part of what we write, do not change."""


class CommitKind(StrEnum):
    """What a commit did; the text is part of the format."""

    APPEND = "APPEND"
    COMPACT = "COMPACT"
    OVERWRITE = "OVERWRITE"
    ANALYZE = "ANALYZE"


@dataclass(frozen=True, slots=True, repr=False)
class Snapshot(Shown):
    """A snapshot file, as a value. Sizes are exact bytes; a wrong one makes other readers see no rows at all."""

    id: int
    schema_id: int
    base_manifest_list: str
    delta_manifest_list: str
    commit_user: str
    commit_identifier: int
    commit_kind: CommitKind
    time_ms: int
    total_record_count: int
    delta_record_count: int
    base_manifest_list_size: int | None = None
    delta_manifest_list_size: int | None = None
    changelog_manifest_list: str | None = None
    changelog_manifest_list_size: int | None = None
    changelog_record_count: int | None = None
    index_manifest: str | None = None
    watermark: int | None = None
    statistics: str | None = None
    properties: Mapping[str, str] | None = None
    next_row_id: int | None = 0
    operation: str | None = None
    uuid: str | None = None
    version: int = SNAPSHOT_VERSION

    def __repr__(self) -> str:
        return (
            f"Snapshot({self.id}, {self.commit_kind} by {self.commit_user!r} #{self.number_text} at "
            f"{time_text(self.time_ms)}, {self.total_record_count:,} records, {self.delta_record_count:+,})"
        )

    def _shown(self) -> Facts:
        yield from (("id", self.id), ("kind", str(self.commit_kind)), ("operation", self.operation))
        yield from (("time", time_text(self.time_ms)), ("commit user", self.commit_user))
        yield from (("number of the commit", self.number_text), ("schema", str(self.schema_id)))
        yield from (("records", self.total_record_count), ("change of records", f"{self.delta_record_count:+,}"))
        yield from (("changelog rows", self.changelog_record_count), ("watermark", self.watermark))

    @property
    def number_text(self) -> str:
        """The commit identifier as people read it: a word for that of batch commits."""
        return "batch" if self.commit_identifier == BATCH_COMMIT_IDENTIFIER else str(self.commit_identifier)

    @property
    def is_rescale(self) -> bool:
        """True for an overwrite that only puts rows into other buckets: it changes no row."""
        return self.commit_kind is CommitKind.OVERWRITE and RESCALED_PROPERTY in (self.properties or {})

    def is_same(self, other: Snapshot | None) -> bool:
        """Whether both are one snapshot. Copies of it in tags may lack fields that other programs do not write."""
        return other is not None and (self.id, self.base_manifest_list, self.delta_manifest_list) == (
            other.id,
            other.base_manifest_list,
            other.delta_manifest_list,
        )

    @property
    def is_rollback(self) -> bool:
        """True for an overwrite with the content of an earlier snapshot: commits since then count as never made."""
        return self.commit_kind is CommitKind.OVERWRITE and ROLLED_BACK_PROPERTY in (self.properties or {})

    @property
    def manifest_lists(self) -> list[tuple[str, int | None]]:
        """Name and size of each of its lists: base, delta, and changelog where there is one."""
        lists = [
            (self.base_manifest_list, self.base_manifest_list_size),
            (self.delta_manifest_list, self.delta_manifest_list_size),
        ]
        if self.changelog_manifest_list is not None:
            lists.append((self.changelog_manifest_list, self.changelog_manifest_list_size))
        return lists
