"""The value of the next snapshot: what it takes from the one before, from the change and from its writer; and the facts
that it carries of what its commit saw: a pure decision over the change and what it met (`commit_facts`).

| field | from |
|---|---|
| id, totalRecordCount, nextRowId | the latest snapshot, counted on or inherited |
| indexManifest | the latest, where the change leaves all index files as they are (`change_fit`) |
| statistics | inherited while the schema stays the same |
| watermark | the larger of both |
| timeMillis | the clock, but never earlier than the latest: time travel searches by halves |
| schemaId | the latest schema, whichever one the writer had |
| properties | of the commit and what it saw, last commits of all users, where the log is (`next_log`) |

Source: FORMAT.md §3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from types import MappingProxyType

from freshet._frozen import Frozen, field
from freshet.storage.commit.changes import SnapshotChange, next_log
from freshet.storage.commit.identity import CommitIdentity
from freshet.storage.commit.last_commits import COMMITS_PROPERTY, LastCommits, last_commits_to_text
from freshet.storage.commit.round_change import RoundChange
from freshet.storage.commit.table_view import TableView
from freshet.storage.model.commit_facts import (
    TOLD_APART_MAX,
    BatchFacts,
    CommitFacts,
    CompactionFacts,
    KindCounts,
    PlacedCompaction,
    together,
)
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import EntryKind
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.model.table_log import LOG_PROPERTY, LogIdentity, log_to_text

_ADD, _DELETE = EntryKind.ADD, EntryKind.DELETE
_NAME, _SIZE, _ROWS = map(attrgetter, ("file_name", "file_size_bytes", "row_count"))
_OF_KIND = tuple(map(itemgetter, range(4)))


class Met(Frozen):
    """What it took until a claim: its tries, this one too, and the claims that were lost, with the users who won them;
    buckets whose compaction was dropped."""

    duration_ms: int
    tries: int
    lost_count: int = 0
    winners: tuple[str, ...] = ()
    dropped_count: int = 0


class GivenFacts(Frozen):
    """What whoever commits knows beyond the change: rewrites of files and their bytes, and the batch of a pipeline."""

    rewrites: int = 0
    rewritten_bytes: int = 0
    batch: BatchFacts | None = None


def commit_facts(
    change: SnapshotChange,
    met: Met,
    given: GivenFacts,
    partition_path: Callable[[bytes], str],
    live: tuple[int, int] | None,
    *,
    makes_changelog: bool,
) -> CommitFacts:
    """The facts; `live` are the files and bytes of the table before. `makes_changelog`: readers get its changes from
    changelog files, not from data files."""
    added = [entry.file for entry in change.entries if entry.kind is _ADD]
    deleted = [entry.file for entry in change.entries if entry.kind is _DELETE]
    if moved := set(map(_NAME, added)).intersection(map(_NAME, deleted)):
        added = [file for file in added if file.file_name not in moved]
        deleted = [file for file in deleted if file.file_name not in moved]
    changelog = [entry.file for entry in change.changelog_entries]
    bytes_added, bytes_deleted = _bytes(added), _bytes(deleted)
    return CommitFacts(
        kinds=_kinds(change.kind, added, changelog, makes_changelog=makes_changelog),
        rows_written=sum(map(_ROWS, added)),
        files_added=len(added),
        files_deleted=len(deleted),
        changelog_files=len(changelog),
        bytes_added=bytes_added,
        bytes_deleted=bytes_deleted,
        changelog_bytes=_bytes(changelog),
        duration_ms=max(0, met.duration_ms),
        tries=met.tries,
        conflicts=met.lost_count + met.dropped_count,
        conflicts_with=met.winners,
        rewrites=given.rewrites,
        rewritten_bytes=given.rewritten_bytes,
        batch=given.batch,
        compactions=_placed(change, partition_path),
        live=None if live is None else (live[0] + len(added) - len(deleted), live[1] + bytes_added - bytes_deleted),
    )


def _placed(change: SnapshotChange, partition_path: Callable[[bytes], str]) -> tuple[PlacedCompaction, ...]:
    """The largest each by itself, as many as may have room; the others together."""
    found = [(place, facts) for place, each in change.compactions.items() for facts in each]
    rest: Sequence[CompactionFacts] = ()
    if len(found) > TOLD_APART_MAX:
        found.sort(key=lambda item: -item[1].bytes_in)
        rest = together(facts for _, facts in found[TOLD_APART_MAX:])
    apart = (
        PlacedCompaction(partition_path(partition), bucket if facts.bucket_count == 1 else None, facts)
        for (partition, bucket), facts in found[:TOLD_APART_MAX]
    )
    return (*apart, *(PlacedCompaction(None, None, facts) for facts in rest))


def _kinds(
    kind: CommitKind, added: Sequence[DataFileMeta], changelog: Sequence[DataFileMeta], *, makes_changelog: bool
) -> KindCounts | None:
    """Rows by kind that readers of changes get; None where these are not in files of this commit alone."""
    if changelog or (makes_changelog and kind is not CommitKind.OVERWRITE) or kind is CommitKind.COMPACT:
        return _summed(changelog)
    return _summed(added) if kind is CommitKind.APPEND else None


def _summed(files: Sequence[DataFileMeta]) -> KindCounts | None:
    counts = [file.kind_counts for file in files if file.kind_counts is not None]
    if len(counts) < len(files):
        return None
    added, before, after, deleted = (sum(map(kind, counts)) for kind in _OF_KIND)
    return added, before, after, deleted


def _bytes(files: Iterable[DataFileMeta]) -> int:
    return sum(map(_SIZE, files))


class SnapshotLists(Frozen):
    """Names and exact sizes of the manifest lists of one snapshot."""

    base: str
    base_size: int
    delta: str
    delta_size: int
    changelog: str | None = None
    changelog_size: int | None = None
    index: str | None = None
    """The index manifest; None when no index file lives."""


class CommitRequest(Frozen):
    """One change to commit.

    `base_id` is the latest snapshot from before the first try to commit these files, None when this is the first.
    `log` is given by the user who writes the table's log. `is_followed`: another commit follows at once, which leaves
    the LATEST hint to that. `precedes`: the commit of this identity follows, so nothing is done where that is there.
    `needs_change`: no snapshot is made where a round finds that nothing changes. `known_commits` are the last commits
    of all users as the snapshot shall have them, where that is not what the latest one has (a rollback). `facts` are
    for people (`commit_facts`).
    """

    change: RoundChange
    identity: CommitIdentity
    properties: Mapping[str, str]
    watermark: int | None
    log: LogIdentity | None
    base_id: int | None = None
    is_followed: bool = False
    precedes: bool = False
    needs_change: bool = False
    known_commits: LastCommits | None = None
    facts: GivenFacts = field(default_factory=GivenFacts)


def next_snapshot(
    view: TableView, request: CommitRequest, change: SnapshotChange, lists: SnapshotLists, *, now_ms: int, uuid: str
) -> Snapshot:
    """The snapshot that makes `change`, the part of the request that fits, visible on top of what is seen."""
    latest, commits, identity = view.latest, view.last_commits, request.identity
    time_ms = now_ms if latest is None else max(now_ms, latest.time_ms)
    last = commits.users.get(identity.commit_user)
    commits = request.known_commits or commits
    if identity.is_traced:
        commits = commits.with_commit(
            identity.commit_user, identity.identifier, identity.query_id, time_ms, identity.digest, identity.carried
        )
    carried = {COMMITS_PROPERTY: last_commits_to_text(commits)}
    progress = next_log(
        view.log,
        change.log,
        change.kind,
        log=request.log,
        identifier=identity.identifier,
        last_identifier=None if last is None else last.identifier,
    )
    if progress is not None:
        carried[LOG_PROPERTY] = log_to_text(progress)
    changelog_rows = sum(entry.file.row_count for entry in change.changelog_entries)
    known = None if latest is None else latest.watermark
    watermarks = [value for value in (request.watermark, known) if value is not None]
    return Snapshot(
        id=view.latest_id + 1,
        uuid=uuid,
        schema_id=view.schema_id,
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
        statistics=latest.statistics if latest is not None and latest.schema_id == view.schema_id else None,
        properties=MappingProxyType({**request.properties, **carried}),
        next_row_id=0 if latest is None else latest.next_row_id or 0,
    )
