"""listagg: MERGING.md §2.6.1, vectors 32 to 35."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.storage.merge.aggregate.events import Event
from freshet.storage.merge.aggregate.text import BLANKS, ListAgg, blank_flags
from freshet.storage.model.data_type import parse_data_type
from freshet.storage.options.engine import AggregateFunction, ColumnAggregate
from tests.kit.hypothesis_profile import examples
from tests.storage.merge.aggregate.fold_reference import Fold, added, column_events, keys_of, reduced

STRING = parse_data_type("STRING")


def listagg(**options: Any) -> ListAgg:
    return ListAgg(ColumnAggregate(AggregateFunction.LISTAGG, **options), "v", STRING)


def is_blank(text: str | None) -> bool:
    return text is None or all(char in BLANKS for char in text)


def fold(delimiter: str, distinct: bool) -> Fold:
    def add(acc: str | None, x: str | None) -> str | None:
        if is_blank(x):
            return acc
        if is_blank(acc):
            return x
        assert acc is not None
        assert x is not None
        if not distinct:
            return acc + delimiter + x
        seen = acc.split(delimiter or " ")
        for token in x.split(delimiter or " "):
            if not is_blank(token) and token not in seen:
                seen.append(token)
                acc += delimiter + token
        return acc

    return Fold(add)


@pytest.mark.parametrize(
    ("options", "values", "expected"),
    [
        ({}, ["1", "2", "3", "4", "5"], "1,2,3,4,5"),
        ({"delimiter": "-"}, ["1", "2", "3", "4", "5"], "1-2-3-4-5"),
        ({"distinct": True}, ["abc,def,asd", "ab,xy"], "abc,def,asd,ab,xy"),
        ({"distinct": True, "delimiter": " "}, ["k1=v1 k2=v2", " k1=v1  k3=v3", " "], "k1=v1 k2=v2 k3=v3"),
        ({}, ["user1", "", " ", "\t", " \t\n\r\n\u3000 ", "user2", "\u2000"], "user1,user2"),
        ({}, [None, "a", None], "a"),
        ({}, [" ", None], None),
        ({"distinct": True}, ["a,a"], "a,a"),
        ({"distinct": True}, ["a,a", "b,b,a"], "a,a,b"),
        ({"distinct": True, "delimiter": ""}, ["a b", "b c"], "a bc"),
        ({"delimiter": ""}, ["a", "b"], "ab"),
    ],
)
def test_vectors(options: dict[str, Any], values: list[str | None], expected: str | None) -> None:
    assert reduced(listagg(**options), [added("x"), added(*values)], pa.string()) == ["x", expected]


@pytest.mark.parametrize("char", ["\u00a0", "\u2007", "\u202f", "\u0085", "\u180e", "\u200b"])
def test_what_is_no_blank_for_java(char: str) -> None:
    assert reduced(listagg(), [added(char, "a")], pa.string()) == [f"{char},a"]


def test_every_blank() -> None:
    values = pa.array([*BLANKS, BLANKS, "", None, f"{BLANKS}x", "\x1b", "\x00"])
    assert blank_flags(values).tolist() == [True] * (len(BLANKS) + 3) + [False] * 3
    assert blank_flags(values[len(BLANKS) :]).tolist() == [True] * 3 + [False] * 3
    assert blank_flags(values[:0]).tolist() == []
    assert blank_flags(pa.nulls(2, pa.string())).tolist() == [True, True]


def test_late_texts_stand_first_and_blank_ones_replace_what_is_blank() -> None:
    keys = [
        [(Event.ADD, "a"), (Event.ADD_LATE, "b"), (Event.ADD, "c"), (Event.ADD_LATE, "d")],
        [(Event.ADD_LATE, " "), (Event.ADD, "  ")],
        [(Event.SET, " "), (Event.ADD_LATE, None)],
        [(Event.ADD, "a"), (Event.SET, " "), (Event.SKIP, "b")],
    ]
    assert reduced(listagg(), keys, pa.string()) == ["d,b,a,c", " ", None, " "]


def test_distinct_adds_are_not_merged_in_python() -> None:
    events = column_events([added("a", "b,a"), added("a")], pa.string())
    assert not listagg(distinct=True).reduce(events).scalar_keys.any()
    assert listagg(distinct=True, delimiter="aa").reduce(events).scalar_keys.tolist() == [True, False]


texts = st.lists(st.sampled_from(["a", "b", "ab", "é", "€", " ", "\u3000", "\u00a0", ",", "a,", "--", "-", ""])).map(
    "".join
)


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("delimiter", [",", "", "-", "--", "ab", "a"])
@settings(max_examples=examples(40), deadline=None)
@given(keys=keys_of(texts, Event.ADD, Event.ADD_LATE, Event.SET))
def test_as_the_reference_fold(keys: Any, delimiter: str, distinct: bool) -> None:
    expected = [fold(delimiter, distinct).result(key) for key in keys]
    assert reduced(listagg(delimiter=delimiter, distinct=distinct), keys, pa.string(), padding="pad") == expected


@settings(max_examples=examples(40), deadline=None)
@given(keys=keys_of(texts, Event.ADD))
def test_adds_only_as_the_reference_fold(keys: Any) -> None:
    assert reduced(listagg(distinct=True), keys, pa.string(), padding="pad") == [
        fold(",", True).result(k) for k in keys
    ]
