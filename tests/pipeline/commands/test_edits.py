"""The commands that change rows and history: what they do, what they say, what they refuse."""

from __future__ import annotations

from datetime import date, datetime, time
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from freshet import Catalog, Table
from tests.pipeline.commands.kit import Freshet

COLUMNS = {"id": "INT", "dt": "STRING", "total": "DECIMAL(10, 2)", "city": "STRING", "at": "TIMESTAMP(3)"}
CSV = 'id,dt,total,city,at\n1,d1,5.50,Ulm,2026-11-22 10:00:00\n2,d1,,Rom,\n3,d2,7,"a,b",2026-11-22 10:00:00.5\n'


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Catalog(tmp_path / "lake").create_table(
        "shop.orders", schema=COLUMNS, primary_keys=["id", "dt"], partition_keys=["dt"], options={"bucket": "2"}
    )
    (tmp_path / "rows.csv").write_text(CSV)
    return made


def held(table: Table) -> list[tuple[object, ...]]:
    rows = Table.open(table.location).scan(["id", "dt", "total", "city"]).to_arrow().sort_by("id").to_pylist()
    return [(row["id"], row["dt"], None if row["total"] is None else float(row["total"]), row["city"]) for row in rows]


FIRST = [(1, "d1", 5.5, "Ulm"), (2, "d1", None, "Rom"), (3, "d2", 7.0, "a,b")]


def test_rows_of_a_file(freshet: Freshet, tmp_path: Path, table: Table) -> None:
    lake = tmp_path / "lake"
    said = freshet.good("append", lake, "shop.orders", tmp_path / "rows.csv").out
    assert said == "3 rows inserted, 2 data files added in 2 partitions, in snapshot 1\n"
    assert held(table) == FIRST
    (tmp_path / "rows.jsonl").write_text('{"id": 2, "dt": "d1", "total": 9.25}\n{"id": 4, "dt": "d1", "total": 1}\n')
    said = freshet.good("upsert", lake, "shop.orders", tmp_path / "rows.jsonl", "--given").out
    assert said.startswith("1 row updated, 1 row inserted, ")
    assert held(table) == [FIRST[0], (2, "d1", 9.25, "Rom"), FIRST[2], (4, "d1", 1.0, None)]
    freshet.good("overwrite", lake, "shop.orders", tmp_path / "rows.csv", "--whole")
    assert held(table) == FIRST


def test_days_and_times_of_json_lines_are_texts(freshet: Freshet, tmp_path: Path) -> None:
    columns = {"id": "INT", "day": "DATE", "at": "TIMESTAMP(3)", "clock": "TIME(3)", "raw": "BYTES"}
    table = Catalog(tmp_path).create_table("shop.days", schema=columns)
    (tmp_path / "rows.jsonl").write_text(
        '{"id": 1, "day": "2026-03-01", "at": "2026-03-01 10:00:00", "clock": "10:00:01.500", "raw": "x"}\n'
        '{"id": 2, "day": null}\n{"id": 3, "day": "1969-12-31"}\n'
    )
    freshet.good("append", tmp_path, "shop.days", tmp_path / "rows.jsonl")
    rows = table.scan().to_arrow().sort_by("id").to_pylist()
    assert [row["day"] for row in rows] == [date(2026, 3, 1), None, date(1969, 12, 31)]
    assert (rows[0]["at"], rows[0]["clock"], rows[0]["raw"]) == (datetime(2026, 3, 1, 10), time(10, 0, 1, 500000), b"x")
    (tmp_path / "rows.jsonl").write_text('{"id": 4, "day": "yesterday"}\n')
    refused = freshet("append", tmp_path, "shop.days", tmp_path / "rows.jsonl")
    assert refused.code == 2
    assert "rows.jsonl" in refused.err and "'day'" in refused.err and "yesterday" in refused.err


@pytest.mark.parametrize("name", ["rows.json", "rows.ndjson", "rows.JSON"])
def test_json_is_an_object_a_line(freshet: Freshet, tmp_path: Path, table: Table, name: str) -> None:
    (tmp_path / name).write_text('{"id": 2, "dt": "d1", "total": 9.25}\n{"id": 4, "dt": "d1"}\n')
    freshet.good("append", tmp_path / "lake", "shop.orders", tmp_path / name)
    assert held(table) == [(2, "d1", 9.25, None), (4, "d1", None, None)]
    (tmp_path / name).write_text('[{"id": 5, "dt": "d1"}]')
    refused = freshet("append", tmp_path / "lake", "shop.orders", tmp_path / name)
    assert refused.code == 2
    assert f"{name} cannot be read as JSON, an object on each line" in refused.err


@pytest.mark.parametrize("lines", [1, 60_000])  # in the first block that is read, and in a later one
def test_a_value_that_does_not_fit_is_named(freshet: Freshet, tmp_path: Path, table: Table, lines: int) -> None:
    good = "".join(f"{number},d1,5.50,somewhere\n" for number in range(lines))
    (tmp_path / "rows.csv").write_text(f"id,dt,total,city\n{good}7,d1,much,Ulm\n")
    refused = freshet("append", tmp_path / "lake", "shop.orders", tmp_path / "rows.csv")
    assert refused.code == 2
    assert "rows.csv" in refused.err and "column 'total'" in refused.err and "much" in refused.err
    assert table.snapshots() == []


