"""Rows as they come: what is refused, filled in, filtered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.arrow_types import fields_from_arrow
from freshet.storage.model.schema import TableSchema
from freshet.storage.write.records import RecordRules

ARROW = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.string()), pa.field("n", pa.int32(), False)])


def rules(*, keyed: bool = True, **options: object) -> RecordRules:
    fields, highest = fields_from_arrow(ARROW, ["id"] if keyed else [])
    schema = TableSchema(0, fields, highest, primary_keys=("id",) if keyed else ())
    return RecordRules(schema, table="shop.t", **options)  # type: ignore[arg-type]


def rows(**columns: list[object]) -> pa.Table:
    given = {"id": [1, 2], "v": ["a", None], "n": [5, 6], **columns}
    return pa.table(given)


def test_columns_come_in_table_order_and_types() -> None:
    data = pa.table({"n": pa.array([5], pa.int64()), "v": pa.array(["a"], pa.large_string()), "id": [1]})
    accepted = rules().accept(data)
    assert accepted.rows.schema.names == ["id", "v", "n"]
    assert accepted.rows.schema.field("n").type == pa.int32()
    assert accepted.kinds is None


def test_null_in_the_key_names_column_and_row() -> None:
    with pytest.raises(InvalidRequestError, match=r"'id' of shop.t is part of the primary key, but row 1"):
        rules().accept(rows(id=[1, None]))


def test_null_in_a_not_null_column() -> None:
    with pytest.raises(InvalidRequestError, match=r"'n' of shop.t is NOT NULL, but row 0"):
        rules().accept(rows(n=[None, 1]))


def test_unknown_and_missing_columns() -> None:
    with pytest.raises(InvalidRequestError, match="no column 'extra'"):
        rules().accept(rows(extra=[1, 2]))
    with pytest.raises(InvalidRequestError, match="'v'"):
        rules().accept(pa.table({"id": [1], "n": [1]}))


def test_default_values_replace_nulls() -> None:
    fields, highest = fields_from_arrow(ARROW, ["id"])
    fields = tuple(replace(f, default_value="none") if f.name == "v" else f for f in fields)
    accepted = RecordRules(TableSchema(0, fields, highest, primary_keys=("id",)), table="t").accept(rows())
    assert accepted.rows.column("v").to_pylist() == ["a", "none"]


@pytest.mark.parametrize(
    "kinds", [["+U", "-D"], pa.array([2, 3], pa.int8()), pa.array(["+U", "-D"]).dictionary_encode()]
)
def test_kinds_as_text_and_code(kinds: object) -> None:
    accepted = rules().accept(rows(_ROW_KIND=kinds))  # type: ignore[arg-type]
    assert accepted.kinds is not None
    assert accepted.kinds.tolist() == [2, 3]
    assert "_ROW_KIND" not in accepted.rows.schema.names


@pytest.mark.parametrize(
    ("kinds", "found"), [(["+I", "x"], "'x' in row 1"), ([None, "+I"], "None in row 0"), ([0, 4], "4")]
)
def test_unknown_kinds(kinds: list[object], found: str) -> None:
    with pytest.raises(InvalidRequestError, match=found):
        rules().accept(rows(_ROW_KIND=kinds))


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
