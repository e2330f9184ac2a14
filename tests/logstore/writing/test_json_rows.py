"""JSON texts of rows: every value of every type is read back exactly, and reads as outside consumers expect it."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.logstore.exceptions import LogConfigError
from freshet.logstore.reading.rows import equal_rows
from freshet.logstore.writing.json_records import object_texts
from tests.kit.hypothesis_profile import examples
from tests.logstore.writing.json_rows import parsed, rows_of

TIMES = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31))
NANOS = st.integers(-(2**63) + 10**9, 2**63 - 1)

SCALARS: dict[pa.DataType, st.SearchStrategy[object]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(38, 10): st.integers(-(10**38) + 1, 10**38 - 1).map(lambda digits: Decimal(f"{digits}E-10")),
    pa.decimal128(38, 0): st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    pa.string(): st.text(),
    pa.binary(): st.binary(),
    pa.date32(): st.dates(),
    pa.time32("ms"): st.integers(0, 86_399_999),
    pa.timestamp("s"): TIMES.map(lambda each: each.replace(microsecond=0)),
    pa.timestamp("ms"): st.integers(-62135596800000, 253402300799999),
    pa.timestamp("us"): TIMES,
    pa.timestamp("ns"): NANOS,
    pa.timestamp("us", "UTC"): TIMES,
    pa.timestamp("ns", "UTC"): NANOS,
}


def nested(kind: pa.DataType, values: st.SearchStrategy[object]) -> dict[pa.DataType, st.SearchStrategy[object]]:
    maybe = st.none() | values
    return {
        pa.list_(pa.field("element", kind)): st.lists(maybe, max_size=3),
        pa.struct([pa.field("a b", kind), pa.field('"', pa.int64())]): st.fixed_dictionaries(
            {"a b": maybe, '"': st.none() | SCALARS[pa.int64()]}
        ),
        pa.map_(pa.string(), kind): st.dictionaries(st.text(max_size=3), maybe, max_size=3).map(
            lambda found: list(found.items())
        ),
    }


def round_trip(column: pa.Array) -> pa.Array:
    fields = [pa.field("ä\n", column.type)]
    values = [text.encode() for text in object_texts(["ä\n"], [column]).to_pylist()]
    assert all(json.loads(value).keys() == {"ä\n"} for value in values)
    [found] = rows_of(parsed(values), fields)
    found.validate(full=True)
    return found


def check(column: pa.Array) -> None:
    found = round_trip(column)
    assert found.type == column.type
    rows = [pa.RecordBatch.from_arrays([each], ["c"]) for each in (column, found)]
    assert equal_rows(*rows) == len(column), (column, found)


@pytest.mark.parametrize("kind", SCALARS, ids=str)
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_scalars_are_read_back(kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | SCALARS[kind], max_size=8))
    column = pa.array(values, kind)
    if pa.types.is_floating(kind):  # JSON has one NaN
        column = pa.array([float("nan") if value != value else value for value in values], kind)
    check(column)
    check(column.slice(len(values) // 2))


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.binary(), pa.decimal128(38, 10), pa.timestamp("us"), pa.int64()], ids=str
)
@settings(max_examples=examples(5), deadline=None)
@given(data=st.data())
def test_nested_values_are_read_back(kind: pa.DataType, data: st.DataObject) -> None:
    for outer, values in nested(kind, SCALARS[kind]).items():
        column = pa.array(data.draw(st.lists(st.none() | values, max_size=5)), outer)
        check(column)
        check(column.slice(len(column) // 2))
        for twice, more in nested(outer, values).items():
            check(pa.array(data.draw(st.lists(st.none() | more, max_size=3)), twice))


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.int64(), [1, -(2**62)]),
        (pa.bool_(), [True, False]),
        (pa.float64(), [1.5, float("inf"), -0.0]),
        (pa.decimal128(20, 3), [Decimal("1.500"), Decimal("7.000")]),
        (pa.date32(), [dt.date(2024, 2, 29)]),
        (pa.binary(), [b"", b"\xff"]),
        (pa.list_(pa.string()), [["a"], ['"', "b"]]),
    ],
    ids=str,
)
def test_keys_of_maps_may_have_any_type(kind: pa.DataType, keys: list[object]) -> None:
    check(pa.array([[(key, place) for place, key in enumerate(keys)], None, []], pa.map_(kind, pa.int32())))


def test_decimals_have_no_exponent() -> None:
    least = f"-{'9' * 28}.{'9' * 10}"
    values = [Decimal(0), Decimal("-1E-10"), None, Decimal("12.5"), Decimal(least)]
    column = pa.array(values, pa.decimal128(38, 10))
    texts = ["0.0000000000", "-0.0000000001", "null", "12.5000000000", least]
    assert object_texts(["n"], [column.slice(1)]).to_pylist() == [f'{{"n":{text}}}' for text in texts[1:]]
    listed = pa.array([values], pa.list_(column.type))
    assert object_texts(["n"], [listed]).to_pylist() == [f'{{"n":[{",".join(texts)}]}}']
    whole = pa.array([Decimal(0), Decimal(-5)], pa.decimal128(38, 0))
    assert object_texts(["n"], [whole]).to_pylist() == ['{"n":0}', '{"n":-5}']


def test_texts_are_those_of_flink() -> None:
    time = dt.datetime(2024, 2, 29, 12, 34, 56, 780_000)
    columns = {
        "i": pa.array([1, None]),
        "d": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "f": pa.array([1.0, float("nan")]),
        "s": pa.array(['a"\\\n\x01ü', None]),
        "b": pa.array([b"\x00\xff", None]),
        "day": pa.array([time.date(), None]),
        "t": pa.array([time.time(), None], pa.time32("ms")),
        "ts": pa.array([time, None], pa.timestamp("us")),
        "whole": pa.array([time.replace(microsecond=0), None], pa.timestamp("ns")),
        "z": pa.array([time, None], pa.timestamp("ms", "UTC")),
        "l": pa.array([["x", None], []]),
        "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
        "r": pa.array([{"a": 1}, None], pa.struct([pa.field("a", pa.int32())])),
    }
    texts = object_texts(list(columns), list(columns.values())).to_pylist()
    assert texts == [
        '{"i":1,"d":1.50,"f":1.0,"s":"a\\"\\\\\\u000a\\u0001ü","b":"AP8=","day":"2024-02-29","t":"12:34:56.78",'
        '"ts":"2024-02-29 12:34:56.78","whole":"2024-02-29 12:34:56","z":"2024-02-29 12:34:56.78Z","l":["x",null],'
        '"m":{"k":1},"r":{"a":1}}',
        '{"i":null,"d":null,"f":"NaN","s":null,"b":null,"day":null,"t":null,"ts":null,"whole":null,"z":null,"l":[],'
        '"m":null,"r":null}',
    ]


def test_years_that_json_cannot_hold_are_refused_by_column() -> None:
    for value in (253402300800, -62167219201):
        with pytest.raises(LogConfigError, match=r"column c: .*outside the years 0 to 9999.*log.format=arrow"):
            object_texts(["c"], [pa.array([value], pa.timestamp("s"))])


@pytest.mark.parametrize(
    "value", [[("a", 1), ("b", 2), ("a", 1)], [(float("nan"), 1), (1.0, 2), (float("nan"), 3)]], ids=["texts", "NaN"]
)
def test_maps_with_a_key_twice_are_refused_by_column(value: list[tuple[object, int]]) -> None:
    key = pa.string() if isinstance(value[0][0], str) else pa.float64()
    column = pa.array([value[:2], None, value, value[1:]], pa.map_(key, pa.int32()))
    with pytest.raises(LogConfigError, match=r"column c: a map has a key twice.*log.format=arrow"):
        object_texts(["c"], [column])
    for part in (column.slice(0, 2), column.slice(3)):
        assert [text.count(":") for text in object_texts(["c"], [part]).to_pylist()] == [3, 1][: len(part)]
    with pytest.raises(LogConfigError, match=r"column c: a map has a key twice"):
        object_texts(["c"], [pa.array([[None], [value]], pa.list_(column.type))])
