"""Columns of old files in the types of the current schema."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.casts import evolution
from freshet.storage.casts.evolution import keeps_bounds, map_columns
from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import ArrayType, DataField, DataType, MapType, RowType, parse_data_type


def field(field_id: int, name: str, data_type: DataType | str) -> DataField:
    resolved = parse_data_type(data_type) if isinstance(data_type, str) else data_type
    return DataField(field_id, name, resolved)


def evolve(source: DataField, wanted: DataField, values: list[Any]) -> pa.Array:
    (column,) = map_columns([source], [wanted])
    array = pa.array(values, arrow_type(source.type))
    result = column.convert(array, len(array))
    assert result.type == arrow_type(wanted.type)
    return result


def test_columns_are_found_by_id_not_by_name() -> None:
    old = [field(0, "a", "INT"), field(1, "b", "STRING"), field(2, "c", "INT")]
    now = [field(3, "c", "INT"), field(1, "renamed", "STRING"), field(0, "a", "BIGINT")]
    added, renamed, widened = map_columns(old, now)
    assert added.source is None
    assert added.convert(None, 2).to_pylist() == [None, None]
    assert renamed.source is old[1]
    assert renamed.cast is None
    assert widened.convert(pa.array([1, None], pa.int32()), 2).to_pylist() == [1, None]


def test_equal_types_keep_their_buffers() -> None:
    array = pa.array([[{"x": 1}], None], pa.list_(pa.struct([("x", pa.int32())])))
    of_rows = ArrayType(RowType((field(1, "x", "INT"),)))
    (column,) = map_columns([field(0, "a", of_rows)], [field(0, "b", of_rows)])
    assert column.convert(array, 2) is array
    longer = map_columns([field(0, "a", "VARCHAR(3)")], [field(0, "a", "STRING")])[0]
    assert longer.cast is None


def test_no_cast_is_looked_for_where_types_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file of each scan asks for each column: it took a fifth of the time of small scans."""
    monkeypatch.setattr(evolution, "cast_scalar", None)
    row = RowType((field(1, "x", "INT"), field(2, "y", "DECIMAL(9, 2)")))
    fields = [
        field(0, "r", row),
        field(3, "m", MapType(parse_data_type("INT NOT NULL"), row)),
        field(4, "t", "TIME(3)"),
    ]
    assert [column.cast for column in map_columns(fields, list(fields))] == [None] * 3
    with pytest.raises(TypeError):
        map_columns([field(0, "a", "INT")], [field(0, "a", "BIGINT")])


def test_rows_are_mapped_by_nested_id() -> None:
    inner = RowType((field(2, "p", "INT"),))
    old = field(0, "r", RowType((field(1, "x", "INT"), field(3, "y", inner), field(4, "z", "STRING"))))
    inner_now = RowType((field(9, "new", "STRING"), field(2, "q", "BIGINT")))
    now = field(0, "r", RowType((field(4, "zz", "STRING"), field(3, "y", inner_now), field(8, "x", "INT"))))
    values = [{"x": 1, "y": {"p": 7}, "z": "s"}, None, {"x": 2, "y": None, "z": None}]
    assert evolve(old, now, values).to_pylist() == [
        {"zz": "s", "y": {"new": None, "q": 7}, "x": None},
        None,
        {"zz": None, "y": None, "x": None},
    ]


@pytest.mark.parametrize("start", [0, 1, 2])
def test_lists_and_maps_of_rows_also_sliced(start: int) -> None:
    row, row_now = RowType((field(1, "x", "INT"),)), RowType((field(1, "y", "STRING"), field(5, "n", "INT")))
    lists = [[{"x": 1}, None], None, [], [{"x": None}]]
    (column,) = map_columns([field(0, "a", ArrayType(row))], [field(0, "a", ArrayType(row_now))])
    array = pa.array(lists, arrow_type(ArrayType(row))).slice(start)
    expected = [[{"y": "1", "n": None}, None], None, [], [{"y": None, "n": None}]]
    assert column.convert(array, len(array)).to_pylist() == expected[start:]

    key = parse_data_type("STRING NOT NULL")
    maps = [[("k", {"x": 1}), ("l", None)], None, [], [("m", {"x": 2})]]
    (column,) = map_columns([field(0, "m", MapType(key, row))], [field(0, "m", MapType(key, row_now))])
    array = pa.array(maps, arrow_type(MapType(key, row))).slice(start)
    expected_maps = [[("k", {"y": "1", "n": None}), ("l", None)], None, [], [("m", {"y": "2", "n": None})]]
    assert column.convert(array, len(array)).to_pylist() == expected_maps[start:]


def test_renamed_row_fields_of_equal_types() -> None:
    old, now = RowType((field(1, "x", "INT"),)), RowType((field(1, "y", "INT"),))
    assert evolve(field(0, "r", old), field(0, "r", now), [{"x": 1}, None]).to_pylist() == [{"y": 1}, None]
    swapped = RowType((field(2, "a", "INT"), field(1, "b", "INT")))
    pair = RowType((field(1, "a", "INT"), field(2, "b", "INT")))
    assert evolve(field(0, "r", pair), field(0, "r", swapped), [{"a": 1, "b": 2}]).to_pylist() == [{"a": 2, "b": 1}]


def test_a_row_that_is_null_has_no_fields_that_must_not_be() -> None:
    old, now = (RowType((field(1, "x", f"{kind} NOT NULL"),)) for kind in ("INT", "BIGINT"))
    assert evolve(field(0, "r", old), field(0, "r", now), [{"x": 1}, None]).to_pylist() == [{"x": 1}, None]


def test_a_pair_without_a_cast_names_column_and_types() -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"'d'.*DATE.*INT"):
        map_columns([field(0, "d", "DATE")], [field(0, "d", "INT")])
    key, other = parse_data_type("INT NOT NULL"), parse_data_type("BIGINT NOT NULL")
    value = parse_data_type("INT")
    with pytest.raises(UnsupportedFeatureError, match=r"'m'.*keys"):
        map_columns([field(0, "m", MapType(key, value))], [field(0, "m", MapType(other, value))])


def test_a_value_that_does_not_convert_names_the_column() -> None:
    with pytest.raises(InvalidRequestError, match=r"'s'.*STRING.*INT.*'abc'"):
        evolve(field(0, "s", "STRING"), field(0, "s", "INT"), ["abc"])


@pytest.mark.parametrize(
    ("source", "target", "kept"),
    [
        ("INT", "INT NOT NULL", True),
        ("INT", "BIGINT", True),
        ("VARCHAR(2)", "STRING", True),
        ("BIGINT", "INT", False),
        ("STRING", "VARCHAR(2)", False),
        ("INT", "DOUBLE", False),
        ("FLOAT", "DOUBLE", False),
        ("INT", "STRING", False),
        ("DECIMAL(4, 2)", "DECIMAL(6, 2)", False),
    ],
)
def test_when_statistics_of_the_file_may_be_used(source: str, target: str, kept: bool) -> None:
    assert keeps_bounds(parse_data_type(source), parse_data_type(target)) is kept
