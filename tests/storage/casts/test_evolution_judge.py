"""Nested columns whose rows change, and every scalar to STRING, read as Apache Paimon reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog
from tests.contract.cases import canonical
from tests.kit.paimon_changes import add_column, column_type, drop_column, rename_column
from tests.kit.paimon_judge import PaimonJudge
from tests.storage.casts import cast_samples

pytestmark = pytest.mark.judge

ROW = "ROW<x INT, y ROW<p INT, q STRING>>"
NESTED: list[tuple[Any, ...]] = [
    (1, {"x": 1, "y": {"p": 2, "q": "a"}}, [{"x": 3, "y": {"p": 4, "q": None}}, None], [("k", {"x": 5, "y": None})]),
    (2, None, None, None),
    (3, {"x": None, "y": {"p": None, "q": "b"}}, [], []),
    (4, {"x": 7, "y": None}, [{"x": None, "y": None}], [("k", None), ("l", {"x": 8, "y": {"p": 9, "q": "c"}})]),
]


@pytest.mark.parametrize("keys", [["id"], []], ids=["keyed", "append"])
def test_rows_inside_rows_arrays_and_maps(tmp_path: Path, paimon: PaimonJudge, keys: list[str]) -> None:
    columns = {"id": "INT", "r": ROW, "a": f"ARRAY<{ROW}>", "m": f"MAP<STRING, {ROW}>"}
    options = {"bucket": "1" if keys else "-1"}
    judge = paimon.create_table(tmp_path / "db.db" / "t", columns, primary_keys=keys, options=options)
    judge.write(NESTED)
    steps = [
        [add_column(["r", "z"], "STRING")],
        [column_type(["r", "y", "p"], "BIGINT"), rename_column(["r", "y", "q"], "qq")],
        [drop_column(["r", "x"])],
        [add_column(["r", "x"], "STRING")],
        [add_column(["a", "element", "z"], "DOUBLE")],
        [column_type(["a", "element", "x"], "BIGINT"), drop_column(["a", "element", "y", "p"])],
        [rename_column(["m", "value", "x"], "xx"), add_column(["m", "value", "y", "n"], "INT")],
        [rename_column("r", "renamed")],
    ]
    catalog = Catalog(str(tmp_path))
    for changes in steps:
        judge.alter(*changes)
        assert canonical(catalog.table("db.t").scan().to_arrow()) == canonical(judge.read_arrow()), changes


TO_TEXT = {
    "b": "BOOLEAN",
    "i": "BIGINT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "m": "DECIMAL(18, 4)",
    "dt": "DATE",
    "tm": "TIME(3)",
    "t3": "TIMESTAMP(3)",
    "l6": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
}


def test_columns_that_became_text_also_nested(tmp_path: Path, paimon: PaimonJudge) -> None:
    columns = {"id": "INT", **TO_TEXT, "list": "ARRAY<DOUBLE>", "map": "MAP<STRING, DECIMAL(5, 2)>", "row": ROW}
    judge = paimon.create_table(tmp_path / "db.db" / "t", columns, primary_keys=["id"], options={"bucket": "1"})
    schema = judge.arrow_schema()
    count = max(len(cast_samples.samples(text)) for text in TO_TEXT.values())
    arrays = [pa.array(range(count), pa.int32())]
    for text in TO_TEXT.values():
        values = cast_samples.samples(text)
        arrays.append(values.take(pa.array([i % len(values) for i in range(count)])))
    lists = [[1.0, None, 1e10], [], None]
    arrays.append(pa.array([lists[i % 3] for i in range(count)], schema.field("list").type))
    maps = [[("a", None)], [], None]
    arrays.append(pa.array([maps[i % 3] for i in range(count)], schema.field("map").type))
    rows = [row[1] for row in NESTED]
    arrays.append(pa.array([rows[i % 4] for i in range(count)], schema.field("row").type))
    arrays = [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)]
    judge.write(pa.table(arrays, schema=schema))
    for name in [*TO_TEXT, "list", "map", "row"]:
        judge.alter(column_type(name, "STRING"))
    assert canonical(Catalog(str(tmp_path)).table("db.t").scan().to_arrow()) == canonical(judge.read_arrow())
