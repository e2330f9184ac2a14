"""What a report shows of a table beside its status, from its files alone: curves, levels, history, findings.

The numbers are those of `observe` and of `$commits`; here they are put in order and bounded. Curves say what commits
did over time, in equal parts of a span: pure functions of commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np

from freshet._frozen import Frozen
from freshet.storage.codec.commit_facts import parse_facts
from freshet.storage.maintenance.compaction_plan import levels_of
from freshet.storage.metadata.expired_snapshots import with_history
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_facts import BatchFacts, PlacedCompaction
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.display import rfc3339
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.options.secrets import shown_option, shown_options
from freshet.storage.status.examination import examined
from freshet.storage.status.finding import Finding
from freshet.storage.status.findings import findings
from freshet.storage.status.observe import SNAPSHOTS_MAX, rows_written
from freshet.storage.status.table_status import HOUR_MS, Hold, TableStatus
from freshet.storage.system_tables.commits import Commit

DAY_MS = 24 * HOUR_MS
PARTS_MAX = 240
_LENGTHS = ((HOUR_MS, 60), (DAY_MS, 144))
"""Spans that are shown beside all that is known, with their number of parts."""
_LEAST_MS = 60_000
_SHARES = np.append(np.arange(0, 39) / 40, (0.97, 0.98, 0.99, 0.995, 0.999, 1.0))
_NONE = -1


class Span(Frozen):
    """A span up to now in equal parts, the oldest first; each tuple has a value a part. Times are milliseconds."""

    from_ms: int
    part_ms: float
    freshness_ms: tuple[int | None, ...]
    """The largest age that the newest rows had in the part; None before the first commit that is known."""
    freshness_shares: tuple[tuple[float, int], ...]
    """(share, age): for so large a share of the span the newest rows were not older."""
    commits: tuple[int, ...]
    """Those that were no compactions."""
    compactions: tuple[int, ...]
    """Commits that were compactions."""
    rows: tuple[int, ...]
    """Rows written."""
    records: tuple[int, ...]
    """Of the batches of pipelines."""
    dead_letters: tuple[int, ...]
    conflicts: tuple[int, ...]
    commit_ms: tuple[int | None, ...]
    """The longest commit."""
    event_to_commit_ms: tuple[int | None, ...]
    """From the earliest record of a batch to its commit, the longest."""

    def facts(self) -> dict[str, Any]:
        """The same for JSON. A series without values is left out, one of few values is an object of them by part."""
        found: dict[str, Any] = {"parts": len(self.commits)}
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not isinstance(value, tuple) or name == "freshness_shares":
                found[name] = value
            elif any(value):
                few = {str(part): each for part, each in enumerate(value) if each}
                found[name] = few if 2 * len(few) < len(value) else value
        return found


def spans_of(commits: Sequence[Commit], now_ms: int) -> tuple[Span, ...]:
    """The last hour and the last day where they have commits and are not all that is known, and all; none without a
    commit. `commits` are in order."""
    if not commits:
        return ()
    times = np.array([each.snapshot.time_ms for each in commits], np.int64)
    known_ms = max(_LEAST_MS, now_ms - max(0, int(times.min())))  # no clock shows what was before 1970
    wanted = [each for each in _LENGTHS if each[0] < known_ms and times.max() >= now_ms - each[0]]
    return tuple(_span(commits, times, now_ms, *each) for each in (*wanted, (known_ms, PARTS_MAX)))


def _span(commits: Sequence[Commit], times: np.ndarray, now_ms: int, length_ms: int, parts: int) -> Span:
    from_ms, part_ms = now_ms - length_ms, length_ms / parts
    inside = times >= from_ms
    place = np.clip((times - from_ms) / part_ms, 0, parts - 1).astype(np.int64)
    is_compaction = np.array([each.snapshot.commit_kind is CommitKind.COMPACT for each in commits])

    def total(value: Callable[[Commit], int]) -> tuple[int, ...]:
        found = np.zeros(parts, np.int64)
        np.add.at(found, place[inside], np.array([value(each) for each in commits], np.int64)[inside])
        return tuple(found.tolist())

    def longest(value: Callable[[Commit], int | None]) -> tuple[int | None, ...]:
        given = [value(each) for each in commits]
        found = np.full(parts, _NONE, np.int64)
        np.maximum.at(
            found, place[inside], np.array([_NONE if each is None else each for each in given], np.int64)[inside]
        )
        return _with_none(found)

    ages, shares = _freshness(np.sort(times[~is_compaction]), now_ms, from_ms, part_ms, parts)
    return Span(
        from_ms=from_ms,
        part_ms=part_ms,
        freshness_ms=ages,
        freshness_shares=shares,
        commits=total(lambda each: each.snapshot.commit_kind is not CommitKind.COMPACT),
        compactions=total(lambda each: each.snapshot.commit_kind is CommitKind.COMPACT),
        rows=total(rows_written),
        records=total(lambda each: 0 if (batch := _batch(each)) is None else batch.records or 0),
        dead_letters=total(lambda each: 0 if (batch := _batch(each)) is None else sum(batch.dead_letters.values())),
        conflicts=total(lambda each: 0 if each.facts is None else each.facts.conflicts),
        commit_ms=longest(lambda each: None if each.facts is None else each.facts.duration_ms),
        event_to_commit_ms=longest(_event_to_commit),
    )


def _batch(commit: Commit) -> BatchFacts | None:
    return None if commit.facts is None else commit.facts.batch


def _event_to_commit(commit: Commit) -> int | None:
    batch = _batch(commit)
    if batch is None or batch.event_times_ms is None or batch.records == 0:
        return None
    return max(0, commit.snapshot.time_ms - batch.event_times_ms[0])


def _with_none(found: np.ndarray) -> tuple[int | None, ...]:
    return tuple(None if each == _NONE else each for each in found.tolist())


def _freshness(
    times: np.ndarray, now_ms: int, from_ms: int, part_ms: float, parts: int
) -> tuple[tuple[int | None, ...], tuple[tuple[float, int], ...]]:
    """The age of the newest rows: from each commit on it grows from 0 until the next one."""
    times = times[times <= now_ms]
    if not len(times):
        return (None,) * parts, ()
    # At the end of a part it is the time since the last commit; just before a commit that since the one before it.
    ends = from_ms + part_ms * np.arange(1, parts + 1)
    before = np.searchsorted(times, ends, "right") - 1
    worst = np.where(before >= 0, ends - times[np.maximum(before, 0)], _NONE)
    gaps, at = np.diff(times), times[1:]
    inside = at >= from_ms
    np.maximum.at(worst, np.clip((at - from_ms) / part_ms, 0, parts - 1).astype(np.int64)[inside], gaps[inside])
    return _with_none(np.round(worst).astype(np.int64)), _shares(times, now_ms, from_ms)


def _shares(times: np.ndarray, now_ms: int, from_ms: int) -> tuple[tuple[float, int], ...]:
    """How the age is spread over the span: it takes each value from `low` to `high` of a stretch as long."""
    ends = np.append(times[1:], now_ms)
    seen = ends > max(from_ms, int(times[0]))
    starts, ends = times[seen], ends[seen]
    high, low = ends - starts, np.maximum(from_ms - starts, 0)
    if not high.sum():
        return ()
    ages = np.unique(np.concatenate((low, high)))
    # Of the stretches that reach an age each has spent all it has below it: sums by order, not age by age.
    spent = _spent(high, ages) - _spent(low, ages)
    found = np.interp(_SHARES, spent / spent[-1], ages)
    return tuple(zip(_SHARES.round(3).tolist(), np.round(found).astype(np.int64).tolist(), strict=True))


def _spent(limits: np.ndarray, ages: np.ndarray) -> np.ndarray:
    """The sum of min(limit, age) over the limits, for each age."""
    ordered = np.sort(limits)
    below = np.searchsorted(ordered, ages, "right")
    return np.append(0, np.cumsum(ordered))[below] + ages * (len(ordered) - below)


COMMITS_MAX: Final = 10_000
"""The newest commits of a table that its curves are made of, on a disk; at a store `SNAPSHOTS_MAX`."""
COMMITS_LEAST: Final = 200
"""Of each table of a warehouse, however many the others have."""
HISTORY_DAYS: Final = 7
"""How far back those whose snapshots have expired are read."""
LISTED_MAX: Final = 25
"""Commits, compactions and schemas that are listed, the newest."""
BUCKETS_MAX: Final = 64
"""Buckets whose levels are shown: of most runs, then of most bytes."""
COLUMNS_MAX: Final = 200


class LevelFacts(Frozen):
    """The files of a bucket at one level; of a table without levels it is None."""

    level: int | None
    files: int
    rows: int
    size_bytes: int


class BucketLevels(Frozen):
    """One bucket, its newest level first."""

    partition: str
    bucket: int
    runs: int
    levels: tuple[LevelFacts, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all its live files."""
        return sum(each.size_bytes for each in self.levels)


