"""Footer statistics as bounds: values of the column's type, or nothing."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.storage.codec.stats import NO_STATS, ColumnStats
from freshet.storage.files.parquet.reader import row_group_stats
from freshet.storage.model.data_type import DataField, parse_data_type


def bounds(tmp_path: Path, stored: pa.Array, data_type: str, *, name: str = "c", **options: Any) -> ColumnStats:
    pq.write_table(pa.table({name: stored}), tmp_path / "a.parquet", **options)
    file = pq.ParquetFile(tmp_path / "a.parquet")
    field = DataField(0, name, parse_data_type(data_type))
    return row_group_stats(file.metadata.row_group(0), file.schema_arrow, field, field)


@pytest.mark.parametrize(
    ("data_type", "stored", "low", "high"),
    [
        ("INT", pa.array([3, None, -1], pa.int32()), -1, 3),
        ("BOOLEAN", pa.array([True, None, False]), False, True),
        ("DOUBLE", pa.array([1.5, None, float("nan")]), 1.5, 1.5),
        ("DECIMAL(5, 2)", pa.array([Decimal("1.25"), None]), Decimal("1.25"), Decimal("1.25")),
        ("STRING", pa.array(["b", None, "é"]), "b", "é"),
        ("BYTES", pa.array([b"b", None, b"\xff"]), b"b", b"\xff"),
        ("DATE", pa.array([0, None], pa.date32()), datetime.date(1970, 1, 1), datetime.date(1970, 1, 1)),
        ("TIME(3)", pa.array([5, None], pa.time32("ms")), 5, 5),
        ("TIMESTAMP(6)", pa.array([-5, None, 7], pa.timestamp("us")), -5, 7),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", pa.array([5, None], pa.timestamp("ms", "UTC")), 5, 5),
    ],
)
def test_bounds_are_values_of_the_type(tmp_path: Path, data_type: str, stored: pa.Array, low: Any, high: Any) -> None:
    assert bounds(tmp_path, stored, data_type) == ColumnStats(low, high, 1)


@pytest.mark.parametrize(
    ("data_type", "stored"),
    [
        ("STRING", pa.array([b"abc", None], pa.binary())),
        ("TIMESTAMP(3)", pa.array([5, None], pa.timestamp("us"))),
        ("DATE", pa.array([2**30, None], pa.date32())),
        ("INT", pa.array([None], pa.int32())),
    ],
)
def test_what_is_stored_otherwise_has_no_bounds(tmp_path: Path, data_type: str, stored: pa.Array) -> None:
    assert bounds(tmp_path, stored, data_type) == ColumnStats(null_count=1)


def test_no_statistics_and_ambiguous_names(tmp_path: Path) -> None:
    ints = pa.array([1], pa.int32())
    assert bounds(tmp_path, ints, "INT", write_statistics=False) == NO_STATS
    assert bounds(tmp_path, ints, "INT", name="a.b") == NO_STATS
    moments = pa.array([1], pa.timestamp("us"))
    without = bounds(tmp_path, moments, "TIMESTAMP(6)", use_deprecated_int96_timestamps=True)
    assert (without.min_value, without.max_value) == (None, None)
