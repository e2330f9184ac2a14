"""Reads the facts of a table from its files alone: what `freshet status` shows, and whatever shows tables beside it.

| what | requests to a store |
|---|---|
| at a glance | those of opening it, and three for the newest snapshot |
| in detail | a listing each of snapshots, tags, branches, consumers; the newest `SNAPSHOTS_MAX` snapshots; manifests |
| | of the newest and of `HOLDS_MAX` tags and branches; the history of today where snapshots of this hour expired |

The batches of the pipelines that wrote a table, their rates, event → commit, dead letters, are what its commits say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from freshet.storage.codec.commit_facts import parse_facts
from freshet.storage.compact.bucket_plan import plan_append
from freshet.storage.exceptions import StorageError
from freshet.storage.maintenance.compaction_plan import due_unit, levels_of
from freshet.storage.metadata.live_files import LiveFiles, live_entries
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_facts import BatchFacts
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.model.table_log import log_of
from freshet.storage.options.choices import ChangelogProducer
from freshet.storage.status.table_status import (
    HOUR_MS,
    Batches,
    History,
    Hold,
    LastHour,
    LevelStatus,
    LogStatus,
    NewestCommit,
    TableDetail,
    TableStatus,
)
from freshet.storage.system_tables.commits import Commit

SNAPSHOTS_MAX: Final = 500
"""Snapshots that are looked at, the newest; on a disk ten times as many."""
PASSED_MAX: Final = 16
"""Compactions of other programs that are passed over to find the newest rows."""
HOLDS_MAX: Final = 50
"""Tags, and branches, of which it is computed what they keep, the oldest."""
QUARTER_MS: Final = 15 * 60_000
COMMIT: Final = "commit"
"""The step of a batch that commits its tables."""
_POINTS: Final = np.linspace(0, 1, 21)
"""Where in a batch its records are looked at: those between the first and the last count as spread evenly."""


def observed(store: TableStore, *, detail: bool = True) -> TableStatus:
    """The table now. Raises `NotFoundError` where it was dropped meanwhile."""
    now_ms = store.env.now_ms()
    latest = store.snapshots.latest()
    rows_ms = _newest_rows_ms(store, latest)
    facts = None if latest is None else parse_facts(latest.properties)
    live = None if latest is None or not detail else store.at_latest(store.live.at)
    files, live_bytes = (None, None) if facts is None or facts.live is None else facts.live
    if live is not None:
        sizes = [entry.file.file_size_bytes for entry in live.entries()]
        files, live_bytes = len(sizes), sum(sizes)
    elif latest is None:
        files = live_bytes = 0
    return TableStatus(
        name=store.name,
        observed_ms=now_ms,
        newest=None
        if latest is None
        else NewestCommit(latest.id, latest.time_ms, latest.commit_user, str(latest.commit_kind)),
        freshness_ms=None if rows_ms is None else max(0, now_ms - rows_ms),
        target_ms=store.options.freshness_target_ms,
        rows=0 if latest is None else latest.total_record_count,
        files=files,
        live_bytes=live_bytes,
        detail=_detail(store, latest, live, now_ms) if detail else None,
    )


def _newest_rows_ms(store: TableStore, latest: Snapshot | None) -> int | None:
    """When the newest commit was made that was no compaction: compactions say so, those of others are passed over."""
    snapshot = latest
    for _ in range(PASSED_MAX):
        if snapshot is None or snapshot.commit_kind is not CommitKind.COMPACT:
            break
        facts = parse_facts(snapshot.properties)
        if facts is not None and facts.rows_ms is not None:
            return facts.rows_ms
        before = store.snapshots.known_or_find(snapshot.id - 1)
        if before is None:
            break  # no row is newer than the oldest snapshot
        snapshot = before
    return None if snapshot is None else snapshot.time_ms


def _detail(store: TableStore, latest: Snapshot | None, live: LiveFiles | None, now_ms: int) -> TableDetail:
    ids = store.snapshots.list_ids()
    looked_at = ids[-SNAPSHOTS_MAX:] if store.env.is_remote else ids[-10 * SNAPSHOTS_MAX :]
    found = store.env.looks([partial(_found, store, snapshot_id) for snapshot_id in looked_at])
    newest = [snapshot for snapshot in found if snapshot is not None]
    commits = [Commit(snapshot, parse_facts(snapshot.properties), False) for snapshot in newest]
    is_whole = len(looked_at) == len(ids)
    lately = [*(_expired_lately(store, newest, now_ms) if is_whole else ()), *commits]
    hour = _last_hour(lately, now_ms, HOUR_MS if is_whole else now_ms - newest[0].time_ms)
    log = None if latest is None else log_of(latest.properties, latest.id)
    earliest = _found(store, ids[0]) if ids else None
    return TableDetail(
        levels=_levels(store, live, hour),
        history=History(
            len(ids),
            None if earliest is None else earliest.id,
            None if earliest is None else earliest.time_ms,
            _kept_since(commits, earliest),
        ),
        holds=tuple(_holds(store, live, commits)),
        hour=hour,
        batches=batches_by_user(lately, now_ms),
        log=None
        if log is None
        else LogStatus(log.identity.topic, log.batch, {str(k): v for k, v in log.next_offsets.items()}),
        changelog_behind=_changelog_behind(store, newest),
    )


def _found(store: TableStore, snapshot_id: int) -> Snapshot | None:
    return store.snapshots.known_or_find(snapshot_id)


def _expired_lately(store: TableStore, newest: Sequence[Snapshot], now_ms: int) -> list[Commit]:
    """Commits of the last hour whose snapshots have expired; nothing is read where the snapshots reach back so far."""
    since_ms = now_ms - HOUR_MS
    if not newest or newest[0].id == 1 or newest[0].time_ms < since_ms:
        return []
    gone = store.history.snapshots(since_ms=since_ms)
    there = {snapshot.id for snapshot in newest}
    return [Commit(each, parse_facts(each.properties), True) for each in gone if each.id not in there]


def _last_hour(commits: Iterable[Commit], now_ms: int, span_ms: int) -> LastHour:
    lately = [each for each in commits if each.snapshot.time_ms >= now_ms - HOUR_MS]
    facts = [each.facts for each in lately if each.facts is not None]
    compactions = [placed.facts for each in facts for placed in each.compactions]
    durations = sorted(each.duration_ms for each in facts)
    reasons: Counter[str] = Counter()
    for each in compactions:
        reasons[str(each.reason)] += each.bucket_count
    return LastHour(
        span_ms=min(HOUR_MS, span_ms),
        commits=sum(each.snapshot.commit_kind is not CommitKind.COMPACT for each in lately),
        compactions=sum(each.bucket_count for each in compactions),
        rows_written=sum(map(rows_written, lately)),
        conflicts=sum(each.conflicts for each in facts),
        commit_ms_p50=quantile(durations, 0.5),
        commit_ms_p99=quantile(durations, 0.99),
        compacted_bytes=sum(each.bytes_in for each in compactions),
        compaction_ms=sum(each.duration_ms for each in compactions),
        reasons=dict(reasons),
    )


def rows_written(commit: Commit) -> int:
    """The rows that a commit wrote; of one of another program, which does not say it, how many more the files have."""
    if commit.snapshot.commit_kind is CommitKind.COMPACT:
        return 0
    return max(0, commit.snapshot.delta_record_count) if commit.facts is None else commit.facts.rows_written


def quantile(ordered: Sequence[int], share: float) -> int | None:
    """The value that so large a share of the values does not exceed; None of none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def _levels(store: TableStore, live: LiveFiles | None, hour: LastHour) -> LevelStatus:
    level_0 = runs = backlog = backlog_buckets = waiting = 0
    buckets = {} if live is None else live.by_bucket
    emits, options = _emitted_from(store), store.options
    for (_, bucket), entries in buckets.items():
        files = [entry.file for entry in entries.values()]
        waiting += sum(file.row_count for file in files if file.level < emits)
        if bucket < 0 or not store.schema.has_primary_key:
            total = next(iter(entries.values())).total_buckets
            units = plan_append(files, options, has_buckets=total > 0, full=False) if bucket >= 0 else [tuple(files)]
            due: Sequence[DataFileMeta] = [file for unit in units for file in unit]
            bucket_runs = len(files)
        else:
            levels = levels_of(store, files)
            unit = due_unit(store, levels)
            due = () if unit is None else unit.files
            bucket_runs = levels.run_count
        level_0 = max(level_0, sum(file.level == 0 for file in files))
        runs = max(runs, bucket_runs)
        backlog += sum(file.file_size_bytes for file in due)
        backlog_buckets += bool(due)
    rate = hour.compacted_bytes * 60_000 / max(1, hour.span_ms)
    return LevelStatus(
        buckets=len(buckets),
        level_0_max=level_0,
        runs_max=runs,
        runs_trigger=options.compaction_trigger,
        runs_stop=options.stop_trigger if store.schema.has_primary_key else None,
        backlog_bytes=backlog,
        backlog_buckets=backlog_buckets,
        backlog_minutes=0.0 if not backlog else round(backlog / rate, 1) if rate else None,
        waiting_rows=waiting,
    )


