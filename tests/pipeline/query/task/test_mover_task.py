"""Movers of tables whose rows move between partitions, and the tasks behind them, without Spark: shuffles by hand."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from freshet.pipeline.decode.outcomes import BUCKET, HEAD_SCHEMA, TAG, TAG_DATA
from freshet.pipeline.query.task.batch_work import TableWork
from freshet.pipeline.query.task.key_task import MoverTask
from freshet.pipeline.query.task.worker_table_cache import open_worker_table
from freshet.pipeline.query.wire.batch_pin import BatchPin
from freshet.pipeline.query.wire.task_result import TaskResult
from freshet.storage.catalog import Catalog
from freshet.storage.codec.bucket_function import BucketRule
from freshet.storage.exceptions import CorruptDataError, OutdatedAssignmentError, RetryableError
from freshet.storage.place_index.index_database import KeyShare
from freshet.storage.place_index.share_index import ShareIndex
from freshet.storage.table import Table
from tests.kit.cache_roots import place_indexes
from tests.kit.task_runs import at, summed, task_results
from tests.pipeline.query.outcome_rows import data, outcome_table, tally

COLUMNS = ("k", "p", "v")
INDEX_DIR = "cross-partition-upsert.index-dir"
Row = tuple[int, int, int]
"""Key, partition, value."""


@dataclass
class World:
    """A table, and batches of so many tasks, with so many shares of the keys; `machine` is where they run."""

    table: Table
    tasks: int
    shares: int
    machine: str
    number: int = 0
    chance: random.Random = field(default_factory=lambda: random.Random(11))

    def run(self, rows: Sequence[Row]) -> TaskResult:
        """The job of a batch; rows come to a task in whatever order, and are of one Kafka partition."""
        return self.written(self.moved(rows))

    def pin(self) -> BatchPin:
        latest = self.table.latest_snapshot()
        return BatchPin(self.number, self.table.schema.id, None, None if latest is None else latest.id)

    def moved(self, rows: Sequence[Row], *, pin: BatchPin | None = None) -> list[pa.Table]:
        """What the mover of each share gives."""
        frame = self._frame(rows)
        task = MoverTask(self._here().handle, COLUMNS, self.shares)
        ways = np.abs(np.fmod(frame.column(BUCKET).fill_null(0).to_numpy(), self.shares))
        parts, place = [], at(pin or self.pin())
        for number in range(self.shares):
            own = frame.filter(pa.array(ways == number))
            order = pa.array(self.chance.sample(range(own.num_rows), own.num_rows), pa.int64())
            batches = own.take(order).combine_chunks().to_batches(max_chunksize=7)
            parts.append(pa.Table.from_batches(task.run(iter(batches), place), schema=frame.schema))
        return parts

    def written(self, parts: Sequence[pa.Table], *, pin: BatchPin | None = None) -> TaskResult:
        """What the tasks report that write the buckets."""
        rows = pa.concat_tables(parts)
        work = TableWork(self._here().handle, "p", COLUMNS, bucket_count=-1, are_moved=True)
        ways = 3 * rows.column("_d1").fill_null(0).to_numpy() + rows.column(BUCKET).fill_null(0).to_numpy()
        results = []
        for number in range(self.tasks):
            batches = rows.filter(pa.array(ways % self.tasks == number)).to_batches()
            results += task_results(work, pin or self.pin(), batches)
        return summed(results)

    def commit(self, result: TaskResult) -> None:
        self.table.engine.committer("stream").commit(self.number, result.messages[0])
        self.number += 1

    def _here(self) -> Table:
        return self.table.with_options({INDEX_DIR: self.machine})

    def _frame(self, rows: Sequence[Row]) -> pa.Table:
        listed = [data(2 * number, k, p, v) for number, (k, p, v) in enumerate(rows)]
        frame = outcome_table(self.table.schema, [*listed, tally(len(rows))])
        rule = BucketRule.of(self.table.schema, self.table.options)
        assert rule.columns == ("k",)
        numbers = rule.numbers([pa.array([k for k, _, _ in rows], pa.int64())]).tolist()
        is_data = pc.equal(frame.column(TAG), TAG_DATA).to_pylist()
        hashes = pa.array([numbers.pop(0) if each else None for each in is_data], pa.int32())
        return frame.set_column(0, HEAD_SCHEMA.field(BUCKET), hashes)


def create(path: Path, **options: str) -> Table:
    given = {"dynamic-bucket.target-row-num": "15", **{key.replace("_", "-"): value for key, value in options.items()}}
    return Catalog(str(path / "lake")).create_table(
        "db.t",
        schema={"k": "BIGINT NOT NULL", "p": "INT NOT NULL", "v": "BIGINT"},
        primary_keys=["k"],
        partition_keys=["p"],
        options=given,
    )


def world(path: Path, tasks: int, shares: int, **options: str) -> World:
    return World(create(path, **options), tasks, shares, str(path / "index-0"))


def found(table: Table) -> dict[int, tuple[int, int]]:
    rows = table.scan().to_arrow().to_pylist()
    keyed = {row["k"]: (row["p"], row["v"]) for row in rows}
    assert len(keyed) == len(rows), "a key is in two places"
    return keyed


def some_rows(chance: random.Random, count: int, keys: int) -> list[Row]:
    """Also several of one key."""
    return [(chance.randrange(keys), chance.randrange(3), chance.randrange(100)) for _ in range(count)]


def folded(rows: Sequence[Row]) -> Mapping[int, tuple[int, int]]:
    return {k: (p, v) for k, p, v in rows}


def slots(machine: str) -> list[str]:
    return sorted(path.name for path in place_indexes(machine).glob("*/*.rocks"))


@pytest.mark.few(1)
@pytest.mark.parametrize(("tasks", "shares"), [(1, 1), (4, 2), (3, 3)])
def test_batches_of_new_and_known_keys(tmp_path: Path, tasks: int, shares: int) -> None:
    batches, expected, chance = world(tmp_path, tasks, shares), dict[int, tuple[int, int]](), random.Random(5)
    for batch in range(4):
        rows = some_rows(chance, 80, 60 * (batch + 1))
        result = batches.run(rows)
        assert (result.read_count, result.applied) == (80, 80), "a key that moves is one row that came"
        batches.commit(result)
        expected |= folded(rows)
        assert found(batches.table) == expected
    assert slots(batches.machine) == [f"{number}-of-{shares}-0.rocks" for number in range(shares)]
    assert not batches.table.check().damage


@pytest.mark.dear("four batches, one of which runs twice")
def test_a_mover_that_runs_on_another_machine_in_each_batch(tmp_path: Path) -> None:
    """Each has the indexes of the batch before the last one; a batch is refused, and runs again."""
    batches, expected, chance = world(tmp_path, 4, 2), dict[int, tuple[int, int]](), random.Random(7)
    for batch in range(4):
        rows = some_rows(chance, 60, 40 * (batch + 1))
        is_refused = batch % 3 == 1
        for attempt in range(2 if is_refused else 1):
            batches.machine = str(tmp_path / f"index-{(batch + attempt) % 2}")
            result = batches.run(rows)
            if is_refused and not attempt:
                other = [(rows[0][0], (rows[0][1] + 1) % 3, -1), (10_000 + batch, 0, -1)]
                with batches.table.with_options({INDEX_DIR: str(tmp_path / "other")}).writer("other") as writer:
                    writer.write([{"k": k, "p": p, "v": v} for k, p, v in other])
                    writer.commit()
                expected |= folded(other)
                with pytest.raises(OutdatedAssignmentError, match="another writer has committed rows"):
                    batches.commit(result)
        batches.commit(result)
        expected |= folded(rows)
        assert found(batches.table) == expected
    for machine in range(2):
        assert slots(str(tmp_path / f"index-{machine}")) == ["0-of-2-0.rocks", "1-of-2-0.rocks"]
    assert not batches.table.check().damage


@contextmanager
def others_open(batches: World) -> Iterator[None]:
    """Another executor of the machine has the indexes of all shares open."""
    store = batches.table.with_options({INDEX_DIR: batches.machine}).store
    latest = store.snapshots.latest()
    indexes = [ShareIndex(store, latest, KeyShare(number, batches.shares)) for number in range(batches.shares)]
    try:
        yield
    finally:
        for index in indexes:
            index.close()


@pytest.mark.dear("two executors with indexes of their own")
def test_two_executors_of_a_machine_with_the_same_share(tmp_path: Path) -> None:
    """An attempt that Spark has given up may still run: the next one takes another slot, and either may go on later."""
    batches, expected, chance = world(tmp_path, 4, 2), dict[int, tuple[int, int]](), random.Random(3)
    for batch in range(6):
        rows = some_rows(chance, 50, 100)
        if batch % 2:
            with others_open(batches):
                result = batches.run(rows)
            assert slots(batches.machine) == [f"{share}-of-2-{slot}.rocks" for share in range(2) for slot in range(2)]
        else:
            result = batches.run(rows)
        batches.commit(result)
        expected |= folded(rows)
        assert found(batches.table) == expected


@pytest.mark.parametrize("is_elsewhere", [pytest.param(False, marks=pytest.mark.slow), True])
def test_outputs_of_two_attempts_are_mixed(tmp_path: Path, is_elsewhere: bool) -> None:
    """Rows come in another order, and to a machine without an index; half of the tasks have taken the first attempt."""
    batches, chance = world(tmp_path, 4, 4), random.Random(1)
    before = some_rows(chance, 60, 40)
    batches.commit(batches.run(before))
    rows = some_rows(chance, 200, 90)
    first = batches.moved(rows)
    if is_elsewhere:
        batches.machine = str(tmp_path / "index-1")
    second = batches.moved(rows)
    assert [_sorted(part) for part in first] == [_sorted(part) for part in second]
    batches.commit(batches.written([first[0], second[1], first[2], second[3]]))
    assert found(batches.table) == {**folded(before), **folded(rows)}
    assert not batches.table.check().damage


def _sorted(part: pa.Table) -> list[str]:
    return sorted(str(row) for row in part.to_pylist())


def test_a_batch_is_refused_where_rows_were_written_meanwhile_and_runs_again(tmp_path: Path) -> None:
    batches = world(tmp_path, 4, 2)
    batches.commit(batches.run([(key, key % 3, 0) for key in range(20)]))
    rows = [(key, (key + 1) % 3, 1) for key in range(10, 30)]
    result = batches.run(rows)
    with batches.table.with_options({INDEX_DIR: str(tmp_path / "other")}).writer("other") as writer:
        writer.write([{"k": 25, "p": 0, "v": 7}, {"k": 1, "p": 2, "v": 7}])
        writer.commit()
    with pytest.raises(OutdatedAssignmentError):
        batches.commit(result)
    batches.commit(batches.run(rows))
    assert found(batches.table) == {**folded([(key, key % 3, 0) for key in range(20)]), 1: (2, 7), **folded(rows)}


def test_a_batch_that_is_committed_is_only_counted(tmp_path: Path) -> None:
    batches = world(tmp_path, 4, 2)
    pin = replace(batches.pin(), is_committed=True)
    result = batches.written(batches.moved([(key, 0, 1) for key in range(9)], pin=pin), pin=pin)
    assert (result.read_count, result.applied, dict(result.messages)) == (9, 9, {})
    assert not slots(batches.machine)


@pytest.mark.parametrize("is_indexed", [False, True])
@pytest.mark.parametrize("is_warm", [False, True])
def test_a_snapshot_that_has_expired_ends_the_batch(tmp_path: Path, is_warm: bool, is_indexed: bool) -> None:
    """A later one may place rows otherwise than an attempt of the same task has. A warm worker still knows the
    snapshot, and misses its files."""
    batches = world(tmp_path, 2, 2)
    batches.commit(batches.run([(1, 0, 0)]))
    pin = batches.pin()
    batches.moved([(9, 1, 1)], pin=pin)
    for key in range(2, 4):
        batches.commit(batches.run([(key, 0, 0)]))
    batches.table.compact(full=True)
    batches.table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**62)
    if not is_indexed:
        shutil.rmtree(batches.machine)
    if not is_warm:
        batches.table = Catalog(str(tmp_path / "lake")).table("db.t")
        open_worker_table.cache_clear()
    with pytest.raises(RetryableError, match="has expired"):
        batches.moved([(9, 1, 1)], pin=pin)


def test_a_file_that_is_lost_is_no_reason_to_run_the_batch_again(tmp_path: Path) -> None:
    batches = world(tmp_path, 2, 2)
    batches.commit(batches.run([(key, 0, 0) for key in range(9)]))
    shutil.rmtree(batches.machine)
    for path in Path(batches.table.location).rglob("data-*.parquet"):
        path.unlink()
    with pytest.raises(CorruptDataError, match="file that is missing"):
        batches.run([(1, 1, 1)])