@pytest.mark.parametrize(("name", "text"), [("n.csv", "id,n\n1,{}\n"), ("n.jsonl", '{{"id": 1, "n": {}}}\n')])
@pytest.mark.parametrize("number", ["1e-99999999", "9" * 5000])
def test_a_decimal_beyond_all_types_is_refused(
    name: str, text: str, number: str, freshet: Freshet, tmp_path: Path
) -> None:
    """Arrow read the power of ten of the first from beyond its table: the process was gone."""
    schema = pa.schema([("id", pa.int64()), ("n", pa.decimal128(14, 4))])
    Catalog(str(tmp_path / "lake")).create_table("a.n", schema=schema, primary_keys=["id"], options={"bucket": "1"})
    (tmp_path / name).write_text(text.format(number))
    refused = freshet("append", tmp_path / "lake", "a.n", tmp_path / name)
    assert refused.code == 2
    assert name in refused.err


def test_a_text_with_digits_like_an_exponent_is_no_number(freshet: Freshet, tmp_path: Path, table: Table) -> None:
    city = "a0eebc99-9c0b-4ef8-123e-456789012345"
    (tmp_path / "rows.csv").write_text(f"id,dt,total,city\n1,d1,1e-1,{city}\n2,d1,1,12e-45678a\n")
    freshet.good("append", tmp_path / "lake", "shop.orders", tmp_path / "rows.csv")
    assert [row[2:] for row in held(table)] == [(0.1, city), (1.0, "12e-45678a")]


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "orc"])
def test_formats(freshet: Freshet, tmp_path: Path, table: Table, suffix: str) -> None:
    rows = pa.table({"id": pa.array([7], pa.int32()), "dt": ["d1"], "city": ["Köln"]})
    path = tmp_path / f"rows.{suffix}"
    {"parquet": pq.write_table, "arrow": feather.write_feather, "orc": orc.write_table}[suffix](rows, path)
    freshet.good("append", tmp_path / "lake", "shop.orders", path)
    assert held(table) == [(7, "d1", None, "Köln")]


def test_rows_are_updated_and_deleted(freshet: Freshet, tmp_path: Path, table: Table) -> None:
    lake = tmp_path / "lake"
    freshet.good("append", lake, "shop.orders", tmp_path / "rows.csv")
    update = "UPDATE shop.orders SET total = total * 1.333, city = upper(city) WHERE id <> 2"
    said = freshet.good("sql", lake, update, "--dry-run").out
    assert said == "would be: 2 rows updated; nothing was committed\n"
    assert held(table) == FIRST
    freshet.good("sql", lake, update)
    assert held(table) == [(1, "d1", 7.33, "ULM"), FIRST[1], (3, "d2", 9.33, "A,B")]
    facts = freshet.good("sql", lake, "DELETE FROM shop.orders WHERE city = 'Rom'", "--json").facts
    assert (facts["rows_deleted"], facts["snapshots"], facts["dry_run"]) == (1, [3], False)
    assert freshet.good("sql", lake, "DELETE FROM shop.orders WHERE id = 99").out == "nothing changed\n"
    assert [row[0] for row in held(table)] == [1, 3]


def test_rows_of_a_filter_are_replaced(freshet: Freshet, tmp_path: Path, table: Table) -> None:
    lake = tmp_path / "lake"
    freshet.good("append", lake, "shop.orders", tmp_path / "rows.csv")
    (tmp_path / "ulm.jsonl").write_text('{"id": 8, "dt": "d9", "city": "Ulm"}\n')
    where = ("--where", "city = 'Ulm'")
    said = freshet.good("overwrite", lake, "shop.orders", tmp_path / "ulm.jsonl", *where, "--dry-run").out
    assert said == "would be: 1 row deleted, 1 row inserted; nothing was committed\n"
    assert held(table) == FIRST
    facts = freshet.good("overwrite", lake, "shop.orders", tmp_path / "ulm.jsonl", *where, "--json").facts
    assert (facts["rows_deleted"], facts["rows_inserted"]) == (1, 1)
    assert held(table) == [*FIRST[1:], (8, "d9", None, "Ulm")]


