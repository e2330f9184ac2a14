"""`$commits`: the commits of a table, oldest first, also those of `metadata.expired_snapshots`.

The first columns come from the snapshot, whoever wrote it; the others are what a writer of ours has noted, and NULL of
other programs' commits. `inserts` to `deletes` count what a reader of changes gets from the snapshot, NULL where that
is not in files of the commit alone, as of an overwrite. `duration_ms` ends at the claim of the snapshot. Of a pipeline
there are the batch's records, the times that its records carry, dead letters by cause, records that broke
rules of `expect`, and how long its steps took.

`$compactions`: every compaction of those commits and its reason. Where a commit has too many to tell apart, the small
ones of one reason are a row, without partition and bucket; `buckets` says of how many.

Times are on the wall clock of the process that asks, as in the other system tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from freshet._frozen import Frozen
from freshet.storage.codec.commit_facts import parse_facts
from freshet.storage.metadata.expired_snapshots import with_history
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_facts import BatchFacts, CommitFacts, PlacedCompaction
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.system_tables.definition import Values, each, metadata_table


class Commit(Frozen):
    """One commit; `facts` are None where the writer noted none."""

    snapshot: Snapshot
    facts: CommitFacts | None
    is_expired: bool


class _Compaction(Frozen):
    commit: Commit
    placed: PlacedCompaction


def commits_of(store: TableStore) -> list[Commit]:
    """The commits that a table knows of, the oldest first.

    The snapshots are looked at first: one that expires meanwhile is in the history when that is read.
    """
    live = store.snapshots.all()
    found = with_history(store.history.snapshots(), live)
    return [Commit(snapshot, parse_facts(snapshot.properties), is_expired) for snapshot, is_expired in found]


def _compactions(store: TableStore, _: Snapshot | None) -> list[_Compaction]:
    return [
        _Compaction(commit, placed)
        for commit in commits_of(store)
        for placed in (() if commit.facts is None else commit.facts.compactions)
    ]


def _fact(value: Callable[[CommitFacts], Any]) -> Values:
    return lambda _, found: [None if one.facts is None else value(one.facts) for one in found]


def _kind(code: int) -> Values:
    return _fact(lambda facts: None if facts.kinds is None else facts.kinds[code])


def _of_batch(value: Callable[[BatchFacts], Any]) -> Values:
    return _fact(lambda facts: None if facts.batch is None else value(facts.batch))


def _event_time(which: int) -> Values:
    def values(store: TableStore, found: Sequence[Commit]) -> list[int | None]:
        times = [one.facts and one.facts.batch and one.facts.batch.event_times_ms for one in found]
        return [store.env.wall_clock_ms(each[which]) if each else None for each in times]

    return values


COMMITS: Final = metadata_table(
    "commits",
    "its commits, also expired ones: what each did and took",
    lambda store, _: commits_of(store),
    (
        ("snapshot_id", "BIGINT NOT NULL", each(lambda one: one.snapshot.id)),
        (
            "commit_time",
            "TIMESTAMP(3) NOT NULL",
            lambda store, found: [store.env.wall_clock_ms(one.snapshot.time_ms) for one in found],
        ),
        ("commit_user", "STRING NOT NULL", each(lambda one: one.snapshot.commit_user)),
        ("commit_identifier", "BIGINT NOT NULL", each(lambda one: one.snapshot.commit_identifier)),
        ("commit_kind", "STRING NOT NULL", each(lambda one: str(one.snapshot.commit_kind))),
        ("expired", "BOOLEAN NOT NULL", each(lambda one: one.is_expired)),
        ("total_record_count", "BIGINT", each(lambda one: one.snapshot.total_record_count)),
        ("inserts", "BIGINT", _kind(0)),
        ("updates_before", "BIGINT", _kind(1)),
        ("updates_after", "BIGINT", _kind(2)),
        ("deletes", "BIGINT", _kind(3)),
        ("rows_written", "BIGINT", _fact(lambda facts: facts.rows_written)),
        ("files_added", "INT", _fact(lambda facts: facts.files_added)),
        ("files_deleted", "INT", _fact(lambda facts: facts.files_deleted)),
        ("changelog_files", "INT", _fact(lambda facts: facts.changelog_files)),
        ("bytes_added", "BIGINT", _fact(lambda facts: facts.bytes_added)),
        ("bytes_deleted", "BIGINT", _fact(lambda facts: facts.bytes_deleted)),
        ("changelog_bytes", "BIGINT", _fact(lambda facts: facts.changelog_bytes)),
        ("duration_ms", "BIGINT", _fact(lambda facts: facts.duration_ms)),
        ("tries", "INT", _fact(lambda facts: facts.tries)),
        ("conflicts", "INT", _fact(lambda facts: facts.conflicts)),
        ("conflicts_with", "ARRAY<STRING>", _fact(lambda facts: facts.conflicts_with)),
        ("rewrites", "INT", _fact(lambda facts: facts.rewrites)),
        ("rewritten_bytes", "BIGINT", _fact(lambda facts: facts.rewritten_bytes)),
        ("records", "BIGINT", _of_batch(lambda batch: batch.records)),
        ("event_time_first", "TIMESTAMP(3)", _event_time(0)),
        ("event_time_last", "TIMESTAMP(3)", _event_time(1)),
        ("dead_letters", "BIGINT", _of_batch(lambda batch: sum(batch.dead_letters.values()))),
        ("dead_letter_causes", "MAP<STRING, BIGINT>", _of_batch(lambda batch: list(batch.dead_letters.items()))),
        ("broken_rules", "MAP<STRING, BIGINT>", _of_batch(lambda batch: list(batch.broken.items()))),
        ("phases_ms", "MAP<STRING, BIGINT>", _of_batch(lambda batch: list(batch.phases_ms.items()))),
    ),
)


def _placed(value: Callable[[PlacedCompaction], Any]) -> Values:
    return each(lambda one: value(one.placed))


COMPACTIONS: Final = metadata_table(
    "compactions",
    "the compactions of its commits, and why they were made",
    _compactions,
    (
        ("snapshot_id", "BIGINT NOT NULL", each(lambda one: one.commit.snapshot.id)),
        (
            "commit_time",
            "TIMESTAMP(3) NOT NULL",
            lambda store, found: [store.env.wall_clock_ms(one.commit.snapshot.time_ms) for one in found],
        ),
        ("commit_user", "STRING NOT NULL", each(lambda one: one.commit.snapshot.commit_user)),
        ("expired", "BOOLEAN NOT NULL", each(lambda one: one.commit.is_expired)),
        ("reason", "STRING NOT NULL", _placed(lambda one: str(one.facts.reason))),
        ("partition", "STRING", _placed(lambda one: one.partition)),
        ("bucket", "INT", _placed(lambda one: one.bucket)),
        ("buckets", "INT NOT NULL", _placed(lambda one: one.facts.bucket_count)),
        ("from_level", "INT", _placed(lambda one: one.facts.from_level)),
        ("to_level", "INT", _placed(lambda one: one.facts.to_level)),
        ("files_in", "INT NOT NULL", _placed(lambda one: one.facts.files_in)),
        ("files_out", "INT NOT NULL", _placed(lambda one: one.facts.files_out)),
        ("bytes_in", "BIGINT NOT NULL", _placed(lambda one: one.facts.bytes_in)),
        ("bytes_out", "BIGINT NOT NULL", _placed(lambda one: one.facts.bytes_out)),
        ("rows_in", "BIGINT NOT NULL", _placed(lambda one: one.facts.rows_in)),
        ("rows_dropped", "BIGINT NOT NULL", _placed(lambda one: one.facts.rows_in - one.facts.rows_out)),
        ("duration_ms", "BIGINT NOT NULL", _placed(lambda one: one.facts.duration_ms)),
    ),
)
