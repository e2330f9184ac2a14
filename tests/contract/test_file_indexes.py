"""Indexes of data files: the bytes are those of Apache Paimon, and each side reads by those of the other."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog
from freshet.storage.codec.bitmap_index import BitmapIndex
from freshet.storage.codec.file_index import INDEX_SUFFIX, decode_file_index
from freshet.storage.codec.index_keys import KeyForm
from freshet.storage.codec.range_bitmap import can_have_range_bitmap
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.files.data_file_writer import new_index
from freshet.storage.filters.column import col
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.data_type import ScalarType, parse_data_type
from freshet.storage.options.named_columns import IndexedColumn
from freshet.storage.table import Table
from tests.contract.cases import EVERY_TYPE, any_value, arrow_rows
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


NO_HASH = ("BOOLEAN", "DECIMAL")
NO_BITMAP = ("BINARY", "VARBINARY", "BYTES", "DECIMAL")
NO_RANGE = ("BINARY", "VARBINARY", "BYTES")
NESTED = ("ARRAY", "MAP", "ROW")


def taken(kind: str, without: tuple[str, ...]) -> bool:
    return not kind.startswith((*without, *NESTED))


def in_range(kind: str) -> bool:
    return taken(kind, NO_RANGE) and can_have_range_bitmap(parse_data_type(kind))


def test_bytes_of_every_type(paimon: PaimonJudge, tmp_path: Path) -> None:
    columns = {name: kind for name, kind in EVERY_TYPE.items() if taken(kind, ())}
    kinds = {
        "bloom-filter": [name for name, kind in columns.items() if taken(kind, NO_HASH)],
        "bitmap": [name for name, kind in columns.items() if taken(kind, NO_BITMAP)],
        "range-bitmap": [name for name, kind in columns.items() if in_range(kind)],
    }
    options = {f"file-index.{kind}.columns": ",".join(names) for kind, names in kinds.items()}
    options |= {f"file-index.bloom-filter.{name}.items": "500" for name in kinds["bloom-filter"]}
    options |= {"bucket": "-1", "file-index.in-manifest-threshold": "100 mb"}
    judge = paimon.create_table(tmp_path / "db.db" / "t", columns, options=options)
    chance = random.Random(7)
    rows = [
        {name: None if chance.random() < 0.2 else any_value(chance, kind) for name, kind in columns.items()}
        for _ in range(400)
    ]
    rows += rows[:100]
    judge.write(arrow_rows(rows, columns))
    table = Table.open(judge.location)
    held, (containers,) = table.scan().to_arrow(), indexes(table)
    for column, kinds_of_column in containers.items():
        data_type = parse_data_type(columns[column])
        for kind, theirs in kinds_of_column.items():
            option = IndexedColumn(kind, column, {"items": "500"})
            assert isinstance(data_type, ScalarType)
            ours = new_index(option, data_type)
            ours.add(held.column(column))
            data = ours.encode()
            if kind != "bitmap":
                assert data == theirs, (column, kind)
                continue
            # Bitmaps come in the order of a hash table there.
            form = KeyForm.of(data_type)
            assert form is not None
            assert data is not None
            assert theirs is not None
            assert len(data) == len(theirs)
            mine, other = BitmapIndex(form, data), BitmapIndex(form, theirs)
            keys = form.keys(held.column(column).combine_chunks().drop_null())
            for key in set(keys.to_pylist() if isinstance(keys, pa.Array) else keys.tolist()):
                assert mine.rows_with([key]) == other.rows_with([key]) != set()
            assert mine.nulls == other.nulls


WHERE = {"in the manifest": "1 mb", "beside": "1 b"}
LOOKED_UP = {"k": "BIGINT NOT NULL", "s": "STRING", "n": "INT", "d": "DECIMAL(10, 2)"}
ALL_KINDS = {
    "file-index.bloom-filter.columns": "k,s",
    "file-index.bloom-filter.k.items": "200",
    "file-index.bloom-filter.k.fpp": "0.001",
    "file-index.bloom-filter.s.items": "200",
    "file-index.bloom-filter.s.fpp": "0.001",
    "file-index.bitmap.columns": "s",
    "file-index.range-bitmap.columns": "n,d",
    "metadata.stats-mode": "none",
}
FILTERS = [
    col("k") == 205,
    col("s") == "s207",
    col("s").is_in(["s1", "s409", "nowhere"]),
    col("n") > 497,
    (col("n") >= 150) & (col("n") < 160),
    col("d") == Decimal("3.07"),
    col("s").is_null() & (col("n") == 111),
    ~(col("n") < 495) | (col("s") == "s3"),
]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the data files that scans open."""
    names: list[str] = []

    def noting(store: TableStore, partition: bytes, bucket: int, file: DataFileMeta, *rest: Any, **more: Any) -> Any:
        names.append(file.file_name)
        return DataFileRead(store, partition, bucket, file, *rest, **more)

    monkeypatch.setattr("freshet.storage.scan.split_reader.DataFileRead", noting)
    return names


