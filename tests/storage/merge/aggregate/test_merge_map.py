"""merge_map and merge_map_with_keytime: MERGING.md §2.6.1, vectors 47 and 48."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.storage.merge.aggregate.events import Event
from freshet.storage.merge.aggregate.merge_map import MergeMap, MergeMapWithKeyTime
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import parse_data_type
from freshet.storage.options.engine import AggregateFunction, ColumnAggregate
from tests.kit.hypothesis_profile import examples
from tests.storage.merge.aggregate.fold_reference import Fold, added, column_events, keys_of, reduced

Map = dict[Any, Any] | None


def merge_map(key: Any = "INT NOT NULL", value: Any = "STRING") -> tuple[MergeMap, pa.DataType]:
    data_type = parse_data_type({"type": "MAP", "key": key, "value": value})
    return MergeMap(ColumnAggregate(AggregateFunction.MERGE_MAP), "v", data_type), arrow_type(data_type)


def with_keytime(time_field: str | None = None) -> tuple[MergeMapWithKeyTime, pa.DataType]:
    fields = [{"id": 0, "name": "t", "type": "STRING"}, {"id": 1, "name": "u", "type": "STRING"}]
    data_type = parse_data_type({"type": "MAP", "key": "STRING NOT NULL", "value": {"type": "ROW", "fields": fields}})
    function = ColumnAggregate(AggregateFunction.MERGE_MAP_WITH_KEYTIME, time_field=time_field)
    return MergeMapWithKeyTime(function, "v", data_type), arrow_type(data_type)


def add(acc: Map, x: Map) -> Map:
    return x if acc is None else acc if x is None else acc | x


def retract(acc: Map, x: Map) -> Map:
    return acc if not acc or not x else {name: value for name, value in acc.items() if name not in x}


def add_newer(time: str) -> Any:
    def add(acc: Map, x: Map) -> Map:
        if acc is None or x is None:
            return x if acc is None else acc
        acc = dict(acc)
        for name, row in x.items():
            if row is None:
                acc.pop(name, None)
            elif row[time] is not None:
                old = acc.get(name)
                if old is None or old[time] is None or _utf16(row[time]) > _utf16(old[time]):
                    acc[name] = row
        return acc

    return add


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be")


def as_map(value: Any) -> Any:
    if value is None:
        return None
    assert len(dict(value)) == len(value)
    return dict(value)


def pairs(keys: Any) -> Any:
    """The keys with maps as lists of pairs, as Arrow wants them."""
    return [[(event, None if value is None else list(value.items())) for event, value in key] for key in keys]


def test_vector_47_null_is_nothing_to_retract() -> None:
    function, kind = merge_map()
    keys = [[(Event.ADD, None), (Event.ADD, {1: "A"}), (Event.RETRACT, None), (Event.ADD, {2: "B"})]]
    assert [as_map(value) for value in reduced(function, pairs(keys), kind)] == [{1: "A", 2: "B"}]


def test_adds_take_the_last_value_of_a_key_and_late_ones_lose() -> None:
    function, kind = merge_map()
    keys = [
        added({1: "a", 2: "b"}, {1: None, 3: "c"}, None),
        [(Event.ADD, {1: "a"}), (Event.ADD_LATE, {1: "x", 2: "y"}), (Event.ADD_LATE, {2: "z", 4: "w"})],
        added(None),
        added({}, None),
    ]
    result = function.reduce(column_events(pairs(keys), kind))
    assert [as_map(value) for value in result.values.to_pylist()] == [
        {1: None, 2: "b", 3: "c"},
        {1: "a", 2: "y", 4: "w"},
        None,
        {},
    ]
    assert not result.scalar_keys.any()


def test_keys_of_bytes_are_equal_by_content() -> None:
    function, kind = merge_map("BYTES NOT NULL", "BIGINT")
    keys = [added({b"k": 1, b"": 2}, {b"k": 3}), [(Event.ADD, {b"k": 1, b"l": 2}), (Event.RETRACT, {b"k": 9})]]
    assert [as_map(value) for value in reduced(function, pairs(keys), kind)] == [{b"k": 3, b"": 2}, {b"l": 2}]


def test_vector_48_times_are_texts() -> None:
    function, kind = with_keytime()

    def row(value: str, time: str) -> dict[str, str]:
        return {"t": value, "u": time}

    keys = [
        added(
            {"p": row("iPhone", "100"), "c": row("Black", "100")},
            {"p": row("iPad", "200"), "price": row("999", "200")},
            {"c": row("White", "50")},
        )
    ]
    assert [as_map(value) for value in reduced(function, pairs(keys), kind)] == [
        {"p": row("iPad", "200"), "c": row("White", "50"), "price": row("999", "200")}
    ]
    assert function.reduce(column_events(pairs(keys), kind)).scalar_keys.tolist() == [True]


def test_a_map_alone_stays_as_it_is() -> None:
    function, kind = with_keytime()
    keys = [added(None, {"a": None, "b": {"t": "x", "u": None}}), added(None)]
    result = function.reduce(column_events(pairs(keys), kind))
    assert [as_map(value) for value in result.values.to_pylist()] == [{"a": None, "b": {"t": "x", "u": None}}, None]
    assert not result.scalar_keys.any()


maps = st.dictionaries(st.integers(0, 3), st.none() | st.sampled_from(["a", "b", "c"]), max_size=3)


@settings(max_examples=examples(80), deadline=None)
@given(keys=keys_of(maps, Event.ADD, Event.ADD_LATE, Event.SET, Event.RETRACT))
def test_as_the_reference_fold(keys: Any) -> None:
    function, kind = merge_map()
    result = [as_map(value) for value in reduced(function, pairs(keys), kind, padding=[(9, "z")])]
    assert result == [Fold(add, retract).result(key) for key in keys]


@settings(max_examples=examples(40), deadline=None)
@given(keys=keys_of(maps, Event.ADD, Event.ADD_LATE))
def test_without_retracts_as_the_reference_fold(keys: Any) -> None:
    function, kind = merge_map()
    result = [as_map(value) for value in reduced(function, pairs(keys), kind, padding=[(9, "z")])]
    assert result == [Fold(add).result(key) for key in keys]


# U+FF5E is above the surrogates as a code point and below none of their units: UTF-16 orders it after U+1F600.
times = st.none() | st.sampled_from(["", "50", "100", "1000", "\uff5e", "\U0001f600"])
timed = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.none() | st.fixed_dictionaries({"t": times, "u": times}), max_size=3
)


@pytest.mark.parametrize("time_field", ["t", "u", None])
@settings(max_examples=examples(40), deadline=None)
@given(keys=keys_of(timed, Event.ADD, Event.ADD_LATE, Event.SET))
def test_newest_entries_as_the_reference_fold(keys: Any, time_field: str | None) -> None:
    function, kind = with_keytime(time_field)
    result = [as_map(value) for value in reduced(function, pairs(keys), kind, padding=[("a", None)])]
    assert result == [Fold(add_newer(time_field or "u")).result(key) for key in keys]
