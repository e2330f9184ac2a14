"""Assigners of dynamic buckets and the tasks behind them, without Spark: the shuffles are made by hand."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from freshet.pipeline.decode.outcomes import BUCKET, HEAD_SCHEMA, TAG, TAG_DATA
from freshet.pipeline.query.task.batch_work import TableWork
from freshet.pipeline.query.task.key_task import AssignerTask
from freshet.pipeline.query.task.worker_table_cache import open_worker_table
from freshet.pipeline.query.wire.batch_pin import BatchPin
from freshet.pipeline.query.wire.task_result import TaskResult
from freshet.pipeline.spark.routing import INDEX, POSITION
from freshet.storage.catalog import Catalog
from freshet.storage.codec.binary_row import decode_row
from freshet.storage.codec.bucket_function import BucketRule
from freshet.storage.exceptions import CorruptDataError, OutdatedAssignmentError, RetryableError
from freshet.storage.metadata.hash_index_store import HashIndexStore
from freshet.storage.model.manifest import IndexFileMeta
from freshet.storage.table import Table
from freshet.storage.write import bucket_state, partition_index
from tests.kit.task_runs import at, summed, task_results
from tests.pipeline.query.outcome_rows import data, outcome_table, tally
from tests.storage.write.test_dynamic_buckets import counts

COLUMNS = ("p", "k", "v")


@dataclass
class World:
    """A table, and batches of so many tasks, each partition with so many assigners."""

    table: Table
    tasks: int
    assigners: int
    number: int = 0
    chance: random.Random = field(default_factory=lambda: random.Random(11))

    def run(self, rows: Mapping[tuple[int, int], int], *, as_outcomes: bool = True) -> TaskResult:
        """The job of a batch; rows come to a task in whatever order."""
        return self.written(self.assigned(self._frame(rows, as_outcomes=as_outcomes)))

    def pin(self) -> BatchPin:
        latest = self.table.latest_snapshot()
        return BatchPin(self.number, self.table.schema.id, None, None if latest is None else latest.id)

    def assigned(self, frame: pa.Table, *, pin: BatchPin | None = None) -> list[pa.Table]:
        """What each assigner gives."""
        schema = self.table.schema
        task = AssignerTask(self.table.handle, COLUMNS, self.assigners)
        hashes = frame.column(BUCKET).fill_null(0).to_numpy()
        ways = (self._partition_numbers(frame) + np.abs(np.fmod(hashes, self.assigners))) % self.tasks
        parts, place = [], at(pin or self.pin())
        for number in range(self.tasks):
            rows = frame.filter(pa.array(ways == number))
            order = pa.array(self.chance.sample(range(rows.num_rows), rows.num_rows), pa.int64())
            batches = rows.take(order).combine_chunks().to_batches(max_chunksize=7)
            parts.append(pa.Table.from_batches(task.run(iter(batches), place), schema=frame.schema))
        assert schema == self.table.schema
        return parts

    def written(self, parts: Sequence[pa.Table], *, pin: BatchPin | None = None) -> TaskResult:
        """What the tasks report that write the buckets."""
        rows = pa.concat_tables(parts)
        work, pin = TableWork(self.table.handle, "p", COLUMNS, bucket_count=-1), pin or self.pin()
        buckets = rows.column(BUCKET).fill_null(0).to_numpy()
        ways = (self._partition_numbers(rows) + buckets) % self.tasks
        results = []
        for number in range(self.tasks):
            batches = rows.filter(pa.array(ways == number)).to_batches()
            results += task_results(work, pin, batches)
        return summed(results)

    def commit(self, result: TaskResult) -> None:
        self.table.engine.committer("stream").commit(self.number, result.messages[0])
        self.number += 1

    def _frame(self, rows: Mapping[tuple[int, int], int], *, as_outcomes: bool = True) -> pa.Table:
        if as_outcomes:
            listed = [data(number, p, k, v) for number, ((p, k), v) in enumerate(rows.items())]
            frame = outcome_table(self.table.schema, [*listed, tally(len(rows))])
            is_data = pc.equal(frame.column(TAG), TAG_DATA)
            numbers = self._numbers(rows).tolist()
            hashes = pa.array([numbers.pop(0) if each else None for each in is_data.to_pylist()], pa.int32())
            return frame.set_column(0, HEAD_SCHEMA.field(BUCKET), hashes)
        columns: dict[str, Any] = {
            BUCKET: pa.array(self._numbers(rows)),
            INDEX: pa.nulls(len(rows), pa.binary()),
            POSITION: pa.array(range(len(rows)), pa.int64()),
            "_d0": pa.array([p for p, _ in rows], pa.int32()),
            "_d1": pa.array([k for _, k in rows], pa.int64()),
            "_d2": pa.array(list(rows.values()), pa.int64()),
        }
        return pa.table(columns)

    def _numbers(self, rows: Mapping[tuple[int, int], int]) -> Any:
        rule = BucketRule.of(self.table.schema, self.table.options)
        assert rule.is_assigned
        values = {"p": pa.array([p for p, _ in rows], pa.int32()), "k": pa.array([k for _, k in rows], pa.int64())}
        return rule.numbers([values[name] for name in rule.columns])

    def _partition_numbers(self, frame: pa.Table) -> Any:
        if not self.table.schema.partition_keys:
            return 0
        return 3 * frame.column("_d0").fill_null(0).to_numpy().astype(np.int64)


def create(path: Path, *, partitioned: bool = True, **options: str) -> Table:
    given = {"bucket": "-1", **{key.replace("_", "-"): value for key, value in options.items()}}
    return Catalog(str(path)).create_table(
        "db.t",
        schema={"p": "INT NOT NULL", "k": "BIGINT NOT NULL", "v": "BIGINT"},
        primary_keys=["p", "k"],
        partition_keys=["p"] if partitioned else [],
        options=given,
    )


def found(table: Table) -> dict[tuple[int, int], int]:
    rows = table.scan().to_arrow().to_pylist()
    keyed = {(row["p"], row["k"]): row["v"] for row in rows}
    assert len(keyed) == len(rows), "a key is in two buckets"
    return keyed


@pytest.mark.few(3)
@pytest.mark.parametrize(("tasks", "assigners"), [(1, 1), (4, 2), (4, 4), (3, 2)])
@pytest.mark.parametrize("as_outcomes", [True, False])
@pytest.mark.parametrize("partitioned", [True, False])
def test_batches_of_new_and_known_keys(
    tmp_path: Path, tasks: int, assigners: int, as_outcomes: bool, partitioned: bool
) -> None:
    table = create(tmp_path, partitioned=partitioned, **{"dynamic-bucket.target-row-num": "20"})
    world, expected, chance = World(table, tasks, assigners), dict[tuple[int, int], int](), random.Random(5)
    for batch in range(4):
        rows = {(chance.randrange(2), chance.randrange(60 * (batch + 1))): batch for _ in range(80)}
        world.commit(world.run(rows, as_outcomes=as_outcomes))
        expected |= rows
        assert found(table) == expected
    assert not table.check().damage
    by_partition = counts(table)
    assert sum(sum(each.values()) for each in by_partition) == len(expected)
    assert max(max(each.values()) for each in by_partition) == 20
    assert all(each.keys() >= set(range(assigners)) for each in by_partition), "each assigner begins with a bucket"


def test_another_number_of_assigners_and_a_writer_of_one_process_go_on(tmp_path: Path) -> None:
    table = create(tmp_path, **{"dynamic-bucket.target-row-num": "10"})
    expected: dict[tuple[int, int], int] = {}
    for batch, (tasks, assigners) in enumerate([(4, 4), (2, 2), (6, 3), (1, 1)]):
        world = World(table, tasks, assigners, number=batch)
        rows = {(0, key): batch for key in range(batch * 20, batch * 20 + 50)}
        world.commit(world.run(rows))
        expected |= rows
    with table.writer("alone") as writer:
        rows = {(0, key): 9 for key in range(90, 150)}
        writer.write([{"p": p, "k": k, "v": v} for (p, k), v in rows.items()])
        writer.commit()
    assert found(table) == expected | rows
    assert sum(counts(table)[0].values()) == 150


def test_an_assigner_that_is_computed_again_gives_the_same_buckets(tmp_path: Path) -> None:
    """Rows come in another order, and half of the tasks behind have taken those of the first attempt."""
    table = create(tmp_path, **{"dynamic-bucket.target-row-num": "5"})
    world = World(table, 4, 2)
    world.commit(world.run({(0, key): 0 for key in range(30)}))
    rows = {(p, key): 1 for p in range(2) for key in range(20, 80)}
    first, second = (world.assigned(world._frame(rows)) for _ in range(2))
    world.commit(world.written([first[0], second[1], first[2], second[3]]))
    assert found(table) == {(0, key): 0 for key in range(20)} | rows
    assert [sum(each.values()) for each in counts(table)] == [80, 60]
    assert not table.check().damage


def test_a_batch_is_refused_where_keys_were_added_meanwhile_and_runs_again(tmp_path: Path) -> None:
    table = create(tmp_path)
    world = World(table, 4, 2)
    world.commit(world.run({(p, key): 0 for p in range(2) for key in range(10)}))
    result = world.run({(1, key): 1 for key in range(5, 15)})
    with table.writer("other") as writer:
        writer.write([{"p": 1, "k": 12, "v": 7}])
        writer.commit()
    with pytest.raises(OutdatedAssignmentError, match="partitions p=1"):
        world.commit(result)
    world.commit(world.run({(1, key): 1 for key in range(5, 15)}))
    assert found(table)[1, 12] == 1
    assert len(found(table)) == 25


@pytest.mark.dear("four batches, one of which runs twice")
def test_an_assigner_that_moves_in_each_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process has the indexes of the batch before the last one; a batch is refused, and runs again."""
    table = create(tmp_path, **{"dynamic-bucket.target-row-num": "15"})
    world, expected, chance = World(table, 4, 2), dict[tuple[int, int], int](), random.Random(7)
    processes = [type(bucket_state._process_states)() for _ in range(2)]
    for batch in range(4):
        rows = {(chance.randrange(2), chance.randrange(30 * (batch + 1))): batch for _ in range(60)}
        for attempt in range(2 if batch % 3 == 1 else 1):
            monkeypatch.setattr(bucket_state, "_process_states", processes[(batch + attempt) % 2])
            result = world.run(rows)
            if batch % 3 == 1 and not attempt:
                other = {(p, 10_000 + batch): -1 for p in range(2)}
                with table.writer("other") as writer:
                    writer.write([{"p": p, "k": k, "v": v} for (p, k), v in other.items()])
                    writer.commit()
                expected |= other
                with pytest.raises(OutdatedAssignmentError):
                    world.commit(result)
        world.commit(result)
        expected |= rows
        assert found(table) == expected
    assert sum(sum(each.values()) for each in counts(table)) == len(expected)
    assert max(max(each.values()) for each in counts(table)) == 15
    assert not table.check().damage


