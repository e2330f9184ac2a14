"""The value of the next snapshot: what it takes from the one before, from the change and from its writer.

| field | from |
|---|---|
| id, totalRecordCount, nextRowId | the latest snapshot, counted on or inherited |
| indexManifest | the latest, where the change leaves all index files as they are (`index_changes`) |
| statistics | inherited while the schema stays the same |
| watermark | the larger of both |
| timeMillis | the clock, but never earlier than the latest: time travel searches by halves |
| schemaId | the latest schema, whichever one the writer had |
| properties | those of the commit, the map of all users' last commits (`history`), offsets of the log (`log_offsets`) |

Source: FORMAT.md §3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.commit.history import COMMITS_PROPERTY, FIRST_SNAPSHOT_ID, CommitHistory, history_to_text
from freshet.storage.commit.identity import CommitIdentity
from freshet.storage.commit.log_offsets import LOG_OFFSETS_PROPERTY, LogOffsets, advanced, log_offsets_to_text
from freshet.storage.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class SnapshotLists:
    """Names and exact sizes of the manifest lists of one snapshot."""

    base: str
    base_size: int
    delta: str
    delta_size: int
    changelog: str | None = None
    changelog_size: int | None = None
    index: str | None = None
    """The index manifest; None when no index file lives."""


def next_snapshot(
    latest: Snapshot | None,
    change: SnapshotChange,
    identity: CommitIdentity,
    lists: SnapshotLists,
    *,
    history: CommitHistory,
    log_offsets: LogOffsets,
    schema_id: int,
    now_ms: int,
    uuid: str,
    properties: Mapping[str, str],
    watermark: int | None,
) -> Snapshot:
    """The snapshot that makes the change visible on top of the latest one; `history` and `log_offsets` are those of the
    latest."""
    time_ms = now_ms if latest is None else max(now_ms, latest.time_ms)
    if identity.is_traced:
        history = history.with_commit(
            identity.commit_user, identity.identifier, identity.query_id, time_ms, identity.digest
        )
    carried = {COMMITS_PROPERTY: history_to_text(history)}
    offsets = advanced(log_offsets, change.log_offsets)
    if offsets:
        carried[LOG_OFFSETS_PROPERTY] = log_offsets_to_text(offsets)
    changelog_rows = sum(entry.file.row_count for entry in change.changelog_entries)
    known = None if latest is None else latest.watermark
    watermarks = [value for value in (watermark, known) if value is not None]
    return Snapshot(
        id=FIRST_SNAPSHOT_ID if latest is None else latest.id + 1,
        uuid=uuid,
        schema_id=schema_id,
        base_manifest_list=lists.base,
        base_manifest_list_size=lists.base_size,
        delta_manifest_list=lists.delta,
        delta_manifest_list_size=lists.delta_size,
        changelog_manifest_list=lists.changelog,
        changelog_manifest_list_size=lists.changelog_size,
        changelog_record_count=None if lists.changelog is None else changelog_rows,
        index_manifest=lists.index,
        commit_user=identity.commit_user,
        commit_identifier=identity.identifier,
        commit_kind=change.kind,
        time_ms=time_ms,
        total_record_count=(0 if latest is None else latest.total_record_count) + change.row_count,
        delta_record_count=change.row_count,
        watermark=max(watermarks, default=None),
        statistics=latest.statistics if latest is not None and latest.schema_id == schema_id else None,
        properties=MappingProxyType({**properties, **carried}),
        next_row_id=0 if latest is None else latest.next_row_id or 0,
    )