def _emitted_from(store: TableStore) -> int:
    """The level from which on the changes of rows are in the changelog; 0 where none is made by compactions."""
    emits = store.options.changelog_producer.emits
    if not emits.in_compactions or not store.schema.has_primary_key:
        return 0
    return store.options.num_levels - 1 if emits.only_at_highest_level else 1


def _changelog_behind(store: TableStore, newest: Sequence[Snapshot]) -> int | None:
    producer = store.options.changelog_producer
    if producer is ChangelogProducer.NONE or not store.schema.has_primary_key:
        return None
    behind = 0
    for snapshot in reversed(newest):
        if snapshot.changelog_manifest_list is not None:
            break
        behind += snapshot.commit_kind is CommitKind.APPEND
    return behind


def _kept_since(commits: Sequence[Commit], start: Snapshot | None) -> int | None:
    """Bytes that were live at a snapshot or came since, and are not live any more, and those of changelogs from the
    snapshot on; None where that is not noted."""
    if start is None:
        return 0
    since = [each for each in commits if each.snapshot.id > start.id]
    if (commits and since and since[0].snapshot.id > start.id + 1) or any(each.facts is None for each in since):
        return None
    first = parse_facts(start.properties)
    changes = sum(each.changelog_bytes for each in [first, *(each.facts for each in since)] if each is not None)
    return changes + sum(0 if each.facts is None else each.facts.bytes_deleted for each in since)