def test_merge(freshet: Freshet, tmp_path: Path, table: Table) -> None:
    lake = tmp_path / "lake"
    freshet.good("append", lake, "shop.orders", tmp_path / "rows.csv")
    (tmp_path / "changes.jsonl").write_text(
        '{"id": 1, "dt": "d1", "total": 2, "gone": false}\n{"id": 3, "dt": "d2", "gone": true}\n'
        '{"id": 4, "dt": "d1", "total": 4, "gone": false}\n{"id": 5, "dt": "d1", "gone": true}\n'
    )
    call = (
        "merge", lake, "shop.orders", tmp_path / "changes.jsonl", "--on", "id", "--on", "dt",
        "--when", "matched and source.gone then delete",
        "--when", "matched then update set total = target.total + source.total, city = 'x, then y'",
        "--when", "not matched and not source.gone then insert",
    )  # fmt: skip
    said = freshet.good(*call, "--dry-run").out
    assert said == "would be: 1 row deleted, 1 row updated, 1 row inserted; nothing was committed\n"
    assert held(table) == FIRST
    facts = freshet.good(*call, "--json").facts
    assert (facts["rows_deleted"], facts["rows_updated"], facts["rows_inserted"], facts["snapshots"]) == (1, 1, 1, [2])
    assert held(table) == [(1, "d1", 7.5, "x, then y"), FIRST[1], (4, "d1", 4.0, None)]


def test_partitions_are_dropped_and_history_goes_back(freshet: Freshet, tmp_path: Path, table: Table) -> None:
    lake = tmp_path / "lake"
    freshet.good("append", lake, "shop.orders", tmp_path / "rows.csv")
    drop = "ALTER TABLE shop.orders DROP PARTITION (dt = 'd1')"
    said = freshet.good("sql", lake, drop, "--dry-run").out
    assert said.startswith("would be: ")
    assert "1 partition; nothing was committed" in said
    freshet.good("sql", lake, drop)
    assert held(table) == FIRST[2:]
    assert freshet.good("sql", lake, "TRUNCATE TABLE shop.orders", "--dry-run").out.startswith("would be: ")
    freshet.good("sql", lake, "TRUNCATE TABLE shop.orders")
    assert freshet.good("sql", lake, "TRUNCATE TABLE shop.orders").out == "nothing changed\n"
    facts = freshet.good("rollback", lake, "shop.orders", "--to-snapshot", "2", "--json").facts
    assert facts["snapshots"] == [4]
    assert held(table) == FIRST[2:]
    freshet.good("rollback", lake, "shop.orders", "--undo", "freshet-edit", "1")
    assert held(table) == FIRST
    assert freshet.good("rollback", lake, "shop.orders", "--to-timestamp", "2099-01-01").out == "nothing changed\n"
    said = freshet.good("rollback", lake, "shop.orders", "--to-snapshot", "1", "--delete-newer", "--dry-run").out
    assert said == "would be: snapshots 2 to 5 removed; nothing was committed\n"
    freshet.good("rollback", lake, "shop.orders", "--to-snapshot", "1", "--delete-newer")
    assert [each.id for each in table.snapshots()] == [1]


def test_a_dry_run_is_of_edits_alone(freshet: Freshet, tmp_path: Path, table: Table) -> None:
    lake = tmp_path / "lake"
    freshet.good("append", lake, "shop.orders", tmp_path / "rows.csv")
    of_edits = """
        DELETE FROM shop.orders WHERE id = 1; INSERT OVERWRITE shop.orders SELECT * FROM shop.orders;
        MERGE INTO shop.orders t USING (SELECT 2 AS id, 'd1' AS dt) s ON t.id = s.id AND t.dt = s.dt
        WHEN MATCHED THEN DELETE
    """
    lines = freshet.good("sql", lake, of_edits, "--dry-run").out.splitlines()
    assert [line.split(";")[0] for line in lines[::2]] == ["would be: 1 row deleted"] * 2 and len(lines) == 3
    for other in (
        "ALTER TABLE shop.orders ADD COLUMN note STRING",
        "INSERT INTO shop.orders SELECT * FROM shop.orders",
        "SELECT 1",
    ):
        refused = freshet("sql", lake, f"DELETE FROM shop.orders WHERE id = 1; {other}", "--dry-run")
        assert refused.code == 2 and "a dry run is of DELETE, UPDATE" in refused.err
    assert held(table) == FIRST


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("append", "rows.txt"), "its name does not say"),
        (("append", "nope.csv"), "no file"),
        (("overwrite", "rows.csv", "--partition", "dt=d1"), "dt=d2, which is not replaced"),
        (("overwrite", "rows.csv", "--where", "city = 'Ulm'"), "row 1 of the rows"),
        (("merge", "rows.csv", "--on", "id"), '--when "matched then update"'),
        (("merge", "rows.csv", "--on", "no", "--when", "matched then delete"), "no column 'no'"),
        (("merge", "rows.csv", "--on", "id", "--when", "matched update"), "clauses are such as"),
        (("merge", "rows.csv", "--on", "id", "--when", "matched and s.total = 1 then delete"), "source.column"),
        (("rollback",), "say where to go back to"),
        (("rollback", "--to-snapshot", "1", "--to-tag", "eom"), "once"),
        (("rollback", "--to-timestamp", "yesterday"), "no moment"),
    ],
)
def test_refused(
    freshet: Freshet,
    tmp_path: Path,
    table: Table,
    arguments: tuple[str, ...],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    freshet.good("append", tmp_path / "lake", "shop.orders", tmp_path / "rows.csv")
    called = freshet(arguments[0], tmp_path / "lake", "shop.orders", *arguments[1:])
    assert called.code == 2
    assert words in called.err
    assert held(table) == FIRST
