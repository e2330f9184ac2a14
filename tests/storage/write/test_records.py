"""Rows as they come: what is filled in, filtered, and refused besides what `test_bad_input` shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.arrow_types import arrow_type, fields_from_arrow
from freshet.storage.model.data_type import DataField
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.sql_type import parse_sql_type
from freshet.storage.write.records import RecordRules

ARROW = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.string()), pa.field("n", pa.int32(), False)])


def rules(*, keyed: bool = True, **options: object) -> RecordRules:
    fields, highest = fields_from_arrow(ARROW, ["id"] if keyed else [])
    schema = TableSchema(0, fields, highest, primary_keys=("id",) if keyed else ())
    if "sequence_field" in options:
        options["sequence_field"] = (options["sequence_field"],)
    return RecordRules(schema, table="shop.t", **options)  # type: ignore[arg-type]


def with_default(name: str) -> RecordRules:
    fields, highest = fields_from_arrow(ARROW, ["id"])
    fields = tuple(replace(f, default_value="7") if f.name == name else f for f in fields)
    return RecordRules(TableSchema(0, fields, highest, primary_keys=("id",)), table="shop.t")


def rows(**columns: list[object]) -> pa.Table:
    given = {"id": [1, 2], "v": ["a", None], "n": [5, 6], **columns}
    return pa.table(given)


def test_columns_come_in_table_order_and_types() -> None:
    data = pa.table({"n": pa.array([5], pa.int64()), "v": pa.array(["a"], pa.large_string()), "id": [1]})
    accepted = rules().accept(data)
    assert accepted.rows.schema.names == ["id", "v", "n"]
    assert accepted.rows.schema.field("n").type == pa.int32()
    assert accepted.kinds is None


def test_a_missing_nullable_column_is_null_or_its_default() -> None:
    data = pa.table({"id": [1, 2], "n": [1, 2]})
    assert rules().accept(data).rows.column("v").to_pylist() == [None, None]
    assert with_default("v").accept(data).rows.column("v").to_pylist() == ["7", "7"]


def test_a_missing_not_null_column_is_its_default() -> None:
    data = pa.table({"id": [1, 2], "v": ["a", "b"]})
    assert with_default("n").accept(data).rows.column("n").to_pylist() == [7, 7]
    with pytest.raises(InvalidRequestError, match="'n' of shop.t is NOT NULL"):  # NULL is not *missing*
        with_default("n").accept(rows(n=[1, None]))


@pytest.mark.parametrize("option", ["sequence_field", "rowkind_field"])
def test_a_column_that_an_option_names_must_be_there(option: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"lacks column 'v'.*add it") as raised:
        rules(**{option: "v"}).accept(pa.table({"id": [1], "n": [1]}))
    assert (raised.value.column, raised.value.option) == ("v", option.replace("_", "."))


def test_a_delete_needs_the_key_only_where_the_engine_says_so() -> None:
    deletes = pa.table({"id": [1, 2], "_ROW_KIND": ["-D", "-D"]})
    accepted = rules(deletes_by_key=True).accept(deletes)
    assert accepted.rows.to_pylist() == [{"id": 1, "v": None, "n": 0}, {"id": 2, "v": None, "n": 0}]
    with pytest.raises(InvalidRequestError, match="lacks column 'n'"):
        rules().accept(deletes)
    with pytest.raises(InvalidRequestError, match="lacks column 'id'"):
        rules(deletes_by_key=True).accept(deletes.drop_columns(["id"]).append_column("n", pa.array([1, 2])))


def test_a_delete_among_other_rows_may_hold_null() -> None:
    mixed = pa.table({"id": [1, 2, 3], "n": [5, None, 7], "_ROW_KIND": ["+I", "-D", "+U"]})
    assert rules(deletes_by_key=True).accept(mixed).rows.column("n").to_pylist() == [5, 0, 7]
    wrong = mixed.set_column(1, "n", pa.array([5, None, None], pa.int64()))
    with pytest.raises(InvalidRequestError, match=r"'n' of shop.t is NOT NULL, but row 2 .*\(1 rows do\)"):
        rules(deletes_by_key=True).accept(wrong)


def test_deletes_that_are_ignored_need_nothing_but_the_key() -> None:
    accepted = rules(ignore_delete=True).accept(pa.table({"id": [1], "_ROW_KIND": ["-D"]}))
    assert accepted.rows.num_rows == 0


@pytest.mark.parametrize(
    ("written", "fits", "too_long"),
    [
        ("VARCHAR(3)", "äöü", "abcd"),
        ("CHAR(2)", "a", "abc"),
        ("BINARY(2)", b"a", b"abc"),
        ("VARBINARY(2)", b"ab", b"abc"),
        ("ARRAY<VARCHAR(3)>", ["abc", None], ["abc", "abcd"]),
        ("MAP<VARCHAR(1), BINARY(1)>", [("k", b"v")], [("k", b"vv")]),
        ("ROW<x CHAR(1), y INT>", {"x": "a", "y": 1}, {"x": "ab", "y": 1}),
    ],
)
def test_a_value_longer_than_its_type_is_refused(written: str, fits: object, too_long: object) -> None:
    field = DataField(1, "c", parse_sql_type(written))
    key = DataField(0, "id", parse_sql_type("INT NOT NULL"))
    table = RecordRules(TableSchema(0, (key, field), 1, primary_keys=("id",)), table="shop.t")
    column = pa.array([fits, None, fits], arrow_type(field.type))
    assert table.accept(pa.table({"id": [1, 2, 3], "c": column})).rows.column("c").to_pylist() == column.to_pylist()
    column = pa.array([fits, None, too_long], arrow_type(field.type))
    with pytest.raises(InvalidRequestError, match=r"column 'c' of shop.t is .*, but row 2 .*longer \(1 rows do\)"):
        table.accept(pa.table({"id": [1, 2, 3], "c": column}))


def _unchecked(*octets: bytes) -> pa.Array[Any]:
    """Texts of these octets, which nobody has checked."""
    ends = pa.array(np.cumsum([0, *map(len, octets)]), pa.int32())
    return pa.Array.from_buffers(pa.string(), len(octets), [None, ends.buffers()[1], pa.py_buffer(b"".join(octets))])


@pytest.mark.parametrize(
    ("written", "around"),
    [
        ("STRING", lambda texts: texts),
        ("CHAR(9)", lambda texts: texts),
        ("ARRAY<STRING>", lambda texts: pa.ListArray.from_arrays([0, 1, 2, 3], texts)),
        ("MAP<STRING, INT>", lambda texts: pa.MapArray.from_arrays([0, 1, 2, 3], texts, pa.array([1, 2, 3]))),
        ("MAP<INT, STRING>", lambda texts: pa.MapArray.from_arrays([0, 1, 2, 3], pa.array([1, 2, 3]), texts)),
        (
            "ROW<x STRING, y INT>",
            lambda texts: pa.StructArray.from_arrays([texts, pa.nulls(3, pa.int32())], ["x", "y"]),
        ),
        (
            "ARRAY<ROW<x STRING>>",
            lambda texts: pa.ListArray.from_arrays([0, 1, 2, 3], pa.StructArray.from_arrays([texts], ["x"])),
        ),
    ],
)
@pytest.mark.parametrize("bad", [b"b\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"b\xf0\x9f\x98"])
def test_a_text_that_is_no_utf_8_is_refused(written: str, around: Callable[[Any], Any], bad: bytes) -> None:
    field = DataField(1, "c", parse_sql_type(written))
    key = DataField(0, "id", parse_sql_type("INT NOT NULL"))
    table = RecordRules(TableSchema(0, (key, field), 1, primary_keys=("id",)), table="shop.t")
    # Between two others in order, so that no bound of the column shows it.
    rows = pa.table({"id": [1, 2, 3], "c": around(_unchecked(b"a", bad, b"c"))})
    with pytest.raises(InvalidRequestError, match=r"column 'c' of shop.t .*row 1 .*no text in UTF-8 .*BYTES"):
        table.accept(rows)
    assert table.accept(rows.slice(2)).rows.num_rows == 1


def test_a_default_value_counts_as_well() -> None:
    field = DataField(1, "c", parse_sql_type("VARCHAR(3)"), default_value="abcd")
    key = DataField(0, "id", parse_sql_type("INT NOT NULL"))
    table = RecordRules(TableSchema(0, (key, field), 1, primary_keys=("id",)), table="shop.t")
    with pytest.raises(InvalidRequestError, match="'abcd'"):
        table.accept(pa.table({"id": [1]}))


@pytest.mark.parametrize(
    "kinds", [["+U", "-D"], pa.array([2, 3], pa.int8()), pa.array(["+U", "-D"]).dictionary_encode()]
)
def test_kinds_as_text_and_code(kinds: object) -> None:
    accepted = rules().accept(rows(_ROW_KIND=kinds))  # type: ignore[arg-type]
    assert accepted.kinds is not None
    assert accepted.kinds.tolist() == [2, 3]
    assert "_ROW_KIND" not in accepted.rows.schema.names


def test_rowkind_field_wins_over_the_column() -> None:
    accepted = rules(rowkind_field="v").accept(rows(v=["-D", "+I"], _ROW_KIND=["+U", "+U"]))
    assert accepted.kinds is not None
    assert accepted.kinds.tolist() == [3, 0]
    assert accepted.rows.column("v").to_pylist() == ["-D", "+I"]


@pytest.mark.parametrize(
    ("options", "kept"),
    [({}, [0, 1, 2, 3]), ({"ignore_update_before": True}, [0, 2, 3]), ({"ignore_delete": True}, [0, 2])],
)
def test_filters(options: dict[str, bool], kept: list[int]) -> None:
    data = pa.table({"id": [0, 1, 2, 3], "v": ["a"] * 4, "n": [0] * 4, "_ROW_KIND": ["+I", "-U", "+U", "-D"]})
    accepted = rules(**options).accept(data)
    assert accepted.rows.column("id").to_pylist() == kept
    assert accepted.kinds is not None
    assert accepted.kinds.tolist() == kept


def test_append_tables_take_no_retracts() -> None:
    assert rules(keyed=False).accept(rows(_ROW_KIND=["+I", "+U"])).rows.num_rows == 2
    with pytest.raises(InvalidRequestError, match="no primary key"):
        rules(keyed=False).accept(rows(_ROW_KIND=["+I", "-D"]))


def test_empty_input() -> None:
    accepted = rules().accept(ARROW.empty_table())
    assert accepted.rows.num_rows == 0
    assert accepted.kinds is None or isinstance(accepted.kinds, np.ndarray)
