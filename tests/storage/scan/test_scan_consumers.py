"""What takes the rows of a scan: counting, other libraries, other processes, and readers that stop half-way."""

from __future__ import annotations

import datetime
import gc
import multiprocessing
import pickle
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.scan.table_scan import TableScan
from freshet.storage.table import Table
from tests.kit.frames import frame_library

COLUMNS = {"id": "BIGINT", "v": "INT", "s": "STRING"}


def rows(first: int, count: int, value: int | None = 0) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "v": pa.array([value] * count, pa.int32()),
            "s": [f"s{number}" for number in range(count)],
        }
    )


def filled(folder: Path, keys: list[str], *parts: pa.Table, **options: str) -> Table:
    table = Catalog(str(folder)).create_table("a.b", schema=COLUMNS, primary_keys=keys, options=options)
    for number, part in enumerate(parts):
        with table.writer("test") as writer:
            writer.write(part)
            writer.commit(number)
    return table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    deleted = rows(0, 10).append_column("_ROW_KIND", pa.array(["-D"] * 10))
    return filled(tmp_path, ["id"], rows(0, 1000), rows(500, 1000, 1), deleted, bucket="2")


def _remove_data(table: Table) -> None:
    for file in Path(table.location).rglob("data-*.parquet"):
        file.unlink()


def test_count_is_the_number_of_rows(table: Table) -> None:
    for request in (
        {},
        {"filter": "v = 1"},
        {"filter": "s LIKE 's1%' AND v IS NOT NULL"},
        {"limit": 7},
        {"limit": 10**6},
        {"columns": ["s"], "filter": "id < 100"},
        {"filter": "id = 1.5"},
    ):
        scan = table.scan(**request)  # type: ignore[arg-type]
        assert scan.count() == scan.to_arrow().num_rows, request
    assert table.scan().count() == 1490
    table.compact()
    assert table.scan().count() == 1490


def test_count_from_metadata_reads_no_data(tmp_path: Path) -> None:
    """Append tables, and keyed ones whose keys are unique."""
    append = filled(tmp_path / "append", [], rows(0, 100), rows(0, 100), bucket="-1")
    keyed = filled(tmp_path / "keyed", ["id"], rows(0, 100), rows(50, 100), bucket="2")
    keyed.compact()
    for table, count in ((append, 200), (keyed, 150)):
        _remove_data(table)
        assert table.scan().count() == count
        assert table.scan(limit=120).count() == 120
        assert table.scan(filter="id > 1000").count() == 0


def test_count_by_partition_reads_no_data(tmp_path: Path) -> None:
    columns = {"p": "STRING", "day": "DATE", "at": "TIMESTAMP(3)", "v": "INT"}
    table = Catalog(str(tmp_path)).create_table(
        "a.b", schema=columns, partition_keys=["p", "day", "at"], options={"bucket": "-1"}
    )
    day, at = datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1, 12)
    made = [{"p": p, "day": d, "at": t, "v": 1} for p in ("a", "b", None) for d in (day, None) for t in (at, None)]
    with table.writer("test") as writer:
        writer.write(pa.Table.from_pylist(made, table.arrow_schema))
        writer.commit(1)
    expected = {
        "p = 'a'": 4,
        "p <> 'a'": 4,
        "p LIKE 'a%' OR day IS NULL": 8,
        "NOT (day = DATE '2026-01-01') OR p <=> NULL": 4,
        "at < TIMESTAMP '2026-01-01 12:00:00.0001'": 6,
        "p IN ('b', NULL) AND at IS NOT NULL": 2,
    }
    assert {text: table.scan(filter=text).to_arrow().num_rows for text in expected} == expected
    _remove_data(table)
    assert {text: table.scan(filter=text).count() for text in expected} == expected


def test_half_read_scans_hold_no_threads_of_their_own(table: Table) -> None:
    first = table.scan().to_batches()
    next(first)
    before = set(threading.enumerate())  # threads of earlier tests may end meanwhile
    held = [table.scan().to_batches() for _ in range(20)]
    assert all(next(batches).num_rows for batches in held)
    assert set(threading.enumerate()) <= before
    assert sum(batch.num_rows for batches in [first, *held] for batch in batches) > 0, "each goes on where it was"