def _holds(store: TableStore, live: LiveFiles | None, commits: Sequence[Commit]) -> Iterable[Hold]:
    there = {each.snapshot.id: each.snapshot for each in commits}
    files = set() if live is None else {entry.file.file_name for entry in live.entries()}
    made_ms = store.snapshots.tags.made_ms()
    tags = sorted(store.snapshots.tags.all().items(), key=lambda item: item[1].id)
    for number, (name, snapshot) in enumerate(tags):
        kept = _kept_bytes(store, snapshot, files) if number < HOLDS_MAX else None
        yield Hold("tag", name, snapshot.id, made_ms.get(name), kept)
    for number, name in enumerate(store.snapshots.branches() if store.paths.branch_name is None else ()):
        snapshot_of = SnapshotStore(store.env, store.paths.branch(name)).latest() if number < HOLDS_MAX else None
        kept = None if snapshot_of is None else _kept_bytes(store, snapshot_of, files)
        time_ms = None if snapshot_of is None else snapshot_of.time_ms
        yield Hold("branch", name, None if snapshot_of is None else snapshot_of.id, time_ms, kept)
    for consumer in sorted(store.consumers.all(), key=lambda each: each.next_snapshot_id):
        kept = _kept_since(commits, there.get(consumer.next_snapshot_id))
        yield Hold("consumer", consumer.name, consumer.next_snapshot_id, consumer.moved_ms, kept)


