"""Schema changes as a pure function: what they make of a schema, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.data_type import DataField
from freshet.storage.model.schema import TableSchema, assign_ids
from freshet.storage.model.sql_type import parse_sql_type
from freshet.storage.schema.change import (
    AddColumn,
    ChangeType,
    DropColumn,
    MoveColumn,
    RenameColumn,
    ResetOption,
    SchemaChange,
    SetColumnComment,
    SetComment,
    SetNullable,
    SetOption,
)
from freshet.storage.schema.changed_schema import apply_changes

COLUMNS = {"dt": "DATE NOT NULL", "id": "INT NOT NULL", "a": "INT", "b": "STRING", "r": "ROW<x INT, y INT>"}


def schema(**options: str) -> TableSchema:
    bare = [DataField(0, name, parse_sql_type(kind)) for name, kind in COLUMNS.items()]
    fields, highest = assign_ids(bare)
    return TableSchema(3, fields, highest, ("dt",), ("dt", "id"), {"bucket": "2", **options})


def after(*changes: SchemaChange, base: TableSchema | None = None, has_snapshot: bool = True) -> TableSchema:
    return apply_changes(base or schema(), changes, has_snapshot=has_snapshot, time_ms=7)


def test_the_new_schema_has_the_next_id_and_the_time() -> None:
    changed = after(SetComment("orders"))
    assert (changed.id, changed.time_ms, changed.comment) == (4, 7, "orders")
    assert changed.fields == schema().fields


def test_a_new_column_takes_the_next_free_id_even_after_a_drop() -> None:
    highest = schema().highest_field_id
    changed = after(AddColumn("c", "BIGINT"), DropColumn("c"), AddColumn("c", "ROW<p INT>", first=True))
    assert changed.fields[0].name == "c"
    assert changed.fields[0].id == highest + 2
    assert changed.highest_field_id == highest + 3


def test_positions() -> None:
    assert after(AddColumn("c", "INT", after="id")).column_names == ("dt", "id", "c", "a", "b", "r")
    assert after(MoveColumn("r", first=True)).column_names == ("r", "dt", "id", "a", "b")
    assert after(MoveColumn("dt", after="b")).column_names == ("id", "a", "b", "dt", "r")


def test_a_rename_follows_into_keys_and_options() -> None:
    base = schema(**{"bucket-key": "id", "sequence.field": "a,b", "fields.a.stats-mode": "none"})
    changed = after(RenameColumn("id", "key"), RenameColumn("a", "alpha"), base=base)
    assert changed.primary_keys == ("dt", "key")
    assert changed.options["bucket-key"] == "key"
    assert changed.options["sequence.field"] == "alpha,b"
    assert changed.options["fields.alpha.stats-mode"] == "none"
    assert "fields.a.stats-mode" not in changed.options
    assert [field.id for field in changed.fields] == [field.id for field in base.fields]


def test_a_rename_follows_into_options_of_indexes() -> None:
    """It failed where an option of indexes is of no column, and passed over columns with a dot."""
    of_none = {"bucket": "2", "file-index.in-manifest-threshold": "1 kb", "file-index.read.enabled": "true"}
    options = of_none | {"file-index.bloom-filter.columns": "a,b", "file-index.bloom-filter.a.items": "9"}
    changed = after(RenameColumn("a", "x.y"), base=schema(**options))
    assert dict(changed.options) == of_none | {
        "file-index.bloom-filter.columns": "x.y,b",
        "file-index.bloom-filter.x.y.items": "9",
    }
    assert after(RenameColumn("x.y", "a"), base=changed).options == options


def test_a_type_is_widened_and_keeps_its_nullability() -> None:
    changed = after(ChangeType("a", "BIGINT NOT NULL"), SetColumnComment("b", "text"))
    assert str(changed.by_name["a"].type) == "BIGINT"
    assert changed.by_name["b"].description == "text"


def test_null_to_not_null_needs_the_option() -> None:
    base = schema(**{"alter-column-null-to-not-null.disabled": "false"})
    assert str(after(SetNullable("a", False), base=base).by_name["a"].type) == "INT NOT NULL"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (DropColumn("dt"), "partition key"),
        (RenameColumn("dt", "day"), "folders"),
        (SetNullable("a", False), "alter-column-null-to-not-null.disabled"),
        (SetOption("bucket", "4"), r"from '2' to '4'.*freshet rescale.*copy the rows"),
        (ResetOption("bucket"), "bucket"),
    ],
    ids=str,
)
def test_changes_that_would_break_existing_rows_are_refused(change: SchemaChange, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        after(change)


def test_the_default_of_bucket_may_be_written_out() -> None:
    dynamic = schema()
    dynamic = replace(dynamic, options={key: value for key, value in dynamic.options.items() if key != "bucket"})
    assert after(SetOption("bucket", "-1"), base=dynamic).options["bucket"] == "-1"
    with pytest.raises(InvalidRequestError, match="from '-1' to '4'"):
        after(SetOption("bucket", "4"), base=dynamic)


def test_a_column_that_an_option_names_is_not_dropped() -> None:
    with pytest.raises(InvalidRequestError, match=r"sequence\.field"):
        after(DropColumn("a"), base=schema(**{"sequence.field": "a"}))


def test_options_are_free_until_the_first_snapshot() -> None:
    changed = after(SetOption("merge-engine", "first-row"), SetOption("bucket", "8"), has_snapshot=False)
    assert (changed.options["merge-engine"], changed.options["bucket"]) == ("first-row", "8")
    assert after(SetOption("write-only", "true")).options["write-only"] == "true"
    only_column = replace(schema(), fields=schema().fields[2:3], partition_keys=(), primary_keys=())
    with pytest.raises(InvalidRequestError, match="only one"):
        after(DropColumn("a"), base=only_column)
