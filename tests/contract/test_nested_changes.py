"""Changes of fields inside of columns, defaults, places: Apache Paimon makes the same schema, and reads the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import (
    AddColumn,
    Catalog,
    ChangeType,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SetColumnComment,
    SetDefault,
    Table,
)
from tests.kit.paimon_changes import (
    add_column,
    column_comment,
    column_default,
    column_type,
    drop_column,
    move_column,
    rename_column,
)
from tests.kit.paimon_judge import PaimonJudge

pytestmark = pytest.mark.judge

COLUMNS = {
    "id": "BIGINT NOT NULL",
    "a": "ROW<x INT, y STRING, z INT>",
    "l": "ARRAY<ROW<p INT, q STRING>>",
    "m": "MAP<STRING, INT>",
    "c": "STRING",
}
# Ours, and what is asked of Paimon.
CHANGES: tuple[tuple[Any, Any], ...] = (
    (AddColumn("n", "ROW<i INT>", within="a", after="x"), add_column(["a", "n"], "ROW<i INT>", after="x")),
    (AddColumn("k", "INT", within="a", before="x"), add_column(["a", "k"], "INT", before="x")),
    (RenameColumn("y", "why", within="a"), rename_column(["a", "y"], "why")),
    (DropColumn("z", within="a"), drop_column(["a", "z"])),
    (
        ChangeType("p", "BIGINT", within=("l", "element")),
        column_type(["l", "element", "p"], "BIGINT", keep_nullability=True),
    ),
    (
        AddColumn("r", "DOUBLE", within=("l", "element"), first=True),
        add_column(["l", "element", "r"], "DOUBLE", first=True),
    ),
    (ChangeType("value", "BIGINT", within="m"), column_type(["m", "value"], "BIGINT", keep_nullability=True)),
    (SetColumnComment("x", "the x", within="a"), column_comment(["a", "x"], "the x")),
    (SetDefault("c", "none"), column_default("c", "none")),
    (MoveColumn("c", before="a"), move_column("c", before="a")),
    (MoveColumn("id", last=True), move_column("id", last=True)),
)


def document(table: Table) -> dict[str, Any]:
    file = Path(table.location, "schema", f"schema-{table.schema.id}")
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return {key: schema[key] for key in ("fields", "highestFieldId", "primaryKeys", "partitionKeys")}


def test_both_make_the_same_schema_and_read_the_same_rows(tmp_path: Path, paimon: PaimonJudge) -> None:
    ours = Catalog(tmp_path).create_table("db.ours", schema=COLUMNS, primary_keys=["id"], options={"bucket": 1})
    theirs = Catalog(tmp_path).create_table("db.theirs", schema=COLUMNS, primary_keys=["id"], options={"bucket": 1})
    row = {"id": 1, "a": {"x": 1, "y": "y", "z": 7}, "l": [{"p": 1, "q": "q"}, None], "m": [("k", 5)], "c": None}
    ours.append([row])
    theirs.append([row])
    judge = paimon.table(theirs.location)
    for change, asked in CHANGES:
        ours = ours.alter(change)
        judge.alter(asked)
        theirs = Table.open(theirs.location)
        assert document(ours) == document(theirs), change
    new = {"id": 2, "a": {"k": 1, "x": 2, "n": {"i": 3}, "why": "?"}, "l": [{"r": 0.5}], "m": [("k", 2**40)]}
    ours.append([new])
    seen = paimon.table(ours.location).read_arrow()
    expected = ours.scan().to_arrow()
    assert seen.select(expected.column_names).sort_by("id").to_pylist() == expected.sort_by("id").to_pylist()
    assert expected.sort_by("id")["c"].to_pylist() == [None, "none"]
    assert pa.types.is_struct(expected.schema.field("a").type)
