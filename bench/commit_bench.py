"""W11: what a commit to one bucket costs in large tables: many live files, partitions and tags.

The tables are metadata only: manifests are written directly, no data file exists. One commit adds a file and compacts
it with that of the commit before, so that it makes an APPEND and a COMPACT snapshot and checks live files.

| figure | what |
|---|---|
| warm | median of the commits of a session that merge no manifests |
| merging | median of those that do |
| cold | opening the table, restoring one bucket and one commit, nothing in memory |
| expiry | what runs after the return of a commit, median |
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.measure import report
from bench.results import Results
from freshet.storage.catalog import Catalog
from freshet.storage.catalogs.claims import WON
from freshet.storage.cleaning.expire import expire_later
from freshet.storage.codec.binary_row import encode_row
from freshet.storage.codec.metadata_json import encode_snapshot
from freshet.storage.commit.committer import Committer
from freshet.storage.io.env import Env
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import EMPTY_ROW, DataFileMeta, FileSource, SimpleStats
from freshet.storage.model.data_type import ScalarType, TypeRoot
from freshet.storage.model.manifest import EntryKind, ManifestEntry
from freshet.storage.model.snapshot import CommitKind, Snapshot

BUCKETS: Final = 4
FIRST_KEY: Final = 1_000_000
SNAPSHOTS: Final = 90_000
FEW: Final[Mapping[str, object]] = {"snapshot.num-retained.min": 1, "snapshot.num-retained.max": 20}
_INT: Final = ScalarType(TypeRoot.INT, nullable=False)
_BIGINT: Final = ScalarType(TypeRoot.BIGINT, nullable=False)


@dataclass(frozen=True, slots=True)
class TableShape:
    """How large the table is; no partitions is an unpartitioned table."""

    files: int
    partitions: int
    tags: int

    @property
    def text(self) -> str:
        """For the table of results."""
        partitions = f"{self.partitions} partitions" if self.partitions else "unpartitioned"
        return f"{self.files:,} files, {partitions}, {self.tags} tags"


@dataclass(frozen=True, slots=True)
class CommitCost:
    """Seconds."""

    warm: float
    merging: float | None
    cold: float
    expiry: float

    @property
    def text(self) -> str:
        """For the table of results."""
        merging = "-" if self.merging is None else f"{1000 * self.merging:.1f}"
        return (
            f"warm {1000 * self.warm:.1f} ms, merging {merging} ms, cold {1000 * self.cold:.0f} ms, "
            f"expiry {1000 * self.expiry:.1f} ms"
        )


class LaterEnv(Env):
    """Runs what follows a commit on request, so that it can be timed."""

    def __init__(self) -> None:
        super().__init__(LocalFileIO())
        self._later: list[Callable[[], None]] = []

    def run_later(self, name: str, work: Callable[[], None]) -> None:
        """Keeps it."""
        self._later.append(work)

    def finish_later(self) -> None:
        """Does it."""
        while self._later:
            self._later.pop(0)()


def commits(results: Results, folder: Path, factor: float) -> None:
    """The whole part."""
    small = TableShape(2_000, 2, 5)
    large = TableShape(int(200_000 * factor), 200, 500)
    costs = {}
    for shape in (small, large, replace(large, partitions=0)):
        costs[shape] = cost_of_commits(folder / "w11", shape)
        shutil.rmtree(folder / "w11")
        report(f"W11 {shape.text}: {costs[shape].text}")
        results.note(f"W11 {shape.text}", costs[shape].text)
    ratio = costs[large].warm / costs[small].warm
    results.note("W11 warm, large to small", f"{ratio:.2f} (at most 1.5)")
    count = int(SNAPSHOTS * factor)
    results.note(f"{count:,} snapshots", many_snapshots(folder / "w11", count))
    shutil.rmtree(folder / "w11")
    seconds = many_partitions(folder / "w11", int(10_000 * factor))
    shutil.rmtree(folder / "w11")
    results.note(f"W11 one commit to {int(10_000 * factor):,} partitions", f"{seconds:.2f} s")


def cost_of_commits(folder: Path, shape: TableShape, count: int = 50) -> CommitCost:
    """Makes the table and commits to one bucket of it."""
    env = LaterEnv()
    location = make_table(folder, env, shape)
    partition = _partition(shape.partitions - 1) if shape.partitions else EMPTY_ROW
    started = time.perf_counter()
    store = open_table_store(env, location)
    files = live_entries(store.manifests, store.snapshots.latest(), bucket_ids=[(partition, 0)])
    writer = _BucketWriter(store, partition, files)
    writer.commit()
    cold = time.perf_counter() - started
    env.finish_later()
    warm, merging, expiry = [], [], []
    for _ in range(count):
        before = _manifest_count(store)
        started = time.perf_counter()
        writer.commit()
        taken = time.perf_counter() - started
        (merging if _manifest_count(store) < before else warm).append(taken)
        started = time.perf_counter()
        env.finish_later()
        expiry.append(time.perf_counter() - started)
    merged = statistics.median(merging) if merging else None
    return CommitCost(statistics.median(warm), merged, cold, statistics.median(expiry))


def many_snapshots(folder: Path, count: int) -> str:
    """What a commit, a reader, expiry and the search for orphans cost among so many snapshots: an hour of 40 ms each.

    They are copies of one; each has a manifest list of its own.
    """
    env = LaterEnv()
    keep = {"snapshot.num-retained.max": 2 * count, "snapshot.num-retained.min": 1}
    location = make_table(folder, env, TableShape(1000, 0, 0), keep)
    store = open_table_store(env, location)
    files = live_entries(store.manifests, store.snapshots.latest(), bucket_ids=[(EMPTY_ROW, 0)])
    Catalog(str(folder), env=env).table("bench.t").scan().plan()  # what it imports
    _BucketWriter(store, EMPTY_ROW, files).commit()  # which notes the last commits of all users
    first = store.snapshots.latest()
    assert first is not None
    for number in range(first.id + 1, count + 1):
        delta, size = store.manifests.write_manifest_list([])
        each = replace(first, id=number, delta_manifest_list=delta, delta_manifest_list_size=size)
        env.file_io.overwrite(store.paths.snapshot(number), encode_snapshot(each), sync=False)
    store.snapshots.write_latest_hint(count)
    store = open_table_store(env, location)
    costs: dict[str, float] = {}

    def timed(name: str, work: Callable[[], object]) -> None:
        started = time.perf_counter()
        work()
        costs[name] = time.perf_counter() - started

    writer = _BucketWriter(store, EMPTY_ROW, files, number=1)
    timed("first commit of a process", writer.commit)
    timed("its expiry, of none", env.finish_later)
    warm = []
    for _ in range(20):
        started = time.perf_counter()
        writer.commit()
        env.finish_later()
        warm.append(time.perf_counter() - started)
    costs["later commits, with expiry"] = statistics.median(warm)
    table = Catalog(str(folder), env=env).table("bench.t")
    timed("start of a scan", lambda: table.scan().plan())
    timed("start of a scan of a moment", lambda: table.scan(timestamp_ms=first.time_ms).plan())
    timed("search for orphans", lambda: table.remove_orphan_files(dry_run=True))
    timed("expiry of half", lambda: table.expire_snapshots(retain_max=count // 2, retain_min=count // 2))
    left = len(table.snapshots())
    return ", ".join(f"{name} {1000 * seconds:,.1f} ms" for name, seconds in costs.items()) + f"; {left:,} left"


def many_partitions(folder: Path, count: int) -> float:
    """Seconds of one commit that adds a file to each of many partitions, in a table that has them already."""
    env = LaterEnv()
    store = open_table_store(env, make_table(folder, env, TableShape(count, count, 0)))
    committer = Committer(store, "loader", after_commit=expire_later)
    messages = [
        CommitMessage(_partition(number), 0, BUCKETS, new_files=(_file(f"new-{number}", 0, number),))
        for number in range(count)
    ]
    started = time.perf_counter()
    committer.commit(0, messages)
    return time.perf_counter() - started


def make_table(folder: Path, env: Env, shape: TableShape, options: Mapping[str, object] = FEW) -> str:
    """A table of this shape in the folder, at one snapshot, which all tags name as well. Returns its location."""
    keys = ["p"] if shape.partitions else []
    table = Catalog(str(folder), env=env).create_table(
        "bench.t",
        schema={"p": "INT NOT NULL", "id": "BIGINT NOT NULL"} if keys else {"id": "BIGINT NOT NULL"},
        primary_keys=[*keys, "id"],
        partition_keys=keys,
        options={"bucket": BUCKETS, **options},
    )
    store, partitions = table.store, max(shape.partitions, 1)
    per_partition = max(shape.files // partitions, 1)
    entries = [
        ManifestEntry(
            EntryKind.ADD,
            _partition(number) if shape.partitions else EMPTY_ROW,
            index % BUCKETS,
            BUCKETS,
            _file(f"{number}-{index}", 5, FIRST_KEY + index),
        )
        for number in range(partitions)
        for index in range(per_partition)
    ]
    manifests = store.manifests.write_manifests(entries)
    base, base_size = store.manifests.write_manifest_list([])
    delta, delta_size = store.manifests.write_manifest_list(manifests)
    now_ms = env.now_ms() - 86_400_000
    snapshot = Snapshot(
        1, 0, base, delta, "maker", 0, CommitKind.APPEND, now_ms, len(entries), len(entries), base_size, delta_size
    )
    assert store.claims.claim_snapshot(snapshot) == WON
    store.snapshots.write_latest_hint(1)
    for number in range(shape.tags):
        env.file_io.overwrite(store.paths.tag(f"t{number}"), encode_snapshot(snapshot), sync=False)
    return table.location


class _BucketWriter:
    """Commits one file and compacts it with that of the commit before."""

    def __init__(self, store: TableStore, partition: bytes, files: list[ManifestEntry], number: int = 0) -> None:
        self._store = store
        self._partition = partition
        self._last: tuple[DataFileMeta, ...] = ()
        self._number = number
        self._key = 2 * FIRST_KEY + len(files) + number

    def commit(self) -> None:
        """The next one."""
        new = _file(f"new-{self._number}", 0, self._key)
        after = _file(f"compacted-{self._number}", 4, self._key)
        message = CommitMessage(
            self._partition,
            0,
            BUCKETS,
            new_files=(new,),
            compact_before=(*self._last, new),
            compact_after=(after,),
        )
        result = Committer(self._store, "loader", after_commit=expire_later).commit(self._number, [message])
        assert len(result.snapshots) == 2, result
        self._last = (after,)
        self._number += 1


def _manifest_count(store: TableStore) -> int:
    latest = store.snapshots.latest()
    assert latest is not None
    return len(store.manifests.read_manifest_list(latest.base_manifest_list, latest.base_manifest_list_size))


def _partition(number: int) -> bytes:
    return encode_row([number], [_INT])


def _file(name: str, level: int, key: int) -> DataFileMeta:
    low = encode_row([key], [_BIGINT])
    return DataFileMeta(
        file_name=f"data-{name}-0.parquet",
        file_size_bytes=1_000_000,
        row_count=1,
        min_key=low,
        max_key=low,
        key_stats=SimpleStats(low, low, (0,)),
        value_stats=SimpleStats(EMPTY_ROW, EMPTY_ROW, ()),
        value_stats_cols=(),
        min_sequence_number=0,
        max_sequence_number=1,
        schema_id=0,
        level=level,
        creation_time_ms=1_700_000_000_000,
        delete_row_count=0,
        file_source=FileSource.APPEND if level == 0 else FileSource.COMPACT,
    )
