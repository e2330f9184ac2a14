"""Indexes of data files: the bytes are those of Apache Paimon, and each side reads by those of the other."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog
from freshet.storage.codec.file_index import INDEX_SUFFIX, decode_file_index
from freshet.storage.filters.column import col
from freshet.storage.table import Table
from tests.kit.paimon_judge import PaimonJudge

pytestmark = pytest.mark.judge

COLUMNS = {
    "k": "BIGINT",
    "i": "INT",
    "t": "TINYINT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "s": "STRING",
    "day": "DATE",
    "ms": "TIMESTAMP(3)",
    "us": "TIMESTAMP(6)",
}
BITMAPS = [name for name in COLUMNS if name not in ("f", "d")]
OPTIONS = {
    "file-index.bloom-filter.columns": ",".join(COLUMNS),
    "file-index.bitmap.columns": ",".join(BITMAPS),
    **{f"file-index.bloom-filter.{name}.items": "300" for name in COLUMNS},
}
RANGES = {"file-index.range-bitmap.columns": "i,s"}


def given(start: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "k": key,
            "i": key % 7 if key % 5 else None,
            "t": key % 100,
            "f": key / 4,
            "d": -key / 3,
            "s": f"text {key}" * (key % 4),
            "day": dt.date(2026, 1, 1) + dt.timedelta(days=key - 150),
            "ms": dt.datetime(1969, 12, 31) + dt.timedelta(milliseconds=key * 86_400_001),
            "us": dt.datetime(2026, 1, 1) + dt.timedelta(microseconds=key),
        }
        for key in range(start, start + count)
    ]


def indexes(table: Table) -> list[dict[str, dict[str, bytes | None]]]:
    """The containers of all files, in the order of their rows."""
    found = []
    for entry in sorted(table.files(), key=lambda entry: entry.file.min_sequence_number):
        data = entry.file.embedded_index
        if data is None:
            (path,) = Path(table.location).rglob(f"{entry.file.file_name}{INDEX_SUFFIX}")
            data = path.read_bytes()
        found.append(decode_file_index(data))
    return found


def files_read(table: Table, predicate: Any) -> int:
    return sum(len(split.files) for split in table.scan(filter=predicate).plan())


@pytest.mark.parametrize("threshold", ["0 b", "1 mb"])
def test_the_same_rows_give_the_same_bytes(threshold: str, tmp_path: Path, paimon: PaimonJudge) -> None:
    made: dict[str, list[dict[str, dict[str, bytes | None]]]] = {}
    for name in ("ours", "theirs"):
        options = {"bucket": "-1", "file-index.in-manifest-threshold": threshold, **OPTIONS}
        judge = paimon.create_table(tmp_path / "db.db" / name, COLUMNS, options=options)
        table = Catalog(str(tmp_path)).table(f"db.{name}")
        for start in (0, 200, 1000):
            rows = given(start, 100)
            if name == "theirs":
                judge.write(rows)
            else:
                with table.writer("w") as writer:
                    writer.write(rows)
                    writer.commit()
        made[name] = indexes(table)
        for key, count in ((250, 1), (777, 0)):
            predicate = {"column": "k", "is": "=", "value": str(key)}
            assert len(judge.read_rows(["k"], filter=predicate, execute_filter=True)) == count
    for ours, theirs in zip(made["ours"], made["theirs"], strict=True):
        assert ours.keys() == theirs.keys()
        for column, kinds in theirs.items():
            assert ours[column] == kinds, column


def test_scans_go_by_the_indexes_of_apache_paimon(tmp_path: Path, paimon: PaimonJudge) -> None:
    options = {"bucket": "-1", "metadata.stats-mode": "none", **OPTIONS, **RANGES}
    judge = paimon.create_table(tmp_path / "db.db" / "t", COLUMNS, options=options)
    for start in (0, 200, 1000):
        judge.write(given(start, 100))
    table = Catalog(str(tmp_path)).table("db.t")
    for predicate, files in (
        (col("k") == 250, 1),
        (col("s") == "text 1001", 1),
        (col("day") == dt.date(2026, 1, 1), 0),
        (col("us") > dt.datetime(2026, 1, 1, 0, 0, 0, 999), 1),
        (col("ms") == dt.datetime(1969, 12, 31), 1),
        (col("i") == 9, 0),
        (col("i") > 6, 0),
        (col("i").is_null(), 3),
        (col("t") == 50, 3),
    ):
        assert files_read(table, predicate) == files, predicate
    assert table.scan(filter=col("k") == 250).to_arrow().to_pylist() == given(250, 1)


def test_a_keyed_table_is_continued_with_its_indexes(tmp_path: Path, paimon: PaimonJudge) -> None:
    options = {"bucket": "1", "file-index.bloom-filter.columns": "k", "file-index.bloom-filter.k.items": "100"}
    judge = paimon.create_table(
        tmp_path / "db.db" / "t", {"k": "BIGINT", "n": "INT"}, primary_keys=["k"], options=options
    )
    table = Catalog(str(tmp_path)).table("db.t")
    for turn in range(6):
        rows = [{"k": key, "n": turn} for key in range(turn, 60, 6)]
        if turn % 2:
            judge.write(rows)
        else:
            with table.with_options({"write-only": "true"}).writer("w") as writer:
                writer.write(rows)
                writer.commit()
    assert table.scan(filter=col("k") == 13).to_arrow().to_pylist() == [{"k": 13, "n": 1}]
    assert [tuple(row) for row in judge.read_rows() if row[0] == 13] == [(13, 1)]
    judge.compact()
    table.compact(full=True)
    assert len(judge.read_rows()) == 60
    assert all("bloom-filter" in container["k"] for container in indexes(table))
    assert not table.check().damage


def test_no_row_is_lost_by_indexes_of_other_types(tmp_path: Path, paimon: PaimonJudge) -> None:
    """DECIMAL has units in an index, TIMESTAMP(9) microseconds: bounds in them are not those of the values."""
    judge = paimon.create_table(
        tmp_path / "db.db" / "t",
        {"d": "DECIMAL(10, 2)", "t": "TIMESTAMP(9)", "m": "MAP<STRING, INT>"},
        options={
            "bucket": "-1",
            "metadata.stats-mode": "none",
            "file-index.range-bitmap.columns": "d",
            "file-index.bitmap.columns": "t,m[a]",
        },
    )
    instants = pa.array([1_000_100, 1_000_900], pa.int64()).view(pa.timestamp("ns"))
    decimals = pa.array([Decimal("3.07"), Decimal("99.50")], pa.decimal128(10, 2))
    maps = pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32()))
    judge.write(pa.table({"d": decimals, "t": instants, "m": maps}))
    table = Table.open(judge.location)
    between = pa.scalar(1_000_500, pa.timestamp("ns"))
    for predicate in (
        col("d") == Decimal("3.07"),
        col("d") < Decimal(50),
        col("d").is_in([Decimal("99.50")]),
        col("t") < between,
        col("t") > between,
        col("t") == pa.scalar(1_000_900, pa.timestamp("ns")),
    ):
        assert table.scan(filter=predicate).to_arrow().num_rows == 1, predicate
    assert table.with_options({"file-index.read.enabled": "false"}).scan().count() == 2
