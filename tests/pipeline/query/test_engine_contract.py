"""What a driver may rely on of any engine (`query.driver.engine`): the same stories on the local one and on Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.local.job import ATTEMPTS_MAX
from freshet.pipeline.local.workers import WorkerDiedError
from freshet.pipeline.query.driver import dead_letters, table_commit
from freshet.pipeline.running.spark_pipeline import spark_runner
from freshet.storage.codec.bucket_function import BucketRule
from freshet.storage.files.data_file_reader import DataFileRead
from tests.kit.engine import FolderWorld, LocalWorld, World, each_batch

PIPELINE = """\
name: orders
sources:
  - files: {path: "FOLDER/in", options: {maxFilesPerTrigger: "1"}}
    format: json
    on_unknown_field: add
table: {warehouse: "FOLDER/w", name: s.t, columns: {id: BIGINT, n: INT}, primary_key: [id], options: {OPTIONS}}
max_dead_letters: {share: 0.9}
trigger: {available_now: true}
checkpoint: "FOLDER/c"
"""
TABLES = {
    "buckets": "bucket: 3",
    "assigners": "bucket: -1, dynamic-bucket.initial-buckets: 2",
    "assigner": "bucket: -1, dynamic-bucket.initial-buckets: 1",
    "lookup": "bucket: 2, changelog-producer: lookup, merge-engine: aggregation, fields.n.aggregate-function: sum",
}

WAITING = {"waiting": "bucket: -2"}


class SparkWorld(FolderWorld):
    """A pipeline on Spark, run by the runner."""

    def __init__(self, root: Path, text: str, spark: Any) -> None:
        super().__init__(root, text)
        self._spark = spark

    def run(self) -> list[Any]:
        """As `World` says."""
        found: list[Any] = []
        runner = spark_runner(self._spark, [self.config], on_progress=lambda progress: found.append(progress.report))
        runner.run()
        return [each for each in found if each is not None]

    def begin_again(self, number: int) -> None:
        """As `World` says."""
        (self.root / "c" / "commits" / str(number)).unlink()
        (self.root / "c" / "commits" / f".{number}.crc").unlink(missing_ok=True)


MakeWorld = Callable[[str], World]


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> MakeWorld:
    """Makes the world of a kind of table."""

    def make(table: str) -> World:
        text = PIPELINE.replace("OPTIONS", (TABLES | WAITING)[table])
        if request.param == "local":
            return LocalWorld(tmp_path / "world", text)
        return SparkWorld(tmp_path / "world", text, request.getfixturevalue("spark"))

    return make


def on_engines(cases: Sequence[str]) -> list[Any]:
    """All cases on the local engine, and on Spark the first; the others are slow there."""
    marks = [pytest.mark.spark, pytest.mark.slow]
    on_spark = [pytest.param("spark", case, marks=marks if number else marks[:1]) for number, case in enumerate(cases)]
    return [*(("local", case) for case in cases), *on_spark]


@pytest.mark.parametrize(("world", "table"), on_engines([*TABLES]), indirect=["world"])
def test_each_batch_is_in_the_table_once_though_it_comes_again(world: MakeWorld, table: str) -> None:
    there = world(table)
    there.put(*({"id": number, "n": 1} for number in range(40)), "no JSON")
    there.put(*({"id": number, "n": 5} for number in range(20, 60)))
    assert list(each_batch(there.run())) == [(0, False), (1, False)]
    wanted = there.rows()
    assert len(wanted) == 60 and len(there.dead()) == 1
    there.begin_again(1)
    assert list(each_batch(there.run())) == [(1, True)]
    assert there.rows() == wanted and len(there.dead()) == 1
    twice = 6 if table == "lookup" else 5
    assert sum(row["n"] for row in wanted) == 20 * 1 + 20 * twice + 20 * 5


def test_rows_that_wait_for_their_bucket_are_with_the_task_of_their_key(world: MakeWorld) -> None:
    there = world("waiting")
    for number in range(2):
        there.put(*({"id": each, "n": number} for each in range(30)), "no JSON")
    assert [each.result.applied for each in there.run()] == [30, 30] and len(there.dead()) == 2
    assert isinstance(there, FolderWorld)
    table, writers = there.table(), defaultdict(set)
    for entry in table.files():
        place = (table.store, entry.partition, entry.bucket, entry.file)
        for batch in DataFileRead(*place, ("id",)).batches():
            for each in batch.column("id").to_pylist():
                writers[each].add(entry.file.file_name.partition("-w-")[0])
    numbers = BucketRule.of(table.schema, table.options).numbers([pa.array(range(30), pa.int64())])
    assert writers == {each: {f"data--u-orders-s-{abs(numbers[each]) % 2}"} for each in range(30)}
    table.compact()
    assert {row["id"]: row["n"] for row in there.rows()} == dict.fromkeys(range(30), 1)


def test_columns_that_come_in_a_batch_are_followed_in_it(world: MakeWorld) -> None:
    there = world("buckets")
    there.put({"id": 1, "n": 1})
    there.put({"id": 2, "n": 2, "city": "Rome"}, {"id": 3, "n": 3})
    there.put({"id": 4, "n": 4, "city": "Oslo", "zip": 7})
    reports = there.run()
    assert [number for number, _ in each_batch(reports)] == [0, 1, 2]
    assert ["new city STRING" in " ".join(each.table_events) for each in reports] == [False, True, False]
    assert [(row["id"], row["city"], row["zip"]) for row in sorted(there.rows(), key=lambda row: row["id"])] == [
        (1, None, None), (2, "Rome", None), (3, None, None), (4, "Oslo", 7),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("world", "where"),
    on_engines(["before the rows", "before the dead letters", "behind the rows"]),
    indirect=["world"],
)
def test_a_driver_that_dies_in_its_commits_leaves_a_batch_that_is_finished_once(
    world: MakeWorld, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = world("lookup")
    there.put({"id": 1, "n": 1})
    there.run()
    there.put({"id": 1, "n": 10}, "no JSON", {"id": 2, "n": 2})
    owner, name = {
        "before the dead letters": (dead_letters.DeadLetterCommit, "commit"),
        "before the rows": (table_commit.TableCommit, "commit"),
        "behind the rows": (table_commit.TableCommit, "commit"),
    }[where]
    call = getattr(owner, name)

    def dying(*arguments: Any, **named: Any) -> Any:
        if where == "behind the rows":
            call(*arguments, **named)
        raise OSError("the driver dies here")

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, dying)
        with pytest.raises((OSError, PipelineFailedError), match="the driver dies here"):
            there.run()
    assert list(each_batch(there.run())) == [(1, where == "behind the rows")]
    assert [(row["id"], row["n"]) for row in there.rows()] == [(1, 11), (2, 2)]
    assert len(there.dead()) == 1


def test_a_batch_of_a_known_number_that_reads_something_else_is_refused(world: MakeWorld) -> None:
    there = world("buckets")
    there.put({"id": 1, "n": 1})
    there.run()
    there.begin_again(0)
    assert isinstance(there, FolderWorld)
    log = there.root / "c" / "sources" / "0" / "0"
    log.write_text(log.read_text().replace('"timestamp":', '"timestamp":1'))
    log.with_name(".0.crc").unlink(missing_ok=True)
    with pytest.raises(Exception, match="read"):
        there.run()


KINDS = {"assigners": ("decode", "stage", "write"), "buckets": ("decode", "write")}
CALLS = [(table, kind) for table, kinds in KINDS.items() for kind in kinds]


@pytest.mark.parametrize(("table", "kind"), CALLS)
def test_a_job_whose_worker_ends_is_run_again_and_its_rows_are_there_once(
    tmp_path: Path, table: str, kind: str
) -> None:
    there = LocalWorld(tmp_path / "world", PIPELINE.replace("OPTIONS", TABLES[table]))
    there.faults.raised += [(kind, WorkerDiedError("a worker was killed"))] * 2
    there.put(*({"id": number, "n": 1} for number in range(50)), "no JSON")
    assert list(each_batch(there.run())) == [(0, False)]
    assert not there.faults.raised
    assert len(there.rows()) == 50 and len(there.dead()) == 1


@pytest.mark.parametrize(("table", "kind"), CALLS)
def test_a_job_that_fails_leaves_the_batch_to_the_next_run(tmp_path: Path, table: str, kind: str) -> None:
    there = LocalWorld(tmp_path / "world", PIPELINE.replace("OPTIONS", TABLES[table]))
    there.put(*({"id": number, "n": 1} for number in range(50)), "no JSON")
    there.faults.raised.append((kind, MemoryError("the worker is killed")))
    with pytest.raises(MemoryError, match="killed"):
        there.run()
    assert there.rows() == [] and there.dead() == []
    assert list(each_batch(there.run())) == [(0, False)]
    assert len(there.rows()) == 50 and len(there.dead()) == 1


def test_a_job_whose_workers_end_again_and_again_fails(tmp_path: Path) -> None:
    there = LocalWorld(tmp_path / "world", PIPELINE.replace("OPTIONS", TABLES["buckets"]))
    there.put({"id": 1, "n": 1})
    there.faults.raised += [("decode", WorkerDiedError("a worker was killed"))] * (2 * ATTEMPTS_MAX)  # of both pieces
    with pytest.raises(WorkerDiedError, match="killed"):
        there.run()
    assert not there.faults.raised