@pytest.mark.dear("two million rows")
def test_half_read_scans_close_their_files(tmp_path: Path) -> None:
    table = filled(tmp_path, [], *[rows(0, 500_000)] * 4)

    def open_files() -> int:
        return sum(_target(link).startswith(table.location) for link in Path("/proc/self/fd").iterdir())

    held = [table.scan().to_batches() for _ in range(5)]
    for batches in held:
        next(batches)
    assert open_files() >= 5
    held[0].close()  # type: ignore[attr-defined]
    held.clear()
    del batches
    gc.collect()
    assert open_files() == 0


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""


def test_a_scan_travels_to_another_process(table: Table) -> None:
    scan = table.scan(["s", "id"], "v = 1 AND id < 1400.5", limit=600)
    copied: TableScan = pickle.loads(pickle.dumps(scan))
    with table.writer("later") as writer:
        writer.write(rows(0, 5, 1))
        writer.commit(1)
    assert copied.plan() == scan.plan()
    assert copied.schema == scan.schema
    assert copied.to_arrow() == scan.to_arrow()
    assert [list(copied.read_split(split)) for split in scan.plan()] == [
        list(scan.read_split(split)) for split in scan.plan()
    ]


def test_an_empty_scan_stays_empty_in_another_process(tmp_path: Path) -> None:
    table = filled(tmp_path, ["id"], bucket="1")
    travelling = pickle.dumps(table.scan())
    with table.writer("later") as writer:
        writer.write(rows(0, 5))
        writer.commit(1)
    assert pickle.loads(travelling).count() == 0


def test_options_given_at_opening_travel_too(table: Table) -> None:
    scan = table.with_options({"source.split.target-size": "1 b"}).scan()
    assert pickle.loads(pickle.dumps(scan)).plan() == scan.plan()


def _count_in_child(table: Table, answers: Any) -> None:
    answers.put(sum(batch.num_rows for batch in table.scan().to_batches()))


def test_a_forked_child_reads_with_threads_of_its_own(table: Table) -> None:
    assert sum(batch.num_rows for batch in table.scan().to_batches()) == 1490
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_count_in_child, args=(table, answers))
    child.start()
    child.join(300)
    alive = child.is_alive()
    if alive:
        child.kill()
    assert not alive, "the child waits for threads of its parent"
    assert answers.get() == 1490


@pytest.mark.parametrize("library", ["pandas", "polars", "duckdb"])
def test_a_library_that_is_missing_is_named(table: Table, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InvalidRequestError, match=f"to_{library}\\(\\) needs {library}.*pip install {library}"):
        getattr(table.scan(), f"to_{library}")()


@pytest.mark.parametrize("library", ["polars", "duckdb"])
def test_libraries_are_given_all_rows(table: Table, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, SimpleNamespace(from_arrow=lambda given: ("taken", given)))
    scan = table.scan(["id"], "v = 1")
    assert getattr(scan, f"to_{library}")() == ("taken", scan.to_arrow())


@pytest.mark.parametrize(
    ("library", "rows_of"),
    [
        ("pandas", lambda scan: scan.to_pandas().to_dict("records")),
        ("polars", lambda scan: scan.to_polars().to_dicts()),
        ("duckdb", lambda scan: [dict(zip(("id", "s"), row, strict=True)) for row in scan.to_duckdb().fetchall()]),
    ],
)
def test_rows_in_real_libraries(table: Table, library: str, rows_of: Any) -> None:
    frame_library(library)
    scan = table.scan(["id", "s"], "id < 20")
    found = sorted(rows_of(scan), key=lambda row: row["id"])
    assert found == scan.to_arrow().sort_by("id").to_pylist()


def test_a_date_that_pandas_cannot_hold_is_reported(tmp_path: Path) -> None:
    frame_library("pandas")
    table = Catalog(str(tmp_path)).create_table("d.t", schema={"id": "INT", "day": "DATE"})
    with table.writer("u") as writer:
        writer.write(pa.table({"id": [1, 2], "day": pa.array([3_000_000, 0], pa.date32())}))
        writer.commit()
    with pytest.raises(InvalidRequestError, match=r"cannot be a pandas DataFrame.*10183.*to_arrow\(\)"):
        table.scan().to_pandas()
    assert table.scan(["id"]).to_pandas()["id"].tolist() == [1, 2]
    assert str(table.scan(filter="id = 2").to_pandas()["day"][0]) == "1970-01-01"