class ReadIndexes:
    """Which index files are read."""

    def __init__(self, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
        self._table, self._names = table, list[str]()
        read = HashIndexStore.read

        def counted(store: HashIndexStore, file: IndexFileMeta) -> bytes:
            self._names.append(file.file_name)
            return read(store, file)

        monkeypatch.setattr(HashIndexStore, "read", counted)

    def taken(self) -> list[tuple[int, int]]:
        """Partition and bucket of each file that was read since."""
        names, self._names = self._names, []
        places: dict[str, tuple[int, int]] = {}
        for snapshot in self._table.snapshots():
            for partition, files in self._table.store.hash_indexes.files(snapshot).items():
                (p,) = decode_row(partition, self._table.store.partition_types)
                places |= {file.file_name: (p, bucket) for bucket, file in files.items()}
        return sorted(places[name] for name in names)


def test_indexes_are_warm_from_batch_to_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read are those that others have changed, and those that get new keys, to write them with the keys they had.

    Others are the other assigners too, whose keys may be of this one's share after their number has changed.
    """
    table = create(tmp_path, **{"dynamic-bucket.target-row-num": "10"})
    world, reads = World(table, 4, 2), ReadIndexes(table, monkeypatch)
    known = {(p, key): 0 for p in range(3) for key in range(15)}
    world.commit(world.run(known))
    assert reads.taken() == []
    world.commit(world.run(known))
    assert reads.taken() == [(p, bucket) for p in range(3) for bucket in range(2)], "each assigner that of the other"
    world.commit(world.run(known))
    assert reads.taken() == [], "nothing has changed"
    with table.writer("other") as writer:
        writer.write([{"p": 1, "k": 100, "v": 7}])
        writer.commit()
    reads.taken()
    world.commit(world.run(known))
    ((p, _),) = set(found_again := reads.taken())
    assert (p, len(found_again)) == (1, 2), "of one bucket, by each of two assigners"
    world.commit(world.run(known | {(2, 200): 1}))
    assert [p for p, _ in reads.taken()] == [2], "to add a key to it"
    monkeypatch.setattr(bucket_state, "_process_states", type(bucket_state._process_states)())
    world.commit(world.run({place: 1 for place in known if place[0] == 0}))
    assert set(reads.taken()) == {(0, bucket) for bucket in counts(table)[0]}, "another process knows nothing"


@pytest.mark.dear("more indexes than memory has room for")
def test_the_memory_of_warm_indexes_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no room for a second one, those of other partitions are read again; the buckets are the same."""
    monkeypatch.setattr(partition_index, "INDEX_BYTES_MAX", 1)
    table = create(tmp_path, **{"dynamic-bucket.target-row-num": "10"})
    world, reads = World(table, 4, 2), ReadIndexes(table, monkeypatch)
    expected, chance = dict[tuple[int, int], int](), random.Random(3)
    for batch in range(4):
        rows = {(p, chance.randrange(20 * (batch + 1))): batch for p in range(3) for _ in range(20)}
        world.commit(world.run(rows))
        expected |= rows
        assert found(table) == expected
        warm = bucket_state.process_states(open_worker_table(table.handle).store).indexes
        assert len(warm._values) == 1
    by_partition = counts(table)
    assert sum(sum(each.values()) for each in by_partition) == len(expected)
    assert max(max(each.values()) for each in by_partition) == 10
    reads.taken()
    world.commit(world.run(expected))
    assert {p for p, _ in reads.taken()} >= {0, 1}, "nothing has changed"
    assert not table.check().damage


def test_what_others_add_to_other_partitions_refuses_nothing(tmp_path: Path) -> None:
    table = create(tmp_path)
    world = World(table, 4, 2)
    result = world.run({(1, key): 1 for key in range(5)})
    with table.writer("other") as writer:
        writer.write([{"p": 2, "k": 12, "v": 7}])
        writer.commit()
    world.commit(result)
    assert len(found(table)) == 6


def test_a_batch_that_is_committed_is_only_counted(tmp_path: Path) -> None:
    table = create(tmp_path)
    world = World(table, 4, 2)
    frame = world._frame({(0, key): 1 for key in range(9)})
    pin = replace(world.pin(), is_committed=True)
    result = world.written(world.assigned(frame, pin=pin), pin=pin)
    assert (result.read_count, result.applied, dict(result.messages)) == (9, 9, {})
    assert not list(Path(table.store.paths.index_file("")).parent.glob("index/index-*"))


@pytest.mark.parametrize("as_outcomes", [True, False])
def test_an_error_that_would_come_again_reaches_the_driver(tmp_path: Path, as_outcomes: bool) -> None:
    table = create(tmp_path)
    world = World(table, 2, 2)
    world.commit(world.run({(0, key): 0 for key in range(10)}))
    for path in Path(table.store.paths.index_file("")).parent.rglob("index-*"):
        if path.parent.name == "index":
            path.unlink()
    with pytest.raises(CorruptDataError, match="freshet repair hash-index"):
        world.run({(0, 1): 5}, as_outcomes=as_outcomes)


def test_a_snapshot_that_has_expired_ends_the_batch(tmp_path: Path) -> None:
    """A later one may assign otherwise than an attempt of the same task has."""
    table = create(tmp_path)
    world = World(table, 2, 2)
    world.commit(world.run({(0, 1): 0}))
    pin = world.pin()
    for key in range(2, 4):
        world.commit(world.run({(0, key): 0}))
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**62)
    with pytest.raises(RetryableError, match="has expired"):
        world.assigned(world._frame({(0, 9): 1}), pin=pin)