def _kept_bytes(store: TableStore, snapshot: Snapshot, live: set[str]) -> int | None:
    try:
        return sum(
            entry.file.file_size_bytes
            for entry in live_entries(store.manifests, snapshot)
            if entry.file.file_name not in live
        )
    except StorageError:
        return None  # of a branch other programs do not keep everything


def batches_by_user(commits: Iterable[Commit], now_ms: int) -> dict[str, Batches]:
    """The batches of every user whose commits say so."""
    users: dict[str, list[tuple[int, BatchFacts]]] = {}
    for each in commits:
        if each.facts is not None and each.facts.batch is not None and each.snapshot.time_ms >= now_ms - HOUR_MS:
            batch = _with_commit(each.facts.batch, each.facts.duration_ms)
            users.setdefault(each.snapshot.commit_user, []).append((each.snapshot.time_ms, batch))
    return {user: _batches(found, now_ms) for user, found in users.items()}


def _with_commit(batch: BatchFacts, commit_ms: int) -> BatchFacts:
    """What a snapshot says of its batch ends before its own commit, which is where a slow store shows."""
    phases = {**batch.phases_ms, COMMIT: batch.phases_ms.get(COMMIT, 0) + commit_ms}
    return replace(batch, phases_ms=phases)


def _batches(found: Sequence[tuple[int, BatchFacts]], now_ms: int) -> Batches:
    lately = [(time_ms, batch) for time_ms, batch in found if time_ms >= now_ms - QUARTER_MS]
    dead: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    phases: Counter[str] = Counter()
    for _, batch in found:
        dead.update(batch.dead_letters)
        broken.update(batch.broken)
    for _, batch in lately:
        phases.update(batch.phases_ms)
    records = sum(batch.records or 0 for _, batch in lately)
    # The records of the first batch came before it was committed.
    span_ms = lately[-1][0] - lately[0][0] if lately else 0
    later = records - (lately[0][1].records or 0) if lately else 0
    p50, p99 = _event_to_commit(lately)
    return Batches(
        batches=len(lately),
        records=records,
        records_per_s=round(later * 1000 / span_ms, 1) if span_ms else None,
        event_to_commit_ms_p50=p50,
        event_to_commit_ms_p99=p99,
        phases_ms={name: round(ms / len(lately)) for name, ms in phases.most_common()},
        dead_letters=dict(dead.most_common()),
        last_ms=max((time_ms for time_ms, _ in found), default=None),
        broken_rules=dict(broken.most_common()),
    )


def _event_to_commit(lately: Sequence[tuple[int, BatchFacts]]) -> tuple[int | None, int | None]:
    known = [(time_ms, batch) for time_ms, batch in lately if batch.event_times_ms and batch.records != 0]
    if not known:
        return None, None
    first, last = np.array([batch.event_times_ms for _, batch in known], np.float64).T
    commits = np.array([time_ms for time_ms, _ in known], np.float64)
    spread = commits[:, None] - (first[:, None] + (last - first)[:, None] * _POINTS)
    weights = np.repeat([float(batch.records or 1) for _, batch in known], len(_POINTS))
    order = np.argsort(spread.ravel())
    shares = np.cumsum(weights[order]) / weights.sum()
    ages = np.maximum(spread.ravel()[order], 0)
    p50, p99 = (int(ages[min(len(ages) - 1, int(np.searchsorted(shares, share)))]) for share in (0.5, 0.99))
    return p50, p99
