"""What a commit saw, as the facts that its snapshot carries: a pure decision over the change and what it met."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter, itemgetter

from freshet._frozen import Frozen
from freshet.storage.commit.changes import SnapshotChange
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
from freshet.storage.model.snapshot import CommitKind

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
