"""The command read: the same rows in every format."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from freshet import Catalog
from tests.pipeline.commands.kit import Freshet


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, str]:
    """Two commits: 60 rows, then one of them again."""
    table = Catalog(tmp_path / "w").create_table(
        "shop.orders",
        schema={
            "id": "BIGINT",
            "total": "DECIMAL(10, 2)",
            "note": "STRING",
            "at": "TIMESTAMP(9)",
            "raw": "BYTES",
            "tags": "ARRAY<STRING>",
        },
        primary_keys=["id"],
        options={"bucket": 1},
    )
    count = 60
    rows = {
        "id": list(range(count)),
        "total": [Decimal(n) / 4 for n in range(count)],
        "note": ["line\nbreak \x1b[31m" if n == 0 else f"n{n}" for n in range(count)],
        "at": pa.array([1_772_368_215_250_000_001] * count, pa.timestamp("ns")),
        "raw": [b"\x01\xff"] * count,
        "tags": [["a", "b"] if n else None for n in range(count)],
    }
    with table.writer("loader") as writer:
        writer.write(pa.table(rows, table.arrow_schema))
        writer.commit(1)
        writer.write(
            pa.table({key: values[5:6] for key, values in rows.items()} | {"note": ["new"]}, table.arrow_schema)
        )
        writer.commit(2)
    return tmp_path / "w", "shop.orders"


def test_a_table_is_cut_and_says_so(freshet: Freshet, place: tuple[Path, str]) -> None:
    called = freshet.good("read", *place)
    header, first, *rest = called.out.splitlines()
    assert header.split() == ["id", "total", "note", "at", "raw", "tags"]
    assert len(rest) == 49
    assert "line\\nbreak \\x1b[31m" in first
    assert "NULL" in first
    assert "the first 50 rows; --limit shows more" in called.err
    few = freshet.good("read", *place, "--columns", "note, id", "--limit", "2")
    assert [line.split()[-1] for line in few.out.splitlines()] == ["id", "0", "1"]
    assert freshet.good("read", *place, "--limit", "60").err == ""


def test_a_filter_is_a_condition_in_sql(freshet: Freshet, place: tuple[Path, str]) -> None:
    condition = "total > 1 AND id < 8 AND note <> 'new'"
    lines = freshet.good("read", *place, "--filter", condition, "--format", "json", "--columns", "id").out.splitlines()
    assert [json.loads(line) for line in lines] == [{"id": 6}, {"id": 7}]
    wrong = freshet("read", *place, "--filter", "upper(note) = 'N'")
    assert wrong.code == 2
    assert "upper" in wrong.err.lower()


def test_json_lines(freshet: Freshet, place: tuple[Path, str]) -> None:
    rows = [json.loads(line) for line in freshet.good("read", *place, "--format", "json").out.splitlines()]
    assert [row["id"] for row in rows] == list(range(60))
    assert rows[5] == {
        "id": 5, "total": "1.25", "note": "new", "at": "2026-03-01 12:30:15.250000001", "raw": "Af8=",
        "tags": ["a", "b"],
    }  # fmt: skip
    old = freshet.good("read", *place, "--format", "json", "--snapshot", 1, "--columns", "id,note").out.splitlines()
    assert json.loads(old[5]) == {"id": 5, "note": "n5"}


@pytest.mark.slow
def test_csv_and_arrow_for_programs(freshet: Freshet, place: tuple[Path, str]) -> None:
    csv = freshet.good("read", *place, "--format", "csv", "--limit", "2", "--columns", "id,total,raw,tags")
    assert csv.out.splitlines() == ['"id","total","raw","tags"', '0,0.00,"01ff",', '1,0.25,"01ff","[""a"",""b""]"']
    command = [sys.executable, "-m", "freshet", "read", *map(str, place), "--format", "arrow"]
    rows = pa.ipc.open_stream(subprocess.run(command, capture_output=True, check=True, timeout=600).stdout).read_all()
    assert rows.num_rows == 60
    assert rows.schema.field("at").type == pa.timestamp("ns")


def test_wrong_calls(freshet: Freshet, place: tuple[Path, str]) -> None:
    for arguments, part in (
        (["--columns", "nope"], "nope"),
        (["--limit", "-1"], "--limit"),
        (["--snapshot", "9"], "9"),
        (["--format", "xml"], "--format"),
    ):
        called = freshet("read", *place, *arguments)
        assert called.code == 2, called.err
        assert part in called.err


def test_what_json_has_no_number_for_is_not_null(freshet: Freshet, tmp_path: Path) -> None:
    """NaN and infinities are texts, as in a log, and decimals have all their digits."""
    table = Catalog(tmp_path / "w").create_table(
        "db.t",
        schema={"id": "INT", "f": "FLOAT", "d": "DOUBLE", "n": "DECIMAL(38, 10)", "l": "ARRAY<DOUBLE>"},
        primary_keys=["id"],
        options={"bucket": 1},
    )
    nan, infinite = float("nan"), float("inf")
    with table.writer("loader") as writer:
        writer.write(
            [
                {"id": 1, "f": -infinite, "d": nan, "n": Decimal(0), "l": [nan, 1.5, None]},
                {"id": 2, "f": 0.5, "d": infinite, "n": Decimal("-1E-10"), "l": None},
                {"id": 3},
            ]
        )
        writer.commit()
    called = freshet.good("read", tmp_path / "w", "db.t", "--format", "json")
    assert [json.loads(line) for line in called.out.splitlines()] == [
        {"id": 1, "f": "-Infinity", "d": "NaN", "n": "0.0000000000", "l": ["NaN", 1.5, None]},
        {"id": 2, "f": 0.5, "d": "Infinity", "n": "-0.0000000001", "l": None},
        {"id": 3, "f": None, "d": None, "n": None, "l": None},
    ]
    shown = freshet.good("read", tmp_path / "w", "db.t").out
    assert "0.0000000000" in shown and '["NaN",1.5,null]' in shown
    text = freshet.good("read", tmp_path / "w", "db.t", "--format", "csv", "--columns", "id,n").out
    assert [row["n"] for row in csv.DictReader(io.StringIO(text))] == ["0.0000000000", "-0.0000000001", ""]


def test_dates_that_no_calendar_of_python_has(freshet: Freshet, tmp_path: Path) -> None:
    """Their text, among values that are shown as always."""
    table = Catalog(tmp_path / "w").create_table(
        "db.t",
        schema={
            "id": "INT", "d": "DATE", "t": "TIMESTAMP(6)", "z": "TIMESTAMP_LTZ(3)", "dates": "ARRAY<DATE>",
        },
        primary_keys=["id"],
        options={"bucket": 1},
    )  # fmt: skip
    days = pa.array([90_000_000, -10_000_000, 0, None], pa.int32()).cast(pa.date32())
    columns = {
        "id": [1, 2, 3, 4],
        "d": days,
        "t": pa.array([2**62, -(2**60), 0, None], pa.int64()).cast(pa.timestamp("us")),
        "z": pa.array([2**52, -(2**50), 0, None], pa.int64()).cast(table.arrow_schema.field("z").type),
        "dates": pa.ListArray.from_arrays([0, 0, 2, 3, 3], days[1:]),
    }
    with table.writer("loader") as writer:
        writer.write(pa.table(columns, table.arrow_schema))
        writer.commit(1)
    place = (tmp_path / "w", "db.t")
    lines = [json.loads(line) for line in freshet.good("read", *place, "--format", "json").out.splitlines()]
    assert [line["d"] for line in lines] == ["248381-08-19", "-25410-12-06", "1970-01-01", None]
    assert [line["t"] for line in lines] == [
        "148108-07-06 14:00:27.387904", "-34565-05-17 02:29:53.153024", "1970-01-01T00:00:00", None,
    ]  # fmt: skip
    assert [line["z"][:7] if line["z"] else None for line in lines] == ["144683-", "-33709-", "1970-01", None]
    assert lines[1]["dates"] == ["-25410-12-06", "1970-01-01"]
    assert "248381-08-19" in freshet.good("read", *place).out
    assert "-25410-12-06" in freshet.good("read", *place, "--format", "csv", "--columns", "id,dates").out


def test_far_dates_have_one_form_in_csv_and_json(freshet: Freshet, tmp_path: Path) -> None:
    """In full, also beyond the years that Arrow writes, and inside of other values."""
    columns = {
        "id": "INT",
        "d": "DATE",
        "t": "TIMESTAMP(6)",
        "z": "TIMESTAMP_LTZ(3)",
        "n": "MAP<INT, ROW<d DATE, z TIMESTAMP_LTZ(3)>>",
    }
    table = Catalog(tmp_path / "w").create_table("db.t", schema=columns, options={"bucket": -1})
    day, milliseconds = 90_000_000, 2**52
    rows = [
        {"id": 1, "d": day, "t": 2**62, "z": milliseconds, "n": [(7, {"d": day, "z": milliseconds})]},
        {"id": 2, "d": -800_000, "t": 0, "z": 0, "n": None},
        {"id": 3, "d": None, "t": None, "z": None, "n": None},
    ]
    with table.writer("loader") as writer:
        writer.write(pa.Table.from_pylist(rows, table.arrow_schema))
        writer.commit(1)
    place = (tmp_path / "w", "db.t", "--format")
    lines = [json.loads(line) for line in freshet.good("read", *place, "json").out.splitlines()]
    written = list(csv.DictReader(io.StringIO(freshet.good("read", *place, "csv").out)))
    t, z = "148108-07-06 14:00:27.387904", "144683-05-23 16:29:30.496Z"
    far = {"d": "248381-08-19", "t": t, "z": z}
    assert {name: lines[0][name] for name in far} == {name: written[0][name] for name in far} == far
    assert lines[0]["n"] == json.loads(written[0]["n"]) == [[7, {"d": "248381-08-19", "z": z}]]
    assert lines[1]["d"] == written[1]["d"] == "-0221-09-04"
    assert (written[1]["t"], written[1]["z"]) == ("1970-01-01 00:00:00.000000", "1970-01-01 00:00:00.000Z")
    assert set(written[2].values()) == {"3", ""}


def test_nanoseconds_inside_maps_and_rows(freshet: Freshet, tmp_path: Path) -> None:
    columns = {"id": "INT", "nanos": "MAP<INT, ROW<a TIMESTAMP(9)>>"}
    table = Catalog(tmp_path / "w").create_table("db.t", schema=columns, options={"bucket": -1})
    with table.writer("loader") as writer:
        writer.write(pa.table({"id": [1], "nanos": [[(1, {"a": 1_000_000_001})]]}, table.arrow_schema))
        writer.commit(1)
    for output in ("table", "json", "csv"):
        assert "1970-01-01 00:00:01.000000001" in freshet.good("read", tmp_path / "w", "db.t", "--format", output).out


def test_system_tables(freshet: Freshet, place: tuple[Path, str]) -> None:
    warehouse, table = place
    files = [
        json.loads(line)
        for line in freshet.good("read", warehouse, f"{table}$files", "--format", "json").out.splitlines()
    ]
    opened = Catalog(warehouse).table(table)
    assert [file["record_count"] for file in files] == opened.system("files").scan().to_arrow()[
        "record_count"
    ].to_pylist()
    some = ("--columns", "record_count", "--filter", "bucket = 0", "--snapshot", "1", "--format", "csv")
    assert freshet.good("read", warehouse, f"{table}$files", *some).out == "record_count\n60\n".replace(
        "record_count", '"record_count"'
    )
    header, *rest = freshet.good("read", warehouse, f"{table}$snapshots", "--limit", "1").out.splitlines()
    assert header.split()[:2] == ["snapshot_id", "schema_id"]
    assert len(rest) == 1
    assert "$" not in freshet.good("tables", warehouse).out
    for called, message in (
        (freshet("read", warehouse, f"{table}$nothing"), f"{table}$nothing: there is no system table"),
        (freshet("read", warehouse, f"{table}$tags", "--snapshot", "1"), f"{table}$tags says what there is now"),
        (freshet("compact", warehouse, f"{table}$files"), f"{table}$files is a system table"),
        (freshet("describe", warehouse, f"{table}$files"), f"do that with {table}"),
        (freshet("tail", warehouse, f"{table}$files"), f"{table}$files is a system table"),
    ):
        assert called.code == 2
        assert message in called.err


def test_earlier_rows(freshet: Freshet, place: tuple[Path, str]) -> None:
    table = Catalog(place[0]).table(place[1])
    table.tags.create("first", 1)
    moment = table.snapshots()[0].time_ms
    for asked in (["--tag", "first"], ["--timestamp", moment], ["--snapshot", 1]):
        called = freshet.good("read", *place, "--filter", "id = 5", "--columns", "note", "--format", "csv", *asked)
        if asked[0] != "--timestamp" or table.snapshots()[1].time_ms > moment:
            assert called.out.replace('"', "").split() == ["note", "n5"], asked
    assert "no tag 'last'" in freshet("read", *place, "--tag", "last").err
    assert "committed at or before" in freshet("read", *place, "--timestamp", "2001-01-01T00:00:00Z").err
    assert "says no time zone" in freshet("read", *place, "--timestamp", "2001-01-01").err
