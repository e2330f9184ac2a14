"""`df.write`, by calling its writer as Spark does, task by task: what the commit gets, and what it refuses."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from freshet import Catalog, InvalidRequestError, Table
from freshet.pipeline.exceptions import InvalidRequestError as RefusedError
from freshet.pipeline.sources import batch_writer
from freshet.pipeline.sources.batch_writer import FreshetWriter, TaskWrote
from freshet.storage.model.snapshot import CommitKind

COLUMNS = {"id": "BIGINT NOT NULL", "day": "STRING", "n": "INT", "s": "BIGINT"}
TYPES = {
    "INT": spark.IntegerType(), "BIGINT": spark.LongType(), "STRING": spark.StringType(), "FLOAT": spark.FloatType(),
    "TIMESTAMP_NTZ": spark.TimestampNTZType(), "DECIMAL": spark.DecimalType(5, 2), "NULL": spark.NullType(),
}  # fmt: skip


def _struct(text: str) -> spark.StructType:
    columns = (column.split() for column in text.split(","))
    return spark.StructType([spark.StructField(name, TYPES[kind]) for name, kind in columns])


STRUCT = _struct("ID BIGINT, day STRING, n INT, s BIGINT")
Row = tuple[int | None, str, int, int]


def _make(folder: Path, options: dict[str, str], keys: Sequence[str] = ("id", "day")) -> Table:
    return Catalog(str(folder)).create_table(
        "db.t", schema=COLUMNS, primary_keys=list(keys), partition_keys=["day"], options=options
    )


def _batch(rows: Sequence[Row]) -> pa.RecordBatch:
    kinds = {"ID": pa.int64(), "day": pa.string(), "n": pa.int32(), "s": pa.int64()}
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    return pa.record_batch(
        {name: pa.array(values, kind) for (name, kind), values in zip(kinds.items(), columns, strict=True)}
    )


def _tasks(writer: FreshetWriter, *tasks: Sequence[Row]) -> list[Any]:
    """What tasks with these rows hand over, in another order than theirs."""
    done = [replace(writer.write(iter([_batch(rows)])), task=number) for number, rows in enumerate(tasks)]  # type: ignore[type-var]
    return done[::-1]


def _save(table: Table, *tasks: Sequence[Row], overwrite: bool = False, dynamic: bool | None = None) -> None:
    writer = FreshetWriter(table, STRUCT, overwrite=overwrite, dynamic=dynamic)
    writer.commit(_tasks(writer, *tasks))


def _held(table: Table) -> list[tuple[Any, ...]]:
    if table.options.has_postponed_buckets:
        table.compact()
    return sorted(tuple(row.values()) for row in table.scan(["id", "day", "n"]).to_arrow().to_pylist())


def _files(table: Table) -> set[str]:
    return {path.name for path in Path(table.location).rglob("*") if path.name.startswith(("data-", "changelog-"))}


DIRECT = {"bucket": "2"}
STAGED = [{"bucket": "-1"}, {"bucket": "-2"}, {"bucket": "2", "changelog-producer": "lookup"}]


@pytest.mark.parametrize("options", [DIRECT, *STAGED, {"bucket": "2", "changelog-producer": "input"}])
def test_rows_of_several_tasks(tmp_path: Path, options: dict[str, str]) -> None:
    table = _make(tmp_path, options)
    _save(table, [(1, "a", 1, 0), (2, "b", 1, 0)], [(3, "a", 1, 0), (4, "b", 1, 0)], [])
    _save(table, [(1, "a", 2, 0)], [(4, "b", 2, 0), (5, "c", 2, 0)])
    want = [(1, "a", 2), (2, "b", 1), (3, "a", 1), (4, "b", 2), (5, "c", 2)]
    assert _held(table) == want
    if options == DIRECT:
        assert {entry.file.level for entry in table.files()} == {0}
    _save(table, [(9, "a", 3, 0)], [(10, "c", 3, 0)], overwrite=True)
    assert _held(table) == [(2, "b", 1), (4, "b", 2), (9, "a", 3), (10, "c", 3)]
    _save(table, [(9, "a", 4, 0)], overwrite=True, dynamic=False)
    assert _held(table) == [(9, "a", 4)]
    kinds = [each.commit_kind for each in table.snapshots() if each.commit_kind is not CommitKind.COMPACT]
    assert kinds == [CommitKind.APPEND, CommitKind.APPEND, CommitKind.OVERWRITE, CommitKind.OVERWRITE]
    count = len(table.snapshots())
    _save(table, [], [])
    assert len(table.snapshots()) == count
    assert table.check().damage == []


def test_a_key_in_two_tasks(tmp_path: Path) -> None:
    """Refused at the commit, with the files gone; within one task, and in other partitions, it is fine."""
    table = _make(tmp_path, DIRECT)
    _save(table, [(1, "a", 1, 0), (1, "a", 2, 0)], [(1, "b", 3, 0)])
    assert _held(table) == [(1, "a", 2), (1, "b", 3)]
    before = _files(table)
    with pytest.raises(InvalidRequestError, match=r"key \{'id': 7\} of partition day=b .*freshet\.write.*sequence"):
        _save(table, [(7, "b", 1, 0), (8, "a", 1, 0)], [(9, "a", 1, 0)], [(7, "b", 1, 5)])
    assert (len(table.snapshots()), _files(table)) == (1, before)


def test_a_key_in_two_tasks_that_a_column_orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.storage.edits.batch_edit.PASS_ROWS", 2)
    table = _make(tmp_path, {"bucket": "1", "sequence.field": "s"})
    rows = [(key, "a", key, 0) for key in range(10)]
    _save(table, [*rows, (50, "a", 2, 9)], [(key, "a", 99, -1) for key in range(10)], [(50, "a", 1, 8)])
    assert _held(table) == [*((key, "a", key) for key in range(10)), (50, "a", 2)]
    with pytest.raises(InvalidRequestError, match=r"key \{'id': 50\}.*the same sequence\.field"):
        _save(table, [(50, "a", 3, 10), (51, "a", 0, 0)], [(50, "a", 4, 10)])


def test_tasks_of_a_table_without_keys_follow_one_another(tmp_path: Path) -> None:
    table = _make(tmp_path, {"bucket": "1", "bucket-key": "id"}, keys=())
    for value in (1, 2):
        _save(table, [(1, "a", value, 0)] * 3, [(2, "a", value, 0)] * 2)
    ranges = sorted((e.file.min_sequence_number, e.file.max_sequence_number) for e in table.files())
    assert ranges == [(0, 2), (3, 4), (5, 7), (8, 9)]
    assert len(_held(table)) == 10


def test_another_writer_between_the_tasks_and_the_commit(tmp_path: Path) -> None:
    """The commit that comes last wins, whoever numbered rows first."""
    table = _make(tmp_path, DIRECT)
    writer = FreshetWriter(table, STRUCT, overwrite=False, dynamic=None)
    tasks = _tasks(writer, [(1, "a", 1, 0), (2, "a", 1, 0)], [(3, "a", 1, 0)])
    for value in range(5):
        table.append([{"id": key, "day": "a", "n": 100 + value, "s": 0} for key in range(6)])
    writer.commit(tasks)
    assert _held(table) == [(0, "a", 104), (1, "a", 1), (2, "a", 1), (3, "a", 1), (4, "a", 104), (5, "a", 104)]
    assert table.check().damage == []


def test_errors_that_the_rows_would_meet_again(tmp_path: Path) -> None:
    """They come as messages, and the files of the other tasks go."""
    for options in (DIRECT, STAGED[0]):
        table = _make(tmp_path / str(options["bucket"]), options)
        writer = FreshetWriter(table, STRUCT, overwrite=False, dynamic=None)
        with pytest.raises(InvalidRequestError, match="part of the primary key"):
            writer.commit(_tasks(writer, [(1, "a", 1, 0)], [(None, "a", 1, 0)]))
        assert not table.snapshots() and not _files(table)


def test_a_task_that_failed_takes_the_files_of_the_others_along(tmp_path: Path) -> None:
    table = _make(tmp_path, DIRECT)
    writer = FreshetWriter(table, STRUCT, overwrite=False, dynamic=None)
    tasks = _tasks(writer, [(1, "a", 1, 0)], [(2, "a", 1, 0)])
    writer.commit(tasks)
    writer.abort(tasks)
    assert len(_held(table)) == 2, "what failed was the commit: its snapshot may be there"
    more = _tasks(FreshetWriter(table, STRUCT, overwrite=False, dynamic=None), [(3, "a", 1, 0)])
    assert len(_files(table)) == 3
    writer.abort([*more, None])
    assert len(_files(table)) == 2


def test_more_rows_than_one_process_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _make(tmp_path, STAGED[0])
    monkeypatch.setattr(batch_writer, "STAGED_ROWS_MAX", 3)
    for tasks in ([[(key, "a", 1, 0) for key in range(4)]], [[(1, "a", 1, 0), (2, "a", 1, 0)]] * 2):
        with pytest.raises(InvalidRequestError, match=r"at most 3 rows.*Nothing was written.*freshet\.write"):
            _save(table, *tasks)
    _save(table, [(1, "a", 1, 0), (2, "a", 1, 0)], [(3, "a", 1, 0)])
    monkeypatch.setattr(batch_writer, "STAGED_BYTES_MAX", 10)
    with pytest.raises(InvalidRequestError, match="freshet.write"):
        _save(table, [(1, "a", 1, 0)])
    assert len(table.snapshots()) == 1


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("day STRING", "lacks id"),
        ("id BIGINT, day STRING, more INT", "has more, which the table does not"),
        ("id STRING, day STRING", "column 'id' of the frame is string"),
        ("id BIGINT, day STRING, n BIGINT", "column 'n' of the frame is bigint"),
        ("id BIGINT, ID BIGINT, day STRING", "which are both 'id'"),
        ("id BIGINT, day STRING, _row_kind INT", "has texts such as"),
    ],
)
def test_frames_that_do_not_fit(tmp_path: Path, columns: str, message: str) -> None:
    for options in (DIRECT, STAGED[0]):
        table = _make(tmp_path / str(options["bucket"]), options)
        with pytest.raises(RefusedError, match=message):
            FreshetWriter(table, _struct(columns), overwrite=False, dynamic=None)


def test_overwrites_of_rows_that_move(tmp_path: Path) -> None:
    table = _make(tmp_path, {"bucket": "-1"}, keys=["id"])
    _save(table, [(1, "a", 1, 0), (2, "a", 1, 0)])
    _save(table, [(1, "b", 2, 0)])
    assert _held(table) == [(1, "b", 2), (2, "a", 1)]
    with pytest.raises(InvalidRequestError, match="dynamic=False"):
        FreshetWriter(table, STRUCT, overwrite=True, dynamic=None)
    _save(table, [(5, "c", 2, 0)], overwrite=True, dynamic=False)
    assert _held(table) == [(5, "c", 2)]


@pytest.mark.parametrize("options", [DIRECT, STAGED[0]])
def test_types_that_spark_carries_as_others(tmp_path: Path, options: dict[str, str]) -> None:
    """And kinds, columns that are missing, values of type NULL."""
    columns = {
        "id": "BIGINT NOT NULL", "fine": "TIMESTAMP(9)", "time": "TIME(3)", "rough": "TIMESTAMP(3)",
        "amount": "DECIMAL(12,4)", "tags": "ARRAY<STRING>", "left": "STRING", "ratio": "DOUBLE",
    }  # fmt: skip
    table = Catalog(str(tmp_path)).create_table("db.t", schema=columns, primary_keys=["id"], options=options)
    given = "id INT, fine TIMESTAMP_NTZ, time BIGINT, rough TIMESTAMP_NTZ, amount DECIMAL, ratio FLOAT, tags NULL"
    struct = _struct(f"{given}, _ROW_KIND STRING")
    writer = FreshetWriter(table, struct, overwrite=False, dynamic=None)
    moment = datetime.datetime(1969, 7, 20, 20, 17, 40, 123456)
    batch = pa.record_batch(
        {
            "id": pa.array([1, 2], pa.int32()),
            "fine": pa.array([moment, None], pa.timestamp("us")),
            "time": pa.array([3661001, None], pa.int64()),
            "rough": pa.array([moment, None], pa.timestamp("us")),
            "amount": pa.array([None, None], pa.decimal128(5, 2)),
            "ratio": pa.array([0.5, None], pa.float32()),
            "tags": pa.nulls(2),
            "_ROW_KIND": pa.array(["+I", "-D"]),
        }
    )
    done = writer.write(iter([batch]))
    assert isinstance(done, TaskWrote) and done.rows == 2
    writer.commit([done])
    (row,) = table.scan().to_arrow().cast(table.arrow_schema).to_pylist()
    assert (row["id"], row["ratio"], row["left"], row["tags"]) == (1, 0.5, None, None)
    assert row["time"] == datetime.time(1, 1, 1, 1000)
    assert row["rough"] == moment.replace(microsecond=123000)
    assert table.scan().to_arrow()["fine"].cast(pa.int64()).to_pylist() == [-14182939876544000]
