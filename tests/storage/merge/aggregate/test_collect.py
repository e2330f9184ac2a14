"""collect: MERGING.md §2.6.1, vectors 45 and 46."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.storage.merge.aggregate.collect import Collect
from freshet.storage.merge.aggregate.events import Event
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import parse_data_type
from freshet.storage.options.engine import AggregateFunction, ColumnAggregate
from tests.kit.hypothesis_profile import examples
from tests.storage.merge.aggregate.fold_reference import Fold, added, column_events, keys_of, reduced

ROW = {"type": "ROW", "fields": [{"id": 0, "name": "a", "type": "INT"}, {"id": 1, "name": "b", "type": "STRING"}]}
MAP = {"type": "MAP", "key": "INT NOT NULL", "value": "STRING"}
INTS = {"type": "ARRAY", "element": "INT"}


def collect(element: Any, **options: Any) -> tuple[Collect, pa.DataType]:
    data_type = parse_data_type({"type": "ARRAY", "element": element})
    return Collect(ColumnAggregate(AggregateFunction.COLLECT, **options), "v", data_type), arrow_type(data_type)


def identity(value: Any) -> Any:
    """A hashable value that is equal where elements are."""
    if isinstance(value, float):
        return "nan" if value != value else struct.pack(">d", value)
    if isinstance(value, dict):
        return tuple((name, identity(value[name])) for name in sorted(value))
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return frozenset((name, identity(item)) for name, item in value)
    if isinstance(value, list):
        return tuple(identity(item) for item in value)
    return value


def fold(distinct: bool, ignore_retract: bool, constructed: bool) -> Fold:
    def add(acc: list[Any] | None, x: list[Any] | None) -> list[Any] | None:
        if acc is None and x is None:
            return None
        if not distinct:
            return x if acc is None else acc if x is None else acc + x
        kept = list(acc or ()) if constructed else []
        for item in (x or ()) if constructed else [*(acc or ()), *(x or ())]:
            if identity(item) not in [identity(other) for other in kept]:
                kept.append(item)
        return kept

    def retract(acc: list[Any] | None, x: list[Any] | None) -> list[Any] | None:
        if acc is None or not x:
            return acc
        left = [identity(item) for item in x]
        kept = []
        for item in acc:
            if identity(item) in left:
                left.remove(identity(item))
            else:
                kept.append(item)
        return kept

    return Fold(add, retract, None if ignore_retract else add)


def test_vector_45_retracts() -> None:
    function, kind = collect("STRING")
    keys = [
        [(Event.ADD, ["A", "B"]), (Event.RETRACT, ["A", "B"]), (Event.ADD, ["C", "D"])],
        [(Event.ADD, ["A", "B", "C", "D"]), (Event.RETRACT, ["C", "D"])],
        [(Event.ADD, ["A", "B", "A", None]), (Event.RETRACT, ["A", "X", None])],
        [(Event.RETRACT, ["A"]), (Event.ADD, ["A"])],
        added(["A"], None, ["A"]),
    ]
    assert reduced(function, keys, kind) == [["C", "D"], ["A", "B"], ["B", "A"], ["A"], ["A", "A"]]
    assert not function.reduce(column_events(keys, kind)).scalar_keys.any()


def test_vector_46_distinct() -> None:
    function, kind = collect("INT", distinct=True)
    keys = [added([1, 1, 2]), added([1, 1, 2], [2, 3]), added(None), added([], None), added([None, None], [None])]
    assert reduced(function, keys, kind) == [[1, 2], [1, 2, 3], None, [], [None]]
    assert not function.reduce(column_events(keys, kind)).scalar_keys.any()
    both = [[(Event.ADD, [2]), (Event.SET, [1, 1]), (Event.RETRACT, [1])], [(Event.SET, [1, 1]), (Event.RETRACT, [])]]
    assert reduced(function, both, kind) == [[1], [1, 1]]
    assert function.reduce(column_events(both, kind)).scalar_keys.tolist() == [True, False]


def test_retracts_take_the_oldest_and_never_count_below_zero() -> None:
    function, kind = collect("INT")
    keys = [
        [(Event.RETRACT, [1, 1]), (Event.ADD, [1, 2, 1]), (Event.RETRACT, [1]), (Event.ADD, [1]), (Event.RETRACT, [2])],
        [(Event.ADD, [1]), (Event.RETRACT, [1, 1]), (Event.ADD, [1])],
        [(Event.RETRACT, [1])],
        [(Event.ADD, None), (Event.ADD, []), (Event.RETRACT, [3])],
    ]
    assert reduced(function, keys, kind) == [[1, 1], [1], None, []]


def test_equality_of_elements() -> None:
    nan = float("nan")
    function, kind = collect("DOUBLE", distinct=True)
    assert repr(reduced(function, [added([nan, -nan, 0.0, -0.0, 0.0, None])], kind)) == "[[nan, 0.0, -0.0, None]]"
    function, kind = collect("BYTES", distinct=True)
    assert reduced(function, [added([b"\0", b""], [b"\0", b"\0\0"])], kind) == [[b"\0", b"", b"\0\0"]]
    function, kind = collect("DECIMAL(20, 2)", distinct=True)
    assert reduced(function, [added([Decimal("1.10")], [Decimal("1.10"), None])], kind) == [[Decimal("1.10"), None]]
    function, kind = collect(MAP, distinct=True)
    assert reduced(function, [added([[(1, "a"), (2, None)], [(2, None), (1, "a")], [(1, "a")], None])], kind) == [
        [[(1, "a"), (2, None)], [(1, "a")], None]
    ]
    function, kind = collect(INTS, distinct=True)
    assert reduced(function, [added([[], [1, 2], [12]], [[1], [2], [1, 2], [None], None, []])], kind) == [
        [[], [1, 2], [12], [1], [2], [None], None]
    ]


def test_late_arrays_stand_first_only_under_ignore_retract() -> None:
    keys = [[(Event.ADD, [1]), (Event.ADD_LATE, [2]), (Event.ADD, [3])]]
    assert reduced(*_swapped(collect("INT"), keys)) == [[1, 2, 3]]
    assert reduced(*_swapped(collect("INT", ignore_retract=True), keys)) == [[2, 1, 3]]


def test_nanoseconds_pass_through() -> None:
    function, kind = collect("TIMESTAMP(9)", distinct=True)
    values = pa.array([[1, 1_000_000_001], [1_000_000_001, 2]], pa.list_(pa.int64())).cast(kind)
    events = column_events([added(None, None)], kind)
    result = function.reduce(type(events)(values, events.codes, events.starts)).values
    assert result.flatten().cast(pa.int64()).to_pylist() == [1, 1_000_000_001, 2]


def _swapped(made: tuple[Collect, pa.DataType], keys: Any) -> tuple[Collect, Any, pa.DataType]:
    return made[0], keys, made[1]


rows = st.none() | st.fixed_dictionaries(
    {"a": st.none() | st.integers(0, 1), "b": st.none() | st.sampled_from(["", "x"])}
)
maps = st.none() | st.dictionaries(st.integers(0, 2), st.none() | st.sampled_from(["", "x"])).map(
    lambda entries: list(entries.items())
)
ELEMENTS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int": ("INT", st.none() | st.integers(0, 3)),
    "string": ("STRING", st.none() | st.sampled_from(["", "a", "b"])),
    "double": ("DOUBLE", st.none() | st.sampled_from([0.0, -0.0, float("nan"), 1.5])),
    "row": (ROW, rows),
    "map": (MAP, maps),
    "array": (INTS, st.none() | st.lists(st.none() | st.integers(0, 1), max_size=2)),
}


def _comparable(arrays: list[Any], ordered: bool) -> list[Any]:
    order: Callable[[Any], Any] = list if ordered else (lambda items: sorted(items, key=repr))
    return [None if array is None else order([identity(item) for item in array]) for array in arrays]


@pytest.mark.few(12)
@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("ignore_retract", [False, True])
@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_as_the_reference_fold(data: st.DataObject, element: str, distinct: bool, ignore_retract: bool) -> None:
    kind_of_element, values = ELEMENTS[element]
    events = [Event.ADD, Event.ADD_LATE, Event.SET, *([] if ignore_retract else [Event.RETRACT])]
    keys = data.draw(keys_of(st.lists(values, max_size=4), *events))
    function, kind = collect(kind_of_element, distinct=distinct, ignore_retract=ignore_retract)
    constructed = element in ("row", "map", "array")
    result = reduced(function, keys, kind, padding=[None])
    expected = [fold(distinct, ignore_retract, constructed).result(key) for key in keys]
    ordered = constructed or not distinct
    assert _comparable(result, ordered) == _comparable(expected, ordered)
