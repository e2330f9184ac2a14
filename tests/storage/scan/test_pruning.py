"""What metadata alone may leave out, and what it must not (MERGING.md §6.1)."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.codec.binary_row import encode_row
from freshet.storage.codec.bucket_function import bucket_ids
from freshet.storage.codec.stats import ColumnStats, encode_stats, encode_value_stats
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.column import col
from freshet.storage.filters.predicate import Predicate
from freshet.storage.model.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, SimpleStats
from freshet.storage.model.data_type import DataField, parse_data_type
from freshet.storage.model.schema import TableSchema
from freshet.storage.scan.pruning import (
    BucketPruning,
    CurrentStatistics,
    PartitionPruning,
    ScanFilter,
    bucket_files,
    partition_stats,
)
from tests.kit.notation import data_file


def schema(columns: Mapping[str, str], *, keys: str = "", partition: str = "", schema_id: int = 0) -> TableSchema:
    """Columns as `name` or `name#id` to type; ids count from 0 where they are not given."""
    fields = []
    for index, (name, text) in enumerate(columns.items()):
        plain, _, number = name.partition("#")
        fields.append(DataField(int(number or index), plain, parse_data_type(text)))
    return TableSchema(schema_id, tuple(fields), 99, tuple(partition.split()), tuple(keys.split()))


class Schemas:
    """Knows the schemas given."""

    def __init__(self, *schemas: TableSchema) -> None:
        self._schemas = {schema.id: schema for schema in schemas}

    def schema(self, schema_id: int) -> TableSchema:
        return self._schemas[schema_id]


KEYED = schema({"k": "INT NOT NULL", "v": "INT", "s": "STRING"}, keys="k")


def keyed_file(key: tuple[int, int], value: tuple[int, int] | None, *, level: int = 0, number: int = 0) -> DataFileMeta:
    rows = key[1] - key[0] + 1
    value_stats = ColumnStats(None, None, rows) if value is None else ColumnStats(*value, 0)
    stats, covered = encode_value_stats(("v",), (value_stats,), KEYED.types_of(("v",)), dense=True)
    return replace(
        data_file(*key, level=level, number=number),
        key_stats=encode_stats((ColumnStats(*key, 0),), KEYED.types_of(("k",))),
        value_stats=stats,
        value_stats_cols=("v",) if covered is None else covered,
    )


def kept(files: list[DataFileMeta], predicate: Predicate, table: TableSchema = KEYED) -> list[str]:
    statistics = CurrentStatistics(Schemas(table), table)  # type: ignore[arg-type]
    return [file.file_name for file in bucket_files(files, ScanFilter.bind(table, predicate), statistics, {})]


OVERLAPPING = [keyed_file((0, 9), (1, 5), number=0), keyed_file((5, 20), (6, 9), number=1)]
APART = [keyed_file((0, 9), (1, 5), level=3, number=0), keyed_file((10, 20), (6, 9), level=3, number=1)]
FIRST, SECOND = "data-0.parquet", "data-1.parquet"


@pytest.mark.parametrize(
    ("predicate", "overlapping", "apart"),
    [
        (col("k") == 3, [FIRST], [FIRST]),
        (col("k") == 7, [FIRST, SECOND], [FIRST]),
        (col("k") > 20, [], []),
        (col("v") == 3, [FIRST, SECOND], [FIRST]),
        (col("v") == 8, [FIRST, SECOND], [SECOND]),
        (col("v") == 10, [], []),
        (col("v").is_null(), [], []),
        ((col("k") < 5) & (col("v") == 8), [], []),
        ((col("k") < 5) | (col("v") == 8), [FIRST, SECOND], [FIRST, SECOND]),
        (col("s") == "x", [FIRST, SECOND], [FIRST, SECOND]),
    ],
    ids=str,
)
def test_values_prune_files_only_where_files_do_not_overlap(
    predicate: Predicate, overlapping: list[str], apart: list[str]
) -> None:
    assert kept(OVERLAPPING, predicate) == overlapping
    assert kept(APART, predicate) == apart


def test_two_levels_count_as_overlapping_even_when_ranges_do_not() -> None:
    files = [APART[0], replace(APART[1], level=4)]
    assert kept(files, col("v") == 3) == [FIRST, SECOND]


def test_append_tables_prune_each_file() -> None:
    append = schema({"k": "INT", "v": "INT", "s": "STRING"})
    files = [replace(file, key_stats=EMPTY_STATS, min_key=EMPTY_ROW, max_key=EMPTY_ROW) for file in OVERLAPPING]
    assert kept(files, col("v") == 3, append) == [FIRST]


# --- evolved schemas -------------------------------------------------------------------------------------------------

OLD = schema({"k": "INT NOT NULL", "a": "INT", "b": "STRING", "c": "BIGINT", "gone": "INT"}, keys="k")
NEW = schema(
    {"k": "INT NOT NULL", "b2#2": "STRING", "a#1": "BIGINT", "c#3": "INT", "gone#9": "INT"}, keys="k", schema_id=1
)


def old_file(covered: tuple[str, ...] | None = None) -> DataFileMeta:
    names = covered or OLD.column_names
    known = {
        "k": ColumnStats(0, 9, 0),
        "a": ColumnStats(1, 5, 0),
        "b": ColumnStats("b", "d", 1),
        "c": ColumnStats(1, 5, 0),
        "gone": ColumnStats(1, 5, 0),
    }
    stats = encode_stats([known[name] for name in names], OLD.types_of(names))
    return replace(data_file(0, 9, level=5), value_stats=stats, value_stats_cols=covered)


@pytest.mark.parametrize("covered", [None, ("c", "b", "a", "gone")])
def test_statistics_follow_field_ids(covered: tuple[str, ...] | None) -> None:
    statistics = CurrentStatistics(Schemas(OLD, NEW), NEW)  # type: ignore[arg-type]
    stats = statistics.of(old_file(covered))
    assert stats["b2"] == ColumnStats("b", "d", 1), "renamed"
    assert stats["a"] == ColumnStats(1, 5, 0), "wider integer"
    assert "c" not in stats, "narrowing changes values"
    assert stats["gone"] == ColumnStats(None, None, 10), "dropped and added again: another column, all NULL here"


def test_no_statistics_prune_nothing() -> None:
    statistics = CurrentStatistics(Schemas(OLD), OLD)  # type: ignore[arg-type]
    assert statistics.of(replace(old_file(), value_stats=EMPTY_STATS, value_stats_cols=())) == {}
    assert statistics.of(replace(old_file(), value_stats=EMPTY_STATS, value_stats_cols=None)) == {}


# --- partitions and buckets ------------------------------------------------------------------------------------------

PARTITIONED = schema(
    {"day": "DATE NOT NULL", "region": "STRING", "k": "INT NOT NULL", "v": "INT"},
    keys="day region k",
    partition="day region",
)
TYPES = PARTITIONED.types_of(("day", "region"))
FIRST_DAY = datetime.date(2026, 1, 1)


def partition(day: datetime.date, region: str | None) -> bytes:
    return encode_row((day, region), TYPES)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (col("day") == FIRST_DAY, {"a", "null"}),
        (col("day") > FIRST_DAY, {"b"}),
        (col("region") == "b", {"b"}),
        (col("region").is_null(), {"null"}),
        (~(col("region") == "a"), {"b"}),
        ((col("region") == "a") | (col("v") == 1), {"a", "b", "null"}),
        (col("v") == 1, {"a", "b", "null"}),
    ],
    ids=str,
)
def test_partitions(predicate: Predicate, expected: set[str]) -> None:
    scan_filter = ScanFilter.bind(PARTITIONED, predicate)
    assert scan_filter is not None
    pruning = PartitionPruning(scan_filter, TYPES)
    rows = {
        "a": partition(FIRST_DAY, "a"),
        "b": partition(datetime.date(2026, 1, 2), "b"),
        "null": partition(FIRST_DAY, None),
    }
    assert {name for name, row in rows.items() if pruning.keeps(row)} == expected
    for name, row in rows.items():
        bounds = SimpleStats(row, row, (0, 1 if name == "null" else 0))
        assert pruning.may_keep(bounds) or name not in expected


def test_manifest_bounds_exclude_partitions() -> None:
    scan_filter = ScanFilter.bind(PARTITIONED, col("day") > datetime.date(2026, 2, 1))
    assert scan_filter is not None
    pruning = PartitionPruning(scan_filter, TYPES)
    low, high = partition(FIRST_DAY, "a"), partition(datetime.date(2026, 1, 31), "z")
    assert not pruning.may_keep(SimpleStats(low, high, (0, 0)))
    assert pruning.may_keep(SimpleStats(low, partition(datetime.date(2026, 3, 1), "z"), (0, 0)))


def test_partition_constants_join_a_mixed_filter() -> None:
    constants = partition_stats(partition(FIRST_DAY, None), ("day", "region"), TYPES, row_count=1)
    assert constants == {"day": ColumnStats(FIRST_DAY, FIRST_DAY, 0), "region": ColumnStats(None, None, 1)}
    scan_filter = ScanFilter.bind(PARTITIONED, (col("region") == "a") | (col("v") == 7))
    stats = encode_stats((ColumnStats(1, 5, 0),), PARTITIONED.types_of(("v",)))
    file = replace(data_file(0, 9, level=5), value_stats=stats, value_stats_cols=("v",))
    statistics = CurrentStatistics(Schemas(PARTITIONED), PARTITIONED)  # type: ignore[arg-type]
    assert bucket_files([file], scan_filter, statistics, constants) == []
    assert bucket_files([file], scan_filter, statistics, {}) == [file]


@pytest.mark.parametrize(
    ("predicate", "keys"),
    [
        (col("k") == 5, [5]),
        (col("k").is_in([5, 6, 7]), [5, 6, 7]),
        ((col("k") == 5) | (col("k") == 9), [5, 9]),
        ((col("k") == 5) & (col("v") > 0), [5]),
        (col("k").is_in([5, 6]) & col("k").is_in([6, 7]), [6]),
        ((col("k") == 5) & (col("k") == 6), []),
        ((col("k") == 5) | (col("v") == 9), None),
        (col("k") > 5, None),
        (~(col("k") == 5), None),
        (col("v") == 5, None),
    ],
    ids=str,
)
def test_buckets_of_key_values(predicate: Predicate, keys: list[int] | None) -> None:
    scan_filter = ScanFilter.bind(KEYED, predicate)
    assert scan_filter is not None
    types = KEYED.types_of(("k",))
    pruning = BucketPruning(scan_filter, ("k",), types, "default")
    for total in (4, 7):
        found = {bucket for bucket in range(total) if pruning.keeps(bucket, total)}
        expected = (
            range(total) if keys is None else bucket_ids([pa.array(keys, pa.int32())], types, total) if keys else ()
        )
        assert found == set(map(int, expected))
    assert pruning.keeps(0, -1)


def test_float_bucket_keys_do_not_prune() -> None:
    """-0.0 = 0.0 for the filter, but they lie in different buckets."""
    table = schema({"k": "DOUBLE NOT NULL", "v": "INT"}, keys="k")
    scan_filter = ScanFilter.bind(table, col("k") == 0.0)
    assert scan_filter is not None
    pruning = BucketPruning(scan_filter, ("k",), table.types_of(("k",)), "default")
    assert all(pruning.keeps(bucket, 8) for bucket in range(8))


def test_composite_bucket_key_needs_every_column() -> None:
    table = schema({"a": "INT NOT NULL", "b": "STRING NOT NULL", "v": "INT"}, keys="a b")
    types = table.types_of(("a", "b"))

    def pruned(predicate: Predicate) -> set[int]:
        scan_filter = ScanFilter.bind(table, predicate)
        assert scan_filter is not None
        pruning = BucketPruning(scan_filter, ("a", "b"), types, "default")
        return {bucket for bucket in range(16) if pruning.keeps(bucket, 16)}

    expected = bucket_ids([pa.array([1, 1], pa.int32()), pa.array(["x", "y"])], types, 16)
    assert pruned((col("a") == 1) & col("b").is_in(["x", "y"])) == set(map(int, expected))
    assert pruned(col("a") == 1) == set(range(16))


def test_filter_parts() -> None:
    day, region, key, value = col("day") == FIRST_DAY, col("region") == "a", col("k") == 1, col("v") == 2
    scan_filter = ScanFilter.bind(PARTITIONED, day & (region | value) & key & value)
    assert scan_filter is not None

    def parts(predicate: Any) -> int:
        return 0 if predicate is None else len(predicate.conjuncts())

    assert (parts(scan_filter.partition_part), parts(scan_filter.key_part), parts(scan_filter.file_part)) == (1, 1, 2)
    assert ScanFilter.bind(PARTITIONED, None) is None
    with pytest.raises(InvalidRequestError, match="no column 'nope'"):
        ScanFilter.bind(PARTITIONED, col("nope") == 1)
