"""What records say of their table: columns, types, keys; and which types a column is widened to."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.pipeline.decode.change import RawRecord
from freshet.pipeline.decode.described_table import (
    DescribedTable,
    describe_record,
    describe_records,
    takes,
    wider_type,
)
from tests.pipeline.records import ORDER_SCHEMA, change, flat_with_schema, octets, with_schema

ORDERS = {
    "id": "BIGINT", "status": "STRING", "total": "DECIMAL(14, 2)", "at": "TIMESTAMP(3)", "doc": "STRING",
}  # fmt: skip
KEY = flat_with_schema({"id": 1}, ORDER_SCHEMA[:1])
CANAL = {
    "data": [{"id": "1", "name": "a"}, {"id": "2", "name": None}], "database": "shop", "table": "t", "es": 1, "ts": 2,
    "isDdl": False, "mysqlType": {"id": "bigint(20) unsigned", "name": "varchar(20)"}, "old": None, "pkNames": ["id"],
    "sqlType": {"id": -5, "name": 12}, "type": "INSERT",
}  # fmt: skip
MAXWELL = {
    "database": "shop", "table": "t", "type": "update", "ts": 1, "data": {"id": 1, "n": "x"}, "old": {"n": True},
}  # fmt: skip


def described(format_name: Any, value: Any, key: Any = None) -> DescribedTable:
    return describe_record(format_name, RawRecord(octets(key), octets(value), False), "here")


def shown(found: DescribedTable) -> tuple[dict[str, str], tuple[str, ...], bool]:
    assert found.where == "here"
    return dict(found.columns), found.keys, found.is_typed


# --- Debezium ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["c", "u", "r", "d"])
def test_debezium_with_a_schema(op: str) -> None:
    before, after = ({"id": 1}, None) if op == "d" else (None, {"id": 1})
    assert shown(described("debezium-json", with_schema(change(op, before, after)), KEY)) == (ORDERS, ("id",), True)


def test_keys_without_a_schema_and_without_a_key() -> None:
    value = with_schema(change("c", None, {"id": 1}))
    assert described("debezium-json", value, {"b": 1, "a": 2}).keys == ("b", "a")
    for key in (None, b"", b"text", b"7", b"[1]", b'"x"', b"\xff"):
        assert described("debezium-json", value, key).keys == ()


def test_debezium_without_a_schema() -> None:
    row = {"id": 1, "big": 1 << 70, "b": True, "n": 1.5, "s": "x", "o": {"a": 1}, "l": [1], "nothing": None}
    expected = {"id": "BIGINT", "b": "BOOLEAN", **dict.fromkeys(("big", "n", "s", "o", "l"), "STRING")}
    assert shown(described("debezium-json", change("c", None, row), {"id": 1})) == (expected, ("id",), False)
    wrapped = {"schema": None, "payload": change("c", None, row)}
    assert shown(described("debezium-json", wrapped, {"id": 1})) == (expected, ("id",), False)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (2**63 - 1, "BIGINT"),
        (-(2**63), "BIGINT"),
        (2**63, "STRING"),
        (-(2**63) - 1, "STRING"),
        (b"-0", "BIGINT"),
        (b"1" * 5000, "STRING"),
    ],
)
def test_a_whole_number_is_guessed_as_what_holds_it(number: int | bytes, kind: str) -> None:
    text = number if isinstance(number, bytes) else str(number).encode()
    assert described("json", b'{"n": ' + text + b"}").columns == {"n": kind}


def test_the_row_before_counts_and_values_of_two_kinds_are_a_text() -> None:
    found = described("debezium-json", change("u", {"id": 1, "a": 1, "b": 5}, {"id": 1, "a": True, "b": None}))
    assert found.columns == {"id": "BIGINT", "a": "STRING", "b": "BIGINT"}
    assert described("debezium-json", change("d", {"id": 1}, None)).columns == {"id": "BIGINT"}


@pytest.mark.parametrize(
    "value", [None, b"", b"{", b"\xff", b"[]", b"3", {}, {"op": "c"}, change("t"), change("x"), {"event_count": 1}]
)
def test_what_says_nothing(value: Any) -> None:
    for format_name in ("debezium-json", "canal-json", "maxwell-json"):
        assert described(format_name, value).is_empty


def test_unwrapped_rows_leave_out_what_the_transformation_added() -> None:
    fields = [*ORDER_SCHEMA[:2], {"type": "string", "field": "__op"}]
    value = flat_with_schema({"id": 1, "status": "new", "__op": "c"}, fields)
    assert described("debezium-unwrapped", value).columns == {"id": "BIGINT", "status": "STRING"}
    assert described("debezium-unwrapped", {"id": 1, "__deleted": "false"}).columns == {"id": "BIGINT"}


# --- the others -------------------------------------------------------------------------------------------------------


def test_canal() -> None:
    typed = ({"id": "DECIMAL(20, 0)", "name": "STRING"}, ("id",), True)
    assert shown(described("canal-json", CANAL)) == typed
    guessed = described("canal-json", {**CANAL, "mysqlType": None, "pkNames": None})
    assert shown(guessed) == ({"id": "STRING", "name": "STRING"}, (), False)


def test_maxwell() -> None:
    guess = {"id": "BIGINT", "n": "STRING"}
    assert shown(described("maxwell-json", MAXWELL)) == (guess, (), False)
    assert described("maxwell-json", {**MAXWELL, "primary_key_columns": ["id"]}).keys == ("id",)
    assert described("maxwell-json", MAXWELL, {"database": "shop", "table": "t", "pk.id": 1}).keys == ("id",)


def test_plain_json() -> None:
    assert shown(described("json", {"id": 1, "s": "x"}, {"id": 1})) == ({"id": "BIGINT", "s": "STRING"}, ("id",), False)


# --- several ----------------------------------------------------------------------------------------------------------


def test_several_records_together() -> None:
    rows = [{"id": 1, "a": None}, {"id": 2, "a": 1, "c": True}, {"id": "x", "b": "y"}]
    records = [(RawRecord(None, octets(row), False), f"place {place}") for place, row in enumerate([{}, *rows])]
    found = describe_records("json", records)
    assert found is not None
    assert found.columns == {"id": "STRING", "a": "BIGINT", "c": "BOOLEAN", "b": "STRING"}
    assert (found.where, found.is_typed) == ("place 1", False)
    assert describe_records("json", records[:1]) is None
    assert describe_records("json", []) is None


def test_joined() -> None:
    one = DescribedTable({"a": "INT", "b": "INT", "c": "STRING"}, (), True, "first")
    other = DescribedTable({"a": "BIGINT", "b": "DATE", "d": "INT"}, ("a",), True, "second")
    joined = one.joined(other)
    assert joined == DescribedTable({"a": "BIGINT", "b": "STRING", "c": "STRING", "d": "INT"}, ("a",), True, "first")
    assert not one.joined(DescribedTable({}, (), False, "x")).is_typed


@given(st.dictionaries(st.text(), st.sampled_from(["INT", "STRING"])), st.lists(st.text()), st.booleans(), st.text())
def test_as_a_document(columns: dict[str, str], keys: list[str], is_typed: bool, where: str) -> None:
    found = DescribedTable(columns, tuple(keys), is_typed, where)
    again = DescribedTable.of(json.loads(json.dumps(found.to_document())))
    assert again == found and list(again.columns) == list(columns)


# --- types ------------------------------------------------------------------------------------------------------------

CHAINS = [
    ["TINYINT", "SMALLINT", "INT", "BIGINT"],
    ["FLOAT", "DOUBLE"],
    ["VARCHAR(5)", "VARCHAR(10)", "STRING"],
    ["VARBINARY(3)", "BYTES"],
    ["DECIMAL(5, 2)", "DECIMAL(9, 2)", "DECIMAL(20, 4)", "DECIMAL(38, 18)"],
    ["TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)"],
    ["TIMESTAMP(9)"],  # has the years 1678 to 2261 only
    ["TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE"],
    ["BOOLEAN"],
    ["DATE"],
    ["TIME(3)"],
    ["ARRAY<INT>"],
    ["ARRAY<BIGINT>"],
    ["MAP<STRING, INT>"],
]


def test_types_of_one_kind_are_widened_and_no_others() -> None:
    for chain, other in itertools.product(CHAINS, CHAINS):
        for (place, left), (other_place, right) in itertools.product(enumerate(chain), enumerate(other)):
            expected = chain is other and place >= other_place
            assert takes(left, right) is expected, (left, right)


def test_the_wider_of_two_types() -> None:
    assert wider_type("INT", "BIGINT") == wider_type("BIGINT", "INT") == "BIGINT"
    assert wider_type("INT", "INT NOT NULL") == "INT"
    assert wider_type("DECIMAL(5, 0)", "DECIMAL(5, 5)") is None
    assert wider_type("INT", "STRING") is wider_type("TIMESTAMP(3)", "DATE") is None
