"""Rows go to the bucket their key hashes to, in the order they came."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.storage.codec.binary_row import encode_row
from freshet.storage.codec.bucket_function import bucket_ids
from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.model.arrow_types import fields_from_arrow
from freshet.storage.model.data_file import EMPTY_ROW
from freshet.storage.model.schema import TableSchema
from freshet.storage.write.bucketing import BucketCounts, BucketRouter
from freshet.storage.write.records import AcceptedRows

ARROW = pa.schema([pa.field("id", pa.int64(), False), pa.field("day", pa.string(), False), pa.field("n", pa.int64())])


class _Counts(BucketCounts):
    """Counts of partitions without a table."""

    def __init__(self, default: int, **by_day: int) -> None:
        self.default = default
        self._by_partition = {encode_row([day], schema(("day",)).types_of(("day",))): n for day, n in by_day.items()}

    def of(self, partitions: Sequence[bytes]) -> list[int]:
        return [self._by_partition.get(partition, self.default) for partition in partitions]


def schema(partitions: tuple[str, ...] = (), keys: tuple[str, ...] = ("id", "day")) -> TableSchema:
    fields, highest = fields_from_arrow(ARROW, keys, partitions)
    return TableSchema(0, fields, highest, partitions, keys)


def accepted(ids: list[int], days: list[str]) -> AcceptedRows:
    table = pa.table(
        {"id": ids, "day": days, "n": list(range(len(ids)))}, schema=pa.schema([(f.name, f.type) for f in ARROW])
    )
    return AcceptedRows(table, np.arange(len(ids), dtype=np.int8) % 4)


@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from("abc")), max_size=40), st.integers(1, 5))
def test_every_row_once_in_its_bucket_in_order(pairs: list[tuple[int, str]], buckets: int) -> None:
    table_schema = schema(("day",))
    router = BucketRouter(table_schema, counts=_Counts(buckets), bucket_key=(), function="default")
    rows = accepted([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    seen: list[int] = []
    for group in router.route(rows):
        positions = group.rows.column("n").to_pylist()
        assert positions == sorted(positions)
        seen += positions
        assert group.kinds is not None
        assert group.kinds.tolist() == [position % 4 for position in positions]
        ids = group.rows.column("id")
        assert set(bucket_ids([ids], table_schema.types_of(("id",)), buckets).tolist()) == {group.bucket}
        days = set(group.rows.column("day").to_pylist())
        assert {encode_row([day], table_schema.types_of(("day",))) for day in days} == {group.partition}
    assert sorted(seen) == list(range(len(pairs)))


def test_more_groups_than_separate_gathers() -> None:
    router = BucketRouter(schema(("day",)), counts=_Counts(1), bucket_key=(), function="default")
    rows = accepted(list(range(300)), [f"d{n % 100}" for n in range(300)])
    groups = list(router.route(rows))
    assert len(groups) == 100
    assert all(
        group.rows.column("id").to_pylist()[1] - group.rows.column("id").to_pylist()[0] == 100 for group in groups
    )


def test_one_group_is_passed_on_as_it_is() -> None:
    router = BucketRouter(schema(), counts=_Counts(1), bucket_key=(), function="default")
    rows = accepted([1, 2], ["a", "b"])
    (group,) = router.route(rows)
    assert group.rows is rows.rows
    assert (group.partition, group.bucket) == (EMPTY_ROW, 0)


def test_unaware_append_tables_have_bucket_zero() -> None:
    router = BucketRouter(schema(keys=()), counts=_Counts(-1), bucket_key=(), function="default")
    (group,) = router.route(accepted([1, 2], ["a", "b"]))
    assert (group.bucket, group.total_buckets) == (0, -1)


@pytest.mark.parametrize("bucket", [-1, -2])
def test_dynamic_buckets_are_refused(bucket: int) -> None:
    with pytest.raises(UnsupportedFeatureError, match="bucket=4"):
        BucketRouter(schema(), counts=_Counts(bucket), bucket_key=(), function="default")


def test_each_partition_counts_with_the_buckets_it_has() -> None:
    table_schema = schema(("day",))
    counts = {"a": 3, "b": 1, "c": 4}
    router = BucketRouter(table_schema, counts=_Counts(4, a=3, b=1), bucket_key=(), function="default")
    ids, days = list(range(60)), ["a", "b", "c"] * 20
    seen: dict[int, int] = {}
    for group in router.route(accepted(ids, days)):
        day = group.rows.column("day")[0].as_py()
        assert group.total_buckets == counts[day]
        seen |= dict.fromkeys(group.rows.column("id").to_pylist(), group.bucket)
    types = table_schema.types_of(("id",))
    assert seen == {
        n: int(bucket_ids([pa.array([n])], types, counts[day])[0]) for n, day in zip(ids, days, strict=True)
    }
