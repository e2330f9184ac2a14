"""Nested arrays taken apart and put together again, against what Python makes of the values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from freshet.storage.model.nested_arrays import Nested, assembled, converted

LISTS = pa.list_(pa.field("element", pa.int32()))
MAPS = pa.map_(pa.field("key", pa.string(), False), pa.field("value", pa.int32()))
ROWS = pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.string())])
DEEP = pa.list_(pa.field("element", pa.struct([pa.field("m", MAPS), pa.field("l", LISTS)])))

HIDDEN = pa.array([False, True, False])


def plain() -> list[Any]:
    pairs = [{"m": [("x", 1)], "l": [1, None]}, {"m": None, "l": []}]
    return [
        pa.array([[1, 2], None, [], [3, None]], LISTS),
        pa.array([[("a", 1), ("b", None)], [], None, [("c", 3)]], MAPS),
        pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 3, "b": None}], ROWS),
        pa.array([pairs, None, [None], []], DEEP),
        pa.array([], LISTS),
        pa.array([None, None], MAPS),
    ]


def with_hidden_parts() -> list[Any]:
    """Arrays with something under their NULL, as filters and joins may leave it there."""
    offsets = pa.array([0, 2, 4, 5], pa.int32())
    numbers = pa.array(range(5), pa.int32())
    rows = pa.StructArray.from_arrays([numbers[:3], pa.array(["p", "q", "r"])], fields=list(ROWS), mask=HIDDEN)
    return [
        pa.ListArray.from_arrays(offsets, numbers, type=LISTS, mask=HIDDEN),
        pa.MapArray.from_arrays(offsets, pa.array(list("abcde")), numbers, type=MAPS, mask=HIDDEN),
        rows,
    ]


@pytest.mark.parametrize("whole", [*plain(), *with_hidden_parts()], ids=lambda array: str(array.type)[:20])
@pytest.mark.parametrize("start", [0, 1])
def test_an_array_is_what_its_children_make(whole: Any, start: int) -> None:
    array = whole.slice(start)
    again = Nested.of(array).over(Nested.of(array).children, array.type)
    again.validate(full=True)
    assert again.type.equals(array.type)
    assert again.to_pylist() == array.to_pylist()


@pytest.mark.parametrize("array", with_hidden_parts(), ids=["list", "map", "struct"])
def test_children_hold_no_more_than_the_values(array: Any) -> None:
    nested = Nested.of(array)
    if nested.offsets is None:
        assert nested.children[0].to_pylist() == [0, None, 2]
        return
    assert nested.offsets.tolist() == [0, 2, 2, 3]
    assert nested.parents.tolist() == [0, 0, 2]
    assert nested.children[-1].to_pylist() == [0, 1, 4]
    assert Nested.of(array.slice(2)).children[-1].to_pylist() == [4]


def test_children_of_plain_arrays_are_not_copied() -> None:
    array = pa.array([[1, 2], None, [3]], LISTS)
    (elements,) = Nested.of(array.slice(2)).children
    assert elements.buffers()[1].address == array.values.buffers()[1].address


@pytest.mark.parametrize(
    "child",
    [pa.array([1, None, 3], pa.int32()), pa.array(["a", None, "c"]), *(array.slice(0, 3) for array in plain()[:3])],
    ids=lambda array: str(array.type)[:10],
)
def test_a_field_that_is_not_null_has_a_value_under_a_null_row(child: Any) -> None:
    """Parquet is not written otherwise; a NULL of a row that is there stays."""
    field = pa.field("x", child.type, nullable=False)
    values = [{"x": value} for value in child.to_pylist()]
    rows = pa.array([values[0], None, None], pa.struct([pa.field("x", child.type)]))
    again = Nested.of(rows).over(Nested.of(rows).children, pa.struct([field]))
    again.validate(full=True)
    assert again.to_pylist() == rows.to_pylist()
    assert again.field(0).null_count == 0
    present = pa.array(values, rows.type)
    assert Nested.of(present).over([child], pa.struct([field])).to_pylist() == values


def test_lists_may_take_the_place_of_maps() -> None:
    maps = plain()[1]
    texts = Nested.of(maps).lists(pa.array(["p", "q", "r"]))
    assert texts.to_pylist() == [["p", "q"], [], None, ["r"]]


def test_structs_may_have_no_fields() -> None:
    assert assembled(pa.struct([]), 3, None, None, []).to_pylist() == [{}, {}, {}]


def test_conversion_goes_down_to_the_leaves() -> None:
    wider = pa.list_(
        pa.field(
            "element",
            pa.struct([pa.field("m", pa.map_(pa.string(), pa.int64())), pa.field("l", pa.list_(pa.int64()))]),
        )
    )

    def convert(array: Any, target: Any) -> Any:
        return converted(array, target, convert) if pa.types.is_nested(target) else array.cast(target)

    deep = plain()[3]
    wide = convert(deep, wider)
    wide.validate(full=True)
    assert wide.type.equals(wider)
    assert wide.to_pylist() == deep.to_pylist()
    assert np.array_equal(wide.is_valid(), deep.is_valid())
