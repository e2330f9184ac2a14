"""nested_update and nested_partial_update: MERGING.md §2.6.1, vectors 49 and 50."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.storage.merge.aggregate.events import AggregationError, Event
from freshet.storage.merge.aggregate.nested import NestedPartialUpdate, NestedUpdate
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import parse_data_type
from freshet.storage.options.engine import AggregateFunction, ColumnAggregate
from tests.kit.hypothesis_profile import examples
from tests.storage.merge.aggregate.fold_reference import Fold, added, column_events, keys_of, reduced

Row = dict[str, Any] | None
FIELDS = ("k0", "k1", "v", "s")
ROW_TYPE = {
    "type": "ROW",
    "fields": [
        {"id": 0, "name": "k0", "type": "INT"},
        {"id": 1, "name": "k1", "type": "INT"},
        {"id": 2, "name": "v", "type": "STRING"},
        {"id": 3, "name": "s", "type": "DOUBLE"},
    ],
}
NESTED = parse_data_type({"type": "ARRAY", "element": ROW_TYPE})
KIND = arrow_type(NESTED)
KEY = ("k0", "k1")


def nested_update(**options: Any) -> NestedUpdate:
    return NestedUpdate(ColumnAggregate(AggregateFunction.NESTED_UPDATE, **options), "v", NESTED)


def nested_partial_update(**options: Any) -> NestedPartialUpdate:
    function = ColumnAggregate(AggregateFunction.NESTED_PARTIAL_UPDATE, nested_key=KEY, **options)
    return NestedPartialUpdate(function, "v", NESTED)


def row(k0: int | None, k1: int | None, v: str | None = None, s: float | None = None) -> Row:
    return {"k0": k0, "k1": k1, "v": v, "s": s}


def fold(options: dict[str, Any], *, partial: bool = False) -> Fold:
    keyed = bool(options.get("nested_key")) or partial
    limit = options["count_limit"] if options.get("count_limit") is not None else 10**9
    strategy = options.get("null_strategy", "merge")
    sequence = options.get("nested_sequence", ())

    def looked_at(rows: Sequence[Row] | None) -> list[dict[str, Any]]:
        kept = []
        for item in rows or ():
            if item is not None and keyed and None in (item["k0"], item["k1"]):
                if strategy == "error":
                    raise ValueError("null in a key")
                if strategy == "ignore":
                    continue
            if item is not None:
                kept.append(item)
        return kept

    def order(item: dict[str, Any]) -> list[tuple[bool, Any]]:
        return [(item[name] is not None, item[name] or 0.0) for name in sequence]

    def put(table: dict[Any, Any], rows: Sequence[Row] | None, most: int, *, by_sequence: bool = True) -> None:
        for item in looked_at(rows):
            key = (item["k0"], item["k1"])
            if key in table:
                if not by_sequence or order(item) >= order(table[key]):
                    table[key] = item
            elif len(table) < most:
                table[key] = item

    def add(acc: list[Row] | None, x: list[Row] | None) -> list[Row] | None:
        if x is None:
            return acc
        if partial:
            table: dict[Any, Any] = {}
            for item in looked_at([*(acc or ()), *x]):
                target = table.setdefault((item["k0"], item["k1"]), dict.fromkeys(FIELDS))
                target.update({name: value for name, value in item.items() if value is not None})
            return list(table.values())
        if keyed:
            table = {}
            put(table, acc, 10**9)
            put(table, x, limit)
            return list(table.values())
        if acc is not None and len(acc) >= limit:
            return acc
        return looked_at(acc) + looked_at(x)[: limit - len(acc or ())]

    def retract(acc: list[Row] | None, x: list[Row] | None) -> list[Row] | None:
        if acc is None or x is None:
            return acc
        if keyed:
            table: dict[Any, Any] = {}
            put(table, acc, 10**9, by_sequence=False)
            for item in looked_at(x):
                table.pop((item["k0"], item["k1"]), None)
            return list(table.values())
        return [item for item in looked_at(acc) if item not in looked_at(x)]

    return Fold(add, retract)


def test_vector_49_limit() -> None:
    function = nested_update(nested_key=KEY, count_limit=2)
    keys = [added([row(0, 1, "B")], [row(1, 2, "C")], [row(0, 1, "B_updated")], [row(2, 3, "D")])]
    assert _unordered(reduced(function, keys, KIND)) == _unordered([[row(0, 1, "B_updated"), row(1, 2, "C")]])


def test_vector_50_sequence() -> None:
    function = nested_update(nested_key=KEY, nested_sequence=("s",))
    adds = added([row(0, 0, "A", 1)], [row(0, 1, "B", 2)], [row(0, 1, "b", 3)], [row(0, 1, "B_late", 2)])
    keys = [adds, [*adds, (Event.RETRACT, [row(0, 1, "b", 3)])]]
    events = column_events(keys, KIND)
    reduction = function.reduce(events)
    assert _unordered(reduction.values.to_pylist()) == _unordered(
        [[row(0, 0, "A", 1), row(0, 1, "b", 3)], [row(0, 0, "A", 1)]]
    )
    assert not reduction.scalar_keys.any()


def test_first_record_is_cut_to_the_limit_and_null_rows_are_dropped() -> None:
    keys = [added([row(0, 0), None, row(1, 1), row(2, 2)]), added(None), added([]), [(Event.SET, [None, row(0, 0)])]]
    assert reduced(nested_update(count_limit=2), keys, KIND) == [
        [row(0, 0), row(1, 1)],
        None,
        [],
        [None, row(0, 0)],
    ]


def test_without_key_all_equal_rows_are_retracted() -> None:
    keys = [[*added([row(0, 0, "a"), row(0, 0, "a"), row(0, 0)]), (Event.RETRACT, [row(0, 0, "a"), None])]]
    assert reduced(nested_update(), keys, KIND) == [[row(0, 0)]]


def test_null_strategies() -> None:
    keys = [added([row(0, 0, "x")]), added([row(0, None, "a"), row(0, 1, "b")], [row(0, None, "c")])]
    for make in (lambda **options: nested_update(nested_key=KEY, **options), nested_partial_update):
        merged, ignored = (reduced(make(null_strategy=name), keys, KIND) for name in ("merge", "ignore"))
        assert _unordered(merged) == _unordered([[row(0, 0, "x")], [row(0, None, "c"), row(0, 1, "b")]])
        assert ignored == [[row(0, 0, "x")], [row(0, 1, "b")]]
        with pytest.raises(AggregationError, match=r"fields\.v\.nested-key-null-strategy") as caught:
            make(null_strategy="error").reduce(column_events(keys, KIND))
        assert caught.value.event == 1


def test_fields_are_overlaid() -> None:
    keys = [added([row(0, 0, "a", None)], [row(0, 0, None, 1.0), row(1, 0)], [row(0, 0, "b", None)]), added(None)]
    function = nested_partial_update()
    assert _unordered(reduced(function, keys, KIND)) == _unordered([[row(0, 0, "b", 1.0), row(1, 0)], None])


def test_fields_that_are_not_null_stay_so_beside_null_rows() -> None:
    fields = [{"id": 0, "name": "k", "type": "INT NOT NULL"}, {"id": 1, "name": "v", "type": "STRING"}]
    data_type = parse_data_type({"type": "ARRAY", "element": {"type": "ROW", "fields": fields}})
    function = ColumnAggregate(AggregateFunction.NESTED_PARTIAL_UPDATE, nested_key=("k",))
    keys = [[(Event.SET, [None, {"k": 1, "v": None}])], added([{"k": 1, "v": "a"}, None])]
    assert reduced(NestedPartialUpdate(function, "v", data_type), keys, arrow_type(data_type)) == [
        [None, {"k": 1, "v": None}],
        [{"k": 1, "v": "a"}],
    ]


items = st.none() | st.builds(
    row,
    st.none() | st.integers(0, 1),
    st.none() | st.integers(0, 1),
    st.none() | st.sampled_from(["a", "b"]),
    st.none() | st.sampled_from([-1.0, 0.0, 2.0]),
)
tables = st.lists(items, max_size=4)
OPTIONS: dict[str, dict[str, Any]] = {
    "no key": {},
    "no key, limit": {"count_limit": 3},
    "key": {"nested_key": KEY},
    "key, limit": {"nested_key": KEY, "count_limit": 2},
    "key, sequence": {"nested_key": KEY, "nested_sequence": ("s",)},
    "key, ignore": {"nested_key": KEY, "null_strategy": "ignore"},
    "key, error": {"nested_key": KEY, "null_strategy": "error"},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("events", [(Event.ADD,), (Event.ADD, Event.ADD_LATE, Event.SET, Event.RETRACT)])
@settings(max_examples=examples(30), deadline=None)
@given(data=st.data())
def test_update_as_the_reference_fold(data: st.DataObject, name: str, events: tuple[Event, ...]) -> None:
    options = OPTIONS[name]
    keys = data.draw(keys_of(tables, *events))
    _compare(nested_update(**options), fold(options), keys, ordered="nested_key" not in options)


@pytest.mark.parametrize("strategy", ["merge", "ignore", "error"])
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_partial_update_as_the_reference_fold(data: st.DataObject, strategy: str) -> None:
    # Rows that a SET makes irrelevant are not looked at any more, not even for NULLs in their keys.
    keys = data.draw(keys_of(tables, Event.ADD, Event.ADD_LATE, *([] if strategy == "error" else [Event.SET])))
    options = {"null_strategy": strategy}
    _compare(nested_partial_update(**options), fold(options, partial=True), keys, ordered=False)


def test_sequences_of_two_fields() -> None:
    function = nested_update(nested_key=("k0",), nested_sequence=("s", "v"))
    keys = [
        added([row(0, 1, "b", 1.0)], [row(0, 2, "a", 1.0)]),
        added([row(0, 1, "b", 1.0)], [row(0, 2, None, 1.0)], [row(0, 3, "b", 1.0)]),
        added([row(0, 1, "b", 1.0)], [row(0, 2, "z", None)], [row(0, 3, "", float("nan"))], [row(0, 4, "a", 9.0)]),
        added([row(0, 1, "b", 0.0)], [row(0, 2, "b", -0.0)]),
    ]
    assert [table[0]["k1"] for table in reduced(function, keys, KIND)] == [1, 3, 3, 1]


def _compare(function: Any, reference: Fold, keys: Any, *, ordered: bool) -> None:
    try:
        expected = [reference.result(key) for key in keys]
    except ValueError:
        with pytest.raises(AggregationError):
            function.reduce(column_events(keys, KIND))
        return
    result = reduced(function, keys, KIND, padding=[row(7, 7), None])
    assert (result if ordered else _unordered(result)) == (expected if ordered else _unordered(expected))


def _unordered(arrays: list[list[Row] | None]) -> list[Any]:
    return [None if rows is None else sorted(rows, key=repr) for rows in arrays]
