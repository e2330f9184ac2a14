"""What a table becomes: created from what records say, and changed as its source changes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from freshet.pipeline.decode.described_table import DescribedTable, is_column_name
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.sync.table_changes import NEW_COLUMNS_MAX, changes_of, new_table, other_key
from freshet.storage.schema.change import AddColumn, ChangeType
from tests.pipeline.sync.kit import route_to, schema_of, sync_config

COLUMNS = {"id": "BIGINT", "name": "STRING", "created": "TIMESTAMP(3)"}


def described(columns: Mapping[str, str] = COLUMNS, keys: Sequence[str] = ("id",), *, typed: bool = True) -> Any:
    return DescribedTable(dict(columns), tuple(keys), typed, "t partition 0 offset 3")


def route(**rule: Any) -> Any:
    config = sync_config([{"from": "shop.public.(.*)", "to": "lake.$1", **rule}])
    return route_to(config, "shop.public.t")


# --- new tables -------------------------------------------------------------------------------------------------------


def test_a_table_from_what_its_records_say() -> None:
    found = new_table(route(options={"bucket": 4}), described())
    assert list(found.columns.items()) == list(COLUMNS.items())
    assert (found.primary_keys, found.partition_keys, found.options) == (("id",), (), {"bucket": "4"})


def test_metadata_and_computed_columns() -> None:
    found = new_table(
        route(
            metadata_columns={"_op_ts": "op_ts", "_table": "table", "_at": "offset"},
            computed_columns={"dt": "date_format(created, 'yyyy')", "gone": "year(nothing)", "one": "cast(1, INT)"},
            partition_by=["dt"],
            primary_key=["id", "dt"],
        ),
        described(),
    )
    assert found.columns == {
        **COLUMNS, "_op_ts": "TIMESTAMP(3) WITH LOCAL TIME ZONE", "_table": "STRING", "_at": "BIGINT", "dt": "STRING",
        "one": "INT",
    }  # fmt: skip
    assert (found.primary_keys, found.partition_keys) == (("id", "dt"), ("dt",))


def test_names_that_cannot_be_columns_are_left_out() -> None:
    columns = {
        "id": "INT",
        "": "INT",
        " ": "INT",
        "a`b": "INT",
        "_KEY_id": "INT",
        "_SEQUENCE_NUMBER": "INT",
        "ä b": "INT",
    }
    assert list(new_table(route(), described(columns)).columns) == ["id", "ä b"]
    assert [name for name in columns if is_column_name(name)] == ["id", "ä b"]


@pytest.mark.parametrize(
    ("rule", "keys", "message"),
    [
        (
            {"primary_key": ["nr"]},
            ("id",),
            "lake.t have no field nr, which its key or partition_by names .first record:",
        ),
        ({"partition_by": ["dt"]}, ("id",), "have no field dt, which its key or partition_by names"),
        ({}, ("gone",), "have no field gone"),
        ({}, (), "name no key .first record: t partition 0 offset 3.: give its rule primary_key, or without_key"),
        ({"partition_by": ["name"]}, ("id",), "is to be partitioned by name, which its key .id. does not have"),
        ({"computed_columns": {"y": "year(id)"}}, ("id",), "computed column y of lake.t: year wants a date or a time"),
    ],
)
def test_what_cannot_be_created(rule: Mapping[str, Any], keys: Sequence[str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        new_table(route(**rule), described(keys=keys))


def test_a_table_without_a_key() -> None:
    found = new_table(route(without_key="append", partition_by=["name"]), described(keys=()))
    assert (found.primary_keys, found.partition_keys) == ((), ("name",))


# --- tables that change -----------------------------------------------------------------------------------------------


def changes(columns: Mapping[str, str], *, typed: bool = True, **rule: Any) -> list[str]:
    found, _ = changes_of(schema_of(COLUMNS), route(**rule), described(columns, typed=typed))
    return [f"{'+' if isinstance(each, AddColumn) else '~'}{each.name} {each.type}" for each in found]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (COLUMNS, []),
        ({}, []),
        ({"id": "BIGINT", "note": "STRING", "n": "INT"}, ["+note STRING", "+n INT"]),
        ({"created": "TIMESTAMP(6)"}, ["~created TIMESTAMP(6)"]),
        ({"created": "TIMESTAMP(0)"}, []),
        ({"created": "DATE"}, []),
        ({"id": "INT"}, []),
        ({"name": "INT"}, []),
        ({"id": "STRING"}, []),
        ({"_KEY_x": "INT", "`": "INT"}, []),
    ],
)
def test_changes(columns: Mapping[str, str], expected: list[str]) -> None:
    assert changes(columns) == expected


def test_guessed_types_add_columns_and_change_none() -> None:
    found, _ = changes_of(schema_of({"id": "INT"}), route(), described({"id": "BIGINT", "n": "BIGINT"}, typed=False))
    assert found == (AddColumn("n", "BIGINT"),)


def test_columns_of_the_file_come_once_their_input_is_there() -> None:
    assert changes({"id": "BIGINT"}, metadata_columns={"_op": "op"}) == ["+_op STRING"]
    rule: dict[str, Any] = {"computed_columns": {"y": "year(shipped)"}}
    assert changes({"id": "BIGINT"}, **rule) == []
    assert changes({"id": "BIGINT", "shipped": "DATE"}, **rule) == ["+shipped DATE", "+y INT"]
    assert changes({"id": "BIGINT"}, computed_columns={"y": "year(created)"}) == ["+y INT"]


def test_a_field_of_the_name_of_a_column_of_the_file_is_no_second_column() -> None:
    rule: dict[str, Any] = {"computed_columns": {"dt": "year(shipped)"}}
    assert changes({"dt": "STRING", "shipped": "DATE"}, **rule) == ["+dt INT", "+shipped DATE"]
    assert changes({"dt": "STRING"}, **rule) == ["+dt STRING"]


def test_a_computed_column_becomes_wider_with_its_input() -> None:
    rule: dict[str, Any] = {"computed_columns": {"half": "truncate(n, 10)"}}
    schema = schema_of({"id": "BIGINT", "n": "INT", "half": "INT"})
    for text, expected in (("BIGINT", ["n BIGINT", "half BIGINT"]), ("INT", []), ("SMALLINT", []), ("DOUBLE", [])):
        found, _ = changes_of(schema, route(**rule), described({"id": "BIGINT", "n": text}))
        assert [f"{each.name} {each.type}" for each in found] == expected  # type: ignore[union-attr]


def test_a_key_is_widened_and_stays_not_null() -> None:
    found, passed = changes_of(schema_of({"id": "INT"}), route(), described({"id": "BIGINT", "a`": "INT"}))
    assert found == (ChangeType("id", "BIGINT"),) and passed == ("a`",)


def test_very_many_new_fields() -> None:
    fields = {f"f{number}": "INT" for number in range(NEW_COLUMNS_MAX + 1)}
    with pytest.raises(
        InvalidRequestError, match="bring 101 new fields at once .first record: t partition 0 offset 3."
    ):
        changes(fields)
    del fields["f0"]
    assert len(changes(fields)) == NEW_COLUMNS_MAX


def test_of_names_that_differ_in_case_alone_the_first_is_the_column() -> None:
    fields = described({"id": "BIGINT", "x": "INT", "X": "INT", "ID": "INT"})
    assert list(new_table(route(), fields).columns) == ["id", "x"]
    changes, left_out = changes_of(schema_of({"id": "BIGINT", "X": "INT"}), route(), fields)
    assert changes == () and left_out == ("x", "ID")


@pytest.mark.parametrize(
    ("keys", "rule", "is_refused"),
    [
        (("id", "name"), {}, True),
        (("id", "name"), {"primary_key": ["id"]}, False),
        (("id",), {}, False),
        (("name",), {}, False),
        ((), {}, False),
    ],
)
def test_a_source_with_more_key_columns_than_its_table(
    keys: Sequence[str], rule: Mapping[str, Any], is_refused: bool
) -> None:
    """Its rows would take each other's place."""
    with pytest.raises(InvalidRequestError, match="would be one") if is_refused else nullcontext():
        changes_of(schema_of(COLUMNS), route(**rule), described(keys=keys))


@pytest.mark.parametrize(
    ("keys", "columns", "message"),
    [
        (("id",), COLUMNS, None),
        (
            (),
            COLUMNS,
            "the records of t have no key .* give its rule primary_key: .id.; else drop .* without_key: append",
        ),
        (("name",), COLUMNS, "the key of the records of t is name .* or each has id of its own"),
        (("id", "name"), COLUMNS, "is id, name .* .freshet resync FILE --table TABLE.$"),
        (("nr",), {"nr": "BIGINT", "name": "STRING"}, None),  # it has another name: dead letters, until both are joined
    ],
)
def test_a_database_that_knows_the_key_of_its_table(
    keys: tuple[str, ...], columns: Mapping[str, str], message: str | None
) -> None:
    found = other_key(("id",), replace(described(columns, keys), knows_key=True), "t")
    assert found is message is None or re.search(message or "", found or "")
    assert other_key((), replace(described(columns, keys), knows_key=True), "t") is None
