"""What a change of type can do to stored values: said of every pair that may be cast, and true."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.casts.casts import can_cast, cast_scalar, possible_loss
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import DataField, RowType, ScalarType
from freshet.storage.model.sql_type import parse_sql_type

VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 127],
    "SMALLINT": [-(2**15), 2**15 - 1],
    "INT": [-(2**31), 2**31 - 1, 2**24 + 1],
    "BIGINT": [-(2**63), 2**63 - 1, 2**53 + 1],
    "FLOAT": [1.5, -3.4028234663852886e38, 1.1754943508222875e-38],
    "DOUBLE": [0.1, -1.7976931348623157e308, 5e-324],
    "DECIMAL(3, 0)": [-999, 999],
    "DECIMAL(4, 2)": ["-99.99", "0.01"],
    "DECIMAL(12, 2)": ["-9999999999.99", "0.01"],
    "DECIMAL(38, 0)": [10**38 - 1],
    "CHAR(2)": ["ab", "äß"],
    "VARCHAR(3)": ["", "ab", "€€€"],
    "VARCHAR(11)": ["", "x" * 11],
    "STRING": ["", "x" * 300, "12"],
    "BINARY(2)": [b"ab"],
    "VARBINARY(3)": [b"", b"\xff\x00\x01"],
    "BYTES": [b"", bytes(range(256))],
    "DATE": [-719_162, 0, 2_932_896],
    "TIME(0)": [0, 86_399_000],
    "TIME(3)": [0, 86_399_999],
    "TIMESTAMP(0)": [-62_135_596_800, 253_402_300_799],
    "TIMESTAMP(3)": [-62_135_596_800_000, 253_402_300_799_999],
    "TIMESTAMP(6)": [-1, 253_402_300_799_999_999],
    "TIMESTAMP(9)": [-(2**63) + 1, 2**63 - 1],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [-1, 253_402_300_799_999_999],
}
PAIRS = [
    (source, target)
    for source, target in itertools.permutations(VALUES, 2)
    if can_cast(parse_sql_type(source), parse_sql_type(target), explicit=True)
]


def column(kind: str) -> pa.Array:
    goal = arrow_type(parse_sql_type(kind))
    values = VALUES[kind]
    if pa.types.is_decimal(goal):
        return pa.array([str(value) for value in values]).cast(goal)
    if pa.types.is_temporal(goal):
        width = pa.int32() if goal.bit_width == 32 else pa.int64()
        return pa.array(values, width).cast(goal)
    return pa.array(values, goal)


def scalar(kind: str) -> ScalarType:
    data_type = parse_sql_type(kind)
    assert isinstance(data_type, ScalarType)
    return data_type


@pytest.mark.parametrize(
    ("source", "target"), [pair for pair in PAIRS if possible_loss(scalar(pair[0]), scalar(pair[1])) is None]
)
def test_without_a_loss_every_value_comes_back(source: str, target: str) -> None:
    there = cast_scalar(scalar(source), scalar(target))
    if not can_cast(scalar(target), scalar(source), explicit=True):
        assert (source, there is not None) == ("BOOLEAN", True)  # TRUE is 1, but 1 is no BOOLEAN
        assert [int(value) for value in there(column(source)).to_pylist()] == [1, 0]
        return
    back = cast_scalar(scalar(target), scalar(source))
    values = column(source)
    changed = values if there is None else there(values)
    assert changed.null_count == 0
    assert (changed if back is None else back(changed)).equals(values)


@pytest.mark.parametrize(
    ("source", "target", "loss"),
    [
        ("BIGINT", "SMALLINT", "wrap"),
        ("STRING", "INT", "reading fails for text that is not a valid INT"),
        ("DOUBLE", "FLOAT", "rounded"),
        ("BIGINT", "DOUBLE", "rounded"),
        ("DOUBLE", "INT", "fractions are cut"),
        ("DOUBLE", "DECIMAL(12, 2)", "NULL"),
        ("DECIMAL(12, 2)", "DECIMAL(4, 2)", "NULL"),
        ("DECIMAL(12, 2)", "DECIMAL(38, 0)", "rounded"),
        ("DECIMAL(4, 2)", "INT", "fractions are cut"),
        ("DECIMAL(38, 0)", "INT", "wrap"),
        ("BIGINT", "DECIMAL(12, 2)", "NULL"),
        ("VARCHAR(11)", "VARCHAR(3)", "longer than 3 characters is cut"),
        ("STRING", "CHAR(2)", "padded"),
        ("BYTES", "BINARY(2)", "padded with zeros"),
        ("INT", "BOOLEAN", "become TRUE"),
        ("TIMESTAMP(6)", "DATE", "time of day is gone"),
        ("TIMESTAMP(6)", "TIMESTAMP(3)", "fractions of a second are cut"),
        ("TIMESTAMP(3)", "TIMESTAMP(9)", "1677 to 2262"),
        ("DATE", "TIMESTAMP(9)", "1677 to 2262"),
        ("TIMESTAMP(6)", "TIMESTAMP(6) WITH LOCAL TIME ZONE", "other time zones"),
        ("ARRAY<BIGINT>", "ARRAY<INT>", "wrap"),
        ("MAP<STRING, DOUBLE>", "MAP<STRING, FLOAT>", "rounded"),
        ("ARRAY<INT>", "VARCHAR(3)", "longer than 3 characters is cut"),
    ],
)
def test_losses_in_words(source: str, target: str, loss: str) -> None:
    found = possible_loss(parse_sql_type(source), parse_sql_type(target))
    assert found is not None
    assert loss in found


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("INT", "BIGINT"),
        ("INT", "DOUBLE"),
        ("FLOAT", "DOUBLE"),
        ("INT", "DECIMAL(12, 2)"),
        ("VARCHAR(3)", "STRING"),
        ("INT", "VARCHAR(11)"),
        ("TIMESTAMP(6)", "STRING"),
        ("DATE", "TIMESTAMP(3)"),
        ("TIMESTAMP(3)", "TIMESTAMP(6)"),
        ("ARRAY<INT>", "ARRAY<BIGINT>"),
        ("BOOLEAN", "INT"),
    ],
)
def test_changes_without_a_loss(source: str, target: str) -> None:
    assert possible_loss(parse_sql_type(source), parse_sql_type(target)) is None


def test_rows_are_compared_by_field_id() -> None:
    def row(*fields: tuple[int, str, str]) -> RowType:
        return RowType(tuple(DataField(id_, name, parse_sql_type(kind)) for id_, name, kind in fields))

    before = row((1, "x", "INT"), (2, "y", "INT"))
    assert possible_loss(before, row((2, "why", "BIGINT"), (1, "x", "INT"), (3, "z", "INT"))) is None
    assert possible_loss(before, row((1, "x", "INT"))) == "the values of field y are gone"
    assert "wrap" in (possible_loss(before, row((1, "x", "INT"), (2, "y", "TINYINT"))) or "")
