"""Partition values whose folder's name would have more than 255 bytes are refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from freshet import Catalog, sql
from freshet.storage.codec.partition_names import folder_rule
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.data_type import DataField
from freshet.storage.model.sql_type import parse_sql_type
from freshet.storage.table import Table
from tests.storage.write.tables import WrittenTable

COLUMNS = {"id": "BIGINT NOT NULL", "p": "STRING"}
LONG = "x" * 300
VALUES = [
    ("x" * 253, True), ("x" * 254, False), ("é" * 126, True), ("é" * 127, False), ("/" * 84, True), ("/" * 85, False),
    ("x" + "%" * 84, True), (" " * 300, True), (" " * 300 + "x", False), ("\u00a0" * 127, False), ("", True),
    (None, True),
]  # fmt: skip
"""Values of a column `p`, and whether file systems have a name for their folders."""


@pytest.mark.parametrize("is_chunked", [False, True])
def test_bytes_of_escaped_names_count(is_chunked: bool) -> None:
    rule = folder_rule(DataField(1, "p", parse_sql_type("STRING")), "__DEFAULT_PARTITION__")
    assert rule is not None
    values: Any = pa.array([value for value, _ in VALUES], pa.string())
    values = pa.chunked_array([values.slice(0, 5), values.slice(5)]) if is_chunked else values
    found = rule.too_long(values)
    assert found is not None and found.tolist() == [not fits for _, fits in VALUES]
    assert rule.too_long(values.slice(0, 1)) is None and rule.too_long(values.slice(0, 0)) is None
    assert rule.too_long(values.slice(len(VALUES) - 1)) is None


@pytest.mark.parametrize("kind", ["BIGINT", "DATE", "TIMESTAMP(6)", "DECIMAL(38, 2)", "BOOLEAN", "VARCHAR(63)"])
def test_columns_that_cannot_be_so_long_are_not_looked_at(kind: str) -> None:
    assert folder_rule(DataField(1, "p", parse_sql_type(kind)), "__DEFAULT_PARTITION__") is None


def _write(table: Table, data: Any) -> None:
    with table.writer("loader") as writer:
        writer.write(data)
        writer.commit()


ROWS = [{"id": 1, "p": "a"}, {"id": 2, "p": LONG}]
WAYS: dict[str, Callable[[Table, Catalog], Any]] = {
    "dicts": lambda table, _: _write(table, ROWS),
    "Arrow": lambda table, _: _write(table, pa.Table.from_pylist(ROWS)),
    "lists": lambda table, _: _write(table, {"id": [1, 2], "p": ["a", LONG]}),
    "append": lambda table, _: table.append(ROWS),
    "overwrite": lambda table, _: table.overwrite(ROWS),
    "SQL": lambda _, catalog: sql(f"INSERT INTO s.t VALUES (1, 'a'), (2, '{LONG}')", catalog=catalog),
    "merge": lambda table, _: table.merge(ROWS, on=["id"]).when_not_matched_insert_all().execute(),
}
KEYED: dict[str, Callable[[Table, Catalog], Any]] = {
    "upsert": lambda table, _: table.upsert(ROWS),
    "deletion": lambda table, _: _write(table, [{**row, "_ROW_KIND": "-D"} for row in ROWS]),
}


@pytest.mark.parametrize(
    ("way", "is_keyed"),
    [*((way, False) for way in WAYS), *((way, True) for way in [*WAYS, *KEYED] if way not in ("append", "merge"))],
)
def test_a_value_that_no_folder_is_named_after_is_refused(tmp_path: Path, way: str, is_keyed: bool) -> None:
    catalog = Catalog(tmp_path)
    keys = {"primary_keys": ["id", "p"], "options": {"bucket": "1"}} if is_keyed else {}
    columns = {**COLUMNS, "p": "STRING NOT NULL"} if is_keyed else COLUMNS
    table = catalog.create_table("s.t", schema=columns, partition_keys=["p"], **keys)
    _write(table, [{"id": 0, "p": "a"}])
    files = sorted(tmp_path.rglob("*.parquet"))
    wanted = r"column 'p' of .*/t is a partition key, but row \d of the input holds 'xxx.{,60} there, .*shorten it"
    with pytest.raises(InvalidRequestError, match=wanted) as refused:
        (WAYS | KEYED)[way](table, catalog)
    assert len(str(refused.value)) < 600 and LONG not in str(refused.value)
    assert sorted(tmp_path.rglob("*.parquet")) == files
    assert catalog.table("s.t").scan().to_arrow().to_pylist() == [{"id": 0, "p": "a"}]


def test_rows_that_come_with_their_buckets_as_those_of_spark_are_refused(tmp_path: Path) -> None:
    arrow = pa.schema([pa.field("id", pa.int64(), False), pa.field("p", pa.string(), False)])
    table = WrittenTable(tmp_path, arrow=arrow, keys=("id", "p"), partitions=("p",))
    rows = pa.Table.from_pylist(ROWS[1:], arrow)
    with pytest.raises(InvalidRequestError, match="is a partition key, but row 0"):
        table.writer().write_routed(rows, np.zeros(1, np.int32), bucket_count=1)


def test_a_column_whose_name_leaves_no_room_is_refused(tmp_path: Path) -> None:
    name, catalog = "c" * 200, Catalog(tmp_path)
    with pytest.raises(InvalidRequestError, match="shorten the column's name"):
        catalog.create_table("s.t", schema={"id": "BIGINT", name: "DATE"}, partition_keys=[name])
    catalog.create_table("s.t", schema={"id": "BIGINT", name: "DATE"})
    option = {"partition.default-name": "d" * 254}
    with pytest.raises(InvalidRequestError, match=r"partition\.default-name"):
        catalog.create_table("s.u", schema={"id": "BIGINT", "p": "DATE"}, partition_keys=["p"], options=option)
