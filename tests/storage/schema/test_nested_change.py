"""Changes of fields inside of columns, defaults, places and keys: what they make of the schema, and of rows before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import (
    AddColumn,
    Catalog,
    ChangeType,
    DropColumn,
    DropPrimaryKey,
    InvalidRequestError,
    MoveColumn,
    RenameColumn,
    SetColumnComment,
    SetDefault,
    SetNullable,
    Table,
)
from freshet.storage.model.data_type import RowType

COLUMNS = {
    "id": "BIGINT NOT NULL",
    "a": "ROW<x INT, y STRING, zw INT>",
    "l": "ARRAY<ROW<p INT, q STRING>>",
    "m": "MAP<STRING, INT>",
}
ROW = {"id": 1, "a": {"x": 1, "y": "y", "zw": 7}, "l": [{"p": 1, "q": "q"}, None], "m": [("k", 5)]}


@pytest.fixture(params=["parquet", "orc", "avro"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    made = Catalog(tmp_path / "w").create_table(
        "shop.t", schema=COLUMNS, primary_keys=["id"], options={"bucket": 1, "file.format": request.param}
    )
    made.append([ROW])
    return made


def first(table: Table) -> dict[str, Any]:
    return next(row for row in table.scan().to_arrow().to_pylist() if row["id"] == 1)


def test_fields_are_added_renamed_dropped_and_cast_and_rows_before_follow(table: Table) -> None:
    highest = table.schema.highest_field_id
    table = table.alter(
        AddColumn("n", "ROW<i INT>", within="a", after="x", comment="new"),
        RenameColumn("y", "why", within="a"),
        DropColumn("zw", within="a"),
        ChangeType("p", "BIGINT", within=("l", "element")),
        AddColumn("r", "DOUBLE", within=("l", "element"), first=True),
        ChangeType("value", "BIGINT", within="m"),
        SetColumnComment("x", "the x", within="a"),
    )
    assert str(table.schema.by_name["a"].type) == "ROW<x INT, n ROW<i INT>, why STRING>"
    assert table.schema.highest_field_id == highest + 3
    assert first(table) == {
        "id": 1,
        "a": {"x": 1, "n": None, "why": "y"},
        "l": [{"r": None, "p": 1, "q": "q"}, None],
        "m": [("k", 5)],
    }
    table.append([{"id": 2, "a": {"x": 1, "n": {"i": 3}, "why": "?"}, "l": [], "m": [("k", 2**40)]}])
    table.compact()
    rows = table.scan().to_arrow()
    assert rows["a"].to_pylist()[1] == {"x": 1, "n": {"i": 3}, "why": "?"}
    assert rows["m"].to_pylist()[1] == [("k", 2**40)] and rows.schema.field("m").type.item_type == pa.int64()
    again = table.alter(DropColumn("n", within="a"), AddColumn("n", "STRING", within="a", last=True))
    assert [row["a"]["n"] for row in again.scan().to_arrow().to_pylist()] == [None, None], "another field of that name"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (AddColumn("x", "INT", within="a"), "one of that name"),
        (AddColumn("n", "INT NOT NULL", within="a"), "NOT NULL"),
        (AddColumn("n", "INT", within="nowhere"), "no such column"),
        (AddColumn("n", "INT", within="m"), "of a MAP 'value'"),
        (AddColumn("n", "INT", within="l"), "of an ARRAY write 'element'"),
        (AddColumn("n", "INT", within=("a", "x")), "has no 'n'"),
        (AddColumn("n", "INT", within="a", after="nowhere"), "no such column"),
        (AddColumn("element", "INT", within="l"), "one of that name"),
        (AddColumn("n", "INT", within=3), "within= names a column"),
        (DropColumn("nowhere", within="a"), "no field 'nowhere'"),
        (DropColumn("element", within="l"), "only field"),
        (RenameColumn("x", "y", within="a"), "field 'y' beside it"),
        (RenameColumn("element", "e", within="l"), "neither a name"),
        (SetColumnComment("value", "c", within="m"), "nor a comment"),
        (ChangeType("x", "ARRAY<INT>", within="a"), "cannot be cast"),
        (ChangeType("y", "INT", within="a"), "allow_lossy"),
        (SetNullable("x", False, within="a"), "NOT NULL"),
        (AddColumn("n", "INT", within="id"), "belongs to the primary key"),
        (SetDefault("id", "x"), "which is no BIGINT"),
        (SetDefault("a", "{}"), "which is no ROW"),
        (SetDefault("nowhere", "1"), "no such column"),
        (DropPrimaryKey(), "holds snapshots"),
        (MoveColumn("a", first=True, last=True), "not both"),
    ],
    ids=repr,
)
def test_what_leads_nowhere_is_refused(tmp_path: Path, change: Any, said: str) -> None:
    table = Catalog(tmp_path / "w").create_table("shop.t", schema=COLUMNS, primary_keys=["id"], options={"bucket": 1})
    table.append([ROW])
    with pytest.raises(InvalidRequestError, match=said):
        table.alter(change)
    assert Table.open(table.location).schema.id == 0


def test_a_lossy_change_inside_is_made_where_it_is_allowed(tmp_path: Path) -> None:
    table = Catalog(tmp_path / "w").create_table("shop.t", schema=COLUMNS)
    table.append([{**ROW, "a": {"x": 1, "y": "12", "zw": 7}}])
    table = table.alter(ChangeType("y", "INT", within="a"), allow_lossy=True)
    assert first(table)["a"]["y"] == 12
    table = table.alter(SetNullable("x", True, within="a"))
    assert table.schema.id == 2


def test_a_key_of_fields_that_an_option_names_stays(tmp_path: Path) -> None:
    table = Catalog(tmp_path / "w").create_table(
        "shop.t",
        schema={"id": "BIGINT", "l": "ARRAY<ROW<p INT, q STRING>>"},
        primary_keys=["id"],
        options={
            "bucket": 1,
            "merge-engine": "aggregation",
            "fields.l.aggregate-function": "nested_update",
            "fields.l.nested-key": "p",
        },
    )
    for change in (DropColumn("p", within=("l", "element")), RenameColumn("p", "r", within=("l", "element"))):
        with pytest.raises(InvalidRequestError, match="nested-key"):
            table.alter(change)


def test_defaults_are_written_where_a_row_lacks_the_column(tmp_path: Path) -> None:
    table = Catalog(tmp_path / "w").create_table("shop.t", schema={"id": "BIGINT", "c": "STRING", "n": "DECIMAL(5,2)"})
    table.append([{"id": 1, "c": None}])
    table = table.alter(SetDefault("c", "O'Neill"), SetDefault("n", "1.50"))
    table.append([{"id": 2}, {"id": 3, "c": "x", "n": None}])
    table = table.alter(SetDefault("c", None))
    table.append([{"id": 4}])
    rows = table.scan().to_arrow().sort_by("id")
    assert rows["c"].to_pylist() == [None, "O'Neill", "x", None]
    assert [None if n is None else str(n) for n in rows["n"].to_pylist()] == [None, "1.50", None, "1.50"]


def test_places(tmp_path: Path) -> None:
    table = Catalog(tmp_path / "w").create_table(
        "shop.t",
        schema={"a": "INT", "dt": "STRING", "b": "INT"},
        partition_keys=["dt"],
        options={"add-column-before-partition": "true"},
    )
    table = table.alter(AddColumn("c", "INT"), AddColumn("d", "INT", last=True), AddColumn("e", "INT", before="b"))
    assert table.schema.column_names == ("a", "c", "dt", "e", "b", "d")
    table = table.alter(MoveColumn("a", last=True), MoveColumn("d", before="c"))
    assert table.schema.column_names == ("d", "c", "dt", "e", "b", "a")


def test_the_key_of_an_empty_table_is_dropped(tmp_path: Path) -> None:
    table = Catalog(tmp_path / "w").create_table(
        "shop.t", schema={"id": "BIGINT", "v": "INT"}, primary_keys=["id"], options={"bucket": -1}
    )
    table = table.alter(DropPrimaryKey())
    assert not table.schema.has_primary_key
    table.append([{"id": 1}, {"id": 1}])
    assert table.scan().count() == 2


def test_another_type_of_a_whole_row_keeps_the_ids_of_its_fields(tmp_path: Path) -> None:
    """The ids of the text's own count were taken: they are those of other columns, whose values were told."""
    table = Catalog(str(tmp_path)).create_table(
        "db.t", schema={"a": "ROW<x INT, y INT>", "items": "ARRAY<ROW<p INT>>", "id": "BIGINT"}
    )
    table.append([{"a": {"x": 1, "y": 2}, "items": [{"p": 3}], "id": 4}])
    with pytest.raises(InvalidRequestError, match="the values of field x are gone"):
        table.alter(ChangeType("a", "ROW<p INT, q INT, r INT>"))
    altered = table.alter(
        ChangeType("a", "ROW<n STRING, y BIGINT, x BIGINT>"), ChangeType("items", "ARRAY<ROW<p BIGINT, m ROW<k INT>>>")
    )
    assert altered.scan().to_arrow().to_pylist() == [
        {"a": {"n": None, "y": 2, "x": 1}, "items": [{"p": 3, "m": None}], "id": 4}
    ]
    row = altered.schema.by_name["a"].type
    assert isinstance(row, RowType)
    assert [field.id for field in row.fields] == [table.schema.highest_field_id + 1, 2, 1]
    assert altered.schema.highest_field_id == table.schema.highest_field_id + 3
    longer = altered.alter(ChangeType("k", "BIGINT", within=("items", "element", "m")), AddColumn("z", "INT"))
    assert longer.schema.by_name["z"].id == altered.schema.highest_field_id + 1
