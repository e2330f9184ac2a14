"""Values of computed columns, against Python's own dates and texts."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.pipeline.config.computed_columns import ComputedColumn
from freshet.pipeline.decode.decoder import RecordDecoder
from freshet.pipeline.decode.planning import plan_decoding
from freshet.pipeline.decode.selected_columns import computed_values
from freshet.storage.exceptions import InvalidRequestError
from tests.pipeline.records import change, pipeline_of, run

PARTS = ("year", "month", "day", "hour", "minute", "second")
FORMAT = "yyyy/MM/dd HH-mm-ss"
MICROS, UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")
_TIMES = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999))
_DATES = st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31))


def values(text: str, column: list[Any], kind: Any) -> list[Any]:
    array = pa.array(column, kind)
    found = computed_values(ComputedColumn.parse(text), array, len(array))
    assert len(found) == len(array)
    listed: list[Any] = found.to_pylist()
    return listed


def part_of(name: str, value: datetime.date | None) -> int | None:
    return None if value is None else getattr(value, name, 0)


def shown(value: datetime.date | None) -> str | None:
    if value is None:
        return None
    year, month, day, hour, minute, second = (part_of(name, value) for name in PARTS)
    return f"{year:04}/{month:02}/{day:02} {hour:02}-{minute:02}-{second:02}"


@given(st.lists(st.none() | _TIMES))
def test_times(times: list[datetime.datetime | None]) -> None:
    """With and without a zone: times are UTC."""
    zoned = [None if each is None else each.replace(tzinfo=datetime.UTC) for each in times]
    for column, kind in ((times, MICROS), (zoned, UTC)):
        for name in PARTS:
            assert values(f"{name}(c)", column, kind) == [part_of(name, each) for each in times]
        assert values(f"date_format(c, '{FORMAT}')", column, kind) == [shown(each) for each in times]


@given(st.lists(st.none() | _DATES))
def test_dates(dates: list[datetime.date | None]) -> None:
    for name in PARTS:
        assert values(f"{name}(c)", dates, pa.date32()) == [part_of(name, each) for each in dates]
    assert values(f"date_format(c, '{FORMAT}')", dates, pa.date32()) == [shown(each) for each in dates]


@pytest.mark.parametrize("unit", ["s", "ms", "ns"])
def test_times_of_other_precisions(unit: str) -> None:
    column = [datetime.datetime(1969, 12, 31, 23, 59, 59), None, datetime.datetime(2024, 2, 29, 1, 2, 3)]
    assert values(f"date_format(c, '{FORMAT}')", column, pa.timestamp(unit)) == [shown(each) for each in column]
    assert values("second(c)", column, pa.timestamp(unit)) == [59, None, 3]


@given(st.lists(_TIMES))
def test_texts_in_iso_form(times: list[datetime.datetime]) -> None:
    texts = [each.isoformat() for each in times]
    assert values(f"date_format(c, '{FORMAT}')", texts, pa.string()) == [shown(each) for each in times]
    assert values("month(c)", texts, pa.string()) == [each.month for each in times]


def test_texts_that_are_no_times_give_null() -> None:
    texts = ["2024-02-03", "2024-02-03T23:05:06+02:00", "soon", "", None]
    assert values("hour(c)", texts, pa.string()) == [0, 21, None, None, None]


@given(st.lists(st.none() | st.text()), st.integers(0, 5), st.integers(0, 5))
def test_parts_of_texts(texts: list[str | None], begin: int, end: int) -> None:
    def each(part: Callable[[str], str]) -> list[str | None]:
        return [None if text is None else part(text) for text in texts]

    assert values(f"substring(c, {begin})", texts, pa.string()) == each(lambda text: text[begin:])
    assert values(f"substring(c, {begin}, {end})", texts, pa.string()) == each(lambda text: text[begin:end])
    assert values(f"truncate(c, {end + 1})", texts, pa.string()) == each(lambda text: text[: end + 1])


@given(st.lists(st.none() | st.text("aBzÄé1 _")))
def test_upper_lower_trim(texts: list[str | None]) -> None:
    for name, function in (("upper", str.upper), ("lower", str.lower), ("trim", str.strip)):
        assert values(f"{name}(c)", texts, pa.string()) == [None if each is None else function(each) for each in texts]


@given(st.lists(st.none() | st.integers(-(1 << 62), (1 << 62) - 1)), st.integers(1, 10**9))
def test_truncated_numbers(numbers: list[int | None], width: int) -> None:
    expected = [None if each is None else each - each % width for each in numbers]
    assert values(f"truncate(c, {width})", numbers, pa.int64()) == expected


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_truncated_numbers_keep_their_type(kind: Any) -> None:
    found = computed_values(ComputedColumn.parse("truncate(c, 10)"), pa.array([-1, 7, None], kind), 3)
    assert found.type == kind and found.to_pylist() == [-10, 0, None]


def test_the_smallest_number_wraps_around() -> None:
    assert values("truncate(c, 100)", [-128, 127], pa.int8()) == [56, 100]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("cast('a, b', STRING)", "a, b"),
        ("cast(5, INT)", 5),
        ("cast('2024-02-03', DATE)", datetime.date(2024, 2, 3)),
        ("cast('2024-02-03 04:05:06', TIMESTAMP(3))", datetime.datetime(2024, 2, 3, 4, 5, 6)),
        ("cast(true, BOOLEAN)", True),
    ],
)
def test_constants(text: str, value: Any) -> None:
    found = computed_values(ComputedColumn.parse(text), None, 3)
    assert found.to_pylist() == [value] * 3
    assert len(computed_values(ComputedColumn.parse(text), None, 0)) == 0


def test_a_constant_that_is_none_of_its_type() -> None:
    with pytest.raises(InvalidRequestError, match="cast wants a constant of type TIME, not 'noon'"):
        computed_values(ComputedColumn.parse("cast('noon', TIME)"), None, 1)


def decoded_with(columns: dict[str, str], computed: dict[str, str], *records: dict[str, Any]) -> list[str]:
    plan = plan_decoding(pipeline_of(columns), 0)
    own = [
        replace(each, direct=None, computed=ComputedColumn.parse(computed[each.field.name]))
        if each.field.name in computed
        else each
        for each in plan.columns
    ]
    return run(RecordDecoder(replace(plan, columns=tuple(own))), list(records)).shown


def test_in_the_decoder() -> None:
    """A column that is computed of one that a change does not carry is kept as that one is."""
    columns = {
        "id": "BIGINT", "doc": "STRING", "at": "TIMESTAMP(3)", "upper_doc": "STRING", "dt": "STRING", "noon": "TIME(3)",
        "fine": "TIMESTAMP(9)",
    }  # fmt: skip
    computed = {
        "upper_doc": "upper(doc)", "dt": "date_format(at, 'yyyy-MM-dd')", "noon": "cast('12:00', TIME(3))",
        "fine": "cast('1970-01-01 00:00:01', TIMESTAMP(9))",
    }  # fmt: skip
    row = {"id": 1, "doc": "ab", "at": 1_700_000_000_000}
    kept = {**row, "doc": "__debezium_unavailable_value"}
    found = decoded_with(columns, computed, change("c", None, row), change("u", None, kept), change("d", row, None))
    noon, fine = 12 * 3_600_000, 1_000_000_000
    assert found[0] == f"+I(1, ab, 2023-11-14 22:13:20, AB, 2023-11-14, {noon}, {fine})"
    assert found[1] == f"+U(1, None, 2023-11-14 22:13:20, None, 2023-11-14, {noon}, {fine}) keep 1,3"
    assert found[2].startswith("-D(1, ab, ")
