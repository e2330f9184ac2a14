"""Limits of Arrow batches by the records seen so far, and that the next batch of a query has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from freshet.logstore.kafka.record_sizes import NOTHING_SEEN, RecordSizes
from freshet.pipeline.spark.arrow_batches import (
    BATCH_BYTES,
    BYTES_OPTION,
    LIMITED_ROWS,
    NO_BYTE_LIMIT,
    RECORDS_MAX,
    RECORDS_OPTION,
    ArrowBatches,
    BatchLimits,
    limits_for,
)

LARGE = RecordSizes(5_000_000, 5_000_000)
SMALL = RecordSizes(650, 700)


def test_nothing_is_counted_after_each_row_while_only_small_records_were_seen() -> None:
    assert limits_for(SMALL) == limits_for(RecordSizes(2769, 2800)) == BatchLimits(RECORDS_MAX, None)


def test_records_that_nobody_has_seen_are_limited_in_bytes() -> None:
    assert limits_for(NOTHING_SEEN) == BatchLimits(RECORDS_MAX, BATCH_BYTES)


def test_some_large_records_among_small_ones_are_limited_in_bytes() -> None:
    assert limits_for(RecordSizes(650, 5_000_000)) == BatchLimits(LIMITED_ROWS, BATCH_BYTES)


@pytest.mark.parametrize("size", [1, 1000, 4000, 100_000, 5_000_000, 1 << 30])
def test_a_batch_holds_so_many_bytes_or_one_row(size: int) -> None:
    rows = limits_for(RecordSizes(size, size)).rows
    assert rows == 1 or rows * size <= BATCH_BYTES


def test_what_was_seen_counts_for_some_batches() -> None:
    arrow = ArrowBatches()
    arrow.saw(LARGE)
    for _ in range(7):
        arrow.saw(SMALL)
        assert arrow.limits().rows == BATCH_BYTES // LARGE.mean
    arrow.saw(NOTHING_SEEN)
    assert arrow.limits().size_bytes == BATCH_BYTES, "an empty batch says nothing"
    arrow.saw(SMALL)
    assert arrow.limits() == BatchLimits()


@contextmanager
def session_rows(spark: SparkSession, text: str) -> Iterator[None]:
    before = {key: spark.conf.get(key, None) for key in (RECORDS_OPTION, BYTES_OPTION)}
    spark.conf.set(RECORDS_OPTION, text)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)


@pytest.mark.slow
@pytest.mark.spark
def test_limits_are_those_of_the_sizes_and_never_above_the_sessions_own(spark: SparkSession) -> None:
    def found() -> tuple[str | None, str | None]:
        return spark.conf.get(RECORDS_OPTION, None), spark.conf.get(BYTES_OPTION, None)

    arrow = ArrowBatches()
    arrow.saw(SMALL)
    with session_rows(spark, "1000"):
        with arrow.in_force(spark):
            assert found() == ("1000", NO_BYTE_LIMIT)
        arrow.saw(LARGE)
        arrow.follow(spark)
        assert found() == ("10", str(BATCH_BYTES))
        for _ in range(8):
            arrow.saw(SMALL)
        arrow.follow(spark)
        assert found() == ("1000", NO_BYTE_LIMIT)
