"""Bounds and null counts of columns, gathered over several writes."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.codec.stats import ColumnStats
from freshet.storage.files.column_bounds import ColumnBounds
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import ArrayType, DataField, DataType, parse_data_type


def bounds(data_type: str | DataType, *writes: list[Any]) -> ColumnStats:
    resolved = parse_data_type(data_type) if isinstance(data_type, str) else data_type
    running = ColumnBounds([DataField(0, "c", resolved)])
    for values in writes:
        running.add(pa.table({"c": pa.array(values, arrow_type(resolved))}))
    return running.stats()["c"]


@pytest.mark.parametrize(
    ("data_type", "writes", "low", "high", "nulls"),
    [
        ("INT", [[3, None], [], [-1, 2]], -1, 3, 1),
        ("INT", [[None], [5]], 5, 5, 1),
        ("STRING", [["b"], ["\U0001f600", "\uffee"], ["a" * 5000]], "a" * 5000, "\U0001f600", 0),
        ("BYTES", [[b"\x80", b"\x7f"]], b"\x7f", b"\x80", 0),
        ("DECIMAL(38, 10)", [[Decimal("-1.5")], [Decimal("2.25"), None]], Decimal("-1.5"), Decimal("2.25"), 1),
        ("BOOLEAN", [[True], [False]], False, True, 0),
        ("TIMESTAMP(6)", [[5], [-7]], -7, 5, 0),
        ("DATE", [[0], [2**30]], 0, 2**30, 0),
        ("TIMESTAMP(9)", [[5, None]], 5, 5, 1),
        (ArrayType(parse_data_type("INT")), [[[1], None]], None, None, 1),
        ("INT", [], None, None, 0),
    ],
)
def test_bounds(data_type: str, writes: list[list[Any]], low: Any, high: Any, nulls: int) -> None:
    assert bounds(data_type, *writes) == ColumnStats(low, high, nulls)


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("writes", "low", "high"),
    [
        ([[1.5, -2.0]], "-2.0", "1.5"),
        ([[0.0, -0.0]], "-0.0", "0.0"),
        ([[0.0], [-0.0]], "-0.0", "0.0"),
        ([[-0.0, -1.0]], "-1.0", "-0.0"),
        ([[0.0, 1.0]], "0.0", "1.0"),
        ([[NAN, 1.0], [2.0]], "1.0", "nan"),
        ([[1.0], [NAN]], "1.0", "nan"),
        ([[NAN]], "nan", "nan"),
        ([[NAN], [-INF]], "-inf", "nan"),
        ([[INF, None], [-INF]], "-inf", "inf"),
    ],
)
@pytest.mark.parametrize("data_type", ["FLOAT", "DOUBLE"])
def test_order_of_floats(data_type: str, writes: list[list[Any]], low: str, high: str) -> None:
    stats = bounds(data_type, *writes)
    assert (repr(stats.min_value), repr(stats.max_value)) == (low, high)
