"""Which values are the same, pair by pair."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from freshet.storage.changelog.producer import SameValues, same_values

NAN = float("nan")
OTHER_NAN = np.frombuffer(bytes.fromhex("010000000000f8ff"), np.float64)[0]
LIST, MAP = pa.list_(pa.int32()), pa.map_(pa.string(), pa.int32())
ROW = pa.struct([("x", pa.int32()), ("l", LIST)])


@pytest.mark.parametrize(
    ("kind", "pairs"),
    [
        (pa.int32(), [(1, 1, True), (1, 2, False), (None, None, True), (None, 0, False), (0, None, False)]),
        (pa.bool_(), [(True, True, True), (True, False, False), (None, None, True), (None, False, False)]),
        (pa.float64(), [(NAN, OTHER_NAN, True), (0.0, -0.0, False), (1.5, 1.5, True), (None, NAN, False)]),
        (pa.float32(), [(NAN, NAN, True), (0.0, -0.0, False), (None, None, True)]),
        (pa.string(), [("a", "a", True), ("", None, False), ("a", "b", False), (None, None, True)]),
        (pa.decimal128(20, 2), [(Decimal("1.50"), Decimal("1.50"), True), (Decimal("1.50"), Decimal("-1.50"), False)]),
        (LIST, [([1, 2], [1, 2], True), ([1], [1, 2], False), ([], [], True), ([], None, False), (None, None, True)]),
        (LIST, [([None], [None], False), ([1, None], [1, None], False), ([1], [1], True)]),
        (MAP, [([("a", 1), ("b", 2)], [("b", 2), ("a", 1)], True), ([("a", 1)], [("a", 2)], False)]),
        (MAP, [([("a", None)], [("a", None)], False), ([], [], True), (None, None, True)]),
        (ROW, [({"x": None, "l": [1]}, {"x": None, "l": [1]}, True), ({"x": 1, "l": None}, {"x": 1, "l": None}, True)]),
        (ROW, [({"x": 1, "l": [None]}, {"x": 1, "l": [None]}, False), (None, None, True)]),
        (pa.list_(ROW), [([{"x": 1, "l": [None]}], [{"x": 1, "l": [None]}], False), ([{"x": 1}], [{"x": 1}], True)]),
    ],
    ids=str,
)
def test_same_values(kind: pa.DataType, pairs: list[tuple[Any, Any, bool]]) -> None:
    left, right = (pa.array([pair[side] for pair in pairs], kind) for side in (0, 1))
    assert same_values(left, right).tolist() == [pair[2] for pair in pairs]
    assert same_values(right, left).tolist() == [pair[2] for pair in pairs]
    assert same_values(left.slice(1), right.slice(1)).tolist() == [pair[2] for pair in pairs[1:]]
    assert same_values(left.slice(len(left)), right.slice(len(right))).tolist() == []


def test_only_the_columns_named_count() -> None:
    old = pa.table({"a": [1, 2, 3], "b": [1, 1, 1], "c": [1, 2, 3]})
    new = pa.table({"a": [3, 2, 1], "b": [0, 1, 1], "c": [7, 8, 9]})
    old_rows, new_rows = np.array([2, 1, 0]), np.array([0, 1, 2])
    assert SameValues(("a", "b")).pairs(old, old_rows, new, new_rows).tolist() == [False, True, True]
    assert SameValues(()).pairs(old, old_rows, new, new_rows).all()