class ReportedHistory(Frozen):
    """How a table came to be as it is."""

    spans: tuple[Span, ...]
    commits: tuple[Commit, ...]
    """In order; all that the spans are made of."""
    buckets: tuple[BucketLevels, ...]
    """The worst `BUCKETS_MAX`."""
    schemas: tuple[TableSchema, ...]
    """The newest, in order, with one more where there are older ones."""
    holds_ms: tuple[int | None, ...]
    """Of each hold of the status when the snapshot was made that it keeps; None where that is not known."""

    @property
    def compactions(self) -> list[tuple[Commit, PlacedCompaction]]:
        """Every compaction of the commits, in order."""
        return [(each, placed) for each in self.commits if each.facts for placed in each.facts.compactions]


class ReportedTable(Frozen):
    """A table at a moment. Without `history` it is what `TableStatus` says at a glance."""

    status: TableStatus
    findings: tuple[Finding, ...] = ()
    schema: TableSchema | None = None
    history: ReportedHistory | None = None

    def with_arguments(self, text: str) -> ReportedTable:
        """The same, with this behind the commands of its findings."""
        return msgspec.structs.replace(self, findings=tuple(each.with_arguments(text) for each in self.findings))

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns, as far as they are known."""
        return () if self.schema is None else self.schema.column_names

    def facts(self) -> dict[str, Any]:
        """What goes beyond status and findings, for JSON, with secrets hidden."""
        if self.schema is None or self.history is None:
            return {}
        history, schema = self.history, self.schema
        return {
            "spans": [each.facts() for each in history.spans],
            "commit_count": len(history.commits),
            "commits": [_commit_facts(each) for each in reversed(history.commits[-LISTED_MAX:])],
            "reasons": _by_reason(history),
            "compactions": [_compaction_facts(*each) for each in reversed(history.compactions[-LISTED_MAX:])],
            "buckets": [asdict(each) for each in history.buckets],
            "holds": [rfc3339(each) for each in history.holds_ms],
            "schemas": [
                {"id": after.id, "time": rfc3339(after.time_ms), "changes": list(_changes(before, after))}
                for before, after in reversed([*zip((None, *history.schemas), history.schemas, strict=False)])
            ][:LISTED_MAX],
            "columns": [{"name": each.name, "type": str(each.type)} for each in schema.fields[:COLUMNS_MAX]],
            "primary_key": list(schema.primary_keys),
            "partition_by": list(schema.partition_keys),
            "options": shown_options(schema.options),
        }


def reported(store: TableStore, warehouse: str, commits_max: int = COMMITS_MAX) -> ReportedTable:
    """The table now; `warehouse` is the place that commands name. Raises `NotFoundError` where it was dropped."""
    facts = examined(store)
    commits = _commits(store, facts.status.observed_ms, commits_max)
    made_ms = {each.snapshot.id: each.snapshot.time_ms for each in commits}
    tags = store.snapshots.tags.all()
    ids = store.schemas.list_ids()[-LISTED_MAX - 1 :]
    return ReportedTable(
        status=facts.status,
        findings=tuple(findings(facts, warehouse)),
        schema=store.schema,
        history=ReportedHistory(
            spans=spans_of(commits, facts.status.observed_ms),
            commits=tuple(commits),
            buckets=store.at_latest(partial(_buckets, store)),
            schemas=tuple(map(store.schemas.schema, ids)),
            holds_ms=tuple(_held_ms(each, made_ms, tags) for each in facts.detail.holds),
        ),
    )


def _held_ms(hold: Hold, made_ms: Mapping[int, int], tags: Mapping[str, Snapshot]) -> int | None:
    """When the snapshot of a hold was made; of a branch its status says it, ids there are its own."""
    if hold.kind == "branch":
        return hold.since_ms
    if hold.kind == "tag" and hold.name in tags:
        return tags[hold.name].time_ms
    return None if hold.snapshot_id is None else made_ms.get(hold.snapshot_id)


def _commits(store: TableStore, now_ms: int, commits_max: int) -> list[Commit]:
    """The newest, the oldest of them first; the snapshots are looked at first, as by `commits_of`."""
    ids = store.snapshots.list_ids()
    looked_at = ids[-min(commits_max, SNAPSHOTS_MAX if store.env.is_remote else commits_max) :]
    there = store.env.looks([partial(store.snapshots.known_or_find, each) for each in looked_at])
    live = [each for each in there if each is not None]
    is_whole = len(looked_at) == len(ids)
    gone = store.history.snapshots(since_ms=now_ms - HISTORY_DAYS * DAY_MS) if is_whole else []
    found = with_history(gone, live)[-commits_max:]
    return [Commit(snapshot, parse_facts(snapshot.properties), is_expired) for snapshot, is_expired in found]


def _buckets(store: TableStore, snapshot: Snapshot | None) -> tuple[BucketLevels, ...]:
    by_bucket = {} if snapshot is None else store.live.at(snapshot).by_bucket
    found = [
        _bucket(store, store.partition_path(partition), bucket, [entry.file for entry in entries.values()])
        for (partition, bucket), entries in by_bucket.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.runs, -each.size_bytes))[:BUCKETS_MAX])


def _bucket(store: TableStore, partition: str, bucket: int, files: Sequence[DataFileMeta]) -> BucketLevels:
    is_tree = store.schema.has_primary_key and bucket >= 0
    by_level: dict[int | None, list[DataFileMeta]] = {}
    for file in sorted(files, key=lambda each: each.level):
        by_level.setdefault(file.level if is_tree else None, []).append(file)
    return BucketLevels(
        partition=partition,
        bucket=bucket,
        runs=levels_of(store, files).run_count if is_tree else len(files),
        levels=tuple(
            LevelFacts(
                level, len(each), sum(file.row_count for file in each), sum(file.file_size_bytes for file in each)
            )
            for level, each in by_level.items()
        ),
    )


def _commit_facts(commit: Commit) -> dict[str, Any]:
    snapshot, facts = commit.snapshot, commit.facts
    return {
        "snapshot_id": snapshot.id,
        "time": rfc3339(snapshot.time_ms),
        "user": snapshot.commit_user,
        "kind": str(snapshot.commit_kind),
        "expired": commit.is_expired,
        "rows": rows_written(commit),
        "duration_ms": None if facts is None else facts.duration_ms,
        "bytes_added": None if facts is None else facts.bytes_added,
        "tries": None if facts is None else facts.tries,
        "conflicts": None if facts is None else facts.conflicts,
        "conflicts_with": [] if facts is None else list(facts.conflicts_with),
        "records": None if facts is None or facts.batch is None else facts.batch.records,
    }


def _compaction_facts(commit: Commit, placed: PlacedCompaction) -> dict[str, Any]:
    return {
        "snapshot_id": commit.snapshot.id,
        "time": rfc3339(commit.snapshot.time_ms),
        "user": commit.snapshot.commit_user,
        "partition": placed.partition,
        "bucket": placed.bucket,
        **asdict(placed.facts),
        "rows_dropped": placed.facts.rows_in - placed.facts.rows_out,
    }


def _by_reason(history: ReportedHistory) -> list[dict[str, Any]]:
    """What compactions of each reason took together, the most time first."""
    found: dict[str, dict[str, Any]] = {}
    for _, placed in history.compactions:
        facts = placed.facts
        each = found.setdefault(
            str(facts.reason),
            {"reason": str(facts.reason), "compactions": 0, "bytes_in": 0, "bytes_out": 0, "rows_dropped": 0}
            | {"duration_ms": 0},
        )
        each["compactions"] += facts.bucket_count
        each["bytes_in"] += facts.bytes_in
        each["bytes_out"] += facts.bytes_out
        each["rows_dropped"] += facts.rows_in - facts.rows_out
        each["duration_ms"] += facts.duration_ms
    return sorted(found.values(), key=lambda each: -each["duration_ms"])


def _changes(before: TableSchema | None, after: TableSchema) -> Iterator[str]:
    """What a schema changes, in words; columns are known by their ids."""
    if before is None:
        yield f"{len(after.fields)} columns" if after.id == 0 else "the oldest that is shown"
        return
    for field_id, column in after.by_id.items():
        old = before.by_id.get(field_id)
        if old is None:
            yield f"column {column.name} {column.type} added"
            continue
        if old.name != column.name:
            yield f"column {old.name} renamed to {column.name}"
        if str(old.type) != str(column.type):
            yield f"column {column.name}: {old.type} is now {column.type}"
    yield from (f"column {old.name} dropped" for field_id, old in before.by_id.items() if field_id not in after.by_id)
    if list(before.by_id) != list(after.by_id) and before.by_id.keys() == after.by_id.keys():
        yield "the order of columns"
    for key in sorted({*before.options, *after.options}):
        if key not in after.options:
            yield f"option {key} unset"
        elif before.options.get(key) != after.options[key]:
            yield f"option {key} = {shown_option(key, after.options[key])}"
    if before.comment != after.comment:
        yield "the comment"
