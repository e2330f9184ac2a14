"""NULL in a ROW whose fields are NOT NULL: written as it comes, as a missing column, by updates and by compactions."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog, Table
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.schema.change import AddColumn
from tests.kit.paimon_judge import PaimonJudge

DEEP = (
    "ROW<q ROW<x DECIMAL(10, 2) NOT NULL, s STRING NOT NULL> NOT NULL, m MAP<STRING, ROW<z DATE NOT NULL>> NOT NULL, "
    "l ARRAY<INT NOT NULL> NOT NULL, t TIMESTAMP(3) NOT NULL>"
)
VALUE = {
    "q": {"x": Decimal("1.50"), "s": "a"},
    "m": [("k", {"z": datetime.date(1969, 1, 2)}), ("none", None)],
    "l": [1, 2],
    "t": datetime.datetime(2026, 11, 22, 10),
}
GIVEN = {**VALUE, "m": dict(VALUE["m"])}  # type: ignore[call-overload]


def made(folder: Path, file_format: str, keys: list[str]) -> Table:
    """Rows of an older schema, rows without the column, rows with NULL and with a value, compacted."""
    catalog = Catalog(folder)
    options = {"bucket": "1" if keys else "-1", "file.format": file_format}
    table = catalog.create_table("db.t", schema={"id": "INT"}, primary_keys=keys, options=options)
    table.append([{"id": 1}])
    table.alter(AddColumn("r", DEEP))
    table = catalog.table("db.t")
    table.append([{"id": 2}])
    table.append([{"id": 3, "r": GIVEN}, {"id": 4, "r": None}, {"id": 5, "r": GIVEN}])
    table.update({"r": None}, "id = 5")
    table.merge([{"id": 6}], "id").when_not_matched_insert_all().execute()
    table.compact(full=True)
    return table


EXPECTED: list[dict[str, Any]] = [{"id": number, "r": VALUE if number == 3 else None} for number in range(1, 7)]


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("keys", [[], ["id"]])
def test_rows_come_back(tmp_path: Path, file_format: str, keys: list[str]) -> None:
    table = made(tmp_path, file_format, keys)
    assert table.scan().to_arrow().sort_by("id").to_pylist() == EXPECTED
    loose = pa.struct([("q", pa.struct([("x", pa.decimal128(10, 2)), ("s", pa.string())]))])
    with pytest.raises(InvalidRequestError, match="'r'"):
        table.append(pa.table({"id": pa.array([7], pa.int32()), "r": pa.array([{"q": None}], loose)}))


def test_a_null_that_is_not_hidden_is_refused(tmp_path: Path) -> None:
    table = Catalog(tmp_path).create_table("db.t", schema={"id": "INT", "r": "ROW<x INT NOT NULL, y INT>"})
    loose = pa.struct([("x", pa.int64()), ("y", pa.int32())])
    for rows in ([{"x": None, "y": 1}], [None, {"x": None, "y": None}]):
        with pytest.raises(InvalidRequestError, match="NOT NULL forbids"):
            table.append(pa.table({"id": pa.array([1] * len(rows), pa.int32()), "r": pa.array(rows, loose)}))
    table.append(pa.table({"id": pa.array([1, 2], pa.int32()), "r": pa.array([None, {"x": 5, "y": None}], loose)}))
    assert [row["r"] for row in table.scan().to_arrow().to_pylist()] == [None, {"x": 5, "y": None}]


@pytest.mark.judge
@pytest.mark.parametrize("keys", [[], ["id"]])
def test_paimon_reads_it(tmp_path: Path, paimon: PaimonJudge, keys: list[str]) -> None:
    table = made(tmp_path, "parquet", keys)
    rows = sorted(paimon.table(tmp_path / "db.db" / "t").read_rows())
    assert [row[0] for row in rows if row[1] is None] == [1, 2, 4, 5, 6]
    assert [row[0] for row in rows if row[1] is not None] == [3]
    assert table.check(all_snapshots=True).damage == []