def rows_of(commit: int) -> pa.Table:
    """Keys that lie among each other: every file has the range of all."""
    numbers = [100 * commit + at for at in range(100)]
    return pa.table(
        {
            "k": pa.array([(5 * at + commit) for at in range(100)], pa.int64()),
            "s": [None if number % 10 == 1 else f"s{number}" for number in numbers],
            "n": pa.array(numbers, pa.int32()),
            "d": pa.array([Decimal(number) / 100 for number in numbers], pa.decimal128(10, 2)),
        }
    )


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "append"])
def test_filters_by_indexes_of_paimon(
    paimon: PaimonJudge, tmp_path: Path, opened: list[str], where: str, keyed: bool
) -> None:
    options = ALL_KINDS | {"file-index.in-manifest-threshold": WHERE[where], "write-only": "true"}
    judge = paimon.create_table(
        tmp_path / "db.db" / "t",
        LOOKED_UP,
        primary_keys=["k"] if keyed else (),
        options={**options, "bucket": "1" if keyed else "-1"},
    )
    for commit in range(5):
        judge.write(rows_of(commit))
    table = Table.open(judge.location)
    everything = table.scan().to_arrow()
    fewest = set()
    for predicate in FILTERS:
        opened.clear()
        found = table.scan(filter=predicate).to_arrow()
        assert sorted_rows(found) == sorted_rows(everything.filter(predicate.bind(everything.schema).to_arrow()))
        fewest.add(len(opened))
        if predicate.columns() == {"k"} or not keyed:
            assert len(opened) <= 2, predicate
        opened.clear()
        unindexed = table.with_options({"file-index.read.enabled": "false"}).scan(filter=predicate).to_arrow()
        assert sorted_rows(unindexed) == sorted_rows(found)
        assert len(opened) == 5, "statistics exclude no file here"
    assert min(fewest) <= 1


def sorted_rows(rows: pa.Table) -> list[Any]:
    return sorted(map(str, rows.to_pylist()))


@pytest.mark.parametrize("where", WHERE)
def test_paimon_filters_by_our_indexes(paimon: PaimonJudge, tmp_path: Path, where: str) -> None:
    options = ALL_KINDS | {"file-index.in-manifest-threshold": WHERE[where], "bucket": "-1"}
    table = Catalog(str(tmp_path)).create_table("db.t", schema=LOOKED_UP, options=options)
    with table.writer("w") as writer:
        for commit in range(3):
            writer.write(rows_of(commit))
            writer.commit()
    judge = paimon.table(table.location)
    for column, compare, value, predicate in (
        ("k", "=", "205", col("k") == 205),
        ("k", "=", "-5", col("k") == -5),
        ("s", "=", "s207", col("s") == "s207"),
        ("n", ">", "297", col("n") > 297),
        ("n", "<", "3", col("n") < 3),
        ("d", "=", "1.07", col("d") == Decimal("1.07")),
    ):
        theirs = judge.read_rows(["k"], filter={"column": column, "is": compare, "value": value}, execute_filter=True)
        ours = table.scan(columns=["k"], filter=predicate).to_arrow().column("k").to_pylist()
        assert sorted(row[0] for row in theirs) == sorted(ours), column
