"""Options that name columns: a rename follows into each of them, a drop is refused by it, whatever its form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from freshet import Catalog, DropColumn, RenameColumn
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.data_type import DataField
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.sql_type import parse_sql_type
from freshet.storage.options.declaration import OPTIONS
from freshet.storage.options.named_columns import INDEX_KINDS, OF_OTHERS, columns_named
from freshet.storage.schema.change import SchemaChange
from freshet.storage.schema.changed_schema import apply_changes

COLUMNS: Final = ("id", "a", "b", "a.b", "c")

IGNORED: Final = "changelog-producer.row-deduplicate-ignore-fields"
# the option, which names column a; what it is once that is called x.y
NAMING: Final[list[tuple[str, str, str, str]]] = [
    ("bucket-key", "a", "bucket-key", "x.y"),
    ("sequence.field", "b, a", "sequence.field", "b, x.y"),
    (IGNORED, "a,b", IGNORED, "x.y,b"),
    ("partial-update.remove-record-on-sequence-group", "a", "partial-update.remove-record-on-sequence-group", "x.y"),
    ("rowkind.field", "a", "rowkind.field", "x.y"),
    ("record-level.time-field", "a", "record-level.time-field", "x.y"),
    ("fields.a.aggregate-function", "sum", "fields.x.y.aggregate-function", "sum"),
    ("fields.a.stats-mode", "none", "fields.x.y.stats-mode", "none"),
    ("fields.a.map.storage-layout", "t", "fields.x.y.map.storage-layout", "t"),
    ("fields.b,a.sequence-group", "c", "fields.b,x.y.sequence-group", "c"),
    ("fields.b.sequence-group", "c,a", "fields.b.sequence-group", "c,x.y"),
    *((f"file-index.{kind}.columns", "b, a", f"file-index.{kind}.columns", "b,x.y") for kind in sorted(INDEX_KINDS)),
    ("file-index.bitmap.columns", "a[k]", "file-index.bitmap.columns", "x.y[k]"),
    ("file-index.bloom-filter.a.items", "9", "file-index.bloom-filter.x.y.items", "9"),
    ("parquet.bloom.filter.enabled#a", "true", "parquet.bloom.filter.enabled#x.y", "true"),
    *((key, "a,b", key, "x.y,b") for key in sorted(OF_OTHERS)),
]  # fmt: skip
NOT_NAMING: Final = {
    "fields.a.b.aggregate-function": "sum",  # of the column a.b
    "fields.default-aggregate-function": "max",
    "file-index.in-manifest-threshold": "1 kb",
    "file.format": "a",
}


def changed(change: SchemaChange, options: Mapping[str, str]) -> TableSchema:
    fields = tuple(DataField(number, name, parse_sql_type("INT")) for number, name in enumerate(COLUMNS))
    return apply_changes(TableSchema(0, fields, 9, (), ("id",), dict(options)), [change], has_snapshot=True, time_ms=0)


@pytest.mark.parametrize(("key", "value", "new_key", "new_value"), NAMING)
def test_a_rename_follows_and_a_drop_is_refused(key: str, value: str, new_key: str, new_value: str) -> None:
    options = {**NOT_NAMING, key: value}
    assert changed(RenameColumn("a", "x.y"), options).options == {**NOT_NAMING, new_key: new_value}
    with pytest.raises(InvalidRequestError, match=r"cannot drop column 'a': option .* names it") as raised:
        changed(DropColumn("a"), options)
    assert raised.value.option == key


def test_what_names_no_column_stays() -> None:
    assert changed(RenameColumn("a", "x.y"), NOT_NAMING).options == NOT_NAMING
    assert "a" not in changed(DropColumn("a"), NOT_NAMING).by_name
    assert changed(RenameColumn("a.b", "z"), NOT_NAMING).options["fields.z.aggregate-function"] == "sum"


def test_every_declared_option_with_names_is_in_the_table_above() -> None:
    """An option that is declared as names, and one whose text speaks of a column, is known to name columns."""
    known = {key for key, *_ in NAMING}
    naming = {key for key in OPTIONS if columns_named(key, "a", COLUMNS)}
    assert naming <= known
    assert {key for key, option in OPTIONS.items() if option.kind.name == "names"} <= naming


def test_a_changelog_goes_on_ignoring_a_renamed_column(tmp_path: Path) -> None:
    options = {
        "bucket": "1",
        "changelog-producer": "lookup",
        "changelog-producer.row-deduplicate": "true",
        IGNORED: "a",
    }
    schema = {"id": "INT NOT NULL", "a": "INT", "b": "INT"}
    with pytest.raises(InvalidRequestError, match="row-deduplicate-ignore-fields"):
        Catalog(tmp_path).create_table("db.x", schema=schema, primary_keys=["id"], options={**options, IGNORED: "nope"})
    table = Catalog(tmp_path).create_table("db.t", schema=schema, primary_keys=["id"], options=options)
    table.append([{"id": 1, "a": 1, "b": 1}])
    table = table.alter(RenameColumn("a", "at"))
    table.append([{"id": 1, "at": 2, "b": 1}])
    assert [row["_ROW_KIND"] for row in table.changelog().to_arrow().to_pylist()] == ["+I"]
    with pytest.raises(InvalidRequestError, match="names it"):
        table.alter(DropColumn("at"))
